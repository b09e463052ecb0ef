# SPDX-License-Identifier: Apache-2.0
"""What chaos.py can break. A fault is begun, held and ended; `effect` says whether it did anything: a fault that had none
proves nothing, and the run counts it as void."""
import os
import pathlib
import re
import signal
import subprocess
import time

from cluster import Unreachable, once, wait_for

CPU = pathlib.Path("/sys/fs/cgroup/cpu")


class Fault:
    kind = None

    def __init__(self, cluster, rand, workdir):
        self.c, self.rand, self.workdir = cluster, rand, workdir
        self.effect, self.detail = False, ""

    def begin(self):
        raise NotImplementedError

    def end(self):
        raise NotImplementedError

    def victim(self):
        """The leader half of the time, when there is one to be seen."""
        if self.rand.random() < 0.5:
            for s in self.c.alive():
                seen = s.cluster()
                if seen and seen["leader"] == s.id:
                    self.detail = f"leader {s.id}"
                    return s
        s = self.rand.choice(self.c.servers)
        self.detail = f"server {s.id}"
        return s


def ended(s):
    return s.process is None or s.process.poll() is not None


def again(cluster, s):
    """Starts it unless it runs, or was taken out meanwhile."""
    if s in cluster.servers and ended(s):
        s.expected = False
        s.start()


class Kill(Fault):
    kind = "process"

    def begin(self):
        s = self.who = self.victim()
        s.expected = True
        if not ended(s):
            s.kill()
            self.effect = True

    def end(self):
        again(self.c, self.who)


class KillAll(Fault):
    kind = "process"

    def begin(self):
        for s in self.c.servers:
            s.expected = True
            if not ended(s):
                s.kill()
                self.effect = True

    def end(self):
        for s in self.rand.sample(self.c.servers, len(self.c.servers)):
            again(self.c, s)


class Restart(Fault):
    """SIGTERM, at times a second one at once."""

    kind = "process"

    def begin(self):
        s = self.who = self.victim()
        s.expected = True
        if ended(s):
            return
        self.signals = self.rand.choice((1, 2))
        for _ in range(self.signals):
            s.send(signal.SIGTERM)

    def end(self):
        s = self.who
        if s.process is not None:
            s.send(signal.SIGCONT)  # a pause may have got in between
            code = s.process.wait(timeout=60)
            assert code in (0, -signal.SIGKILL), f"exit {code} after SIGTERM\n{s.tail()}"
            self.effect = code == 0
        again(self.c, s)


class Pause(Fault):
    kind = "process"

    def begin(self):
        self.who = self.victim()
        self.process = self.who.process
        if not ended(self.who):
            self.process.send_signal(signal.SIGSTOP)
            state = pathlib.Path(f"/proc/{self.process.pid}/stat")
            wait_for(lambda: self.process.poll() is not None or state.read_text().rsplit(")", 1)[1].split()[0] in "Tt", "T")
            self.effect = True

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)


class Net(Fault):
    """Rules in the servers' namespaces; the packets they took are the proof."""

    kind = "network"

    def begin(self):
        self.rules()

    def end(self):
        taken = sum(s.dropped() for s in self.c.servers)
        self.effect = taken > 0
        self.detail += f", {taken} packets"
        self.c.heal()

    def rules(self):
        raise NotImplementedError

    def others(self, s):
        return [o for o in self.c.servers if o is not s]


class Isolate(Net):
    def rules(self):
        self.c.isolate(self.victim(), by_reset=self.rand.random() < 0.3)


class CutPair(Net):
    def rules(self):
        a = self.victim()
        b = self.rand.choice(self.others(a))
        self.detail += f" and {b.id}"
        self.c.cut(a, b)


class Deaf(Net):
    def rules(self):
        s = self.victim()
        for o in self.others(s):
            s.deaf_to(o)


class Mute(Net):
    def rules(self):
        s = self.victim()
        for o in self.others(s):
            o.deaf_to(s)


class OneWayRing(Net):
    """Each hears only its predecessor."""

    def rules(self):
        around = self.c.servers
        for i, s in enumerate(around):
            s.deaf_to(around[(i + 1) % len(around)])


class Loss(Net):
    def rules(self):
        s = self.victim()
        share = self.rand.choice((0.05, 0.2, 0.4))
        self.detail += f" {share}"
        for o in self.others(s):
            s.lose_from(o, share)
            o.lose_from(s, share)


class Narrow(Net):
    def rules(self):
        self.who = self.victim()
        self.who.slow_link(self.rand.choice(("64kbit", "256kbit", "2mbit")))

    def end(self):
        s = self.who
        if s.space is None:
            return
        shown = s.inside("tc", "-s", "qdisc", "show", "dev", "eth0")
        found = re.search(r"dropped (\d+), overlimits (\d+)", shown)
        self.effect = found is not None and int(found[1]) + int(found[2]) > 0
        s.fast_link()


