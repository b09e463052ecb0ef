#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What-if on real servers: what it predicts, that it changes nothing, and that what is then done comes as predicted."""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
import copies  # noqa: E402  pylint: disable=wrong-import-position
from reporters import FAST, Reporter, finish, operations, owners  # noqa: E402  pylint: disable=wrong-import-position
from reporters import prepare, proposals  # noqa: E402  pylint: disable=wrong-import-position
from cluster import BUILD, Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

CALM = {"round_ms": 1000, "residence_ms": 1000, "sustain_ms": 3000, "quiet_ms": 1000}


def post(c, changes, **more):
    return once(c.leader().url, "POST", "/v1/balancer/simulate", {"changes": changes} | more)


def state(c):
    seen = once(c.leader().url, "GET", "/v1/cluster").expect(200)
    return seen["revision"], seen["state_hash"]


def ask(c, changes, **more):
    """The answer, which keeps the budgets, breaks nothing and has changed nothing."""
    before = state(c)
    a = post(c, changes, **more).expect(200)
    equal(state(c), before)
    equal((a["revision"], a["findings"], a["findings_left_out"], a["truncated"]), (before[0], [], 0, None))
    for b in a["budgets"]:
        assert b["moves"] <= b["moves_limit"] and b.get("bytes_per_s", 0) <= b.get("bytes_per_s_limit", 0), b
    for step in a["plan"]:
        assert step["queued_ms"] <= step["begin_ms"] <= step["end_ms"], step
    return a


def node(answer, name):
    return next(n for n in answer["nodes"] if n["node"] == name)


def wait_for_load(c, least):
    wait_for(lambda: node(ask(c, {}, hours=1), "n1")["before"]["requests_per_s"] >= least, "the load")


def fleet(c, zones, sync, partitions=12):
    """A node for each of `zones`, and a keyspace with copies in different ones."""
    copies.prepare(c)
    c.call("PATCH", "/v1/balancer", {"mode": "off", "thresholds": CALM, "budgets": {"release_ms": 0}}).expect(200)
    nodes = [ModelNode(c, f"n{i + 1}", labels={"zone": z}).start() for i, z in enumerate(zones)]
    copies.keyspace(c, sync, [f"{i:02}" for i in range(1, partitions)], {"spread": "zone"})
    wait_for(lambda: copies.is_whole(c), "all copies")
    return nodes


@test
def it_predicts_what_the_balancer_would_do():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="off", thresholds=CALM)
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for_load(c, 950)
        a = ask(c, {})
        equal((a["settled"], a["load"]["before"]["max_over_mean_ppm"], a["load"]["before"]["nodes"]), (True, 3000000, 3))
        assert a["load"]["after"]["max_over_mean_ppm"] < 1250000, a["load"]
        assert 9 <= a["totals"]["moves"] <= 12 and a["totals"]["bytes"] == a["totals"]["moves"] << 20, a["totals"]
        equal((len(a["plan"]), {(s["kind"], s["from"]) for s in a["plan"]}), (a["totals"]["moves"], {("move", "n1")}))
        equal(sum(n["after"]["primaries"] for n in a["nodes"]), len(ids))
        equal(node(a, "n1")["after"]["primaries"], 16 - a["totals"]["moves"])
        more = ask(c, {"nodes_added": [{"name": "new", "count": 2, "like": "n1"}]})
        equal([(n["node"], n["change"]) for n in more["nodes"][3:]], [("new1", "added"), ("new2", "added")])
        assert all(n["after"]["primaries"] >= 2 for n in more["nodes"]), more["nodes"]
        off = ask(c, {"policy": {"mode": "off"}})
        equal((off["plan"], off["load"]["after"]), ([], off["load"]["before"]))
        twice = ask(c, {"load_scaled": [{"keyspace": "ks", "factor_ppm": 2000000}], "policy": {"mode": "off"}})
        assert 1900 <= node(twice, "n1")["before"]["requests_per_s"] <= 2000, twice["nodes"]
        slow = ask(c, {"policy": {"budgets": {"source": {"moves": 1}, "recovery_reserve_percent": 0}}})
        equal({b["moves"] for b in slow["budgets"] if b["budget"] == "source"}, {1})
        finish(c, nodes, reporter)


