#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the copying of a move asks of examples/shardkv beyond the plain way: damaged chunks, a log that was trimmed, a
restart between chunks, a destination without room."""
import pathlib
import sys

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
def damaged_chunks_are_fetched_again():
    with Nodes(1, ["n1", "n2"], 0, splits=(), environment={"SHARDKV_DAMAGE": "3"}) as t:
        route, _, to = ends(t)
        fill(t, route, 1100)
        op = t.wait_done(t.move(route["partition"], to))
        assert op["reported"]["checksum_failures"] > 0, op
        t.all_well()
        equal(to.state(route["partition"])["items"], 1100)


@test
def a_trimmed_log_begins_with_another_snapshot():
    """The destination stops in COPY until the log has lost what comes after the snapshot."""
    with Nodes(1, ["n1", "n2"], 0, splits=(), environment={"SHARDKV_LOG_KEEP": "20"}) as t:
        route, source, to = ends(t)
        fill(t, route, 300)
        operation = t.move(route["partition"], to, max_bytes_per_s=40000)
        wait_for(lambda: t.operation(operation)["stage"] == "COPY", "the copying to begin")
        fill(t, route, 400, begin=1000)
        assert source.state(route["partition"])["base"] > 300
        op = t.wait_done(operation)
        assert stages(op).count("SNAPSHOT") >= 2, stages(op)  # more of them when writing was slow
        t.all_well()
        equal(to.state(route["partition"])["items"], 700)


@test
def a_copy_goes_on_after_its_last_chunk():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        route, _, to = ends(t)
        fill(t, route, 1300)
        operation = t.move(route["partition"], to, max_bytes_per_s=60000)
        wait_for(lambda: to.chunks(route["partition"]) >= 2, "some chunks")
        to.kill()
        had = to.chunks(route["partition"])
        to.start()
        op = t.wait_done(operation)
        assert had >= 2 and stages(op).count("SNAPSHOT") == 1, (had, stages(op))
        t.all_well()


@test
def a_full_destination_is_not_moved_to():
    with Nodes(1, ["n1", "n2"], 0, splits=(), environment={"SHARDKV_FREE_BYTES": "20000"}) as t:
        route, source, to = ends(t)
        fill(t, route, 50, size=2000)
        op = t.wait_end(t.move(route["partition"], to))
        equal((op["state"], op["attention"]["code"]), ("aborted", "insufficient_headroom"))
        equal(t.primary(route["partition"]).name, source.name)
        wait_for(lambda: not list(to.directory.glob("ks.*.db")), "what was begun there to be deleted")


@test
def a_node_gives_more_away_than_it_has_workers():
    """Each of them is the source's until its validation window is over, and then no more."""
    with Nodes(1, ["n1", "n2"], 0, splits=tuple("bcdefghij")) as t:
        for goal in ("n2", "n1"):
            for route in t.routes():
                if route["primary"]["node"] != goal:
                    t.wait_done(t.move(route["partition"], t.nodes[goal]))
        parts = t.routes()
        equal({r["primary"]["node"] for r in parts}, {"n1"})
        equal(len(parts), 10)
        t.wait_done(t.move(parts[0]["partition"], t.nodes["n2"]))  # n2 gave ten away, and n1 has workers as well
        t.wait_done(t.move(parts[0]["partition"], t.nodes["n1"]))
        t.all_well()


@test
def a_part_of_a_partition_moves():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        route, source, to = ends(t)
        load = t.load(keys=26)
        load.grows(150)
        t.wait_done(t.move(route["partition"], to, range={"start": "g", "end": "p"}))
        owners = [(r.get("start", ""), r["primary"]["node"]) for r in t.routes()]
        equal(owners, [("", source.name), ("g", to.name), ("p", source.name)])
        wait_for(lambda: all(t.may_write(r) for r in t.routes()), "all of them to be served")
        load.finish()
        t.all_well()
        held = {r["partition"] for r in t.routes() if r["primary"]["node"] == source.name}
        wait_for(lambda: {int(f.name.split(".")[1]) for f in source.directory.glob("ks.*.db")} == held, "what moved to be deleted")


if __name__ == "__main__":
    main()
