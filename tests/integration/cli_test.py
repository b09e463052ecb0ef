#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cadastre command against mock servers on loopback: failover, redirects, retries, exits, streams.

    cli_test.py [build/release/cadastre [test_name...]]
"""
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from urllib.parse import parse_qs, urlsplit

CADASTRE = None
DEADLINE_S = 30

ROUTE = {"keyspace": "orders", "partition": 17, "epoch": 42, "mod_revision": 42, "end": "p",
         "state": "active", "primary": {"node": "n1", "address": "10.0.0.1:9000"}, "authority": "static",
         "replicas": [{"node": "n1", "address": "10.0.0.1:9000", "role": "primary"}], "max_age_ms": 30000}
KEYSPACE = {"name": "orders", "id": 3, "scheme": "range", "key_encoding": "utf8", "authority": "exclusive",
            "replicas": {"sync": 0, "async": 0}, "placement": {"require": {}}, "policy": {}, "partitions": 1,
            "created_revision": 9, "mod_revision": 9, "created_at": "2026-11-30T11:52:02.123Z", "revision": 41}


def problem(status, code, **more):
    body = {"type": "/problems/" + code, "title": "No", "status": status, "code": code, "detail": "told so"}
    return status, {"Content-Type": "application/problem+json"}, json.dumps(body | more)


class Cut(Exception):
    """Raised by an answer to close the connection without one."""


class Mock:
    """A server whose `answer(request)` gives (status, headers, body) for each request; keeps them in `seen`."""

    def __init__(self, answer):
        mock = self
        self.answer, self.seen, self.lock = answer, [], threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                request = {"method": self.command, "path": url.path, "target": self.path,
                           "query": {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()},
                           "headers": self.headers, "body": self.rfile.read(length).decode()}
                with mock.lock:
                    mock.seen.append(request)
                try:
                    status, headers, body = mock.answer(request)
                except Cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                data = body.encode() if isinstance(body, str) else body
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = "Content-Length" in headers

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def keys(self):
        return [r["headers"].get("Idempotency-Key") for r in self.seen]


def reply(body, status=200, **headers):
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return status, {"Content-Type": "application/json"} | named, body if isinstance(body, (str, bytes)) else json.dumps(body)


def closed_url():
    """An address that refuses connections."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "http://127.0.0.1:%d" % s.getsockname()[1]


