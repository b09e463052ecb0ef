#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Movements of real processes, broken in every stage: a table of stages and faults, in an order of a seed.

`make chaos-move SEEDS=n CELLS=n`. Three servers, shardkv nodes and their load; reports of the chosen stage are held back by a
proxy, so that the operation is in it when the fault comes. A cell counts when the fault came in its stage, took effect, and
writes were acknowledged around it. At the end of each world the histories are judged (movement_verdict.py); a run fails
when a cell could not be hit."""
import argparse
import collections
import datetime
import os
import pathlib
import random
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE)]
from cluster import wait_for  # noqa: E402  pylint: disable=wrong-import-position
from movement_faults import FAULTS, Moment, Probe, applies  # noqa: E402  pylint: disable=wrong-import-position
from movement_verdict import judge, pauses_ms, sanitized, write_ms  # noqa: E402  pylint: disable=wrong-import-position
from movement_world import DEADLINE_S, ENDED, World  # noqa: E402  pylint: disable=wrong-import-position
from netns import why_not  # noqa: E402  pylint: disable=wrong-import-position
from reports_proxy import Hold  # noqa: E402  pylint: disable=wrong-import-position

STAGES = ("QUEUED", "PREPARE", "SNAPSHOT", "COPY", "CATCH_UP", "DUAL_WRITE", "VALIDATE", "FENCE", "CUTOVER", "WINDOW", "CLEANUP")
ROWS = [("move", s) for s in STAGES] + [("transfer", "FENCE"), ("transfer", "CUTOVER"), ("replica", "COPY"),
                                        ("replica", "VALIDATE"), ("replica", "CLEANUP")]
TRIES, WORLD_S, ROUND_S, ROUND_WRITES = 4, 90, 16, 10
PAUSES, PAUSES_S = 20, 45


class Missed(Exception):
    """The operation was not where the fault was to come."""


class Run:
    def __init__(self, seed, spaces, sync=None):
        self.rand, self.spaces, self.sync = random.Random(seed), spaces, sync
        self.hits, self.voids = collections.Counter(), collections.Counter()
        self.fenced_ms, self.pauses, self.writes, self.write_ms, self.probes, self.outcomes = [], [], 0, [], 0, collections.Counter()

    def cells(self, count):
        faults = [f for f, (_, spaces) in FAULTS.items() if self.spaces or not spaces]
        table = [(kind, stage, f) for kind, stage in ROWS for f in faults if applies(f, kind, stage)]
        self.rand.shuffle(table)
        return table[:count] if count else table

    # --- one cell ---

    def begin(self, w, kind):
        """(the operation, its source's node, its destination's)"""
        for route in self.rand.sample(w.routes(), 3):
            body, what = {}, "move"
            source, others = route["primary"]["node"], [r["node"] for r in route["replicas"] if r["role"] == "sync"]
            free = w.free_nodes(route)
            if kind == "transfer" and others:
                what, body = "transfer", {"to": self.rand.choice(others)}
            elif kind == "replica" and others and free:
                body = {"from": self.rand.choice(others), "to": self.rand.choice(free).name}
            elif kind == "move" and free:
                body = {"from": source, "to": self.rand.choice(free).name}
            else:
                continue
            answer = w.start_operation(what, route["partition"], body)
            if answer.status == 202:
                return answer.json, w.nodes[source], w.nodes[body["to"]]
        raise Missed("no operation could be begun")

    def in_stage(self, w, op, stage):
        """Waits until it is there for certain."""
        hold = w.proxy.hold
        wait_for(lambda: hold.arrived.is_set() or self.state(w, op) in ENDED, f"operation {op['id']} to be in {stage}",
                 deadline_s=DEADLINE_S)
        now = w.operation(op["id"])
        if now is None or now["stage"] != stage:
            raise Missed(f"in {now and now['stage']}, not {stage}")

    def state(self, w, op):
        now = w.operation(op["id"])
        return now["state"] if now else None

    def end(self, w, op):
        """Ended by its deadline, or a person is asked for."""
        last = {}

        def over():
            last.update(w.operation(op["id"]) or {})
            return last.get("state") in ENDED
        try:
            wait_for(over, "its end", deadline_s=DEADLINE_S)
        except AssertionError:
            assert last.get("attention"), f"the operation neither ended nor asked for anybody: {last}"
        return last

    def cell(self, w, probe, kind, stage, fault):
        w.wait_writable()
        before = w.load.acknowledged()
        w.proxy.held_bodies.clear()
        w.proxy.hold = None if stage == "QUEUED" or fault == "none" else Hold(stage, w.last)
        op, source, destination = self.begin(w, kind)
        w.last = op["id"]
        if w.proxy.hold:
            self.in_stage(w, op, stage)
            probe.look(op["id"], op["partition"])
        moment = Moment(w, self.rand, op, stage, source, destination)
        at_ms = time.time() * 1000
        steps = FAULTS[fault][0](moment)
        effect = next(steps)
        if w.proxy.hold:
            probe.look(op["id"], op["partition"])
            if self.rand.random() < 0.5:  # what was held comes before it is healed
                w.proxy.hold.release()
                moment.note += " early"
        for _ in steps:
            pass
        self.heal(w)
        last = self.end(w, op)
        probe.look(op["id"], op["partition"])
        w.wait_writable()
        if stage == "QUEUED":
            self.was_queued(last, at_ms)
        wrote = w.load.acknowledged() - before
        self.outcomes[last["state"]] += 1
        print(f"#   {kind} {stage}: {fault}{moment.note}: {last['state']} in {last['stage']}, attempt {last['attempt']}, "
              f"{wrote} writes{'' if effect else ', no effect'}", flush=True)
        return effect and wrote >= ROUND_WRITES

    @staticmethod
    def was_queued(last, at_ms):
        left = next((s for s in last["stages"] if s["stage"] != "QUEUED"), None)
        if left and time_ms(left["at"]) < at_ms:
            raise Missed("admitted before the fault")

    @staticmethod
    def heal(w):
        w.proxy.twice = False
        if w.proxy.hold:
            w.proxy.hold.release()
            w.proxy.hold = None
        w.whole_again()
        w.cluster.wait_ready()

    # --- one world after the other ---

    def world(self, todo, seconds=WORLD_S):
        """As many of the cells as there is time for; those that were tried are taken out of `todo`."""
        sync = self.sync
        if sync is None:
            sync = 1 if any(kind != "move" for kind, _, _ in todo[:8]) or self.rand.random() < 0.5 else 0
        mine = [c for c in todo if sync or c[0] == "move"]
        with World(5 if sync else 4, sync, seconds, self.spaces) as w:
            print(f"# a world with {sync} replicas in sync, {len(todo)} cells to go, in {w.cluster.base}", flush=True)
            probe, w.last = Probe(w), 0
            for c in mine:
                if w.load.left_s() < ROUND_S:
                    break
                self.try_cell(w, probe, c, todo)
            lines = judge(w, probe, ROUND_WRITES)
            sanitized(w)
            self.writes += len(lines)
            self.probes += probe.refused

    def pauses_of(self, moves, seconds):
        """The write pause of moves that nobody disturbs, by agents that talk to the servers themselves."""
        with World(4, 0, seconds, self.spaces, direct=True) as w:
            print(f"# {moves} undisturbed moves, in {w.cluster.base}", flush=True)
            probe, w.cutovers, w.last = Probe(w), [], 0
            while len(w.cutovers) < moves and w.load.left_s() > 3:
                op, _, _ = self.begin(w, "move")
                last = self.end(w, op)
                assert last["state"] == "done", f"an undisturbed move: {last}"
                w.cutovers.append((op["partition"], last["epoch_after"]))
                at = {s["stage"]: time_ms(s["at"]) for s in last["stages"]}
                self.fenced_ms.append(at["WINDOW"] - at["FENCE"])
            lines = judge(w, probe, ROUND_WRITES)
            self.pauses += pauses_ms(lines, w.cutovers)
            self.write_ms.append(write_ms(lines))

    def try_cell(self, w, probe, c, todo):
        hit = False
        try:
            hit = self.cell(w, probe, *c)
        except Missed as why:
            print(f"#   {' '.join(c)}: missed: {why}", flush=True)
            self.heal(w)
            wait_for(lambda: (r := w.read("/v1/operations?state=running")) and not r["operations"], "no operation to run")
        if hit:
            self.hits[c] += 1
            todo.remove(c)
        else:
            self.voids[c] += 1
            todo.remove(c)
            if self.voids[c] < TRIES:
                todo.append(c)

    def report(self, cells):
        print("# hits by stage and fault; - not asked for, 0 never hit:")
        wanted, width = set(cells), max(map(len, FAULTS))
        heads = [f"{'' if kind == 'move' else kind[0] + ':'}{stage}"[:9] for kind, stage in ROWS]
        print(f"# {'':{width}} " + " ".join(f"{h:>9}" for h in heads))
        for fault in [f for f in FAULTS if any(f == c[2] for c in cells)]:
            row = [str(self.hits[(*r, fault)]) if (*r, fault) in wanted else "-" for r in ROWS]
            print(f"# {fault:{width}} " + " ".join(f"{v:>9}" for v in row))
        print(f"# {sum(self.hits.values())} cells hit, {sum(self.voids.values())} tries void, {self.writes} writes acknowledged, "
              f"{self.probes} stale writes refused, operations {dict(self.outcomes)}")
        if self.pauses:
            durable = statistics.median(self.write_ms)
            print(f"# write pause of {len(self.pauses)} undisturbed moves: median {statistics.median(self.pauses):.1f} ms, of which the "
                  f"directory's FENCE to WINDOW {statistics.median(self.fenced_ms):.1f} ms; a durable write: median {durable:.1f} ms; ten of them {10 * durable:.1f} ms")
        return [c for c in cells if not self.hits[c]]


def time_ms(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


def run_seed(seed, count, spaces, only=(), sync=None):
    """Returns the cells that were not hit."""
    run = Run(seed, spaces, sync)
    cells = list(only) or run.cells(count)
    todo = list(cells)
    while todo:
        run.world(todo, min(WORLD_S, ROUND_S * (len(todo) + 1)))
    if not only:
        run.pauses_of(PAUSES, PAUSES_S)
    return run.report(cells)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    options.add_argument("--cells", type=int, default=0, help="of the table; 0: all")
    options.add_argument("--only", action="append", default=[], metavar="KIND:STAGE:FAULT", help="these cells")
    options.add_argument("--sync", type=int, help="so many replicas in sync in every world")
    options = options.parse_args()
    only = [tuple(cell.split(":")) for cell in options.only]
    first = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    reason = why_not()
    if reason:
        print(f"# without cuts: {reason}")
    failed = 0
    for seed in range(first, first + options.seeds):
        print(f"# seed {seed}", flush=True)
        missed = run_seed(seed, options.cells, reason is None, only, options.sync)
        failed += bool(missed)
        print(f"{'not ok' if missed else 'ok'} {seed - first + 1} - movements under faults, seed {seed}"
              + (f": never hit: {missed}" if missed else ""), flush=True)
    print(f"1..{options.seeds}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
