# SPDX-License-Identifier: Apache-2.0
"""Rows about reading: one route at a time, many at once, bursts, and what each peer needs for the same."""
import json
import re
import subprocess

from measure import Check, Failed, Load, Row, cpu_s, hload, h2load, interleave, median, once, program, ratio
from peers import Absent, Etcd, Nginx, Raw, Redis, ZooKeeper

PARTITIONS = 1_000_000
ROUTE = "/v1/keyspaces/bench/route?key="
LINEARIZABLE = "/v1/keyspaces/bench/route?consistency=linearizable&key="


def rates(results):
    return ", ".join(f"{name} {median(r, 'rate'):,.0f}/s {median(r, 'cpu_us'):.1f} µs CPU" for name, r in results.items())


def same_bytes(server, raw):
    """Both send as many bytes, or the comparison is none."""
    sizes = []
    for url in (server.url, f"http://127.0.0.1:{raw.port}"):
        answer = once(url, "GET", ROUTE + "0123456789abcdef")
        sizes.append(len(answer.raw) + sum(len(k) + len(v) + 4 for k, v in answer.headers.items()))
    assert abs(sizes[0] - sizes[1]) <= 24, f"answers of {sizes} bytes"
    return sizes


def against_raw(server, base, seconds=1, rounds=7):
    rows = []
    with Raw(base / "raw", PARTITIONS) as raw:
        sizes = same_bytes(server, raw)
        for connections, least in ((64, 0.75), (256, 0.85)):
            seen = interleave(
                {
                    "raw": lambda n=connections: hload(raw.port, n, seconds, ROUTE, pids=raw.pids),
                    "ours": lambda n=connections: hload(server.api_port, n, seconds, ROUTE, pids=[server.process.pid]),
                },
                rounds,
            )
            rows.append(
                Row(
                    f"route GET, {connections} keep-alive connections", "raw",
                    [
                        Check("requests/s", ratio(seen, "ours", "raw", "rate"), at_least=least),
                        Check("CPU a request", ratio(seen, "ours", "raw", "cpu_us"), at_most=1.3),
                        Check("p99", ratio(seen, "ours", "raw", "p99_us"), at_most=1.5),
                    ],
                    f"{rates(seen)}; answers of {sizes[0]} and {sizes[1]} bytes; one HTTP thread each",
                )
            )
    return rows


