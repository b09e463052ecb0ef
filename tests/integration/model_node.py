# SPDX-License-Identifier: Apache-2.0
"""A data node as docs/movement.md asks for one, without data: it registers, renews, follows its tasks, and writes down
when it might have accepted a write. All nodes of a test are threads of one process, so their times are of one clock."""
import threading
import time

from cluster import Unreachable, once


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Hold:
    """From when until when a node might write a partition at an epoch."""

    def __init__(self, node, partition, epoch, begin):
        self.node, self.partition, self.epoch, self.begin, self.end = node, partition, epoch, begin, begin

    def __repr__(self):
        return f"{self.node} holds {self.partition} at {self.epoch} from {self.begin:.3f} to {self.end:.3f}"


class ModelNode:
    """`paused` stands for a process that is stopped: it renews nothing, and believes in its lease until that is over.
    `crash()` ends the process: what it held ends there and then."""

    def __init__(self, cluster, name, address=None, labels=None):
        self.cluster, self.name, self.labels = cluster, name, labels
        self.address = address or f"{name}:9000"
        self.session = self.lease_s = None
        self.known_session = None  # what the data directory remembers
        self.grants, self.seen, self.registered = {}, 0, 0
        self.work, self.seq = {}, 0
        self.stops_at = None  # a stage that this node never reports on
        self.also = {}  # what else it says, by stage
        self.lease_until = 0.0
        self.holds, self.open = [], {}
        self.ended = 0
        self.beats = 0
        self.paused = self.stopping = False
        self.lock = threading.RLock()
        self.threads = []
        self.heartbeat_s = 0.2

    # --- what it may do, and what it did ---

    def may_write(self, partition):
        with self.lock:
            return self._may_write(partition, now())

    def _may_write(self, partition, at):
        g = self.grants.get(partition)
        return (g is not None and g["role"] == "primary" and g["session"] == self.session and not g["fenced"]
                and at < self.lease_until)

    def _close(self, partition, at):
        hold = self.open.pop(partition, None)
        if hold is not None:
            hold.end = min(hold.end, at)
            self.holds.append(hold)

    def _account(self):
        """With the lock: opens, extends and closes holds by what is known now."""
        at = now()
        for partition in list(self.open):
            g = self.grants.get(partition)
            if not self._may_write(partition, at) or g["epoch"] != self.open[partition].epoch:
                self._close(partition, at)
        for partition, g in self.grants.items():
            if self._may_write(partition, at):
                hold = self.open.setdefault(partition, Hold(self.name, partition, g["epoch"], at))
                hold.end = self.lease_until  # until something ends it sooner

    # --- the calls ---

    def register(self, name_previous=True, copies=None):
        body = {"address": self.address} | ({"labels": self.labels} if self.labels else {})
        if name_previous and self.known_session:
            body["previous_session"] = self.known_session
        if copies is not None:
            body["copies"] = copies
        answer = self.cluster.call("PUT", f"/v1/nodes/{self.name}", body).expect(200)
        with self.lock:
            self.session = self.known_session = answer["session"]
            self.lease_s = answer["lease_ms"] / 1000
            self.grants = {g["partition"]: g for g in answer["partitions"]}
            # Of its stages the answer says nothing: the first look at the tasks is for all of them.
            self.seen, self.registered = 0, answer["revision"]
            self.lease_until = 0.0  # the lease begins with the first heartbeat that is answered
            self._account()
        return answer

    def heartbeat(self, url=None):
        """One renewal; True when it was answered with 2xx."""
        session, sent = self.session, now()
        try:
            answer = once(url or self.cluster.leader().url, "POST", f"/v1/nodes/{self.name}/heartbeat",
                          {"session": session}, timeout=5)
        except (Unreachable, AssertionError):
            return False
        with self.lock:
            if session != self.session:
                return False
            if answer.status == 200:
                self.beats += 1
                self.lease_until = max(self.lease_until, sent + answer.json["lease_ms"] / 1000)
                self._account()
                return True
            if answer.status == 409:
                assert answer.json["code"] == "session_ended", answer.raw
                self.forget()
        return False

    def forget(self):
        """Stops serving."""
        with self.lock:
            at = now()
            for partition in list(self.open):
                self._close(partition, at)
            self.ended += self.session is not None
            self.session, self.grants, self.lease_until = None, {}, 0.0

    def poll(self, url, wait_ms=500):
        session, seen = self.session, self.seen
        try:
            answer = once(url, "GET", f"/v1/nodes/{self.name}/tasks?session={session}&since={seen}&wait_ms={wait_ms}",
                          timeout=5)
        except Unreachable:
            return
        with self.lock:
            if session != self.session or self.paused or answer.status != 200:
                return
            if answer.json["revision"] < max(self.seen, self.registered):
                return
            for task in answer.json["tasks"]:
                if task["kind"] == "grant":
                    old = self.grants.get(task["partition"])
                    if old is None or task["revision"] > old["revision"]:
                        self.grants[task["partition"]] = task
                    self._drop_work(task)
                elif task["kind"] == "revoke":
                    self.grants.pop(task["partition"], None)
                else:
                    self.work[task["id"]] = task
            self.seen = answer.json["revision"]
            self._account()

    def _drop_work(self, grant):
        """A grant names the operation, attempt and stage that hold now: what was asked for in others is over."""
        now_at = [grant.get(k) for k in ("operation", "attempt", "stage")]
        self.work = {
            key: t for key, t in self.work.items()
            if t["kind"] == "cleanup" or t["partition"] != grant["partition"]
            or [t["operation"], t["attempt"], t["stage"]] == now_at
        }

    # --- a running node ---

    def start(self, name_previous=True):
        self.stopping = False
        self.register(name_previous)
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self._beat, self._follow, self._work)]
        for t in self.threads:
            t.start()
        return self

    def _beat(self):
        while not self.stopping:
            if self.paused:
                time.sleep(0.01)
                continue
            if self.session is None:
                try:
                    self.register()
                except AssertionError:
                    pass
            self.heartbeat()
            time.sleep(self.heartbeat_s)

    def _follow(self):
        at = 0
        while not self.stopping:
            servers = self.cluster.alive()
            at += 1
            if self.paused or self.session is None or not servers:
                time.sleep(0.01)
                continue
            self.poll(servers[at % len(servers)].url, 300)

    # --- its part in operations, as if there were data ---

    def _report_of(self, task):
        source, stage = task.get("side") == "source", task["stage"]
        same = {"items": 3, "checksum": "00000000000000aa"}
        if source:
            return {"SNAPSHOT": {"snapshot": "s1", "position": 10, "bytes_total": 100},
                    "DUAL_WRITE": {"active": True, "from_position": 20},
                    "VALIDATE": {"at_position": task.get("validate_at"), **same},
                    "FENCE": {"fenced": True, "epoch": task.get("epoch"), "final_position": 30,
                              "checksum": "00000000000000bb"},
                    "WINDOW": {"open_operations": 0, "stale_reads": 0}}.get(stage)
        return {"PREPARE": {"ready": True, "free_bytes": 1000},
                "COPY": {"chunk": 1, "bytes_done": 100, "complete": True},
                "CATCH_UP": {"applied_position": 15, "lag_bytes": 0},
                "DUAL_WRITE": {"applied_position": 20},
                "VALIDATE": {"at_position": task.get("validate_at"), **same},
                "CUTOVER": {"applied_position": 30, "checksum": "00000000000000bb"}}.get(stage)

    def _do(self, task):
        leader = self.cluster.leader().url
        if task["kind"] == "cleanup":
            once(leader, "POST", f"/v1/nodes/{self.name}/duties/{task['duty']}",
                 {"session": self.session, "copy": task["copy"], "deleted_bytes": 1})
            return
        body = self._report_of(task)
        if body is None or task["stage"] == self.stops_at:
            return
        with self.lock:
            if task["kind"] == "fence" and task["partition"] in self.grants:
                self.grants[task["partition"]] = {**self.grants[task["partition"]], "fenced": True}
                self._account()
            self.seq += 1
            body |= self.also.get(task["stage"], {}) if task.get("side") == "destination" else {}
            body |= {"node": self.name, "session": self.session, "attempt": task["attempt"], "stage": task["stage"],
                     "seq": self.seq}
        once(leader, "POST", f"/v1/operations/{task['operation']}/reports", body)

    def _work(self):
        while not self.stopping:
            time.sleep(0.03)
            if self.paused or self.session is None:
                continue
            for task in list(self.work.values()):
                try:
                    self._do(task)
                except (Unreachable, AssertionError):
                    pass

    def crash(self):
        """The process is gone; nothing of it goes on."""
        self.stopping = True
        with self.lock:
            at = now()
            for partition in list(self.open):
                self._close(partition, at)
            self.session, self.grants, self.lease_until = None, {}, 0.0
            self.work = {}
        for t in self.threads:
            t.join(timeout=10)

    def all_holds(self):
        with self.lock:
            return self.holds + list(self.open.values())


def overlaps(nodes):
    """Pairs of different nodes that might have written the same partition at the same time, by true time; and of one
    partition and epoch that two nodes held."""
    holds = sorted((h for n in nodes for h in n.all_holds() if h.end > h.begin), key=lambda h: h.begin)
    found = []
    for i, a in enumerate(holds):
        for b in holds[i + 1:]:
            if a.partition == b.partition and a.node != b.node and (b.begin < a.end or a.epoch == b.epoch):
                found.append((a, b))
    return found
