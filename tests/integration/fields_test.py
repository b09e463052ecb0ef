#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of every request that takes a body, with every kind of wrong value: refused with a status that means "surely
not applied", a code, and the JSON Pointer of the very field. Nothing of it changes the state."""
import copy
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

REFUSED = (400, 404, 409, 410, 413, 415, 422)
BIG = 1 << 53

# What a field is, and which of the values below that allows (others must be refused).
VALUES = {"null": None, "true": True, "zero": 0, "minus": -1, "half": 1.5, "empty": "", "array": [], "object": {}, "big": BIG,
          "text": "no such thing!", "nested": [[1]], "members": {"nothing known": 1}}
NAME = set()
COUNT, POSITIVE = {"zero"}, set()
FLAG, OBJECT, ARRAY = {"true"}, {"object"}, set()

# method, path, a body that is right, and for each field its pointer and what it is.
REQUESTS = [
    ("POST", "/v1/keyspaces",
     {"name": "fresh", "scheme": "range", "key_encoding": "utf8", "splits": ["a", "b"], "authority": "exclusive",
      "replicas": {"sync": 0, "async": 0}, "placement": {"require": {"zone": ["a", "b"]}, "spread": "rack"},
      "policy": {"too_many_items": 5, "uneven_access": 2.5, "require_warm": True, "required_checks": ["x"]},
      "expect_revision": 1},
     {"/name": NAME, "/scheme": NAME, "/key_encoding": NAME, "/splits": {"array"}, "/splits/1": {"text"}, "/authority": NAME,
      "/replicas": OBJECT, "/replicas/sync": COUNT, "/replicas/async": COUNT, "/placement": OBJECT,
      "/placement/require": OBJECT | {"null"}, "/placement/require/zone": {"text", "null"},
      "/placement/require/zone/1": {"text"},
      "/placement/spread": {"null"}, "/policy": OBJECT, "/policy/too_many_items": {"null", "big"},
      "/policy/uneven_access": {"null", "half"}, "/policy/require_warm": FLAG | {"null"},
      "/policy/required_checks": {"null", "array"}, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces",
     {"name": "fresh", "scheme": "hash", "partitions": 3, "partition_key": {"delimiter": "/", "fields": 1},
      "expect_revision": 1},
     {"/partitions": POSITIVE, "/partition_key": NAME, "/partition_key/delimiter": NAME,
      "/partition_key/fields": POSITIVE}),
    ("PATCH", "/v1/keyspaces/ks",
     {"replicas": {"sync": 0, "async": 0}, "placement": {"require": {"zone": "a"}, "spread": "rack"},
      "policy": {"uneven_size": 10}, "expect_revision": 1},
     {"/replicas": OBJECT | {"null"}, "/replicas/sync": COUNT, "/replicas/async": COUNT, "/placement": OBJECT | {"null"},
      "/placement/require": OBJECT | {"null"}, "/placement/require/zone": {"null", "text"},
      "/placement/spread": {"null"}, "/policy": OBJECT | {"null"}, "/policy/uneven_size": {"null", "half"},
      "/expect_revision": COUNT}),
    ("DELETE", "/v1/keyspaces/ks?confirm=ks", {"expect_revision": 1}, {"/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/split", {"at": ["b", "c"], "expect_epoch": 1, "expect_revision": 1},
     {"/at": ARRAY, "/at/1": {"empty", "text"}, "/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/merge", {"with": 7, "expect_epoch": 1, "expect_revision": 1},
     {"/with": COUNT, "/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/move",
     {"from": "n1", "to": "n2", "empty": True, "reason": "x", "max_bytes_per_s": 1, "size_bytes": 1,
      "live_bytes_per_s": 1, "expect_epoch": 1, "expect_revision": 1},
     {"/from": NAME, "/to": NAME, "/empty": FLAG, "/reason": {"empty", "text"}, "/max_bytes_per_s": POSITIVE,
      "/size_bytes": COUNT, "/live_bytes_per_s": COUNT,
      "/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/transfer", {"to": "n2", "expect_epoch": 1, "expect_revision": 1},
     {"/to": NAME, "/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/replicas",
     {"node": "n2", "role": "sync", "max_bytes_per_s": 1, "expect_epoch": 1, "expect_revision": 1},
     {"/node": NAME, "/role": NAME, "/max_bytes_per_s": POSITIVE, "/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("DELETE", "/v1/keyspaces/ks/partitions/{p}/replicas/n1", {"expect_epoch": 1, "expect_revision": 1},
     {"/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("PATCH", "/v1/keyspaces/ks/partitions/{p}",
     {"pinned": True, "rate_limit": {"requests_per_s": 5}, "expect_epoch": 1, "expect_revision": 1},
     {"/pinned": FLAG, "/rate_limit": {"null"}, "/rate_limit/requests_per_s": POSITIVE, "/expect_epoch": COUNT,
      "/expect_revision": COUNT}),
    ("PATCH", "/v1/balancer",
     {"budgets": {"source": {"moves": 1, "bytes_per_s": 1}, "recovery_reserve_percent": 1, "release_ms": 1},
      "mode": "auto", "thresholds": {"high_ppm": 100000}, "classes": {"hot": True}, "guardrails": {"queue_ms_p99": 1},
      "expect_revision": 1},
     {"/mode": NAME | {"null"}, "/thresholds": OBJECT | {"null"}, "/thresholds/high_ppm": COUNT | {"null"},
      "/classes": OBJECT | {"null"}, "/classes/hot": FLAG | {"null"}, "/guardrails": OBJECT | {"null"},
      "/guardrails/queue_ms_p99": COUNT | {"null"}, "/budgets": OBJECT, "/budgets/source": OBJECT | {"null"}, "/budgets/source/moves": COUNT | {"null"},
      "/budgets/source/bytes_per_s": COUNT | {"null"}, "/budgets/recovery_reserve_percent": COUNT | {"null"},
      "/budgets/release_ms": COUNT | {"null"}, "/expect_revision": COUNT}),
    ("POST", "/v1/balancer/pause", {"reason": "r", "for_ms": 1, "expect_revision": 1},
     {"/reason": {"text"}, "/for_ms": POSITIVE, "/expect_revision": COUNT}),
    ("POST", "/v1/balancer/proposals/1/approve", {"reason": "r", "expect_revision": 1},
     {"/reason": {"empty", "text"}, "/expect_revision": COUNT}),
    ("POST", "/v1/balancer/resume", {"expect_revision": 1}, {"/expect_revision": COUNT}),
    ("PUT", "/v1/nodes/n9",
     {"address": "127.0.0.1:9", "lease": "static", "labels": {"zone": "a"}, "capacity": {"cpu": 4}, "previous_session": 1,
      "copies": [{"keyspace": "ks", "partition": 1, "copy": 1}], "expect_revision": 1},
     {"/address": NAME, "/lease": NAME, "/labels": OBJECT, "/labels/zone": {"text"}, "/capacity": OBJECT,
      "/capacity/cpu": COUNT, "/previous_session": COUNT, "/copies": {"array"}, "/copies/0": NAME,
      "/copies/0/keyspace": NAME, "/copies/0/partition": COUNT, "/copies/0/copy": COUNT, "/expect_revision": COUNT}),
    ("DELETE", "/v1/nodes/n1", {"expect_revision": 1}, {"/expect_revision": COUNT}),
    ("POST", "/v1/cluster/servers",
     {"id": 2, "raft_address": "127.0.0.1:1", "api_url": "http://127.0.0.1:2", "role": "observer", "instance": "00" * 16,
      "expect_revision": 1},
     {"/id": POSITIVE, "/raft_address": NAME, "/api_url": NAME, "/role": NAME, "/instance": NAME,
      "/expect_revision": COUNT}),
    ("PATCH", "/v1/cluster/servers/2", {"role": "voter", "expect_revision": 1},
     {"/role": NAME, "/expect_revision": COUNT}),
    ("DELETE", "/v1/cluster/servers/2", {"expect_revision": 1}, {"/expect_revision": COUNT}),
    ("POST", "/v1/cluster/transfer-leadership", {"to": 2, "expect_revision": 1},
     {"/to": POSITIVE, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/move",
     {"to": "n2", "range": {"start": "a", "end": "b"}, "expect_revision": 1},
     {"/range": OBJECT, "/range/start": {"empty", "text"}, "/range/end": {"empty", "text"}}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/insync",
     {"session": 1, "epoch": 1, "mod_revision": 1, "insync": ["n1"], "sessions": {"n1": 1}, "expect_revision": 1},
     {"/session": POSITIVE, "/epoch": POSITIVE, "/mod_revision": POSITIVE, "/insync": {"array"}, "/sessions": OBJECT,
      "/sessions/n1": POSITIVE, "/expect_revision": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/failover",
     {"to": "n2", "accept_loss": True, "reason": "x", "expect_epoch": 1, "expect_revision": 1},
     {"/to": NAME, "/accept_loss": FLAG, "/reason": {"text"}, "/expect_epoch": COUNT, "/expect_revision": COUNT}),
    ("POST", "/v1/nodes/n1/drain", {"reason": "x", "expect_revision": 1},
     {"/reason": {"empty", "text"}, "/expect_revision": COUNT}),
    ("DELETE", "/v1/nodes/n1/session", {"session": 1, "expect_revision": 1},
     {"/session": POSITIVE, "/expect_revision": COUNT}),
    ("POST", "/v1/operations/1/retry", {"reason": "x", "expect_revision": 1},
     {"/reason": {"empty", "text"}, "/expect_revision": COUNT}),
    ("POST", "/v1/operations/1/finish-validation", {"back": True, "expect_revision": 1},
     {"/back": FLAG, "/expect_revision": COUNT}),
    ("POST", "/v1/operations/1/reports",
     {"node": "n1", "session": 1, "attempt": 1, "stage": "COPY", "seq": 1, "ready": True, "refused": "x",
      "checks": {"a": True}, "free_bytes": 1, "checksum": "0" * 16, "ranges": [], "indexes": {}, "expect_revision": 1},
     {"/node": NAME, "/session": POSITIVE, "/attempt": POSITIVE, "/stage": NAME, "/seq": POSITIVE, "/ready": FLAG,
      "/refused": {"text"}, "/checks": OBJECT, "/free_bytes": COUNT, "/checksum": NAME, "/ranges": {"array", "nested"},
      "/indexes": OBJECT | {"members"}, "/expect_revision": COUNT}),
    ("PATCH", "/v1/cluster/settings", {"recovery_delay_ms": 1, "distrust_ms": 1, "fence_max_ms": 1, "expect_revision": 1},
     {"/recovery_delay_ms": COUNT, "/distrust_ms": COUNT, "/fence_max_ms": COUNT, "/expect_revision": COUNT}),
    # These change nothing even when right.
    ("POST", "/v1/keyspaces/ks/routes", {"keys": ["a", "b"]}, {"/keys": {"array"}, "/keys/1": {"empty", "text"}}),
    ("POST", "/v1/keyspaces/ks/validate", {"routes": [{"partition": 1, "epoch": 1, "mod_revision": 1}]},
     {"/routes": {"array"}, "/routes/0": NAME, "/routes/0/partition": COUNT, "/routes/0/epoch": COUNT,
      "/routes/0/mod_revision": COUNT}),
    ("POST", "/v1/nodes/n1/load",
     {"session": 1, "interval_ms": 1000, "revision": 1, "seq": 1, "node": {"cpu": 1, "latency_ms_p99": 1},
      "partitions": [{"keyspace": "ks", "partition": 1, "epoch": 1, "reads": 9, "writes": 9, "read_bytes": 9,
                      "write_bytes": 9, "cpu_ms": 9, "size_bytes": 9, "keys": [{"key": "a", "end": "b", "weight": 1}],
                      "by": [{"operation": "get", "outcome": "ok", "tenant": "a", "requests": 1}]}]},
     {"/session": POSITIVE, "/interval_ms": POSITIVE, "/revision": COUNT, "/seq": POSITIVE,
      "/node/cpu": {"zero", "half"}, "/node/latency_ms_p99": COUNT, "/partitions": {"array"}, "/partitions/0/keyspace": NAME,
      "/partitions/0/partition": POSITIVE, "/partitions/0/epoch": POSITIVE, "/partitions/0/reads": COUNT,
      "/partitions/0/size_bytes": COUNT, "/partitions/0/keys": {"array"}, "/partitions/0/keys/0/key": {"empty", "text"},
      "/partitions/0/keys/0/end": {"empty", "text"}, "/partitions/0/keys/0/weight": POSITIVE, "/partitions/0/by": {"array"},
      "/partitions/0/by/0/operation": NAME, "/partitions/0/by/0/outcome": NAME, "/partitions/0/by/0/tenant": NAME,
      "/partitions/0/by/0/requests": COUNT}),
    ("POST", "/v1/keyspaces/ks/partitions/{p}/check", {"node": "n1", "epoch": 1},
     {"/node": NAME, "/epoch": COUNT}),
    ("POST", "/v1/balancer/simulate",
     {"hours": 1, "seed": 1,
      "changes": {"nodes_added": [{"name": "x", "count": 2, "labels": {"zone": "a"}, "capacity": {"cpu": 4}}],
                  "nodes_lost": ["n1"], "nodes_drained": ["n2"], "zone_lost": "a",
                  "load_scaled": [{"keyspace": "ks", "factor_ppm": 1}],
                  "policy": {"mode": "off", "thresholds": {"high_ppm": 100000}, "budgets": {"source": {"moves": 1}}}}},
     {"/hours": POSITIVE, "/seed": COUNT, "/changes": OBJECT, "/changes/nodes_added": {"array"},
      "/changes/nodes_added/0": NAME, "/changes/nodes_added/0/name": NAME, "/changes/nodes_added/0/count": POSITIVE,
      "/changes/nodes_added/0/labels": OBJECT, "/changes/nodes_added/0/labels/zone": {"text"},
      "/changes/nodes_added/0/capacity": OBJECT, "/changes/nodes_added/0/capacity/cpu": COUNT,
      "/changes/nodes_lost": {"array"}, "/changes/nodes_lost/0": NAME, "/changes/nodes_drained": {"array"},
      "/changes/nodes_drained/0": NAME, "/changes/zone_lost": {"text"}, "/changes/load_scaled": {"array"},
      "/changes/load_scaled/0": NAME, "/changes/load_scaled/0/keyspace": NAME,
      "/changes/load_scaled/0/factor_ppm": COUNT, "/changes/policy": OBJECT,
      "/changes/policy/mode": {"null"}, "/changes/policy/thresholds": OBJECT | {"null"},
      "/changes/policy/thresholds/high_ppm": COUNT | {"null"}, "/changes/policy/budgets": OBJECT,
      "/changes/policy/budgets/source": OBJECT | {"null"},
      "/changes/policy/budgets/source/moves": COUNT | {"null"}}),
]
ASKS = ("/routes", "/validate", "/check", "/simulate")


def steps(pointer):
    return [int(s) if s.isdigit() else s for s in pointer.split("/")[1:]]


def put(body, pointer, value):
    """A copy of the body with another value there."""
    changed = copy.deepcopy(body)
    *way, last = steps(pointer)
    at = changed
    for step in way:
        at = at[step]
    at[last] = value
    return changed


def drop(body, pointer):
    changed = copy.deepcopy(body)
    *way, last = steps(pointer)
    at = changed
    for step in way:
        at = at[step]
    del at[last]
    return changed


def raw_with(body, pointer, text):
    """The JSON with this text, which need not be JSON, in the place of the value."""
    return json.dumps(put(body, pointer, "@@@")).replace('"@@@"', text, 1).encode()


class Judge:
    def __init__(self, cluster):
        self.c, self.failures, self.count = cluster, [], 0
        self.url = cluster.servers[0].url

    def state(self):
        seen = self.c.servers[0].cluster()
        return seen["revision"], seen["state_hash"]

    def send(self, request, body):
        method, path = request[:2]
        self.count += 1
        return once(self.url, method, path, body if isinstance(body, bytes) else json.dumps(body).encode(),
                    {"Content-Type": "application/json"})

    def refused(self, request, body, what, pointer=None, exactly=False):
        """pointer: the refusal is a 400 and names this field, or something within it."""
        answer = self.send(request, body)
        told = f"{request[0]} {request[1]} {what}: {answer.status} {answer.raw[:300]!r}"
        if answer.status not in REFUSED:
            self.failures.append(told)
            return
        problem = answer.json
        if not problem.get("code") or problem.get("status") != answer.status:
            self.failures.append(told)
        elif pointer is not None:
            named = [e["pointer"] for e in problem.get("errors", [])]
            right = [p for p in named if p == pointer or (not exactly and p.startswith(pointer + "/"))]
            if answer.status not in (400, 422) or not right:
                self.failures.append(f"{told} does not name {pointer}")

    def finish(self, before):
        print(f"# {self.count} requests", flush=True)
        assert not self.failures, f"{len(self.failures)} of {self.count}:\n" + "\n".join(self.failures[:40])
        assert self.c.servers[0].alive()
        equal(self.state(), before, "revision and state hash")


def each_request(run):
    with Cluster(1) as c:
        url = c.servers[0].url
        for n in ("n1", "n2"):
            c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}", "lease": "static"}).expect(200)
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d"]}).expect(201)
        p = once(url, "GET", "/v1/keyspaces/ks/route?key=a").json["partition"]
        judge = Judge(c)
        before = judge.state()
        for method, path, body, fields in REQUESTS:
            run(judge, (method, path.replace("{p}", str(p))), body, fields)
        judge.finish(before)


@test
def values_of_a_wrong_type_or_out_of_range():
    def run(judge, request, body, fields):
        for pointer, allowed in fields.items():
            for name, value in VALUES.items():
                if name not in allowed:
                    judge.refused(request, put(body, pointer, value), f"{pointer} = {name}", pointer)
                elif not request[1].endswith(ASKS):
                    # expect_revision 1 has passed: whatever else is right, it is refused.
                    judge.refused(request, put(body, pointer, value), f"{pointer} = {name}")

    each_request(run)


@test
def what_is_no_json():
    def run(judge, request, body, fields):
        for pointer in fields:
            for text in ("1e999", "-1e999", "NaN", "Infinity", "01", "+1", ".5", "0x1", "'a'", "\"\\ud800\"", "\"\\x\"", "\"\n\"",
                         "[1,]", "{,}", "nul", "9007199254740993", "-9007199254740993", "1" * 200):
                judge.refused(request, raw_with(body, pointer, text), f"{pointer} = {text}", pointer)
            judge.refused(request, raw_with(body, pointer, "@\xff@").decode().encode("latin-1"), f"{pointer} not UTF-8",
                          pointer)
            judge.refused(request, raw_with(body, pointer, '"') .decode().encode().replace(b'"\xff"', b'"'),
                          f"{pointer} an open string")
            judge.refused(request, raw_with(body, pointer, '"a\xc0\xafb"').decode().encode("latin-1"),
                          f"{pointer} overlong UTF-8", pointer)
            deep = "[" * 40 + "]" * 40
            judge.refused(request, raw_with(body, pointer, deep), f"{pointer} 40 levels deep", pointer)
        good = json.dumps(body).encode()
        for tail in (b"x", b"{}", b",", b"\0", b"\xef\xbb\xbf", b" null"):
            judge.refused(request, good + tail, f"followed by {tail!r}")
        for whole in (b"[]", b"null", b"1", b'""', b"{", b'{"a"', b" ", b"\xef\xbb\xbf" + good, b"\0" + good):
            judge.refused(request, whole, f"body {whole[:20]!r}")

    each_request(run)


@test
def members_twice_unknown_or_missing():
    required = {"/name", "/scheme", "/at", "/with", "/to", "/node", "/address", "/id", "/raft_address", "/api_url",
                "/instance", "/role", "/keys", "/routes", "/epoch", "/partition_key/delimiter", "/partition_key/fields",
                "/rate_limit/requests_per_s", "/copies/0/keyspace", "/copies/0/partition", "/copies/0/copy",
                "/routes/0/partition", "/routes/0/epoch", "/partitions/0/by/0/operation", "/partitions/0/by/0/outcome",
                "/partitions/0/by/0/requests"}

    def run(judge, request, body, fields):
        optional = {("POST", "/role"), ("POST", "/to")}
        for pointer in fields:
            *way, last = steps(pointer)
            if isinstance(last, str):
                text = json.dumps(body).encode()
                member = json.dumps(last).encode() + b": "
                if text.count(member) == 1:
                    judge.refused(request, text.replace(member, member + b'null, ' + member), f"{pointer} twice",
                                  pointer, exactly=True)
                    escaped = b'"\\u%04x' % ord(last[0]) + json.dumps(last[1:]).encode()[1:] + b": "
                    judge.refused(request, text.replace(member, escaped + b'1, ' + member),
                                  f"{pointer} twice, once escaped", pointer, exactly=True)
                if pointer in required and (request[0], pointer) not in optional:
                    judge.refused(request, drop(body, pointer), f"{pointer} missing", pointer, exactly=True)
        extra = body | {"surely_not/known~": 1}
        judge.refused(request, extra, "an unknown member", "/surely_not~1known~0", exactly=True)
        judge.refused(request, body | {"": 1}, "a member without a name", "/", exactly=True)
        judge.refused(request, json.dumps(body).encode()[:-1] + b', "a\\u0000b": 1}', "a member with NUL in its name")
        many = {f"m{i}": i for i in range(20000)}
        judge.refused(request, body | many, "20000 unknown members")

    each_request(run)


@test
def texts_that_are_too_long_or_have_nul():
    def run(judge, request, body, fields):
        for pointer in fields:
            value = body
            for step in steps(pointer):
                value = value[step]
            if isinstance(value, str):
                for text in ("a" * 2000, "a\0b", "a" * 65536, "../../etc/passwd", "A", "-a", "é" * 40, "\u202e"):
                    if pointer in ("/keys/1", "/splits/1") and len(text) < 1000:
                        continue
                    judge.refused(request, put(body, pointer, text), f"{pointer} = {text[:10]!r}…{len(text)}")

    each_request(run)


@test
def paths_with_names_that_are_none():
    def run(judge, request, body, fields):
        del fields
        method, path = request
        for name in ("A", "%20", "a" * 64, "-x", ".", "..", "%2e%2e", "a%00", "%ff", "ks%2f", "0x1", "99999999999999999999", "-1"):
            parts = path.split("?")[0].split("/")
            for i, part in enumerate(parts):
                if part in ("ks", "n1", "n9", "2") or part.isdigit():
                    changed = "/".join(parts[:i] + [name] + parts[i + 1:])
                    judge.refused((method, changed), body, "")

    each_request(run)


@test
def too_many_of_anything():
    with Cluster(1) as c:
        judge = Judge(c)
        before = judge.state()
        node = ("PUT", "/v1/nodes/n1")
        good = {"address": "h:1", "lease": "static", "expect_revision": 0}
        judge.refused(node, good | {"labels": {f"l{i}": "a" for i in range(17)}}, "17 labels", "/labels")
        judge.refused(node, good | {"capacity": {f"l{i}": 1 for i in range(17)}}, "17 capacities", "/capacity")
        judge.refused(node, good | {"copies": [{"keyspace": "a", "partition": 1, "copy": 1}] * 10001}, "10001 copies",
                      "/copies")
        create = ("POST", "/v1/keyspaces")
        good = {"name": "fresh", "scheme": "range", "expect_revision": 0}
        judge.refused(create, good | {"placement": {"require": {"zone": ["a"] * 17}}}, "17 values", "/placement/require")
        judge.refused(create, good | {"replicas": {"sync": 4, "async": 4}}, "8 copies", "/replicas")
        judge.refused(create, good | {"policy": {f"p{i}": "x" * 900 for i in range(80)}}, "a policy of 72 KB", "/policy")
        judge.refused(create, {"name": "fresh", "scheme": "hash", "partitions": 2000001, "expect_revision": 0},
                      "2000001 partitions", "/partitions")
        judge.refused(("POST", "/v1/keyspaces/ks/routes"), {"keys": ["a"] * 10001}, "10001 keys")
        judge.finish(before)


if __name__ == "__main__":
    main()
