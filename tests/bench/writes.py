# SPDX-License-Identifier: Apache-2.0
"""Rows about changing: durable commands in numbers and one at a time, and how a change reaches those who watch."""
import json
import statistics
import subprocess
import threading
import time

from measure import LONG, PROGRAMS, Check, Failed, Row, cpu_s, hload, h2load, interleave, median, metric, ratio, rss
from peers import Raw

WATCHERS_MAX = 10_000
LAG = "cadastre_store_lag_commands"


def partitions_of(server, node, count, path):
    """Ids of partitions whose primary is `node`, a line each."""
    answer = server.get("/v1/keyspaces/moves/map", timeout=60).expect(200)
    ids = [r["partition"] for r in answer["routes"] if r["primary"] and r["primary"]["node"] == node][:count]
    assert len(ids) == count, f"{len(ids)} partitions on {node}"
    path.write_text("".join(f"{i}\n" for i in ids))
    return path


class LagWatch:
    """How far the store of the leader is behind while a load runs."""

    def __init__(self, server):
        self.server, self.seen, self.stopping = server, [], False
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()

    def _watch(self):
        while not self.stopping:
            self.seen.append(metric(self.server.url, LAG))
            time.sleep(0.25)

    def halves(self):
        middle = len(self.seen) // 2
        return max(self.seen[:middle], default=0), max(self.seen[middle:], default=0)


class Mover:
    """Moves at the leader, each client its own partition from n1 to n2 and back."""

    def __init__(self, cluster, clients, base):
        self.leader = cluster.leader()
        self.pids = [s.process.pid for s in cluster.servers]
        self.clients, self.base = clients, base
        self.lags = []

    def __call__(self, seconds):
        ids = partitions_of(self.leader, "n1", self.clients, self.base / "ids")
        with LagWatch(self.leader) as lag:
            load = hload(self.leader.api_port, self.clients, seconds, "MOVE", "/v1/keyspaces/moves/partitions/", ids, pids=self.pids)
        self.lags.append(lag.halves())
        return load


def durable(cluster, etcd, zk, base):
    seconds, rounds = (20, 3) if LONG else (5, 3)
    rows = []
    for clients in (64, 256):
        mover = Mover(cluster, clients, base)
        loads = {"ours": lambda m=mover: m(seconds)}
        if etcd is not None:
            loads["etcd"] = lambda n=clients: h2load(etcd.port, n, seconds, etcd.base / "put.grpc", "/etcdserverpb.KV/Put",
                                                      pids=etcd.pids)
        if zk is not None:
            loads["ZooKeeper"] = lambda n=clients: hload(zk.port, n, seconds, "set", zk.NODES, pids=zk.pids, binary="zkload")
        seen = interleave(loads, rounds)
        lag = "; store behind by at most " + ", ".join(f"{a:.0f} then {b:.0f}" for a, b in mover.lags) + " commands"
        said = ", ".join(f"{k} {median(r, 'rate'):,.0f}/s p50 {median(r, 'p50_us') / 1000:.1f} ms p99 "
                         f"{median(r, 'p99_us') / 1000:.0f} ms {median(r, 'cpu_us'):.0f} µs CPU" for k, r in seen.items())
        flat = all(b <= max(2 * a, 2048) for a, b in mover.lags)
        checks = [
            Check("commands/s ÷ etcd", ratio(seen, "ours", "etcd", "rate") if etcd else None, at_least=2),
            Check("CPU ÷ etcd", ratio(seen, "ours", "etcd", "cpu_us") if etcd else None, at_most=0.5),
            Check("commands/s ÷ ZooKeeper", ratio(seen, "ours", "ZooKeeper", "rate") if zk else None, at_least=1),
            Check("store's lag flat (1 = yes)", float(flat), at_least=1, unit=""),
        ]
        rows.append(Row(f"durable moves, 3 servers, {clients} clients, {rounds} × {seconds} s", "etcd puts, ZooKeeper sets",
                        checks, said + lag))
    return rows


def one_at_a_time(cluster, etcd, base, seconds=2, rounds=5):
    mover = Mover(cluster, 1, base)
    loads = {"ours": lambda: mover(seconds)}
    if etcd is not None:
        loads["etcd"] = lambda: h2load(etcd.port, 1, seconds, etcd.base / "put.grpc", "/etcdserverpb.KV/Put", pids=etcd.pids)
    seen = interleave(loads, rounds)
    said = ", ".join(f"{k} p50 {median(r, 'p50_us') / 1000:.2f} ms p99 {median(r, 'p99_us') / 1000:.1f} ms" for k, r in seen.items())
    return [Row("one durable command at a time, 3 servers", "etcd put",
                [Check("p50", ratio(seen, "ours", "etcd", "p50_us") if etcd else None, at_most=0.8)], said)]


