# SPDX-License-Identifier: Apache-2.0
"""What the tests of the balancer share: nodes that report the load that the test says, and what the leader makes of it."""
import threading
import time

from cluster import Unreachable, once, wait_for
from model_node import ModelNode
from tap import equal

FAST = {"round_ms": 100, "sustain_ms": 300, "quiet_ms": 300, "residence_ms": 3000, "merge_cold_ms": 3600000}


class Reporter:
    """Posts, for every node, what its partitions are asked for: `rates[partition]` requests a second, and what `says` has
    of the node itself."""

    def __init__(self, c, nodes, rates):
        self.c, self.nodes, self.rates = c, nodes, rates
        self.says, self.keys, self.starts, self.first = {}, {}, {}, set()
        self.stopping, self.rounds, self.refused = False, 0, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def sample(self, partition, grant, interval_ms):
        rate = self.starts.get(grant.get("start"), self.rates.get(partition, 0))
        s = {"keyspace": "ks", "partition": partition, "epoch": grant["epoch"], "reads": rate * interval_ms // 2000,
             "writes": rate * interval_ms // 2000, "read_bytes": 0, "write_bytes": 0, "cpu_ms": 0, "size_bytes": 1 << 20}
        if partition in self.keys:
            s["keys"] = self.keys[partition]
        return s

    def report(self, node):
        mine = {p: g for p, g in list(node.grants.items()) if g.get("role") == "primary"}
        for interval_ms in (60000, 200):
            which = [p for p in mine if (p not in self.first) == (interval_ms == 60000)]
            if interval_ms == 60000 and not which:
                continue
            body = {"session": node.session, "interval_ms": interval_ms,
                    "partitions": [self.sample(p, mine[p], interval_ms) for p in which]}
            if node.name in self.says:
                body["node"] = self.says[node.name]
            answer = once(self.c.leader().url, "POST", f"/v1/nodes/{node.name}/load", body)
            if answer.status < 300:
                self.first.update(which)
            elif answer.status == 400:
                self.refused = answer.raw

    def run(self):
        while not self.stopping:
            for node in self.nodes:
                try:
                    if node.session is not None:
                        self.report(node)
                except (Unreachable, AssertionError):
                    pass
            self.rounds += 1
            time.sleep(0.1)

    def wait_rounds(self, count):
        until = self.rounds + count
        wait_for(lambda: self.rounds >= until, "reports")

    def stop(self):
        self.stopping = True
        self.thread.join(timeout=20)
        equal(self.refused, None)


def prepare(c, partitions=16, names=("n1", "n2", "n3"), **settings):
    """All partitions on n1; the others have nothing."""
    c.call("PATCH", "/v1/cluster/settings",
           {"lease_ms": 2000, "heartbeat_ms": 200, "validation_window_ms": 100}).expect(200)
    body = {"thresholds": FAST, "budgets": {"release_ms": 0}} | settings
    c.call("PATCH", "/v1/balancer", body).expect(200)
    nodes = [ModelNode(c, names[0]).start()]
    splits = [f"{i:02}" for i in range(1, partitions)]
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": splits}).expect(201)
    nodes += [ModelNode(c, name).start() for name in names[1:]]
    ids = [p["partition"] for p in c.call("GET", "/v1/keyspaces/ks/partitions?limit=1000").expect(200)["partitions"]]
    wait_for(lambda: all(nodes[0].may_write(p) for p in ids), "the first grants")
    return nodes, ids


def balancer(c):
    return once(c.leader().url, "GET", "/v1/balancer").expect(200)


def proposals(c, state=""):
    query = f"?state={state}&limit=1000" if state else "?limit=1000"
    return once(c.leader().url, "GET", "/v1/balancer/proposals" + query).expect(200)["proposals"]


def proposal(c, number):
    return once(c.leader().url, "GET", f"/v1/balancer/proposals/{number}").expect(200)


def owners(c):
    seen = once(c.leader().url, "GET", "/v1/keyspaces/ks/partitions?limit=1000").expect(200)["partitions"]
    count = {}
    for p in seen:
        count[p["primary"]["node"]] = count.get(p["primary"]["node"], 0) + 1
    return count


def operations(c):
    return once(c.leader().url, "GET", "/v1/operations?limit=1000").expect(200)["operations"]


def finish(c, nodes, reporter):
    reporter.stop()
    for n in nodes:
        n.crash()
    c.agree()
    c.check_all()


def explain(c, partition, to):
    return once(c.leader().url, "GET", f"/v1/balancer/explain?keyspace=ks&partition={partition}&to={to}").expect(200)


def idle_code(c):
    idle = balancer(c)["idle"]
    return idle["code"] if idle else None
