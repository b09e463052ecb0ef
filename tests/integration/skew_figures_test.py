#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The modeled figures, on a real server: what its nodes report, what GET /v1/skew and `cadastre skew` make of it. Demand that
an inventory does not show; one key that no split helps, its salts' owners and their load, and salts that share an owner."""
import itertools
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import BUILD, Cluster, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from copies import partitions  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

DEMAND = [520, 560, 600, 630, 600, 4680]
ITEMS = [50000, 51000, 49500, 50500, 50000, 50200]
# Over 16 partitions by hash: a key whose eight salts all have owners of their own, and one of which two share one.
DISTINCT, SHARING = "cherry", "quince"
OWNERS, COLD, HOT = 16, 3000, 32000  # 80 000 writes a second: 16 times 3 000, and 32 000 on one key


def begin(c, count, keyspace, capacity=None):
    """So many nodes, each with one partition; their sessions."""
    more = {"lease": "static"} | ({"capacity": capacity} if capacity else {})
    names = [f"n{i:02}" for i in range(count)]
    sessions = {n: c.call("PUT", f"/v1/nodes/{n}", {"address": f"{n}:1"} | more).expect(200)["session"] for n in names}
    c.call("POST", "/v1/keyspaces", {"name": "ks", **keyspace}).expect(201)
    wait_for(lambda: all(p["primary"] for p in partitions(c)), "owners")
    equal(sorted(p["primary"]["node"] for p in partitions(c)), sorted(sessions))
    return sessions


def report(c, sessions, partition, figures):
    """A minute of it, from the partition's node."""
    node = partition["primary"]["node"]
    sample = {"keyspace": "ks", "partition": partition["partition"], "epoch": partition["epoch"], "reads": 0, "writes": 0,
              "read_bytes": 0, "write_bytes": 0, "cpu_ms": 0, "size_bytes": 0}
    answer = c.call("POST", f"/v1/nodes/{node}/load",
                    {"session": sessions[node], "interval_ms": 60000, "partitions": [sample | figures]}).expect(202)
    equal(answer["counted"], 1)


def skew(c):
    return once(c.leader().url, "GET", "/v1/skew?keyspace=ks").expect(200)


def shown(c, *more):
    """What the command prints."""
    run = subprocess.run([str(BUILD / "cadastre"), "-e", c.leader().url, "skew", "ks", *more], capture_output=True, text=True,
                         timeout=30, check=True)
    return run.stdout


def cells(text, finding):
    return [line.split() for line in text.splitlines() if line.startswith(finding + " ")]


@test
def demand_raises_the_alarm_that_inventory_does_not():
    with Cluster(1) as c:
        sessions = begin(c, 6, {"scheme": "range", "splits": ["b", "c", "d", "e", "f"]})
        held = partitions(c)
        for p, demand, items in zip(held, DEMAND, ITEMS):
            report(c, sessions, p, {"reads": 60 * demand, "items": items, "size_bytes": 100 * items})
        seen = skew(c)
        stats = {name: seen["resources"][name]["partitions"] for name in ("requests", "items")}
        assert stats["items"]["max_to_mean"] < 1.04, stats["items"]
        equal((stats["requests"]["median"], stats["requests"]["max"]), (600, 4680))
        assert 3.69 < stats["requests"]["max_to_mean"] < 3.71, stats["requests"]
        equal([(a["finding"], a["partition"], a["value"], a["bound"]) for a in seen["advisories"]],
              [("uneven_access", held[5]["partition"], 4680, 1200)])
        equal([(f["partition"], f["node"]) for f in seen["hot_partitions"]],
              [(held[5]["partition"], held[5]["primary"]["node"])])
        text = shown(c)
        print("#", text.replace("\n", "\n# "))
        equal([row[2:7] + row[7:9] for row in cells(text, "uneven_access")],
              [["ks", str(held[5]["partition"]), held[5]["primary"]["node"], "-", "4680", "1200", "split"]])
        for quiet in ("uneven_size", "too_many_items", "too_large_bytes"):
            equal(cells(text, quiet), [])


