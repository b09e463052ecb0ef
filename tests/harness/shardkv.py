# SPDX-License-Identifier: Apache-2.0
"""examples/shardkv in tests: real nodes and their load generator, on real servers."""
import collections
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
from cluster import BUILD, ROOT, Cluster, Unreachable, free_port, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal  # noqa: E402  pylint: disable=wrong-import-position

LEASE_MS = 1500


class Node:
    def __init__(self, cluster, name, labels=(), environment=None, options=()):
        self.cluster, self.name, self.labels, self.environment = cluster, name, labels, environment or {}
        self.options = options
        self.address = f"127.0.0.1:{free_port()}"
        self.directory = cluster.base / f"node-{name}"
        self.log = cluster.base / f"node-{name}.log"
        self.process = None

    def start(self):
        endpoints = ",".join(s.url for s in self.cluster.servers)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.command_prefix(), str(BUILD / "shardkv"), *self.options, endpoints, self.name, self.address, str(self.directory), "300", *self.labels],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **self.environment})
        return self

    def command_prefix(self):
        """What its command begins with."""
        return ()

    def chunks(self, partition):
        """How many chunks of a snapshot its newest copy has, that is not whole yet; 0 when there is none."""
        found = 0
        for file in self.directory.glob(f"ks.{partition}.*.db"):
            try:
                with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
                    found = max(found, db.execute("SELECT chunk FROM meta").fetchone()[0])
            except (sqlite3.Error, TypeError):
                pass
        return found

    def send(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.send(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def state(self, partition):
        try:
            answer = once(f"http://{self.address}", "GET", f"/state?keyspace=ks&partition={partition}", timeout=5)
        except Unreachable:
            return None
        return answer.json if answer.status == 200 else None

    def url(self):
        return f"http://{self.address}"


class Nodes:
    """A cluster, its nodes and a keyspace. `zones`: names to zones; `spec`: what the keyspace has besides; `options`: of
    the nodes' command lines; `lease_ms`: longer where no lease may run out, however slow the machine."""

    node_type = Node

    def __init__(self, servers, names, sync, splits=("h", "p"), environment=None, zones=None, spec=None, options=(),
                 lease_ms=LEASE_MS):
        self.cluster = self.make_cluster(servers)
        self.names, self.sync, self.splits = names, sync, splits
        self.environment, self.zones, self.spec, self.options = environment, zones or {}, spec or {}, options
        self.lease_ms = lease_ms
        self.nodes, self.loads = {}, []

    def make_cluster(self, servers):
        return Cluster(servers)

    def __enter__(self):
        self.cluster.__enter__()
        try:
            self.prepare()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def prepare(self):
        c = self.cluster
        settings = c.call("PATCH", "/v1/cluster/settings", {"lease_ms": self.lease_ms, "heartbeat_ms": 300})
        c.call("PATCH", "/v1/cluster/settings", {"validation_window_ms": 500})
        if settings.status in (404, 405):
            raise Skip("this server knows no sessions")
        settings.expect(200)
        for name in self.names:
            labels = [f"zone={self.zones[name]}"] if name in self.zones else []
            self.nodes[name] = self.node_type(c, name, labels, self.environment, self.options).start()
        wait_for(lambda: len(c.call("GET", "/v1/nodes").expect(200)["nodes"]) == len(self.names), "the nodes to register")
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "replicas": {"sync": self.sync},
                                         "splits": list(self.splits), **self.spec}).expect(201)
        wait_for(lambda: all(self.may_write(r) for r in self.routes()), "every partition to have a primary that may write")

    def __exit__(self, kind, value, trace):
        if kind is not None and kind is not Skip:
            for n in self.nodes.values():
                if n.log.exists():
                    print(f"# --- log of node {n.name} ---")
                    print("\n".join(f"# {line}" for line in n.log.read_text(errors="replace").splitlines()[-25:]))
        for load in self.loads:
            if load.process.poll() is None:
                load.process.kill()
                load.process.wait()
        ends = {}
        for n in self.nodes.values():
            if n.alive():
                n.send(signal.SIGCONT)
                ends[n.name] = n.stop() if kind is None else n.kill()
        logs = "".join(n.log.read_text(errors="replace") for n in self.nodes.values() if n.log.exists())
        self.cluster.__exit__(None if kind is Skip else kind, value, trace)
        if kind is None:
            equal([name for name, code in ends.items() if code != 0], [], "nodes that did not stop well")
            assert "Sanitizer" not in logs, logs

    def routes(self):
        """By the leader: what it has applied is the newest there is."""
        return once(self.cluster.leader().url, "GET", "/v1/keyspaces/ks/map").expect(200)["routes"]

    def primary(self, partition):
        route = next(r for r in self.routes() if r["partition"] == partition)
        return self.nodes[route["primary"]["node"]] if route["primary"] else None

    def may_write(self, route):
        if not route["primary"]:
            return False
        state = self.nodes[route["primary"]["node"]].state(route["partition"])
        return bool(state and state["may_write"] and state["epoch"] == route["epoch"])

    def move(self, partition, to, **more):
        source = self.primary(partition)
        answer = self.cluster.call("POST", f"/v1/keyspaces/ks/partitions/{partition}/move",
                                   {"from": source.name, "to": to.name, **more})
        if answer.status == 409 and answer.json["code"] == "needs_staged_move":
            raise Skip("this server knows no staged moves")
        if "range" in more and answer.status == 400:
            raise Skip("this server moves no part of a partition")
        return answer.expect(202)["id"]

    def operation(self, operation):
        return once(self.cluster.leader().url, "GET", f"/v1/operations/{operation}").expect(200)

    def wait_done(self, operation):
        op = self.wait_end(operation)
        equal(op["state"], "done", json.dumps(op))
        return op

    def wait_done_moving(self, operation):
        """To its window, which is then ended."""
        wait_for(lambda: self.operation(operation)["stage"] == "WINDOW" or self.operation(operation)["state"] != "running",
                 f"operation {operation} to be cut over")
        self.cluster.call("POST", f"/v1/operations/{operation}/finish-validation", {})
        return self.wait_done(operation)

    def wait_end(self, operation):
        try:
            return wait_for(lambda: (o := self.operation(operation))["state"] in ("done", "aborted", "failed") and o,
                            f"operation {operation} to end")
        except AssertionError:
            print(f"# {json.dumps(self.operation(operation))}")
            raise

    def load(self, writers=4, keys=12, cities=False, demand=None):
        self.loads.append(Load(self, writers, keys, cities, demand))
        return self.loads[-1]

    def is_well(self):
        try:
            self.all_well()
        except (AssertionError, TypeError, KeyError):
            return False
        return True

    def all_well(self):
        """Every copy that counts has all that the primary has, and sums up to its running checksum."""
        for route in self.routes():
            states = {r["node"]: self.nodes[r["node"]].state(route["partition"]) for r in route["replicas"]}
            for name, s in states.items():
                equal(s["sum"], s["running"], f"sum of {route['partition']} on {name}")
                equal(s["mutations"], s["position"], f"mutations of {route['partition']} on {name}")
            primary = states[route["primary"]["node"]]
            for r in route["replicas"]:
                if r["role"] == "sync":
                    equal(states[r["node"]]["sum"], primary["sum"], f"copy of {route['partition']} on {r['node']}")


