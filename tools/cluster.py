# SPDX-License-Identifier: Apache-2.0
"""Real cadastred processes on loopback, for tests and the demo: start, kill, pause, restart, and an HTTP client that
follows redirects, retries with the same Idempotency-Key and never takes a time-out for an answer."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("CADASTRE_BUILD", ROOT / "build" / "release"))
DEADLINE_S = float(os.environ.get("CADASTRE_DEADLINE_S", "60"))


def wait_for(condition, what, deadline_s=DEADLINE_S):
    """Polls until condition() is true and returns its value; a miss is a failure that says what was waited for."""
    until = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"waited {deadline_s:g} s in vain for {what}")
        time.sleep(0.02)


_taken = set()


def free_port():
    """A loopback port nobody has, outside the range that connections take theirs from, so that it stays free."""
    first = os.getpid() * 97 % 12000  # programs that begin together begin far from each other
    for at in range(12000):
        port = 20000 + (first + at) % 12000
        if port in _taken:
            continue
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _taken.add(port)
        return port
    raise AssertionError("no free port")


class Unreachable(Exception):
    """No answer: nothing is known of the outcome."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.raw = status, headers, body

    @property
    def json(self):
        return json.loads(self.raw)

    def expect(self, *statuses):
        assert self.status in statuses, f"status {self.status}, not {statuses}: {self.raw[:500]!r}"
        return self.json if self.raw else None


def once(base, method, path, body=None, headers=None, timeout=10):
    """One request to one server; redirects are not followed."""
    parts = urllib.parse.urlsplit(base)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    sent = dict(headers or {})
    data = None
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body=data, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    except (OSError, http.client.HTTPException) as why:
        raise Unreachable(f"{method} {base}{path}: {why}") from why
    finally:
        connection.close()


class Server:
    host, prefix = "127.0.0.1", ()  # where it listens; what its command begins with

    def __init__(self, number, directory, flags):
        self.id = number
        self.directory = pathlib.Path(directory)
        self.api_port, self.raft_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.api_port}"
        self.flags = list(flags)
        self.process = None
        self.log = self.directory.parent / f"server-{number}.log"
        self.environment = {}

    def founder(self):
        return f"{self.id}={self.host}:{self.raft_port}@{self.url}"

    def start(self, *more):
        assert self.process is None or self.process.poll() is not None
        command = [
            *self.prefix,
            str(BUILD / "cadastred"),
            "--id", str(self.id),
            "--data-dir", str(self.directory),
            "--api-addr", f"{self.host}:{self.api_port}",
            "--raft-addr", f"{self.host}:{self.raft_port}",
            *self.flags, *more,
        ]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **self.environment}
            )
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.send(signal.SIGTERM)
        return self.process.wait(timeout=DEADLINE_S)

    def pause(self):
        self.send(signal.SIGSTOP)

    def resume(self):
        self.send(signal.SIGCONT)

    def wait_exit(self):
        return self.process.wait(timeout=DEADLINE_S)

    def get(self, path, **options):
        return once(self.url, "GET", path, **options)

    def cluster(self):
        try:
            answer = self.get("/v1/cluster", timeout=2)
            return answer.json if answer.status == 200 else None
        except Unreachable:
            return None

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Cluster:
    """`with Cluster(3) as c:` leaves nothing behind: what still runs at the end is killed, by its id."""

    def __init__(self, size, flags=("--election-timeout", "400ms", "--heartbeat-interval", "50ms"), base=None):
        self.base = pathlib.Path(base or tempfile.mkdtemp(prefix="cadastre-"))
        self.own_base = base is None
        self.flags = flags
        self.servers = [self.make(i + 1, flags) for i in range(size)]
        self.keep = False

    def make(self, number, flags):
        return Server(number, self.base / f"data-{number}", flags)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            for s in self.servers:
                if s.log.exists():
                    print(f"# --- log of server {s.id} ---")
                    print("\n".join(f"# {line}" for line in s.tail(25).splitlines()))
        self.close()

    def close(self):
        for s in self.servers:
            if s.alive():
                s.kill()
        if self.own_base and not self.keep:
            shutil.rmtree(self.base, ignore_errors=True)

    def start(self):
        founding = ()
        if len(self.servers) > 1:
            founding = ("--initial-cluster", ",".join(s.founder() for s in self.servers))
        for s in self.servers:
            s.flags += list(founding)
            s.start()
        self.wait_ready()
        return self

    def join(self, number, *flags):
        """Starts one more server, as a member that joins."""
        s = self.make(number, [*self.flags, "--join", self.leader().url, *flags])
        self.servers.append(s)
        return s.start()

    def alive(self):
        return [s for s in self.servers if s.alive()]

    def wait_ready(self):
        def ready():
            for s in self.alive():
                try:
                    if s.get("/readyz", timeout=2).status != 200:
                        return False
                except Unreachable:
                    return False
            return True

        wait_for(ready, "every server to be ready")
        return self.leader()

    def leader(self):
        def find():
            for s in self.alive():
                seen = s.cluster()
                if seen and seen["leader"] == s.id:
                    return s
            return None

        return wait_for(find, "a leader")

    def followers(self):
        leader = self.leader()
        return [s for s in self.alive() if s is not leader]

    def call(self, method, path, body=None, key=None, timeout=10, deadline_s=DEADLINE_S, headers=None):
        """To whoever leads, again with the same key while the outcome is open."""
        sent = dict(headers or {})
        if method != "GET":
            sent["Idempotency-Key"] = key or uuid.uuid4().hex
        until = time.monotonic() + deadline_s
        urls = [s.url for s in self.alive()]
        at, last = 0, None
        while time.monotonic() < until:
            url = urls[at % len(urls)]
            at += 1
            try:
                answer = once(url, method, path, body=body, headers=sent, timeout=timeout)
                if answer.status == 307:
                    target = urllib.parse.urlsplit(answer.headers["location"])
                    answer = once(f"{target.scheme}://{target.netloc}", method, path, body, sent, timeout)
                if answer.status not in (307, 503):
                    return answer
                last = answer.raw
            except Unreachable as why:
                last = why
            time.sleep(0.05)
        raise AssertionError(f"{method} {path}: no outcome, last was {last!r}")

    def agree(self):
        """Waits until all living servers have applied the same and then compares their state hashes."""

        def same():
            seen = [s.cluster() for s in self.alive()]
            if any(c is None for c in seen):
                return None
            if len({(c["applied_index"], c["revision"]) for c in seen}) != 1:
                return None
            return seen

        seen = wait_for(same, "equal applied indexes")
        hashes = {c["state_hash"] for c in seen}
        assert len(hashes) == 1, f"state hashes differ at index {seen[0]['applied_index']}: {hashes}"
        return hashes.pop()

    def check_all(self):
        """Stops every server and has `cadastred check` verify its directory."""
        for s in self.alive():
            s.kill()
        for s in self.servers:
            if (s.directory / "identity").exists():
                run = subprocess.run(
                    [str(BUILD / "cadastred"), "check", str(s.directory)], capture_output=True, text=True, check=False
                )
                assert run.returncode == 0, f"check of server {s.id}: {run.returncode} {run.stdout}{run.stderr}"
