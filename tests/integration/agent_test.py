#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libcadastre's agent against a scripted directory: leases, orders that are late or of another session, what is on the
disk when, reports that get lost, and processes that die."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from client import Driver, Mock, problem, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from cluster import BUILD, Cluster  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

NODE = "/v1/nodes/n1"
LEASE_MS = 3000


class Plane:
    """The directory's side of one node: sessions, heartbeats and the orders that a test puts up."""

    def __init__(self):
        self.mock = Mock()
        self.revision, self.session, self.lease_ms = 100, 0, LEASE_MS
        self.tasks, self.moved = [], threading.Condition()
        self.alive, self.registrations, self.released = True, [], []
        self.first_orders = lambda session: []  # that a session begins with
        self.reports, self.answers = [], {}
        self.mock.rules += [("PUT", NODE, self.put), ("POST", NODE + "/heartbeat", self.heartbeat),
                            ("GET", NODE + "/tasks", self.get_tasks), ("DELETE", NODE + "/session", self.release),
                            ("POST", "/v1/operations/", self.report), ("POST", NODE + "/duties/", self.duty),
                            ("POST", NODE + "/load", lambda r: (202, {}, {})),
                            ("POST", "/v1/keyspaces/ks/partitions/", lambda r: (200, {}, {}))]
        self.directory = tempfile.mkdtemp(prefix="cadastre-agent-")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.mock.__exit__(*exc)
        shutil.rmtree(self.directory, ignore_errors=True)

    def put(self, request):
        if not self.alive:
            return None
        key = request.headers["Idempotency-Key"]
        for old_key, answer in self.registrations:
            if old_key == key:
                return 200, {"Idempotency-Replayed": "true"}, answer
        with self.moved:
            self.revision += 1
            self.session = self.revision
            self.tasks = self.first_orders(self.session)
            answer = {"session": self.session, "lease_ms": self.lease_ms, "revision": self.revision, "partitions": []}
            self.registrations.append((key, answer))
            self.moved.notify_all()
        return 200, {}, answer

    def ended(self):
        return problem(409, "session_ended")

    def heartbeat(self, request):
        if not self.alive:
            return None
        if request.body["session"] != self.session:
            return self.ended()
        return 200, {}, {"lease_ms": self.lease_ms, "revision": self.revision}

    def get_tasks(self, request):
        if not self.alive:
            return None
        if int(request.query["session"]) != self.session:
            return self.ended()
        since = int(request.query["since"])
        with self.moved:
            self.moved.wait_for(lambda: any(t["revision"] > since for t in self.tasks) or int(request.query["session"]) != self.session,
                                int(request.query["wait_ms"]) / 1000)
            if int(request.query["session"]) != self.session:
                return self.ended()
            return 200, {}, {"revision": self.revision, "tasks": [t for t in self.tasks if t["revision"] > since]}

    def release(self, request):
        self.released.append(int(request.query["session"]))
        self.session = 0
        return 200, {}, {}

    def report(self, request):
        self.reports.append(request.body)
        answer = self.answers.pop(0) if self.answers else (200, {}, {"revision": self.revision})
        return answer

    def duty(self, request):
        self.reports.append({**request.body, "duty": request.path.rsplit("/", 1)[1]})
        return 200, {}, {}

    def order(self, kind, partition=1, **more):
        """Puts up an order, in place of those of its kind for the partition."""
        with self.moved:
            self.revision += 1
            revision = more.pop("revision", self.revision)
            task = {"id": f"t{revision}", "kind": kind, "keyspace": "ks", "partition": partition, "revision": revision,
                    "session": self.session, "authority": "exclusive", "role": "primary", **more}
            self.tasks = [t for t in self.tasks if (t["kind"], t["partition"]) != (kind, partition)] + [task]
            self.moved.notify_all()
            return task

    def grant(self, partition=1, **more):
        return self.order("grant", partition, **{"epoch": self.revision + 1, "must_have": [], "fenced": False, **more})

    def agent(self, d, heartbeat_ms=200, timeout_ms=1000, start=True):
        equal(d("agent", self.mock.url, "n1", "127.0.0.1:9", self.directory, heartbeat_ms, timeout_ms)["status"], "ok")
        if start:
            d("start")
            wait_for(lambda: d("state")["session"], "a session")
        return d


