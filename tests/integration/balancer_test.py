#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The balancer on real servers, with agents that report the load that the test says: what it proposes, what it does, and
what stops it."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from reporters import (FAST, Reporter, balancer, explain, finish, idle_code, operations, owners, prepare, proposal,  # noqa: E402  pylint: disable=wrong-import-position
                       proposals)
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


@test
def in_advise_it_proposes_and_a_person_decides():
    with Cluster(1) as c:
        nodes, ids = prepare(c)
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        moves = wait_for(lambda: [p for p in proposals(c, "open") if p["kind"] == "move"], "proposals")
        one = moves[0]
        equal((one["from"], one["class"] in ("hot", "balance"), one["measured"]), ("n1", True, None))
        assert one["code"] in ("hot_node", "hot_node_urgent") and "n1" in one["reason"], one
        assert one["evidence"]["from_level_ppm"] > one["evidence"]["threshold_ppm"] > one["predicted"]["to_level_ppm"], one
        assert one["predicted"]["from_level_ppm"] < one["evidence"]["from_level_ppm"] and one["cost"]["bytes"] > 0, one
        equal(balancer(c)["idle"], None)
        equal(operations(c), [])
        waiting = explain(c, one["partition"], one["to"])
        equal((waiting["node"], waiting["move"]["code"], waiting["planned"]), ("n1", "busy", None))
        other = next(p for p in ids if p not in {m["partition"] for m in proposals(c)})
        told = explain(c, other, "n1")
        equal((told["keyspace"], told["partition"], told["to"]["node"]), ("ks", other, "n1"))
        assert told["level_ppm"] > 1000000 and told["split"]["code"] == "too_small" and told["to"]["code"] != "none", told
        done = c.call("POST", f"/v1/balancer/proposals/{one['id']}/approve", {"reason": "go"}).expect(200)
        equal((done["state"], done["settled_why"], len(done["operations"])), ("running", "go", 1))
        wait_for(lambda: proposal(c, one["id"])["state"] == "done", "the move")
        equal(owners(c)[one["to"]], 1)
        effect = wait_for(lambda: proposal(c, one["id"])["measured"], "the effect")
        assert 0 < effect["to_level_ppm"] < effect["from_level_ppm"] < one["evidence"]["from_level_ppm"], (one, effect)
        equal([o["partition"] for o in operations(c)], [one["partition"]])
        finish(c, nodes, reporter)


@test
def in_auto_a_hot_node_is_relieved_and_left_alone():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="auto")
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: max(owners(c).values()) <= 7 and len(owners(c)) == 3, "the relief")
        wait_for(lambda: not [o for o in operations(c) if o["state"] in ("queued", "running")], "the last move")
        wait_for(lambda: all(p["measured"] for p in proposals(c, "done")), "the effects")
        seen = proposals(c)
        equal({p["settled_by"] for p in seen if p["state"] == "done"}, {"balancer"})
        moved = [p["partition"] for p in seen if p["state"] == "done"]
        equal(len(moved), len(set(moved)), "nothing moved twice")
        finish(c, nodes, reporter)


@test
def a_hot_key_is_named_and_not_moved():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="auto")
        rates = {p: 30 for p in ids}
        rates[ids[3]] = 2000
        reporter = Reporter(c, nodes, rates)
        reporter.starts["03one"] = 2000
        reporter.keys[ids[3]] = [{"key": "03one", "weight": 970}] + [{"key": f"03{i}", "weight": 10} for i in range(3)]
        advice = wait_for(lambda: [p for p in proposals(c) if p["kind"] == "advice"], "the advice")[0]
        equal((advice["code"], advice["state"]), ("hot_key", "open"))
        alone = once(c.leader().url, "GET", "/v1/keyspaces/ks/route?key=03one").expect(200)
        equal((alone["partition"], alone["start"], alone["end"]), (advice["partition"], "03one", "03one\0"))
        equal(c.call("POST", f"/v1/balancer/proposals/{advice['id']}/approve", {}).status, 400)
        wait_for(lambda: "n2" in owners(c) or "n3" in owners(c), "others to make room")
        reporter.wait_rounds(20)
        equal([p["kind"] for p in proposals(c) if p["partition"] in (ids[3], alone["partition"])], ["split", "advice"])
        equal(len([p for p in proposals(c) if p["kind"] == "advice"]), 1)
        finish(c, nodes, reporter)


