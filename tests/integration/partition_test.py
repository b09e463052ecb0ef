#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links between real servers are cut while clients write: who has no quorum answers nothing that needs one, the others
go on, and healing needs no hands. After every test the hashes are equal and `cadastred check` finds nothing."""
import pathlib
import sys
import threading
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from netns import NetCluster, why_not  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, main, test  # noqa: E402  pylint: disable=wrong-import-position
from workload import Follower, Writers  # noqa: E402  pylint: disable=wrong-import-position

ELECTION_S = 0.4
FAST = ("--election-timeout", "400ms", "--heartbeat-interval", "50ms")
SNAPSHOTS = ("--snapshot-threshold", "64", "--snapshot-trailing", "32")
NO_NETNS = why_not()


def cluster(size, flags=FAST):
    if NO_NETNS is not None:
        raise Skip(NO_NETNS)
    return NetCluster(size, flags=flags)


def prepare(c):
    for n in ("n1", "n2", "n3"):
        c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"}).expect(200, 201)
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d", "m", "t"]}).expect(201)


def finish(c, writers, follower=None):
    c.wait_ready()
    writers.wait_acknowledged(10)
    writers.stop()
    writers.check()
    if follower is not None:
        follower.check()
        follower.stopping = True
    c.agree()


def others_lead(c, cut_off):
    """Waits until one that is not cut off leads."""
    rest = [s for s in c.servers if s not in cut_off]
    wait_for(
        lambda: any((s.cluster() or {}).get("leader") == s.id for s in rest), "the connected majority to elect a leader"
    )


class Askers:
    """Clients of servers that have no quorum: not one of their linearizable reads and commands may be answered 2xx.
    Started after the cut, so that no answer can be older than it."""

    def __init__(self, servers):
        self.servers, self.stopping, self.asked, self.wrong = servers, False, 0, []
        self.threads = [threading.Thread(target=self._run, args=(s, k)) for s in servers for k in ("read", "command")]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def _run(self, server, kind):
        while not self.stopping:
            try:
                if kind == "read":
                    answer = once(server.url, "GET", "/v1/keyspaces/ks/map?consistency=linearizable", timeout=3)
                else:
                    name = f"/v1/nodes/x{uuid.uuid4().hex[:8]}"
                    answer = once(server.url, "PUT", name, {"address": "h:1", "lease": "static"},
                                  {"Idempotency-Key": uuid.uuid4().hex}, timeout=3)
                if answer.status < 300 and not self.stopping:
                    self.wrong.append(f"{kind} at {server.id}: {answer.status} {answer.raw[:100]!r}")
            except Unreachable:
                pass
            self.asked += 1

    def stop(self):
        """To be called before the cut is healed."""
        self.stopping = True
        for t in self.threads:
            t.join()
        assert not self.wrong, f"{len(self.wrong)} answers, such as {self.wrong[:3]}"
        assert self.asked > 0, "nothing was asked of the minority"


def stays_stable(c, seconds):
    """Has the term stood still for `seconds`? Terms are what flapping raises."""
    watched = max(s["term"] for s in (x.cluster() for x in c.servers) if s)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if any(s["term"] != watched for s in (x.cluster() for x in c.servers) if s):
            return False
        time.sleep(0.1)
    return True


@test
def leader_without_followers_answers_nothing_that_needs_them():
    with cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            w.wait_acknowledged(20)
            leader = c.leader()
            c.isolate(leader)
            with Askers([leader]) as asked:
                others_lead(c, [leader])
                w.wait_acknowledged(30)
                local = leader.get("/v1/keyspaces/ks/map").expect(200)
                assert local["revision"] > 0, "a local read goes on"
                wait_for(lambda: leader.get("/readyz").status == 503, "the cut-off leader to say that it is not ready")
                asked.stop()
            assert leader.dropped() > 0, "the cut had no effect"
            c.heal()
            finish(c, w, f)
        c.check_all()


@test
def one_way_cuts_of_a_leader():
    with cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for deaf in (True, False):
                w.wait_acknowledged(10)
                leader = c.leader()
                others = [s for s in c.servers if s is not leader]
                for s in others:
                    if deaf:
                        leader.deaf_to(s)
                    else:
                        s.deaf_to(leader)
                others_lead(c, [leader])
                w.wait_acknowledged(20)
                assert sum(s.dropped() for s in c.servers) > 0, "the cut had no effect"
                c.heal()
                c.wait_ready()
            finish(c, w)
        c.check_all()


@test
def one_way_cuts_of_a_follower_do_not_depose_the_leader_for_good():
    with cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for deaf in (True, False):
                follower = c.followers()[0]
                for s in c.servers:
                    if s is not follower and deaf:
                        follower.deaf_to(s)
                    elif s is not follower:
                        s.deaf_to(follower)
                w.wait_acknowledged(40)
                wait_for(lambda: stays_stable(c, 4 * ELECTION_S), "a stable term beside a follower cut one way")
                w.wait_acknowledged(20)
                assert sum(s.dropped() for s in c.servers) > 0, "the cut had no effect"
                c.heal()
                c.wait_ready()
            finish(c, w)
        c.check_all()


@test
def bridge_has_a_stable_leader():
    with cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for end in (True, False):
                w.wait_acknowledged(10)
                leader = c.leader()
                one, other = c.followers()
                if end:  # the leader is an end of the bridge, else its middle
                    c.cut(leader, one)
                else:
                    c.cut(one, other)
                w.wait_acknowledged(30)
                wait_for(lambda: stays_stable(c, 6 * ELECTION_S), "a stable leader on a bridge")
                w.wait_acknowledged(20)
                c.heal()
                c.wait_ready()
            finish(c, w)
        c.check_all()


@test
def minority_region_acknowledges_nothing():
    with cluster(5) as c:
        prepare(c)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            w.wait_acknowledged(20)
            leader = c.leader()
            region = [leader, c.followers()[0]]
            for s in region:
                for other in c.servers:
                    if other not in region:
                        c.cut(s, other)
            with Askers(region) as asked:
                since = time.monotonic()
                others_lead(c, region)
                w.wait_acknowledged(30)
                wait_for(lambda: time.monotonic() - since > 5 * ELECTION_S, "five election timeouts")
                asked.stop()
            c.heal()
            finish(c, w, f)
        c.check_all()


@test
def isolated_follower_catches_up():
    with cluster(3, FAST + SNAPSHOTS) as c:
        prepare(c)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            w.wait_acknowledged(20)
            follower = c.followers()[0]
            c.isolate(follower, by_reset=True)  # else all that was missed may still be in the connection
            stood = wait_for(follower.cluster, "the follower to say where it stands")["applied_index"]
            wait_for(lambda: (c.leader().cluster() or {}).get("applied_index", 0) > stood + 200, "more than the leader's log keeps")
            c.heal()
            c.wait_ready()
            finish(c, w, f)
        c.check_all()


if __name__ == "__main__":
    main()
