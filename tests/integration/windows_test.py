#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Maintenance windows and freezes on real servers: what they hold back, what they never do, and that they say so."""
import datetime
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from reporters import (Reporter, balancer, finish, idle_code, operations, owners, prepare, proposal, proposals)  # noqa: E402  pylint: disable=wrong-import-position
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from copies import replication  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

ALL_DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


def instant(hours):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def window(kind, begins=-1, ends=1, name="w"):
    return {"name": name, "kind": kind, "from": instant(begins), "to": instant(ends)}


def windows(c, *listed):
    c.call("PATCH", "/v1/balancer", {"windows": list(listed)}).expect(200)


def done(c):
    return [o for o in operations(c) if o["state"] == "done"]


@test
def routine_work_begins_in_a_maintenance_window_and_not_in_a_freeze():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="auto", windows=[window("maintenance", 1, 2, "later")])
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: balancer(c)["decisions"] and balancer(c)["decisions"][0]["code"] == "outside_window", "the hold")
        seen = balancer(c)
        equal((seen["idle"]["code"], seen["windows"][0]["open"]), ("outside_window", False))
        assert seen["idle"]["detail"].startswith("later opens "), seen["idle"]
        reporter.wait_rounds(10)
        equal((proposals(c), operations(c)), ([], []))
        # Open in a zone, and frozen: the freeze counts.
        every_day = {"name": "always", "kind": "maintenance", "time_zone": "Asia/Kolkata", "days": ALL_DAYS, "start": "00:00",
                     "end": "24:00"}
        windows(c, every_day, window("freeze", -1, 1, "audit"))
        wait_for(lambda: balancer(c)["decisions"][0]["code"] == "freeze", "the freeze")
        assert balancer(c)["idle"]["detail"].startswith("audit until "), balancer(c)["idle"]
        reporter.wait_rounds(10)
        equal((proposals(c), operations(c)), ([], []))
        windows(c, every_day, window("freeze", -2, -1, "audit"))
        wait_for(lambda: max(owners(c).values()) <= 7 and len(owners(c)) == 3, "the relief")
        finish(c, nodes, reporter)


@test
def a_freeze_holds_what_waits_and_what_a_person_approves():
    with Cluster(1) as c:
        nodes, ids = prepare(c, budgets={"release_ms": 0, "cluster": {"moves": 0}, "transfer": {"moves": 0}})
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        first, second = wait_for(lambda: [p for p in proposals(c, "open") if p["kind"] == "move"][:2], "proposals")
        c.call("POST", f"/v1/balancer/proposals/{first['id']}/approve", {}, key="a").expect(200)
        waits = proposal(c, first["id"])["operations"][0]
        windows(c, window("freeze"))
        c.call("PATCH", "/v1/balancer", {"budgets": {"cluster": None, "transfer": None}}).expect(200)
        refused = c.call("POST", f"/v1/balancer/proposals/{second['id']}/approve", {})
        equal((refused.status, refused.json["code"]), (409, "frozen"))
        assert refused.json["detail"].startswith("a freeze is in force: w until "), refused.raw
        equal(proposal(c, second["id"])["state"], "open")
        # What was approved before is not refused when it is said again; but it waits.
        c.call("POST", f"/v1/balancer/proposals/{first['id']}/approve", {}, key="a").expect(200)
        c.call("POST", f"/v1/balancer/proposals/{first['id']}/approve", {}).expect(200)
        reporter.wait_rounds(10)
        held = once(c.leader().url, "GET", f"/v1/operations/{waits}").expect(200)
        equal((held["state"], held["waiting"]["code"]), ("queued", "freeze"))
        # What a person asks for by name is no routine work, and goes on.
        other = next(p for p in ids if p not in {m["partition"] for m in proposals(c)})
        c.call("POST", f"/v1/keyspaces/ks/partitions/{other}/move", {"to": "n3"}).expect(202)
        wait_for(lambda: [o["partition"] for o in done(c)] == [other], "the move that a person asked for")
        equal(once(c.leader().url, "GET", f"/v1/operations/{waits}").expect(200)["state"], "queued")
        # Outside of a maintenance window a person may approve, and what they approved begins.
        windows(c, window("maintenance", 1, 2))
        wait_for(lambda: proposal(c, first["id"])["state"] == "done", "what waited")
        c.call("POST", f"/v1/balancer/proposals/{second['id']}/approve", {}).expect(200)
        wait_for(lambda: proposal(c, second["id"])["state"] == "done", "what was approved")
        finish(c, nodes, reporter)


@test
def what_it_began_by_itself_waits_for_the_next_window():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="auto", budgets={"release_ms": 0, "cluster": {"moves": 0}, "transfer": {"moves": 0}})
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: operations(c), "an operation that waits")
        windows(c, window("maintenance", 1, 2))
        c.call("PATCH", "/v1/balancer", {"budgets": {"cluster": None, "transfer": None}}).expect(200)
        wait_for(lambda: idle_code(c) == "outside_window", "the hold")
        reporter.wait_rounds(10)
        equal({(o["state"], o["waiting"]["code"]) for o in operations(c)}, {("queued", "outside_window")})
        windows(c)
        wait_for(lambda: done(c), "the moves")
        finish(c, nodes, reporter)


@test
def recovery_and_drains_know_no_windows():
    with Cluster(1) as c:
        c.call("PATCH", "/v1/cluster/settings", {"recovery_delay_ms": 300}).expect(200)
        nodes, _ = prepare(c, partitions=4, names=("n1", "n2", "n3", "n4", "n5"), mode="auto",
                           windows=[window("freeze"), window("maintenance", 2, 3, "later")])
        c.call("PATCH", "/v1/keyspaces/ks", {"replicas": {"sync": 1}}).expect(200)
        wait_for(lambda: replication(c)["totals"]["under_replicated"] == 0 and replication(c)["partitions"] == [], "copies")
        equal(idle_code(c), "freeze")
        victim = next(n for n in nodes[1:] if n.grants)
        victim.crash()
        wait_for(lambda: replication(c)["totals"]["under_replicated"] > 0, "the loss to be seen")
        wait_for(lambda: replication(c)["totals"]["under_replicated"] == 0 and replication(c)["partitions"] == [], "new copies",
                 deadline_s=40)
        c.call("POST", "/v1/nodes/n1/drain", {"reason": "its rack is moved"}).expect(200)
        wait_for(lambda: "n1" not in owners(c), "the drain", deadline_s=40)
        equal((idle_code(c), proposals(c)), ("freeze", []))
        for n in nodes:
            if not n.stopping:
                n.crash()
        c.agree()
        c.check_all()


main()
