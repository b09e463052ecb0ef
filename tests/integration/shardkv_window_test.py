#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves of examples/shardkv around their cutover: a copy that dies while the destination is joined, reads of the old epoch
in the window, and the ways back."""
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def fill(t, route, count, size=200, begin=0):
    node = t.nodes[route["primary"]["node"]]
    for i in range(begin, begin + count):
        once(node.url(), "PUT", f"/kv?keyspace=ks&partition={route['partition']}&epoch={route['epoch']}&key=k{i:05}"
             f"&id=f{i}", b"x" * size).expect(200)


def ends(t):
    """The partition, its primary and the other node."""
    route = t.routes()[0]
    source = t.nodes[route["primary"]["node"]]
    return route, source, next(n for n in t.nodes.values() if n is not source)


def stages(op):
    return [s["stage"] for s in op["stages"]]


@test
def reads_of_the_old_epoch_hold_the_window_open():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        route, source, to = ends(t)
        p, old = route["partition"], route["epoch"]
        fill(t, route, 3)
        operation = t.move(p, to)

        def read(node, epoch):
            return once(node.url(), "GET", f"/kv?keyspace=ks&partition={p}&epoch={epoch}&key=k00001")

        wait_for(lambda: t.operation(operation)["stage"] == "WINDOW", "the window")
        new = t.routes()[0]["epoch"]
        wait_for(lambda: read(source, old).status == 200, "the source to serve what was routed before")
        answer = read(source, old).expect(200)
        equal(answer["stale"], True)
        equal(read(source, new).status, 421, "the new epoch at the source")
        equal(read(to, old).status, 421, "the old epoch at the destination")
        equal(read(to, new).expect(200)["stale"], False)
        equal(once(source.url(), "PUT", f"/kv?keyspace=ks&partition={p}&epoch={old}&key=k&id=late", b"x").status, 421)
        until = time.monotonic() + 1.5  # three times the window
        while time.monotonic() < until:
            equal(read(source, old).status, 200)
            equal(t.operation(operation)["stage"], "WINDOW")
        op = t.wait_done(operation)
        equal(read(source, old).status, 421, "the old epoch after the window")
        wait_for(lambda: not list(source.directory.glob(f"ks.{p}.*")), "the source's files to be deleted")
        assert op["reported"]["deleted_bytes"] > 0 and op["reported"]["old_epoch_writes"] == 0, op


@test
def a_copy_that_dies_while_the_destination_is_joined_stalls_nothing():
    with Nodes(1, ["n1", "n2", "n3"], 1, splits=()) as t:
        route = t.routes()[0]
        p, source = route["partition"], t.primary(route["partition"])
        copy = t.nodes[next(r["node"] for r in route["replicas"] if r["role"] == "sync")]
        to = next(n for n in t.nodes.values() if n not in (source, copy))
        load = t.load(keys=4)
        load.grows(50)
        operation = t.move(p, to)
        wait_for(lambda: t.operation(operation)["stage"] in ("DUAL_WRITE", "VALIDATE", "FENCE", "CUTOVER", "WINDOW", "CLEANUP"),
                 "the destination to be joined")
        copy.kill()
        t.wait_done(operation)
        load.grows(50)
        roles = {r["node"]: r["role"] for r in t.routes()[0]["replicas"]}
        equal(roles, {to.name: "primary", copy.name: "async"})
        copy.start()
        wait_for(lambda: {r["node"]: r["role"] for r in t.routes()[0]["replicas"]}[copy.name] == "sync", "it to be in sync")
        load.finish()
        wait_for(t.is_well, "all copies to agree")


@test
def the_way_back_has_little_to_copy():
    """With reverse_replication the source follows in the window; ending it with `back` moves to it without a snapshot."""
    with Nodes(1, ["n1", "n2"], 0, splits=(), spec={"policy": {"reverse_replication": True, "validation_window_ms": 60000,
                                                               "require_warm": True,
                                                               "required_checks": ["schema", "observability", "capacity"]}}) as t:
        route, source, to = ends(t)
        p = route["partition"]
        load = t.load(keys=6)
        load.grows(100)
        operation = t.move(p, to)
        wait_for(lambda: t.operation(operation)["stage"] == "WINDOW", "the window")
        after = t.primary(p).state(p)["position"]
        wait_for(lambda: source.state(p)["position"] > after, "the source to follow")
        equal({r["node"]: r["role"] for r in t.routes()[0]["replicas"]}, {to.name: "primary", source.name: "async"})
        t.cluster.call("POST", f"/v1/operations/{operation}/finish-validation", {"back": True}).expect(200, 202)
        back = t.wait_done_moving(t.operation(operation)["reversed_by"])
        assert "SNAPSHOT" not in stages(back), stages(back)
        equal(t.primary(p).name, source.name)
        load.finish()
        t.all_well()


@test
def the_way_back_without_reverse_replication_catches_up():
    with Nodes(1, ["n1", "n2"], 0, splits=(), spec={"policy": {"validation_window_ms": 60000}}) as t:
        route, source, to = ends(t)
        p = route["partition"]
        load = t.load(keys=6)
        load.grows(100)
        operation = t.move(p, to)
        wait_for(lambda: t.operation(operation)["stage"] == "WINDOW", "the window")
        before = source.state(p)["position"]
        wait_for(lambda: to.state(p)["position"] > before + 50, "writes at the destination")
        equal(source.state(p)["position"], before, "the source's position")
        t.cluster.call("POST", f"/v1/operations/{operation}/finish-validation", {"back": True}).expect(200, 202)
        t.wait_done_moving(t.operation(operation)["reversed_by"])
        equal(t.primary(p).name, source.name)
        load.finish()
        t.all_well()


if __name__ == "__main__":
    main()