class CliTest(unittest.TestCase):
    def mock(self, answer):
        mock = Mock(answer)
        self.addCleanup(mock.close)
        return mock

    def mock_list(self, *answers):
        """Answers in turn; the last one for ever."""
        left = list(answers)

        def answer(_):
            return left.pop(0) if len(left) > 1 else left[0]
        return self.mock(answer)

    def run_cli(self, urls, *args, code=0, stdin=subprocess.DEVNULL, env=None):
        endpoints = urls if isinstance(urls, str) else ",".join(u if isinstance(u, str) else u.url for u in urls)
        command = [CADASTRE, "-e", endpoints, "--timeout", "5s", *args]
        got = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=DEADLINE_S,
                             env=os.environ | {"http_proxy": closed_url()} | (env or {}), check=False)
        self.assertEqual(got.returncode, code, "%s\nstdout: %s\nstderr: %s" % (args, got.stdout, got.stderr))
        return got

    # --- requests and output ---

    def test_a_read_asks_what_it_was_told(self):
        m = self.mock_list(reply(ROUTE | {"revision": 45}))
        got = self.run_cli([m], "route", "get", "orders", "a b/é", "--consistency", "linearizable",
                           "--min-revision", "44", "--max-staleness", "2s", "-o", "json")
        self.assertEqual(json.loads(got.stdout), ROUTE | {"revision": 45})
        self.assertEqual(m.seen[0]["path"], "/v1/keyspaces/orders/route")
        self.assertEqual(m.seen[0]["query"], {"key": "a b/é", "consistency": "linearizable", "min_revision": "44",
                                              "timeout_ms": "3750", "max_staleness_ms": "2000"})
        self.assertIsNone(m.seen[0]["headers"].get("Idempotency-Key"))
        self.assertEqual(got.stderr, "")

    def test_a_table(self):
        m = self.mock_list(reply(ROUTE | {"revision": 45}))
        lines = self.run_cli([m], "route", "get", "orders", "m").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["KEYSPACE", "PARTITION", "EPOCH", "RANGE", "STATE", "PRIMARY", "ADDRESS",
                                            "AUTHORITY", "REPLICAS"])
        self.assertEqual(lines[1].split(), ["orders", "17", "42", "[,", "p)", "active", "n1", "10.0.0.1:9000",
                                            "static", "n1"])
        self.assertEqual(len(lines), 2)
        bare = self.run_cli([m], "route", "get", "orders", "m", "--no-headers").stdout.splitlines()
        self.assertEqual(len(bare), 1)

    def test_create_sends_all_it_was_given(self):
        m = self.mock_list(reply(KEYSPACE, 201))
        self.run_cli([m], "keyspace", "create", "orders", "--split", "g", "--splits-file", "-", "--sync", "1",
                     "--require", "region=eu-1,eu-2", "--spread", "zone", "--policy", '{"uneven_size":50}',
                     "--key-encoding", "utf8", "--authority", "affinity", "--expect-revision", "7",
                     "--delimiter", "/", "--fields", "1", "--partitions", "4", "--scheme", "hash",
                     stdin=self.stdin("k\np\n"))
        self.assertEqual(json.loads(m.seen[0]["body"]), {
            "name": "orders", "scheme": "hash", "key_encoding": "utf8", "authority": "affinity", "partitions": 4,
            "partition_key": {"delimiter": "/", "fields": 1}, "splits": ["g", "k", "p"], "replicas": {"sync": 1},
            "expect_revision": 7, "placement": {"require": {"region": ["eu-1", "eu-2"]}, "spread": "zone"},
            "policy": {"uneven_size": 50}})
        self.assertEqual(m.seen[0]["headers"]["Content-Type"], "application/json")

    def stdin(self, text):
        f = tempfile.TemporaryFile("w+")
        self.addCleanup(f.close)
        f.write(text)
        f.seek(0)
        return f

    def test_every_mutation_sends_its_request(self):
        members = {"cluster": "c", "generation": 1, "servers": [], "revision": 46}
        operation = {"id": 19, "kind": "move", "keyspace": "orders", "partition": 17, "state": "done", "revision": 45}
        table = [
            (["keyspace", "update", "orders", "--sync", "2"], "PATCH", "/v1/keyspaces/orders",
             {"replicas": {"sync": 2}}, KEYSPACE),
            (["keyspace", "delete", "orders", "-y"], "DELETE", "/v1/keyspaces/orders?confirm=orders", None,
             {"revision": 9}),
            (["partition", "split", "orders", "17", "--at", "m", "--at", "n", "--expect-epoch", "42"], "POST",
             "/v1/keyspaces/orders/partitions/17/split", {"at": ["m", "n"], "expect_epoch": 42},
             {"revision": 46, "parent": 17, "children": [ROUTE]}),
            (["partition", "merge", "orders", "17", "--with", "18"], "POST",
             "/v1/keyspaces/orders/partitions/17/merge", {"with": 18}, {"revision": 46, "route": ROUTE}),
            (["partition", "move", "orders", "17", "--from", "n1", "--to", "n2", "--empty"], "POST",
             "/v1/keyspaces/orders/partitions/17/move", {"from": "n1", "to": "n2", "empty": True}, operation),
            (["partition", "move", "orders", "17", "--to", "n2", "--start", "m", "--end", "p"], "POST",
             "/v1/keyspaces/orders/partitions/17/move", {"to": "n2", "range": {"start": "m", "end": "p"}}, operation),
            (["partition", "move", "orders", "17", "--to", "n2", "--end", "p"], "POST",
             "/v1/keyspaces/orders/partitions/17/move", {"to": "n2", "range": {"end": "p"}}, operation),
            (["server", "settings", "lease_ms=9000", "heartbeat_ms=default", "--expect-revision", "4"], "PATCH",
             "/v1/cluster/settings", {"lease_ms": 9000, "heartbeat_ms": None, "expect_revision": 4}, {"revision": 46}),
            (["partition", "transfer", "orders", "17", "--to", "n2", "--expect-epoch", "42"], "POST",
             "/v1/keyspaces/orders/partitions/17/transfer", {"to": "n2", "expect_epoch": 42}, operation),
            (["partition", "add-replica", "orders", "17", "n3", "--role", "async", "--max-bytes-per-s", "9"], "POST",
             "/v1/keyspaces/orders/partitions/17/replicas", {"node": "n3", "role": "async", "max_bytes_per_s": 9}, operation),
            (["partition", "remove-replica", "orders", "17", "n3", "--reason", "old"], "DELETE",
             "/v1/keyspaces/orders/partitions/17/replicas/n3", {"reason": "old"}, operation),
            (["partition", "failover", "orders", "17", "--to", "n2", "--reason", "burnt", "-y"], "POST",
             "/v1/keyspaces/orders/partitions/17/failover", {"to": "n2", "reason": "burnt", "accept_loss": True}, operation),
            (["partition", "insync", "orders", "17", "--session", "7", "--epoch", "42", "--insync", "n2", "--insync", "n3",
              "--mod-revision", "44"], "POST", "/v1/keyspaces/orders/partitions/17/insync",
             {"session": 7, "epoch": 42, "insync": ["n2", "n3"], "mod_revision": 44}, {"revision": 46, "route": ROUTE}),
            (["operation", "abort", "19", "--reason", "why"], "POST", "/v1/operations/19/abort", {"reason": "why"}, operation),
            (["operation", "retry", "19"], "POST", "/v1/operations/19/retry", {}, operation),
            (["operation", "finish-validation", "19"], "POST", "/v1/operations/19/finish-validation", {}, operation),
            (["operation", "finish-validation", "19", "--back", "--expect-revision", "4"], "POST",
             "/v1/operations/19/finish-validation", {"back": True, "expect_revision": 4}, operation),
            (["operation", "promote-candidate", "19", "--reason", "burnt", "--yes"], "POST",
             "/v1/operations/19/promote-candidate", {"reason": "burnt"}, operation),
            (["partition", "pin", "orders", "17"], "PATCH", "/v1/keyspaces/orders/partitions/17", {"pinned": True},
             ROUTE),
            (["partition", "unpin", "orders", "17"], "PATCH", "/v1/keyspaces/orders/partitions/17",
             {"pinned": False}, ROUTE),
            (["partition", "limit", "orders", "17", "9000"], "PATCH", "/v1/keyspaces/orders/partitions/17",
             {"rate_limit": {"requests_per_s": 9000}}, ROUTE),
            (["partition", "limit", "orders", "17", "none"], "PATCH", "/v1/keyspaces/orders/partitions/17",
             {"rate_limit": None}, ROUTE),
            (["node", "register", "n1", "10.0.0.1:9000", "--label", "zone=a", "--capacity", "bytes=1KiB"], "PUT",
             "/v1/nodes/n1", {"address": "10.0.0.1:9000", "lease": "static", "labels": {"zone": "a"},
                              "capacity": {"bytes": 1024}},
             {"session": 7, "lease_ms": 0, "revision": 7, "partitions": []}),
            (["node", "remove", "n1", "--force", "--yes"], "DELETE", "/v1/nodes/n1?force=true", None, {"revision": 9}),
            (["server", "add", "2", "--raft-address", "a:1", "--api-url", "http://a:2", "--instance", "ab",
              "--role", "observer"], "POST", "/v1/cluster/servers",
             {"id": 2, "raft_address": "a:1", "api_url": "http://a:2", "role": "observer", "instance": "ab"}, members),
            (["server", "promote", "2"], "PATCH", "/v1/cluster/servers/2", {"role": "voter"}, members),
            (["server", "demote", "2"], "PATCH", "/v1/cluster/servers/2", {"role": "observer"}, members),
            (["server", "transfer-leadership", "2"], "POST", "/v1/cluster/transfer-leadership", {"to": 2}, members),
            (["server", "transfer-leadership"], "POST", "/v1/cluster/transfer-leadership", {}, members),
            (["node", "remove", "n1", "-y", "--expect-revision", "4"], "DELETE", "/v1/nodes/n1",
             {"expect_revision": 4}, {"revision": 9}),
            (["server", "remove", "2", "-y"], "DELETE", "/v1/cluster/servers/2", None, members),
        ]
        for args, method, target, body, answer in table:
            with self.subTest(" ".join(args)):
                m = self.mock_list(reply(answer))
                self.run_cli([m], *args, "-o", "jsonl")
                self.assertEqual((m.seen[0]["method"], m.seen[0]["target"]), (method, target))
                self.assertEqual(json.loads(m.seen[0]["body"]) if m.seen[0]["body"] else None, body)
                self.assertRegex(m.seen[0]["headers"]["Idempotency-Key"], "^[0-9a-f]{32}$")

    def test_reads_of_every_noun(self):
        cluster = {"cluster": "c", "generation": 1, "id": 1, "leader": 1, "term": 2, "revision": 4, "servers": [
            {"id": 1, "raft_address": "a:1", "api_url": "http://a:2", "role": "voter"}]}
        table = [
            (["keyspace", "list"], "/v1/keyspaces?limit=10000", {"revision": 1, "keyspaces": [KEYSPACE]}, "orders"),
            (["keyspace", "get", "orders"], "/v1/keyspaces/orders", KEYSPACE, "orders"),
            (["partition", "list", "orders", "--limit", "5"], "/v1/keyspaces/orders/partitions?limit=5",
             {"revision": 1, "partitions": [ROUTE]}, "17"),
            (["partition", "get", "orders", "17"], "/v1/keyspaces/orders/partitions/17", ROUTE, "17"),
            (["partition", "history", "orders", "17"], "/v1/keyspaces/orders/partitions/17/history",
             {"revision": 1, "partition": 17, "history": [{"epoch": 42, "primary": None}]}, "42"),
            (["partition", "check", "orders", "17", "--node", "n1", "--epoch", "42"],
             "/v1/keyspaces/orders/partitions/17/check", {"revision": 1, "partition": 17, "epoch": 42}, "17"),
            (["route", "batch", "orders", "a", "b"], "/v1/keyspaces/orders/routes",
             {"revision": 1, "routes": [ROUTE, ROUTE]}, "17\n17"),
            (["route", "range", "orders", "--start", "a", "--end", "b"],
             "/v1/keyspaces/orders/routes?start=a&end=b&limit=10000", {"revision": 1, "routes": [ROUTE]}, "17"),
            (["validate", "orders", "17@42", "18@44@45"], "/v1/keyspaces/orders/validate",
             {"revision": 1, "stale": [{"partition": 17, "reason": "split", "routes": [ROUTE]}]}, "17"),
            (["changes", "orders", "--since", "4", "--wait", "1s"], "/v1/keyspaces/orders/changes?since=4&wait_ms=1000",
             {"from": 4, "revision": 9, "changes": [{"revision": 9, "kind": "split", "removed": [], "routes": []}]}, "9"),
            (["diff", "orders", "--from", "4", "--to", "9"], "/v1/keyspaces/orders/diff?from=4&to=9&limit=10000",
             {"from": 4, "to": 9, "revision": 9, "partitions": [
                 {"partition": 17, "change": "created", "after": ROUTE}]}, "17"),
            (["node", "list"], "/v1/nodes?limit=10000", {"revision": 1, "nodes": [{"node": "n1"}]}, "n1"),
            (["node", "get", "n1"], "/v1/nodes/n1", {"node": "n1"}, "n1"),
            (["operation", "list", "--state", "done", "--keyspace", "orders", "--node", "n1", "--kind", "move"],
             "/v1/operations?state=done&keyspace=orders&node=n1&kind=move&limit=10000",
             {"revision": 1, "operations": [{"id": 19}]}, "19"),
            (["operation", "get", "19"], "/v1/operations/19", {"id": 19}, "19"),
            (["operation", "authority", "19"], "/v1/operations/19/authority",
             {"operation": 19, "authority": {"node": "n1"}, "verbs": ["abort"]}, "n1"),
            (["node", "duties", "n1"], "/v1/nodes/n1/duties", {"revision": 1, "duties": [{"id": 31}]}, "31"),
            (["skew", "orders"], "/v1/skew?keyspace=orders", {"resources": {}, "hot_keys": [{"finding": "hot_key"}]}, "hot_key"),
            (["skew"], "/v1/skew", {"resources": {}, "hot_nodes": [{"finding": "hot_node"}]}, "hot_node"),
            (["heatmap", "orders", "--resource", "writes", "--from", "2026-11-30T09:00:00Z", "--to", "2026-11-30T10:00:00Z"],
             "/v1/heatmap?keyspace=orders&resource=writes&from=2026-11-30T09%3A00%3A00Z&to=2026-11-30T10%3A00%3A00Z",
             {"columns": [], "rows": [{"from": "2026-11-30T09:00:00Z", "values": []}]}, "2026-11-30T09:00:00Z"),
            (["server", "list"], "/v1/cluster", cluster, "1"),
            (["watchers", "--behind", "4"], "/v1/cluster/watchers?behind=4&limit=10000", {"revision": 4, "watchers": [{"id": 3}]}, "3"),
            (["command", "get", "k/1"], "/v1/commands/k%2F1", {"revision": 4, "applied_revision": 3, "status": 201}, "201"),
            (["audit"], "/v1/audit?limit=10000", {"revision": 4, "entries": [{"index": 61}]}, "61"),
            (["status"], "/v1/cluster", cluster, "c"),
            (["server", "settings"], "/v1/cluster/settings", {"revision": 4, "lease_ms": 9000}, "lease_ms"),
            (["server", "snapshot"], "/v1/cluster/snapshot", {"revision": 4}, "4"),
        ]
        for args, target, answer, name in table:
            with self.subTest(" ".join(args)):
                m = self.mock_list(reply(answer))
                self.assertEqual(self.run_cli([m], *args, "-o", "name").stdout, name + "\n")
                self.assertEqual(m.seen[0]["target"], target)
                whole = self.run_cli([m], *args, "-o", "json").stdout
                self.assertEqual(json.loads(whole), answer)
                self.assertNotEqual(self.run_cli([m], *args).stdout, "")

    def test_tables_show_what_the_server_calls_it(self):
        moved = ROUTE | {"epoch": 45, "primary": {"node": "n2", "address": "10.0.0.2:9000"}}
        table = [
            (["partition", "history", "orders", "17"],
             {"revision": 45, "partition": 17, "history": [
                 {"epoch": 42, "end": "p", "primary": ROUTE["primary"], "cause": "split", "operation": 19,
                  "from_revision": 42, "from_time": "2026-11-30T11:52:02.123Z", "to_revision": 45,
                  "to_time": "2026-11-30T11:58:41.007Z"}]},
             ["42", "[,", "p)", "n1", "split", "2026-11-30T11:52:02.123Z", "2026-11-30T11:58:41.007Z", "42", "19"]),
            (["diff", "orders", "--from", "4"],
             {"from": 4, "to": 45, "revision": 45, "partitions": [
                 {"partition": 17, "change": "changed", "before": ROUTE, "after": moved}]},
             ["17", "changed", "17[,", "p)@42", "n1", "17[,", "p)@45", "n2"]),
            (["diff", "orders", "--from", "4"],
             {"from": 4, "to": 45, "revision": 45, "partitions": [
                 {"partition": 17, "change": "retired", "before": ROUTE}]},
             ["17", "retired", "17[,", "p)@42", "n1", "-"]),
            (["audit"],
             {"revision": 45, "entries": [{"index": 61, "at": "2026-11-30T11:58:41.007Z", "revision": 45,
                                           "command": "reassign", "outcome": "ok", "subject": "server=1", "reason": "full"}]},
             ["2026-11-30T11:58:41.007Z", "45", "reassign", "ok", "server=1", "full", "-", "-", "-"]),
        ]
        for args, answer, cells in table:
            with self.subTest(" ".join(args)):
                m = self.mock_list(reply(answer))
                self.assertEqual(self.run_cli([m], *args, "--no-headers").stdout.split(), cells)

    def test_skew_shows_figures_then_findings(self):
        stats = {"mean": 5000, "median": 3000, "p99": 35000, "max": 35000, "max_to_mean": 7, "max_to_median": 11.667,
                 "top10_share": 0.775}
        m = self.mock_list(reply({
            "resources": {"writes": {"unit": "per_s", "partitions": stats, "nodes": stats | {"least_max_to_mean": 6.4}}},
            "hot_keys": [{"finding": "hot_key", "resource": "writes", "keyspace": "orders", "partition": 17, "node": "n1",
                          "key": "melon", "value": 35000, "bound": 1000, "remedy": "spread_key",
                          "salts": {"count": 8, "largest_owner_load": 7000, "sharing_an_owner": 2}}]}))
        self.assertEqual([line.split() for line in self.run_cli([m], "skew", "orders", "--no-headers").stdout.splitlines()], [
            ["writes", "per_s", "5000", "3000", "35000", "35000", "7", "11.667", "0.775", "7", "6.4"], [],
            ["hot_key", "writes", "orders", "17", "n1", "melon", "35000", "1000", "spread_key", "-",
             "8", "salts,", "at", "most", "7000,", "2", "share", "an", "owner"]])

    def test_heatmap_is_darker_where_there_was_more(self):
        m = self.mock_list(reply({
            "resource": "writes", "unit": "per_s",
            "columns": [{"start": "", "end": "g"}, {"start": "g", "end": "p"}, {"start": "p", "end": None}],
            "rows": [{"from": "T1", "values": [0, 450, 900]}, {"from": "T2", "values": [1, 0, 0]}]}))
        self.assertEqual(self.run_cli([m], "heatmap", "orders").stdout, (
            "FROM  LARGEST  HEAT\nT1    900.0    | +@|\nT2    1.0      |.  |\n\n"
            "3 columns; @ is 900 per_s of writes, in column 3: [p, )\n"))

    def test_skew_ends_with_the_cause(self):
        m = self.mock_list(reply({"resources": {}, "cause": {
            "kind": "tenant_and_time", "tenant": "a/", "from": "T1", "why": "one tenant had much more load"}}))
        self.assertEqual(self.run_cli([m], "skew", "orders").stdout.splitlines()[-1],
                         "cause: tenant_and_time a/ T1: one tenant had much more load")

    def moving(self, *stages, attention=None):
        """A move that is in each of the stages for one request, and in the last for ever."""
        left = list(stages)

        def answer(request):
            stage = left.pop(0) if request["method"] == "GET" and len(left) > 1 else left[0]
            state = {"DONE": "done", "ABORTED": "aborted", "FAILED": "failed"}.get(stage, "running")
            body = {"id": 19, "stage": stage, "state": state, "attempt": 1, "revision": 45}
            return reply(body | ({"attention": attention} if attention else {}), 202 if request["method"] == "POST" else 200)
        return self.mock(answer)

    NIGHTS = {"name": "nights", "kind": "maintenance", "time_zone": "Europe/Zurich", "days": ["mon", "sun"], "start": "22:00",
              "end": "06:00"}
    XMAS = {"name": "xmas", "kind": "freeze", "time_zone": "UTC", "from": "2026-12-24T12:00:00.000Z",
            "to": "2026-12-27T00:00:00.000Z"}
    SHOWN = {"open": False, "changes_at": None, "zone_known": True}

    def windows(self, revisions, *patches):
        """Shows NIGHTS and XMAS at each of the revisions; the patches' answers in turn."""
        shown = [reply({"windows": [self.NIGHTS | self.SHOWN, self.XMAS | self.SHOWN | {"open": True}], "mode": "auto",
                        "revision": r}) for r in revisions]
        left = {"GET": shown, "PATCH": list(patches)}
        return self.mock(lambda rq: left[rq["method"]].pop(0))

    def test_windows_are_listed(self):
        got = self.run_cli([self.windows([7])], "balancer", "window")
        self.assertRegex(got.stdout, "nights +maintenance +Europe/Zurich +mon,sun 22:00-06:00 +false +- +true")
        self.assertIn("2026-12-24T12:00:00.000Z to 2026-12-27T00:00:00.000Z", got.stdout)
        got = self.run_cli([self.windows([7])], "balancer", "show")
        self.assertIn("nights=closed xmas=open", got.stdout)

    def test_a_window_is_added_to_what_is_there(self):
        m = self.windows([7], reply({"revision": 8}))
        self.run_cli([m], "balancer", "window", "add", "office", "--kind", "freeze", "--zone", "Asia/Tokyo", "--days", "mon,tue",
                     "--start", "08:00", "--end", "18:00")
        self.assertEqual(m.seen[0]["query"], {"consistency": "linearizable"})
        self.assertEqual(json.loads(m.seen[1]["body"]), {"expect_revision": 7, "windows": [self.NIGHTS, self.XMAS, {
            "name": "office", "kind": "freeze", "time_zone": "Asia/Tokyo", "days": ["mon", "tue"], "start": "08:00",
            "end": "18:00"}]})
        m = self.windows([7], reply({"revision": 8}))
        self.run_cli([m], "balancer", "window", "add", "y", "--kind", "freeze", "--from", "A", "--to", "B",
                     "--expect-revision", "5")
        body = json.loads(m.seen[1]["body"])
        self.assertEqual((body["expect_revision"], body["windows"][2]), (5, {"name": "y", "kind": "freeze", "from": "A", "to": "B"}))

    def test_a_window_is_removed_from_what_is_there(self):
        m = self.windows([7], reply({"revision": 8}))
        self.run_cli([m], "balancer", "window", "remove", "nights")
        self.assertEqual(json.loads(m.seen[1]["body"]), {"expect_revision": 7, "windows": [self.XMAS]})
        m = self.windows([7])
        got = self.run_cli([m], "balancer", "window", "remove", "noon", code=3)
        self.assertIn("there is no window 'noon'", got.stderr)
        for wrong in (["remove"], ["clear", "a"], ["add", "a"], ["remove", "a", "--days", "mon"], ["--start", "08:00"]):
            self.run_cli([m], "balancer", "window", *wrong, code=2)
        self.assertEqual(len(m.seen), 1)

    def test_a_window_is_changed_for_the_revision_that_was_read(self):
        stale = problem(409, "stale_revision")
        m = self.windows([7, 9, 11], stale, stale, reply({"revision": 12}))
        got = self.run_cli([m], "balancer", "window", "remove", "xmas")
        self.assertEqual(got.stderr, "")
        self.assertEqual([json.loads(r["body"])["expect_revision"] for r in m.seen if r["method"] == "PATCH"], [7, 9, 11])
        m = self.windows([7], stale)
        self.run_cli([m], "balancer", "window", "remove", "xmas", "--expect-revision", "3", code=4)
        m = self.windows([7] * 8, *[stale] * 8)
        self.assertIn("stale_revision", self.run_cli([m], "balancer", "window", "remove", "xmas", code=4).stderr)

    def test_waits_for_the_end_of_an_operation(self):
        move = ["partition", "move", "orders", "17", "--to", "n2", "--wait", "1m", "-o", "json"]
        m = self.moving("QUEUED", "COPY", "COPY", "COPY", "DONE")
        got = self.run_cli([m], *move)
        self.assertEqual(json.loads(got.stdout)["stage"], "DONE")
        self.assertEqual([line.split()[-1] for line in got.stderr.splitlines()], ["QUEUED", "COPY", "DONE"])
        asked = [r for r in m.seen if r["method"] == "GET"]
        self.assertEqual({r["target"] for r in asked}, {"/v1/operations/19?min_revision=45"})
        self.assertEqual(len(asked), 5)
        m = self.moving("ABORTED", attention={"code": "no_room", "detail": "the disk is full", "since": "x"})
        got = self.run_cli([m], *move, code=1)
        self.assertIn("the disk is full (no_room)", got.stderr)
        self.assertEqual(json.loads(got.stdout)["state"], "aborted")

    def test_waits_no_longer_than_it_was_told(self):
        m = self.moving("COPY")
        got = self.run_cli([m], "operation", "abort", "19", "--wait", "300ms", code=6)
        self.assertIn("still in COPY", got.stderr)
        self.assertLess(len(m.seen), 8)

    def test_watches_an_operation(self):
        m = self.moving("QUEUED", "COPY", "COPY", "WINDOW", "FAILED")
        got = self.run_cli([m], "operation", "watch", "19", "-o", "jsonl", code=1)
        self.assertEqual([json.loads(line)["stage"] for line in got.stdout.splitlines()], ["QUEUED", "COPY", "WINDOW", "FAILED"])
        m = self.moving("COPY", "DONE")
        self.assertEqual(self.run_cli([m], "operation", "watch", "19", "-o", "name").stdout, "COPY\nDONE\n")

    def test_what_gives_something_up_asks_first(self):
        for args in (["operation", "promote-candidate", "19", "--reason", "x"],
                     ["partition", "failover", "orders", "17", "--to", "n2", "--reason", "x"]):
            m = self.mock_list(reply({}))
            self.run_cli([m], *args, code=2)
            self.assertEqual(m.seen, [])

    def test_pages_are_followed(self):
        def answer(request):
            at = int(request["query"].get("cursor", "0"))
            page = {"revision": 4, "nodes": [{"node": "n%d" % at}]}
            return reply(page | ({"next": str(at + 1)} if at < 2 else {}))
        m = self.mock(answer)
        self.assertEqual(self.run_cli([m], "node", "list", "-o", "name").stdout, "n0\nn1\nn2\n")
        whole = json.loads(self.run_cli([m], "node", "list", "-o", "json").stdout)
        self.assertEqual(whole, {"revision": 4, "nodes": [{"node": "n0"}, {"node": "n1"}, {"node": "n2"}]})
        m.seen.clear()
        got = self.run_cli([m], "node", "list", "-o", "name", "--limit", "2")
        self.assertEqual(got.stdout, "n0\nn1\n")
        self.assertEqual([r["query"]["limit"] for r in m.seen], ["2", "1"])
        self.assertIn("there are more", got.stderr)

    # --- exits ---

    def test_exits_follow_the_problem(self):
        table = [(400, "invalid_request", 2), (401, "unauthorized", 7), (403, "forbidden", 7),
                 (404, "keyspace_not_found", 3), (409, "stale_epoch", 4), (410, "partition_retired", 3),
                 (422, "idempotency_mismatch", 4), (422, "bad_split_key", 2), (500, "internal", 1),
                 (503, "behind", 5)]
        for status, code, exit_code in table:
            with self.subTest(code):
                m = self.mock_list(problem(status, code, errors=[{"pointer": "/x", "detail": "at fault"}]))
                got = self.run_cli([m], "keyspace", "get", "orders", code=exit_code)
                self.assertEqual(got.stdout, "")
                self.assertEqual(got.stderr, "cadastre: told so (%s)\n  /x: at fault\n" % code)
                m = self.mock_list(problem(status, code, errors=[{"pointer": "/x", "detail": "told so"}]))
                got = self.run_cli([m], "keyspace", "get", "orders", code=exit_code)
                self.assertEqual(got.stderr, "cadastre: /x: told so (%s)\n" % code)

    def test_exits_follow_the_status_without_a_code(self):
        for status, exit_code in [(401, 7), (403, 7), (404, 3), (409, 4), (410, 3), (418, 1), (500, 1), (502, 5)]:
            with self.subTest(status):
                m = self.mock_list((status, {"Content-Type": "text/plain"}, "no"))
                self.run_cli([m], "keyspace", "get", "orders", code=exit_code)

    def test_usage_errors_ask_nobody(self):
        m = self.mock_list(reply(KEYSPACE))
        for args in (["keyspace"], ["keyspace", "get"], ["keyspace", "get", "a", "--x"], ["keyspace", "delete", "a"],
                     ["partition", "get", "a", "x"], ["validate", "a", "17"], ["validate", "a", "17@1@2@3"],
                     ["partition", "limit", "a", "1", "0"], ["keyspace", "update", "a"],
                     ["keyspace", "create", "a", "--require", "x"], ["keyspace", "create", "a", "--policy", "[]"],
                     ["keyspace", "create", "a", "--fields", "1"], ["node", "register", "a", "b", "--capacity", "x=y"],
                     ["status", "--idempotency-key", "a b"], ["node", "list", "--limit", "0"]):
            with self.subTest(" ".join(args)):
                got = self.run_cli([m], *args, code=2)
                self.assertEqual(len(got.stderr.splitlines()), 1)
        self.assertEqual(m.seen, [])
        self.run_cli("nonsense", "status", code=2)

    def test_unreachable_is_5_and_a_hang_is_6(self):
        got = self.run_cli([closed_url(), closed_url()], "status", code=5)
        self.assertIn("connect", got.stderr)
        hung = socket.socket()
        self.addCleanup(hung.close)
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        url = "http://127.0.0.1:%d" % hung.getsockname()[1]
        self.run_cli(url, "status", "--timeout", "300ms", code=6)
        got = self.run_cli(url, "keyspace", "delete", "a", "-y", "--idempotency-key", "k1", "--timeout", "300ms", code=6)
        self.assertIn("the outcome is unknown: cadastre command get k1", got.stderr)

    def test_stdout_that_is_full_is_a_failure(self):
        m = self.mock_list(reply(KEYSPACE))
        with open("/dev/full", "w", encoding="utf-8") as full:
            got = subprocess.run([CADASTRE, "-e", m.url, "keyspace", "get", "orders"], stdout=full,
                                 stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(got.returncode, 1)
        self.assertIn("stdout", got.stderr)

    # --- failover ---

    def test_fails_over_to_the_next_endpoint(self):
        m = self.mock_list(reply(KEYSPACE))
        self.run_cli([closed_url(), m], "keyspace", "get", "orders")
        bad = self.mock_list(problem(500, "internal"))
        self.run_cli([bad, m], "keyspace", "get", "orders")
        self.assertEqual(len(bad.seen), 1)
        hung = socket.socket()
        self.addCleanup(hung.close)
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        self.run_cli(["http://127.0.0.1:%d" % hung.getsockname()[1], m], "keyspace", "get", "orders", "--timeout", "2s")

    def test_endpoints_from_the_environment(self):
        m = self.mock_list(reply(KEYSPACE))
        got = subprocess.run([CADASTRE, "keyspace", "get", "orders", "-o", "name"], capture_output=True, text=True,
                             timeout=DEADLINE_S, env=os.environ | {"CADASTRE_ENDPOINTS": m.url}, check=False)
        self.assertEqual((got.returncode, got.stdout), (0, "orders\n"))

    def test_waits_for_a_leader(self):
        m = self.mock_list(problem(503, "no_leader", retry_after_ms=20), problem(503, "no_leader"), reply(KEYSPACE))
        self.run_cli([m], "keyspace", "get", "orders")
        self.assertEqual(len(m.seen), 3)
        never = self.mock_list(problem(503, "no_leader"))
        got = self.run_cli([never], "keyspace", "get", "orders", "--timeout", "400ms", code=5)
        self.assertIn("no_leader", got.stderr)
        self.assertGreater(len(never.seen), 1)

    def test_behind_is_asked_elsewhere_once(self):
        behind, m = self.mock_list(problem(503, "behind")), self.mock_list(reply(KEYSPACE))
        self.run_cli([behind, m], "keyspace", "get", "orders")
        self.run_cli([behind], "keyspace", "get", "orders", code=5)
        self.assertEqual(len(behind.seen), 2)

    def test_retries_keep_the_key(self):
        m = self.mock_list(problem(503, "outcome_unknown", retry_after_ms=10), problem(503, "no_leader"),
                           reply({"revision": 9}, Idempotency_Replayed="true"))
        got = self.run_cli([m], "keyspace", "delete", "orders", "-y")
        self.assertEqual(len(set(m.keys())), 1)
        self.assertEqual(len(m.keys()), 3)
        self.assertRegex(m.keys()[0], "^[0-9a-f]{32}$")
        self.assertIn("done before", got.stderr)
        self.run_cli([m], "keyspace", "delete", "orders", "-y", "--idempotency-key", "mine-1")
        self.assertEqual(m.keys()[-1], "mine-1")
        self.assertNotEqual(m.keys()[0], m.keys()[-1])

    def test_a_cut_mutation_is_sent_again_with_its_key(self):
        cuts = [1]

        def answer(_):
            if cuts:
                cuts.pop()
                raise Cut()
            return reply({"revision": 9})
        m = self.mock(answer)
        self.run_cli([m], "keyspace", "delete", "orders", "-y")
        self.assertEqual(len(m.keys()), 2)
        self.assertEqual(len(set(m.keys())), 1)

    def test_an_open_outcome_is_said(self):
        def answer(_):
            raise Cut()
        m = self.mock(answer)
        got = self.run_cli([m], "keyspace", "delete", "a", "-y", "--idempotency-key", "k1", "--timeout", "400ms", code=5)
        self.assertIn("the outcome is unknown: cadastre command get k1", got.stderr)
        m = self.mock_list(problem(503, "outcome_unknown"))
        got = self.run_cli([m], "keyspace", "delete", "a", "-y", "--idempotency-key", "k1", "--timeout", "400ms", code=5)
        self.assertIn("cadastre command get k1", got.stderr)

    # --- redirects ---

    def redirect(self, location):
        return 307, {"Location": location}, ""

    def test_follows_a_redirect_to_an_endpoint(self):
        leader = self.mock_list(reply({"revision": 9}))
        follower = self.mock_list(self.redirect(leader.url + "/v1/elsewhere"))
        self.run_cli([follower, leader], "keyspace", "delete", "orders", "-y")
        self.assertEqual(len(follower.seen), 1)
        self.assertEqual(leader.seen[0]["target"], "/v1/keyspaces/orders?confirm=orders")
        self.assertEqual(leader.keys(), follower.keys())

    def test_follows_a_redirect_to_a_member(self):
        leader = self.mock_list(reply({"revision": 9}))

        def answer(request):
            if request["path"] == "/v1/cluster":
                return reply({"servers": [{"id": 2, "api_url": leader.url}]})
            return self.redirect(leader.url + request["target"])
        follower = self.mock(answer)
        self.run_cli([follower], "node", "register", "n1", "a:1")
        self.assertEqual(leader.seen[0]["method"], "PUT")
        self.assertEqual(json.loads(leader.seen[0]["body"])["address"], "a:1")

    def test_never_follows_a_redirect_to_a_stranger(self):
        stranger = self.mock_list(reply({"revision": 9}))

        def answer(request):
            if request["path"] == "/v1/cluster":
                return reply({"servers": []})
            return self.redirect(stranger.url + request["target"])
        follower = self.mock(answer)
        got = self.run_cli([follower], "keyspace", "delete", "orders", "-y", code=1)
        self.assertIn("no member", got.stderr)
        self.assertEqual(stranger.seen, [])

    def test_a_redirect_in_circles_ends(self):
        mocks = []

        def answer(request):
            return self.redirect(mocks[0].url + request["target"])
        mocks.append(self.mock(answer))
        self.run_cli([mocks[0]], "keyspace", "delete", "orders", "-y", "--timeout", "300ms", code=1)

    def test_a_leader_that_died_is_waited_for(self):
        dead = closed_url()
        m = self.mock_list(self.redirect(dead + "/"), reply({"revision": 9}))
        self.run_cli([m, dead], "keyspace", "delete", "orders", "-y")
        self.assertEqual(len(m.seen), 2)

    # --- streams ---

    def test_map_passes_through(self):
        lines = "".join(json.dumps(ROUTE | {"partition": i}) + "\n" for i in range(1000))

        def answer(request):
            if request["headers"]["Accept"] == "application/x-ndjson":
                return reply(lines, Cadastre_Revision=45)
            return reply({"revision": 45, "routes": [ROUTE]}, Cadastre_Revision=45)
        m = self.mock(answer)
        got = self.run_cli([m], "map", "orders", "-o", "jsonl")
        self.assertEqual(got.stdout, lines)
        self.assertIn("revision 45", got.stderr)
        self.assertEqual(json.loads(self.run_cli([m], "map", "orders", "-o", "json").stdout)["revision"], 45)
        self.assertEqual(self.run_cli([m], "map", "orders", "-o", "name", "-q").stdout.split(),
                         [str(i) for i in range(1000)])
        self.assertEqual(len(self.run_cli([m], "map", "orders").stdout.splitlines()), 1001)

    def test_half_a_map_is_a_failure(self):
        m = self.mock_list(reply(json.dumps(ROUTE) + "\n", Content_Length=9999))
        got = self.run_cli([m], "map", "orders", "-o", "jsonl", code=1)
        self.assertIn("incomplete", got.stderr)
        self.assertEqual(len(m.seen), 1)

    def test_backup_is_whole_or_not_there(self):
        image = b"SQLite format 3\0" + bytes(range(256)) * 64
        m = self.mock_list(reply(image, Cadastre_Revision=45))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "b.db")
            self.run_cli([m], "backup", path)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), image)
            self.run_cli([m], "backup", path, code=2)  # it is there already
            self.run_cli([m], "backup", path, "--yes")
            for answer in (reply(image, Content_Length=999999), reply("not a database, but long enough"),
                           problem(503, "overloaded")):
                os.unlink(path)
                bad = self.mock_list(answer)
                got = subprocess.run([CADASTRE, "-e", bad.url, "--timeout", "300ms", "backup", path],
                                     capture_output=True, timeout=DEADLINE_S, check=False)
                self.assertNotEqual(got.returncode, 0)
                self.assertEqual(os.listdir(folder), [])
                with open(path, "wb"):
                    pass
            self.run_cli([m], "backup", os.path.join(folder, "no", "b.db"), code=1)

    def change(self, revision):
        return {"revision": revision, "kind": "split", "removed": [17], "routes": [ROUTE]}

    def events(self, *revisions):
        text = "retry: 20\n\n: beat\n\n"
        for r in revisions:
            text += "id: %d\nevent: change\ndata: %s\n\n" % (r, json.dumps(self.change(r)))
        return (200, {"Content-Type": "text/event-stream", "Content-Length": str(len(text))}, text)

    def test_watch_resumes_where_it_was(self):
        def answer(request):
            if request["path"] == "/v1/keyspaces/orders":
                return reply(KEYSPACE)
            after = int(request["headers"].get("Last-Event-ID") or request["query"]["since"])
            if after == 43:
                raise Cut()  # once in the middle, without any answer
            return self.events(after + 1, after + 2)
        first = self.mock(answer)
        second = self.mock(lambda r: self.events(44) if r["headers"]["Last-Event-ID"] == "43" else self.events(45, 46))
        got = self.run_cli([first, second], "watch", "orders", "--count", "5", "-o", "jsonl")
        self.assertEqual([json.loads(line)["revision"] for line in got.stdout.splitlines()], [42, 43, 44, 45, 46])
        self.assertEqual(first.seen[1]["query"], {"since": "41"})
        self.assertEqual(first.seen[1]["headers"]["Accept"], "text/event-stream")

    def test_watch_of_a_part(self):
        m = self.mock(lambda r: self.events(8))
        got = self.run_cli([m], "watch", "orders", "--since", "7", "--start", "a", "--end", "b", "--count", "1")
        self.assertEqual(m.seen[0]["query"], {"since": "7", "start": "a", "end": "b"})
        self.assertEqual(got.stdout.splitlines()[1].split(), ["8", "split", "17", "17[,", "p)@42", "n1"])

    def test_watch_handles_a_reset(self):
        streams = [(200, {"Content-Type": "text/event-stream"},
                    "retry: 10\n\nid: 5\nevent: change\ndata: %s\n\nevent: reset\ndata: {}\n\n" % json.dumps(self.change(5))),
                   problem(410, "compacted"), self.events(42)]

        def answer(request):
            if request["path"] == "/v1/keyspaces/orders":
                return reply(KEYSPACE)
            return streams.pop(0)
        m = self.mock(answer)
        got = self.run_cli([m], "watch", "orders", "--since", "4", "--count", "2", "-o", "jsonl")
        rows = [json.loads(line) for line in got.stdout.splitlines()]
        self.assertEqual([(r["revision"], r["kind"]) for r in rows], [(5, "split"), (41, "reset"), (41, "reset"), (42, "split")])
        watches = [r for r in m.seen if r["path"].endswith("/watch")]
        self.assertEqual([r["query"]["since"] for r in watches], ["4", "41", "41"])
        self.assertEqual([r["headers"].get("Last-Event-ID") for r in watches], [None, None, None])
        self.assertIn("fetch the map again", got.stderr)

    def test_watch_ends_with_its_keyspace(self):
        gone = {"revision": 9, "kind": "delete", "removed": [17], "routes": []}
        m = self.mock_list((200, {"Content-Type": "text/event-stream"},
                            "id: 9\nevent: change\ndata: %s\n\n" % json.dumps(gone)))
        got = self.run_cli([m], "watch", "orders", "--since", "8", "-o", "jsonl")
        self.assertEqual(json.loads(got.stdout), gone)
        self.assertEqual(len(m.seen), 1)

    def test_watch_ends_at_once_when_it_can_not_be(self):
        m = self.mock_list(problem(404, "keyspace_not_found"))
        self.run_cli([m], "watch", "orders", code=3)
        self.run_cli([m], "watch", "orders", "--since", "1", code=3)

    # --- doctor ---

    def server(self, index, state_hash, generation=1, ready=200, servers=()):
        def answer(request):
            if request["path"] == "/readyz":
                return ready, {"Content-Type": "text/plain"}, "x\n"
            return reply({"cluster": "c" * 32, "generation": generation, "id": 1, "applied_index": index(),
                          "state_hash": state_hash, "servers": [{"api_url": u} for u in servers]})
        return self.mock(answer)

    def test_doctor(self):
        a = self.server(lambda: 7, "a" * 32)
        b = self.server(lambda: 7, "a" * 32, servers=[a.url])
        got = self.run_cli([b], "doctor", "-o", "json")  # finds the other one by itself
        self.assertEqual([s["verdict"] for s in json.loads(got.stdout)["servers"]], ["ok", "ok"])
        moving = iter(range(6, 99))
        late = self.server(lambda: next(moving), "a" * 32)
        self.run_cli([a, late], "doctor")
        for other, word in ((self.server(lambda: 7, "b" * 32), "differs"),
                            (self.server(lambda: 7, "a" * 32, generation=2), "generation"),
                            (self.server(lambda: 7, "a" * 32, ready=503), "not ready"),
                            (self.server(lambda: 8, "a" * 32), "never seen"),
                            (closed_url(), "connect")):
            with self.subTest(word):
                got = self.run_cli([a, other], "doctor", code=1)
                self.assertIn(word, got.stdout)
                self.assertIn("1 of 2 servers", got.stderr)

    # --- the rest ---

    def test_help_and_version(self):
        for args in ([], ["keyspace"], ["keyspace", "create"], ["watch"]):
            got = self.run_cli("http://a", *args, "--help")
            self.assertIn("Examples:\n  cadastre ", got.stdout)
            self.assertEqual(got.stderr, "")
        self.assertRegex(self.run_cli("http://a", "--version").stdout, r"^cadastre \d+\.\d+\.\d+\n$")

    def test_the_manual_has_every_command_and_flag(self):
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "man", "cadastre.1"), encoding="utf-8") as f:
            manual = f.read()
        fish = self.run_cli("http://a", "completion", "fish").stdout
        commands = set(re.findall(r"-n '__fish_seen_subcommand_from (\S+)' -f -a (\S+)", fish))
        nouns = set(re.findall(r"-n __fish_use_subcommand -f -a (\S+)", fish))
        self.assertGreater(len(commands), 30)
        for words in [" ".join(c) for c in commands] + sorted(nouns - {noun for noun, _ in commands}):
            self.assertRegex(manual, r"\n\.It Cm %s[ \n]" % re.escape(words))
        flags = set(re.findall(r" -l (\S+)", fish))
        self.assertGreater(len(flags), 40)
        for flag in flags:
            self.assertRegex(manual, r"Fl -%s[ \n]" % re.escape(flag))

    def test_bash_completion_completes(self):
        script = self.run_cli("http://a", "completion", "bash").stdout
        for words, wanted in ((["cadastre", "keys"], "keyspace"), (["cadastre", "-e", "x", "partition", "spl"], "split"),
                              (["cadastre", "partition", "split", "orders", "--expect-e"], "--expect-epoch"),
                              (["cadastre", "-o", "jsonl"], "jsonl"), (["cadastre", "watch", "orders", "--si"], "--since")):
            ask = "%s\nCOMP_WORDS=(%s); COMP_CWORD=%d; _cadastre; echo \"${COMPREPLY[*]}\"" % (
                script, " ".join(words), len(words) - 1)
            got = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            self.assertEqual((got.stdout, got.stderr), (wanted + "\n", ""), words)


class Tap(unittest.TestResult):
    """A line a test, for prove."""

    def startTest(self, test):
        super().startTest(test)
        self.before = len(self.failures), len(self.errors)

    def stopTest(self, test):
        bad = self.failures[self.before[0]:] + self.errors[self.before[1]:]
        for _, text in bad:
            print("# " + text.replace("\n", "\n# "))
        print("%sok %d - %s" % ("not " if bad else "", self.testsRun, test.id().split(".")[-1]), flush=True)
        self.failed = getattr(self, "failed", 0) + bool(bad)
        super().stopTest(test)


def main():
    global CADASTRE
    build = os.environ.get("CADASTRE_BUILD", "build/release")
    CADASTRE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(build, "cadastre"))
    names = ["CliTest." + name for name in sys.argv[2:]]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names, sys.modules[__name__]) if names else loader.loadTestsFromTestCase(CliTest)
    result = Tap()
    suite.run(result)
    failed = getattr(result, "failed", 0)
    print("1..%d" % result.testsRun)
    print("# %d passed, %d failed" % (result.testsRun - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
