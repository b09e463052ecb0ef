# SPDX-License-Identifier: Apache-2.0
"""Between agents and servers: holds reports back, sends them twice, and again later, changed or not.

An agent knows no other endpoint. Redirects are followed here, so that it learns of none."""
import http.server
import json
import re
import threading
import time
import urllib.parse
import uuid

from cluster import Unreachable, once

REPORT = re.compile(r"/v1/operations/(\d+)/reports$")
DUTY = re.compile(r"/v1/nodes/([^/]+)/duties/(\d+)$")
OF_NODE = re.compile(r"/v1/nodes/([^/]+)(?:/|$)")
HOLD_MAX_S, SEEN_MAX = 30, 400
AHEAD = 1 << 40  # above any number an agent gives


class Hold:
    """Reports of one stage wait here until release()."""

    def __init__(self, stage, after):
        self.stage, self.after = stage, after
        self.open, self.arrived = threading.Event(), threading.Event()

    def wants(self, path, body, duties):
        """Of operations younger than `after`; in CLEANUP a duty done is the report."""
        if DUTY.search(path):
            node, duty = DUTY.search(path).groups()
            return self.stage == "CLEANUP" and any(d["id"] == int(duty) and d.get("operation", 0) > self.after for d in duties(node))
        report = REPORT.search(path)
        return bool(report) and body.get("stage") == self.stage and int(report.group(1)) > self.after

    def release(self):
        self.open.set()


class Seen:
    """A report as it was sent, and what came of it."""

    def __init__(self, path, body, answer):
        self.path, self.body, self.answer = path, body, answer
        self.operation = int(REPORT.search(path).group(1))


class Proxy:
    def __init__(self, host, servers):
        self.servers, self.lock = servers, threading.Lock()
        self.hold, self.twice, self.refused, self.at = None, False, set(), 0
        self.seen, self.faults, self.held_bodies, self.doubled = [], [], [], 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self):
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = proxy.pass_on(self.command, self.path, dict(self.headers), data)
                if answer is None:
                    self.close_connection = True
                    return
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        if name not in ("content-length", "connection", "transfer-encoding", "date", "location"):
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(answer.raw)))
                    self.end_headers()
                    self.wfile.write(answer.raw)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        self.url = f"http://{host}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self):
        if self.hold:
            self.hold.release()
        self.server.shutdown()
        self.server.server_close()

    # --- what passes ---

    def forward(self, method, path, headers, data, timeout=70):
        """By whichever server answers, else None."""
        for _ in range(2 * len(self.servers)):
            with self.lock:
                url = self.servers[self.at % len(self.servers)].url
            try:
                answer = once(url, method, path, data or None, headers, timeout)
                if answer.status == 307:
                    to = urllib.parse.urlsplit(answer.headers["location"])
                    answer = once(f"{to.scheme}://{to.netloc}", method, path, data or None, headers, timeout)
                if answer.status != 503:
                    return answer
            except Unreachable:
                pass
            with self.lock:
                self.at += 1
            time.sleep(0.03)
        return None

    def duties(self, node):
        answer = self.forward("GET", f"/v1/nodes/{node}/duties", {}, None, timeout=5)
        return answer.json["duties"] if answer is not None and answer.status == 200 else []

    def pass_on(self, method, path, headers, data):
        target = urllib.parse.urlsplit(path).path
        sent = {k: v for k, v in headers.items() if k.lower() not in ("host", "connection", "content-length")}
        body = json.loads(data) if data and method in ("POST", "PUT") else {}
        hold = self.hold
        of_node = OF_NODE.search(target)
        if body.get("node", of_node.group(1) if of_node else None) in self.refused:
            return None
        if method == "POST" and hold and hold.wants(target, body, self.duties):
            self.held_bodies.append((target, body))
            hold.arrived.set()
            hold.open.wait(HOLD_MAX_S)
        answer = self.forward(method, path, sent, data)
        if answer is not None and method == "POST" and REPORT.search(target):
            self.note(target, body, answer)
        return answer

    def note(self, target, body, answer):
        if self.twice:
            again = self.send(target, body)
            if again is not None:
                self.doubled += 1
                self.judge(again, "sent twice", target, body)
        with self.lock:
            self.seen.append(Seen(target, body, answer))
            del self.seen[:-SEEN_MAX]

    # --- what is sent again ---

    def send(self, path, body):
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        return self.forward("POST", path, headers, json.dumps(body).encode(), timeout=10)

    def judge(self, answer, what, path, body, stale_only=False):
        """The same again gets the same answer, anything else is stale."""
        stale = answer.status == 409 and answer.json["code"] == "stale_report"
        ended = answer.status == 404 and answer.json["code"] in ("operation_not_found", "node_not_found")
        if not (stale or ended or (answer.status == 200 and not stale_only)):
            self.faults.append(f"a report that was {what} got {answer.status} {answer.raw[:200]!r}: {path} {body}")

    def replay(self, rand, count=12):
        """Sends again what was sent before, and what nobody may send. Returns how many were answered."""
        with self.lock:
            past = rand.sample(self.seen, min(count, len(self.seen)))
        answered = 0
        for s in past:
            answer = self.send(s.path, s.body)
            if answer is not None:
                self.judge(answer, "replayed", s.path, s.body)
                answered += 1
        for path, body in self.held_bodies[-2:]:
            if not REPORT.search(path):
                continue
            for change in ({"attempt": body["attempt"] + 1}, {"attempt": body["attempt"] - 1},
                           {"session": body["session"] - 1}, {"stage": "COPY" if body["stage"] != "COPY" else "PREPARE"}):
                forged = {**body, "seq": body["seq"] + AHEAD, **change}
                answer = self.send(path, forged) if forged["attempt"] > 0 else None
                if answer is not None:
                    self.judge(answer, f"forged ({change})", path, forged, stale_only=True)
                    answered += 1
        return answered


