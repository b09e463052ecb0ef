#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a leader does unasked, on real servers with nodes that have no data: copies of nodes that stay away are made anew,
no rule of placement is broken for it, and a fleet that vanishes at once is waited for."""
import pathlib
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from copies import finish, get, holders, is_whole, keyspace, partitions, prepare, replication  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


@test
def copies_of_a_node_that_stays_away_are_made_anew():
    with Cluster(3) as c:
        prepare(c)
        nodes = [ModelNode(c, f"n{i}").start() for i in (1, 2, 3, 4, 5)]
        keyspace(c, sync=1)
        wait_for(lambda: is_whole(c), "the first placement")
        equal(get(c, "/v1/operations")["operations"], [])
        victim = nodes[[n.name for n in nodes].index(partitions(c)[0]["primary"]["node"])]
        victim.crash()
        wait_for(lambda: replication(c)["totals"]["under_replicated"] > 0, "the loss to be seen")
        first = replication(c)["partitions"][0]
        equal((first["problems"][0], first["sync"]["wanted"], "since" in first), ("under_replicated", 2, True))
        for s in c.alive():  # the same from any server
            theirs = once(s.url, "GET", f"/v1/replication?min_revision={replication(c)['revision']}").expect(200)
            mine = {p["partition"]: p.get("since") for p in theirs["partitions"]}
            equal(mine.get(first["partition"], first["since"]), first["since"])
        wait_for(lambda: is_whole(c), "new copies", deadline_s=30)
        equal([n for n in holders(c) if victim.name in n or len(n) != 2], [])
        kinds = {o["kind"] for o in get(c, "/v1/operations?state=done")["operations"]}
        equal(kinds, {"add_replica", "remove_replica"})
        text = urllib.request.urlopen(c.leader().url + "/metrics", timeout=5).read().decode()
        equal("cadastre_recovery_under_replicated_partitions 0" in text, True)
        finish(c, nodes)


@test
def two_that_die_around_a_change_of_leader_are_both_made_anew():
    with Cluster(3) as c:
        prepare(c)
        nodes = [ModelNode(c, f"n{i}").start() for i in range(1, 10)]
        keyspace(c, sync=2, splits=[chr(ord("b") + i) for i in range(11)])
        wait_for(lambda: is_whole(c), "the first placement")
        # With more than a quarter of the fleet away nothing would be begun.
        gone = {n.name for n in nodes[:2]}
        nodes[0].crash()
        wait_for(lambda: replication(c)["totals"]["under_replicated"] > 0, "the first loss to be seen")
        leader = c.leader()
        leader.kill()
        nodes[1].crash()
        c.leader()
        leader.start()
        c.wait_ready()
        wait_for(lambda: is_whole(c) and not any(gone & set(h) for h in holders(c)), "new copies", deadline_s=60)
        equal({len(h) for h in holders(c)}, {3})
        equal(replication(c)["totals"]["under_replicated"], 0)
        finish(c, nodes)


@test
def no_rule_is_broken_for_want_of_a_node():
    with Cluster(1) as c:
        prepare(c)
        zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "b"}
        nodes = [ModelNode(c, n, labels={"zone": z}).start() for n, z in zones.items()]
        keyspace(c, sync=1, splits=(), placement={"require": {"zone": ["a"]}})
        wait_for(lambda: is_whole(c), "the first placement")
        nodes[0].crash()

        def blocked():
            left = replication(c)["partitions"]
            return left and left[0].get("blocked", {}).get("code") == "no_destination" and left[0]

        wait_for(blocked, "the reason")
        equal("3 are not allowed by the placement" in blocked()["blocked"]["detail"], True)
        equal([o["destination"] for o in get(c, "/v1/operations")["operations"]], [])
        nodes.append(ModelNode(c, "n6", labels={"zone": "a"}).start())
        wait_for(lambda: is_whole(c), "the copy")
        equal(holders(c), [["n2", "n6"]])
        finish(c, nodes)


@test
def half_of_the_fleet_away_is_waited_for():
    with Cluster(1) as c:
        prepare(c)
        nodes = [ModelNode(c, f"n{i}").start() for i in range(1, 7)]
        keyspace(c, sync=1, splits=("c", "f", "i", "l", "o"))
        wait_for(lambda: is_whole(c), "the first placement")
        for n in nodes[:3]:
            n.paused = True
        wait_for(lambda: replication(c)["recovery"]["away"] == 3, "three sessions to lapse")
        seen = replication(c)
        equal((seen["recovery"]["paused"], "3 of 6 nodes" in seen["recovery"]["reason"]), (True, True))
        wait_for(lambda: "cadastre_recovery_paused 1" in
                 urllib.request.urlopen(c.leader().url + "/metrics", timeout=5).read().decode(), "the metric")
        # Several times the delay: the leader goes on looking, and begins nothing.
        wait_for(lambda: min(p["for_ms"] for p in replication(c)["partitions"] if "for_ms" in p) > 1500, "the delay to be over")
        equal(get(c, "/v1/operations")["operations"], [])
        for n in nodes[:3]:
            n.paused = False
        wait_for(lambda: replication(c)["recovery"]["away"] == 0, "their return")
        equal(replication(c)["recovery"]["paused"], False)
        started = {o["kind"] for o in get(c, "/v1/operations")["operations"]}
        equal(started <= {"add_replica", "remove_replica"}, True)
        equal([p for p in partitions(c) if p["primary"] is None], [])
        finish(c, nodes)


main()
