# SPDX-License-Identifier: Apache-2.0
"""Rows about large directories: lookups in memory, a restart, the whole map, the loop's stalls, and growth."""
import json
import shutil
import statistics
import threading
import time

from measure import LONG, BUILD, Check, Row, hload, metric, once, peak_rss, program, reset_peak, rss, wait_for
from peers import Raw
from writes import moves_of

PARTITIONS = 1_000_000


def table(out):
    """{first word: the other words} of a bench's lines."""
    lines = [line.split() for line in out.splitlines() if line and not line.startswith("#")]
    return {line[0]: line[1:] for line in lines}


def lookups():
    sizes = ["10000", "100000", "1000000"] + (["10000000"] if LONG else [])
    rows = table(program("lookup_bench", *sizes, timeout=400, statuses=(0, 1)))  # 1: it missed a target of its own
    checks, growth = [], []
    for size in sizes[2:]:
        for kind in ("random", "composite"):
            name = f"floor_updating.{kind}.{size}"
            value = float(rows[name][2]) if name in rows else None
            checks.append(Check(f"{kind} keys, {int(size):,}", value, at_most=0.65))
    for size in sizes:
        growth.append(f"{int(size):,}: {rows[f'floor.random.{size}'][1]} ns" if f"floor.random.{size}" in rows else "?")
    memory = {kind: float(rows[f"bytes_partition.{kind}.1000000"][1]) for kind in ("random", "composite")}
    return [
        Row("in-process lookup while 1 000 updates/s run", "sorted array", checks, "growth of one lookup: " + ", ".join(growth)),
        Row("memory a partition", "–", [Check(f"{k} keys", v, at_most=400, unit=" bytes") for k, v in memory.items()],
            "view and indexes, three replicas each"),
    ]


def clients():
    """libcadastre on the data path: a route among a million while updates arrive, and the right to write."""
    rows = table(program("router_bench", timeout=400, statuses=(0, 1)))
    may = rows.get("may_write.exclusive.1")
    checks = [Check("the right to write ÷ an uncontended mutex", float(may[2]) if may else None, at_most=1.0)]
    for kind in ("token", "text"):
        name = f"route_updating.{kind}.1000000"
        checks.append(Check(f"{kind} keys, 1,000,000", float(rows[name][2]) if name in rows else None, at_most=0.65))
    return [Row("libcadastre: a cached route while 1 000 updates/s arrive", "sorted array", checks,
                f"{rows['route.token.1000000'][1]} ns a route, {may[1]} ns the right to write")]


def apply_costs():
    sizes = ("10000", "100000", "1000000")
    seen = {size: table(program("apply_bench", size, timeout=120)) for size in sizes}
    checks = []
    for what in ("split", "reassign"):
        small, large = (float(seen[s][what][1]) for s in (sizes[0], sizes[2]))
        checks.append(Check(f"CPU of a {what}, 10⁶ ÷ 10⁴ partitions", large / small, at_most=3))
    note = "; ".join(f"{what}: " + ", ".join(f"{int(s):,}: {seen[s][what][1]} µs" for s in sizes) for what in ("split", "reassign"))
    return [Row("growth: split and reassign, O(log n)", "10⁴ partitions", checks, note)]


class LoopWatch:
    """The worst lateness of the loop among the samples that it takes each 100 ms."""

    def __init__(self, server):
        self.server, self.worst, self.stopping = server, 0.0, False
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()

    def _watch(self):
        while not self.stopping:
            self.worst = max(self.worst, metric(self.server.url, "cadastre_loop_lag_seconds"))
            time.sleep(0.03)


def snapshot_of(server):
    found = [p for p in (server.directory / "raft").glob("snapshot-*") if not p.name.endswith(".meta")]
    return max(found, key=lambda p: p.stat().st_mtime) if found else None


def snapshot_stall(server):
    before = metric(server.url, "cadastre_raft_snapshots_total")
    with LoopWatch(server) as loop:
        once(server.url, "POST", "/v1/cluster/snapshot", {}).expect(202)
        wait_for(lambda: metric(server.url, "cadastre_raft_snapshots_total") > before, "a snapshot")
        time.sleep(0.3)
    return 1000 * loop.worst