class Fanout:
    """One run of tests/bench/fanout.c against one server."""

    def __init__(self, port, pid, watchers, rounds, arguments):
        memory = rss(pid)
        with subprocess.Popen(
            [str(PROGRAMS / "fanout"), str(port), str(watchers), str(rounds), *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as run:
            try:
                opened = run.stdout.readline()
                if "open" not in opened:
                    raise Failed("fanout: the streams could not be opened")
                self.memory = (rss(pid) - memory) / watchers
                before = cpu_s([pid])
                out, _ = run.communicate("go\n", timeout=120)
                self.cpu_us = 1e6 * (cpu_s([pid]) - before) / rounds / watchers
            finally:
                run.kill()
        lines = [json.loads(line) for line in out.splitlines()]
        if len(lines) != rounds:
            raise Failed("fanout: not every round was finished")
        self.last_ms = statistics.median(line["last_ms"] for line in lines)
        self.median_ms = statistics.median(line["median_ms"] for line in lines)
        self.bytes = lines[0]["bytes"]


def moves_of(server, keyspace):
    """Arguments that move one partition to and fro."""
    route = server.get(f"/v1/keyspaces/{keyspace}/route?key=x").expect(200)
    here = route["primary"]["node"]
    there = "n2" if here != "n2" else "n1"
    bodies = [json.dumps({"from": a, "to": b, "empty": True}) for a, b in ((here, there), (there, here))]
    return [f"/v1/keyspaces/{keyspace}/partitions/{route['partition']}/move", *bodies]


def fan_out(server, base, rounds=4):
    """The broadcast of one change beside the raw one. Both servers have no other work."""
    seen = {"ours": [], "raw": []}
    for _ in range(3):
        with Raw(base / "raw-sse", 1000) as raw:
            seen["raw"].append(Fanout(raw.port, raw.pids[0], WATCHERS_MAX, rounds,
                                      ["event: ", "/sse", "", raw.port, "/publish"]))
        watch = "/v1/keyspaces/moves/watch"
        path, *bodies = moves_of(server, "moves")
        seen["ours"].append(Fanout(server.api_port, server.process.pid, WATCHERS_MAX, rounds,
                                   ["event: ", watch, "", server.api_port, path, *bodies]))
    idle = Fanout(server.api_port, server.process.pid, 1, 10, ["event: ", watch, "", server.api_port, path, *bodies]).median_ms
    note = ", ".join(f"{k} last {median(r, 'last_ms'):.0f} ms median {median(r, 'median_ms'):.0f} ms {median(r, 'cpu_us'):.1f} µs CPU "
                     f"{max(x.memory for x in r):.0f} bytes RSS a watcher, {r[0].bytes} bytes an event" for k, r in seen.items())
    memory = max(x.memory for x in seen["ours"])
    return [Row("one change to 10 000 watchers, 1 server", "raw broadcast",
                [Check("last has it", ratio(seen, "ours", "raw", "last_ms"), at_most=1.25),
                 Check("CPU", ratio(seen, "ours", "raw", "cpu_us"), at_most=1.25),
                 Check("memory a watcher", memory / 1024, at_most=12, unit=" KiB")],
                note + f"; to one watcher {idle:.1f} ms. Memory: 8 KiB of the connection and 4 KiB more")]


def fan_out_etcd(cluster, etcd, rounds=6):
    leader = cluster.leader()
    path, *bodies = moves_of(leader, "moves")
    seen = {"ours": [], "etcd": []}
    if etcd is None:
        return [Row("one change to 1 000 watchers, 3 servers", "etcd watch", [Check("last has it", None, at_most=0.5)], "not run")]
    from peers import text  # pylint: disable=import-outside-toplevel
    watch = json.dumps({"create_request": {"key": text(b"k7")}})
    put = json.dumps({"key": text(b"k7"), "value": text(b"v" * 150)})
    for _ in range(3):
        seen["ours"].append(Fanout(leader.api_port, leader.process.pid, 1000, rounds,
                                   ["event: ", "/v1/keyspaces/moves/watch", "", leader.api_port, path, *bodies]))
        seen["etcd"].append(Fanout(etcd.port, etcd.pids[0], 1000, rounds,
                                   ['"events":', "/v3/watch", watch, etcd.port, "/v3/kv/put", put]))
    note = ", ".join(f"{k} last {median(r, 'last_ms'):.1f} ms median {median(r, 'median_ms'):.1f} ms" for k, r in seen.items())
    return [Row("one change to 1 000 watchers, commit included, 3 servers", "etcd watch (JSON)",
                [Check("last has it", ratio(seen, "ours", "etcd", "last_ms"), at_most=0.5)], note)]
