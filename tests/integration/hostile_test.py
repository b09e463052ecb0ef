#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One real server against clients that mean harm, on raw sockets. All the while it goes on answering others, in the
end it holds no more than before, and nothing that it refused has changed anything."""
import contextlib
import json
import pathlib
import random
import resource
import select
import socket
import statistics
import struct
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

BODY_MAX = 8 << 20
MEDIAN_S, WORST_S = 1.0, 5.0
MIB = 1 << 20


# --- the server, watched ---


def usage(server):
    """Resident bytes and open descriptors."""
    proc = pathlib.Path(f"/proc/{server.process.pid}")
    pages = int((proc / "statm").read_text().split()[1])
    return pages * resource.getpagesize(), len(list((proc / "fd").iterdir()))


def prepare(c):
    c.call("PUT", "/v1/nodes/n1", {"address": "127.0.0.1:9100", "lease": "static"}).expect(200)
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d", "m", "t"]}).expect(201)
    c.call("POST", "/v1/keyspaces", {"name": "probe", "scheme": "range"}).expect(201)


def content(c):
    """What clients can see of the state, without what the probe and the tests themselves change."""
    url = c.servers[0].url
    ks = [{k: v for k, v in r.items() if k != "mod_revision"}
          for r in once(url, "GET", "/v1/keyspaces/ks/map").json["routes"]]
    names = [k["name"] for k in once(url, "GET", "/v1/keyspaces").json["keyspaces"]]
    nodes = [n["node"] for n in once(url, "GET", "/v1/nodes").json["nodes"]]
    return ks, names, nodes


def state(c):
    seen = c.servers[0].cluster()
    return seen["revision"], seen["applied_index"], seen["state_hash"]


class Probe:
    """Asks /livez and sends a command again and again, as an innocent client would."""

    def __init__(self, c):
        self.url = c.servers[0].url
        self.partition = once(self.url, "GET", "/v1/keyspaces/probe/partitions").json["partitions"][0]["partition"]
        self.live, self.commands, self.stopping, self.failure = [], [], threading.Event(), None
        self.thread = threading.Thread(target=self.run)

    def timed(self, into, *request):
        for attempt in (1, 2):  # one retry, for a machine that stood still
            begun = time.monotonic()
            try:
                status = once(self.url, *request, timeout=WORST_S).status
                assert status == 200, f"{request} got {status}"
                into.append(time.monotonic() - begun)
                return
            except Unreachable:
                if attempt == 2:
                    raise

    def run(self):
        pinned = False
        try:
            while not self.stopping.wait(0.02):
                pinned = not pinned
                self.timed(self.live, "GET", "/livez")
                self.timed(self.commands, "PATCH", f"/v1/keyspaces/probe/partitions/{self.partition}",
                           {"pinned": pinned})
        except Exception as why:  # pylint: disable=broad-exception-caught  # told by wait() and judge()
            self.failure = why

    def wait(self, more):
        """Until so many more rounds are through."""
        goal = len(self.commands) + more
        wait_for(lambda: self.failure or len(self.commands) >= goal, f"{more} rounds of the probe")
        assert self.failure is None, self.failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def judge(self):
        assert self.failure is None, f"the probe had no answer: {self.failure}"
        for name, times in (("/livez", self.live), ("a command", self.commands)):
            print(f"# {name}: {len(times)} answers, median {statistics.median(times) * 1000:.1f} ms,"
                  f" longest {max(times) * 1000:.0f} ms", flush=True)
            assert statistics.median(times) < MEDIAN_S, f"{name} took {statistics.median(times)} s"


@contextlib.contextmanager
def besieged(spare_bytes=48 * MIB, spare_files=8):
    """A server under a probe; afterwards what it holds must come back to near what it held."""
    with Cluster(1) as c:
        prepare(c)
        with Probe(c) as p:
            p.wait(10)
            before, (rss, files) = content(c), usage(c.servers[0])
            yield c, p
            p.wait(10)

            def near():
                now = usage(c.servers[0])
                return now if now[0] <= rss + spare_bytes and now[1] <= files + spare_files else None

            after = wait_for(near, f"memory and descriptors near {rss >> 20} MiB and {files},"
                                   f" now {usage(c.servers[0])}")
            print(f"# before {rss >> 20} MiB and {files} descriptors, after {after[0] >> 20} MiB and {after[1]}")
        p.judge()
        assert c.servers[0].alive()
        equal(content(c), before, "the state")


# --- clients ---


def dial(c, receive=None):
    s = socket.socket()
    if receive is not None:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    s.settimeout(20)
    s.connect(("127.0.0.1", c.servers[0].api_port))
    return s


def reset(s):
    """Vanishes: the peer gets no FIN."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def converse(c, raw, timeout=10):
    """Sends it all and returns every byte that comes until the server closes, and whether it did."""
    got = b""
    with dial(c) as s:
        s.settimeout(timeout)
        try:
            s.sendall(raw)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all of it was sent
        try:
            while True:
                more = s.recv(65536)
                if not more:
                    return got, True
                got += more
        except ConnectionResetError:
            return got, True
        except TimeoutError:
            return got, False


