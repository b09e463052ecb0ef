# SPDX-License-Identifier: Apache-2.0
"""Clients that only look, while everything is being broken: linearizable readers, a follower by long poll, one by
Server-Sent Events, and one that watches who says that it leads. Each raises on the first wrong answer; what they saw is
compared with each other at the end."""
import bisect
import hashlib
import http.client
import json
import random
import threading
import time
import urllib.parse

from cluster import Unreachable, once
from workload import Follower


def digest(routes):
    ordered = sorted(routes, key=lambda r: (r.get("start", ""), r["partition"]))
    return hashlib.sha256(json.dumps(ordered, sort_keys=True).encode()).hexdigest()[:16]


class Background:
    """A thread until stop(), which raises what went wrong in it."""

    def __init__(self, seed):
        self.rand, self.stopping, self.error = random.Random(seed), False, None
        self.thread = threading.Thread(target=self._run)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopping = True
        self.thread.join()
        assert self.error is None, self.error

    def _run(self):
        try:
            while not self.stopping:
                self.step()
        except BaseException as why:  # told by stop()
            self.error = f"{type(self).__name__}: {why!r}"


class Frontier:
    """The highest revision that any completed answer has shown: whatever starts later must show it too."""

    def __init__(self, writers, revision):
        self.writers, self.read, self.lock = writers, revision, threading.Lock()

    def now(self):
        return max(self.read, self.writers.latest)

    def saw(self, revision):
        with self.lock:
            self.read = max(self.read, revision)


class Reader(Background):
    """Any server, linearizable or with min_revision; both may never show less than what was answered before they began."""

    def __init__(self, cluster, keyspace, frontier, seed):
        super().__init__(seed)
        self.cluster, self.keyspace, self.frontier = cluster, keyspace, frontier
        self.seen, self.answered, self.refused = {}, 0, 0

    def step(self):
        time.sleep(0.02)
        floor = self.frontier.now()
        want = self.rand.choice(("consistency=linearizable", f"min_revision={floor}&timeout_ms=1000"))
        url, path = self.rand.choice(self.cluster.servers).url, f"/v1/keyspaces/{self.keyspace}/map?{want}"
        try:
            answer = once(url, "GET", path, timeout=3)
            if answer.status == 307:
                target = urllib.parse.urlsplit(answer.headers["location"])
                answer = once(f"{target.scheme}://{target.netloc}", "GET", path, timeout=3)
        except Unreachable:
            return
        if answer.status != 200:
            assert answer.status in (307, 503), f"{path}: {answer.status} {answer.raw[:200]!r}"
            self.refused += 1
            return
        body = answer.json
        revision = body["revision"]
        assert revision >= floor, f"{path} showed {revision}, {floor} was answered before it began"
        assert int(answer.headers["cadastre-revision"]) == revision, answer.headers
        self.frontier.saw(revision)
        self.answered += 1
        found = digest(body["routes"])
        assert self.seen.setdefault(revision, found) == found, f"two maps at revision {revision}"


class PinnedReader(Background):
    """One server, which it never leaves: the one to notice a deposed leader that still answers. Its patience varies, so that
    requests wait in a paused server which were made after another leader had acknowledged commands."""

    def __init__(self, cluster, keyspace, frontier, place, seed):
        super().__init__(seed)
        self.cluster, self.keyspace, self.frontier, self.place = cluster, keyspace, frontier, place
        self.answered = 0

    def step(self):
        time.sleep(0.01)
        servers, floor = self.cluster.servers, self.frontier.now()
        url = servers[self.place % len(servers)].url
        path = f"/v1/keyspaces/{self.keyspace}/route?key=k&consistency=linearizable"
        try:
            answer = once(url, "GET", path, timeout=self.rand.choice((0.3, 0.6, 1.2, 8)))
        except Unreachable:
            return
        if answer.status != 200:
            assert answer.status in (307, 503), f"{path}: {answer.status} {answer.raw[:200]!r}"
            return
        revision = int(answer.headers["cadastre-revision"])
        assert revision >= floor, f"{url}{path} showed {revision}, {floor} was answered before it began"
        self.frontier.saw(revision)
        self.answered += 1


