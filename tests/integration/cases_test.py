#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What went wrong in systems like this one, as tests of real servers: bounds and keys, splits and merges at their edges,
routers that are behind, watches from any revision, and clocks that jump."""
import http.client
import json
import os
import pathlib
import sys
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
TABLES = "/v1/keyspaces/ks"
MEBI = 1 << 20


class World:
    """One server, two nodes, a keyspace `ks` split at d, m and t."""

    def __init__(self, size=1):
        self.cluster = Cluster(size)

    def __enter__(self):
        self.cluster.__enter__()
        self.url = self.cluster.leader().url
        for n in ("n1", "n2"):
            self.ok("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"})
        self.ok("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d", "m", "t"]})
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.cluster.check_all()
        self.cluster.__exit__(kind, value, trace)

    def ask(self, method, path, body=None, **options):
        return once(self.url, method, path, body, **options)

    def ok(self, method, path, body=None):
        return self.ask(method, path, body).expect(200, 201, 202)

    def route(self, key, keyspace="ks"):
        return self.ok("GET", f"/v1/keyspaces/{keyspace}/route?key={urllib.parse.quote(key, safe='')}")

    def map(self, keyspace="ks"):
        return self.ok("GET", f"/v1/keyspaces/{keyspace}/map")

    def revision(self):
        return self.ok("GET", "/v1/cluster")["revision"]

    def refused(self, method, path, body, status, code):
        """The problem; nothing has changed, not even the revision."""
        before = self.map(), self.revision()
        answer = self.ask(method, path, body)
        equal((answer.status, answer.json.get("code")), (status, code), f"{method} {path} {str(body)[:200]}")
        equal((self.map(), self.revision()), before, "the map and the revision")
        return answer.json


def pointers(problem):
    return [e["pointer"] for e in problem.get("errors", [])]


def check_whole(routes):
    """No gap, no overlap."""
    assert "start" not in routes[0] and "end" not in routes[-1], routes
    for a, b in zip(routes, routes[1:]):
        equal(a["end"], b["start"], "a bound")


# --- bounds and keys ---


@test
def bounds_that_make_no_map_are_refused_by_their_index():
    with World() as w:
        for splits, index in ((["b", "a"], 1), (["a", "a"], 1), (["", "a"], 0), (["a", "c", "b", "d"], 2)):
            problem = w.ask("POST", "/v1/keyspaces", {"name": "bad", "scheme": "range", "splits": splits})
            equal((problem.status, pointers(problem.json)), (422, [f"/splits/{index}"]), f"{splits}")
        for splits in (["a" * 1025], ["a", 5], ["zz", None]):
            problem = w.ask("POST", "/v1/keyspaces", {"name": "bad", "scheme": "range", "splits": splits})
            equal((problem.status, pointers(problem.json)), (400, [f"/splits/{len(splits) - 1}"]), f"{splits}"[:40])
        odd = w.ask("POST", "/v1/keyspaces", {"name": "bad", "scheme": "range", "key_encoding": "hex", "splits": ["0"]})
        equal((odd.status, pointers(odd.json)), (400, ["/splits/0"]), "half a byte")
        w.ask("GET", "/v1/keyspaces/bad").expect(404)


@test
def keys_are_bytes_and_not_numbers():
    with World() as w:
        w.ok("POST", "/v1/keyspaces", {"name": "numbers", "scheme": "range", "splits": ["10", "9"]})
        routes = w.map("numbers")["routes"]
        equal([(r.get("start"), r.get("end")) for r in routes], [(None, "10"), ("10", "9"), ("9", None)], "text order")
        equal(w.route("100", "numbers")["start"], "10", "100 lies after 10")
        equal(w.route("11", "numbers").get("end"), "9", "11 lies before 9")
        w.ok("POST", "/v1/keyspaces", {"name": "ids", "scheme": "range", "key_encoding": "hex",
                                       "splits": [(9).to_bytes(8, "big").hex(), (10).to_bytes(8, "big").hex()]})
        equal(w.route((9).to_bytes(8, "big").hex(), "ids")["end"], (10).to_bytes(8, "big").hex(), "big-endian order")
        # NUL, and bytes that are a prefix of others.
        w.ok("POST", "/v1/keyspaces", {"name": "bytes", "scheme": "range", "splits": ["a", "a\0", "a\0\0", "aa"]})
        equal([w.route(k, "bytes").get("start") for k in ("a", "a\0", "a\0\1", "a\1", "aa")],
              ["a", "a\0", "a\0\0", "a\0\0", "aa"], "starts")


@test
def keys_and_batches_over_their_limits_are_refused_before_anything():
    with World() as w:
        p = w.route("e")["partition"]
        w.refused("POST", f"{TABLES}/partitions/{p}/split", {"at": ["e" * 65536]}, 400, "invalid_key")
        w.refused("POST", f"{TABLES}/partitions/{p}/split", {"at": ["e" * MEBI]}, 400, "invalid_key")
        w.refused("POST", f"{TABLES}/partitions/{p}/split", {"at": [f"e{i:06}" for i in range(100000)]}, 400,
                  "invalid_request")
        w.refused("POST", f"{TABLES}/partitions/{p}/split", {"at": [f"e{i:06}" + "x" * 700 for i in range(10000)]}, 413,
                  "too_large")
        equal(w.ask("GET", f"{TABLES}/route?key=" + "k" * 1025).json["code"], "invalid_key", "a key of 1025 bytes")
        w.route("k" * 1024)
        w.ok("POST", f"{TABLES}/partitions/{p}/split", {"at": [f"e{i:06}" for i in range(10000)]})
        check_whole(w.map()["routes"])
        equal(len(w.map()["routes"]), 4 + 10000, "partitions")


# --- splits and merges ---


@test
def a_split_is_strictly_inside():
    with World() as w:
        p = w.route("e")["partition"]
        for at in (["d"], ["m"], [""], ["c"], ["z"], ["e", "e"], ["f", "e"], ["e", "m"], ["d", "e"]):
            w.refused("POST", f"{TABLES}/partitions/{p}/split", {"at": at}, 422, "bad_split_key")
        right = w.ok("POST", f"{TABLES}/partitions/{p}/split", {"at": ["g"]})["children"][1]
        # The same again, at what is now a boundary.
        w.refused("POST", f"{TABLES}/partitions/{right['partition']}/split", {"at": ["g"]}, 422, "bad_split_key")
        # The hash keyspace's bounds are routing keys; both ends are refused there too.
        w.ok("POST", "/v1/keyspaces", {"name": "hs", "scheme": "hash", "partitions": 4})
        second = w.map("hs")["routes"][1]
        for at in ([second["start"]], [second["end"]], [""]):
            answer = w.ask("POST", f"/v1/keyspaces/hs/partitions/{second['partition']}/split", {"at": at})
            assert answer.status in (400, 422), answer.raw
        check_whole(w.map("hs")["routes"])


@test
def a_retired_parent_names_its_successors():
    with World() as w:
        p = w.route("e")
        children = w.ok("POST", f"{TABLES}/partitions/{p['partition']}/split", {"at": ["g"]})["children"]
        for verb, body in (("split", {"at": ["f"]}), ("merge", {"with": children[0]["partition"]}),
                           ("split", {"at": ["f"], "expect_epoch": p["epoch"]})):
            problem = w.refused("POST", f"{TABLES}/partitions/{p['partition']}/{verb}", body, 409, "stale_epoch")
            equal([r["partition"] for r in problem["routes"]], [c["partition"] for c in children], "successors")
            assert problem["retired"] is True
        gone = w.ask("GET", f"{TABLES}/partitions/{p['partition']}")
        equal((gone.status, gone.json["code"]), (410, "partition_retired"), "the parent")
        equal([r["partition"] for r in gone.json["routes"]], [c["partition"] for c in children], "successors")
        w.refused("POST", f"{TABLES}/partitions/999999/split", {"at": ["f"]}, 404, "partition_not_found")
        # A router that still has it is told what is there now, after further changes too.
        grand = w.ok("POST", f"{TABLES}/partitions/{children[0]['partition']}/split", {"at": ["e"]})["children"]
        stale = w.ok("POST", f"{TABLES}/validate", {"routes": [{"partition": p["partition"], "epoch": p["epoch"]}]})
        equal([r["partition"] for r in stale["stale"][0]["routes"]],
              [grand[0]["partition"], grand[1]["partition"], children[1]["partition"]], "present successors")


@test
def merges_want_neighbours_on_the_same_nodes():
    with World() as w:
        a, b, c, d = w.map()["routes"]
        w.refused("POST", f"{TABLES}/partitions/{a['partition']}/merge", {"with": c["partition"]}, 409, "not_mergeable")
        w.refused("POST", f"{TABLES}/partitions/{a['partition']}/merge", {"with": a["partition"]}, 409, "not_mergeable")
        w.refused("POST", f"{TABLES}/partitions/{a['partition']}/merge", {"with": 999999}, 404, "partition_not_found")
        w.ok("POST", "/v1/keyspaces", {"name": "other", "scheme": "range"})
        foreign = w.map("other")["routes"][0]["partition"]
        answer = w.ask("POST", f"{TABLES}/partitions/{d['partition']}/merge", {"with": foreign})
        assert answer.status in (404, 409), answer.raw
        # Put both on one node, then on two.
        for r in (a, b):
            if r["primary"]["node"] != "n1":
                w.ok("POST", f"{TABLES}/partitions/{r['partition']}/move", {"to": "n1", "empty": True})
        w.ok("POST", f"{TABLES}/partitions/{b['partition']}/move", {"to": "n2", "empty": True})
        w.refused("POST", f"{TABLES}/partitions/{a['partition']}/merge", {"with": b["partition"]}, 409, "not_mergeable")
        w.ok("POST", f"{TABLES}/partitions/{b['partition']}/move", {"to": "n1", "empty": True})
        a, b = w.map()["routes"][:2]
        assert a["epoch"] != b["epoch"]
        merged = w.ok("POST", f"{TABLES}/partitions/{b['partition']}/merge", {"with": a["partition"]})["route"]
        assert merged["epoch"] > max(a["epoch"], b["epoch"]), (merged, a, b)
        check_whole(w.map()["routes"])


# --- routers that are behind ---


@test
def a_stale_expectation_is_told_all_that_a_retry_needs():
    with World() as w:
        r = w.route("e")
        other = {"n1": "n2", "n2": "n1"}[r["primary"]["node"]]
        path = f"{TABLES}/partitions/{r['partition']}"
        w.ok("POST", f"{path}/move", {"to": other, "empty": True, "expect_epoch": r["epoch"]})
        for verb, body in (("split", {"at": ["f"]}), ("move", {"to": "n1", "empty": True}), ("merge", {"with": 1})):
            problem = w.refused("POST", f"{path}/{verb}", body | {"expect_epoch": r["epoch"]}, 409, "stale_epoch")
            now = w.route("e")
            equal((problem["epoch"], problem["route"]["primary"]["node"], problem["revision"]),
                  (now["epoch"], other, now["revision"]), "what a retry needs")
        problem = w.refused("POST", f"{path}/split", {"at": ["f"], "expect_revision": 1}, 409, "stale_revision")
        w.refused("POST", f"{path}/split", {"at": ["f"], "expect_epoch": problem["revision"] + 10}, 409, "future_epoch")
        w.ok("POST", f"{path}/split", {"at": ["f"], "expect_epoch": w.route("e")["epoch"],
                                       "expect_revision": problem["revision"]})
        check = w.ask("POST", f"{TABLES}/partitions/{w.route('e')['partition']}/check",
                      {"node": other, "epoch": w.route("e")["epoch"] + 1})
        equal((check.status, check.json["code"]), (409, "future_epoch"), "an epoch ahead of the server's")


@test
def no_server_answers_with_less_than_was_asked_for():
    with World(3) as w:
        leader, behind = w.cluster.leader(), w.cluster.followers()[0]
        revision = w.revision()
        wait_for(lambda: behind.cluster()["revision"] == revision, "the follower to have applied")
        late = behind.get(f"{TABLES}/route?key=a&min_revision={revision + 1}&timeout_ms=50")
        equal((late.status, late.json["code"], late.json["revision"]), (503, "behind", revision), "a revision to come")
        assert "retry-after" in late.headers
        for i in range(20):
            p = once(leader.url, "GET", f"{TABLES}/route?key=a").json["partition"]
            done = once(leader.url, "PATCH", f"{TABLES}/partitions/{p}",
                        {"rate_limit": {"requests_per_s": i + 1}}).expect(200)["revision"]
            seen = behind.get(f"{TABLES}/route?key=a&min_revision={done}&timeout_ms=20000").expect(200)
            assert seen["revision"] >= done and seen["rate_limit"] == {"requests_per_s": i + 1}, seen
            linear = behind.get(f"{TABLES}/route?key=a&consistency=linearizable")
            assert linear.status == 307 or linear.json["revision"] >= done, linear.raw
        future = behind.get(f"{TABLES}/changes?since={done + 1000}")
        equal((future.status, future.json["code"]), (503, "behind"), "changes since a revision to come")
        equal(behind.get(f"{TABLES}/watch?since={done + 1000}").json["code"], "behind", "a watch from it")
        wait_for(lambda: behind.cluster()["revision"] == done, "the follower to have applied")
        equal(behind.get(f"{TABLES}/changes?since={done}").json["changes"], [], "changes since the present one")


def changes(w, since, keyspace="ks"):
    got = w.ok("GET", f"/v1/keyspaces/{keyspace}/changes?since={since}&wait_ms=10000")
    return got["changes"]


@test
def every_visible_change_has_a_revision_and_reaches_watchers():
    with World() as w:
        r = w.route("a")
        path, other = f"{TABLES}/partitions/{r['partition']}", {"n1": "n2", "n2": "n1"}[r["primary"]["node"]]
        steps = [
            ("PATCH", path, {"rate_limit": {"requests_per_s": 7}}, lambda x: x["rate_limit"]["requests_per_s"] == 7, False),
            ("PATCH", path, {"rate_limit": None}, lambda x: "rate_limit" not in x, False),
            ("PUT", f"/v1/nodes/{r['primary']['node']}", {"address": "127.0.0.1:5", "lease": "static"},
             lambda x: x["primary"]["address"] == "127.0.0.1:5", False),
            ("POST", f"{path}/move", {"to": other, "empty": True}, lambda x: x["primary"]["node"] == other, True),
            ("DELETE", f"/v1/nodes/{other}?force=true", None, lambda x: x["primary"] is None or x["primary"]["node"] != other,
             None),
        ]
        for method, target, body, shows, authority in steps:
            before = w.route("a")
            w.ok(method, target, body)
            after = w.route("a")
            assert shows(after), (target, body, after)
            assert after["mod_revision"] > before["mod_revision"] and after["revision"] > before["revision"], after
            if authority is not None:
                equal(after["epoch"] > before["epoch"], authority, f"whether {target} {body} moves the epoch")
            told = [x for change in changes(w, before["revision"]) for x in change["routes"]
                    if x["partition"] == r["partition"]]
            assert told and shows(told[-1]), (target, body, told)
            equal(told[-1]["mod_revision"], after["mod_revision"], "the version that watchers are told")
            stale = w.ok("POST", f"{TABLES}/validate", {"routes": [{"partition": r["partition"], "epoch": before["epoch"],
                                                                   "mod_revision": before["mod_revision"]}]})["stale"]
            equal([x["routes"][0]["mod_revision"] for x in stale], [after["mod_revision"]], "what validate reports")


@test
def answers_can_be_put_in_order_by_their_revision():
    with World() as w:
        r = w.route("a")
        w.ok("PATCH", f"{TABLES}/partitions/{r['partition']}", {"rate_limit": {"requests_per_s": 3}})
        now, then = w.route("a"), w.ok("GET", f"{TABLES}/route?key=a&at_revision={r['revision']}")
        assert then["revision"] == r["revision"] < now["revision"], (then, now)
        assert then["mod_revision"] < now["mod_revision"] and "rate_limit" not in then
        page = w.ok("GET", f"{TABLES}/routes?limit=2")
        w.ok("POST", f"{TABLES}/partitions/{w.route('z')['partition']}/split", {"at": ["x"]})
        rest = w.ok("GET", f"{TABLES}/routes?limit=2&cursor={page['next']}")
        equal(rest["revision"], page["revision"], "all pages of a list are of one revision")
        check_whole(page["routes"] + rest["routes"])


@test
def a_router_that_slept_finds_where_a_removed_nodes_partitions_went():
    with World() as w:
        held = w.map()
        lost = held["routes"][0]["primary"]["node"]
        w.refused("DELETE", f"/v1/nodes/{lost}", None, 409, "node_in_use")
        w.ok("DELETE", f"/v1/nodes/{lost}?force=true")
        asked = [{"partition": r["partition"], "epoch": r["epoch"], "mod_revision": r["mod_revision"]}
                 for r in held["routes"]]
        stale = {s["partition"]: s["routes"][0] for s in w.ok("POST", f"{TABLES}/validate", {"routes": asked})["stale"]}
        for r in held["routes"]:
            if r["primary"]["node"] == lost:
                now = stale[r["partition"]]
                assert now["primary"] is None or now["primary"]["node"] != lost, now
        for r in w.map()["routes"]:
            assert r["primary"] is None or r["primary"]["node"] != lost, r


# --- watches ---


class Watch:
    """Server-sent events, read as they come."""

    def __init__(self, server, query, last_id=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.api_port, timeout=60)
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        self.connection.request("GET", f"{TABLES}/watch?{query}", headers=headers)
        self.file = self.connection.getresponse()
        equal(self.file.status, 200, "the stream's status")

    def event(self):
        """The next one with data: (id, kind, data); None at the end."""
        got = {}
        while line := self.file.readline():
            name, _, value = line.strip().partition(b": ")
            if name in (b"id", b"event", b"data"):
                got[name] = value
            if b"data" in got and line.strip() == b"":
                return int(got[b"id"]), got[b"event"].decode(), json.loads(got[b"data"])
        return None

    def close(self):
        self.connection.close()


@test
def a_watch_gives_every_change_once_in_order_from_where_it_is_asked():
    with World() as w:
        server, begin = w.cluster.servers[0], w.revision()
        p = w.route("a")["partition"]
        for i in range(30):
            w.ok("PATCH", f"{TABLES}/partitions/{p}", {"rate_limit": {"requests_per_s": i + 1}})
        for since in (begin, begin + 1, begin + 29):
            watch = Watch(server, f"since={since}")
            equal([watch.event()[0] for _ in range(begin + 30 - since)], list(range(since + 1, begin + 31)), "revisions")
            watch.close()
        watch = Watch(server, "since=1", last_id=str(begin + 20))
        equal(watch.event()[0], begin + 21, "the first event after the last seen one")
        watch.close()
        # The removal of what is watched is told too, and ends the stream.
        watch = Watch(server, f"since={begin + 30}")
        w.ok("DELETE", "/v1/keyspaces/ks?confirm=ks")
        revision, kind, data = watch.event()
        equal((revision, kind, data["kind"]), (w.revision(), "change", "delete"), "the last event")
        equal(watch.event(), None, "the end of the stream")


@test
def after_a_restart_a_watch_goes_on_or_says_reset():
    with World() as w:
        server, begin = w.cluster.servers[0], w.revision()
        p = w.route("a")["partition"]
        for i in range(10):
            w.ok("PATCH", f"{TABLES}/partitions/{p}", {"rate_limit": {"requests_per_s": i + 1}})
        w.ok("POST", "/v1/cluster/snapshot", {})
        server.kill()
        server.start()
        w.cluster.wait_ready()
        watch = Watch(server, f"since={begin + 3}")
        seen = [watch.event() for _ in range(7)]
        equal([e[0] for e in seen], list(range(begin + 4, begin + 11)), "revisions from before the restart")
        watch.close()
        # Another generation's revisions mean nothing here.
        watch = Watch(server, f"since={begin}", last_id=f"77-{begin}")
        equal(watch.event()[1], "reset", "the event for a foreign generation")
        equal(watch.event(), None, "the end of the stream")


@test
def a_limit_that_is_reached_refuses_and_leaves_the_last_good_state():
    with World() as w:
        w.ok("PUT", "/v1/nodes/n1", {"address": "127.0.0.1:9100", "lease": "static",
                                     "labels": {f"l{i}": "a" for i in range(16)}})
        node = w.ok("GET", "/v1/nodes/n1")
        w.refused("PUT", "/v1/nodes/n1", {"address": "127.0.0.1:1", "lease": "static",
                                          "labels": {f"l{i}": "a" for i in range(17)}}, 400, "invalid_request")
        for name in ("labels", "address", "session"):
            equal(w.ok("GET", "/v1/nodes/n1")[name], node[name], name)
        answer = w.ask("POST", "/v1/keyspaces", {"name": "wide", "scheme": "range", "replicas": {"sync": 5, "async": 5}})
        equal((answer.status, pointers(answer.json)), (400, ["/replicas"]), "more copies than a partition may have")
        w.ok("POST", "/v1/keyspaces", {"name": "wide", "scheme": "range", "replicas": {"sync": 7}})
        equal(len(w.route("a", "wide")["replicas"]), 2, "copies: as many as there are nodes")


# --- clocks ---


@test
def wall_clocks_may_jump_anywhere():
    if not FAKETIME.exists():
        raise Skip("libfaketime is not installed")
    with Cluster(3) as c:
        c.call("PUT", "/v1/nodes/n1", {"address": "127.0.0.1:9100", "lease": "static"}).expect(200)
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["m"]}).expect(201)
        p = c.leader().get("/v1/keyspaces/ks/route?key=a").json["partition"]
        for s in c.servers:
            s.kill()
            clock = c.base / f"clock-{s.id}"
            clock.write_text("+0")
            s.environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
                             "FAKETIME_TIMESTAMP_FILE": str(clock)}
            s.start()
        c.wait_ready()
        limit, last = 0, 0
        for at in ("-1", "-1h", "-1d", "+1d", "@1970-01-01 00:00:01", "@2039-01-01 00:00:00", "@2100-03-01 00:00:00", "+0"):
            # Each server has its own idea of it, and the leader changes with the jump.
            for number, s in enumerate(c.servers):
                clock = c.base / f"clock-{s.id}"
                fresh = clock.with_suffix(".new")
                fresh.write_text(at if number < 2 else "+0")
                os.replace(fresh, clock)
            for _ in range(5):
                limit += 1
                done = c.call("PATCH", f"/v1/keyspaces/ks/partitions/{p}", {"rate_limit": {"requests_per_s": limit}})
                revision = done.expect(200)["revision"]
                assert revision > last, f"revision {revision} after {last} at {at}"
                last = revision
            begun = time.monotonic()
            early = c.leader().get(f"/v1/keyspaces/ks/changes?since={last}&wait_ms=200", timeout=30)
            equal((early.status, early.json["changes"]), (200, []), f"a long poll at {at}")
            assert time.monotonic() - begun >= 0.15, "the long poll did not wait"
            audit = c.leader().get("/v1/audit?limit=5").json["entries"]
            assert all(a["at"] >= b["at"] for a, b in zip(audit, audit[1:])), f"log time went back at {at}: {audit}"
            assert all(s.alive() for s in c.servers), f"a server ended at {at}"
            c.agree()
        # A start at a strange time.
        for at in ("@1970-01-01 00:00:01", "@2100-03-01 00:00:00"):
            leader = c.leader()
            leader.kill()
            (c.base / f"clock-{leader.id}").write_text(at)
            leader.start()
            c.wait_ready()
            limit += 1
            c.call("PATCH", f"/v1/keyspaces/ks/partitions/{p}", {"rate_limit": {"requests_per_s": limit}}).expect(200)
            c.agree()
        for s in c.servers:
            s.environment = {}
        c.check_all()


if __name__ == "__main__":
    main()
