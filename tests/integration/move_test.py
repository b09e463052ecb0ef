#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations on real servers: nodes without data report what agents report, while leaders and nodes die. No two nodes
may ever write the partition at one moment."""
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode, overlaps  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def prepare(c, **more):
    c.call("PATCH", "/v1/cluster/settings",
           {"lease_ms": 800, "heartbeat_ms": 200, "validation_window_ms": 300, **more}).expect(200)


def two_nodes(c, sync=0):
    """n1 holds the partition, n2 nothing."""
    n1 = ModelNode(c, "n1").start()
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "replicas": {"sync": sync}}).expect(201)
    n2 = ModelNode(c, "n2").start()
    wait_for(lambda: n1.may_write(route(c)["partition"]), "the first grant")
    return n1, n2


def route(c):
    return once(c.leader().url, "GET", "/v1/keyspaces/ks/route?key=a").expect(200)


def move(c, **more):
    p = route(c)["partition"]
    return c.call("POST", f"/v1/keyspaces/ks/partitions/{p}/move", {"from": "n1", "to": "n2", **more}).expect(202)["id"]


def operation(c, number):
    return once(c.leader().url, "GET", f"/v1/operations/{number}").expect(200)


def finish(c, nodes):
    for n in nodes:
        if not n.stopping:
            n.crash()
    equal(overlaps(nodes), [])
    c.agree()
    c.check_all()


def shown_at(c, o, before):
    """Routes say which stage held the partition at each revision: in history, and in the feed."""
    url = c.leader().url
    held = [s for s in o["stages"] if s["stage"] not in ("CLEANUP", "DONE")]
    for s in held:
        then = once(url, "GET", f"/v1/keyspaces/ks/route?key=a&at_revision={s['revision']}").expect(200)
        equal(then["moving"], {"operation": o["id"], "stage": s["stage"]})
    assert "moving" not in before and "moving" not in route(c)
    changes = once(url, "GET", f"/v1/keyspaces/ks/changes?since={before['revision']}").expect(200)["changes"]
    stages = [r["moving"]["stage"] for change in changes for r in change["routes"] if "moving" in r]
    equal(list(dict.fromkeys(stages)), [s["stage"] for s in held])


@test
def a_move_is_carried_through():
    with Cluster(1) as c:
        prepare(c)
        n1, n2 = two_nodes(c)
        before = route(c)
        number = move(c, reason="to see it")
        busy = c.call("POST", f"/v1/keyspaces/ks/partitions/{before['partition']}/split", {"at": ["m"]})
        if busy.status == 409:
            equal((busy.json["code"], busy.json["operation"]), ("partition_busy", number))
        wait_for(lambda: operation(c, number)["state"] == "done", "the move")
        o = operation(c, number)
        stages = [s["stage"] for s in o["stages"]]
        equal(stages, ["QUEUED", "PREPARE", "SNAPSHOT", "COPY", "CATCH_UP", "DUAL_WRITE", "VALIDATE", "FENCE", "CUTOVER",
                       "WINDOW", "CLEANUP", "DONE"])
        after = route(c)
        equal((after["primary"]["node"], after["epoch"], len(after["replicas"])), ("n2", o["epoch_after"], 1))
        equal((o["epoch_before"], o["rollback"], o["reason"]), (before["epoch"], "forward_only", "to see it"))
        equal(once(c.leader().url, "GET", "/v1/nodes/n1/duties").json["duties"], [])
        shown_at(c, o, before)
        wait_for(lambda: n2.may_write(after["partition"]), "the new grant")
        finish(c, [n1, n2])


@test
def a_move_outlives_its_leaders():
    with Cluster(3) as c:
        prepare(c)
        n1, n2 = two_nodes(c)
        n2.stops_at = "COPY"
        number = move(c)
        for stage in ("COPY", "VALIDATE"):
            wait_for(lambda s=stage: operation(c, number)["stage"] == s, f"stage {stage}")
            leader = c.leader()
            leader.kill()
            n2.stops_at = "VALIDATE" if stage == "COPY" else None
            c.leader()
            leader.start()
            c.wait_ready()
        wait_for(lambda: operation(c, number)["state"] == "done", "the move")
        equal(route(c)["primary"]["node"], "n2")
        finish(c, [n1, n2])


@test
def an_abort_leaves_it_where_it_was():
    with Cluster(1) as c:
        prepare(c)
        n1, n2 = two_nodes(c)
        epoch = route(c)["epoch"]
        n2.stops_at = "CUTOVER"
        number = move(c)
        wait_for(lambda: operation(c, number)["stage"] == "CUTOVER", "the fence")
        assert not n1.may_write(route(c)["partition"])
        answer = c.call("POST", f"/v1/operations/{number}/abort", {"reason": "not today"}).expect(200)
        equal((answer["state"], answer["attention"]["code"]), ("aborted", "aborted"))
        wait_for(lambda: n1.may_write(route(c)["partition"]), "the source to write again")
        equal((route(c)["primary"]["node"], route(c)["epoch"] > epoch), ("n1", True))
        wait_for(lambda: once(c.leader().url, "GET", "/v1/nodes/n2/duties").json["duties"] == [], "the candidate's end")
        equal(c.call("POST", f"/v1/operations/{number}/abort", {}).status, 200)
        finish(c, [n1, n2])


@test
def a_source_that_dies_behind_its_fence_is_followed():
    with Cluster(1) as c:
        prepare(c)
        n1, n2 = two_nodes(c)
        n1.stops_at = "FENCE"
        number = move(c)
        wait_for(lambda: operation(c, number)["stage"] == "FENCE", "the fence")
        n1.crash()
        wait_for(lambda: route(c)["primary"] and route(c)["primary"]["node"] == "n2", "the way forward")
        equal(operation(c, number)["stage"] in ("WINDOW", "CLEANUP", "DONE"), True)
        wait_for(lambda: n2.may_write(route(c)["partition"]), "the new grant")
        finish(c, [n1, n2])


def routes(c):
    return once(c.leader().url, "GET", "/v1/keyspaces/ks/map").expect(200)["routes"]


@test
def a_part_moves_away_and_back():
    with Cluster(1) as c:
        prepare(c)
        n1, n2 = two_nodes(c)
        # The keyspace's own window goes before the cluster's.
        policy = {"validation_window_ms": 600000, "reverse_replication": True, "require_warm": True, "required_checks": ["disk"]}
        c.call("PATCH", "/v1/keyspaces/ks", {"policy": policy}).expect(200)
        whole = route(c)["partition"]
        for bad, pointer in (({"start": "g", "end": "g"}, "/range/end"), ({}, "/range"), ({"start": 7}, "/range/start"),
                             ({"from": "g"}, "/range/from")):
            answer = c.call("POST", f"/v1/keyspaces/ks/partitions/{whole}/move", {"to": "n2", "range": bad})
            equal((answer.status // 100, answer.json["errors"][0]["pointer"]), (4, pointer))
        number = move(c, range={"start": "g", "end": "p"})
        wait_for(lambda: operation(c, number)["state"] == "aborted", "the check that is missing")
        equal(operation(c, number)["attention"]["code"], "prepare_check_failed")
        equal(operation(c, number)["attention"]["detail"], "disk")
        n2.also = {"PREPARE": {"checks": {"disk": True}}, "VALIDATE": {"warm": True}}
        c.call("POST", f"/v1/operations/{number}/retry", {"reason": "it checks now"}).expect(200)
        wait_for(lambda: operation(c, number)["stage"] == "WINDOW", "the window")
        o = operation(c, number)
        equal((o["attempt"], o["partition"], o["range"]), (2, whole, {"start": "g", "end": "p"}))
        left, part, right = routes(c)
        equal([r["primary"]["node"] for r in (left, part, right)], ["n1", "n2", "n1"])
        equal([(r.get("start"), r.get("end")) for r in (left, part, right)], [(None, "g"), ("g", "p"), ("p", None)])
        equal((o["partition_after"], len({r["epoch"] for r in (left, part, right)})), (part["partition"], 1))
        gone = once(c.leader().url, "GET", f"/v1/keyspaces/ks/partitions/{whole}")
        equal((gone.status, gone.json["code"], len(gone.json["routes"])), (410, "partition_retired", 3))
        tasks = once(c.leader().url, "GET", f"/v1/nodes/n1/tasks?session={n1.session}").expect(200)["tasks"]
        follows = [t for t in tasks if t["kind"] == "stage"][0]
        equal((follows["reverse"], follows["start_position"], follows["peer"]["node"]), (True, 30, "n2"))
        equal({tuple(t["parents"]) for t in tasks if t["kind"] == "grant"}, {(whole,)})
        n1.also = n2.also
        back = c.call("POST", f"/v1/operations/{number}/finish-validation", {"back": True}).expect(200)["reversed_by"]
        wait_for(lambda: operation(c, back)["stage"] == "WINDOW", "the way back")
        equal([s["stage"] for s in operation(c, back)["stages"]][:3], ["QUEUED", "CATCH_UP", "DUAL_WRITE"])
        equal((operation(c, back)["reverses"], [r["primary"]["node"] for r in routes(c)]), (number, ["n1", "n1", "n1"]))
        c.call("POST", f"/v1/operations/{back}/finish-validation", {}).expect(200)
        wait_for(lambda: operation(c, back)["state"] == "done", "the end")
        history = once(c.leader().url, "GET", f"/v1/keyspaces/ks/partitions/{left['partition']}/history").expect(200)["history"]
        equal((history[0]["cause"], history[0]["operation"]), ("split", number))
        finish(c, [n1, n2])


@test
def stages_that_take_too_long_are_tried_again():
    with Cluster(1) as c:
        prepare(c, fence_max_ms=300)
        n1, n2 = two_nodes(c)
        n2.stops_at = "CUTOVER"
        number = move(c)
        wait_for(lambda: operation(c, number)["attempt"] >= 2, "another attempt")
        n2.stops_at = None
        wait_for(lambda: operation(c, number)["state"] == "done", "the move")
        equal(route(c)["primary"]["node"], "n2")
        time.sleep(0.1)
        finish(c, [n1, n2])


main()
