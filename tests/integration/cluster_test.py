#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three real servers under SIGKILL, SIGSTOP, restart in any order, loss of a disk, membership changes and snapshots,
while clients write. After every test all servers hold the same state hash and `cadastred check` finds nothing."""
import os
import pathlib
import random
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import BUILD, Cluster, Unreachable, once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from tap import Skip, equal, main, test  # noqa: E402  pylint: disable=wrong-import-position
from workload import Follower, Writers  # noqa: E402  pylint: disable=wrong-import-position

SNAPSHOTS = ("--snapshot-threshold", "64", "--snapshot-trailing", "64")
FAST = ("--election-timeout", "400ms", "--heartbeat-interval", "50ms")


def prepare(c):
    for n in ("n1", "n2", "n3"):
        c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"}).expect(200, 201)
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range", "splits": ["d", "m", "t"]}).expect(201)


def finish(c, writers, follower=None):
    writers.stop()
    done = writers.check()
    if follower is not None:
        follower.check()
        follower.stopping = True
    c.agree()
    return done


@test
def killed_leaders_lose_nothing():
    with Cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            for _ in range(3):
                w.wait_acknowledged(30)
                leader = c.leader()
                term = leader.cluster()["term"]
                leader.kill()
                wait_for(lambda: c.leader().cluster()["term"] > term, "a new term")
                w.wait_acknowledged(20)
                leader.start()
                c.wait_ready()
            finish(c, w, f)
        c.check_all()


@test
def all_killed_and_restarted_in_any_order():
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        rand = random.Random(3)
        with Writers(c, "ks") as w, Follower(c, "ks") as f:
            for _ in range(3):
                w.wait_acknowledged(60)
                for s in c.servers:
                    s.kill()
                for s in rand.sample(c.servers, 3):
                    s.start()
                c.wait_ready()
            w.wait_acknowledged(20)
            finish(c, w, f)
        c.check_all()


@test
def paused_leader_acknowledges_nothing_of_its_own():
    with Cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for _ in range(2):
                w.wait_acknowledged(20)
                leader = c.leader()
                leader.pause()
                others = [s for s in c.servers if s is not leader]
                wait_for(
                    lambda: any((s.cluster() or {}).get("leader") == s.id for s in others), "the others to elect a leader"
                )
                w.wait_acknowledged(20)
                leader.resume()
                c.wait_ready()
            finish(c, w)
        c.check_all()


@test
def paused_follower_catches_up():
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            follower = c.followers()[0]
            follower.pause()
            w.wait_acknowledged(100)
            follower.resume()
            finish(c, w)
        c.check_all()


@test
def linearizable_read_is_refused_without_a_quorum():
    with Cluster(3) as c:
        prepare(c)
        leader, others = c.leader(), c.followers()
        for s in others:
            s.pause()
        answer = once(leader.url, "GET", "/v1/keyspaces/ks/route?key=a&consistency=linearizable", timeout=20)
        assert answer.status in (307, 503), answer.raw
        assert once(leader.url, "GET", "/v1/keyspaces/ks/route?key=a").status == 200, "a local read goes on"
        for s in others:
            s.resume()
        c.wait_ready()
        c.call("GET", "/v1/keyspaces/ks/route?key=a&consistency=linearizable").expect(200)
        c.agree()


@test
def wiped_member_is_refused_and_joins_as_a_new_one():
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            w.wait_acknowledged(80)
            victim = c.followers()[0]
            victim.kill()
            shutil.rmtree(victim.directory)
            victim.start()
            equal(victim.wait_exit(), 3, "exit of a wiped member under its old id")
            assert "--join" in victim.tail(), victim.tail()
            c.call("DELETE", f"/v1/cluster/servers/{victim.id}").expect(200, 202, 204)
            c.servers.remove(victim)
            fresh = c.join(4)
            wait_for(
                lambda: any(
                    s["id"] == 4 and s["role"] == "voter" for s in (c.leader().cluster() or {}).get("servers", [])
                ),
                "server 4 to be a voter",
            )
            c.wait_ready()
            w.wait_acknowledged(20)
            finish(c, w)
            assert fresh.alive()
        c.check_all()


@test
def wiped_majority_founds_no_second_cluster():
    with Cluster(3) as c:
        prepare(c)
        revision = c.leader().cluster()["revision"]
        for s in c.servers:
            s.kill()
        for s in c.servers[:2]:
            shutil.rmtree(s.directory)
        for s in c.servers:
            s.start()
        for s in c.servers[:2]:
            equal(s.wait_exit(), 3, "exit of a wiped member")
        survivor = c.servers[2]
        wait_for(survivor.cluster, "the survivor to answer")
        # Until its log's tail is committed again it may show an older state, but never another cluster's.
        assert survivor.cluster()["revision"] <= revision
        assert once(survivor.url, "PUT", "/v1/nodes/n9", {"address": "x:1", "lease": "static"}).status in (307, 503)


@test
def observer_replicates_without_a_vote():
    with Cluster(3) as c:
        prepare(c)
        c.join(4, "--observer")
        wait_for(lambda: any(s["id"] == 4 and s["role"] == "observer" for s in c.leader().cluster()["servers"]), "it")
        c.wait_ready()
        c.agree()
        c.call("PATCH", "/v1/cluster/servers/4", {"role": "voter"}).expect(200, 202)
        wait_for(lambda: any(s["id"] == 4 and s["role"] == "voter" for s in c.leader().cluster()["servers"]), "its vote")
        c.call("DELETE", "/v1/cluster/servers/4").expect(200, 202, 204)
        wait_for(lambda: all(s["id"] != 4 for s in c.leader().cluster()["servers"]), "it to be gone")
        c.call("POST", f"/v1/keyspaces/ks/partitions/{route(c, 'a')['partition']}/split", {"at": ["b"]}).expect(200)


def route(c, key):
    return c.call("GET", f"/v1/keyspaces/ks/route?key={key}&consistency=linearizable").expect(200)


@test
def the_last_voter_stays():
    with Cluster(1) as c:
        c.join(2, "--observer")
        wait_for(lambda: any(s["id"] == 2 and s["role"] == "observer" for s in c.leader().cluster()["servers"]), "it")
        for method, body in (("DELETE", None), ("PATCH", {"role": "observer"})):
            refused = c.call(method, "/v1/cluster/servers/1", body)
            equal((refused.status, refused.json["code"]), (409, "quorum_at_risk"))
        c.call("PATCH", "/v1/cluster/servers/2", {"role": "voter"}).expect(200)
        wait_for(lambda: any(s["id"] == 2 and s["role"] == "voter" for s in c.leader().cluster()["servers"]), "its vote")
        c.call("DELETE", "/v1/cluster/servers/2").expect(200)
        wait_for(lambda: len(c.leader().cluster()["servers"]) == 1, "a cluster of one again")
        c.call("PUT", "/v1/nodes/n1", {"address": "127.0.0.1:9100", "lease": "static"}).expect(200, 201)


@test
def leadership_is_handed_over_on_request_and_on_sigterm():
    with Cluster(3) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            w.wait_acknowledged(10)
            old = c.leader()
            target = c.followers()[0]
            c.call("POST", "/v1/cluster/transfer-leadership", {"to": target.id}).expect(200, 202, 204)
            wait_for(lambda: c.leader() is target, "leadership at the one named")
            w.wait_acknowledged(10)
            equal(target.stop(), 0, "exit after SIGTERM")
            w.wait_acknowledged(10)
            target.start()
            c.wait_ready()
            finish(c, w)
            assert old.alive()
        c.check_all()


@test
def lagging_server_gets_a_snapshot():
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        follower = c.followers()[0]
        follower.kill()
        with Writers(c, "ks") as w:
            w.wait_acknowledged(300)
            follower.start()
            c.wait_ready()
            finish(c, w)
        c.check_all()


def mount(*arguments):
    if subprocess.run(["mount", *map(str, arguments)], check=False).returncode != 0:
        raise Skip("no mount here")


def fill(path):
    """Takes what is left of a file system, also what others free meanwhile."""
    with open(path / "filler", "wb", buffering=0) as filler:
        block = bytes(1 << 16)
        while len(block) > 0:
            try:
                filler.write(block)
            except OSError:
                block = block[: len(block) // 2]


def disk_full(part):
    """A full disk below one part of a follower's data: it ends with 3 and says what failed, the others go on, nothing is
    lost, and with room again it comes back by itself."""
    if os.geteuid() != 0:
        raise Skip("needs root to mount a tmpfs")
    with Cluster(3, flags=FAST + SNAPSHOTS) as c:
        prepare(c)
        victim = c.followers()[0]
        victim.kill()
        raft, mounted = victim.directory / "raft", []
        try:
            kept = c.base / "kept"
            shutil.copytree(raft if part == "raft" else victim.directory, kept)
            small = raft if part == "raft" else victim.directory
            mount("-t", "tmpfs", "-o", "size=120m", "tmpfs", small)
            mounted.append(small)
            for item in kept.iterdir():
                if item.name == "raft" and part == "database":
                    raft.mkdir()
                    mount("--bind", item, raft)
                    mounted.append(raft)
                elif item.is_dir():
                    shutil.copytree(item, small / item.name)
                else:
                    shutil.copy2(item, small / item.name)
            victim.start()
            c.wait_ready()
            with Writers(c, "ks") as w:
                w.wait_acknowledged(10)
                fill(small)
                write_much_until(c, lambda: not victim.alive())
                equal(victim.wait_exit(), 3, f"exit of the server with the full disk\n{victim.tail()}")
                assert "failed" in victim.tail(10) and str(victim.directory) in victim.tail(10), victim.tail()
                w.wait_acknowledged(30)
                (small / "filler").unlink()
                victim.start()
                c.wait_ready()
                finish(c, w)
            c.check_all()
        finally:
            for s in c.alive():
                s.kill()
            for path in reversed(mounted):
                subprocess.run(["umount", str(path)], check=False)


def write_much_until(c, condition):
    """Half a megabyte a command: log segments are allocated ahead, so a full disk is met only when they are used up."""
    for number in range(200):
        if condition():
            return
        splits = [f"{i:06d}" + "k" * 80 for i in range(6000)]
        c.call("POST", "/v1/keyspaces", {"name": f"big{number}", "scheme": "range", "splits": splits}).expect(201)
        c.call("DELETE", f"/v1/keyspaces/big{number}?confirm=big{number}").expect(200, 204)
    raise AssertionError("the full disk was never met")


@test
def full_disk_of_the_raft_log_ends_that_server_only():
    disk_full("raft")


@test
def full_disk_of_the_database_ends_that_server_only():
    disk_full("database")


@test
def second_process_on_a_directory_is_refused():
    with Cluster(1) as c:
        s = c.servers[0]
        run = subprocess.run(
            [str(BUILD / "cadastred"), "--data-dir", str(s.directory), "--api-addr", "127.0.0.1:0"],
            capture_output=True, text=True, timeout=30, check=False,
        )
        equal(run.returncode, 3, "exit of a second process")
        assert str(s.process.pid) in run.stderr, run.stderr
        equal(s.get("/livez").status, 200)


@test
def address_in_use_is_said():
    with Cluster(1) as c:
        s = c.servers[0]
        for flag, port in (("--api-addr", s.api_port), ("--raft-addr", s.raft_port)):
            run = subprocess.run(
                [str(BUILD / "cadastred"), "--data-dir", str(c.base / f"other{flag}"), "--api-addr", "127.0.0.1:0",
                 "--raft-addr", "127.0.0.1:0", flag, f"127.0.0.1:{port}"],
                capture_output=True, text=True, timeout=30, check=False,
            )
            equal(run.returncode, 5, f"exit when {flag} is taken: {run.stderr}")


@test
def single_server_keeps_its_state_over_kills():
    with Cluster(1, flags=SNAPSHOTS) as c:
        prepare(c)
        with Writers(c, "ks") as w:
            for _ in range(3):
                w.wait_acknowledged(80)
                c.servers[0].kill()
                c.servers[0].start()
                c.wait_ready()
            w.wait_acknowledged(10)
            finish(c, w)
        c.check_all()


@test
def large_keyspaces_come_in_chunks():
    with Cluster(1) as c:
        hashed = {"name": "h", "scheme": "hash", "partitions": 20000}
        c.call("POST", "/v1/keyspaces", hashed).expect(201)
        ranged = {"name": "r", "scheme": "range", "splits": [f"{i:06}" for i in range(1, 20000)]}
        c.call("POST", "/v1/keyspaces", ranged).expect(201)
        for name in ("h", "r"):
            assert c.leader().get(f"/v1/keyspaces/{name}").expect(200)["partitions"] == 20000
        c.check_all()


@test
def contradicting_flags_are_errors():
    with Cluster(1) as c:
        s = c.servers[0]
        s.kill()
        run = subprocess.run(
            [str(BUILD / "cadastred"), "--data-dir", str(s.directory), "--id", "7", "--api-addr", "127.0.0.1:0"],
            capture_output=True, text=True, timeout=30, check=False,
        )
        equal(run.returncode, 2, "exit with another id than the directory's")
        assert "7" in run.stderr and "1" in run.stderr, run.stderr


if __name__ == "__main__":
    try:
        main()
    except Unreachable as why:
        print(f"Bail out! {why}")
        raise