def listing_stall(server):
    with LoopWatch(server) as loop:
        for _ in range(3):
            program("drain", server.api_port, "/v1/keyspaces/bench/map")
        time.sleep(0.2)
    return 1000 * loop.worst


def whole_map(server, base, rounds=5):
    pid = server.process.pid
    ours, theirs, grown = [], [], []
    with Raw(base / "raw-map", 1000) as raw:
        for _ in range(rounds):
            before = rss(pid)
            reset_peak(pid)
            took = json.loads(program("drain", server.api_port, "/v1/keyspaces/bench/map"))
            grown.append(max(0, peak_rss(pid) - before))
            ours.append(took["seconds"])
            theirs.append(json.loads(program("drain", raw.port, f"/bytes/{took['bytes']}"))["seconds"])
    value = statistics.median(a / b for a, b in zip(ours, theirs))
    size = took["bytes"]
    return [Row("whole map, 1 000 000 partitions, to one client", "the same bytes, raw",
                [Check("time", value, at_most=3), Check("server's memory grows by", max(grown) / 2**20, at_most=16, unit=" MiB")],
                f"{size / 2**20:.0f} MiB: ours {statistics.median(ours):.2f} s, raw {statistics.median(theirs):.3f} s")]


def restart(cluster, base, rounds=3):
    """A server with one snapshot of everything, started again, beside what nobody can avoid: to copy the file and to read
    its rows."""
    server = cluster.servers[0]
    if snapshot_of(server) is None:
        snapshot_stall(server)
    ours, theirs, parts = [], [], []
    for _ in range(rounds):
        server.stop()
        snapshot = snapshot_of(server)
        began = time.monotonic()
        shutil.copyfile(snapshot, base / "copy")
        copied = time.monotonic() - began
        loaded = json.loads(program("sqlite_load", server.directory / "directory.db"))["seconds"]
        theirs.append(copied + loaded)
        parts.append((copied, loaded))
        began = time.monotonic()
        server.start()
        cluster.wait_ready()
        ours.append(time.monotonic() - began)
    copied, loaded = (statistics.median(p[i] for p in parts) for i in (0, 1))
    value = statistics.median(a / b for a, b in zip(ours, theirs))
    return [Row("restart to ready, 1 000 000 partitions", "copy of the snapshot + SQLite load",
                [Check("time", value, at_most=2.5)],
                f"ours {statistics.median(ours):.2f} s; copy {copied:.2f} s + load {loaded:.2f} s; election timeout 400 ms")]


def stalls(cluster):
    server = cluster.servers[0]
    taken, listed = snapshot_stall(server), listing_stall(server)
    joiner = cluster.join(2, "--observer")
    with LoopWatch(server) as loop:
        wait_for(lambda: joiner.cluster() and joiner.cluster()["revision"] == server.cluster()["revision"], "the joiner", 60)
    sent = 1000 * loop.worst
    installed = 1000 * metric(joiner.url, "cadastre_loop_lag_max_seconds")
    checks = [Check(name, value, at_most=100, unit=" ms") for name, value in (
        ("snapshot taken", taken), ("whole map listed", listed), ("snapshot sent", sent), ("snapshot installed", installed))]
    return [Row("longest stall of the loop, 1 000 000 partitions", "–", checks, f"build {BUILD.name}; sampled each 100 ms")]


def changes_cost(server, small, large, rounds=3):
    """Following one change costs the same however large the map is."""
    rates = {small: [], large: []}
    since = {}
    for keyspace in (small, large):
        path, body, _ = moves_of(server, keyspace)
        once(server.url, "POST", path, json.loads(body)).expect(202)
        since[keyspace] = server.get(f"/v1/keyspaces/{keyspace}/route?key=x").expect(200)["revision"] - 1
    for _ in range(rounds):
        for keyspace in (small, large):
            path = f"/v1/keyspaces/{keyspace}/changes?since={since[keyspace]}&wait_ms=0&end=ff"
            rates[keyspace].append(hload(server.api_port, 16, 1, path, pids=[server.process.pid]).cpu_us)
    value = statistics.median(b / a for a, b in zip(rates[small], rates[large]))
    return [Row("growth: changes, O(changes)", "10⁴ partitions", [Check("CPU of asking, 10⁶ ÷ 10⁴", value, at_most=1.5)],
                f"{statistics.median(rates[small]):.1f} and {statistics.median(rates[large]):.1f} µs")]
