#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a leader does unasked, on real servers with nodes that have no data: copies of nodes that stay away are made anew,
nodes that drain become empty, and nothing of it breaks a rule of placement."""
import pathlib
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode, overlaps  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def prepare(c, **more):
    c.call("PATCH", "/v1/cluster/settings",
           {"lease_ms": 800, "heartbeat_ms": 200, "validation_window_ms": 100, "recovery_delay_ms": 300, **more}).expect(200)


def keyspace(c, sync=0, splits=("g", "p"), placement=None):
    body = {"name": "ks", "scheme": "range", "splits": list(splits), "replicas": {"sync": sync}}
    c.call("POST", "/v1/keyspaces", body | ({"placement": placement} if placement else {})).expect(201)


def get(c, path):
    return once(c.leader().url, "GET", path).expect(200)


def replication(c):
    return get(c, "/v1/replication")


def partitions(c):
    return get(c, "/v1/keyspaces/ks/partitions")["partitions"]


def holders(c):
    return [sorted(r["node"] for r in p["replicas"] if r["role"] != "joining") for p in partitions(c)]


def is_whole(c):
    r = replication(c)
    return r["totals"]["under_replicated"] == 0 and r["partitions"] == []


def drain(c, node):
    return c.call("POST", f"/v1/nodes/{node}/drain", {"reason": "its rack is moved"}).expect(200)


def moves_begun(c):
    """Of n1's drain: how many run is for the budgets to say."""
    seen = get(c, "/v1/nodes/n1")["drain"]
    return seen["operations_running"] > 0 and seen["operations_running"] + seen["operations_queued"]


def finish(c, nodes):
    for n in nodes:
        if not n.stopping:
            n.crash()
    equal(overlaps(nodes), [])
    c.agree()
    c.check_all()


@test
def a_drained_node_becomes_empty_and_can_go():
    with Cluster(1) as c:
        prepare(c)
        nodes = [ModelNode(c, f"n{i}").start() for i in (1, 2, 3)]
        keyspace(c, sync=1)
        wait_for(lambda: all(n.grants for n in nodes), "the first grants")
        equal(drain(c, "n1")["scheduling"], "draining")
        seen = get(c, "/v1/nodes/n1")["drain"]
        equal(set(seen) >= {"since", "partitions_left", "copies_left", "operations_running", "operations_queued",
                            "eta_ms", "blocked"}, True)
        c.call("POST", "/v1/keyspaces", {"name": "later", "scheme": "range", "replicas": {"sync": 1}}).expect(201)
        wait_for(lambda: get(c, "/v1/nodes/n1")["drain"]["copies_left"] == 0, "the node to be empty")
        wait_for(lambda: is_whole(c), "every copy to be where it belongs")
        equal(get(c, "/v1/nodes/n1")["drain"]["eta_ms"], 0)
        done = get(c, "/v1/operations?state=done")["operations"]
        equal({o["kind"] for o in done} <= {"move", "transfer"} and len(done) > 0, True)
        equal({o["reason"] for o in done}, {"its node drains"})
        wait_for(lambda: get(c, "/v1/nodes/n1/duties")["duties"] == [], "the last copy to be deleted")
        nodes[0].crash()
        wait_for(lambda: c.call("DELETE", "/v1/nodes/n1").status == 200, "the node to go")
        finish(c, nodes)


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
def another_placement_is_followed():
    with Cluster(1) as c:
        prepare(c)
        nodes = [ModelNode(c, f"n{i}", labels={"disk": "hdd" if i < 3 else "ssd"}).start() for i in (1, 2, 3, 4)]
        keyspace(c, sync=1, placement={"require": {"disk": ["hdd"]}})
        wait_for(lambda: is_whole(c), "the first placement")
        c.call("PATCH", "/v1/keyspaces/ks", {"placement": {"require": {"disk": ["ssd"]}}}).expect(200)
        equal(replication(c)["totals"]["misplaced"], 3)
        wait_for(lambda: is_whole(c), "the moves", deadline_s=30)
        equal(holders(c), [["n3", "n4"]] * 3)
        c.call("PATCH", "/v1/keyspaces/ks", {"replicas": {"sync": 0}}).expect(200)
        wait_for(lambda: is_whole(c) and all(len(h) == 1 for h in holders(c)), "the surplus to go")
        c.call("PATCH", "/v1/keyspaces/ks", {"replicas": {"sync": 1}}).expect(200)
        wait_for(lambda: is_whole(c) and all(len(h) == 2 for h in holders(c)), "copies again", deadline_s=30)
        finish(c, nodes)


@test
def a_drain_can_be_cancelled_and_begun_again():
    with Cluster(1) as c:
        prepare(c)
        n1 = ModelNode(c, "n1").start()
        keyspace(c)
        n2 = ModelNode(c, "n2").start()
        wait_for(lambda: n1.grants, "the first grants")
        n2.stops_at = "COPY"
        drain(c, "n1")
        wait_for(lambda: moves_begun(c) == 3, "the moves")
        node = c.call("POST", "/v1/nodes/n1/uncordon", {}).expect(200)
        equal((node["scheduling"], "drain" in get(c, "/v1/nodes/n1")), ("open", False))
        ended = get(c, "/v1/operations")["operations"]
        equal({(o["state"], o["attention"]["code"]) for o in ended}, {("aborted", "drain_cancelled")})
        wait_for(lambda: get(c, "/v1/nodes/n2/duties")["duties"] == [], "the candidates' end")
        equal((get(c, "/v1/nodes/n1")["partitions"]["total"], get(c, "/v1/nodes/n2")["partitions"]["total"]), (3, 0))
        n2.stops_at = None
        drain(c, "n1")
        wait_for(lambda: get(c, "/v1/nodes/n1")["drain"]["copies_left"] == 0, "the node to be empty", deadline_s=30)
        finish(c, [n1, n2])


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


if __name__ == "__main__":
    sys.exit(main())
