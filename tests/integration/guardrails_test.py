#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guardrails on running copies: they go at a quarter while one of their nodes says that it is in trouble, and faster
again step by step; recovery is never held back."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

RECOVERY = ("under_replicated", "last_copy")
GUARD = {"foreground_latency_ms_p99": 50, "step_ms": 100, "resume_ms": 300}


def guard(c, **settings):
    c.call("PATCH", "/v1/balancer", {"guardrails": settings}).expect(200)


def says(c, node, latency_ms):
    session = once(c.leader().url, "GET", f"/v1/nodes/{node}").expect(200)["session"]
    body = {"session": session, "interval_ms": 1000, "node": {"latency_ms_p99": latency_ms}, "partitions": []}
    answer = once(c.leader().url, "POST", f"/v1/nodes/{node}/load", body)
    assert answer.status < 300, answer.raw


def operation(c, number):
    return once(c.leader().url, "GET", f"/v1/operations/{number}").expect(200)


def share(c, number):
    return operation(c, number).get("throttled", {}).get("share_ppm", 1000000)


def shares_until_full(c, number):
    """Each that is seen until nothing holds it back."""
    seen = []

    def full():
        now = share(c, number)
        if not seen or seen[-1] != now:
            seen.append(now)
        return now == 1000000

    wait_for(full, "the full rate")
    return seen


@test
def a_real_copy_slows_down_and_comes_back():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        c = t.cluster
        guard(c, **GUARD | {"step_ms": 300})
        route = t.routes()[0]
        source = t.nodes[route["primary"]["node"]]
        to = next(n for n in t.nodes.values() if n is not source)
        for i in range(800):
            once(source.url(), "PUT", f"/kv?keyspace=ks&partition={route['partition']}&epoch={route['epoch']}&key=k{i:05}"
                 f"&id=f{i}", b"x" * 100).expect(200)
        number = t.move(route["partition"], to, max_bytes_per_s=20000)
        wait_for(lambda: operation(c, number)["stage"] == "COPY", "the copy")
        equal(to.state(route["partition"])["rate_bytes_per_s"], 20000)
        says(c, source.name, 80)
        wait_for(lambda: share(c, number) == 250000, "the quarter")
        held = operation(c, number)["throttled"]
        equal([held[k] for k in ("code", "node", "value", "limit")], ["foreground_latency_ms_p99", source.name, 80, 50])
        equal((held["rate_bytes_per_s"], held["reserved_bytes_per_s"]), (5000, 20000))
        wait_for(lambda: to.state(route["partition"])["rate_bytes_per_s"] == 5000, "the node to obey")
        equal((operation(c, number)["stage"], operation(c, number)["attempt"]), ("COPY", 1))
        says(c, source.name, 10)
        seen = shares_until_full(c, number)
        equal(seen, sorted(seen))
        assert len([s for s in seen if s < 1000000]) >= 3, seen
        wait_for(lambda: operation(c, number)["stage"] != "COPY" or to.state(route["partition"])["rate_bytes_per_s"] == 20000,
                 "the node to go faster")
        op = t.wait_done(number)
        equal([s["stage"] for s in op["stages"]].count("COPY"), 1)
        t.all_well()


def prepare(c, names=("n1", "n2", "n3")):
    c.call("PATCH", "/v1/cluster/settings",
           {"lease_ms": 800, "heartbeat_ms": 200, "recovery_delay_ms": 100}).expect(200)
    guard(c, **GUARD)
    nodes = {n: ModelNode(c, n).start() for n in names}
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["h"]}).expect(201)
    seen = c.call("GET", "/v1/keyspaces/ks/partitions").expect(200)["partitions"]
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


if __name__ == "__main__":
    main()