def tasks_of(d, what=None):
    found = [json.loads(e[5:]) for e in d.events_of("task")]
    return [t for t in found if what is None or t["what"] == what]


def await_task(d, what, **want):
    def find():
        return next((t for t in tasks_of(d, what) if all(t[k] == v for k, v in want.items())), None)

    return wait_for(find, f"{what} {want}")


def may(d, epoch, partition=1):
    return d("may", "ks", partition, epoch)["may"]


@test
def a_grant_is_on_the_disk_before_it_counts():
    with Plane() as p, Driver() as d:
        p.agent(d)
        equal(p.mock.asked("PUT", NODE)[0].body, {
            "address": "127.0.0.1:9", "labels": {"zone": "z1"}, "capacity": {"bytes": 1000000}, "copies": []})
        g = p.grant(start="a", end="m", must_have=[{"node": "n2", "session": 7, "address": "n2:1"}], copy=5)
        seen = await_task(d, "grant")
        equal((seen["epoch"], seen["disk"], seen["may"], seen["must"]), (g["epoch"], g["epoch"], False, ["n2:7"]))
        equal((seen["start"], seen["end"], seen["open"], seen["copy"]), ("a", "m", False, 5))
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        equal([may(d, g["epoch"] - 1), may(d, g["epoch"] + 1), may(d, 0), may(d, g["epoch"], 2)], [False] * 4)
        equal(d("must", "ks", 1, g["epoch"]), {"status": "ok", "nodes": ["n2"]})
        equal(d("must", "ks", 1, g["epoch"] + 1)["status"], "stale")


@test
def the_must_have_set_changes_without_a_gap():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant()
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        n = p.grant(epoch=g["epoch"], must_have=[{"node": "n3", "session": 9, "address": "n3:1"}])
        await_task(d, "grant", revision=n["revision"], may=True)
        equal(d("must", "ks", 1, g["epoch"])["nodes"], ["n3"])
        equal(d("may", "ks", 1, g["epoch"]), {
            "may": True, "epoch": g["epoch"], "known": g["epoch"], "revision": n["revision"]})


@test
def a_grant_that_is_not_ready_is_offered_again():
    with Plane() as p, Driver() as d:
        p.agent(d)
        d("take", 0)
        g = p.grant()
        wait_for(lambda: len(tasks_of(d, "grant")) >= 3, "offers")
        equal(may(d, g["epoch"]), False)
        d("take", 1)
        wait_for(lambda: may(d, g["epoch"]), "the right to write")


@test
def late_orders_and_those_of_another_session_are_ignored():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant()
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        # Another session's grant, an older order, an epoch that has passed: none of them counts.
        p.grant(partition=2, session=p.session - 1)
        with p.moved:
            p.tasks.append({**g, "revision": g["revision"] - 1, "epoch": g["epoch"] - 1})
        p.order("revoke", revision=g["revision"] - 1)
        low = p.grant(epoch=g["epoch"] - 1)
        end = p.grant(partition=3)
        wait_for(lambda: may(d, end["epoch"], 3), "the last order")
        equal([t["partition"] for t in tasks_of(d)], [1, 3])
        equal(may(d, g["epoch"]), True)
        equal(may(d, low["epoch"]), False)
        equal(d("may", "ks", 2, 1)["epoch"], 0)


@test
def a_fence_ends_writing_before_anybody_hears_of_it():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant()
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        with p.moved:  # both of one revision, as the directory gives them
            p.revision += 1
            fence = {**g, "kind": "fence", "id": "f", "revision": p.revision, "operation": "op-1", "attempt": 1,
                     "stage": "FENCE", "fenced": True}
            p.tasks = [{**g, "revision": p.revision, "fenced": True}, fence]
            p.moved.notify_all()
        seen = await_task(d, "fence")
        equal((seen["may"], seen["operation"], seen["stage_name"]), (False, "op-1", "FENCE"))
        equal(may(d, g["epoch"]), False)
        # Lifted at a new epoch.
        lifted = p.grant()
        wait_for(lambda: may(d, lifted["epoch"]), "the right to write")
        equal(may(d, g["epoch"]), False)
        equal(len(tasks_of(d, "fence")), 1)
        # Moved off: another role, then nothing.
        p.grant(role="async")
        wait_for(lambda: not may(d, lifted["epoch"]), "the end of writing")
        p.order("revoke")
        await_task(d, "revoke")
        p.order("revoke", partition=77)  # never had it: nobody is told
        end = p.grant(partition=3)
        wait_for(lambda: may(d, end["epoch"], 3), "the last order")
        equal(len(tasks_of(d, "revoke")), 1)