def statuses(raw):
    """Of the answers in a run of bytes, by their status lines."""
    return [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]]


# --- slow ones ---


@test
def dripping_requests_hold_nobody_up():
    with besieged() as (c, probe):
        # Without line ends at the end: what is dripped is still the same line.
        head = b"POST /v1/keyspaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Slow: "
        body = (b"POST /v1/keyspaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100000\r\n\r\n{\"name\":\"")
        slow = [dial(c) for _ in range(400)]
        for i, s in enumerate(slow):
            s.sendall(head if i % 2 else body)
        for _ in range(20):
            for s in slow:
                s.sendall(b"a")
            probe.wait(2)
        for i, s in enumerate(slow):
            (reset if i % 3 == 0 else socket.socket.close)(s)


def idle_wave(c, probe, wanted):
    idle = []
    while len(idle) < wanted:
        idle.append(dial(c))
        # Half of them have asked something and keep the connection.
        if len(idle) % 2:
            idle[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    probe.wait(20)
    answered = 0
    for s in idle[0::2]:
        answered += s.recv(4096).startswith(b"HTTP/1.1 200")
    equal(answered, wanted // 2, "answers on connections kept open")
    held = usage(c.servers[0])
    assert held[1] > wanted, f"only {held[1]} descriptors: the connections were not all taken"
    for s in idle:
        s.close()
    return held[0]


@test
def ten_thousand_idle_connections():
    wanted = 10000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted + 1000:
        raise Skip(f"RLIMIT_NOFILE is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 1000), hard))
    # The allocator keeps what the connections had, some 8 KiB each, for each worker as many as it ever had; what more
    # they would leave behind shows from wave to wave.
    with besieged(spare_bytes=160 * MIB) as (c, probe):
        files, held = usage(c.servers[0])[1], []
        for _ in range(4):
            held.append(idle_wave(c, probe, wanted))
            wait_for(lambda: usage(c.servers[0])[1] <= files + 8, "the wave to be gone")
        print(f"# held in each wave: {[b >> 20 for b in held]} MiB", flush=True)
        assert held[3] < held[1] + 16 * MIB, f"two waves took {(held[3] - held[1]) >> 20} MiB more"


# --- large ones ---


def padded(size):
    """A valid body of exactly this size."""
    start, end = b'{"keys":["a","z"]', b"}"
    return start + b" " * (size - len(start) - len(end)) + end


def post_large(c, size, answers):
    head = f"POST /v1/keyspaces/ks/routes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" \
           f"Content-Length: {size}\r\nConnection: close\r\n\r\n".encode()
    answers.append((size, converse(c, head + padded(size), timeout=60)[0]))


@test
def bodies_of_eight_mebibytes_many_at_once():
    with besieged() as (c, probe):
        answers = []
        senders = [threading.Thread(target=post_large, args=(c, BODY_MAX + i % 2, answers)) for i in range(24)]
        for t in senders:
            t.start()
        probe.wait(10)
        for t in senders:
            t.join()
        for size, raw in answers:
            equal(statuses(raw), [200 if size == BODY_MAX else 413], f"answers to {size} bytes: {raw[:300]!r}")
        chunked = b"POST /v1/keyspaces/ks/routes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" \
                  b"Transfer-Encoding: chunked\r\n\r\n"
        body = padded(BODY_MAX + 1)
        raw, closed = converse(c, chunked + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n", timeout=60)
        equal((statuses(raw), closed), ([413], True), "a chunked body over the limit")


# --- watchers ---


def subscribe(c, since, receive=None):
    s = dial(c, receive)
    s.sendall(f"GET /v1/keyspaces/ks/watch?since={since} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return s


def read_until(s, text, deadline_s=60):
    got, until = b"", time.monotonic() + deadline_s
    while text not in got:
        assert time.monotonic() < until, f"{text!r} did not come in {got[-500:]!r}"
        if select.select([s], [], [], 1)[0]:
            more = s.recv(65536)
            assert more, f"the stream ended: {got[-500:]!r}"
            got += more
    return got


@test
def vanished_and_slow_watchers_cost_the_others_nothing():
    with besieged() as (c, probe):
        url = c.servers[0].url
        partition = once(url, "GET", "/v1/keyspaces/ks/route?key=a").json["partition"]
        revision = c.servers[0].cluster()["revision"]
        stuck = [subscribe(c, revision, receive=2048) for _ in range(100)]
        leaving = [subscribe(c, revision) for _ in range(100)]
        reader = subscribe(c, revision)
        for s in leaving:
            read_until(s, b"retry:")

        def watchers():
            return len(once(url, "GET", "/v1/cluster/watchers?behind=9007199254740991").json["watchers"])

        wait_for(lambda: watchers() == 201, "all watchers to be known")
        for i, s in enumerate(leaving):
            (reset if i % 2 else socket.socket.close)(s)
        last = 0
        for i in range(300):
            answer = once(url, "PATCH", f"/v1/keyspaces/ks/partitions/{partition}",
                          {"rate_limit": {"requests_per_s": i + 1}})
            last = answer.expect(200)["revision"]
        events = read_until(reader, f"id: {last}\n".encode())
        equal(events.count(b"event: change"), 300, "events that the one who reads got")
        probe.wait(5)
        wait_for(lambda: watchers() <= 101, "the vanished watchers to be forgotten")
        for s in stuck + [reader]:
            s.close()
        wait_for(lambda: watchers() == 0, "all watchers to be forgotten")
        once(url, "PATCH", f"/v1/keyspaces/ks/partitions/{partition}", {"rate_limit": None}).expect(200)


# --- shapes that could be read in two ways ---

POISON = (b"PUT /v1/nodes/smuggled HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n"
          b'{"address":"h:1","lease":"static"}')
assert len(POISON.split(b"\r\n\r\n")[1]) == 34
POST = b"POST /v1/keyspaces/ks/routes HTTP/1.1\r\n"
JSON = b"Content-Type: application/json\r\n"

AMBIGUOUS = {
    "both a length and chunks": POST + b"Host: x\r\n" + JSON + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Host: x\r\n" + JSON + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    "the same length twice": POST + b"Host: x\r\n" + JSON + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": POST + b"Host: x\r\n" + JSON + b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": POST + b"Host: x\r\n" + JSON + b"Content-Length: +0\r\n\r\n",
    "a negative length": POST + b"Host: x\r\n" + JSON + b"Content-Length: -1\r\n\r\n",
    "a hexadecimal length": POST + b"Host: x\r\n" + JSON + b"Content-Length: 0x0\r\n\r\n",
    "a blank within a length": POST + b"Host: x\r\n" + JSON + b"Content-Length: 0 0\r\n\r\n",
    "an endless length": POST + b"Host: x\r\n" + JSON + b"Content-Length: 18446744073709551616\r\n\r\n",
    "an empty length": POST + b"Host: x\r\n" + JSON + b"Content-Length:\r\n\r\n",
    "an unknown coding": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: xchunked\r\n\r\n",
    "two codings": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding twice": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: identity\r\n\r\n",
    "a tab before the coding": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding:\tchunked\t, x\r\n\r\n0\r\n\r\n",
    "a blank before a colon": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": POST + b"Host: x\r\n" + JSON + b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a header without a colon": POST + b"Host: x\r\nContent-Length\r\n\r\n",
    "a header without a name": POST + b"Host: x\r\n: chunked\r\n\r\n",
    "a NUL in a header": POST + b"Host: x\r\nX: a\0b\r\n\r\n",
    "a bare CR in a header": POST + b"Host: x\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "a later version": b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n",
    "no version": b"GET /livez\r\nHost: x\r\n\r\n",
    "two blanks": b"GET  /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tab in the request line": b"GET\t/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "another origin": b"GET http://y/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "dot segments": b"GET /v1/keyspaces/../nodes HTTP/1.1\r\nHost: x\r\n\r\n",
    "escaped dots": b"GET /v1/keyspaces/%2e%2e/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
    "an escaped slash": b"GET /v1/keyspaces/a%2Fb HTTP/1.1\r\nHost: x\r\n\r\n",
    "an escaped NUL": b"GET /v1/keyspaces/a%00b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a doubled slash": b"GET //v1/keyspaces HTTP/1.1\r\nHost: x\r\n\r\n",
    "a backslash": b"GET /v1\\keyspaces HTTP/1.1\r\nHost: x\r\n\r\n",
    "a fragment": b"GET /v1/keyspaces#x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad chunk size": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a signed chunk size": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "an endless chunk size": POST + b"Host: x\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@test
def what_can_be_read_in_two_ways_is_refused_and_ends_the_connection():
    with Cluster(1) as c:
        prepare(c)
        before, failures = state(c), []
        for name, raw in AMBIGUOUS.items():
            got, closed = converse(c, raw + POISON, timeout=5)
            codes = statuses(got)
            if not closed or len(codes) > 1 or any(code < 400 or (code >= 500 and code not in (501, 505)) for code in codes):
                failures.append(f"{name}: closed {closed}, answers {codes}, {got[:200]!r}")
        assert not failures, "\n".join(failures)
        equal(state(c), before, "the state")
        once(c.servers[0].url, "GET", "/v1/nodes/smuggled").expect(404)


@test
def garbage_after_a_good_request_is_not_a_request():
    with Cluster(1) as c:
        prepare(c)
        before, rand = state(c), random.Random(7)
        good = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        for i in range(60):
            garbage = bytes(rand.randrange(256) for _ in range(rand.randrange(1, 3000)))
            got, _ = converse(c, good * (i % 3) + garbage + b"\r\n\r\n", timeout=0.3)
            codes = statuses(got)
            equal(codes[:i % 3], [200] * (i % 3), f"answers before the garbage {garbage[:40]!r}")
            assert all(400 <= code < 500 or code in (501, 505) for code in codes[i % 3:]), codes
        equal(statuses(converse(c, good * 50 + good.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))[0]),
              [200] * 51, "answers to a long pipeline")
        equal(state(c), before, "the state")


@test
def multipart_is_not_parsed():
    with Cluster(1) as c:
        prepare(c)
        before = state(c)
        for kind in ("multipart/form-data; boundary=a", "application/x-www-form-urlencoded", "text/plain", ""):
            body = b"--a\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--a--\r\n"
            answer = once(c.servers[0].url, "POST", "/v1/keyspaces", body, {"Content-Type": kind})
            equal((answer.status, answer.json["code"]), (415, "unsupported_media_type"), kind)
        equal(state(c), before, "the state")


if __name__ == "__main__":
    main()
