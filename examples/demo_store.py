# SPDX-License-Identifier: Apache-2.0
"""The demo's second part: examples/shardkv, six nodes in three zones, written to all the time. Partitions move, a node
is killed, another one is drained; then the account of every write that was acknowledged."""
import datetime
import json
import time

import demo_account
from cluster import once, wait_for
from demo_cities import equal_cuts, say
from shardkv import Nodes

PARTITIONS = 12
ZONES = {f"n{i}": "abc"[i % 3] for i in range(1, 7)}
WRITERS = 4
PATIENCE_S = 120
RECOVERY_DELAY_MS = 2000
POLL_S = 0.01


def get(t, path):
    return once(t.cluster.leader().url, "GET", path).expect(200)


def holders(route):
    return {r["node"] for r in route["replicas"]}


def replication(t):
    return get(t, "/v1/replication")


def is_whole(t):
    return replication(t)["partitions"] == []


def follow(ask, tell, is_over, what):
    """Asks until it is over. `tell` gives what makes an answer new, and the line that says it."""
    told = None

    def over():
        nonlocal told
        now = ask()
        news, line = tell(now)
        if news != told:
            say(f"    {line}")
            told = news
        return is_over(now)

    wait_for(over, what, PATIENCE_S)


def set_up(t):
    zones = ", ".join(f"{'+'.join(n for n in ZONES if ZONES[n] == zone)} in {zone}" for zone in "abc")
    say(f"  servers {', '.join(s.url for s in t.cluster.servers)}; nodes {zones}")
    say(f"  keyspace ks: {PARTITIONS} partitions of about equal population, each with a primary, a copy in sync and an")
    say("  asynchronous one, in three zones")
    for route in t.routes():
        zones = {ZONES[n] for n in holders(route)}
        assert len(zones) == 3, f"partition {route['partition']} is in the zones {zones}"


def neighbour(name):
    """The other node of its zone."""
    return next(n for n in ZONES if n != name and ZONES[n] == ZONES[name])


# --- a partition moves ---


def who(answer):
    authority = answer["authority"]
    if authority is None:
        return f"nobody: {answer['nobody']}"
    fenced = ", fenced: it refuses writes" if authority["fenced"] else ""
    return f"{authority['node']} at epoch {authority['epoch']}{fenced}"


def elapsed(stages, stage):
    """Milliseconds since the first one."""
    begun, at = (datetime.datetime.fromisoformat(s["at"]) for s in (stages[0], stage))
    return f"{(at - begun) / datetime.timedelta(milliseconds=1):8.0f}"


def show_stages(t, operation):
    """Each stage as it is passed, and who may write as far as one could ask while it lasted."""
    shown, said = 0, None
    say("    stage        after ms   who may write (GET /v1/operations/{id}/authority)")
    until = time.monotonic() + PATIENCE_S
    while True:
        answer = get(t, f"/v1/operations/{operation}/authority")
        stages = get(t, f"/v1/operations/{operation}")["stages"]
        at = max(i for i, s in enumerate(stages) if s["stage"] == answer["stage"])
        for s in stages[shown:at]:
            say(f"    {s['stage']:<12} {elapsed(stages, s)}   passed between two questions")
        if (at, who(answer)) != said:
            said = (at, who(answer))
            say(f"    {stages[at]['stage']:<12} {elapsed(stages, stages[at])}   {said[1]}")
        shown = max(shown, at + 1)
        if answer["state"] not in ("queued", "running"):
            return answer
        assert time.monotonic() < until, f"operation {operation} has not ended"
        time.sleep(POLL_S)


def move_partitions(t):
    """One is looked at closely, and the others move at once."""
    first, *others = t.routes()[::2]
    source = first["primary"]["node"]
    to = neighbour(source)
    operation = t.move(first["partition"], t.nodes[to])
    say(f"2.1 Partition {first['partition']} moves from {source} to {to}: operation {operation}")
    ended = show_stages(t, operation)
    assert ended["state"] == "done" and ended["authority"]["node"] == to, json.dumps(ended)
    more = [t.move(r["partition"], t.nodes[neighbour(r["primary"]["node"])]) for r in others]
    for operation in more:
        assert (state := t.wait_end(operation)["state"]) == "done", f"operation {operation} is {state}"
    say(f"  partitions {', '.join(str(r['partition']) for r in others)} moved too")


# --- a node is killed ---


def primaries(t):
    return [r["primary"] and r["primary"]["node"] for r in t.routes()]


def owes_nothing(t, node):
    """It has deleted each copy that it was told to."""
    return get(t, f"/v1/nodes/{node}/duties")["duties"] == []


def lacks(answer):
    totals, codes = answer["totals"], {p["blocked"]["code"] for p in answer["partitions"] if "blocked" in p}
    why = f" ({', '.join(sorted(codes))})" if codes else ""
    return totals["under_replicated"], f"{totals['under_replicated']} of {totals['partitions']} lack copies{why}"