@test
def a_lease_that_runs_out_stops_exclusive_partitions_only():
    with Plane() as p, Driver() as d:
        p.lease_ms = 1200
        p.agent(d, heartbeat_ms=100)
        g, h = p.grant(), p.grant(partition=2, authority="affinity")
        wait_for(lambda: may(d, g["epoch"]) and may(d, h["epoch"], 2), "the right to write")
        p.alive = False
        sent = p.mock.asked("POST", NODE + "/heartbeat")[-1].at
        while True:
            asked = time.monotonic()
            if not may(d, g["epoch"]):
                break
            assert asked - sent <= 1.2, "may write past the lease"
        equal(may(d, h["epoch"], 2), True)
        wait_for(lambda: any(e.startswith("session 3") for e in d.events_of("session")), "the event")
        p.alive = True
        wait_for(lambda: may(d, g["epoch"]), "the lease to be renewed")
        wait_for(lambda: any(e.startswith("session 4") for e in d.events_of("session")), "the event")


@test
def a_process_that_was_stopped_wakes_without_a_lease():
    with Plane() as p, Driver() as d:
        p.lease_ms = 900
        p.agent(d, heartbeat_ms=200)
        g = p.grant()
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        d.process.send_signal(signal.SIGSTOP)
        p.alive = False  # what it sends when it wakes gets no answer
        wait_for(lambda: time.monotonic() > p.mock.log[-1].at + 1.5, "time to pass")
        d.send("may", "ks", 1, g["epoch"])  # the first thing that it reads
        d.process.send_signal(signal.SIGCONT)
        equal(d.answer()["may"], False)


@test
def a_heartbeat_that_is_answered_late_counts_from_when_it_was_sent():
    with Plane() as p, Driver() as d:
        p.lease_ms = 1500
        slow = ("POST", NODE + "/heartbeat", lambda r: (time.sleep(0.45), p.heartbeat(r))[1])
        p.agent(d, heartbeat_ms=500)
        p.mock.rules.insert(0, slow)
        wait_for(lambda: len(p.mock.asked("POST", NODE + "/heartbeat")) >= 3, "heartbeats")
        until = time.monotonic() + 2
        while time.monotonic() < until:
            asked = time.monotonic()
            left = d("state")["lease_left_ms"]
            # The newest that can have been answered by now.
            sent = [r.at for r in p.mock.asked("POST", NODE + "/heartbeat") if time.monotonic() - r.at >= 0.44][-1]
            bound = 1500 - (asked - sent) * 1000
            assert left <= max(bound, 0) + 2, f"{left} ms left, at most {bound:.0f} are right"


@test
def an_ended_session_ends_writing_and_a_new_one_begins():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g, h = p.grant(), p.grant(partition=2, authority="affinity")
        wait_for(lambda: may(d, g["epoch"]) and may(d, h["epoch"], 2), "the right to write")
        first = p.session
        with p.moved:
            p.session = 0  # lapsed
            p.moved.notify_all()
        wait_for(lambda: d("state")["session"] > first, "a new session")
        equal([may(d, g["epoch"]), may(d, h["epoch"], 2)], [False, False])
        wait_for(lambda: [e.split()[1:] for e in d.events_of("session")][-2:] == [
            ["2", str(first)], ["1", str(p.session)]], "end and beginning to be told")
        # A process that lives proves nobody's death.
        equal("previous_session" in p.mock.asked("PUT", NODE)[-1].body, False)
        n = p.grant()
        wait_for(lambda: may(d, n["epoch"]), "the right to write")


