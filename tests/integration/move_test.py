#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations on real servers: nodes without data report what agents report, while leaders and nodes die. No two nodes
may ever write the partition at one moment."""
import concurrent.futures
import pathlib
import sys
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
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


def ask(server, path, body):
    """By way of one server, which may point to the leader."""
    answer = once(server.url, "POST", path, body)
    if answer.status == 307:
        target = urllib.parse.urlsplit(answer.headers["location"])
        answer = once(f"{target.scheme}://{target.netloc}", "POST", path, body)
    return answer


@test
def of_many_that_ask_at_once_one_wins():
    """Two moves and a split of one partition, sent to three servers at once: the others are told who has won."""
    with Cluster(3) as c:
        prepare(c)
        nodes = [*two_nodes(c), ModelNode(c, "n3").start()]
        nodes[1].stops_at = nodes[2].stops_at = "PREPARE"
        moves_won = 0
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for i in range(12):
                p = route(c)["partition"]
                path = f"/v1/keyspaces/ks/partitions/{p}"
                asked = [("move", {"to": "n2"}), ("move", {"to": "n3"}), ("split", {"at": [f"m{99 - i:02}"]})]
                asked = asked[i % 3:] + asked[:i % 3]
                answers = list(pool.map(lambda x, at=path: ask(x[0], f"{at}/{x[1][0]}", x[1][1]), zip(c.servers, asked)))
                won = [a for a in answers if a.status < 300]
                equal((len(won), {a.status for a in answers if a not in won}), (1, {409}), [a.raw for a in answers])
                number = won[0].json.get("id")
                for a in answers:
                    if a not in won:
                        told = (a.json["code"], a.json.get("operation"), a.json.get("retired", False))
                        equal(told, ("partition_busy", number, False) if number else ("stale_epoch", None, True))
                if number:
                    moves_won += 1
                    c.call("POST", f"/v1/operations/{number}/abort", {"reason": "the next round"}).expect(200)
        print(f"# a move won {moves_won} times of 12")
        finish(c, nodes)


def confirmed(c, nodes):
    """Who a data node would find in the right, asking with what it was last granted."""
    r = route(c)
    return [n.name for n in nodes
            if once(c.leader().url, "POST", f"/v1/keyspaces/ks/partitions/{r['partition']}/check",
                    {"node": n.name, "epoch": r["epoch"]}).status == 200]


@test
def a_leader_and_a_destination_that_die_together_come_back():
    with Cluster(3) as c:
        prepare(c)
        source, to = two_nodes(c)
        nodes = [source, to]
        for stage, leader_first in (("COPY", True), ("CUTOVER", False)):
            to.stops_at = stage
            p = route(c)["partition"]
            number = c.call("POST", f"/v1/keyspaces/ks/partitions/{p}/move", {"to": to.name}).expect(202)["id"]
            wait_for(lambda n=number, s=stage: operation(c, n)["stage"] == s, f"stage {stage}")
            leader = c.leader()
            to.crash()
            leader.kill()
            to.stops_at = None
            back = [leader.start, to.start] if leader_first else [to.start, leader.start]
            for start in back:
                start()
            c.wait_ready()
            wait_for(lambda n=number: operation(c, n)["state"] not in ("queued", "running"), f"the end of the move in {stage}")
            o = operation(c, number)
            equal((o["state"], route(c)["primary"]["node"]), ("done", to.name))
            assert 2 <= o["attempt"] <= 4, o["attempt"]
            equal(confirmed(c, nodes), [to.name])
            source, to = to, source
        finish(c, nodes)


@test
def a_cutover_without_a_quorum_has_one_outcome():
    """What a leader alone is told is neither done nor refused; both sides wait, and whoever leads next knows."""
    with Cluster(3) as c:
        prepare(c)
        n1, n2 = two_nodes(c)
        n2.stops_at = "CUTOVER"
        number, p = move(c), route(c)["partition"]
        task = wait_for(lambda: [t for t in list(n2.work.values()) if t.get("stage") == "CUTOVER"], "the fence")[0]
        leader, followers = c.leader(), c.followers()
        for s in followers:
            s.pause()
        try:
            answer = once(leader.url, "POST", f"/v1/operations/{number}/reports",
                          {"node": "n2", "session": n2.session, "attempt": task["attempt"], "stage": "CUTOVER", "seq": 1000,
                           "applied_position": 30, "checksum": "00000000000000bb"}, timeout=3)
            equal((answer.status, answer.json["code"]), (503, "outcome_unknown"), answer.raw)
        except Unreachable:
            pass  # as good: it says nothing
        equal((n1.may_write(p), n2.may_write(p)), (False, False))
        leader.kill()
        for s in followers:
            s.resume()
        n2.seq, n2.stops_at = 1000, None
        leader.start()
        c.wait_ready()
        wait_for(lambda: operation(c, number)["state"] == "done", "the move")
        wait_for(lambda: n2.may_write(p), "the new grant")
        equal((route(c)["primary"]["node"], confirmed(c, [n1, n2])), ("n2", ["n2"]))
        finish(c, [n1, n2])


main()
