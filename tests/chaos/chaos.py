#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks a cluster in pairs of faults for CHAOS_MINUTES while clients write and read, then checks all that they saw.

`make chaos CHAOS_MINUTES=5 SEED=n`. Every pair of kinds is taken before one comes again. Between two pairs the cluster must
come back by itself and acknowledge commands. A run is void, and fails, when too little was acknowledged or too many faults
had no effect: green says something only about faults that happened."""
import argparse
import itertools
import os
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "integration"), str(HERE)]
from cluster import wait_for  # noqa: E402  pylint: disable=wrong-import-position
from faults import ALL, ended  # noqa: E402  pylint: disable=wrong-import-position
from netns import NetCluster, why_not  # noqa: E402  pylint: disable=wrong-import-position
from observers import Frontier, Leaders, PinnedReader, Reader, Recorder, Watcher  # noqa: E402  pylint: disable=wrong-import-position
from workload import Writers  # noqa: E402  pylint: disable=wrong-import-position

FLAGS = ("--election-timeout", "500ms", "--heartbeat-interval", "60ms", "--snapshot-threshold", "64",
         "--snapshot-trailing", "64")
BACK_S = 180  # generous: the machine may be busy with other things
ACKNOWLEDGED_BETWEEN = 20


class PacedWriters(Writers):
    most_partitions, pace_s = 40, 0.02


def pairs(rand):
    """Every pair of faults of different kinds, in random order, again and again."""
    both = [p for p in itertools.combinations(ALL, 2) if p[0].kind != p[1].kind]
    while True:
        rand.shuffle(both)
        for a, b in both:
            yield (a, b) if rand.random() < 0.5 else (b, a)


class Run:
    def __init__(self, cluster, seed):
        self.c, self.rand, self.tally, self.rounds = cluster, random.Random(seed), {}, 0
        self.started = time.monotonic()
        for s in cluster.servers:
            s.expected = False

    def say(self, text):
        print(f"# {time.monotonic() - self.started:6.1f}s {text}", flush=True)

    def nobody_fell(self):
        for s in self.c.servers:
            assert s.expected or not ended(s), f"server {s.id} ended by itself with {s.process.returncode}\n{s.tail()}"

    def nap(self, least, most):
        until = time.monotonic() + self.rand.uniform(least, most)
        while time.monotonic() < until:
            self.nobody_fell()
            time.sleep(0.05)

    def round(self, first, second, writers):
        self.rounds += 1
        self.say(f"round {self.rounds}: {first.__name__} + {second.__name__}")
        faults = [f(self.c, self.rand, self.c.base) for f in (first, second)]
        for f in faults:
            f.begin()
            self.nap(0.2, 3)
        # Changes of membership need a quorum to end: last.
        for f in sorted(self.rand.sample(faults, 2), key=lambda f: f.kind == "membership"):
            f.end()
            if f.kind != "membership":
                self.nap(0, 1)
        self.back(writers)
        for f in faults:
            count = self.tally.setdefault(type(f).__name__, [0, 0])
            count[0] += 1
            count[1] += f.effect
            self.say(f"  {type(f).__name__} ({f.detail}): {'took effect' if f.effect else 'void'}")

    def back(self, writers):
        for s in self.c.servers:
            s.expected = False
        since = time.monotonic()
        self.nobody_fell()

        def ready():
            self.nobody_fell()
            return all((s.cluster() or {}).get("leader") for s in self.c.servers)

        wait_for(ready, "every server to see a leader after the faults", BACK_S)
        target = writers.acknowledged + ACKNOWLEDGED_BETWEEN
        wait_for(lambda: writers.acknowledged >= target or writers.errors, "acknowledged commands after the faults", BACK_S)
        assert not writers.errors, writers.errors
        self.say(f"  back after {time.monotonic() - since:.1f} s, {writers.acknowledged} acknowledged")


def prepare(c):
    for n in ("n1", "n2", "n3"):
        c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"}).expect(200, 201)
    made = c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d", "m", "t"]}).expect(201)
    return made["revision"]


def judge(run, writers, readers):
    """The validity gate."""
    begun, real = (sum(column) for column in zip(*run.tally.values()))
    answered = sum(r.answered for r in readers)
    run.say(f"{run.rounds} rounds, {begun} faults, {real} took effect; {writers.acknowledged} commands, {answered} reads")
    for name, (times, effective) in sorted(run.tally.items()):
        run.say(f"  {name}: {effective} of {times}")
    assert real * 2 > begun, "void: most faults had no effect"
    assert writers.acknowledged >= run.rounds * ACKNOWLEDGED_BETWEEN, "void: too little was acknowledged"
    assert answered >= run.rounds * 5, "void: too little was read"


def break_things(c, seed, minutes):
    run, made = Run(c, seed), prepare(c)
    schedule = pairs(run.rand)
    with PacedWriters(c, "ks", seed=seed) as writers, Recorder(c, "ks") as followed, Watcher(c, "ks") as watched:
        frontier = Frontier(writers, made)
        readers = [Reader(c, "ks", frontier, seed + i).start() for i in range(2)]
        pinned = [PinnedReader(c, "ks", frontier, i, seed + i).start() for i in range(2 * len(c.servers))]
        looking = [*readers, *pinned, Leaders(c, seed).start()]
        try:
            while time.monotonic() < run.started + 60 * minutes:
                run.round(*next(schedule), writers)
                for thread in (*looking, followed, watched):
                    assert thread.error is None, thread.error
        finally:
            writers.stopping = True
            for thread in looking:
                thread.stopping = True
        for thread in looking:
            thread.stop()
        c.wait_ready()
        writers.stop()
        checked = writers.check()
        followed.check()
        watched.check()
    for reader in readers:
        compared = followed.compare(reader.seen), watched.compare(reader.seen)
        run.say(f"{len(reader.seen)} maps read, {compared} compared with those of the followers")
    run.say(f"{checked} acknowledged commands found, resets {followed.resets} and {watched.resets}")
    c.agree()
    judge(run, writers, readers)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=5)
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--servers", type=int, default=3)
    options.add_argument("--keep", action="store_true", help="leave data and logs where they are")
    options = options.parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    print(f"# seed {seed}", flush=True)
    reason = why_not()
    if reason is not None:
        print(f"1..0 # SKIP {reason}")
        return 0
    with NetCluster(options.servers, flags=FLAGS) as c:
        c.keep = options.keep
        print(f"# data in {c.base}", flush=True)
        break_things(c, seed, options.minutes)
        c.check_all()
    print(f"ok 1 - chaos, seed {seed}\n1..1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