@test
def a_restart_names_the_session_before_and_one_process_at_a_time():
    with Plane() as p:
        with Driver() as d:
            p.agent(d)
            first = p.session
            g = p.grant()
            wait_for(lambda: may(d, g["epoch"]), "the right to write")
            equal(d("set-copy", "ks", 1, 17)["status"], "ok")
            with Driver() as other:
                equal(other("agent", p.mock.url, "n1", "x:1", p.directory, 200, 1000)["status"], "locked")
            d.process.kill()
            d.process.wait()
            d.process.returncode = 0
        with Driver() as d:
            p.agent(d)
            body = p.mock.asked("PUT", NODE)[-1].body
            equal((body["previous_session"], body["copies"]), (first, [{"keyspace": "ks", "partition": 1, "copy": 17}]))
            equal(d("may", "ks", 1, g["epoch"]), {"may": False, "epoch": 0, "known": g["epoch"], "revision": 0})
            equal(d("copy", "ks", 1)["copy"], 17)
            # An epoch that was acted on before the restart is the least that is accepted after it.
            p.grant(epoch=g["epoch"] - 1)
            end = p.grant(partition=3)
            wait_for(lambda: may(d, end["epoch"], 3), "the last order")
            equal([t["partition"] for t in tasks_of(d, "grant")], [3])


@test
def a_lost_registration_is_sent_again_and_counts_from_the_first_time():
    with Plane() as p, Driver() as d:
        lost = []

        def lose(request):
            if len(lost) < 2:
                lost.append(request)
                p.put(request)
                return None
            return p.put(request)

        p.mock.rules.insert(0, ("PUT", NODE, lose))
        p.agent(d)
        puts = p.mock.asked("PUT", NODE)
        equal(len({r.headers["Idempotency-Key"] for r in puts}), 1)
        equal(len(p.registrations), 1)


@test
def damaged_state_stops_everything():
    with Plane() as p:
        with Driver() as d:
            p.agent(d)
            d("stop", 2000)
        path = os.path.join(p.directory, "cadastre-agent.state")
        with open(path, "rb") as f:
            good = f.read()
        for bad in (b"", good[:-1], good.replace(b"session 1", b"session 2"), good[:-20], b"x" + good):
            with open(path, "wb") as f:
                f.write(bad)
            with Driver() as d:
                equal(d("agent", p.mock.url, "n1", "x:1", p.directory, 200, 1000)["status"], "io")
        with open(path, "wb") as f:
            f.write(good)
        with Driver() as d:
            equal(d("agent", p.mock.url, "n2", "x:1", p.directory, 200, 1000)["status"], "io")  # another node's
            equal(d("agent", p.mock.url, "n1", "x:1", p.directory, 200, 1000)["status"], "ok")


@test
def stopping_releases_the_session():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant()
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        session = p.session
        equal(d("stop", 5000)["status"], "ok")
        equal(p.released, [session])
        equal(may(d, g["epoch"]), False)
        asked = len(p.mock.log)
        equal(d("free")["status"], "ok")
        equal(len(p.mock.log), asked)


@test
def reports_keep_their_number_until_they_are_answered():
    with Plane() as p, Driver() as d:
        p.agent(d)
        p.order("stage", operation=42, attempt=3, stage="COPY", role="destination", copy=9, epoch=50,
                peer={"node": "n2", "address": "n2:1"})
        t = await_task(d, "stage")
        equal((t["operation"], t["attempt"], t["stage_name"], t["copy"], t["peer"], t["source"]),
              ("42", 3, "COPY", 9, "n2 n2:1", False))
        p.answers = [None, problem(503, "outcome_unknown"), (200, {}, {})]
        equal(d("report", t["n"], '{"chunk":4}', 20000)["status"], "ok")
        equal(len(p.reports), 3)
        equal({json.dumps(r, sort_keys=True) for r in p.reports}, {json.dumps(p.reports[0], sort_keys=True)})
        first = p.reports[0]
        equal({k: first[k] for k in ("node", "session", "attempt", "stage", "chunk")},
              {"node": "n1", "session": p.session, "attempt": 3, "stage": "COPY", "chunk": 4})
        equal(d("report", t["n"], '{"chunk":5}', 20000)["status"], "ok")
        assert p.reports[-1]["seq"] > first["seq"]
        p.answers = [problem(409, "stale_report")]
        equal(d("report", t["n"], '{"chunk":5}', 20000), {"status": "stale", "code": "stale_report"})
        p.answers = [problem(422, "invalid_settings")]
        equal(d("report", t["n"], '{"chunk":5}', 20000)["status"], "refused")
        equal(d("report", t["n"], "[1]", 20000)["status"], "invalid")
        p.answers = [None] * 50
        equal(d("report", t["n"], "{}", 700)["status"], "timeout")
        # A later process never uses a number again.
        last = max(r["seq"] for r in p.reports)
        d("stop", 2000)
        p.answers = []
        p.agent(d)
        p.order("stage", operation=42, attempt=3, stage="COPY", role="destination")
        again = await_task(d, "stage", session=p.session)
        equal(d("report", t["n"], "{}", 2000)["status"], "no_session")
        equal(d("report", again["n"], "{}", 2000)["status"], "ok")
        assert p.reports[-1]["seq"] > last


