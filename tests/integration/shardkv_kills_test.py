#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/shardkv under its load generator, and what comes of it when nodes and servers are killed and paused. No
acknowledged write may be lost, no stale one accepted, and by true time no two nodes may acknowledge writes of one
partition in turns."""
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
def a_killed_primary_loses_nothing():
    with Nodes(3, ["n1", "n2", "n3"], 1) as t:
        load = t.load()
        load.grows(50)
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
        load = t.load()
        load.grows(50)
        victim = t.primary(t.routes()[0]["partition"])
        victim.send(signal.SIGSTOP)
        wait_for(lambda: all(r["primary"] and r["primary"]["node"] != victim.name for r in t.routes()), "the failovers")
        victim.send(signal.SIGCONT)
        load.grows(500)
        load.finish()
        t.all_well()


@test
def a_dead_copy_is_given_up_and_taken_back():
    with Nodes(1, ["n1", "n2"], 1, splits=()) as t:
        route = t.routes()[0]
        p, primary = route["partition"], t.primary(route["partition"])
        copy = t.nodes["n2" if primary.name == "n1" else "n1"]
        load = t.load(keys=4)
        load.grows(50)
        copy.kill()
        load.grows(50)
        roles = {r["node"]: r["role"] for r in t.routes()[0]["replicas"]}
        equal(roles, {primary.name: "primary", copy.name: "async"})
        copy.start()
        wait_for(lambda: {r["node"]: r["role"] for r in t.routes()[0]["replicas"]}[copy.name] == "sync", "it to be in sync")
        load.grows(50)
        primary.kill()  # what was acknowledged since then is on the copy
        wait_for(lambda: t.primary(p) is copy, "the failover")
        primary.start()
        load.finish()
        equal(t.routes()[0]["primary"]["node"], copy.name)


@test
def moves_under_kills_lose_nothing():
    rand = random.Random(7)
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        load = t.load(keys=6)
        load.grows(300)
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


def renews_leases(t, leader):
    """Every node's lease is seen to become longer."""
    lowest, renewed = {}, set()

    def look():
        for n in once(leader.url, "GET", "/v1/nodes").expect(200)["nodes"]:
            left = n["lease"].get("remaining_ms", 0)
            lowest[n["node"]] = min(left, lowest.get(n["node"], left))
            if left > lowest[n["node"]] > 0:
                renewed.add(n["node"])
        return len(renewed) == len(t.nodes)

    wait_for(look, "the next leader to renew the leases")


@test
def a_killed_leader_of_the_directory_stops_no_write():
    with Nodes(3, ["n1", "n2"], 1, lease_ms=60_000) as t:
        load = t.load()
        load.grows(50)
        leader = t.cluster.leader()
        leader.kill()
        load.grows(50)
        renews_leases(t, t.cluster.leader())
        leader.start()
        summary = load.finish()
        equal(summary["refused"], 0, "refused writes")
        t.all_well()


if __name__ == "__main__":
    main()
