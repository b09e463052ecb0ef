# SPDX-License-Identifier: Apache-2.0
"""What the tests of recovery and drains share: a fleet whose copies are looked at."""
from cluster import once
from model_node import overlaps
from tap import equal


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
