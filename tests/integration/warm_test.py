#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A new leader knows what the old one heard of loads, though nodes report but once a minute, and where and when it was."""
import datetime
import pathlib
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from copies import partitions  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

RATES = {"n1": 100, "n2": 900}


def metric(server, name):
    text = urllib.request.urlopen(server.url + "/metrics", timeout=5).read().decode()
    values = [line.split()[1] for line in text.splitlines() if line.startswith(name + " ")]
    return float(values[0]) if values else None


def keys():
    return [{"key": f"p{i:02}", "weight": 600 if i == 7 else 10} for i in range(40)]


def heatmap(server, by=None):
    """Where the load was, a day long: the sums over time, by column."""
    m = once(server.url, "GET", "/v1/heatmap?keyspace=ks" + (f"&by={by}" if by else "")).expect(200)
    sums = [sum(r["values"][i] * r["heard_ms"] / 1000 for r in m["rows"]) for i in range(len(m["columns"]))]
    return m, dict(zip([str(list(c.values())[0]) for c in m["columns"]], sums))


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def near(a, b):
    return set(a) == set(b) and all(abs(a[k] - b[k]) <= 1 + b[k] / 1000 for k in b)


def report(c, node, session):
    """A minute of it, as a node that reports every 60 s would send."""
    held = [p for p in partitions(c) if p["primary"]["node"] == node]
    answer = c.call("POST", f"/v1/nodes/{node}/load", {
        "session": session, "interval_ms": 60000, "node": {"latency_ms_p99": 9},
        "partitions": [{"keyspace": "ks", "partition": p["partition"], "epoch": p["epoch"], "reads": 0,
                        "writes": 60 * RATES[node], "read_bytes": 0, "write_bytes": 0, "cpu_ms": 0, "size_bytes": 4096,
                        "by": [{"operation": "put", "outcome": "ok", "tenant": node, "requests": 60 * RATES[node] - 10},
                               {"operation": "put", "outcome": "error", "tenant": node, "requests": 10}],
                        "keys": keys()} for p in held]}).expect(202)
    equal(answer["counted"], len(held))
    return len(held)


def report_all(c):
    count = 0
    for node in RATES:
        session = c.call("PUT", f"/v1/nodes/{node}", {"address": f"{node}:1", "lease": "static"}).expect(200)["session"]
        count += report(c, node, session)
    return count


def skew(server):
    return once(server.url, "GET", "/v1/skew?keyspace=ks").expect(200)


@test
def a_new_leader_is_not_blind():
    with Cluster(3) as c:
        for node in RATES:
            c.call("PUT", f"/v1/nodes/{node}", {"address": f"{node}:1", "lease": "static"}).expect(200)
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["g", "p", "t"]}).expect(201)
        wait_for(lambda: all(p["primary"] for p in partitions(c)), "owners")
        count = report_all(c)
        first, seen = c.leader(), skew(c.leader())
        (before, by_key), (_, by_outcome) = heatmap(first), heatmap(first, "outcome")
        equal((len(before["columns"]), round(by_outcome["error"]) // 10), (4, 4))
        equal((count, seen["known"]), (4, 4))
        for s in c.followers():
            wait_for(lambda s=s: metric(s, "cadastre_load_summary_copies") == count, f"the summary at {s.id}", deadline_s=30)
            equal(metric(s, "cadastre_load_copies"), count)
            done = metric(s, "cadastre_heatmap_pulls_total")
            wait_for(lambda s=s, done=done: metric(s, "cadastre_heatmap_pulls_total") > done, "its heat map", deadline_s=30)
        first.kill()
        begun = time.monotonic()
        new = c.leader()
        now = skew(new)
        print(f"# {time.monotonic() - begun:.2f} s after the leader's death")
        equal((now["known"], now["partitions"]), (4, 4))
        equal(now["resources"]["writes"]["partitions"]["max"], seen["resources"]["writes"]["partitions"]["max"])
        equal([f["key"] for f in now["hot_keys"]], [f["key"] for f in seen["hot_keys"]])
        equal(once(new.url, "GET", "/v1/nodes/n1").expect(200)["reported"]["latency_ms_p99"], 9)
        # The same rows are there, by its own clock, and what it hears comes to them.
        after, now_by_key = heatmap(new)
        for a, b in zip(after["rows"], before["rows"]):
            assert abs(seconds(a["from"]) - seconds(b["from"])) < 2 and a["heard_ms"] == b["heard_ms"], (a, b)
        assert near(now_by_key, by_key), (now_by_key, by_key)
        assert near(heatmap(new, "outcome")[1], by_outcome), (heatmap(new, "outcome")[1], by_outcome)
        equal([o["outcome"] for o in now["outcomes"]], ["ok", "error"])
        report_all(c)
        twice = heatmap(new)[1]
        assert near(twice, {k: 2 * v for k, v in by_key.items()}), (twice, by_key)
        # The other one asks the new leader from now on.
        other = c.followers()[0]
        done = metric(other, "cadastre_load_summary_pulls_total")
        wait_for(lambda: metric(other, "cadastre_load_summary_pulls_total") > done, "a summary of the new leader", deadline_s=30)
        c.check_all()


main()
