#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions and leases on real servers: lapse, no revival, leader changes, pauses, releases, and that no two nodes may
ever write one partition at one moment, by true time."""
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode, now, overlaps  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

LEASE_S = 0.8
WHOLE_S = LEASE_S * 1.01 + 0.5  # when the leader gives a session up


def prepare(c):
    c.call("PATCH", "/v1/cluster/settings", {"lease_ms": int(LEASE_S * 1000), "heartbeat_ms": 200}).expect(200)


def keyspace(c, sync=0, splits=()):
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "replicas": {"sync": sync},
                                     "splits": list(splits)}).expect(201)


def route(c, key="a"):
    """By the leader: what it has applied is the newest there is."""
    return once(c.leader().url, "GET", f"/v1/keyspaces/ks/route?key={key}").expect(200)


def primary(c, key="a"):
    p = route(c, key)["primary"]
    return p and p["node"]


def stop_all(nodes):
    for n in nodes:
        if not n.stopping:
            n.crash()


def finish(c, nodes):
    stop_all(nodes)
    equal(overlaps(nodes), [])
    assert any(n.all_holds() for n in nodes), "nobody ever held anything: the test proves nothing"
    c.agree()
    c.check_all()


@test
def a_lapse_fails_over_and_revives_nobody():
    with Cluster(3) as c:
        prepare(c)
        n1, n2 = ModelNode(c, "n1").start(), ModelNode(c, "n2").start()
        keyspace(c, sync=1)
        p = route(c)
        owner, other = (n1, n2) if p["primary"]["node"] == "n1" else (n2, n1)
        wait_for(lambda: owner.may_write(p["partition"]), "the primary to have its grant")
        old = owner.session
        owner.paused = True
        wait_for(lambda: primary(c) == other.name, "a failover")
        assert not owner.may_write(p["partition"])
        assert route(c)["epoch"] > p["epoch"]
        history = once(c.leader().url, "GET", f"/v1/keyspaces/ks/partitions/{p['partition']}/history").expect(200)
        assert "failover" in str(history), history
        wait_for(lambda: other.may_write(p["partition"]), "the replica to have its grant")
        for s in c.alive():
            assert once(s.url, "POST", f"/v1/nodes/{owner.name}/heartbeat", {"session": old}).status != 200
        code = once(c.leader().url, "POST", f"/v1/nodes/{owner.name}/heartbeat", {"session": old})
        equal((code.status, code.json["code"]), (409, "session_ended"))
        equal(once(c.leader().url, "GET", f"/v1/nodes/{owner.name}").json["state"], "down")
        owner.paused = False
        wait_for(lambda: owner.ended == 1 and owner.session not in (None, old), "it to register again")
        time.sleep(WHOLE_S)
        equal(primary(c), other.name)
        finish(c, [n1, n2])


@test
def without_a_replica_it_waits_for_its_home():
    with Cluster(1) as c:
        prepare(c)
        n1 = ModelNode(c, "n1").start()
        keyspace(c)
        p = route(c)
        wait_for(lambda: n1.may_write(p["partition"]), "its grant")
        n1.crash()
        wait_for(lambda: route(c)["state"] == "unavailable", "the lapse")
        lapsed = route(c)
        equal((lapsed["primary"], lapsed["epoch"]), (None, p["epoch"]))
        assert lapsed["mod_revision"] > p["mod_revision"]
        check = once(c.leader().url, "POST", f"/v1/keyspaces/ks/partitions/{p['partition']}/check",
                     {"node": "n1", "epoch": p["epoch"]})
        equal((check.status, check.json["code"]), (409, "not_owner"))
        n1.start()
        back = route(c)
        equal((back["primary"]["node"], back["epoch"]), ("n1", n1.session))
        wait_for(lambda: n1.may_write(p["partition"]), "its grant again")
        finish(c, [n1])


@test
def ended_is_not_released():
    with Cluster(1) as c:
        prepare(c)
        old, new = ModelNode(c, "n1"), ModelNode(c, "n1")
        old.start()
        keyspace(c)
        p = route(c)
        wait_for(lambda: old.may_write(p["partition"]), "its grant")
        old.paused = True  # its process still runs, and may write until its lease is over
        begun = now()
        new.start(name_previous=False)
        equal(route(c)["epoch"], p["epoch"])
        assert not new.may_write(p["partition"])
        wait_for(lambda: new.may_write(p["partition"]), "the old session's lapse")
        assert now() - begun > LEASE_S / 2, "it was released too soon"
        equal(route(c)["epoch"] > p["epoch"], True)
        old.name = "n1, its old process"
        for h in old.all_holds():
            h.node = old.name
        finish(c, [old, new])


@test
def previous_session_and_release_are_at_once():
    with Cluster(1) as c:
        c.call("PATCH", "/v1/cluster/settings", {"lease_ms": 60000, "heartbeat_ms": 200}).expect(200)
        n1, n2 = ModelNode(c, "n1").start(), ModelNode(c, "n2").start()
        keyspace(c, sync=1)
        p = route(c)
        owner, other = (n1, n2) if p["primary"]["node"] == "n1" else (n2, n1)
        wait_for(lambda: owner.may_write(p["partition"]), "its grant")
        owner.crash()
        owner.start()  # names the session that its data directory remembers
        equal((primary(c), route(c)["epoch"]), (owner.name, owner.session))
        session = owner.session
        owner.crash()
        c.call("DELETE", f"/v1/nodes/{owner.name}/session", {"session": session}).expect(200)
        equal(primary(c), other.name)
        finish(c, [n1, n2])


@test
def a_static_node_never_lapses():
    with Cluster(1) as c:
        prepare(c)
        answer = c.call("PUT", "/v1/nodes/s1", {"address": "s1:1", "lease": "static"}).expect(200)
        equal(answer["lease_ms"], 0)
        keyspace(c)
        before = route(c)
        n1 = ModelNode(c, "n1").start()
        n1.crash()
        wait_for(lambda: once(c.leader().url, "GET", "/v1/nodes/n1").json["state"] == "down", "the other's lapse")
        after = route(c)
        equal((after["epoch"], after["primary"]["node"], after["authority"]), (before["epoch"], "s1", "static"))
        equal(once(c.leader().url, "GET", "/v1/nodes/s1").json["state"], "up")
        c.check_all()


@test
def a_new_leader_counts_at_full_length():
    with Cluster(3) as c:
        prepare(c)
        n1 = ModelNode(c, "n1").start()
        keyspace(c)
        p = route(c)
        wait_for(lambda: n1.may_write(p["partition"]), "its grant")
        n1.paused = True
        time.sleep(WHOLE_S * 0.6)
        c.leader().kill()
        killed = now()
        wait_for(lambda: route(c)["state"] == "unavailable", "the lapse")
        assert now() - killed > WHOLE_S, f"lapsed {now() - killed:.3f} s after the last leader was there"
        finish(c, [n1])


@test
def a_session_outlives_its_leader():
    with Cluster(3) as c:
        prepare(c)
        n1 = ModelNode(c, "n1").start()
        keyspace(c)
        p = route(c)
        wait_for(lambda: n1.may_write(p["partition"]), "its grant")
        session = n1.session
        for _ in range(2):
            leader = c.leader()
            leader.kill()
            beats = n1.beats
            wait_for(lambda: n1.beats > beats + 3, "renewals by the new leader")
            leader.start()
            c.wait_ready()
        equal((n1.session, n1.ended, route(c)["epoch"]), (session, 0, p["epoch"]))
        finish(c, [n1])


@test
def a_leader_that_stood_still_counts_anew():
    with Cluster(1) as c:
        prepare(c)
        n1 = ModelNode(c, "n1").start()
        keyspace(c)
        p = route(c)
        wait_for(lambda: n1.may_write(p["partition"]), "its grant")
        session, beats = n1.session, n1.beats
        c.servers[0].pause()
        time.sleep(WHOLE_S + 1)
        assert not n1.may_write(p["partition"]), "its lease was over long ago"
        c.servers[0].resume()
        wait_for(lambda: n1.beats > beats + 3, "renewals")
        equal((n1.session, n1.ended, route(c)["epoch"]), (session, 0, p["epoch"]))
        assert "leases.restarted" in c.servers[0].log.read_text()
        finish(c, [n1])


@test
def only_a_confirmed_leader_renews():
    with Cluster(3) as c:
        prepare(c)
        n1 = ModelNode(c, "n1")
        n1.register()
        assert n1.heartbeat()
        body = {"session": n1.session}
        for s in c.followers():
            equal(once(s.url, "POST", "/v1/nodes/n1/heartbeat", body).status, 307)
        leader, followers = c.leader(), c.followers()
        for s in followers:
            s.pause()
        try:
            answer = once(leader.url, "POST", "/v1/nodes/n1/heartbeat", body, timeout=4)
            assert answer.status in (307, 503), answer.raw
        except Unreachable:
            pass  # unanswered is as good
        leader.pause()
        for s in followers:
            s.resume()
        wait_for(lambda: any((s.cluster() or {}).get("leader") in [f.id for f in followers] for s in followers),
                 "a new leader")
        leader.resume()
        try:
            answer = once(leader.url, "POST", "/v1/nodes/n1/heartbeat", body, timeout=4)
            seen = leader.cluster()
            assert answer.status != 200 or (seen and seen["leader"] == leader.id), "a deposed leader renewed"
        except Unreachable:
            pass
        wait_for(lambda: n1.heartbeat(), "the new leader to renew")
        c.check_all()


@test
def no_two_nodes_may_write_at_once():
    with Cluster(3) as c:
        prepare(c)
        rand = random.Random(11)
        nodes = [ModelNode(c, f"n{i}").start() for i in (1, 2, 3)]
        keyspace(c, sync=1, splits=["d", "h", "m", "t"])
        epochs = {}
        for step in range(10):
            n = rand.choice(nodes)
            kind = rand.randrange(4)
            if kind == 0:
                n.paused = True
                time.sleep(rand.uniform(0.2, WHOLE_S + 0.4))
                n.paused = False
            elif kind == 1:
                n.crash()
                n.start(name_previous=rand.random() < 0.5)
            elif kind == 2:
                n.crash()
                time.sleep(rand.uniform(0, WHOLE_S + 0.3))
                n.start()
            elif step in (3, 7):
                leader = c.leader()
                leader.kill()
                time.sleep(0.2)
                leader.start()
                c.wait_ready()
            for r in once(c.leader().url, "GET", "/v1/keyspaces/ks/map").expect(200)["routes"]:
                assert r["epoch"] >= epochs.get(r["partition"], 0), "an epoch fell"
                epochs[r["partition"]] = r["epoch"]
        held = {h.partition for n in nodes for h in n.all_holds()}
        equal(len(held), 5)
        finish(c, nodes)


main()
