# SPDX-License-Identifier: Apache-2.0
"""libcadastre for Python tests: the driver program, and a scripted server that it talks to."""
import collections
import http.server
import json
import queue
import socketserver
import subprocess
import threading
import time
import urllib.parse

from cluster import BUILD, wait_for


class Driver:
    """tests/driver/client_driver.c. A crash or a sanitizer's finding fails the test that closes it."""

    def __init__(self):
        self.process = subprocess.Popen(
            [str(BUILD / "tests/driver/client_driver")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answers, self.events = queue.Queue(), []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("*"):
                self.events.append(line[1:].rstrip("\n"))
            else:
                self.answers.put(line)
        self.answers.put(None)

    def __call__(self, *words, timeout=60):
        self.send(*words)
        return self.answer(timeout)

    def send(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()

    def answer(self, timeout=60):
        line = self.answers.get(timeout=timeout)
        assert line is not None, f"the driver ended with {self.process.wait()}"
        return json.loads(line)

    def events_of(self, name):
        return [e for e in list(self.events) if e.split(" ", 1)[0] == name]

    def router(self, endpoints, keyspace="ks", mode="whole", max_age_ms=0, timeout_ms=1000, entries=0, token=None):
        words = [",".join(endpoints), keyspace, mode, max_age_ms, timeout_ms, entries]
        got = self("router", *words, *([token] if token else []))
        assert got["status"] == "ok", got
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "a hang"
        if kind is None:
            assert code == 0, f"the driver ended with {code}"


class Mock:
    """A server whose every answer the test decides. `rules` are tried in order: (method, path prefix, function of the
    request), where the function gives (status, headers, body), or None to close without an answer. `log` has what
    was asked."""

    def __init__(self):
        self.rules, self.log, self.lock = [], [], threading.Lock()
        mock = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                parts = urllib.parse.urlsplit(self.path)
                request = Request(
                    self.command, parts.path, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True)),
                    dict(self.headers), json.loads(self.rfile.read(length) or b"null"), time.monotonic(),
                )
                with mock.lock:
                    mock.log.append(request)
                answer = mock.find(request)
                if answer is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, headers, body = answer
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    if "Content-Length" not in headers:
                        self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    if "Content-Length" in headers:  # a lie: the test wants the answer cut off
                        self.close_connection = True
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

            def log_message(self, *args):
                pass

        class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass

        self.server = Threads(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def find(self, request):
        for method, prefix, function in list(self.rules):
            if request.method == method and request.path.startswith(prefix):
                return function(request)
        return 404, {}, {"code": "not_found", "status": 404}

    def asked(self, method, prefix):
        with self.lock:
            return [r for r in self.log if r.method == method and r.path.startswith(prefix)]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.server.shutdown()
        self.server.server_close()


Request = collections.namedtuple("Request", "method path query headers body at")


def problem(status, code, **more):
    headers = {"Content-Type": "application/problem+json", **more.pop("headers", {})}
    return status, headers, {"type": f"/problems/{code}", "title": code, "status": status, "code": code, **more}


class Directory:
    """A keyspace behind mocks: what a correct server answers, at a revision of the test's choice."""

    def __init__(self, splits=("m",), scheme="range", **keyspace):
        self.keyspace = {"name": "ks", "scheme": scheme, "key_encoding": "utf8", **keyspace}
        self.revision, self.changes, self.compacted, self.next_id = 10, [], 0, 1
        self.staleness_ms, self.moved = 0, threading.Condition()
        bounds = [None, *splits, None]
        self.routes = [self.route(bounds[i], bounds[i + 1]) for i in range(len(bounds) - 1)]

    def route(self, start, end, epoch=None, node="n1"):
        revision = epoch or self.revision
        r = {"keyspace": "ks", "partition": self.next_id, "epoch": revision, "mod_revision": revision,
             "state": "active", "primary": {"node": node, "address": f"{node}:1"}, "authority": "static",
             "replicas": [{"node": node, "address": f"{node}:1", "role": "primary"}], "max_age_ms": 30000}
        self.next_id += 1
        if start is not None:
            r["start"] = start
        if end is not None:
            r["end"] = end
        return r

    def index(self, key):
        return max(i for i, r in enumerate(self.routes) if r.get("start", "") <= key)

    def change(self, kind, removed, routes):
        with self.moved:
            self.changes.append({"revision": self.revision, "kind": kind, "removed": removed, "routes": routes})
            self.moved.notify_all()

    def split(self, at):
        i = self.index(at)
        old = self.routes[i]
        self.revision += 1
        new = [self.route(old.get("start"), at), self.route(at, old.get("end"))]
        self.routes[i : i + 1] = new
        self.change("split", [old["partition"]], new)
        return new

    def move(self, key, node):
        i = self.index(key)
        self.revision += 1
        old = self.routes[i]
        new = {**old, "epoch": self.revision, "mod_revision": self.revision,
               "primary": {"node": node, "address": f"{node}:1"},
               "replicas": [{"node": node, "address": f"{node}:1", "role": "primary"}]}
        self.routes[i] = new
        self.change("move", [], [new])
        return new

    def headers(self):
        return {"Cadastre-Revision": str(self.revision), "Cadastre-Staleness-Ms": str(self.staleness_ms)}

    def check(self, request):
        if int(request.query.get("min_revision", 0)) > self.revision:
            time.sleep(min(int(request.query.get("timeout_ms", 1000)), 200) / 1000)
            if int(request.query.get("min_revision", 0)) > self.revision:
                return problem(503, "behind", headers={"Retry-After": "1"})
        if int(request.query.get("max_staleness_ms", 10**9)) < self.staleness_ms:
            return problem(503, "too_stale")
        return None

    def get_keyspace(self, request):
        return self.check(request) or (200, self.headers(), {**self.keyspace, "revision": self.revision})

    def get_map(self, request):
        lines = b"".join(json.dumps(r).encode() + b"\n" for r in self.routes)
        return self.check(request) or (200, self.headers(), lines)

    def get_changes(self, request):
        since, until = int(request.query["since"]), time.monotonic() + int(request.query.get("wait_ms", 0)) / 1000
        refusal = self.check(request)
        if refusal:
            return refusal
        if since < self.compacted:
            return problem(410, "compacted")
        if since > self.revision:
            return problem(503, "behind")
        with self.moved:
            self.moved.wait_for(lambda: self.revision > since, max(0, until - time.monotonic()))
            found = [c for c in self.changes if c["revision"] > since][: int(request.query.get("limit", 1000))]
            last = self.revision if len(found) < int(request.query.get("limit", 1000)) else found[-1]["revision"]
            return 200, {**self.headers(), "Cadastre-Revision": str(last)}, {"from": since, "revision": last, "changes": found}

    def post_routes(self, request):
        refusal = self.check(request)
        return refusal or (200, self.headers(), {
            "revision": self.revision, "routes": [self.routes[self.index(k)] for k in request.body["keys"]]})

    def post_validate(self, request):
        present = {r["partition"]: r for r in self.routes}
        stale = []
        for held in request.body["routes"]:
            now = present.get(held["partition"])
            if now is None or now["mod_revision"] != held["mod_revision"]:
                stale.append({"partition": held["partition"], "reason": "moved", "routes": [now] if now else self.routes})
        return self.check(request) or (200, self.headers(), {"revision": self.revision, "stale": stale})

    def serve(self, mock):
        ks = "/v1/keyspaces/ks"
        mock.rules += [("GET", ks + "/map", self.get_map), ("GET", ks + "/changes", self.get_changes),
                       ("POST", ks + "/routes", self.post_routes), ("POST", ks + "/validate", self.post_validate),
                       ("GET", ks, self.get_keyspace)]
        return mock


__all__ = ["Driver", "Mock", "Directory", "Request", "problem", "wait_for"]
