# SPDX-License-Identifier: Apache-2.0
"""The demo's third part: the same store under a load that follows the sun, with one key that is much too hot. First the
balancer only advises; then it is let loose, and what it splits and moves is told as it happens."""
import json
import time

import demo_account
from balancing import busiest, in_two_operations, moved_too_soon, over_budget
from cluster import wait_for
from demo_cities import equal_cuts, say
from demo_store import ZONES, get, is_whole
from shardkv import Nodes

PARTITIONS, WRITERS = 12, 8
HOT_KEY = "US/CA/Los Angeles/the star"
DAY_S, FROM_MINUTE = 120, 5 * 60
DEMAND = {"rate": 2000, "reads_ppm": 900000, "value_bytes": 512, "hot_key": HOT_KEY, "hot_ppm": 200000,
          "day_ms": 1000 * DAY_S, "from_minute": FROM_MINUTE}
# Before and after are the same hours of two days, so that the sun stands where it stood.
ADVISE_S, WINDOW_S = 30, 15
# A day is 720 times as short as a real one. What the planner waits for is made shorter too, less than that.
THRESHOLDS = {"round_ms": 500, "sustain_ms": 2000, "quiet_ms": 2000, "residence_ms": 15000, "return_ms": 30000,
              "half_life_ms": 4000}
PATIENCE_S, POLL_S = 60, 0.5
LINES_MAX = 30  # of what happened; the rest is counted


def proposals(t):
    return get(t, "/v1/balancer/proposals?limit=1000")["proposals"]


def operations(t):
    return get(t, "/v1/operations?limit=1000")["operations"]


def utc(second):
    minute = FROM_MINUTE + second * 24 * 60 / DAY_S
    return f"{int(minute // 60) % 24:02d}:{int(minute % 60):02d} UTC"


class Watch:
    """Asks what goes on, tells what is new, and keeps what should never be."""

    def __init__(self, t, load):
        self.t, self.load = t, load
        self.seen, self.told, self.polls, self.broken = set(), 0, 0, []

    def second(self):
        lines = self.load.seconds()
        return lines[-1]["second"] if lines else 0

    def until(self, second):
        while (now := self.second()) < second:
            assert self.load.process.poll() is None, "shardkv-load has ended"
            self.look(now)
            time.sleep(POLL_S)

    def look(self, second):
        self.polls += 1
        self.broken += over_budget(get(self.t, "/v1/balancer"))
        self.broken += [f"partition {p} is in two operations" for p in in_two_operations(operations(self.t))]
        for p in proposals(self.t):
            if p["id"] not in self.seen and p["state"] in ("running", "done"):
                self.seen.add(p["id"])
                self.tell(second, p)

    def tell(self, second, p):
        self.told += 1
        if self.told <= LINES_MAX:
            if p["kind"] == "split":
                at = " and ".join(json.dumps(k, ensure_ascii=False) for k in p["at"])
                what = f"partition {p['partition']} is split at {at}"
            else:
                what = f"{p['kind']} of partition {p['partition']} from {p['from']} to {p['to']}"
            say(f"    {utc(second)}  {what}: {p['reason']}")
        elif self.told == LINES_MAX + 1:
            say("    … and so on")

    def ratio(self, second):
        """max/mean of the WINDOW_S before."""
        lines = [s for s in self.load.seconds() if second - WINDOW_S <= s["second"] < second]
        return busiest(lines, ZONES), sum(s["hot"] for s in lines) / max(1, sum(s["requests"] for s in lines))


def advise(t, watch):
    t.cluster.call("PATCH", "/v1/balancer", {"mode": "advise", "thresholds": THRESHOLDS, "budgets": {"release_ms": 0}}).expect(200)
    say(f"3.1 The balancer only advises, from {utc(0)} on; a day takes {DAY_S} s")
    watch.until(ADVISE_S)
    ratio, hot = watch.ratio(ADVISE_S)
    waiting = [p for p in proposals(t) if p["state"] == "open"]
    kinds = {k: sum(p["kind"] == k for p in waiting) for k in sorted({p["kind"] for p in waiting})}
    say(f"  at {utc(ADVISE_S)} the busiest node bears {ratio:.2f} times the mean; {100 * hot:.0f} % of all requests are one key")
    say(f"  what waits for a person: {', '.join(f'{n} × {k}' for k, n in kinds.items())}")
    assert not watch.seen, "something was done though the balancer only advises"
    return ratio, hot


