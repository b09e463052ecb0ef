# SPDX-License-Identifier: Apache-2.0
"""Servers, shardkv nodes behind a proxy for their reports, and a load: what the movement's chaos breaks.

As root every server and node has a network namespace of its own, and links can be cut; else all are on loopback."""
import json
import signal
import subprocess
import time

from cluster import BUILD, Cluster, Unreachable, free_port, once, wait_for
from netns import NetCluster, Space, second_address
from reports_proxy import Proxy

LEASE_MS, HEARTBEAT_MS, WINDOW_MS = 1500, 300, 400
OVER_LEASE_S = LEASE_MS / 1000 * 1.5 + 1  # surely over, and its session ended
DEADLINE_S = 60  # for an operation, once what was broken is whole
FLAGS = ("--election-timeout", "500ms", "--heartbeat-interval", "60ms")
ENDED = ("done", "aborted", "failed")
SETTINGS = {"lease_ms": LEASE_MS, "heartbeat_ms": HEARTBEAT_MS, "validation_window_ms": WINDOW_MS,
            "stage_timeout_ms": 6000, "dual_write_max_ms": 5000, "fence_max_ms": 4000}


class Node:
    prefix = ()

    def __init__(self, world, name, number):
        self.world, self.name = world, name
        self.address = self.take_address(number)
        self.url = f"http://{self.address}"
        self.directory, self.log = world.cluster.base / f"node-{name}", world.cluster.base / f"node-{name}.log"
        self.process = None

    def take_address(self, number):  # pylint: disable=unused-argument
        return f"127.0.0.1:{free_port()}"

    def start(self):
        endpoints = ",".join(s.url for s in self.world.cluster.servers) if self.world.direct else self.world.proxy.url
        command = [*self.prefix, str(BUILD / "shardkv"), *self.world.options, endpoints, self.name, self.address,
                   str(self.directory), str(HEARTBEAT_MS), *self.world.labels(self.name)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def call(self, method, path, body=None, timeout=5):
        """None without an answer."""
        try:
            return once(self.url, method, path, body=body, timeout=timeout)
        except Unreachable:
            return None

    def state(self, partition, timeout=5):
        answer = self.call("GET", f"/state?keyspace=ks&partition={partition}", timeout=timeout)
        return answer.json if answer is not None and answer.status == 200 else None

    def remove(self):
        pass


class NetNode(Space, Node):
    def take_address(self, number):
        self.open_space(10 + number)
        return f"{self.host}:9000"


class Load:
    """shardkv-load until its time is up."""

    def __init__(self, world, seconds, writers=4, keys=12, more=()):
        self.records, self.at, self.count = world.cluster.base / "records.jsonl", 0, 0
        endpoints = ",".join(s.url for s in world.cluster.servers)
        self.until = time.monotonic() + seconds
        self.process = subprocess.Popen(
            [str(BUILD / "shardkv-load"), endpoints, "ks", str(writers), str(keys), str(int(seconds)), str(self.records), *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def left_s(self):
        return self.until - time.monotonic()

    def acknowledged(self):
        """How many have been written down so far."""
        with open(self.records, "rb") as f:
            f.seek(self.at)
            data = f.read()
        self.at += len(data)
        self.count += data.count(b"\n")
        return self.count

    def finish(self):
        out, err = self.process.communicate(timeout=180)
        lines = [json.loads(line) for line in self.records.read_text(encoding="utf-8").splitlines()]
        return self.process.returncode, json.loads(out or "{}"), err, lines


class World:
    options = ()  # of the nodes' command lines
    settings = SETTINGS

    def __init__(self, nodes, sync, seconds, spaces, direct=False):
        self.direct = direct  # agents talk to the servers, not to the proxy
        self.sync, self.seconds, self.spaces, self.size = sync, seconds, spaces, nodes
        self.cluster = (NetCluster if spaces else Cluster)(3, flags=FLAGS)
        self.nodes, self.proxy, self.load = {}, None, None

    def __enter__(self):
        self.cluster.__enter__()
        try:
            self.prepare()
        except BaseException as why:
            self.__exit__(type(why), why, None)
            raise
        return self

    def prepare(self):
        c = self.cluster
        c.call("PATCH", "/v1/cluster/settings", self.settings).expect(200)
        self.proxy = Proxy(second_address() if self.spaces else "127.0.0.1", c.servers)
        for number in range(self.size):
            name = f"n{number + 1}"
            self.nodes[name] = (NetNode if self.spaces else Node)(self, name, number + 1).start()
        wait_for(lambda: len(c.call("GET", "/v1/nodes").expect(200)["nodes"]) == self.size, "the nodes to register")
        c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "replicas": {"sync": self.sync},
                                         **self.keyspace()}).expect(201)
        self.wait_writable()
        self.load = self.make_load()
        wait_for(lambda: self.load.records.exists() and self.load.acknowledged() > 50, "writes")

    def labels(self, name):  # pylint: disable=unused-argument
        return ()

    def keyspace(self):
        return {"splits": ["e", "i"]}

    def make_load(self):
        return Load(self, self.seconds)

    def __exit__(self, kind, value, trace):
        if self.load is not None and self.load.process.poll() is None:
            self.load.process.kill()
        if self.proxy is not None:
            self.proxy.close()
        for n in self.nodes.values():
            if n.alive():
                n.kill()
            if kind is not None and n.log.exists():
                print(f"# --- log of node {n.name} ---")
                print("\n".join(f"# {line}" for line in n.log.read_text(errors="replace").splitlines()[-15:]))
        self.cluster.__exit__(kind, value, trace)
        for n in self.nodes.values():
            n.remove()

    # --- what the directory says ---

    def read(self, path, timeout=2):
        """By the leader, confirmed; None while there is none to ask."""
        for s in self.cluster.alive():
            try:
                answer = once(s.url, "GET", f"{path}{'&' if '?' in path else '?'}consistency=linearizable", timeout=timeout)
            except Unreachable:
                continue
            if answer.status == 200:
                return answer.json
        return None

    def routes(self):
        got = self.read("/v1/keyspaces/ks/map")
        return got["routes"] if got else []

    def route(self, partition):
        return next((r for r in self.routes() if r["partition"] == partition), None)

    def operation(self, operation):
        return self.read(f"/v1/operations/{operation}")

    def authority(self, operation):
        return self.read(f"/v1/operations/{operation}/authority")

    def may_write(self, route):
        if not route["primary"]:
            return False
        state = self.nodes[route["primary"]["node"]].state(route["partition"])
        return bool(state and state["may_write"] and state["epoch"] == route["epoch"])

    def wait_writable(self):
        try:
            wait_for(lambda: (r := self.routes()) and all(self.may_write(x) for x in r), "every partition to be writable")
        except AssertionError:
            for route in self.routes():
                if not self.may_write(route):
                    states = {r["node"]: self.nodes[r["node"]].state(route["partition"]) for r in route["replicas"]}
                    print(f"# not writable: {json.dumps(route)} {json.dumps(states)}", flush=True)
            raise

    def free_nodes(self, route):
        holders = {r["node"] for r in route["replicas"]}
        return [n for n in self.nodes.values() if n.name not in holders]

    def start_operation(self, what, partition, body):
        path = f"/v1/keyspaces/ks/partitions/{partition}/{what}"
        return self.cluster.call("DELETE" if body is None else "POST", path, body)

    def whole_again(self):
        """Everything that was stopped, cut or killed is back."""
        if self.spaces:
            for s in [*self.cluster.servers, *self.nodes.values()]:
                s.heal()
        self.proxy.refused.clear()
        for s in self.cluster.servers:
            if s.alive():
                s.resume()
            else:
                s.start()
        for n in self.nodes.values():
            if n.alive():
                n.send(signal.SIGCONT)
            else:
                n.start()


