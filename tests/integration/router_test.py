#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libcadastre's router: against servers that answer late, wrongly, in part or not at all, and against a real cluster
whose servers are killed while the map changes."""
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from client import Directory, Driver, Mock, problem, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from cluster import Cluster  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

KS = "/v1/keyspaces/ks"


def ready(d):
    equal(d("ready", 20000)["status"], "ok", "ready")


def route_is(d, key, **want):
    got = d("route", key)
    return all(got.get(name) == value for name, value in want.items())


def await_route(d, key, **want):
    wait_for(lambda: route_is(d, key, **want), f"{key} to be {want}; it is {d('route', key)}")


@test
def follows_changes():
    with Mock() as m, Driver() as d:
        x = Directory(splits=("d", "m", "t"))
        x.serve(m)
        ready(d.router([m.url]))
        equal(d("route", "e")["partition"], x.routes[1]["partition"])
        equal(d("replicas", "e")["replicas"], [{"role": 1, "node": "n1", "address": "n1:1"}])
        left, right = x.split("f")
        await_route(d, "e", partition=left["partition"], epoch=left["epoch"])
        equal(d("route", "g")["partition"], right["partition"])
        x.move("z", "n2")
        await_route(d, "z", node="n2", address="n2:1")
        equal(d("each"), {"count": 5, "holes": 0, "epochs": sum(r["epoch"] for r in x.routes)})
        equal(d("stats")["maps"], 1)


@test
def a_thousand_splits_missed_cost_one_delta():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        ready(d.router([m.url]))
        wait_for(lambda: m.asked("GET", KS + "/changes"), "the first poll")
        cut = ("GET", KS + "/changes", lambda request: None)
        m.rules.insert(0, cut)
        x.split("p0000")  # ends the poll under way
        await_route(d, "p0000", epoch=x.revision)
        wait_for(lambda: d("stats")["failures"] > 1, "the cut to be noticed")
        before = d("stats")
        for i in range(1, 1000):
            x.split(f"p{i:04}")
        m.rules.remove(cut)
        await_route(d, "p0999", epoch=x.revision)
        after = d("stats")
        equal(after["deltas"] - before["deltas"], 1, "deltas")
        equal((after["maps"], after["changes"] - before["changes"]), (1, 999))
        equal(d("each")["holes"], 0)


@test
def errors_are_not_absence():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        ready(d.router([m.url], max_age_ms=600))
        good = d("route", "a")
        for answer in (lambda r: None, lambda r: problem(500, "internal"), lambda r: problem(404, "not_found"),
                       lambda r: (200, {}, b"{"), lambda r: (200, {}, {"revision": 1}), lambda r: problem(401, "unauthorized"),
                       lambda r: (200, x.headers(), {"from": 0, "revision": 99, "changes": [
                           {"revision": 99, "kind": "move", "removed": [], "routes": [{"partition": 1}]}]})):
            bad = ("GET", "/", answer)
            m.rules.insert(0, bad)
            wait_for(lambda: d("route", "a")["status"] == "stale", "staleness to be said")
            got = d("route", "a")
            equal((got["partition"], got["epoch"]), (good["partition"], good["epoch"]), "the last good route")
            m.rules.remove(bad)
            wait_for(lambda: d("route", "a")["status"] == "ok", "the router to recover")


@test
def compacted_means_a_new_map():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        ready(d.router([m.url]))
        wait_for(lambda: m.asked("GET", KS + "/changes"), "the first poll")
        x.compacted = 10**6
        x.move("a", "n7")  # this one arrives; the next poll is too late
        await_route(d, "a", node="n7")
        wait_for(lambda: d("stats")["maps"] >= 2, "a second map")
        x.compacted = 0
        x.move("a", "n8")
        await_route(d, "a", node="n8")
        equal(d("each")["holes"], 0)


@test
def a_herd_is_one_request():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        m.rules.insert(0, ("GET", KS + "/changes", lambda r: (time.sleep(1), (200, x.headers(), {
            "from": int(r.query["since"]), "revision": int(r.query["since"]), "changes": []}))[1]))
        slow = lambda r: (time.sleep(0.3), x.post_routes(r))[1]
        m.rules.insert(0, ("POST", KS + "/routes", slow))
        ready(d.router([m.url]))
        used = d("route", "a")["epoch"]
        moved = x.move("a", "n2")
        equal(d("herd", 32, used, moved["epoch"], 10000, "a"), {"ok": 32, "of": 32})
        equal(d("route", "a")["node"], "n2")
        equal(len(m.asked("POST", KS + "/routes")), 1, "requests")
        # Nobody asks again for what is known to be newer.
        equal(d("stale", used, moved["epoch"], 1000, "a")["status"], "ok")
        equal(len(m.asked("POST", KS + "/routes")), 1, "requests")
        # The same complaint again and again is one request each 50 ms at the most.
        start = time.monotonic()
        for _ in range(5):
            equal(d("stale", moved["epoch"], 0, 10000, "a")["status"], "ok")
        assert time.monotonic() - start >= 4 * 0.3, "they were not one after another"


@test
def a_server_that_is_behind_is_not_listened_to():
    with Mock() as behind, Mock() as ahead, Driver() as d:
        old, new = Directory(), Directory()
        old.serve(behind)
        ready(d.router([behind.url], timeout_ms=5000))
        moved = new.move("a", "n2")
        d2 = Driver()
        with d2:
            old.serve(behind), new.serve(ahead)
            new.revision = 10  # both start from the same map
            x = d2.router([behind.url, ahead.url], timeout_ms=5000)
            ready(x)
            new.revision = moved["epoch"]
            equal(d2("stale", 10, moved["epoch"], 20000, "a")["status"], "ok")
            equal(d2("route", "a")["node"], "n2")
        equal(d("stale", 10, moved["epoch"], 300, "a")["status"], "timeout")
        got = d("stale", 10, moved["epoch"], 20000, "a")["status"]
        assert got in ("unavailable", "timeout"), got
        equal(d("route", "a")["node"], "n1")


@test
def an_older_answer_never_replaces_a_newer_route():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        hold = threading.Event()
        m.rules.insert(0, ("GET", KS + "/changes", lambda r: (hold.wait(10), x.get_changes(r))[1]))
        ready(d.router([m.url], timeout_ms=20000))
        d("watch", 2, "a,b,k,n,z")
        for _ in range(3):
            x.move("a", "n2")
        newest = x.move("a", "n3")
        equal(d("stale", 10, newest["epoch"], 10000, "a")["status"], "ok")
        equal(d("route", "a")["node"], "n3")
        hold.set()  # now the three older moves arrive
        wait_for(lambda: d("stats")["revision"] >= newest["epoch"], "the changes")
        equal(d("route", "a")["node"], "n3")
        assert d("stats")["refused"] >= 3, d("stats")
        seen = d("watched")
        assert seen["reads"] > 0 and seen["older"] == 0 and seen["misses"] == 0, seen


@test
def retry_after_is_heeded():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        ready(d.router([m.url]))
        busy = ("GET", KS + "/changes", lambda r: problem(503, "overloaded", headers={"Retry-After": "1"}))
        m.rules.insert(0, busy)
        x.move("a", "n2")
        wait_for(lambda: len([r for r in m.asked("GET", KS + "/changes")]) >= 4, "tries")
        times = [r.at for r in m.asked("GET", KS + "/changes")][-3:]
        for a, b in zip(times, times[1:]):
            assert b - a >= 0.99, f"asked again after {b - a:.3f} s"
        m.rules.remove(busy)
        x.move("a", "n3")
        await_route(d, "a", node="n3")


@test
def dead_servers_are_not_hammered():
    with Mock() as m, Driver() as d:
        m.rules.append(("GET", "/", lambda r: None))
        d.router([m.url], timeout_ms=2000)
        equal(d("ready", 3000)["status"], "timeout")
        asked = len(m.asked("GET", "/"))
        assert 2 <= asked <= 20, f"{asked} requests in 3 s"


@test
def answers_at_once_are_not_asked_for_in_a_loop():
    with Mock() as m, Driver() as d:
        x = Directory()
        x.serve(m)
        m.rules.insert(0, ("GET", KS + "/changes", lambda r: (200, x.headers(), {
            "from": int(r.query["since"]), "revision": int(r.query["since"]), "changes": []})))
        ready(d.router([m.url]))
        equal(d("ready", 0)["status"], "ok")
        wait_for(lambda: len(m.asked("GET", KS + "/changes")) >= 2, "two polls")
        times = [r.at for r in m.asked("GET", KS + "/changes")]
        assert times[1] - times[0] > 1, times


@test
def a_map_that_is_cut_off_is_no_map():
    with Mock() as m, Driver() as d:
        x = Directory(splits=("d", "m"))
        x.serve(m)
        whole = x.get_map
        cut = ("GET", KS + "/map", lambda r: (200, {**x.headers(), "Content-Length": "100000"}, whole(r)[2][:-40]))
        m.rules.insert(0, cut)
        d.router([m.url])
        equal(d("ready", 1500)["status"], "timeout")
        equal(d("route", "a")["status"], "miss")
        m.rules.remove(cut)
        half = ("GET", KS + "/map", lambda r: (200, x.headers(), whole(r)[2][:-40]))  # well-framed, but half a line
        m.rules.insert(0, half)
        equal(d("ready", 1500)["status"], "timeout")
        m.rules.remove(half)
        ready(d)
        equal(d("each")["count"], 3)


@test
def fails_over_to_a_server_that_hears_its_leader():
    with Mock() as alone, Mock() as well, Driver() as d:
        x, y = Directory(), Directory()
        x.staleness_ms = 10**7
        x.serve(alone), y.serve(well)
        ready(d.router([alone.url, well.url]))
        moved = y.move("a", "n2")
        await_route(d, "a", node="n2", status="ok")
        equal(d("stats")["revision"] >= moved["epoch"], True)


@test
def no_such_keyspace_is_told_from_other_errors():
    with Mock() as m, Driver() as d:
        gone = ("GET", "/v1/keyspaces", lambda r: problem(404, "keyspace_not_found"))
        m.rules.append(gone)
        d.router([m.url])
        equal(d("ready", 10000), {"status": "not_found", "code": "keyspace_not_found"})
        equal(d("route", "a")["status"], "not_found")
        x = Directory()
        m.rules.remove(gone)
        x.serve(m)
        await_route(d, "a", partition=1)
        # Deleted, and made again in another way: nothing of the old map may be served.
        m.rules.insert(0, gone)
        x.revision += 1
        x.change("delete", [1, 2], [])
        wait_for(lambda: d("route", "a")["status"] == "not_found", "the keyspace to be gone")
        x.keyspace["scheme"] = "composite"
        m.rules.remove(gone)
        wait_for(lambda: d("route", "a")["status"] == "unsupported", "the new scheme")


@test
def denied_is_said_at_once():
    with Mock() as m, Driver() as d:
        m.rules.append(("GET", "/", lambda r: problem(403, "forbidden")))
        d.router([m.url])
        equal(d("ready", 10000), {"status": "denied", "code": "forbidden"})


@test
def credentials_go_to_members_only():
    with Mock() as m, Mock() as member, Mock() as stranger, Driver() as d:
        x = Directory()
        x.serve(member)
        x.serve(stranger)
        members = [m.url]
        m.rules += [("GET", "/v1/cluster", lambda r: (200, {}, {"servers": [{"api_url": u} for u in members]})),
                    ("GET", KS, lambda r: problem(307, "redirect", headers={"Location": stranger.url + r.path}))]
        d.router([m.url], token="secret")
        equal(d("ready", 1500)["status"], "timeout")
        equal(stranger.log, [])
        members.append(member.url)
        m.rules[1] = ("GET", KS, lambda r: problem(307, "redirect", headers={
            "Location": member.url + r.path + "?" + "&".join(f"{k}={v}" for k, v in r.query.items())}))
        ready(d)
        equal({r.headers.get("Authorization") for r in member.log}, {"Bearer secret"})
        equal(stranger.log, [])


@test
def lazy_knows_what_was_asked_for():
    with Mock() as m, Driver() as d:
        x = Directory(splits=[f"k{i:02}" for i in range(1, 50)])
        x.serve(m)
        ready(d.router([m.url], mode="lazy", entries=8))
        equal(m.asked("GET", KS + "/map"), [])
        equal(d("route", "k05x")["status"], "miss")
        equal(d("wait", 10000, "k05x")["status"], "ok")
        equal(d("route", "k05x")["status"], "ok")
        equal(d("route", "k06x")["status"], "miss")
        wait_for(lambda: m.asked("GET", KS + "/changes"), "polls")
        x.move("k05x", "n2")
        x.move("k06x", "n2")
        await_route(d, "k05x", node="n2")
        equal(d("route", "k06x")["status"], "miss")
        left, right = x.split("k05m")
        await_route(d, "k05x", partition=right["partition"])
        for i in range(10, 40):
            equal(d("wait", 10000, f"k{i}x")["status"], "ok")
        assert d("stats")["entries"] <= 8, d("stats")


@test
def lazy_validates_after_a_reset():
    with Mock() as m, Driver() as d:
        x = Directory(splits=[f"k{i:02}" for i in range(1, 50)])
        x.serve(m)
        ready(d.router([m.url], mode="lazy"))
        for i in (10, 20, 30):
            equal(d("wait", 10000, f"k{i}x")["status"], "ok")
        wait_for(lambda: m.asked("GET", KS + "/changes"), "polls")
        x.compacted = 10**6
        cut = ("GET", KS + "/changes", lambda r: problem(410, "compacted"))
        m.rules.insert(0, cut)
        x.move("k10x", "n2")  # ends the poll under way
        x.move("k20x", "n2")
        wait_for(lambda: m.asked("POST", KS + "/validate"), "validation")
        m.rules.remove(cut)
        x.compacted = 0
        await_route(d, "k20x", node="n2", status="ok")
        equal(d("route", "k10x")["node"], "n2")
        equal(d("route", "k30x")["node"], "n1")
        equal(m.asked("GET", KS + "/map"), [])
        x.move("k30x", "n3")
        await_route(d, "k30x", node="n3")


# --- real servers ---


def prepare(c, name="ks", **keyspace):
    for n in ("n1", "n2", "n3"):
        c.call("PUT", f"/v1/nodes/{n}", {"address": f"127.0.0.1:9{n[1]}00", "lease": "static"}).expect(200, 201)
    c.call("POST", "/v1/keyspaces", {"name": name, "scheme": "range", **keyspace}).expect(201)


def split(c, key, name="ks"):
    route = c.call("GET", f"/v1/keyspaces/{name}/route?key={key}&consistency=linearizable").expect(200)
    return c.call("POST", f"/v1/keyspaces/{name}/partitions/{route['partition']}/split", {"at": [key]}).expect(200)


def converged(c, d, name="ks"):
    whole = c.call("GET", f"/v1/keyspaces/{name}/map?consistency=linearizable").expect(200)["routes"]
    want = {"count": len(whole), "holes": 0, "epochs": sum(r["epoch"] for r in whole)}
    wait_for(lambda: d("each") == want, f"the map to be {want}, it is {d('each')}")
    return whole


@test
def follows_a_cluster_whose_leaders_die():
    with Cluster(3) as c, Driver() as d:
        prepare(c, splits=["d", "m", "t"])
        ready(d.router([s.url for s in c.servers]))
        d("watch", 2, ",".join("abdehkmnoprtuvz"))
        for turn in range(3):
            for i in range(10):
                split(c, f"k{turn}{i}")
            converged(c, d)
            leader = c.leader()
            leader.kill()
            for i in range(5):
                split(c, f"x{turn}{i}")
            converged(c, d)
            leader.start()
            c.wait_ready()
        seen = d("watched")
        assert seen["reads"] > 0 and seen["older"] == 0 and seen["misses"] == 0, seen
        equal(d("stats")["maps"], 1, "whole maps")


@test
def all_servers_restart_and_the_map_stays():
    with Cluster(3) as c, Driver() as d:
        prepare(c, splits=["m"])
        ready(d.router([s.url for s in c.servers]))
        d("watch", 1, "a,z")
        for s in c.servers:
            s.kill()
        wait_for(lambda: d("stats")["failures"] > 2, "failures")
        equal(d("route", "a")["node"] != "", True)
        for s in c.servers:
            s.start()
        c.wait_ready()
        split(c, "c")
        converged(c, d)
        seen = d("watched")
        assert seen["older"] == 0 and seen["misses"] == 0, seen


@test
def hash_keyspaces_agree_with_the_server():
    with Cluster(1) as c, Driver() as d:
        prepare(c, name="h", scheme="hash", partitions=64, partition_key={"delimiter": "/", "fields": 1})
        prepare(c, name="x", key_encoding="hex", splits=["20", "6b", "80ff"])
        ready(d.router([c.servers[0].url], keyspace="h"))
        for key in [f"user-{i}/{j}" for i in range(40) for j in range(2)] + ["", "a", "a/b/c", "/x"]:
            want = c.call("GET", f"/v1/keyspaces/h/route?key={key}").expect(200)
            equal(d("route", key)["partition"], want["partition"], key)
        converged(c, d, "h")
        ready(d.router([c.servers[0].url], keyspace="x"))
        for key in ("a", "k", "zz", " "[:0]):
            want = c.call("GET", f"/v1/keyspaces/x/route?key={key.encode().hex()}").expect(200)
            equal(d("route", key)["partition"], want["partition"], key)
        # Lazy, with keys that have to be written in hex and hashed.
        ready(d.router([c.servers[0].url], keyspace="h", mode="lazy"))
        for i in range(20):
            want = c.call("GET", f"/v1/keyspaces/h/route?key=user-{i}").expect(200)
            equal(d("wait", 5000, f"user-{i}")["partition"], want["partition"])


if __name__ == "__main__":
    main()
