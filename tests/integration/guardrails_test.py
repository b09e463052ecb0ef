#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guardrails on running copies: recovery is never held back, a new leader goes on from the rows, damage counts, and time-outs
bear with who is held back, and with nobody else."""
import datetime
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from guarded import GUARD, guard, operation, says, share, shares_until_full  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

RECOVERY = ("under_replicated", "last_copy")


def prepare(c, names=("n1", "n2", "n3")):
    c.call("PATCH", "/v1/cluster/settings",
           {"lease_ms": 800, "heartbeat_ms": 200, "validation_window_ms": 100}).expect(200)
    guard(c, **GUARD)
    nodes = {n: ModelNode(c, n).start() for n in names}
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["h"]}).expect(201)
    seen = once(c.leader().url, "GET", "/v1/keyspaces/ks/partitions").expect(200)["partitions"]
    for p in seen:
        wait_for(lambda p=p: nodes[p["primary"]["node"]].may_write(p["partition"]), "the first grants")
    return nodes, seen


def finish(c, nodes):
    for n in nodes.values():
        n.crash()
    c.agree()
    c.check_all()


def move(c, p, nodes):
    """From where it is to a node without a copy, as far as COPY."""
    has = {r["node"] for r in p["replicas"]}
    to = next(n for n in nodes if n not in has)
    nodes[to].stops_at = "COPY"
    number = c.call("POST", f"/v1/keyspaces/ks/partitions/{p['partition']}/move",
                    {"to": to, "max_bytes_per_s": 1000000}).expect(202)["id"]
    wait_for(lambda: operation(c, number)["stage"] == "COPY", "the copy")
    return number, to


def operations(c):
    return once(c.leader().url, "GET", "/v1/operations?limit=1000").expect(200)["operations"]


@test
def recovery_goes_on_at_the_full_rate():
    with Cluster(1) as c:
        nodes, (moved, hurt) = prepare(c)
        number, _ = move(c, moved, nodes)
        for n in nodes.values():
            n.stops_at = "COPY"
        c.call("PATCH", "/v1/keyspaces/ks", {"replicas": {"sync": 1}}).expect(200)
        recovery = wait_for(lambda: [o for o in operations(c) if o["class"] in RECOVERY and o["stage"] == "COPY"],
                            "the recovery")[0]["id"]
        equal(operation(c, recovery)["partition"], hurt["partition"])
        for n in nodes:
            says(c, n, 80)

        def slowed():
            equal(share(c, recovery), 1000000)
            return share(c, number) == 250000

        wait_for(slowed, "the quarter")
        for n in nodes:
            says(c, n, 10)
        wait_for(lambda: not slowed() and share(c, number) == 1000000, "the full rate")
        finish(c, nodes)


@test
def a_new_leader_goes_on_where_the_old_one_was():
    with Cluster(3) as c:
        nodes, seen = prepare(c)
        number, to = move(c, seen[0], nodes)
        says(c, to, 80)
        wait_for(lambda: share(c, number) == 250000, "the quarter")
        guard(c, step_ms=600000)
        held = operation(c, number)["throttled"]
        leader = c.leader()
        leader.kill()
        wait_for(lambda: c.leader() is not leader, "another leader")
        leader.start()
        c.wait_ready()
        equal(operation(c, number)["throttled"], held)
        says(c, to, 10)
        guard(c, step_ms=100)
        seen = shares_until_full(c, number)
        equal(seen, sorted(seen))
        assert seen[0] < 1000000, seen
        nodes[to].stops_at = None
        finish(c, nodes)


@test
def damage_in_a_running_copy_counts():
    with Cluster(1) as c:
        nodes, seen = prepare(c)
        guard(c, checksum_failures=3)
        for n in nodes.values():
            n.also = {"COPY": {"complete": False, "checksum_failures": 3}}
        to = next(n for n in nodes if n != seen[0]["primary"]["node"])
        number = c.call("POST", f"/v1/keyspaces/ks/partitions/{seen[0]['partition']}/move", {"to": to}).expect(202)["id"]
        wait_for(lambda: share(c, number) == 250000, "the quarter: three are close to the limit")
        nodes[to].also["COPY"]["checksum_failures"] = 4
        wait_for(lambda: operation(c, number)["reported"]["checksum_failures"] == 4, "more damage")
        held = operation(c, number)["throttled"]
        equal((held["code"], held["node"], held["limit"]), ("checksum_failures", to, 3))
        nodes[to].also = {}
        wait_for(lambda: operation(c, number)["state"] == "done", "the move")
        finish(c, nodes)


def copies_at(op):
    return [datetime.datetime.fromisoformat(s["at"]).timestamp() for s in op["stages"] if s["stage"] == "COPY"]


@test
def its_own_throttle_fails_no_copy():
    with Cluster(1) as c:
        nodes, seen = prepare(c)
        c.call("PATCH", "/v1/cluster/settings", {"stage_timeout_ms": 600}).expect(200)
        for n in nodes:
            says(c, n, 80)
        number, _ = move(c, seen[0], nodes)
        op = wait_for(lambda: len(copies_at(o := operation(c, number))) > 1 and o, "the copy that stands still to time out")
        first, second = copies_at(op)[:2]
        assert second - first >= 2, op["stages"]  # the quarter may come a moment after the stage
        finish(c, nodes)


@test
def being_told_another_rate_is_no_progress():
    with Cluster(1) as c:
        nodes, seen = prepare(c)
        c.call("PATCH", "/v1/cluster/settings", {"stage_timeout_ms": 500}).expect(200)
        number, to = move(c, seen[0], nodes)

        def timed_out():
            """Each time that the rate has changed, it is made to change again."""
            says(c, to, 10 if share(c, number) == 250000 else 80)
            return operation(c, number)["attempt"] > 1

        wait_for(timed_out, "the copy that stands still to time out")
        finish(c, nodes)


if __name__ == "__main__":
    main()
