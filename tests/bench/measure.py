# SPDX-License-Identifier: Apache-2.0
"""What every row is measured with: processes, their CPU and memory, load programs, medians of interleaved rounds."""
import ctypes
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from cluster import BUILD, free_port, once, wait_for  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import

PROGRAMS = BUILD / "tests" / "bench"
TICK = os.sysconf("SC_CLK_TCK")
LONG = os.environ.get("BENCH_LONG") == "1"
_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)


def start(command, log, **options):
    """A process that ends with this one."""
    with open(log, "ab") as out:
        return subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            preexec_fn=_die_with_parent, **options,
        )


def end(process):
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


def cpu_s(pids):
    """User and system time of whole processes so far."""
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def rss(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_rss(pid):
    found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) * 1024


def reset_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def metric(url, name):
    answer = once(url, "GET", "/metrics", timeout=30)
    found = re.search(rf"^{re.escape(name)} (\S+)$", answer.raw.decode(), re.M)
    return float(found.group(1))


class Failed(Exception):
    """A load program did not do what it was to do."""


def program(name, *arguments, timeout=180, statuses=(0,)):
    run = subprocess.run(
        [str(PROGRAMS / name), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
    )
    if run.returncode not in statuses:
        raise Failed(f"{name} {' '.join(map(str, arguments))}: exit {run.returncode}: {run.stdout[-300:]}{run.stderr[-300:]}")
    return run.stdout


class Load:
    """What one run of a load program says, with the CPU its servers spent meanwhile."""

    def __init__(self, requests, seconds, p50_us, p99_us, cpu):
        self.requests, self.seconds, self.p50_us, self.p99_us = requests, seconds, p50_us, p99_us
        self.rate = requests / seconds
        self.cpu_us = 1e6 * cpu / max(requests, 1)


def hload(port, connections, seconds, *arguments, pids=(), binary="hload"):
    before = cpu_s(pids)
    said = json.loads(program(binary, port, connections, seconds, *arguments))
    return Load(said["requests"], said["seconds"], said["p50_us"], said["p99_us"], cpu_s(pids) - before)


def h2load(port, connections, seconds, body, path, pids=()):
    """gRPC with one prebuilt message, again and again."""
    with tempfile.NamedTemporaryFile() as log:
        before = cpu_s(pids)
        run = subprocess.run(
            ["h2load", "-c", str(connections), "-m", "1", "-t", "1", "-D", str(seconds), "-d", str(body),
             "-H", "content-type: application/grpc", "-H", "te: trailers", f"--log-file={log.name}",
             f"http://127.0.0.1:{port}{path}"],
            capture_output=True, text=True, timeout=seconds + 60, check=False,
        )
        cpu = cpu_s(pids) - before
        done = [line.split("\t") for line in pathlib.Path(log.name).read_text().splitlines()]
    times = sorted(int(fields[2]) for fields in done if fields[1] == "200")
    if run.returncode != 0 or not times or len(times) != len(done):
        raise Failed(f"h2load: {run.stdout[-300:]}{run.stderr[-300:]}")
    return Load(len(times), seconds, times[len(times) // 2], times[int(len(times) * 0.99)], cpu)


def interleave(contenders, rounds):
    """{name: [result, …]}: each round runs everybody once, so that a bad moment of the machine hits all."""
    results = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            results[name].append(run())
    return results


def median(results, field):
    return statistics.median(getattr(r, field) for r in results)


def ratio(results, ours, theirs, field):
    """Median of the rounds' ratios: both sides of each are of the same moment."""
    return statistics.median(getattr(a, field) / max(getattr(b, field), 1e-9) for a, b in zip(results[ours], results[theirs]))


class Check:
    """One target of a row: the measured value and the bound it must keep; bound None is only reported."""

    def __init__(self, label, value, at_least=None, at_most=None, unit="×"):
        self.label, self.value, self.at_least, self.at_most, self.unit = label, value, at_least, at_most, unit

    @property
    def met(self):
        if self.value is None or (self.at_least is None and self.at_most is None):
            return None
        return self.value >= self.at_least if self.at_least is not None else self.value <= self.at_most

    @property
    def target(self):
        if self.at_least is not None:
            return f"{self.label} ≥ {self.at_least:g}{self.unit}"
        if self.at_most is not None:
            return f"{self.label} ≤ {self.at_most:g}{self.unit}"
        return self.label

    @property
    def measured(self):
        if self.value is None:
            return "not run"
        return f"{self.value:,.2f}{self.unit}" if abs(self.value) < 100 else f"{self.value:,.0f}{self.unit}"


class Row:
    def __init__(self, what, against, checks, note=""):
        self.what, self.against, self.checks, self.note = what, against, checks, note
