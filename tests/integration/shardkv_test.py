#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/shardkv under its load generator: real nodes that write to SQLite files, stop, are killed and paused while
writers route by libcadastre. No acknowledged write may be lost, no stale one accepted, and by true time no two nodes may
acknowledge writes of one partition in turns."""
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import BUILD, Cluster, Unreachable, free_port, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

LEASE_MS = 1500


class Node:
    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.address = f"127.0.0.1:{free_port()}"
        self.directory = cluster.base / f"node-{name}"
        self.log = cluster.base / f"node-{name}.log"
        self.process = None

    def start(self):
        endpoints = ",".join(s.url for s in self.cluster.servers)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(BUILD / "shardkv"), endpoints, self.name, self.address, str(self.directory), "300"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

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
    """A cluster, its nodes and a keyspace."""

    def __init__(self, servers, names, sync, splits=("h", "p")):
        self.cluster = Cluster(servers)
        self.names, self.sync, self.splits = names, sync, splits
        self.nodes = {}

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
        settings = c.call("PATCH", "/v1/cluster/settings", {"lease_ms": LEASE_MS, "heartbeat_ms": 300})
        c.call("PATCH", "/v1/cluster/settings", {"validation_window_ms": 500})
        if settings.status in (404, 405):
            raise Skip("this server knows no sessions")
        settings.expect(200)
        for name in self.names:
            self.nodes[name] = Node(c, name).start()
        wait_for(lambda: len(c.call("GET", "/v1/nodes").expect(200)["nodes"]) == len(self.names), "the nodes to register")
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "replicas": {"sync": self.sync},
                                         "splits": list(self.splits)}).expect(201)
        wait_for(lambda: all(self.may_write(r) for r in self.routes()), "every partition to have a primary that may write")

    def __exit__(self, kind, value, trace):
        if kind is not None and kind is not Skip:
            for n in self.nodes.values():
                if n.log.exists():
                    print(f"# --- log of node {n.name} ---")
                    print("\n".join(f"# {line}" for line in n.log.read_text(errors="replace").splitlines()[-25:]))
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

    def move(self, partition, to):
        source = self.primary(partition)
        answer = self.cluster.call("POST", f"/v1/keyspaces/ks/partitions/{partition}/move", {"from": source.name, "to": to.name})
        if answer.status == 409 and answer.json["code"] == "needs_staged_move":
            raise Skip("this server knows no staged moves")
        return answer.expect(202)["id"]

    def operation(self, operation):
        return once(self.cluster.leader().url, "GET", f"/v1/operations/{operation}").expect(200)

    def wait_done(self, operation):
        op = wait_for(lambda: (o := self.operation(operation))["state"] in ("done", "aborted", "failed") and o, "the move to end")
        equal(op["state"], "done", json.dumps(op))
        return op

    def load(self, seconds, writers=4, keys=12):
        return Load(self, seconds, writers, keys)

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
    def __init__(self, nodes, seconds, writers, keys):
        self.records = nodes.cluster.base / f"records-{os.getpid()}-{id(self)}.jsonl"
        endpoints = ",".join(s.url for s in nodes.cluster.servers)
        self.process = subprocess.Popen(
            [str(BUILD / "shardkv-load"), endpoints, "ks", str(writers), str(keys), str(seconds), str(self.records)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def lines(self):
        try:
            with open(self.records, encoding="utf-8") as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def finish(self):
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, f"exit {self.process.returncode}: {out} {err}"
        summary = json.loads(out)
        lines = self.lines()
        equal(len(lines), summary["writes"])
        check_records(lines)
        return summary


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


@test
def writes_and_refuses_other_epochs():
    with Nodes(1, ["n1"], 0, splits=()) as t:
        route = t.routes()[0]
        n1, p, epoch = t.nodes["n1"], route["partition"], route["epoch"]
        kv = f"/kv?keyspace=ks&partition={p}"
        for wrong in (epoch - 1, epoch + 1):
            answer = once(n1.url(), "PUT", f"{kv}&epoch={wrong}&key=a&id=m0", b"x")
            equal((answer.status, answer.json["partition"], answer.json["epoch"]), (421, p, epoch))
        answer = once(n1.url(), "PUT", f"/kv?keyspace=ks&partition={p + 1}&epoch={epoch}&key=a&id=m0", b"x")
        equal((answer.status, answer.json["epoch"]), (421, 0))
        first = once(n1.url(), "PUT", f"{kv}&epoch={epoch}&key=a&id=m1", b"1").expect(200)
        equal((first["position"], first["repeated"]), (1, False))
        second = once(n1.url(), "PUT", f"{kv}&epoch={epoch}&key=a&id=m2", b"2").expect(200)
        equal(second["position"], 2)
        again = once(n1.url(), "PUT", f"{kv}&epoch={epoch}&key=a&id=m1", b"1").expect(200)
        equal((again["position"], again["repeated"]), (1, True))
        equal(once(n1.url(), "GET", f"{kv}&epoch={epoch}&key=a").expect(200)["value"], "2")
        equal(once(n1.url(), "GET", f"{kv}&epoch={epoch}&key=b").status, 404)
        equal(once(n1.url(), "PUT", f"{kv}&epoch={epoch}&key=a&id=", b"1").status, 400)
        equal(once(n1.url(), "PUT", f"{kv}&epoch={epoch}&key=a&id=m3", b"\xff").status, 400)
        equal(once(n1.url(), "POST", 
                   f"/follow?keyspace=ks&partition={p}&epoch={epoch}&session=1&start=0&after=0&after_epoch=0", []).status, 421)
        state = n1.state(p)
        equal((state["items"], state["mutations"], state["position"]), (1, 2, 2))
        equal(state["sum"], state["running"])


@test
def a_lease_that_runs_out_ends_writing():
    with Nodes(1, ["n1"], 0, splits=()) as t:
        route = t.routes()[0]
        n1, p = t.nodes["n1"], route["partition"]
        t.cluster.servers[0].pause()
        wait_for(lambda: not n1.state(p)["may_write"], "the lease to run out")
        answer = once(n1.url(), "PUT", f"/kv?keyspace=ks&partition={p}&epoch={route['epoch']}&key=a&id=m1", b"x")
        equal((answer.status, answer.json["error"]), (503, "not now"))
        t.cluster.servers[0].resume()
        wait_for(lambda: t.may_write(t.routes()[0]), "it to write again")


@test
def a_restart_keeps_what_was_acknowledged():
    with Nodes(1, ["n1"], 0) as t:
        load = t.load(6)
        wait_for(lambda: len(load.lines()) > 50, "writes")
        n1 = t.nodes["n1"]
        n1.kill()
        n1.start()
        before = len(load.lines())
        wait_for(lambda: len(load.lines()) > before + 50, "writes after the kill")
        equal(n1.stop(), 0, "exit after SIGTERM")
        n1.start()
        summary = load.finish()
        assert summary["unknown"] + summary["redirects"] > 0, summary
        t.all_well()


@test
def a_killed_primary_loses_nothing():
    with Nodes(3, ["n1", "n2", "n3"], 1) as t:
        load = t.load(8)
        wait_for(lambda: len(load.lines()) > 50, "writes")
        victim = t.primary(t.routes()[0]["partition"])
        victim.kill()
        wait_for(lambda: all(r["primary"] and r["primary"]["node"] != victim.name for r in t.routes()), "the failovers")
        victim.start()
        summary = load.finish()
        assert summary["redirects"] + summary["unknown"] > 0, summary
        t.all_well()


@test
def a_paused_primary_acknowledges_nothing_stale():
    with Nodes(3, ["n1", "n2"], 1) as t:
        load = t.load(8)
        wait_for(lambda: len(load.lines()) > 50, "writes")
        victim = t.primary(t.routes()[0]["partition"])
        victim.send(signal.SIGSTOP)
        wait_for(lambda: all(r["primary"] and r["primary"]["node"] != victim.name for r in t.routes()), "the failovers")
        victim.send(signal.SIGCONT)
        load.finish()
        t.all_well()


@test
def a_dead_copy_is_given_up_and_taken_back():
    with Nodes(1, ["n1", "n2"], 1, splits=()) as t:
        route = t.routes()[0]
        p, primary = route["partition"], t.primary(route["partition"])
        copy = t.nodes["n2" if primary.name == "n1" else "n1"]
        load = t.load(8, keys=4)
        wait_for(lambda: len(load.lines()) > 50, "writes")
        copy.kill()
        before = len(load.lines())
        wait_for(lambda: len(load.lines()) > before + 50, "writes without the copy")
        roles = {r["node"]: r["role"] for r in t.routes()[0]["replicas"]}
        equal(roles, {primary.name: "primary", copy.name: "async"})
        copy.start()
        wait_for(lambda: {r["node"]: r["role"] for r in t.routes()[0]["replicas"]}[copy.name] == "sync", "it to be in sync")
        before = len(load.lines())
        wait_for(lambda: len(load.lines()) > before + 50, "writes to both")
        primary.kill()  # what was acknowledged since then is on the copy
        wait_for(lambda: t.primary(p) is copy, "the failover")
        primary.start()
        load.finish()
        equal(t.routes()[0]["primary"]["node"], copy.name)


@test
def a_move_under_load_loses_nothing():
    with Nodes(1, ["n1", "n2"], 0) as t:
        load = t.load(10)
        wait_for(lambda: len(load.lines()) > 600, "more writes than a chunk holds")
        for route in t.routes():
            p, source = route["partition"], t.primary(route["partition"])
            to = t.nodes["n2" if source.name == "n1" else "n1"]
            copy = source.state(p)["copy"]
            op = t.wait_done(t.move(p, to))
            equal([s["stage"] for s in op["stages"]][:10], ["QUEUED", "PREPARE", "SNAPSHOT", "COPY", "CATCH_UP", "DUAL_WRITE",
                                                            "VALIDATE", "FENCE", "CUTOVER", "WINDOW"])
            equal(t.primary(p).name, to.name)
            wait_for(lambda: not (source.directory / f"ks.{p}.{copy}.db").exists(), "the source's copy to be deleted")
        summary = load.finish()
        assert summary["redirects"] > 0, summary
        print(f"# {summary}")
        t.all_well()


@test
def moves_under_kills_lose_nothing():
    rand = random.Random(7)
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        load = t.load(25, keys=6)
        wait_for(lambda: len(load.lines()) > 300, "writes")
        p = t.routes()[0]["partition"]
        outcomes = []
        for round_ in range(8):
            wait_for(lambda: t.may_write(t.routes()[0]), "a primary")
            source = t.primary(p)
            to = t.nodes["n2" if source.name == "n1" else "n1"]
            operation = t.move(p, to)
            wait_for(lambda: t.operation(operation)["state"] != "queued", "it to begin")
            time.sleep(rand.random() * 0.4)
            victim = (source, to)[round_ % 2]
            victim.kill()
            victim.start()
            op = wait_for(lambda: (o := t.operation(operation))["state"] in ("done", "aborted", "failed") and o, "its end")
            outcomes.append(f"{op['state']} after {op['stages'][-1]['stage']}")
        print(f"# {outcomes}")
        print(f"# {load.finish()}")
        t.all_well()


@test
def an_idle_partition_can_be_moved():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        p, source = t.routes()[0]["partition"], t.primary(t.routes()[0]["partition"])
        to = t.nodes["n2" if source.name == "n1" else "n1"]
        t.wait_done(t.move(p, to))
        equal(t.primary(p).name, to.name)
        t.all_well()


@test
def a_killed_leader_of_the_directory_stops_no_write():
    with Nodes(3, ["n1", "n2"], 1) as t:
        load = t.load(5)
        wait_for(lambda: len(load.lines()) > 50, "writes")
        leader = t.cluster.leader()
        leader.kill()
        before = len(load.lines())
        wait_for(lambda: len(load.lines()) > before + 50, "writes without it")
        leader.start()
        summary = load.finish()
        equal(summary["redirects"], 0, "redirects")
        t.all_well()


if __name__ == "__main__":
    main()
