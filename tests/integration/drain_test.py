#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes that drain become empty, on real servers with nodes that have no data; a drain that is cancelled leaves nothing; and
another placement or number of copies is followed."""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import BUILD, Cluster, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from copies import drain, finish, get, holders, is_whole, keyspace, moves_begun, prepare, replication  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


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
        told = subprocess.run([BUILD / "cadastre", "-e", c.leader().url, "node", "drain", "n1", "--wait", "60s"],
                              capture_output=True, text=True, check=False)
        equal((told.returncode, "draining" in told.stdout), (0, True), told.stderr)
        equal(get(c, "/v1/nodes/n1")["drain"]["copies_left"], 0)
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


main()
