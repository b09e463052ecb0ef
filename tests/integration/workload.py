# SPDX-License-Identifier: Apache-2.0
"""Writers that split, merge and reassign while faults happen, a follower of the changes, and the check over what they
saw: every acknowledged command took effect once, at its revision, in an order that agrees with true time; refused ones
never did; the follower's map, built from changes alone, is the directory's."""
import json
import random
import sys
import threading
import time
import uuid

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent.parent / "tools"))
from cluster import Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position


class Record:
    """One command: when it was sent and answered (monotonic), and how."""

    def __init__(self, key, sent):
        self.key, self.sent, self.answered, self.status, self.body = key, sent, None, None, None


class Writers:
    most_partitions, pace_s = 200, 0

    def __init__(self, cluster, keyspace, count=3, seed=1):
        self.cluster, self.keyspace = cluster, keyspace
        self.records, self.stopping = [], False
        self.lock = threading.Lock()
        self.acknowledged = 0
        self.latest = 0  # the highest revision that an answer has named
        self.avoid = {}
        self.errors = []
        self.threads = [threading.Thread(target=self._run, args=(seed * 1000 + i,)) for i in range(count)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopping = True
        for t in self.threads:
            t.join()
        assert not self.errors, self.errors

    def wait_acknowledged(self, more):
        """Faults only count when work goes on around them."""
        target = self.acknowledged + more
        wait_for(lambda: self.acknowledged >= target or self.errors, f"{more} more acknowledged commands")

    def _run(self, seed):
        try:
            rand = random.Random(seed)
            while not self.stopping:
                self._one(rand)
                time.sleep(self.pace_s)
        except BaseException as why:  # told by stop()
            self.errors.append(repr(why))

    def _any_server(self, rand):
        """One that did not just fail to answer, if there is any: as a client with several endpoints does."""
        urls = [s.url for s in self.cluster.servers]
        good = [u for u in urls if self.avoid.get(u, 0) < time.monotonic()]
        return rand.choice(good or urls)

    def _no_answer(self, url):
        self.avoid[url] = time.monotonic() + 2

    def _one(self, rand):
        server = self._any_server(rand)
        try:
            seen = once(server, "GET", f"/v1/keyspaces/{self.keyspace}/routes?limit=10000", timeout=0.7)
        except Unreachable:
            self._no_answer(server)
            return
        if seen.status != 200:
            time.sleep(0.02)
            return
        command = self._choose(rand, seen.json["routes"])
        if command is not None:
            self._send(rand, *command)

    def _choose(self, rand, routes):
        at = rand.randrange(len(routes))
        route = routes[at]
        path = f"/v1/keyspaces/{self.keyspace}/partitions/{route['partition']}"
        kind = rand.random()
        if kind < 0.4 and len(routes) < self.most_partitions:
            start, end = route.get("start", ""), route.get("end")
            key = start + rand.choice("0123456789abcdefghijklmnopqrstuvwxyz")
            if key <= start or (end is not None and key >= end) or len(key) > 60:
                return None
            return path + "/split", {"at": [key], "expect_epoch": route["epoch"]}
        if kind < 0.7 and at + 1 < len(routes):
            return path + "/merge", {"with": routes[at + 1]["partition"]}
        if route["primary"] is None:
            return None
        others = [n for n in ("n1", "n2", "n3") if n != route["primary"]["node"]]
        return path + "/move", {"from": route["primary"]["node"], "to": rand.choice(others), "empty": True}

    def _send(self, rand, path, body):
        """Until the outcome is known, always with the same key; a time-out is neither success nor failure."""
        record = Record(uuid.uuid4().hex, time.monotonic())
        with self.lock:
            self.records.append(record)
        url = self._any_server(rand)
        while True:
            try:
                answer = once(url, "POST", path, body, {"Idempotency-Key": record.key}, timeout=1.5)
            except Unreachable:
                self._no_answer(url)
                answer = None
            if answer is not None and answer.status == 307:
                url = "/".join(answer.headers["location"].split("/")[:3])
                continue
            if answer is not None and answer.status != 503 and answer.status < 500:
                record.answered, record.status, record.body = time.monotonic(), answer.status, answer.raw
                if answer.status < 300:
                    with self.lock:
                        self.acknowledged += 1
                        self.latest = max(self.latest, answer.json["revision"])
                return
            if self.stopping and time.monotonic() - record.sent > 30:
                return
            url = self._any_server(rand)
            time.sleep(0.02)

    def check(self, kept=True):
        """To be called when the faults are over and all servers live. `kept`: no outcome can have expired yet."""
        done = [r for r in self.records if r.status is not None and r.status < 300]
        assert done, "nothing was acknowledged: the run says nothing"
        revisions = {}
        for r in done:
            revision = json.loads(r.body)["revision"]
            assert revision not in revisions, f"two commands at revision {revision}"
            revisions[revision] = r
        self._check_true_time(sorted(revisions.items()))
        for r in done if kept else ():
            found = self.cluster.call("GET", f"/v1/commands/{r.key}").expect(200)
            assert found["status"] == "applied" and found["applied_revision"] == json.loads(r.body)["revision"], (found, r.body)
        self._check_refused()
        return len(done)

    @staticmethod
    def _check_true_time(ordered):
        """Answered before sent means a lower revision: walking down, no command may have been answered before every
        later one was sent ... that is, the earliest answer among later revisions is not before this one's send."""
        earliest_later = float("inf")
        for revision, record in reversed(ordered):
            assert record.sent <= earliest_later, f"revision {revision} was sent after a later one was answered"
            earliest_later = min(earliest_later, record.answered)

    def _check_refused(self):
        refused = [r for r in self.records if r.status is not None and 400 <= r.status < 500]
        for r in refused[-50:]:
            found = self.cluster.call("GET", f"/v1/commands/{r.key}")
            if found.status == 200:
                assert found.json["status"] == "refused", f"a refused command took effect: {r.body} {found.raw}"


class Follower:
    """A router that knows the keyspace only from one map and the changes since."""

    def __init__(self, cluster, keyspace):
        self.cluster, self.keyspace = cluster, keyspace
        self.routes, self.revision, self.resets = {}, 0, 0
        self.stopping, self.error = False, None
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()
        assert self.error is None, self.error

    def _load(self, url):
        answer = once(url, "GET", f"/v1/keyspaces/{self.keyspace}/map", timeout=5)
        if answer.status == 200 and answer.json["revision"] >= self.revision:
            self.routes = {r["partition"]: r for r in answer.json["routes"]}
            self.revision = answer.json["revision"]

    def _step(self, url):
        answer = once(
            url, "GET", f"/v1/keyspaces/{self.keyspace}/changes?since={self.revision}&wait_ms=500", timeout=5
        )
        if answer.status == 410:
            self.resets += 1
            self._load(url)
        if answer.status != 200:
            return
        body = answer.json
        last = self.revision
        for change in body["changes"]:
            assert change["revision"] > self.revision, f"{change} at or before {self.revision}"
            assert change["revision"] >= last, "changes out of order"
            last = change["revision"]
            self._apply(change)
        self.revision = max(self.revision, body["revision"])

    def _apply(self, change):
        for partition in change["removed"]:
            assert partition in self.routes, f"removed {partition}, which was not there"
            del self.routes[partition]
        for route in change["routes"]:
            self.routes[route["partition"]] = route

    def _run(self):
        rand = random.Random(7)
        try:
            while not self.stopping:
                url = rand.choice(self.cluster.servers).url
                try:
                    if not self.routes:
                        self._load(url)
                    else:
                        self._step(url)
                except Unreachable:
                    time.sleep(0.05)
        except BaseException as why:  # told by __exit__
            self.error = repr(why)

    def check(self):
        """After the writers stopped: it reaches the present revision, and its map is the directory's."""
        want = self.cluster.call("GET", f"/v1/keyspaces/{self.keyspace}/map?consistency=linearizable").expect(200)
        wait_for(lambda: self.revision >= want["revision"] or self.error, "the follower to catch up")
        assert self.error is None, self.error
        mine = sorted(self.routes.values(), key=lambda r: (r.get("start", ""), r["partition"]))
        assert mine == want["routes"], "the followed map differs"
