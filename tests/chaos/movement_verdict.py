# SPDX-License-Identifier: Apache-2.0
"""What a run of the movement's chaos has shown: nothing lost, nothing stale, one writer at a time, by true time."""
import collections
import json
import pathlib
import sqlite3
import statistics
import subprocess

from cluster import BUILD, wait_for

WRITERS_CHECK = BUILD / "tests/harness/writers_check"


def events(lines):
    """An acknowledged write was accepted between when it was sent and when it was acknowledged."""
    for w in lines:
        both = {"node": w["node"], "key": w["partition"], "epoch": w["epoch"], "id": w["id"], "time": w["acknowledged"]}
        accepted = {**both, "event": "accepted", "since": w["sent"]}
        if w["hops"] == 1:  # else it may have been given its position at an earlier epoch
            accepted["sequence"] = w["position"]
        yield accepted
        yield {**both, "event": "acknowledged"}


def ids_in(path):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        tables = {name for name, in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        return [i for i, in db.execute("SELECT id FROM ids" if "ids" in tables else "SELECT id FROM log")]


def final_states(world):
    """Of every partition by its primary, once all copies that count are equal. Stops the nodes."""
    def equal():
        for route in world.routes():
            states = {r["node"]: world.nodes[r["node"]].state(route["partition"]) for r in route["replicas"]}
            if not route["primary"] or any(s is None for s in states.values()):
                return None
            primary = states[route["primary"]["node"]]
            for r in route["replicas"]:
                s = states[r["node"]]
                if r["role"] in ("primary", "sync") and (s["sum"] != s["running"] or s["sum"] != primary["sum"]):
                    return None
        return world.routes()

    routes = wait_for(equal, "copies that count to be equal", deadline_s=20)
    files = {}
    for r in routes:
        node = world.nodes[r["primary"]["node"]]
        files[r["partition"]] = node.directory / f"ks.{r['partition']}.{node.state(r['partition'])['copy']}.db"
    for n in world.nodes.values():
        code = n.stop()
        assert code == 0, f"node {n.name} ended with {code}"
    for partition, path in files.items():
        for i in ids_in(path):
            yield {"event": "final", "key": partition, "id": i}


def check_writers(world, lines, final, least):
    """The writer-interval checker over the history."""
    history = world.cluster.base / "history.jsonl"
    with open(history, "w", encoding="utf-8") as f:
        for e in [*events(lines), *final]:
            f.write(json.dumps(e) + "\n")
    run = subprocess.run([str(WRITERS_CHECK), "--partial", "--min-acknowledged", str(least), "--min-epochs", "2", str(history)],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"the writers' history: {run.stdout}{run.stderr}"


def pauses_ms(lines, cutovers):
    """How long a partition acknowledged nothing around each of {(partition, new epoch)}."""
    by = collections.defaultdict(list)
    for w in lines:
        by[w["partition"]].append((w["acknowledged"], w["epoch"]))
    for partition, epoch in cutovers:
        before = [at for at, e in by[partition] if e < epoch]
        after = [at for at, e in by[partition] if e >= epoch]
        if before and after:
            yield (min(after) - max(before)) / 1e6


def write_ms(lines):
    """Of writes that were answered at once."""
    return statistics.median((w["acknowledged"] - w["sent"]) / 1e6 for w in lines if w["hops"] == 1)


def judge(world, probe, least):
    """Of one world, which it ends. Returns the load's records."""
    code, summary, err, lines = world.load.finish()
    assert code == 0 and summary["lost"] + summary["stale_accepted"] + summary["unsettled"] == 0, f"the load: {code} {summary} {err}"
    assert len(lines) == summary["acknowledged"] and len(lines) >= least, f"void: {len(lines)} writes, {least} are wanted"
    assert not probe.accepted, f"stale writes were accepted: {probe.accepted[:5]}"
    assert not world.proxy.faults, f"reports: {world.proxy.faults[:5]}"
    check_writers(world, lines, final_states(world), least)
    world.cluster.agree()
    world.cluster.check_all()
    return lines


def sanitized(world):
    """What a sanitizer had to say."""
    for n in world.nodes.values():
        text = pathlib.Path(n.log).read_text(errors="replace")
        assert "Sanitizer" not in text, text[-4000:]
