#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/shardkv under its load generator: a node that writes to SQLite files, refuses other epochs, stops and is
restarted, and partitions that move while writers route by libcadastre. shardkv_kills_test.py goes on from there."""
import pathlib
import sys

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
        load = t.load()
        load.grows(50)
        n1 = t.nodes["n1"]
        n1.kill()
        n1.start()
        load.grows(50)
        equal(n1.stop(), 0, "exit after SIGTERM")
        n1.start()
        summary = load.finish()
        assert summary["unknown"] + summary["refused"] > 0, summary
        t.all_well()


@test
def a_move_under_load_loses_nothing():
    with Nodes(1, ["n1", "n2"], 0) as t:
        load = t.load()
        load.grows(600)  # more than a chunk holds
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
        load = t.load(cities=True)
        load.grows(300)
        print(f"# {load.finish()}")
        held = [t.nodes["n1"].state(r["partition"])["items"] for r in t.routes()]
        assert all(held), held


@test
def an_idle_partition_can_be_moved():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        p, source = t.routes()[0]["partition"], t.primary(t.routes()[0]["partition"])
        to = t.nodes["n2" if source.name == "n1" else "n1"]
        t.wait_done(t.move(p, to))
        equal(t.primary(p).name, to.name)
        t.all_well()


if __name__ == "__main__":
    main()