def bursts(server):
    answered, worst = True, 0.0
    said = []
    for n in (128, 256, 384, 1000):
        spreads = []
        for _ in range(5):
            try:
                out = json.loads(program("hload", server.api_port, n, "burst", ROUTE))
            except Failed:
                answered = False
                continue
            answered = answered and out["requests"] == n
            spreads.append(out["spread_ms"])
        if spreads:
            middle = sorted(spreads)[len(spreads) // 2]
            worst = max(worst, middle)
            said.append(f"{n}: {middle:.1f} ms")
    return [
        Row(
            "128, 256, 384, 1 000 requests at once", "–",
            [Check("all answered (1 = yes)", float(answered), at_least=1, unit=""),
             Check("last after first", worst, at_most=50, unit=" ms")],
            "median of 5 bursts: " + ", ".join(said),
        )
    ]


def redis_get(redis, seconds):
    command = ["redis-benchmark", "-p", str(redis.port), "-c", "64", "-d", "150", "-r", "100000", "-q", "-P", "1"]
    requests = 40000 * seconds
    before = cpu_s(redis.pids)
    out = subprocess.run(command + ["-t", "get", "-n", str(requests)], capture_output=True, text=True, timeout=120, check=True)
    rate = float(re.findall(r"GET: ([\d.]+) requests per second", out.stdout)[-1])
    return Load(requests, requests / rate, 0, 0, cpu_s(redis.pids) - before)


def against_servers(server, base, seconds=1, rounds=5):
    """nginx with a file of a route's size, and Redis GET of values as large."""
    body = once(server.url, "GET", ROUTE + "x").raw
    ours = {"ours": lambda: hload(server.api_port, 64, seconds, ROUTE, pids=[server.process.pid])}
    rows = []
    for name, make, load, least in (
        ("nginx static file", lambda: Nginx(base / "nginx", body),
         lambda p: hload(p.port, 64, seconds, "/route?key=", pids=p.pids), 1.4),
        ("Redis GET", lambda: Redis(base / "redis"), lambda p: redis_get(p, seconds), 1.0),
    ):
        try:
            with make() as peer:
                if name == "Redis GET":
                    subprocess.run(
                        ["redis-benchmark", "-p", str(peer.port), "-t", "set", "-n", "200000", "-r", "100000", "-d", "150",
                         "-P", "32", "-q"], capture_output=True, timeout=60, check=True,
                    )
                seen = interleave({**ours, name: lambda p=peer, f=load: f(p)}, rounds)
                rows.append(Row("route GET, 64 connections", name,
                                [Check("requests/s", ratio(seen, "ours", name, "rate"), at_least=least)], rates(seen)))
        except Absent as why:
            rows.append(Row("route GET, 64 connections", name, [Check("requests/s", None, at_least=least)], f"not run: {why}"))
    return rows


def batch(server, seconds=1, rounds=5):
    seen = interleave(
        {
            "one key": lambda: hload(server.api_port, 64, seconds, ROUTE, pids=[server.process.pid]),
            "100 keys": lambda: hload(server.api_port, 64, seconds, "POST", "/v1/keyspaces/bench/routes", 100,
                                      pids=[server.process.pid]),
        },
        rounds,
    )
    gain = 100 * ratio(seen, "100 keys", "one key", "rate")
    cpu = 100 / ratio(seen, "100 keys", "one key", "cpu_us")
    return [Row("batch lookup, 100 keys a request", "one key a request",
                [Check("keys/s", gain, at_least=8), Check("keys a CPU second", cpu)], rates(seen))]


def against_stores(server, base, seconds=1, rounds=5):
    """A route against a key of etcd or ZooKeeper, one server each."""
    ours = {"ours": lambda: hload(server.api_port, 64, seconds, ROUTE, pids=[server.process.pid])}
    rows = []

    def add(against, seen, key, least):
        rows.append(Row("route GET, 64 connections", against,
                        [Check("requests/s", ratio(seen, "ours", key, "rate"), at_least=least)], rates(seen)))

    def absent(against, least, why):
        rows.append(Row("route GET, 64 connections", against, [Check("requests/s", None, at_least=least)], f"not run: {why}"))

    try:
        with Etcd(base / "etcd1", 1) as etcd:
            json_body, grpc_body = etcd.base / "serializable.lines", etcd.base / "serializable.grpc"
            seen = interleave(
                {
                    **ours,
                    "JSON": lambda: hload(etcd.port, 64, seconds, "LINES", "/v3/kv/range", json_body, pids=etcd.pids),
                    "gRPC": lambda: h2load(etcd.port, 64, seconds, grpc_body, "/etcdserverpb.KV/Range", pids=etcd.pids),
                },
                rounds,
            )
        add("etcd serializable, JSON", seen, "JSON", 10)
        add("etcd serializable, gRPC", seen, "gRPC", 4)
    except Absent as why:
        absent("etcd serializable, JSON", 10, why)
        absent("etcd serializable, gRPC", 4, why)
    try:
        with ZooKeeper(base / "zk1", 1) as zk:
            hload(zk.port, 64, 1, "get", zk.NODES, binary="zkload")  # the JIT's turn
            seen = interleave(
                {**ours, "ZooKeeper": lambda: hload(zk.port, 64, seconds, "get", zk.NODES, pids=zk.pids, binary="zkload")},
                rounds,
            )
        add("ZooKeeper get", seen, "ZooKeeper", 1.5)
    except Absent as why:
        absent("ZooKeeper get", 1.5, why)
    return rows


def linearizable(cluster, etcd, seconds=1, rounds=5):
    """Three servers each, at the leader."""
    leader = cluster.leader()
    pids = [s.process.pid for s in cluster.servers]
    loads = {"ours": lambda: hload(leader.api_port, 64, seconds, LINEARIZABLE, pids=pids)}
    targets = (("JSON", 8), ("gRPC", 4))
    if etcd is None:
        return [Row("linearizable route GET, 3 servers", f"etcd {name}", [Check("requests/s", None, at_least=least)], "not run")
                for name, least in targets]
    json_body, grpc_body = etcd.base / "linearizable.lines", etcd.base / "linearizable.grpc"
    loads["JSON"] = lambda: hload(etcd.port, 64, seconds, "LINES", "/v3/kv/range", json_body, pids=etcd.pids)
    loads["gRPC"] = lambda: h2load(etcd.port, 64, seconds, grpc_body, "/etcdserverpb.KV/Range", pids=etcd.pids)
    seen = interleave(loads, rounds)
    return [Row("linearizable route GET, 3 servers", f"etcd linearizable, {name}",
                [Check("requests/s", ratio(seen, "ours", name, "rate"), at_least=least)], rates(seen))
            for name, least in targets]