class SlowDisk(Fault):
    """Every submission of a write to the log, and every fsync, takes this much longer."""

    kind = "storage"

    def begin(self):
        self.who = self.victim()
        self.trace = self.workdir / f"strace-{time.monotonic_ns()}"
        delay = self.rand.choice((20000, 100000, 600000))
        self.detail += f" {delay} us"
        self.strace = None
        if not ended(self.who):
            self.strace = subprocess.Popen(
                ["strace", "-f", "-q", "-o", str(self.trace), "-e", "trace=io_submit,fsync,fdatasync,pwritev2",
                 "-e", f"inject=io_submit,fsync,fdatasync,pwritev2:delay_enter={delay}", "-p", str(self.who.process.pid)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )

    def end(self):
        if self.strace is None:
            return
        self.strace.send_signal(signal.SIGINT)
        try:
            self.strace.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.strace.kill()
            self.strace.wait()
        self.effect = self.trace.exists() and "DELAYED" in self.trace.read_text(errors="replace")
        self.trace.unlink(missing_ok=True)


class LittleCpu(Fault):
    kind = "storage"

    def begin(self):
        self.who, self.group = self.victim(), CPU / f"cad{os.getpid()}"
        if not CPU.is_dir() or ended(self.who):
            return
        self.pid = self.who.process.pid
        found = re.search(r"^\d+:(?:[^:]*,)?cpu(?:,[^:]*)?:(.*)$", pathlib.Path(f"/proc/{self.pid}/cgroup").read_text(), re.M)
        self.home = CPU / (found[1].lstrip("/") if found else "")
        self.group.mkdir(exist_ok=True)
        (self.group / "cpu.cfs_period_us").write_text("100000")
        (self.group / "cpu.cfs_quota_us").write_text(str(self.rand.choice((3000, 8000))))
        (self.group / "cgroup.procs").write_text(str(self.pid))

    def end(self):
        if not self.group.is_dir():
            return
        throttled = re.search(r"nr_throttled (\d+)", (self.group / "cpu.stat").read_text())
        self.effect = throttled is not None and int(throttled[1]) > 0
        try:
            (self.home / "cgroup.procs").write_text(str(self.pid))
        except OSError:
            pass  # it has ended
        wait_for(lambda: (self.group / "cgroup.procs").read_text() == "", "the limited group to be empty")
        self.group.rmdir()


class Snapshot(Fault):
    kind = "membership"

    def begin(self):
        for s in self.c.alive():
            try:
                self.effect |= once(s.url, "POST", "/v1/cluster/snapshot", {}, timeout=2).status == 202
            except Unreachable:
                pass

    def end(self):
        pass


class Transfer(Fault):
    kind = "membership"

    def begin(self):
        to = self.rand.choice(self.c.servers)
        for s in self.c.alive():
            try:
                answer = once(s.url, "POST", "/v1/cluster/transfer-leadership", {"to": to.id}, timeout=3)
            except Unreachable:
                continue
            if answer.status != 307:
                self.effect |= answer.status == 200
                self.detail = f"to {to.id}: {answer.status}"

    def end(self):
        pass


def table(c):
    for s in c.alive():
        seen = s.cluster()
        if seen and seen["leader"] == s.id:
            return {m["id"]: m for m in seen["servers"]}
    return {}


class Replace(Fault):
    """A new server joins, and one of the old ones goes, for good."""

    kind = "membership"
    next_id = 10

    def begin(self):
        Replace.next_id += 1
        number = Replace.next_id
        via = [s for s in self.c.alive() if s.cluster()]
        if not via:
            self.detail = "nobody to join"
            self.fresh = None
            return
        self.fresh = self.c.make(number, [*self.c.flags, "--join", self.rand.choice(via).url])
        self.fresh.expected = True  # it ends with an explanation when the cluster does not take it in
        self.c.servers.append(self.fresh)
        self.fresh.start()
        self.detail = f"{number} joins"

    def end(self):
        s = self.fresh
        if s is None:
            return

        def voter():
            if ended(s):  # --join gave up while there was no quorum
                s.start()
            return table(self.c).get(s.id, {}).get("role") == "voter"

        wait_for(voter, f"server {s.id} to be a voter", 120)
        s.expected = False
        old = self.rand.choice([o for o in self.c.servers if o is not s])
        old.expected = True
        self.detail += f", {old.id} leaves"

        def removed():
            answer = self.c.call("DELETE", f"/v1/cluster/servers/{old.id}", deadline_s=120)
            assert answer.status in (200, 202, 204, 404) or answer.json["code"] == "quorum_at_risk", answer.raw
            return answer.status != 409

        wait_for(removed, f"server {old.id} to be dispensable", 120)
        wait_for(lambda: old.id not in table(self.c) and table(self.c), f"server {old.id} to be gone", 120)
        if not ended(old):
            old.kill()
        self.c.drop_server(old)
        self.effect = True


class Demote(Fault):
    """A voter becomes an observer, and a voter again."""

    kind = "membership"

    def begin(self):
        self.who = self.rand.choice(self.c.servers)
        self.detail = f"server {self.who.id}"
        self._ask("observer", 4)

    def _ask(self, role, deadline_s):
        if not self.c.alive():
            return
        try:
            answer = self.c.call("PATCH", f"/v1/cluster/servers/{self.who.id}", {"role": role}, timeout=3, deadline_s=deadline_s)
            self.effect |= role == "observer" and answer.status < 300
        except AssertionError:
            pass  # no outcome while others break things; end() goes on until it is a voter

    def end(self):
        if self.who not in self.c.servers:
            return

        def voter():
            if table(self.c).get(self.who.id, {}).get("role") == "voter":
                return True
            self._ask("voter", 5)
            return False

        wait_for(voter, f"server {self.who.id} to be a voter again", 120)


ALL = (Kill, KillAll, Restart, Pause, Isolate, CutPair, Deaf, Mute, OneWayRing, Loss, Narrow, SlowDisk, LittleCpu, Snapshot,
       Transfer, Replace, Demote)