class Leaders(Background):
    """No two servers lead in one term; a server's state never goes back while its process lives."""

    def __init__(self, cluster, seed):
        super().__init__(seed)
        self.cluster, self.by_term, self.last = cluster, {}, {}

    def step(self):
        time.sleep(0.1)
        for s in list(self.cluster.servers):
            process = s.process
            if process is None or process.poll() is not None:
                continue
            seen = s.cluster()
            if seen is None:
                continue
            term, life = seen["term"], (s.id, process.pid)
            if seen["leader"] == s.id:
                assert self.by_term.setdefault(term, s.id) == s.id, f"{s.id} and {self.by_term[term]} lead in term {term}"
            before = self.last.get(life, 0)
            assert seen["revision"] >= before, f"server {s.id} went from {before} back to {seen['revision']}"
            self.last[life] = seen["revision"]


class Recorder(Follower):
    """A follower that remembers what its map looked like at each revision, so that readers' maps can be compared."""

    def __init__(self, cluster, keyspace):
        super().__init__(cluster, keyspace)
        self.at, self.digests = [], []

    def _note(self, revision, value):
        if self.at and self.at[-1] == revision:
            self.digests[-1] = value
        else:
            self.at.append(revision)
            self.digests.append(value)

    def _load(self, url):
        before = self.revision
        super()._load(url)
        if self.revision > before:
            self._note(before + 1, None)  # unknown in between
            self._note(self.revision, digest(self.routes.values()))

    def _apply(self, change):
        super()._apply(change)
        self._note(change["revision"], digest(self.routes.values()))

    def compare(self, seen):
        """The readers' maps, by revision. Returns how many could be compared."""
        compared = 0
        for revision, found in seen.items():
            place = bisect.bisect_right(self.at, revision) - 1
            if place >= 0 and revision <= self.revision and self.digests[place] is not None:
                compared += 1
                assert self.digests[place] == found, f"a reader's map at {revision} is not what the changes give"
        return compared


class Watcher(Recorder):
    """The same over Server-Sent Events. A revision is taken whole: its last event carries the id."""

    def _step(self, url):
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=3)
        try:
            connection.request("GET", f"/v1/keyspaces/{self.keyspace}/watch?since={self.revision}")
            response = connection.getresponse()
            if response.status != 200:
                response.read()
                if response.status == 410:
                    self._load(url)
                return
            self._follow(response, url)
        except (OSError, http.client.HTTPException) as why:
            raise Unreachable(str(why)) from why
        finally:
            connection.close()

    def _follow(self, response, url):
        block, waiting = {}, []
        until = time.monotonic() + 5  # then another server
        while not self.stopping and time.monotonic() < until:
            line = response.readline()
            if not line:
                return
            line = line.decode().rstrip("\n")
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                block[name] = value
            elif not line and block:
                if block.get("event") == "reset":
                    self.resets += 1
                    self._load(url)
                    return
                if "data" in block:
                    waiting.append(json.loads(block["data"]))
                    self._take(block, waiting)
                block = {}

    def _take(self, block, waiting):
        if "id" not in block:
            return
        revision = int(block["id"])
        assert revision > self.revision, f"event {revision} after {self.revision}"
        for change in waiting:
            assert change["revision"] == revision, f"{change['revision']} under the id {revision}"
            self._apply(change)
        waiting.clear()
        self.revision = revision

    def check(self):
        """The last event is not the directory's last revision: its map is compared by the next map."""
        want = self.cluster.call("GET", f"/v1/keyspaces/{self.keyspace}/map?consistency=linearizable").expect(200)
        until = time.monotonic() + 60
        while digest(self.routes.values()) != digest(want["routes"]) and time.monotonic() < until and not self.error:
            time.sleep(0.05)
        assert self.error is None, self.error
        assert digest(self.routes.values()) == digest(want["routes"]), "the watched map differs"
