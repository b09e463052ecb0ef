# SPDX-License-Identifier: Apache-2.0
"""The demo's first part: a keyspace of 1 000 partitions, and a router that follows while they are split, merged and
reassigned and while the leader is killed."""
import bisect
import random
import threading
import time

from cluster import Cluster, Unreachable, once, wait_for
from demo_cities import equal_cuts, say

PARTITIONS = 1000
SHARDS = 64
NODES = [(f"n{i}", f"127.0.0.1:{9000 + i}", "abc"[i % 3]) for i in range(1, 7)]
CHANGES = 60


class Router:
    """A cached map of one keyspace, kept current by the change feed. Never goes back to an older entry."""

    def __init__(self, cluster, keyspace):
        self.cluster, self.keyspace = cluster, keyspace
        self.starts, self.routes, self.revision = [], [], 0
        self.changes = self.resets = self.failovers = 0
        self.lock = threading.Lock()
        self.stopping = False
        self._load(cluster.servers[0].url)
        self.thread = threading.Thread(target=self._follow)
        self.thread.start()

    def _set(self, routes, revision):
        routes = sorted(routes, key=lambda r: r.get("start", "").encode())
        with self.lock:
            self.routes = routes
            self.starts = [r.get("start", "").encode() for r in routes]
            self.revision = revision

    def _load(self, url):
        answer = once(url, "GET", f"/v1/keyspaces/{self.keyspace}/map").expect(200)
        self._set(answer["routes"], answer["revision"])

    def _follow(self):
        servers = list(self.cluster.servers)
        at = 0
        while not self.stopping:
            try:
                answer = once(
                    servers[at].url, "GET",
                    f"/v1/keyspaces/{self.keyspace}/changes?since={self.revision}&wait_ms=300", timeout=3,
                )
            except Unreachable:
                self.failovers += 1
                at = (at + 1) % len(servers)
                time.sleep(0.02)
                continue
            if answer.status == 410:
                self.resets += 1
                self._load(servers[at].url)
            elif answer.status == 200:
                self._apply(answer.json)
            else:
                at = (at + 1) % len(servers)

    def _apply(self, body):
        if not body["changes"]:
            self.revision = max(self.revision, body["revision"])
            return
        known = {r["partition"]: r for r in self.routes}
        for change in body["changes"]:
            for partition in change["removed"]:
                known.pop(partition, None)
            for route in change["routes"]:
                known[route["partition"]] = route
            self.changes += 1
        self._set(known.values(), body["revision"])

    def lookup(self, key):
        with self.lock:
            return self.routes[bisect.bisect_right(self.starts, key.encode()) - 1]

    def stop(self):
        self.stopping = True
        self.thread.join()


def set_up(c, cities):
    for name, address, zone in NODES:
        c.call("PUT", f"/v1/nodes/{name}", {"address": address, "labels": {"zone": zone}, "lease": "static"}).expect(
            200, 201
        )
    say(f"  {len(NODES)} nodes in 3 zones registered")
    cuts = equal_cuts(cities, PARTITIONS)
    started = time.monotonic()
    made = c.call("POST", "/v1/keyspaces", {"name": "cities", "scheme": "range", "splits": cuts}).expect(201)
    say(f"  keyspace cities: {made['partitions']} partitions in {1000 * (time.monotonic() - started):.0f} ms")
    made = c.call("POST", "/v1/keyspaces", {"name": "sessions", "scheme": "hash", "partitions": SHARDS}).expect(201)
    say(f"  keyspace sessions: {made['partitions']} hash shards")
    starts = [""] + cuts
    population = [0] * len(starts)
    for key, people in cities:
        population[bisect.bisect_right(starts, key) - 1] += people
    mean = sum(population) / len(population)
    largest = max(range(len(population)), key=population.__getitem__)
    say(f"  people a partition: mean {mean:,.0f}, largest {population[largest]:,} (from '{starts[largest]}')")


