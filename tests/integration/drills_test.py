#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The drills of docs/testing.md that need real processes: the directory goes away, a region is cut off, clients come late
and with old routes, while shardkv nodes are written to. No acknowledged write may be lost, and no stale one taken."""
import http.client
import json
import pathlib
import sys
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from netns import NetCluster, why_not  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Node, Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

PORT = 9000


def named(name):
    """Under the drill's own name."""
    def give(function):
        function.__name__ = name
        return test(function)
    return give


class LateRequest:
    """A write whose body comes when it is told to: the node has accepted the connection and read the head before."""

    def __init__(self, node, path, body):
        parts = urllib.parse.urlsplit(node.url())
        self.body = body
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        self.connection.putrequest("PUT", path)
        self.connection.putheader("Content-Length", str(len(body)))
        self.connection.endheaders()

    def finish(self):
        """The status, and what was said; None if the node hung up."""
        try:
            self.connection.send(self.body)
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None, b""
        finally:
            self.connection.close()


class Region(Node):
    """A node beside a server, in its network namespace: what cuts the server off cuts the node off."""

    def __init__(self, cluster, name, *settings):
        super().__init__(cluster, name, *settings)
        self.server = cluster.servers[int(name[1:]) - 1]
        self.address = f"{self.server.host}:{PORT}"

    def command_prefix(self):
        return self.server.prefix


class Regions(Nodes):
    """Three regions of a server and a node each."""

    node_type = Region

    def make_cluster(self, servers):
        return NetCluster(servers)


@named("directory unavailable")
def directory_unavailable():
    with Nodes(3, ["n1", "n2"], 1, splits=()) as t:
        load = t.load()
        load.grows()
        p = t.routes()[0]["partition"]
        for s in t.cluster.servers:
            s.kill()
        wait_for(lambda: not any((n.state(p) or {}).get("may_write") for n in t.nodes.values()), "the leases to run out")
        stopped = load.count()
        epoch = t.nodes["n1"].state(p)["epoch"]
        for n in t.nodes.values():
            answer = once(n.url(), "PUT", f"/kv?keyspace=ks&partition={p}&epoch={epoch}&key=a&id=late-{n.name}", b"x")
            assert answer.status != 200, answer.raw
        # What was admitted before has been settled: from here on nothing is acknowledged.
        assert load.count() <= stopped + 1, "writes went on without a lease"
        for s in t.cluster.servers:
            s.start()
        t.cluster.wait_ready()
        wait_for(lambda: t.may_write(t.routes()[0]), "a primary that may write again")
        load.grows()
        load.finish()
        wait_for(t.is_well, "the copies to agree")


@named("stale route")
def stale_route():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        route = t.routes()[0]
        p, old, source = route["partition"], route["epoch"], t.primary(route["partition"])
        to = t.nodes["n2" if source.name == "n1" else "n1"]
        once(source.url(), "PUT", f"/kv?keyspace=ks&partition={p}&epoch={old}&key=a&id=m1", b"1").expect(200)
        t.wait_done_moving(t.move(p, to))
        now = t.routes()[0]["epoch"]
        assert now > old
        for n in (source, to):
            answer = once(n.url(), "PUT", f"/kv?keyspace=ks&partition={p}&epoch={old}&key=a&id=m2", b"2")
            equal((answer.status, answer.json["partition"]), (421, p), n.name)
        equal(answer.json["epoch"], now, "the epoch that the new primary knows")
        kv = f"/kv?keyspace=ks&partition={p}&epoch={now}&key=a"
        equal(once(to.url(), "GET", kv).expect(200)["value"], "1")
        once(to.url(), "PUT", f"{kv}&id=m2", b"2").expect(200)


@named("delayed old client")
def delayed_old_client():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        route = t.routes()[0]
        p, old, source = route["partition"], route["epoch"], t.primary(route["partition"])
        to = t.nodes["n2" if source.name == "n1" else "n1"]
        path = f"/kv?keyspace=ks&partition={p}&epoch={old}&key=a"
        once(source.url(), "PUT", f"{path}&id=m1", b"1").expect(200)
        late = [LateRequest(n, f"{path}&id=late-{n.name}", b"late") for n in (source, to)]
        t.wait_done_moving(t.move(p, to))
        for request in late:
            status, said = request.finish()
            assert status is None or status in (421, 503), (status, said)
        # The same again, at leisure: its mutation is of an epoch that is over.
        equal(once(to.url(), "PUT", f"{path}&id=late-again", b"late").status, 421)
        now = t.routes()[0]["epoch"]
        equal(once(to.url(), "GET", f"/kv?keyspace=ks&partition={p}&epoch={now}&key=a").expect(200)["value"], "1")
        equal(t.nodes[to.name].state(p)["items"], 1, json.dumps(to.state(p)))


@named("region partition")
def region_partition():
    reason = why_not()
    if reason is not None:
        raise Skip(reason)
    with Regions(3, ["n1", "n2", "n3"], 1, splits=()) as t:
        load = t.load()
        load.grows()
        p = t.routes()[0]["partition"]
        victim = t.primary(p)
        rest = [s for s in t.cluster.servers if s is not victim.server]
        t.cluster.isolate(victim.server)

        def elsewhere():
            for s in rest:
                try:
                    answer = once(s.url, "GET", "/v1/keyspaces/ks/map?consistency=linearizable", timeout=3)
                except Unreachable:
                    continue
                routes = answer.json["routes"] if answer.status == 200 else []
                if routes and routes[0]["primary"] and routes[0]["primary"]["node"] != victim.name:
                    return routes[0]
            return None

        route = wait_for(elsewhere, "the other regions to take over")
        assert not victim.state(p)["may_write"], "the node that is cut off may still write"
        assert victim.server.dropped() > 0, "the cut had no effect"
        answer = once(victim.url(), "PUT", f"/kv?keyspace=ks&partition={p}&epoch={route['epoch']}&key=a&id=cut", b"x")
        assert answer.status != 200, answer.raw
        load.grows()
        t.cluster.heal()
        t.cluster.wait_ready()
        load.finish()
        wait_for(t.is_well, "the copies to agree")


if __name__ == "__main__":
    main()