@test
def stages_are_handed_over_once():
    with Plane() as p, Driver() as d:
        p.agent(d)
        p.order("stage", operation="o", attempt=1, stage="PREPARE", role="destination")
        await_task(d, "stage", stage_name="PREPARE")
        p.order("stage", operation="o", attempt=1, stage="VALIDATE", role="destination", validate_at=5)
        await_task(d, "stage", stage_name="VALIDATE")
        p.order("stage", operation="o", attempt=1, stage="NEWER_THAN_THIS", role="source")
        t = await_task(d, "stage", stage_name="NEWER_THAN_THIS")
        equal((t["source"], t["stage"]), (True, 12))
        equal(len(tasks_of(d, "stage")), 3)


@test
def what_is_revoked_ends_before_its_parts_begin():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant(partition=5)
        wait_for(lambda: may(d, g["epoch"], 5), "the right to write")
        with p.moved:  # both of one revision, as a split is
            p.revision += 1
            part = {**g, "partition": 6, "revision": p.revision, "epoch": p.revision, "parents": [5],
                    "must_have": [{"node": "n2", "session": 4, "role": "joining", "address": "a:1"}]}
            p.tasks = [part, {**g, "kind": "revoke", "revision": p.revision}]
            p.moved.notify_all()
        seen = await_task(d, "grant", partition=6)
        equal((seen["parents"], seen["roles"]), ([5], 4))
        equal([(t["what"], t["partition"]) for t in tasks_of(d)][-2:], [("revoke", 5), ("grant", 6)])


@test
def a_cleanup_spares_the_copy_in_use():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant(copy=5)
        wait_for(lambda: may(d, g["epoch"]), "the right to write")
        d("set-copy", "ks", 1, 5)
        p.order("cleanup", duty=9, copy=5)
        wait_for(lambda: d.events_of("agent.cleanup.refused"), "the refusal")
        p.order("cleanup", partition=2, duty=10, copy=6)
        t = await_task(d, "cleanup")
        equal(t["copy"], 6)
        d("set-copy", "ks", 2, 6)
        equal(d("cleaned", t["n"], 1234, 5000)["status"], "ok")
        equal(p.reports[-1], {"session": p.session, "copy": 6, "deleted_bytes": 1234, "duty": "10"})
        equal(d("copy", "ks", 2)["copy"], 0)
        equal(len(tasks_of(d, "cleanup")), 1)


@test
def what_a_new_session_does_not_hold_is_revoked_before_its_cleanup():
    with Plane() as p, Driver() as d:
        p.agent(d)
        g = p.grant(copy=5)
        kept = p.grant(partition=2, copy=6)
        wait_for(lambda: may(d, g["epoch"]) and may(d, kept["epoch"], 2), "the right to write")

        def orders(session):
            of = {"keyspace": "ks", "revision": session, "session": session, "authority": "exclusive"}
            return [{**of, "id": "c", "kind": "cleanup", "partition": 1, "duty": 9, "copy": 5},
                    {**kept, **of, "id": "g", "epoch": session}]
        p.first_orders = orders
        p.session = 0  # and the heartbeat that follows hears of it
        await_task(d, "cleanup")
        wait_for(lambda: may(d, p.session, 2), "the right to write again")
        since = [(t["what"], t["partition"]) for t in tasks_of(d) if t["session"] == p.session]
        equal(since, [("grant", 2), ("revoke", 1), ("cleanup", 1)])


@test
def the_rest_of_what_a_node_says():
    with Plane() as p, Driver() as d:
        p.agent(d)
        equal(d("insync", "ks", 1, 50, "n2", 5000)["status"], "ok")
        equal(p.mock.asked("POST", "/v1/keyspaces/ks/partitions/1/insync")[0].body,
              {"session": p.session, "epoch": 50, "mod_revision": 0, "insync": ["n2"]})


