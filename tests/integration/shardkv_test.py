#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/shardkv under its load generator: real nodes that write to SQLite files, stop, are killed and paused while
writers route by libcadastre. No acknowledged write may be lost, no stale one accepted, and by true time no two nodes may
acknowledge writes of one partition in turns."""
import pathlib
import random
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


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
                   f"/follow?keyspace=ks&partition={p}&epoch={epoch}&session=1&start=0&after=0&after_epoch=0&base=0&last=0", []).status, 421)
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
        assert summary["unknown"] + summary["refused"] > 0, summary
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
        assert summary["refused"] + summary["unknown"] > 0, summary
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
        assert summary["refused"] > 0, summary
        print(f"# {summary}")
        assert len(summary["pauses_ms"]) >= 2, "one for each move of a partition that has keys"
        assert 0 < summary["pause_median_ms"] <= summary["pause_longest_ms"] and summary["durable_write_median_ms"] > 0
        assert summary["hops"] >= 1
        t.all_well()


@test
def the_load_generator_writes_cities_by_their_weight():
    with Nodes(1, ["n1"], 0, splits=("G", "N")) as t:
        summary = t.load(3, cities=True).finish()
        print(f"# {summary}")
        held = [t.nodes["n1"].state(r["partition"])["items"] for r in t.routes()]
        assert all(held), held

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
        equal(summary["refused"], 0, "refused writes")
        t.all_well()


if __name__ == "__main__":
    main()