def hot_key(limit, key):
    """The hot key's finding and the command's row of it; the nodes that its first 64 salts have in the map, and its own."""
    with Cluster(1) as c:
        sessions = begin(c, OWNERS, {"scheme": "hash", "partitions": OWNERS}, {"writes_per_s": limit})
        owner = lambda k: once(c.leader().url, "GET", f"/v1/keyspaces/ks/route?key={k}").expect(200)["primary"]["node"]
        own = owner(key)
        mine = itertools.islice((k for k in (f"cold-{i}" for i in itertools.count()) if owner(k) == own), 30)
        cold = [{"key": k, "weight": COLD // 30} for k in mine]
        for p in partitions(c):
            hot = HOT if p["primary"]["node"] == own else 0
            report(c, sessions, p, {"writes": 60 * (COLD + hot)} | (
                {"keys": cold + [{"key": key, "weight": HOT}]} if hot else {}))
        seen = skew(c)
        equal(round(seen["resources"]["writes"]["partitions"]["mean"] * OWNERS), OWNERS * COLD + HOT)
        equal([len(seen[name]) for name in ("hot_keys", "hot_partitions", "frontiers", "hot_nodes")], [1, 0, 0, 0])
        equal(seen["cause"]["kind"], "key")
        text = shown(c)
        print("#", text.replace("\n", "\n# "))
        equal(json.loads(shown(c, "-o", "json"))["hot_keys"][0]["salts"], seen["hot_keys"][0]["salts"])
        return seen["hot_keys"][0], cells(text, "hot_key")[0], [owner(f"{key}%23{i}") for i in range(64)], own


def largest(owners, count, own, share):
    """What the most loaded owner of a salt has, where the samples give the key this share of its partition's."""
    hot = (COLD + HOT) * share
    here = {n: owners[:count].count(n) for n in owners[:count]}
    return max(COLD + (HOT - hot if n == own else 0) + times * hot / count for n, times in here.items())


def check_salts(finding, row, owners, own, limit):
    salts = finding["salts"]
    count = salts["count"]
    equal((finding["value"], salts["owner_load_now"], salts["limit"]), (COLD + HOT, COLD + HOT, limit))
    equal((finding["node"], finding["remedy"], salts["placed_by"]), (own, "spread_key", "key"))
    assert abs(finding["key_share"] - HOT / (HOT + COLD)) < 0.06, finding["key_share"]
    # The owners are those that the map has for these keys, and fewer salts would not have fitted.
    equal(salts["owners"], owners[:count])
    equal(salts["sharing_an_owner"], count - len(set(owners[:count])))
    assert abs(salts["largest_owner_load"] - largest(owners, count, own, finding["key_share"])) < 20, salts
    assert salts["fits"] and largest(owners, count, own, finding["key_share"]) <= limit, salts
    assert all(largest(owners, n, own, finding["key_share"]) > limit for n in (2, 4, 8, 16) if n < count), owners
    equal(row[1:7], ["writes", "ks", str(finding["partition"]), own, finding["key"], str(COLD + HOT)])
    equal(row[10:15], [str(count), "salts,", "at", "most",
                       f"{salts['largest_owner_load']}" + ("," if salts["sharing_an_owner"] else "")])
    equal(row[15:], [str(salts["sharing_an_owner"]), "share", "an", "owner"] if salts["sharing_an_owner"] else [])


@test
def eight_salts_on_distinct_owners_bear_seven_thousand_each():
    finding, row, owners, own = hot_key(10000, DISTINCT)
    check_salts(finding, row, owners, own, 10000)
    salts = finding["salts"]
    equal((salts["count"], salts["sharing_an_owner"], len(set(salts["owners"]))), (8, 0, 8))
    assert own not in salts["owners"] and abs(salts["largest_owner_load"] - 7000) < 250, salts


@test
def salts_that_share_an_owner_are_said_to():
    finding, row, owners, own = hot_key(11500, SHARING)
    check_salts(finding, row, owners, own, 11500)
    salts = finding["salts"]
    equal((salts["count"], salts["sharing_an_owner"], len(set(salts["owners"]))), (8, 1, 7))
    assert abs(salts["largest_owner_load"] - 11000) < 400, salts


@test
def after_a_loss_figures_are_of_what_survives():
    with Cluster(1) as c:
        zones = {"n00": "a", "n01": "a", "n02": "b", "n03": "c"}
        sessions = {n: c.call("PUT", f"/v1/nodes/{n}", {"address": f"{n}:1", "labels": {"zone": z}, "capacity": {
            "requests_per_s": 1000, "bytes": 100000}}).expect(200)["session"] for n, z in zones.items()}
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["g", "n", "t"],
                                         "placement": {"spread": "zone"}}).expect(201)
        wait_for(lambda: all(p["primary"] for p in partitions(c)), "owners")
        rates = {"n00": 200, "n01": 200, "n02": 200, "n03": 600}
        keys = [{"key": "u", "weight": 550}] + [{"key": f"w{i}", "weight": 5} for i in range(10)]
        for p in partitions(c):
            node = p["primary"]["node"]
            report(c, sessions, p, {"writes": 60 * rates[node], "size_bytes": 1000, "keys": keys if node == "n03" else []})
        before = skew(c)
        spare = {h["resource"]: h for h in before["headroom"]}["requests"]
        equal((before["nodes"], before["nodes_lost"], spare["now"]), (4, 0, 0.7))
        equal((spare["one_lost"]["value"], spare["one_lost"]["headroom"]), ("a", 0.4))
        equal([(f["node"], f["key"]) for f in before["hot_keys"]], [("n03", "u")])
        # n02 is lost. Its partition's load is still to be borne, by the three that live.
        c.call("DELETE", "/v1/nodes/n02/session", {"session": sessions["n02"]}).expect(200)
        wait_for(lambda: skew(c)["nodes_lost"] == 1, "the loss")
        after = skew(c)
        spare = {h["resource"]: h for h in after["headroom"]}["requests"]
        equal((after["nodes"], after["partitions"], spare["now"]), (3, 4, 0.6))
        equal((spare["one_lost"]["value"], spare["one_lost"]["headroom"]), ("a", -0.2))
        nodes = after["resources"]["requests"]["nodes"]
        equal((nodes["count"], nodes["max"]), (3, 0.6))
        assert abs(nodes["mean"] - (200 + 200 + 600) / 3000) < 0.001, nodes
        equal(sorted((label["value"], label["nodes"]) for label in after["labels"]), [("a", 2), ("c", 1)])
        # What is at fault is told apart as before: the key, not its node.
        equal([(f["node"], f["key"]) for f in after["hot_keys"]], [("n03", "u")])
        equal(after["hot_nodes"], [])


main()