@test
def load_is_reported_in_requests_of_a_bounded_size():
    with Plane() as p, Driver() as d:
        answers = [None]  # the first request gets none: it is sent again, with its number
        asked = lambda: p.mock.asked("POST", NODE + "/load")
        p.mock.rules.insert(0, ("POST", NODE + "/load", lambda r: answers.pop() if answers else (
            202, {}, {"counted": len(r.body["partitions"]) - 1})))
        p.agent(d, timeout_ms=30000)  # a slow machine is no lost answer
        equal(d("load", "ks", 1, 50, 3, 60000), {"status": "ok", "code": "", "counted": 2})
        first, again = asked()
        equal(first.body, again.body)
        equal(first.body["partitions"][2], {
            "keyspace": "ks", "partition": 3, "epoch": 50, "reads": 600, "writes": 60, "read_bytes": 0, "write_bytes": 0,
            "cpu_ms": 0, "size_bytes": 1000, "queue_ms_p99": 2, "items": 5,
            "keys": [{"key": 'a"b', "weight": 9}, {"key": "c", "end": "d", "weight": 1}],
            "by": [{"operation": "get", "outcome": "ok", "tenant": "acme", "requests": 600},
                   {"operation": "put", "outcome": "error", "requests": 60}]})
        equal({k: v for k, v in first.body.items() if k != "partitions"},
              {"session": p.session, "interval_ms": 60000, "seq": 1, "node": {"cpu": 1.5}})
        # More than a request holds.
        equal(d("load", "ks", 1, 50, 30000, 60000)["counted"], 30000 - (len(asked()) - 2))
        sizes = [int(r.headers["Content-Length"]) for r in asked()]
        assert len(sizes) > 3 and max(sizes) < 8 << 20, sizes
        seqs = [r.body["seq"] for r in asked()[1:]]
        assert seqs == sorted(set(seqs)), seqs
        # The answer to the first try was lost, and the second one says so.
        answers[:] = [problem(409, "stale_report"), None]
        equal(d("load", "ks", 1, 50, 3, 60000), {"status": "ok", "code": "", "counted": 3})
        answers[:] = [problem(400, "invalid_request")]
        equal(d("load", "ks", 1, 50, 3, 60000), {"status": "refused", "code": "invalid_request", "counted": 0})
        answers[:] = [problem(409, "session_ended")]
        equal(d("load", "ks", 1, 50, 3, 60000)["status"], "no_session")


@test
def nonsense_is_survived():
    with Plane() as p, Driver() as d:
        p.agent(d)
        bad = [(200, {}, b"{"), (200, {}, {"tasks": []}), (200, {}, {"revision": 1, "tasks": []}),
               (200, {}, {"revision": 10**6, "tasks": [{"kind": "dance"}, {"kind": "grant", "partition": -1}, 5, None]})]
        answers = list(bad)
        rule = ("GET", NODE + "/tasks", lambda r: answers.pop(0) if answers else p.get_tasks(r))
        p.mock.rules.insert(0, rule)
        wait_for(lambda: not answers, "all of it to be read")
        p.revision = 2 * 10**6
        g = p.grant()
        wait_for(lambda: may(d, g["epoch"]), "the right to write")


# --- real servers ---


class Node:
    """A driver as an agent of a real cluster."""

    def __init__(self, c, name):
        self.c, self.name = c, name
        self.directory = c.base / f"node-{name}"
        self.directory.mkdir(exist_ok=True)
        self.d = None

    def start(self):
        self.d = Driver()
        urls = ",".join(s.url for s in self.c.servers)
        equal(self.d("agent", urls, self.name, f"{self.name}:1", self.directory, 200, 2000)["status"], "ok")
        self.d("start")
        wait_for(lambda: self.d("state")["session"], f"a session of {self.name}")
        return self

    def granted(self):
        """The newest grant of each partition that this node may write, as (keyspace, partition, epoch)."""
        newest = {(t["keyspace"], t["partition"]): t["epoch"] for t in tasks_of(self.d, "grant") if t["role"] == 1}
        return [(k, p, e) for (k, p), e in newest.items() if self.d("may", k, p, e)["may"]]

    def kill(self):
        self.d.process.kill()
        self.d.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        if self.d.process.poll() is None:
            self.d.__exit__(kind, value, trace)


