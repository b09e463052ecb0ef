#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Budgets of movement on real servers: what waits says so wherever it is asked, what is done steps down by itself, and a
new leader goes by the same reservations."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def prepare(c, budgets):
    c.call("PATCH", "/v1/cluster/settings",
           {"lease_ms": 800, "heartbeat_ms": 200, "validation_window_ms": 100}).expect(200)
    c.call("PATCH", "/v1/balancer", {"budgets": budgets}).expect(200)
    nodes = [ModelNode(c, "n1").start()]
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["h", "p"]}).expect(201)
    nodes += [ModelNode(c, name).start() for name in ("n2", "n3", "n4")]
    partitions = c.call("GET", "/v1/keyspaces/ks/partitions", None).expect(200)["partitions"]
    for p in partitions:
        wait_for(lambda p=p: nodes[0].may_write(p["partition"]), "the first grants")
    return nodes, [p["partition"] for p in partitions]


def move(c, partition, to, **more):
    return c.call("POST", f"/v1/keyspaces/ks/partitions/{partition}/move", {"to": to, **more}).expect(202)["id"]


def operation(c, number):
    return once(c.leader().url, "GET", f"/v1/operations/{number}").expect(200)


def usage(server):
    return once(server.url, "GET", "/v1/balancer").expect(200)["usage"]


def finish(c, nodes):
    for n in nodes:
        n.crash()
    c.agree()
    c.check_all()


@test
def one_after_the_other():
    with Cluster(1) as c:
        nodes, partitions = prepare(c, {"source": {"moves": 1}, "recovery_reserve_percent": 0, "release_ms": 400})
        nodes[1].stops_at = "COPY"
        first = move(c, partitions[0], "n2")
        wait_for(lambda: operation(c, first)["stage"] == "COPY", "the copy")
        second = move(c, partitions[1], "n3", size_bytes=1 << 30)
        waiting = operation(c, second)["waiting"]
        equal((waiting["code"], waiting["budget"], waiting["value"], waiting["of"]),
              ("budget_exceeded", "source", "n1", "moves"))
        equal((waiting["in_use"], waiting["limit"]), (1, 1))
        equal(operation(c, second)["plan"]["bytes"], 1 << 30)
        equal(operation(c, second)["state"], "queued")
        nodes[1].stops_at = None
        for number in (first, second):
            wait_for(lambda n=number: operation(c, n)["state"] == "done", "the moves")
        wait_for(lambda: usage(c.leader()) == [], "everything to be given back")
        equal(operation(c, second)["stages"][1]["revision"] > operation(c, first)["stages"][-3]["revision"], True)
        finish(c, nodes)


@test
def nothing_begins_at_a_limit_of_0_and_what_runs_goes_on():
    with Cluster(1) as c:
        nodes, partitions = prepare(c, {"release_ms": 0})
        nodes[1].stops_at = "COPY"
        first = move(c, partitions[0], "n2")
        wait_for(lambda: operation(c, first)["stage"] == "COPY", "the copy")
        c.call("PATCH", "/v1/balancer", {"budgets": {"cluster": {"moves": 0}}}).expect(200)
        second = move(c, partitions[1], "n3")
        nodes[1].stops_at = None
        wait_for(lambda: operation(c, first)["state"] == "done", "what runs")
        waiting = operation(c, second)["waiting"]
        equal((operation(c, second)["state"], waiting["budget"], waiting["limit"]), ("queued", "cluster", 0))
        c.call("PATCH", "/v1/balancer", {"budgets": {"cluster": None}}).expect(200)
        wait_for(lambda: operation(c, second)["state"] == "done", "the other")
        finish(c, nodes)


@test
def a_new_leader_goes_by_the_same_reservations():
    with Cluster(3) as c:
        nodes, partitions = prepare(c, {"source": {"moves": 1}, "recovery_reserve_percent": 0, "release_ms": 400})
        nodes[1].stops_at = "COPY"
        first = move(c, partitions[0], "n2", max_bytes_per_s=1000000)
        wait_for(lambda: operation(c, first)["stage"] == "COPY", "the copy")
        second = move(c, partitions[1], "n3")
        before = usage(c.leader())
        leader = c.leader()
        leader.kill()
        c.leader()
        leader.start()
        c.wait_ready()
        equal([usage(s) for s in c.servers], [before] * 3)
        equal(operation(c, second)["waiting"]["budget"], "source")
        nodes[1].stops_at = None
        for number in (first, second):
            wait_for(lambda n=number: operation(c, n)["state"] == "done", "the moves")
        wait_for(lambda: usage(c.leader()) == [], "everything to be given back")
        finish(c, nodes)


main()
