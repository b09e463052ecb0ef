# SPDX-License-Identifier: Apache-2.0
"""What Cadastre is held against, each started here on loopback with data of its own and ended by its process id."""
import base64
import json
import pathlib
import shutil
import socket
import struct
import time

from measure import PROGRAMS, end, free_port, once, start, wait_for

VALUE = 150  # bytes, about a route's


class Absent(Exception):
    """A peer that can't be started here; the text says why."""


def need(command):
    found = shutil.which(command, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin")
    if found is None:
        raise Absent(f"{command} is not installed (make deps-bench)")
    return found


def listening(port):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def await_port(port, process, log, what, deadline_s=30):
    def ready():
        if process.poll() is not None:
            raise Absent(f"{what} ended: {pathlib.Path(log).read_text(errors='replace')[-300:]}")
        return listening(port)

    try:
        wait_for(ready, what, deadline_s)
    except AssertionError as why:
        raise Absent(str(why)) from why


class Peer:
    """`with`: started, and ended whatever happens."""

    def __init__(self, base):
        self.base = pathlib.Path(base)
        self.base.mkdir(parents=True, exist_ok=True)
        self.processes = []

    def spawn(self, command, name, **options):
        log = self.base / f"{name}.log"
        process = start(command, log, **options)
        self.processes.append(process)
        return process, log

    @property
    def pids(self):
        return [p.pid for p in self.processes]

    def __enter__(self):
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def open(self):
        raise NotImplementedError

    def close(self):
        for process in self.processes:
            end(process)


class Raw(Peer):
    """tests/bench/raw_http.c: the limit of HTTP/1.1 on loopback."""

    def __init__(self, base, ranges):
        super().__init__(base)
        self.ranges = ranges

    def open(self):
        self.port = free_port()
        process, log = self.spawn([PROGRAMS / "raw_http", self.port, self.ranges], "raw")
        await_port(self.port, process, log, "raw_http")


class Nginx(Peer):
    """One static file, from its cache of open files."""

    def __init__(self, base, body):
        super().__init__(base)
        self.body = body

    def open(self):
        self.port = free_port()
        (self.base / "www").mkdir(exist_ok=True)
        (self.base / "www" / "route").write_bytes(self.body)
        for path in (self.base, self.base / "www"):
            path.chmod(0o755)
        (self.base / "nginx.conf").write_text(
            f"worker_processes 1; daemon off; master_process off; pid {self.base}/pid; error_log {self.base}/error.log;\n"
            "events { worker_connections 4096; }\n"
            "http { access_log off; keepalive_requests 1000000000; open_file_cache max=100; sendfile on; tcp_nopush off;\n"
            f"  client_body_temp_path {self.base}; proxy_temp_path {self.base}; fastcgi_temp_path {self.base};\n"
            f"  uwsgi_temp_path {self.base}; scgi_temp_path {self.base}; default_type application/json;\n"
            f"  server {{ listen 127.0.0.1:{self.port}; root {self.base}/www; }} }}\n"
        )
        process, log = self.spawn([need("nginx"), "-e", self.base / "error.log", "-c", self.base / "nginx.conf"], "nginx")
        await_port(self.port, process, log, "nginx")


class Redis(Peer):
    def open(self):
        self.port = free_port()
        need("redis-benchmark")
        process, log = self.spawn(
            [need("redis-server"), "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--dir", self.base], "redis"
        )
        await_port(self.port, process, log, "redis-server")


def text(value):
    return base64.b64encode(value).decode()


def field(number, payload):
    """A length-delimited protobuf field."""
    assert len(payload) < 16384
    length = bytes([len(payload)]) if len(payload) < 128 else bytes([len(payload) & 127 | 128, len(payload) >> 7])
    return bytes([number << 3 | 2]) + length + payload


def grpc(message):
    return b"\0" + struct.pack(">I", len(message)) + message


class Etcd(Peer):
    KEYS = 1000

    def __init__(self, base, size):
        super().__init__(base)
        self.size = size

    def open(self):
        binary = need("etcd")
        ports = [(free_port(), free_port()) for _ in range(self.size)]
        cluster = ",".join(f"e{i}=http://127.0.0.1:{peer}" for i, (_, peer) in enumerate(ports))
        for i, (client, peer) in enumerate(ports):
            self.spawn(
                [binary, "--name", f"e{i}", "--data-dir", self.base / f"e{i}", "--log-level", "error",
                 "--listen-client-urls", f"http://127.0.0.1:{client}",
                 "--advertise-client-urls", f"http://127.0.0.1:{client}",
                 "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                 "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                 "--initial-cluster", cluster, "--initial-cluster-state", "new"],
                f"e{i}",
            )
        for process, (client, _) in zip(self.processes, ports):
            await_port(client, process, self.base / "e0.log", "etcd")
        self.port = self._leader([client for client, _ in ports])
        for i in range(self.KEYS):
            self.put(b"k%d" % i)
        self._write_bodies()

    def _leader(self, clients):
        def find():
            for port in clients:
                status = self.post("/v3/maintenance/status", {}, port)
                if status and status.get("leader") == status["header"]["member_id"]:
                    return port
            return None

        return wait_for(find, "a leader of etcd")

    def post(self, path, body, port=None):
        answer = once(f"http://127.0.0.1:{port or self.port}", "POST", path, body, timeout=10)
        return answer.json if answer.status == 200 else None

    def put(self, key):
        body = {"key": text(key), "value": text(b"v" * VALUE)}
        return wait_for(lambda: self.post("/v3/kv/put", body), "a put to etcd")

    def revision(self):
        return int(self.post("/v3/kv/range", {"key": text(b"k0")})["header"]["revision"])

    def _write_bodies(self):
        keys = [b"k%d" % i for i in range(self.KEYS)]
        for name, more in (("serializable", {"serializable": True}), ("linearizable", {})):
            lines = [json.dumps({"key": text(k), **more}) for k in keys]
            (self.base / f"{name}.lines").write_text("\n".join(lines) + "\n")
        (self.base / "serializable.grpc").write_bytes(grpc(field(1, b"k7") + bytes([7 << 3, 1])))
        (self.base / "linearizable.grpc").write_bytes(grpc(field(1, b"k7")))
        (self.base / "put.grpc").write_bytes(grpc(field(1, b"k7") + field(2, b"v" * VALUE)))


class ZooKeeper(Peer):
    NODES = 1000

    def __init__(self, base, size):
        super().__init__(base)
        self.size = size

    def open(self):
        java = need("java")
        jar = pathlib.Path("/usr/share/java/zookeeper.jar")
        if not jar.exists():
            raise Absent("zookeeper is not installed (make deps-bench)")
        clients = [free_port() for _ in range(self.size)]
        quorum = [(free_port(), free_port()) for _ in range(self.size)]
        servers = "".join(f"server.{i + 1}=127.0.0.1:{a}:{b}\n" for i, (a, b) in enumerate(quorum))
        for i, client in enumerate(clients):
            data = self.base / f"z{i}"
            data.mkdir()
            (data / "myid").write_text(f"{i + 1}\n")
            (self.base / f"z{i}.cfg").write_text(
                f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort={client}\nmaxClientCnxns=0\n"
                f"clientPortAddress=127.0.0.1\nadmin.enableServer=false\n{servers if self.size > 1 else ''}"
            )
            self.spawn(
                [java, "-Xmx1g", "-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.base / f"z{i}.cfg"],
                f"z{i}", cwd=data,
            )
        for i, (process, client) in enumerate(zip(self.processes, clients)):
            await_port(client, process, self.base / f"z{i}.log", "ZooKeeper", 60)
        try:
            self.port = wait_for(lambda: self._leading(clients), "a leader of ZooKeeper", 60)
        except AssertionError as why:
            raise Absent(str(why)) from why

    def _leading(self, clients):
        for port in clients:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=2) as s:
                    s.sendall(b"srvr")
                    said = b"".join(iter(lambda s=s: s.recv(4096), b""))
            except OSError:
                continue
            if b"Mode: leader" in said or b"Mode: standalone" in said:
                return port
        time.sleep(0.1)
        return None