def keyspace(c, name, splits=("m",), **more):
    c.call("POST", "/v1/keyspaces", {"name": name, "scheme": "range", "splits": list(splits), **more}).expect(201)


def routes_of(c, name):
    found = c.call("GET", f"/v1/keyspaces/{name}/map?consistency=linearizable").expect(200)["routes"]
    return [(name, r["partition"], r["epoch"]) for r in found if r["primary"]]


@test
def a_real_cluster_grants_and_a_leader_may_die():
    with Cluster(3) as c, Node(c, "n1") as n:
        keyspace(c, "ks", ("d", "m", "t"))
        wait_for(lambda: sorted(n.granted()) == sorted(routes_of(c, "ks")) and len(n.granted()) == 4, "all grants")
        for _ in range(2):
            leader = c.leader()
            leader.kill()
            session = n.d("state")["session"]
            wait_for(lambda: len(n.granted()) == 4 and n.d("state")["lease_left_ms"] > 5000, "a renewed lease")
            equal(n.d("state")["session"], session)
            leader.start()
            c.wait_ready()
        # Split: the old id is revoked, the new ones are granted, all with new epochs.
        old = n.granted()[0]
        key = next(r.get("start", "") for r in c.call("GET", "/v1/keyspaces/ks/map").expect(200)["routes"]
                   if r["partition"] == old[1]) + "b"
        c.call("POST", f"/v1/keyspaces/ks/partitions/{old[1]}/split", {"at": [key]})
        wait_for(lambda: sorted(n.granted()) == sorted(routes_of(c, "ks")), "the grants of the new map")
        equal(n.d("stop", 10000)["status"], "ok")
        wait_for(lambda: not routes_of(c, "ks"), "the partitions to be without a primary")


@test
def a_restarted_node_is_granted_anew_at_once():
    with Cluster(1) as c, Node(c, "n1") as n:
        keyspace(c, "ks")
        wait_for(lambda: len(n.granted()) == 2, "grants")
        before = dict((p, e) for _, p, e in n.granted())
        n.kill()
        n.start()
        wait_for(lambda: len(n.granted()) == 2, "grants to the new session")
        # In the very command that registered it, not when the old lease had passed.
        session = n.d("state")["session"]
        equal({e for _, _, e in n.granted()}, {session})
        assert session > max(before.values())
        equal(sorted(n.granted()), sorted(routes_of(c, "ks")))


@test
def affinity_goes_on_without_the_directory():
    with Cluster(1) as c, Node(c, "n1") as n:
        keyspace(c, "strict", ())
        keyspace(c, "loose", (), authority="affinity")
        wait_for(lambda: len(n.granted()) == 2, "grants")
        c.servers[0].kill()
        wait_for(lambda: [k for k, _, _ in n.granted()] == ["loose"], "the lease to run out")
        c.servers[0].start()
        wait_for(lambda: len(n.granted()) == 2, "writing everywhere again")


@test
def the_examples_do_what_they_say():
    with Cluster(1) as c:
        folder = c.base / "example"
        folder.mkdir()
        url = c.servers[0].url
        agent = subprocess.Popen([str(BUILD / "examples/agent"), url, "n1", "n1:1", str(folder)], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            equal(agent.stdout.readline().split(": ")[1], "started\n")
            keyspace(c, "ks", ())
            granted = agent.stdout.readline()
            _, partition, epoch = routes_of(c, "ks")[0]
            equal(granted.split(";")[0].split(",")[0], f"ks/{partition}: granted at epoch {epoch}")
            answers = []

            def writes():
                agent.stdin.write(f"ks {partition} {epoch}\n")
                agent.stdin.flush()
                answers.append(agent.stdout.readline())
                return answers[-1] == "yes\n"

            wait_for(writes, "the right to write")
            router = subprocess.run([str(BUILD / "examples/router"), url, "ks"], input="k\n", text=True,
                                    capture_output=True, timeout=60, check=True)
            assert router.stdout.startswith(f"k: partition {partition} at epoch {epoch} on n1 (n1:1), "), router.stdout
            agent.stdin.close()
            assert agent.stdout.readline().startswith("released; 1 grants, "), "not released"
            equal(agent.wait(timeout=60), 0)
        finally:
            agent.kill()
            agent.wait()


if __name__ == "__main__":
    main()
