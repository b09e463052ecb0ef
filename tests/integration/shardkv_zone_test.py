#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A keyspace with one copy in sync and one that is not, spread over three zones of two examples/shardkv nodes each: a
whole zone is killed under load. And what asynchronous copies are, besides: fed, never waited for, rebuilt, removed."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def roles(route):
    return {r["node"]: r["role"] for r in route["replicas"]}


def of_role(t, route, role):
    return [t.nodes[name] for name, r in roles(route).items() if r == role]


def duties(t, node):
    return once(t.cluster.leader().url, "GET", f"/v1/nodes/{node.name}/duties").expect(200)["duties"]


@test
def a_killed_zone_loses_nothing():
    zones = {f"n{i}": "abc"[i % 3] for i in range(1, 7)}
    with Nodes(3, list(zones), 1, zones=zones, spec={"replicas": {"sync": 1, "async": 1},
                                                     "placement": {"spread": "zone"}}) as t:
        for route in t.routes():
            equal(sorted(roles(route).values()), ["async", "primary", "sync"])
            equal({zones[n] for n in roles(route)}, set("abc"), "zones of a partition")
        load = t.load(writers=6, keys=12)
        load.grows(150)
        killed = zones[t.routes()[0]["primary"]["node"]]
        victims = [n for n in t.nodes.values() if zones[n.name] == killed]
        for node in victims:
            node.kill()
        wait_for(lambda: all(r["primary"] and zones[r["primary"]["node"]] != killed for r in t.routes()), "the failovers")
        load.grows(100)
        for node in victims:
            node.start()
        summary = load.finish()
        equal((summary["lost"], summary["stale_accepted"]), (0, 0))
        wait_for(lambda: all(sorted(roles(r).values()) == ["async", "primary", "sync"] for r in t.routes()),
                 "one copy in sync, and one that is not")
        wait_for(t.is_well, "all copies to agree")
        held = {name: {r["partition"] for r in t.routes() if name in roles(r)} for name in t.nodes}
        for node in t.nodes.values():  # true: nothing is owed, and nothing is there that should not be
            equal(duties(t, node), [])
            equal({int(f.name.split(".")[1]) for f in node.directory.glob("ks.*.db")}, held[node.name], f"files of {node.name}")


@test
def an_asynchronous_copy_follows_and_is_never_counted():
    zones = {"n1": "a", "n2": "b", "n3": "c"}
    with Nodes(1, list(zones), 1, splits=(), zones=zones, spec={"replicas": {"sync": 1, "async": 1}},
               environment={"SHARDKV_LOG_KEEP": "100"}) as t:
        route = t.routes()[0]
        p, primary = route["partition"], t.primary(route["partition"])
        [follower], [copy] = of_role(t, route, "async"), of_role(t, route, "sync")
        load = t.load(keys=6)
        load.grows(100)
        at = primary.state(p)["position"]
        wait_for(lambda: follower.state(p)["position"] > at, "it to follow")
        follower.kill()  # nobody waits for it
        load.grows(400)
        follower.start()  # no log leads there any more
        wait_for(lambda: (s := follower.state(p)) and s["position"] > at + 400 and s["base"] > at, "it to be rebuilt")
        equal(roles(t.routes()[0]), {primary.name: "primary", copy.name: "sync", follower.name: "async"})
        copy.kill()
        wait_for(lambda: roles(t.routes()[0])[copy.name] == "async", "the copy to be given up")
        # The keyspace wants one: the follower may take its place, and then it has no place to come back to.
        wait_for(lambda: roles(t.routes()[0])[follower.name] == "sync", "the other to count")
        copy.start()
        at = primary.state(p)["position"]
        wait_for(lambda: (s := copy.state(p)) and s["position"] > at, "it to follow")
        equal(roles(t.routes()[0]), {primary.name: "primary", copy.name: "async", follower.name: "sync"})
        answer = t.cluster.call("DELETE", f"/v1/keyspaces/ks/partitions/{p}/replicas/{copy.name}").expect(202)
        t.wait_done(answer["id"])
        wait_for(lambda: not list(copy.directory.glob("ks.*.db")), "its data to be deleted")
        equal(duties(t, copy), [])
        load.finish()
        wait_for(t.is_well, "all copies to agree")
        changes = t.cluster.call("GET", "/v1/keyspaces/ks/changes?since=1").expect(200)["changes"]
        counted = [list(roles(r).values()).count("sync") for c in changes for r in c["routes"]]
        assert len(counted) >= 5 and max(counted) == 1, counted  # never more than the keyspace wants


if __name__ == "__main__":
    main()