@test
def what_waits_for_a_person_is_neither_done_nor_in_the_way():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="advise", thresholds=FAST | {"round_ms": 1000, "expiry_ms": 600000})
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for(lambda: proposals(c, "open"), "what waits")
        wait_for(lambda: post(c, {}, hours=1).expect(200)["load"]["before"]["resource"] == "requests", "the load")
        for policy in ({}, {"mode": "advise"}, {"mode": None}):
            a = post(c, {"policy": policy}).expect(200)
            equal((a["load"]["before"]["max_over_mean_ppm"], node(a, "n1")["before"]["primaries"]), (3000000, len(ids)))
            assert a["totals"]["moves"] >= 9 and a["totals"]["last_ms"] < 300000, a["totals"]
        reporter.stop()
        for n in nodes:
            n.crash()


@test
def what_is_then_done_comes_as_it_was_predicted():
    with Cluster(1) as c:
        nodes, ids = prepare(c, partitions=6, mode="off", thresholds=CALM)
        reporter = Reporter(c, nodes, {p: 160 for p in ids})
        wait_for_load(c, 950)
        told = ask(c, {"nodes_drained": ["n1"]})
        equal((node(told, "n1")["change"], node(told, "n1")["after"]["primaries"]), ("drained", 0))
        equal((told["totals"]["recoveries"], told["totals"]["recovery_bytes"], told["unplaced"]), (6, 6 << 20, []))
        predicted = {s["partition"] for s in told["plan"] if s["class"] == "drain" and s["from"] == "n1"}
        equal(predicted, set(ids))
        c.call("POST", "/v1/nodes/n1/drain", {"reason": "as was asked"}).expect(200)
        wait_for(lambda: "n1" not in owners(c), "the drain")
        wait_for(lambda: {o["state"] for o in operations(c)} == {"done"}, "the last operation")
        done = operations(c)
        equal({o["partition"] for o in done if o["class"] == "drain"}, predicted)
        equal(len(done), told["totals"]["recoveries"])
        equal(sorted(owners(c).values()), sorted(n["after"]["primaries"] for n in told["nodes"] if n["node"] != "n1"))
        finish(c, nodes, reporter)


@test
def a_node_or_a_zone_is_lost():
    with Cluster(1) as c:
        nodes = fleet(c, "abcabc", sync=1)
        held = sum("n1" in h for h in copies.holders(c))
        one = ask(c, {"nodes_lost": ["n1"]})
        equal((node(one, "n1")["change"], node(one, "n1")["after"]["serves"], one["breaker"]), ("lost", False, False))
        equal((one["unplaced"], one["load"]["after"]["unavailable"]), ([], 0))
        equal({s["class"] for s in one["plan"]} - {"under_replicated", "last_copy", "constraint"}, set())
        assert one["totals"]["recoveries"] >= held > 0 and one["totals"]["failovers"] > 0, (held, one["totals"])
        zone = ask(c, {"zone_lost": "a"})  # a third of the fleet: nothing is made anew before a person says so
        equal(([n["node"] for n in zone["nodes"] if n["change"] == "lost"], zone["breaker"]), (["n1", "n4"], True))
        equal((zone["load"]["after"]["unavailable"], zone["totals"]["recoveries"]), (0, 0))
        equal(len(zone["unplaced"]) > 0 and all(u["code"] for u in zone["unplaced"]), True)
        copies.finish(c, nodes)


@test
def there_is_one_at_a_time():
    with Cluster(1) as c:
        nodes, ids = prepare(c, mode="off", thresholds=CALM | {"round_ms": 100})
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(c, {}, hours=168), range(16)))
        refused = [a for a in answers if a.status != 200]
        equal({(a.status, a.json["code"], bool(a.headers.get("retry-after"))) for a in refused} - {(503, "overloaded", True)},
              set())
        assert len(refused) < len(answers), "none was answered"
        equal(len(ask(c, {})["nodes"]), 3)
        for n in nodes:
            n.crash()


