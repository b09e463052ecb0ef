#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench`: every target of docs/performance.md, measured. Each row is a ratio between Cadastre and a peer or a limit
in the same run, interleaved; nothing passes or fails by absolute times. BENCH_LONG=1 runs longer; arguments name the
groups to run (reads writes sizes). Writes the table between the markers of docs/performance.md with --write."""
import contextlib
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import reads  # noqa: E402  pylint: disable=wrong-import-position
import sizes  # noqa: E402  pylint: disable=wrong-import-position
import writes  # noqa: E402  pylint: disable=wrong-import-position
from measure import LONG, ROOT, once  # noqa: E402  pylint: disable=wrong-import-position
from peers import Absent, Etcd, ZooKeeper  # noqa: E402  pylint: disable=wrong-import-position

from cluster import Cluster  # noqa: E402  pylint: disable=wrong-import-position,wrong-import-order

DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
MOVED = 4096  # partitions of the keyspace whose partitions are moved


class Report:
    def __init__(self):
        self.rows = []
        self.began = time.monotonic()

    def add(self, name, run):
        began = time.monotonic()
        try:
            rows = run()
        except Exception as why:  # pylint: disable=broad-exception-caught
            # One row that fails must not take the others with it; it is shown as not run.
            print(f"# {name}: {why}", flush=True)
            self.rows.append((name, None, (str(why) or repr(why)).splitlines()[0][:160]))
            return
        for row in rows:
            self.rows.append((row.what, row, ""))
            for check in row.checks:
                verdict = {True: "met", False: "MISSED", None: ""}[check.met]
                print(f"{row.what} | {row.against} | {check.target} | {check.measured} | {verdict}", flush=True)
            print(f"    {row.note}", flush=True)
        print(f"# {name} took {time.monotonic() - began:.0f} s", flush=True)

    def markdown(self):
        lines = ["| what | against | target | measured | met |", "| --- | --- | --- | --- | --- |"]
        notes = []
        for name, row, why in self.rows:
            if row is None:
                lines.append(f"| {name} | | | not run: {why} | – |")
                continue
            for i, check in enumerate(row.checks):
                met = {True: "yes", False: "**no**", None: "–"}[check.met]
                head = f"{row.what} | {row.against}" if i == 0 else " | "
                lines.append(f"| {head} | {check.target} | {check.measured} | {met} |")
            notes.append(f"- {row.what} ({row.against}): {row.note}")
        return "\n".join(lines) + "\n\nAbsolute figures of that run, of no meaning on another machine:\n\n" + "\n".join(notes) + "\n"


def machine():
    model = "?"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    load = os.getloadavg()[0]
    return (f"{os.cpu_count()} × {model}, Linux {platform.release()}, load {load:.1f} at the start, commit "
            f"{commit.stdout.strip()}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC")


def write_document(report, where):
    text = DOCUMENT.read_text()
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    command = "BENCH_LONG=1 make bench" if LONG else "make bench"
    DOCUMENT.write_text(f"{head}{BEGIN}\n`{command}` on {where}.\n\n{report.markdown()}{END}{tail}")


def prepare(cluster, keyspaces):
    for i in (1, 2):
        cluster.call("PUT", f"/v1/nodes/n{i}", {"address": f"127.0.0.1:{9000 + i}", "lease": "static"}).expect(200, 201)
    for name, partitions in keyspaces.items():
        body = {"name": name, "scheme": "hash", "partitions": partitions}
        cluster.call("POST", "/v1/keyspaces", body, timeout=120, deadline_s=120).expect(200, 201)


def peer(stack, make, report, name):
    """Entered, or None and a line that says why not."""
    try:
        return stack.enter_context(make())
    except Absent as why:
        report.rows.append((name, None, str(why)))
        print(f"# {name}: not run: {why}", flush=True)
        return None


def run_reads(report, base):
    with Cluster(1, flags=("--api-threads", "1")) as c:
        prepare(c, {"bench": reads.PARTITIONS})
        server = c.servers[0]
        once(server.url, "GET", reads.ROUTE + "x").expect(200)
        report.add("route GET against raw", lambda: reads.against_raw(server, base))
        report.add("bursts", lambda: reads.bursts(server))
        report.add("route GET against nginx and Redis", lambda: reads.against_servers(server, base))
        report.add("batch lookup", lambda: reads.batch(server))
        report.add("route GET against etcd and ZooKeeper", lambda: reads.against_stores(server, base))


def run_writes(report, base):
    with Cluster(1) as c:
        prepare(c, {"moves": MOVED})
        report.add("10 000 watchers", lambda: writes.fan_out(c.servers[0], base))
    with contextlib.ExitStack() as stack:
        c = stack.enter_context(Cluster(3, flags=()))
        prepare(c, {"moves": MOVED, "bench": 65536})
        etcd = peer(stack, lambda: Etcd(base / "etcd3", 3), report, "etcd, 3 servers")
        zk = peer(stack, lambda: ZooKeeper(base / "zk3", 3), report, "ZooKeeper, 3 servers")
        report.add("linearizable route GET", lambda: reads.linearizable(c, etcd))
        report.add("one command at a time", lambda: writes.one_at_a_time(c, etcd, base))
        report.add("1 000 watchers", lambda: writes.fan_out_etcd(c, etcd))
        report.add("durable commands", lambda: writes.durable(c, etcd, zk, base))


def run_sizes(report, base):
    report.add("in-process lookup", sizes.lookups)
    report.add("libcadastre", sizes.clients)
    report.add("growth of commands", sizes.apply_costs)
    with Cluster(1) as c:
        prepare(c, {"small": 10_000, "bench": sizes.PARTITIONS})
        report.add("whole map", lambda: sizes.whole_map(c.servers[0], base))
        report.add("growth of changes", lambda: sizes.changes_cost(c.servers[0], "small", "bench"))
        report.add("stalls", lambda: sizes.stalls(c))
        c.servers[1].kill()
        report.add("restart", lambda: sizes.restart(c, base))


GROUPS = {"reads": run_reads, "writes": run_writes, "sizes": run_sizes}


def main():
    write = "--write" in sys.argv
    chosen = [a for a in sys.argv[1:] if a in GROUPS] or list(GROUPS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report, where = Report(), machine()
    print(f"# {where}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cadastre-bench-") as base:
        os.chmod(base, 0o755)
        for name in chosen:
            GROUPS[name](report, pathlib.Path(base))
    print(f"# all took {time.monotonic() - report.began:.0f} s", flush=True)
    if write:
        write_document(report, where)
    missed = sum(check.met is False for _, row, _ in report.rows if row for check in row.checks)
    met = sum(check.met is True for _, row, _ in report.rows if row for check in row.checks)
    print(f"# {met} targets met, {missed} missed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