def hot_keys(t):
    return [h["key"] for h in get(t, "/v1/skew?keyspace=ks")["hot_keys"]]


def let_loose(t, watch):
    t.cluster.call("PATCH", "/v1/balancer", {"mode": "auto"}).expect(200)
    say("3.2 PATCH /v1/balancer {\"mode\": \"auto\"}: it does what it proposes")
    watch.until(DAY_S)
    names = wait_for(lambda: hot_keys(t), "GET /v1/skew to name the key", PATIENCE_S)
    say(f"  GET /v1/skew: hot keys {names}: no split and no move makes one key smaller")
    for p in proposals(t):
        if p["kind"] == "advice" and p["code"] == "hot_key":
            say(f"  its advice, for partition {p['partition']}: {p['reason']}")
            break
    watch.until(DAY_S + ADVISE_S)
    return watch.ratio(DAY_S + ADVISE_S)[0], names


def settle(t, load):
    t.cluster.call("POST", "/v1/balancer/pause", {"reason": "the demo ends"}).expect(200)
    out, err = load.end()
    assert out, f"shardkv-load ended with {load.process.returncode}: {err}"
    wait_for(lambda: not [o for o in operations(t) if o["state"] in ("queued", "running")], "the last moves", PATIENCE_S)
    wait_for(lambda: is_whole(t), "GET /v1/replication to be clean", PATIENCE_S)
    wait_for(t.is_well, "all copies to agree", PATIENCE_S)
    return json.loads(out)


def summarise(t, watch, before, after, hot, names, summary):
    done = [p for p in proposals(t) if p.get("settled_by") == "balancer" and p["state"] == "done"]
    kinds = {k: sum(p["kind"] == k for p in done) for k in ("split", "transfer", "move", "swap", "merge")}
    moved = sum(o["progress"]["bytes_done"] for o in operations(t))
    soon = moved_too_soon(proposals(t), operations(t), THRESHOLDS["residence_ms"])
    conflict = demo_account.conflict(watch.load.lines())
    least = max(1, hot * len(ZONES))
    say("Summary of the sun")
    say(f"  requests                                 {summary['acknowledged'] + summary['reads']:,}")
    say(f"  busiest node / mean, before              {before:.2f}")
    say(f"  busiest node / mean, after               {after:.2f}; with that key no placement is below {least:.2f}")
    say(f"  done by the balancer                     {', '.join(f'{n} × {k}' for k, n in kinds.items() if n)}")
    say(f"  bytes copied                             {moved:,}")
    say(f"  the key that no split helps              {', '.join(names)}")
    say(f"  over a budget, or in two operations      {watch.broken or 'never'}, asked {watch.polls} times")
    say(f"  moved again within its residence         {soon or 'nothing'}")
    say(f"  acknowledged writes lost                 {summary['lost']}")
    say(f"  stale writes accepted                    {summary['stale_accepted']}")
    say(f"  reads that were wrong                    {summary['wrong_reads']}")
    say(f"  writes of two nodes at a time            {conflict or 'none'}")
    say(f"  state hash, the same on all servers      {t.cluster.agree()}")
    bad = watch.broken or soon or conflict or summary["lost"] or summary["stale_accepted"] or summary["wrong_reads"] or summary["unsettled"]
    return not bad and names == [HOT_KEY] and kinds["split"] > 0 and kinds["transfer"] + kinds["move"] > 0 and after < before


def run(cities):
    """True when it held."""
    say("3. The sun goes round the world's cities, and the balancer follows it")
    spec = {"replicas": {"sync": 1}, "placement": {"spread": "zone"}}
    with Nodes(3, list(ZONES), 1, splits=equal_cuts(cities, PARTITIONS), zones=ZONES, spec=spec,
               options=("--report-ms", "500")) as t:
        load = t.load(writers=WRITERS, cities=True, demand=DEMAND)
        say(f"  six nodes in three zones, {PARTITIONS} partitions of about equal population; {DEMAND['rate']} requests a second, nine of")
        say("  ten of them reads, for a city as often as people live there and are awake; and one star in Los Angeles")
        watch = Watch(t, load)
        before, hot = advise(t, watch)
        after, names = let_loose(t, watch)
        summary = settle(t, load)
        return summarise(t, watch, before, after, hot, names, summary)
