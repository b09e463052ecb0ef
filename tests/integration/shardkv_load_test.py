#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/shardkv reports its load: what the leader says of it is what clients did."""
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

REPORT_MS = 300
OPTIONS = ("--report-ms", str(REPORT_MS), "--capacity", "requests_per_s=1000")


class Client(threading.Thread):
    """Of each hundred requests: 60 reads and 20 writes of the key "a", 10 reads of "h1", 10 of others in that partition."""

    WANT = ["ra"] * 6 + ["wa"] * 2 + ["rh1", "rx"]

    def __init__(self, t):
        super().__init__(daemon=True)
        self.t, self.stopping, self.done = t, False, {}
        self.routes, self.count = t.routes(), 0
        self.begun = time.monotonic()
        self.start()

    def one(self, what):
        key = what[1:] if what != "rx" else f"h2{self.count % 89:02}"
        route = next(r for r in self.routes if r.get("start", "") <= key and ("end" not in r or key < r["end"]))
        url = self.t.nodes[route["primary"]["node"]].url()
        path = f"/kv?keyspace=ks&partition={route['partition']}&epoch={route['epoch']}&key={key}"
        if what[0] == "w":
            answer = once(url, "PUT", f"{path}&id=m{self.count}", b"0123456789")
        else:
            answer = once(url, "GET", path)
        if answer.status in (421, 503):
            self.routes = self.t.routes()
        else:
            self.done[what] = self.done.get(what, 0) + 1

    def run(self):
        while not self.stopping:
            try:
                self.one(self.WANT[self.count % len(self.WANT)])
            except (Unreachable, AssertionError, StopIteration):
                pass
            self.count += 1

    def rate(self, *which):
        return sum(self.done.get(w, 0) for w in which) / (time.monotonic() - self.begun)

    def end(self):
        self.stopping = True
        self.join(timeout=20)


def leader(t, path):
    return once(t.cluster.leader().url, "GET", path).expect(200)


def partition(t, number):
    return leader(t, f"/v1/keyspaces/ks/partitions/{number}")


def skew(t):
    return leader(t, "/v1/skew?keyspace=ks")


def heat(t, by):
    """Requests of each, all that were heard of; by None those of which no report told."""
    answer = leader(t, f"/v1/heatmap?keyspace=ks&by={by}")
    sums = {column[by]: 0 for column in answer["columns"]}
    for row in answer["rows"]:
        for column, value in zip(answer["columns"], row["values"]):
            sums[column[by]] += (value or 0) * row["heard_ms"] / 1000
    return sums


def near(got, want, share, what):
    assert abs(got - want) <= share * max(want, 1), f"{what}: {got}, not about {want}"


@test
def the_leader_says_what_clients_did():
    with Nodes(1, ["n1", "n2"], 0, splits=("h",), options=OPTIONS) as t:
        first, second = (r["partition"] for r in t.routes())
        client = Client(t)
        wait_for(lambda: client.count >= 600 and time.monotonic() > client.begun + 20 * REPORT_MS / 1000, "requests")
        load = wait_for(lambda: (p := partition(t, first).get("load")) and p["measured_ms_ago"] < REPORT_MS and p, "a report")
        reads, writes, other = client.rate("ra"), client.rate("wa"), client.rate("rh1", "rx")
        near(load["reads_per_s"], reads, 0.2, "reads of the first partition")
        near(load["writes_per_s"], writes, 0.2, "writes of the first partition")
        near(load["write_bytes_per_s"], 11 * writes, 0.25, "bytes written")
        near(load["read_bytes_per_s"], 11 * reads, 0.25, "bytes read")
        answer = skew(t)
        of_partitions = answer["resources"]["requests"]["partitions"]
        near(of_partitions["max"], reads + writes, 0.2, "requests of the larger one")
        near(2 * of_partitions["mean"], reads + writes + other, 0.2, "all requests")
        equal(load["items"], 1)
        assert partition(t, first)["size_bytes"] > 0 and load["queue_ms_p99"] >= 0, load
        node = leader(t, "/v1/nodes/n1")
        equal(node["capacity"]["requests_per_s"], 1000)
        assert node["capacity"]["bytes"] > 1 << 20, node
        names = {h["key"]: h for h in answer["hot_keys"]}
        equal(list(names), ["a"])
        assert names["a"]["key_share_at_least"] > 0.9 and names["a"]["partition"] == first, names
        equal({h["partition"] for h in answer["hot_partitions"]} - {second}, set())
        client.end()


@test
def the_heat_map_tells_operations_and_outcomes_apart():
    with Nodes(1, ["n1", "n2"], 0, splits=("h",), options=OPTIONS) as t:
        client = Client(t)
        wait_for(lambda: client.count >= 600 and heat(t, "operation").get("put", 0) >= 60, "reports of enough requests")
        done, ends = heat(t, "operation"), heat(t, "outcome")
        client.end()
        equal((set(done), set(ends)), ({"get", "put", None}, {"ok", None}))
        near(done["get"] / done["put"], client.rate("ra", "rh1", "rx") / client.rate("wa"), 0.15, "reads for each write")
        assert done[None] + ends[None] < 0.01 * done["get"], (done, ends)


@test
def a_move_takes_its_load_with_it():
    with Nodes(1, ["n1", "n2"], 0, splits=("h",), options=OPTIONS) as t:
        first = t.routes()[0]
        client = Client(t)
        wait_for(lambda: partition(t, first["partition"]).get("load"), "a report")
        to = next(n for n in t.nodes.values() if n.name != first["primary"]["node"])
        t.wait_done(t.move(first["partition"], to))
        before = client.rate("ra")
        moved = wait_for(lambda: (p := partition(t, first["partition"]))["epoch"] > first["epoch"] and p, "the cutover")
        equal(moved["primary"]["node"], to.name)
        near(moved["load"]["reads_per_s"], before, 0.5, "reads that went with it")
        wait_for(lambda: partition(t, first["partition"])["load"]["measured_ms_ago"] < REPORT_MS, "the destination's reports")
        sums = {n: leader(t, f"/v1/nodes/{n}").get("load", {}).get("reads_per_s", 0) for n in t.nodes}
        assert sums[to.name] > 3 * sums[first["primary"]["node"]], sums
        client.end()


main()