class Load:
    """Writes until it is ended. `demand`: what examples/shardkv/README.md says may be named."""

    SECONDS = 1800  # more than anything takes

    def __init__(self, nodes, writers, keys, cities, demand=None):
        self.records = nodes.cluster.base / f"records-{os.getpid()}-{id(self)}.jsonl"
        self.rates = self.records.with_suffix(".rates")
        named = {**demand, "rates": self.rates} if demand is not None else {}
        endpoints = ",".join(s.url for s in nodes.cluster.servers)
        self.process = subprocess.Popen(
            [str(BUILD / "shardkv-load"), endpoints, "ks", str(writers), str(keys), str(self.SECONDS), str(self.records),
             str(ROOT / "examples" / "data" / "cities.tsv") if cities else "-", *(f"{k}={v}" for k, v in named.items())],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def lines(self):
        return read_lines(self.records)

    def seconds(self):
        """What each node was asked, for each whole second."""
        return read_lines(self.rates)

    def count(self):
        """Acknowledged writes so far."""
        return self.records.read_bytes().count(b"\n") if self.records.exists() else 0

    def grows(self, more=50):
        """So many writes from now on are acknowledged."""
        before = self.count()
        wait_for(lambda: self.count() >= before + more, f"{more} more writes")

    def end(self):
        """Of the writing: what was written is read back, and the account given, at once."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=120)

    def finish(self):
        """After some writes more, to whoever is there now."""
        self.grows()
        out, err = self.end()
        assert self.process.returncode == 0, f"exit {self.process.returncode}: {out} {err}"
        summary = json.loads(out)
        lines = self.lines()
        equal(len(lines), summary["acknowledged"])
        check_records(lines)
        return summary


def read_lines(path):
    try:
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


def check_records(lines):
    """By true time: within a partition no epoch acknowledges a write that was sent after a later epoch had acknowledged
    one, an epoch is one node's, and a position is acknowledged for one mutation only."""
    by_partition = collections.defaultdict(list)
    for line in lines:
        by_partition[line["partition"]].append(line)
    for partition, writes in by_partition.items():
        owner, first_ack, taken = {}, {}, {}
        for w in writes:
            equal(owner.setdefault(w["epoch"], w["node"]), w["node"], f"owner of {partition} at {w['epoch']}")
            equal(taken.setdefault(w["position"], w["id"]), w["id"], f"position {w['position']} of {partition}")
            first_ack[w["epoch"]] = min(first_ack.get(w["epoch"], w["acknowledged"]), w["acknowledged"])
        for w in writes:
            later = [at for epoch, at in first_ack.items() if epoch > w["epoch"]]
            assert not later or w["sent"] < min(later), f"a stale write was accepted: {w}"