def kill_node(t):
    victim = max(ZONES, key=primaries(t).count)
    led, held = primaries(t).count(victim), sum(victim in holders(r) for r in t.routes())
    t.cluster.call("PATCH", "/v1/cluster/settings", {"recovery_delay_ms": RECOVERY_DELAY_MS}).expect(200)
    say(f"2.2 Node {victim} is killed (SIGKILL): primary of {led} partitions, with copies of {held}")
    begun = time.monotonic()
    t.nodes[victim].kill()
    wait_for(lambda: victim not in primaries(t) and None not in primaries(t), "the failovers", PATIENCE_S)
    say(f"  its partitions have other primaries after {time.monotonic() - begun:.1f} s (its lease had to run out)")
    say(f"  GET /v1/replication, with a recovery_delay_ms of {RECOVERY_DELAY_MS}:")
    follow(
        lambda: replication(t),
        lacks,
        lambda r: r["partitions"] == [], "the copies to be made anew",
    )
    assert not any(victim in holders(r) for r in t.routes()), f"{victim} is still said to have copies"
    say(f"  all copies are there again after {time.monotonic() - begun:.1f} s, on {neighbour(victim)}")
    t.nodes[victim].start()
    wait_for(lambda: owes_nothing(t, victim), f"{victim} to delete its old copies", PATIENCE_S)
    say(f"  {victim} is back, and has deleted the copies that it had")
    return victim


# --- a node is drained ---


def drain_node(t, spared):
    """One of another zone than `spared`, which was killed: the one with the most primaries."""
    node = max((n for n in ZONES if ZONES[n] != ZONES[spared]), key=primaries(t).count)
    begun = time.monotonic()
    t.cluster.call("POST", f"/v1/nodes/{node}/drain", {"reason": "the demo"}).expect(200)
    say(f"2.3 Node {node} is drained: GET /v1/nodes/{node}")

    def progress(drain):
        eta = "unknown" if drain["eta_ms"] is None else f"{drain['eta_ms'] / 1000:.0f} s"
        return (drain["copies_left"], drain["partitions_left"]), (
            f"copies left {drain['copies_left']}, of these primaries {drain['partitions_left']}; "
            f"operations running {drain['operations_running']}, queued {drain['operations_queued']}; ETA {eta}"
        )

    follow(lambda: get(t, f"/v1/nodes/{node}")["drain"], progress, lambda d: d["copies_left"] == 0, "the drain")
    say(f"  it is empty after {time.monotonic() - begun:.1f} s")
    assert not any(node in holders(r) for r in t.routes()), f"{node} still has copies"
    return node


# --- the end ---


def settle(t, load, drained):
    """The load's own account, and what the directory and the nodes say at the end."""
    out, err = load.end()
    assert out, f"shardkv-load ended with {load.process.returncode}: {err}"
    wait_for(lambda: is_whole(t), "GET /v1/replication to be clean", PATIENCE_S)
    wait_for(t.is_well, "all copies to agree", PATIENCE_S)
    wait_for(lambda: owes_nothing(t, drained), f"{drained} to delete its copies", PATIENCE_S)
    return json.loads(out), replication(t), t.cluster.agree()


def summarise(summary, causes, conflict, clean, state_hash):
    totals = clean["totals"]
    lacking = {k: v for k, v in totals.items() if k != "partitions" and v}
    say("Summary of the store")
    say(f"  writes acknowledged                      {summary['acknowledged']:,}")
    say(f"  of them lost                             {summary['lost']}")
    say(f"  stale writes accepted                    {summary['stale_accepted']}")
    say(f"  writes of two nodes at a time            {conflict or 'none'}")
    say(f"  writes without a final answer            {summary['unsettled']}")
    say(f"  one durable write, median                {summary['durable_write_median_ms']:.1f} ms")
    for cause in ("moves", "drain"):
        say(f"  write pauses, {cause:<26} {demo_account.describe(causes[cause], summary['durable_write_median_ms'])}")
    died = f"{len(causes['failovers'])}, longest {max(causes['failovers'], default=0):.1f} ms, most of it a lease"
    say(f"  write pauses, failovers                  {died}")
    say(f"  GET /v1/replication                      {lacking or 'clean'}, {totals['partitions']} partitions")
    say(f"  state hash, the same on all servers      {state_hash}")
    bad = summary["lost"] or summary["stale_accepted"] or summary["unsettled"] or conflict or lacking
    return not bad and summary["acknowledged"] > 0


def run(cities):
    """True when it held."""
    say("2. Six data nodes, three zones (examples/shardkv), under load")
    spec = {"replicas": {"sync": 1, "async": 1}, "placement": {"spread": "zone"}}
    with Nodes(3, list(ZONES), 1, splits=equal_cuts(cities, PARTITIONS), zones=ZONES, spec=spec) as t:
        set_up(t)
        load = t.load(writers=WRITERS, cities=True)
        load.grows(100)
        say(f"  shardkv-load: {WRITERS} writers, each city as often as people live there")
        marks = [get(t, "/v1/cluster")["revision"]]
        move_partitions(t)
        marks.append(get(t, "/v1/cluster")["revision"])
        killed = kill_node(t)
        marks.append(get(t, "/v1/cluster")["revision"])
        drained = drain_node(t, killed)
        summary, clean, state_hash = settle(t, load, drained)
        records = load.lines()
        causes = demo_account.pauses_by_cause(records, marks, ("moves", "failovers", "drain"))
        return summarise(summary, causes, demo_account.conflict(records), clean, state_hash)
