#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The balancer in `auto` over the reports of real nodes, under a load that moves, while servers and nodes are broken.

`make chaos-balancer SEED=n SEEDS_BALANCER=n`. Three servers, six shardkv nodes in three zones of one region and an idle one in
another region, where the keyspace must not go; keys follow a fast sun, and one key is too hot. All the time it is asked
whether a budget is exceeded, a partition is in two operations, a copy is where it must not be. In the end nothing that was
acknowledged is lost, nothing stale was accepted, nothing was moved twice within its residence, and the balancer goes on."""
import argparse
import collections
import json
import os
import pathlib
import random
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(HERE.parent / "harness"), str(ROOT / "examples"), str(HERE)]
from balancer_judge import busiest, in_two_operations, moved_too_soon, over_budget  # noqa: E402  pylint: disable=wrong-import-position
from cluster import Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from demo_cities import CITIES, equal_cuts, read_cities  # noqa: E402  pylint: disable=wrong-import-position
from movement_faults import kill_leader, move_leader, pause_leader  # noqa: E402  pylint: disable=wrong-import-position
from movement_verdict import check_writers, final_states, sanitized  # noqa: E402  pylint: disable=wrong-import-position
from movement_world import OVER_LEASE_S, SETTINGS, Load, World  # noqa: E402  pylint: disable=wrong-import-position
from netns import why_not  # noqa: E402  pylint: disable=wrong-import-position

NODES, PARTITIONS, WRITERS = 7, 12, 8
AWAY = "n7"  # in the other region, with nothing to do
HERE_NODES = [f"n{i}" for i in range(1, NODES)]
DAY_S, CALM_S, REST_S, LEAST_WRITES = 60, 30, 1.5, 500
DEMAND = {"rate": 1200, "reads_ppm": 850000, "value_bytes": 256, "hot_key": "US/CA/Los Angeles/the star", "hot_ppm": 150000,
          "day_ms": 1000 * DAY_S, "from_minute": 300}
THRESHOLDS = {"round_ms": 500, "sustain_ms": 1500, "quiet_ms": 3000, "residence_ms": 8000, "return_ms": 16000,
              "half_life_ms": 3000}
EVEN = 1.8  # what the busiest node may have of the mean when all is whole again; 2.5 and more without a balancer


class Sunny(World):
    """A world for the balancer."""

    options = ("--report-ms", "500")
    settings = {**SETTINGS, "recovery_delay_ms": 5000, "distrust_ms": 100}

    def labels(self, name):
        region = "us" if name == AWAY else "eu"
        return (f"region={region}", f"zone={region}-{int(name[1:]) % 3}")

    def keyspace(self):
        return {"splits": equal_cuts(read_cities(), PARTITIONS), "placement": {"require": {"region": ["eu"]}, "spread": "zone"}}

    def make_load(self):
        self.rates = self.cluster.base / "rates.jsonl"
        self.cluster.call("PATCH", "/v1/balancer", {"mode": "auto", "thresholds": THRESHOLDS, "budgets": {"release_ms": 0}}).expect(200)
        named = {**DEMAND, "rates": self.rates}
        return Load(self, self.seconds + 3 * CALM_S, WRITERS, 1, [str(CITIES), *(f"{k}={v}" for k, v in named.items())])

    def asked(self, seconds):
        """max/mean of the last so many seconds."""
        lines = [json.loads(line) for line in self.rates.read_text(encoding="utf-8").splitlines()]
        return busiest([s for s in lines if s["second"] >= lines[-1]["second"] - seconds], HERE_NODES) if lines else 0


class Watch(threading.Thread):
    """Asks the leader all the time, and keeps all that it heard."""

    PERIOD_S = 0.25

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.stopping, self.polls = world, False, 0
        self.broken, self.operations, self.proposals, self.idle = [], {}, {}, collections.Counter()
        self.start()

    def look(self):
        w = self.world
        balancer, routes = w.read("/v1/balancer"), w.routes()
        operations, proposals = w.read("/v1/operations?limit=1000"), w.read("/v1/balancer/proposals?limit=1000")
        if None in (balancer, operations, proposals):
            return
        self.polls += 1
        self.idle[balancer["idle"]["code"] if balancer["idle"] else "active"] += 1
        self.broken += over_budget(balancer)
        self.broken += [f"partition {p} is in two operations" for p in in_two_operations(operations["operations"])]
        self.broken += [f"partition {r['partition']} has a copy on {AWAY}" for r in routes
                        if AWAY in [c["node"] for c in r["replicas"]]]
        self.operations.update({o["id"]: o for o in operations["operations"]})
        self.proposals.update({p["id"]: p for p in proposals["proposals"]})

    def run(self):
        while not self.stopping:
            try:
                self.look()
            except (Unreachable, AssertionError, OSError) as why:
                print(f"#   not asked: {why}", flush=True)
            time.sleep(self.PERIOD_S)

    def end(self):
        self.stopping = True
        self.join(timeout=30)
        self.look()

    def done(self):
        return [p for p in self.proposals.values() if p.get("settled_by") == "balancer" and p["state"] == "done"]


class Moment:
    """For the faults of servers, which chaos-move has too."""

    def __init__(self, world, rand):
        self.world, self.rand, self.note = world, rand, ""


def node_fault(what):
    def fault(m):
        node = m.world.nodes[m.rand.choice(HERE_NODES)]
        m.note = f" {node.name}"
        yield from what(m, node)
    return fault


def kill(m, node):
    node.kill()
    yield not node.alive()
    time.sleep(m.rand.choice((0.2, OVER_LEASE_S, 3 * OVER_LEASE_S)))  # before a lease, after it, and after copies are made anew
    node.start()


def pause(m, node):
    node.send(19)
    time.sleep(OVER_LEASE_S)
    yield node.alive()
    node.send(18)


def restart(_, node):
    yield node.stop() == 0
    node.start()


def cut_from_servers(m, node):
    for s in m.world.cluster.servers:
        node.deaf_to(s)
    time.sleep(OVER_LEASE_S)
    yield node.dropped() > 0
    node.heal()


def cut_pair(m):
    """Two that have something to say to each other: the primary and another copy of a partition that is asked for."""
    pairs = [[c["node"] for c in r["replicas"]] for r in m.world.routes() if r["primary"] and len(r["replicas"]) > 1]
    node, other = (m.world.nodes[n] for n in m.rand.choice(pairs)[:2])
    m.note = f" {node.name} and {other.name}"
    node.deaf_to(other)
    other.deaf_to(node)
    time.sleep(2 * OVER_LEASE_S)
    yield node.dropped() + other.dropped() > 0
    node.heal()
    other.heal()


def cut_leader(m):
    m.world.cluster.isolate(m.world.cluster.leader(), by_reset=m.rand.random() < 0.5)
    time.sleep(OVER_LEASE_S)
    yield sum(s.dropped() for s in m.world.cluster.servers) > 0
    m.world.cluster.heal()


# Name, function, whether it needs namespaces.
FAULTS = {
    "kill node": (node_fault(kill), False),
    "pause node": (node_fault(pause), False),
    "restart node": (node_fault(restart), False),
    "cut node from servers": (node_fault(cut_from_servers), True),
    "cut two nodes": (cut_pair, True),
    "kill leader": (kill_leader, False),
    "pause leader": (pause_leader, False),
    "move leader": (move_leader, False),
    "cut leader": (cut_leader, True),
}


def break_things(w, rand, spaces, until):
    """Every fault once, in an order of the seed, and again as long as there is time. Counts those that took effect."""
    names, hits, todo = [f for f, (_, needs) in FAULTS.items() if spaces or not needs], collections.Counter(), []
    while time.monotonic() < until:
        todo = todo or rand.sample(names, len(names))
        name = todo.pop()
        m = Moment(w, rand)
        steps = FAULTS[name][0](m)
        effect = next(steps)
        for _ in steps:
            pass
        w.whole_again()
        w.cluster.wait_ready()
        hits[name] += bool(effect)
        print(f"#   {name}{m.note}{'' if effect else ': no effect'}, {len(w.routes())} partitions, busiest node {w.asked(3):.2f} "
              "times the mean", flush=True)
        time.sleep(REST_S)
    return hits


def comes_to_rest(w):
    """All is whole, and the load goes on: it works on, and evens the load out."""
    def works():
        balancer = w.read("/v1/balancer")
        return balancer and (balancer["idle"] or {"code": "active"})["code"] not in ("quiet", "recovering", "breaker", "braked")
    wait_for(works, "the balancer to work again", deadline_s=CALM_S)
    wait_for(lambda: w.asked(3) < EVEN, f"the busiest node to have less than {EVEN} times the mean", deadline_s=CALM_S)
    return w.asked(3)


def finals(w, lines):
    """Of what was acknowledged before a split or a merge: the partition that has it now has it for the old one too."""
    events = list(final_states(w))
    kept, now = {e["id"] for e in events}, {e["key"] for e in events}
    for line in lines:
        if line["partition"] not in now and line["id"] in kept:
            events.append({"event": "final", "key": line["partition"], "id": line["id"]})
    return events


def nothing_runs(w):
    """Every operation has ended, or asks for a person."""
    running = []

    def over():
        answer = w.read("/v1/operations?limit=1000")
        if answer is not None:
            running[:] = [o for o in answer["operations"] if o["state"] in ("queued", "running")]
        return answer is not None and all(o.get("attention") for o in running)
    try:
        wait_for(over, "the last operations", deadline_s=60)
    except AssertionError:
        print(f"# they go on: {json.dumps(running)}", flush=True)
        raise


def judge(w, watch):
    w.load.process.terminate()  # it ends early, with its account
    code, summary, err, lines = w.load.finish()
    watch.end()
    w.cluster.call("PATCH", "/v1/balancer", {"mode": "off"}).expect(200)
    nothing_runs(w)
    bad = {k: summary.get(k) for k in ("lost", "stale_accepted", "unsettled", "wrong_reads")}
    assert code == 0 and not any(bad.values()), f"the load: {code} {bad} {err}"
    assert len(lines) == summary["acknowledged"] >= LEAST_WRITES, f"void: {len(lines)} writes"
    assert not watch.broken, f"what must not be: {watch.broken[:5]}"
    soon = moved_too_soon(watch.proposals.values(), watch.operations.values(), THRESHOLDS["residence_ms"])
    assert not soon, f"moved twice: {soon[:5]}"
    check_writers(w, lines, finals(w, lines), LEAST_WRITES)
    w.cluster.agree()
    w.cluster.check_all()
    sanitized(w)
    return summary


def run_seed(seed, seconds, spaces):
    rand = random.Random(seed)
    with Sunny(NODES, 1, seconds, spaces, direct=True) as w:
        watch = Watch(w)
        wait_for(watch.done, "the balancer to begin", deadline_s=CALM_S)
        # The load goes on until all has come to rest, however long the last fault took to mend.
        hits = break_things(w, rand, spaces, w.load.until - 4 * CALM_S)
        w.whole_again()
        w.wait_writable()
        even = comes_to_rest(w)
        summary = judge(w, watch)
        kinds = collections.Counter(p["kind"] for p in watch.done())
        print(f"# {sum(hits.values())} faults took effect: {dict(hits)}")
        print(f"# {summary['acknowledged']} writes acknowledged and {summary['reads']} reads; {dict(kinds)} done by the balancer, "
              f"{len(watch.operations)} operations; asked {watch.polls} times, idle: {dict(watch.idle)}; "
              f"in the end the busiest node had {even:.2f} times the mean", flush=True)
        assert kinds["split"] and kinds["transfer"] + kinds["move"], f"void: {kinds}"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    options.add_argument("--seconds", type=int, default=120, help="of load, for each, before the calm at its end")
    options = options.parse_args()
    first = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    reason = why_not()
    if reason:
        print(f"# without cuts: {reason}")
    for seed in range(first, first + options.seeds):
        print(f"# seed {seed}", flush=True)
        run_seed(seed, options.seconds, reason is None)
        print(f"ok {seed - first + 1} - the balancer under faults, seed {seed}", flush=True)
    print(f"1..{options.seeds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