@test
def what_waited_in_advise_does_not_hold_auto_up():
    with Cluster(1) as c:
        nodes, ids = prepare(c, thresholds={**FAST, "expiry_ms": 3600000, "proposals_open": 2})
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: len(proposals(c, "open")) == 2, "as many proposals as may wait")
        wait_for(lambda: idle_code(c) == "too_many_open", "the limit to be named")
        c.call("PATCH", "/v1/balancer", {"mode": "auto"}).expect(200)
        wait_for(lambda: max(owners(c).values()) <= 7 and len(owners(c)) == 3, "the relief")
        finish(c, nodes, reporter)


@test
def what_expired_makes_room_though_nothing_else_happens():
    with Cluster(1) as c:
        nodes, ids = prepare(c, thresholds={**FAST, "expiry_ms": 1000, "proposals_open": 2})
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: proposals(c, "expired") and proposals(c, "open"), "others")
        finish(c, nodes, reporter)


@test
def what_stops_it_says_so():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="auto", guardrails={"foreground_latency_ms_p99": 50, "step_ms": 100, "resume_ms": 300})
        reporter = Reporter(c, nodes, {})
        reporter.says["n2"] = {"latency_ms_p99": 80}
        reporter.rates = {p: 60 for p in ids}
        wait_for(lambda: idle_code(c) == "guardrail", "the guardrail")
        idle = balancer(c)["idle"]
        equal(idle["detail"], "foreground_latency_ms_p99 of n2")
        equal(idle["guardrail"], {"node": "n2", "metric": "foreground_latency_ms_p99", "value": 80, "limit": 50})
        c.call("POST", "/v1/balancer/pause", {"reason": "migration"}).expect(200)
        reporter.says["n2"] = {"latency_ms_p99": 20}
        wait_for(lambda: balancer(c)["decisions"][0]["code"] == "paused", "the pause")
        equal((idle_code(c), balancer(c)["pause"]["reason"]), ("paused", "migration"))
        reporter.wait_rounds(10)
        equal((proposals(c), operations(c)), ([], []))
        c.call("PATCH", "/v1/balancer", {"mode": "off"}).expect(200)
        c.call("POST", "/v1/balancer/resume", {}).expect(200)
        reporter.wait_rounds(10)
        equal((idle_code(c), proposals(c)), ("off", []))
        c.call("PATCH", "/v1/balancer", {"mode": "auto", "classes": {"hot": False, "balance": False}}).expect(200)
        wait_for(lambda: idle_code(c) not in ("off", "paused", "guardrail"), "rounds again")
        reporter.wait_rounds(10)
        equal(operations(c), [])
        c.call("PATCH", "/v1/balancer", {"classes": None}).expect(200)
        wait_for(lambda: operations(c), "a move")
        finish(c, nodes, reporter)


@test
def nothing_moves_under_noise():
    with Cluster(1) as c:
        nodes, ids = prepare(c, partitions=24, mode="auto")
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: max(owners(c).values()) <= 9 and len(owners(c)) == 3, "the relief")
        wait_for(lambda: not [o for o in operations(c) if o["state"] in ("queued", "running")], "the last move")
        before = len(operations(c))
        for i in range(30):  # half of them 20 % more, half 20 % less, others each time
            reporter.rates = {p: 72 if (n + i) % 2 else 48 for n, p in enumerate(ids)}
            reporter.wait_rounds(1)
        equal(len(operations(c)), before)
        finish(c, nodes, reporter)


@test
def a_leader_change_keeps_proposals_and_begins_quietly():
    with Cluster(3) as c:
        nodes, ids = prepare(c)
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: proposals(c, "open"), "proposals")
        c.call("PATCH", "/v1/balancer", {"thresholds": {"quiet_ms": 3600000, "sustain_ms": 3600000}}).expect(200)
        kept = {p["id"] for p in proposals(c, "open")}
        leader = c.leader()
        leader.kill()
        wait_for(lambda: c.leader() is not leader and idle_code(c) == "quiet", "the new leader's quiet window")
        leader.start()
        c.wait_ready()
        equal({p["id"] for p in proposals(c, "open")}, kept)
        one = min(kept)
        c.call("POST", f"/v1/balancer/proposals/{one}/approve", {}).expect(200)
        wait_for(lambda: proposal(c, one)["state"] == "done", "the move")
        finish(c, nodes, reporter)


main()
