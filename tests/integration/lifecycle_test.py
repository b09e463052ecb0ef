#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operator does to servers: signals, other addresses, copied directories, clocks that jump. Nothing acknowledged is
lost, and what can't be allowed ends loudly."""
import datetime
import os
import pathlib
import shutil
import signal
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import Cluster, Server, free_port, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal, main, test  # noqa: E402  pylint: disable=wrong-import-position
from workload import Follower, Writers  # noqa: E402  pylint: disable=wrong-import-position

FAST = ("--election-timeout", "400ms", "--heartbeat-interval", "50ms")
SNAPSHOTS = ("--snapshot-threshold", "64", "--snapshot-trailing", "32")
FAKETIME = pathlib.Path("/usr/lib") / (os.uname().machine + "-linux-gnu") / "faketime" / "libfaketimeMT.so.1"


def prepare(c):
    for n in ("n1", "n2", "n3"):
        c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"}).expect(200, 201)
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d", "m", "t"]}).expect(201)


def finish(c, writers, follower=None, kept=True):
    c.wait_ready()
    writers.wait_acknowledged(10)
    writers.stop()
    writers.check(kept)
    if follower is not None:
        follower.check()
        follower.stopping = True
    c.agree()


@test
def second_sigterm_ends_at_once():
    with Cluster(3, flags=("--election-timeout", "20s", "--heartbeat-interval", "100ms")) as c:
        prepare(c)
        leader, others = c.leader(), c.followers()
        for s in others:
            s.pause()  # nobody to hand over to: the orderly end takes as long as it may
        leader.send(signal.SIGTERM)
        wait_for(lambda: leader.get("/readyz").status == 503, "the leader to be on its way out")
        assert leader.alive()
        leader.send(signal.SIGTERM)
        equal(leader.process.wait(timeout=15), 0, "exit after two SIGTERMs")
        for s in others:
            s.resume()


@test
def sigterm_while_a_snapshot_is_installed():
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        splits = [f"{i:06d}" + "k" * 100 for i in range(9000)]
        for name in ("big1", "big2", "big3"):
            c.call("POST", "/v1/keyspaces", {"name": name, "scheme": "range", "splits": splits}, timeout=60).expect(201)
        victim = c.followers()[0]
        with Writers(c, "ks") as w:
            for _ in range(3):
                victim.kill()
                w.wait_acknowledged(150)
                before = victim.log.stat().st_size
                victim.start()
                # It has heard a leader; what it misses comes as a snapshot.
                wait_for(lambda b=before: b"raft.started" in victim.log.read_bytes()[b:], "it to have started")
                victim.send(signal.SIGTERM)
                equal(victim.wait_exit(), 0, f"exit\n{victim.tail()}")
                victim.start()
            finish(c, w)
        c.check_all()


def hand_over(c, s):
    """Again when it comes to nothing: another may be elected meanwhile."""

    def leads():
        if c.leader() is s:
            return True
        answer = c.call("POST", "/v1/cluster/transfer-leadership", {"to": s.id})
        return answer.status == 200 and c.leader() is s

    wait_for(leads, f"server {s.id} to lead")


def role_of(c, number):
    for s in (c.leader().cluster() or {}).get("servers", []):
        if s["id"] == number:
            return s
    return {}


@test
def member_that_moved_comes_back_when_the_cluster_is_told():
    with Cluster(3, flags=FAST) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for moved in (c.followers()[0], c.leader()):
                w.wait_acknowledged(10)
                moved.kill()
                moved.raft_port, moved.api_port = free_port(), free_port()
                moved.url = f"http://127.0.0.1:{moved.api_port}"
                other = next(s for s in c.servers if s is not moved)
                moved.flags = list(FAST)
                moved.start("--join", other.url)
                c.wait_ready()
                equal(role_of(c, moved.id)["raft_address"], f"127.0.0.1:{moved.raft_port}")
                equal(role_of(c, moved.id)["api_url"], moved.url)
                equal(role_of(c, moved.id)["role"], "voter")
            # It is dialled there by every later leader too, and after a restart of all.
            for s in c.servers:
                hand_over(c, s)
                c.wait_ready()
            for s in c.servers:
                s.kill()
            for s in c.servers:
                s.start()
            c.wait_ready()
            finish(c, w)
        c.check_all()


@test
def single_server_takes_another_address_and_grows():
    with Cluster(1, flags=FAST) as c:
        prepare(c)
        first = c.servers[0]
        first.kill()
        first.raft_port = free_port()
        first.start()
        c.wait_ready()
        for number in (2, 3):
            c.join(number)
            wait_for(lambda n=number: role_of(c, n).get("role") == "voter" and role_of(c, n)["connected"], "a voter")
        c.wait_ready()
        # Now the others have to find the first one, where it is.
        hand_over(c, c.servers[2])
        c.wait_ready()
        wait_for(lambda: role_of(c, 1).get("connected"), "the first server to be connected")
        c.agree()
        c.check_all()


