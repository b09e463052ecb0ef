#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keyspaces of more partitions than one command holds appear whole or not at all, once, whatever happens meanwhile."""
import pathlib
import sys
import threading
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import Cluster, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

MANY = 20000


def nodes(c):
    for n in ("n1", "n2"):
        c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"}).expect(200, 201)


def whole(c, name, partitions):
    routes = c.call("GET", f"/v1/keyspaces/{name}/map?consistency=linearizable", timeout=60).expect(200)["routes"]
    equal(len(routes), partitions, f"partitions of {name}")
    assert "start" not in routes[0] and "end" not in routes[-1]
    for before, after in zip(routes, routes[1:]):
        assert before["end"] == after["start"], (before, after)
    return routes


@test
def large_keyspaces_are_created_whole():
    with Cluster(1) as c:
        nodes(c)
        hashed = {"name": "hashed", "scheme": "hash", "partitions": MANY}
        ranged = {"name": "ranged", "scheme": "range", "splits": [f"{i:08d}" for i in range(1, MANY)]}
        equal(c.call("POST", "/v1/keyspaces", hashed, timeout=60).expect(201)["partitions"], MANY)
        equal(c.call("POST", "/v1/keyspaces", ranged, timeout=60).expect(201)["partitions"], MANY)
        for name in ("hashed", "ranged"):
            routes = whole(c, name, MANY)
            wait_for(
                lambda n=name: c.call("GET", f"/v1/keyspaces/{n}").json.get("unavailable", 0) == 0, "all to be placed"
            )
            assert len({r["partition"] for r in routes}) == MANY
        owners = {r["primary"]["node"] for r in whole(c, "ranged", MANY)}
        equal(owners, {"n1", "n2"}, "owners")
        c.check_all()


@test
def retry_of_a_large_creation_is_one_creation():
    with Cluster(1) as c:
        nodes(c)
        key = uuid.uuid4().hex
        body = {"name": "hashed", "scheme": "hash", "partitions": MANY}
        answers = []

        def create():
            answers.append(c.call("POST", "/v1/keyspaces", body, key=key, timeout=60))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        create()
        equal({a.status for a in answers}, {201}, "statuses")
        equal(len({a.raw for a in answers}), 1, "different bodies of one creation")
        assert sum(a.headers.get("idempotency-replayed") == "true" for a in answers) == len(answers) - 1
        whole(c, "hashed", MANY)


@test
def leader_killed_during_a_large_creation():
    with Cluster(3) as c:
        nodes(c)
        for number in range(3):
            name = f"ks{number}"
            done = []
            creation = threading.Thread(
                target=lambda n=name: done.append(
                    c.call("POST", "/v1/keyspaces", {"name": n, "scheme": "hash", "partitions": 6 * MANY}, timeout=60)
                )
            )
            leader = c.leader()
            before = leader.cluster()["applied_index"]
            creation.start()
            wait_for(lambda: (leader.cluster() or {"applied_index": 1 << 60})["applied_index"] > before, "its first chunk")
            leader.kill()
            creation.join()
            equal(done[0].status, 201, done[0].raw)
            whole(c, name, 6 * MANY)
            leader.start()
            c.wait_ready()
        c.agree()
        c.check_all()


if __name__ == "__main__":
    main()
