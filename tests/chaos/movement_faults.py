# SPDX-License-Identifier: Apache-2.0
"""What is done to a movement in one of its stages. Each fault is called with a Moment and is a generator: it begins, says by
`yield` whether it took effect, and after that heals what it broke."""
import signal
import time

from cluster import Unreachable, once
from movement_world import OVER_LEASE_S

PAST = ("WINDOW", "CLEANUP")


class Moment:
    def __init__(self, world, rand, operation, stage, source, destination):
        self.world, self.rand, self.operation, self.stage = world, rand, operation, stage
        self.source, self.destination = source, destination
        self.partition, self.note = operation["partition"], ""

    def release(self):
        if self.world.proxy.hold:
            self.world.proxy.hold.release()

    def soon_or_late(self):
        """Before a lease is over, or after."""
        if self.rand.random() < 0.5:
            self.note += " late"
            time.sleep(OVER_LEASE_S)
        else:
            time.sleep(self.rand.random() * 0.3)


def nothing(_):
    yield True


def kill(who):
    def fault(m):
        node = getattr(m, who)
        node.kill()
        yield not node.alive()
        m.soon_or_late()
        node.start()
    return fault


def pause(who):
    def fault(m):
        node = getattr(m, who)
        node.send(signal.SIGSTOP)
        time.sleep(OVER_LEASE_S)
        yield node.state(m.partition, timeout=0.2) is None
        node.send(signal.SIGCONT)
    return fault


def kill_leader(m):
    leader = m.world.cluster.leader()
    leader.kill()
    yield not leader.alive()
    time.sleep(m.rand.random())
    leader.start()


def pause_leader(m):
    leader = m.world.cluster.leader()
    leader.pause()
    time.sleep(OVER_LEASE_S)
    m.world.cluster.servers.remove(leader)  # nobody waits for its answer meanwhile
    other = m.world.cluster.leader()
    m.world.cluster.servers.append(leader)
    yield other is not leader
    leader.resume()


def move_leader(m):
    before = m.world.cluster.leader()
    answer = m.world.cluster.call("POST", "/v1/cluster/transfer-leadership", {})
    yield answer.status == 200 and m.world.cluster.leader() is not before


def cut_node(who):
    """From the directory, not from its clients: what it sends may still arrive, what it is told does not."""
    def fault(m):
        node = getattr(m, who)
        node.inside("iptables", "-w", "-A", "FAULTS", "-s", m.world.proxy.server.server_address[0], "-j", "DROP")
        if m.rand.random() < 0.5:
            m.note += " both ways"
            m.world.proxy.refused.add(node.name)
        time.sleep(OVER_LEASE_S)
        yield node.dropped() > 0
        node.heal()
        m.world.proxy.refused.clear()
    return fault


def cut_sides(m):
    """The source and the destination from each other, and what the stage waited for comes."""
    m.source.deaf_to(m.destination)
    m.destination.deaf_to(m.source)
    m.release()
    time.sleep(OVER_LEASE_S)
    yield m.source.dropped() + m.destination.dropped() > 0
    m.source.heal()
    m.destination.heal()


def cut_leader(m):
    leader = m.world.cluster.leader()
    m.world.cluster.isolate(leader, by_reset=m.rand.random() < 0.5)
    time.sleep(OVER_LEASE_S)
    yield sum(s.dropped() for s in m.world.cluster.servers) > 0
    m.world.cluster.heal()


def delay(m):
    """What the stage waits for comes late."""
    time.sleep(0.3 + m.rand.random())
    yield m.world.proxy.hold.arrived.is_set()


def replay(m):
    m.world.proxy.twice = True
    yield m.world.proxy.replay(m.rand) > 0
    time.sleep(0.2)
    m.world.proxy.twice = False


def abort(m):
    """Taken exactly when the authority answer lists it."""
    listed = m.world.authority(m.operation["id"])
    answer = m.world.cluster.call("POST", f"/v1/operations/{m.operation['id']}/abort", {"reason": "chaos"})
    if listed is None:
        yield False
        return
    taken = answer.status == 200 and answer.json["state"] == "aborted"
    if taken != ("abort" in listed["verbs"]) or (m.stage in PAST and answer.json.get("code") != "past_cutover"):
        m.world.proxy.faults.append(f"abort in {m.stage}: {answer.status} {answer.raw[:200]!r}, listed {listed['verbs']}")
    yield True


# Name, function, whether it needs namespaces.
FAULTS = {
    "kill source": (kill("source"), False),
    "kill destination": (kill("destination"), False),
    "kill leader": (kill_leader, False),
    "pause source": (pause("source"), False),
    "pause destination": (pause("destination"), False),
    "pause leader": (pause_leader, False),
    "cut source": (cut_node("source"), True),
    "cut destination": (cut_node("destination"), True),
    "cut sides": (cut_sides, True),
    "cut leader": (cut_leader, True),
    "move leader": (move_leader, False),
    "delay reports": (delay, False),
    "replay reports": (replay, False),
    "abort": (abort, False),
    "none": (nothing, False),
}


# Where the two sides have something to say to each other, in the stage or in the next.
SIDES_TALK = ("QUEUED", "PREPARE", "SNAPSHOT", "COPY", "CATCH_UP", "DUAL_WRITE", "VALIDATE")


def applies(fault, kind, stage):
    if fault == "cut sides":
        return kind != "transfer" and stage in SIDES_TALK
    return (fault, stage) != ("delay reports", "QUEUED")


class Probe:
    """Writes that must be refused, by what the directory says of an operation before and after."""

    def __init__(self, world):
        self.world, self.sent, self.refused, self.number, self.accepted = world, 0, 0, 0, []

    def put(self, node, partition, epoch, why):
        self.number += 1
        path = f"/kv?keyspace=ks&partition={partition}&epoch={epoch}&key=zz-probe&id=probe-{self.number}"
        try:
            answer = once(node.url, "PUT", path, body=b"probe", timeout=0.5)
        except Unreachable:
            return None
        self.sent += 1
        self.refused += answer.status != 200
        return f"{node.name} took a write of {partition} at {epoch}: {why}" if answer.status == 200 else None

    def who_may(self, said):
        """(node, epoch) that may accept, or None when nobody may."""
        holder = said["authority"]
        nobody = holder is None or (holder["fenced"] and said["stage"] == "CUTOVER")
        return None if nobody else (holder["node"], holder["epoch"])

    def look(self, operation, partition):
        said = self.world.authority(operation)
        if said is None or "epoch" not in said:
            return
        may, epoch = self.who_may(said), said["epoch"]
        found = []
        for node in self.world.nodes.values():
            for at in (epoch, epoch - 1):
                if may != (node.name, at):
                    found.append(self.put(node, partition, at, f"{said}"))
        again = self.world.authority(operation)
        if again is not None and (self.who_may(again), again["epoch"]) == (may, epoch):
            self.accepted += [f for f in found if f]