@test
def copy_of_a_data_directory_is_no_second_server():
    with Cluster(3, flags=FAST) as c:
        prepare(c)
        victim = c.followers()[0]
        victim.kill()
        copied = c.base / "copy"
        shutil.copytree(victim.directory, copied)
        victim.start()
        c.wait_ready()
        twin = Server(victim.id, copied, FAST)
        twin.log = c.base / "twin.log"
        with Writers(c, "ks") as w:
            twin.start()
            equal(twin.wait_exit(), 3, f"exit of a copy beside its original\n{twin.tail()}")
            assert "raft.refused" in twin.tail(), twin.tail()
            asked = twin.start("--join", c.leader().url)
            equal(asked.wait_exit(), 3, f"exit of a copy that asks to be taken for the original\n{twin.tail()}")
            assert "join.failed" in twin.tail(), twin.tail()
            assert victim.alive()
            finish(c, w)
        c.check_all()


@test
def retry_is_answered_alike_by_later_leaders_and_after_snapshots():
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        key, path, body = uuid.uuid4().hex, "/v1/nodes/kept", {"address": "h:1", "lease": "static"}
        first = c.call("PUT", path, body, key=key)
        first.expect(200)
        away = c.followers()[0]
        away.kill()
        with Writers(c, "ks") as w:
            w.wait_acknowledged(200)  # the log of then is gone
            away.start()
            c.wait_ready()
            for s in c.servers:
                hand_over(c, s)
                again = c.call("PUT", path, body, key=key)
                equal((again.status, again.raw), (first.status, first.raw), f"the retry's answer by server {s.id}")
                equal(again.headers.get("idempotency-replayed"), "true")
                other = c.call("PUT", path, {"address": "h:2", "lease": "static"}, key=key)
                assert other.status >= 400, f"the key with another body: {other.status}"
            finish(c, w)
        for s in c.servers:
            s.kill()
        for s in c.servers:
            s.start()
        c.wait_ready()
        equal(c.call("PUT", path, body, key=key).raw, first.raw, "the retry's answer after a restart of all")
        c.check_all()


@test
def copies_taken_at_one_moment_hold_all_that_was_acknowledged():
    """What a machine would find after its power failed, but for what the disk had not been given yet."""
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for _ in range(3):
                w.wait_acknowledged(70)
                for s in c.servers:
                    s.pause()
                for s in c.servers:
                    shutil.copytree(s.directory, c.base / f"copy-{s.id}")
                for s in c.servers:
                    s.kill()
                    shutil.rmtree(s.directory)
                    (c.base / f"copy-{s.id}").rename(s.directory)
                for s in c.servers:
                    s.start()
                c.wait_ready()
            finish(c, w)
        c.check_all()


def clocked(c, offsets):
    """Servers whose wall clock is read from a file each; the monotonic one stays what it is."""
    if not FAKETIME.exists():
        raise Skip("needs libfaketime")
    for s, offset in zip(c.servers, offsets):
        s.clock = c.base / f"clock-{s.id}"
        s.clock.write_text(offset + "\n")
        s.environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(s.clock), "FAKETIME_NO_CACHE": "1",
                         "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return c


JUMPS = ("-1d", "+1d", "@1970-01-02 00:00:00", "@2100-01-01 00:00:00", "+0")


@test
def wall_clocks_that_jump_change_nothing():
    """Not even what is kept for a day: a server that has followed another does not believe a clock that is far ahead."""
    c = Cluster(3, flags=FAST + SNAPSHOTS)
    with clocked(c, ("+0", "+0", "+0")):
        prepare(c)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            for jump in JUMPS:
                for s in c.servers:
                    s.clock.write_text(jump + "\n")
                    w.wait_acknowledged(5)
            for jump in JUMPS:  # one alone, that then leads
                s = c.followers()[0]
                s.clock.write_text(jump + "\n")
                c.call("POST", "/v1/cluster/transfer-leadership", {"to": s.id})
                w.wait_acknowledged(10)
            finish(c, w, f)
            assert any("clock.ahead" in s.log.read_text() for s in c.servers), "no leader's clock was ahead"
        c.check_all()


@test
def servers_start_with_any_wall_clock():
    c = Cluster(3, flags=FAST + SNAPSHOTS)
    with clocked(c, ("@1970-01-02 00:00:00", "@2100-01-01 00:00:00", "-1d")):
        prepare(c)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            for jump in ("+1d", "@1970-01-02 00:00:00", "@2100-01-01 00:00:00"):
                w.wait_acknowledged(40)
                for s in c.servers:
                    s.kill()
                    s.clock.write_text(jump + "\n")
                    s.start()
                c.wait_ready()
            finish(c, w, f, kept=False)  # all clocks agreed that a day had passed
        c.check_all()


def log_time(s):
    """In milliseconds: the oldest time whose commands are kept, which is a fixed time before it."""
    shown = s.get(f"/v1/commands/{uuid.uuid4().hex}").expect(404)["retained_since"]
    return datetime.datetime.fromisoformat(shown.replace("Z", "+00:00"))


@test
def log_time_never_goes_back():
    c = Cluster(1, flags=FAST)
    with clocked(c, ("+0",)):
        prepare(c)
        s, times = c.servers[0], []
        for number, jump in enumerate(("+0", "-1d", "+1d", "@1970-01-02 00:00:00", "+0")):
            s.kill()
            s.clock.write_text(jump + "\n")
            s.start()
            c.wait_ready()
            c.call("PUT", f"/v1/nodes/m{number}", {"address": f"h{number}:1", "lease": "static"}).expect(200)
            times.append(log_time(s))
        equal(times, sorted(times), "log times in their order")
        assert times[2] - times[1] > datetime.timedelta(hours=23), f"a sole server takes its own clock: {times}"
        c.check_all()


if __name__ == "__main__":
    main()