def change_something(c, rand, router, cities):
    """One split, merge or reassignment. Returns what it did, or None when it was refused."""
    route = router.lookup(rand.choice(cities)[0])
    path = f"/v1/keyspaces/cities/partitions/{route['partition']}"
    kind = rand.choice(("split", "merge", "move"))
    if kind == "split":
        inside = [k for k, _ in cities if k > route.get("start", "") and ("end" not in route or k < route["end"])]
        if not inside:
            return None
        answer = c.call("POST", path + "/split", {"at": [inside[len(inside) // 2]], "expect_epoch": route["epoch"]})
    elif kind == "merge":
        if "end" not in route:
            return None
        neighbour = router.lookup(route["end"])
        if neighbour["primary"] != route["primary"]:  # parts of different owners can't become one
            c.call(
                "POST", f"/v1/keyspaces/cities/partitions/{neighbour['partition']}/move",
                {"from": neighbour["primary"]["node"], "to": route["primary"]["node"], "empty": True},
            )
        answer = c.call("POST", path + "/merge", {"with": neighbour["partition"]})
    else:
        to = rand.choice([n for n, _, _ in NODES if n != route["primary"]["node"]])
        answer = c.call("POST", path + "/move", {"from": route["primary"]["node"], "to": to, "empty": True})
    return kind if answer.status < 300 else f"{kind} refused ({answer.json['code']})"


def make_changes(c, router, cities):
    rand = random.Random(1)
    done = {}
    pause = 0.0
    for number in range(CHANGES):
        if number == CHANGES // 2:
            pause = kill_leader(c)
        what = change_something(c, rand, router, cities)
        if what is not None:
            done[what] = done.get(what, 0) + 1
    for what, count in sorted(done.items()):
        say(f"  {count:3d} × {what}")
    return pause


def kill_leader(c):
    leader = c.leader()
    term = leader.cluster()["term"]
    say(f"  killing the leader, server {leader.id}, in the middle of it …")
    started = time.monotonic()
    leader.kill()
    wait_for(lambda: (c.leader().cluster() or {"term": 0})["term"] > term, "a new leader")
    c.call("GET", "/v1/keyspaces/cities/route?key=x&consistency=linearizable").expect(200)
    took = time.monotonic() - started
    say(f"  server {c.leader().id} leads, commands go on after {1000 * took:.0f} ms")
    return took


def compare(c, router, cities):
    """The router's cache against the directory, over every city."""
    want = c.call("GET", "/v1/keyspaces/cities/map?consistency=linearizable").expect(200)
    wait_for(lambda: router.revision >= want["revision"], "the router to be current")
    starts = [r.get("start", "").encode() for r in want["routes"]]
    wrong = 0
    started = time.monotonic()
    for key, _ in cities:
        right = want["routes"][bisect.bisect_right(starts, key.encode()) - 1]
        wrong += router.lookup(key) != right
    rate = len(cities) / (time.monotonic() - started)
    return wrong, len(want["routes"]), rate


def run(cities):
    """True when it held."""
    say("1. Three servers, one map")
    with Cluster(3, flags=()) as c:
        leader = c.leader()
        say(f"  servers {', '.join(s.url for s in c.servers)}; server {leader.id} leads")
        set_up(c, cities)
        router = Router(c, "cities")
        say(f"  a router follows 'cities' from revision {router.revision}")
        say(f"  the map changes {CHANGES} times under it:")
        try:
            pause = make_changes(c, router, cities)
            for s in c.servers:
                if not s.alive():
                    s.start()
                    say(f"  server {s.id} is back and catches up")
            c.wait_ready()
            wrong, partitions, rate = compare(c, router, cities)
            state_hash = c.agree()
        finally:
            router.stop()
    say("Summary of the map")
    say(f"  cities looked up in the router's cache   {len(cities):,} ({rate:,.0f}/s in Python), wrong: {wrong}")
    say(f"  partitions now                           {partitions:,}")
    say(f"  changes the router followed              {router.changes}, whole maps fetched again: {router.resets}")
    say(f"  pause of commands when the leader died   {1000 * pause:.0f} ms")
    say(f"  state hash, the same on all servers      {state_hash}")
    return wrong == 0