def cli(*words):
    done = subprocess.run([str(BUILD / "cadastre"), *words], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@test
def by_the_command_line_and_from_a_backup():
    with Cluster(1) as c, tempfile.TemporaryDirectory() as scratch:
        nodes, ids = prepare(c, mode="off", thresholds=CALM)
        reporter = Reporter(c, nodes, {p: 60 for p in ids})
        wait_for_load(c, 950)
        reporter.stop()
        backup, load, wanted, junk = (f"{scratch}/{name}" for name in ("backup.db", "load.bin", "wanted.json", "junk.json"))
        pathlib.Path(junk).write_text("junk", encoding="utf-8")
        server = ("-e", c.leader().url)
        flags = ("--drain", "n3", "--add", "2", "--like", "n2", "--scale", "ks=1.5", "--set", "thresholds.high_ppm=150000")
        code, told, _ = cli(*server, "balancer", "simulate", *flags, "-o", "json")
        equal(code, 0)
        told = json.loads(told)
        equal([n["node"] for n in told["nodes"] if n["change"] == "added"], ["added-1", "added-2"])
        equal((node(told, "n3")["change"], node(told, "n3")["after"]["primaries"]), ("drained", 0))
        assert 1400 <= node(told, "n1")["before"]["requests_per_s"] <= 1440, told["nodes"]
        equal(cli(*server, "backup", backup)[0], 0)
        pathlib.Path(load).write_bytes(once(c.leader().url, "GET", "/v1/load/summary").raw)
        pathlib.Path(wanted).write_text(json.dumps({"seed": 1, "changes": {"nodes_drained": ["n3"]}}), encoding="utf-8")
        code, saved, note = cli("simulate", "--from", backup, "--load", load, *flags[2:], wanted, "-o", "json")
        equal((code, note), (0, ""))
        saved = json.loads(saved)
        for key in ("load", "nodes", "findings", "advice"):
            equal(saved[key], told[key], key)
        equal([(s["partition"], s["from"], s["to"]) for s in saved["plan"]],
              [(s["partition"], s["from"], s["to"]) for s in told["plan"]])
        code, text, note = cli("simulate", "--from", backup, "--size", "4GiB", "--hours", "1")
        equal((code, "of 16 partitions no load is known" in note), (0, True))
        assert "MAX/MEAN_PPM" in text and str(4 << 30) in text, text
        for words, wrong in (((*server, "balancer", "simulate", "--lose", "n9"), "/changes/nodes_lost/0"),
                             (("simulate", "--from", backup, "--lose", "n9"), "/changes/nodes_lost/0"),
                             (("simulate", "--from", wanted), wanted), (("simulate", "--from", backup, "--load", wanted), wanted),
                             (("simulate", "--from", backup, "--scale", "1e9"), "--scale"),
                             (("simulate", "--from", backup, "--add", "1"), "--like"), (("simulate", "--lose", "n1"), "--from"),
                             (("simulate", junk), f"{junk}: line 1"), (("simulate",), "FILE")):
            code, _, said = cli(*words)
            equal((code, wrong in said), (2, True), said)
        finish(c, nodes, reporter)


@test
def what_has_one_copy_is_unavailable_and_named():
    with Cluster(1) as c:
        nodes = fleet(c, "abc", sync=0)
        mine = sum(h == ["n1"] for h in copies.holders(c))
        a = ask(c, {"nodes_lost": ["n1"]})
        equal((a["load"]["after"]["unavailable"], len(a["unplaced"])), (mine, mine))
        assert all("unavailable" in u["problems"] and u["code"] and u["keyspace"] == "ks" for u in a["unplaced"]), a["unplaced"]
        copies.finish(c, nodes)


@test
def a_follower_sends_to_the_leader_and_nonsense_is_named():
    with Cluster(3) as c:
        nodes = fleet(c, "ab", sync=0, partitions=2)
        leader = c.leader()
        follower = next(s for s in c.servers if s.url != leader.url)
        sent = once(follower.url, "POST", "/v1/balancer/simulate", {})
        equal((sent.status, sent.headers.get("location")), (307, leader.url + "/v1/balancer/simulate"))
        before = state(c)
        for changes, pointer in (
                ({"nodes_lost": ["n1", "n7"]}, "/changes/nodes_lost/1"),
                ({"nodes_drained": ["n7"]}, "/changes/nodes_drained/0"),
                ({"nodes_lost": ["n1"], "nodes_drained": ["n1"]}, "/changes/nodes_drained/0"),
                ({"zone_lost": "q"}, "/changes/zone_lost"),
                ({"nodes_added": [{"name": "n1"}]}, "/changes/nodes_added/0/name"),
                ({"nodes_added": [{"name": "x", "like": "n7"}]}, "/changes/nodes_added/0/like"),
                ({"load_scaled": [{"factor_ppm": 1}, {"keyspace": "no", "factor_ppm": 1}]}, "/changes/load_scaled/1/keyspace"),
                ({"policy": {"thresholds": {"low_ppm": 200000}}}, "/changes/policy/thresholds/low_ppm")):
            problem = post(c, changes).expect(422)
            equal((problem["code"], [e["pointer"] for e in problem["errors"]]), ("invalid_settings", [pointer]))
        equal(post(c, {"nodes_added": [{"name": "x", "count": 999}]}).expect(422)["code"], "limit_exceeded")
        equal(state(c), before)
        copies.finish(c, nodes)


main()
