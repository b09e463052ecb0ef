#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Partitions of examples/shardkv that are split and merged while writers are at work: the node makes the new ones' copies
of the old ones', on every replica, and a crash in between loses nothing."""
import contextlib
import pathlib
import random
import sqlite3
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness")]
from cluster import once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def served(t):
    wait_for(lambda: all(t.may_write(r) for r in t.routes()), "every partition to be served")


def split(t, partition, *at):
    return [r["partition"] for r in t.cluster.call("POST", f"/v1/keyspaces/ks/partitions/{partition}/split",
                                                   {"at": list(at)}).expect(200)["children"]]


def merge(t, partition, other):
    return t.cluster.call("POST", f"/v1/keyspaces/ks/partitions/{partition}/merge", {"with": other})


def files(node):
    return sorted(int(f.name.split(".")[1]) for f in node.directory.glob("ks.*.db"))


def put(t, route, key, value, mutation):
    node = t.nodes[route["primary"]["node"]]
    return once(node.url(), "PUT", f"/kv?keyspace=ks&partition={route['partition']}&epoch={route['epoch']}&key={key}"
                f"&id={mutation}", value.encode())


def get(t, route, key):
    node = t.nodes[route["primary"]["node"]]
    return once(node.url(), "GET", f"/kv?keyspace=ks&partition={route['partition']}&epoch={route['epoch']}&key={key}")


@test
def one_key_is_set_apart_and_moves():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        whole = t.routes()[0]
        for key in ("ke", "key", "key2"):
            put(t, whole, key, f"value of {key}", f"m-{key}").expect(200)
        split(t, whole["partition"], "key", "key\0")
        served(t)
        equal([get(t, r, k).expect(200)["value"] for r, k in zip(t.routes(), ("ke", "key", "key2"))],
              ["value of ke", "value of key", "value of key2"])
        for key in ("ke", "key2"):
            equal(get(t, t.routes()[1], key).status, 421)
        alone = t.routes()[1]
        to = next(n for n in t.nodes.values() if n.name != alone["primary"]["node"])
        t.wait_done_moving(t.move(alone["partition"], to))
        equal(t.routes()[1]["primary"]["node"], to.name)
        put(t, t.routes()[1], "key", "again", "m-again").expect(200)
        equal(get(t, t.routes()[1], "key").expect(200)["value"], "again")


@test
def keys_go_with_their_range():
    with Nodes(1, ["n1"], 0, splits=()) as t:
        whole = t.routes()[0]
        for key in "bkx":
            put(t, whole, key, f"value of {key}", f"m-{key}").expect(200)
        left, right = split(t, whole["partition"], "k")
        served(t)
        low, high = t.routes()
        equal((low["partition"], high["partition"]), (left, right))
        for route, there, elsewhere in ((low, "b", "kx"), (high, "kx", "b")):
            for key in there:
                equal(get(t, route, key).expect(200)["value"], f"value of {key}")
            for key in elsewhere:
                for answer in (get(t, route, key), put(t, route, key, "x", "m-outside")):
                    equal((answer.status, answer.json["error"]), (421, "outside of the range"))
        equal(put(t, whole, "b", "x", "m-late").status, 421)
        # What was applied before is known by its id.
        equal(put(t, high, "x", "value of x", "m-x").expect(200)["repeated"], True)
        wait_for(lambda: files(t.nodes["n1"]) == [left, right], "the parent's file to be deleted")
        put(t, low, "b", "newer", "m-b2").expect(200)
        served(t)
        one = merge(t, left, right).expect(200)["route"]["partition"]
        served(t)
        merged = t.routes()[0]
        equal(merged["partition"], one)
        equal([get(t, merged, k).expect(200)["value"] for k in "bkx"], ["newer", "value of k", "value of x"])
        equal(put(t, merged, "b", "newer", "m-b2").expect(200)["repeated"], True)
        wait_for(lambda: files(t.nodes["n1"]) == [one], "the parents' files to be deleted")
        t.all_well()


@test
def splits_and_merges_under_load_lose_nothing():
    rand = random.Random(3)
    with Nodes(1, ["n1", "n2"], 1) as t:
        load = t.load()
        load.grows(100)
        for _ in range(5):
            served(t)
            routes = t.routes()
            at = rand.randrange(len(routes))
            if len(routes) < 6 and rand.random() < 0.6:
                low = routes[at].get("start", "a")
                split(t, routes[at]["partition"], low + rand.choice("bcdm"))
            else:
                at = min(at, len(routes) - 2)
                answer = merge(t, routes[at]["partition"], routes[at + 1]["partition"])
                if answer.status != 200:  # their copies are not alike at present
                    equal(answer.json["code"], "not_mergeable")
            load.grows(40)
        summary = load.finish()
        equal((summary["lost"], summary["stale_accepted"]), (0, 0))
        served(t)
        wait_for(t.is_well, "all copies to agree")


@test
def a_node_that_was_away_makes_the_copies_late():
    with Nodes(1, ["n1", "n2"], 1, splits=()) as t:
        load = t.load(keys=26)
        load.grows(100)
        p = t.routes()[0]["partition"]
        primary = t.primary(p)
        away = t.nodes["n2" if primary.name == "n1" else "n1"]
        away.kill()
        left, right = split(t, p, "m")
        split(t, left, "f")  # a child of a child that the node never heard of
        served(t)
        load.grows(40)
        away.start()
        wait_for(lambda: all(r["role"] != "async" for route in t.routes() for r in route["replicas"]), "its copies to be in sync")
        primary.kill()  # and what they have is all there is now
        wait_for(lambda: all(r["primary"] and r["primary"]["node"] == away.name for r in t.routes()), "the failovers")
        primary.start()
        load.finish()
        wait_for(t.is_well, "all copies to agree")
        wait_for(lambda: p not in files(away) and left not in files(away), "the old files to be deleted")
        assert right in files(away)


def with_an_old_file(t):
    """Partitions [a, k) and [k, …) of one whole, whose file stays: the first can't be made. Key x is newer than that file.
    The second's id, and its file."""
    n1, whole = t.nodes["n1"], t.routes()[0]
    put(t, whole, "x", "old", "m-old").expect(200)
    n1.kill()
    copy = next(n1.directory.glob("ks.*.db")).name.split(".")[2]
    left, right = split(t, whole["partition"], "k")
    (n1.directory / f"ks.{left}.{copy}.db.new").mkdir()
    n1.start()
    wait_for(lambda: t.may_write(t.routes()[1]), "the second one to be served")
    put(t, t.routes()[1], "x", "new", "m-new").expect(200)
    n1.kill()
    equal(files(n1), [whole["partition"], right])
    return right, n1.directory / f"ks.{right}.{copy}.db"


def refuses_until(t, partition, restore):
    """It is not made of an older file, and holds what it should once `restore` has been called."""
    n1 = t.nodes["n1"]
    n1.start()
    refused = f"ks/{partition}: the data is gone"
    wait_for(lambda: t.may_write(t.routes()[-1]) or refused in n1.log.read_text(errors="replace"), "an attempt to derive")
    restore()
    wait_for(lambda: t.may_write(t.routes()[-1]), "it to be served")
    equal(get(t, t.routes()[-1], "x").expect(200)["value"], "new")


@test
def a_parent_that_is_away_is_not_replaced_by_an_older_one():
    with Nodes(1, ["n1"], 0, splits=()) as t:
        right, file = with_an_old_file(t)
        child = split(t, right, "p")[1]
        aside = file.with_suffix(".aside")
        names = [(pathlib.Path(f"{file}{end}"), pathlib.Path(f"{aside}{end}")) for end in ("", "-wal", "-shm")]
        names = [(name, other) for name, other in names if name.exists()]
        for name, other in names:
            name.rename(other)
        refuses_until(t, child, lambda: [other.rename(name) for name, other in reversed(names)])


@test
def an_ancestor_that_can_not_be_read_is_not_replaced_by_an_older_one():
    with Nodes(1, ["n1"], 0, splits=()) as t:
        right, file = with_an_old_file(t)
        child = split(t, split(t, right, "p")[1], "t")[1]  # its parent, this node never heard of
        with contextlib.closing(sqlite3.connect(file)) as db:  # which empties its log
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        good = file.read_bytes()
        file.write_bytes(b"no database at all, " * 300)
        spare = file.with_suffix(".spare")
        spare.write_bytes(good)
        refuses_until(t, child, lambda: spare.rename(file))


@test
def a_crash_in_a_split_loses_nothing():
    with Nodes(1, ["n1"], 0, splits=()) as t:
        load = t.load(keys=26)
        n1 = t.nodes["n1"]
        for at in "hp":
            load.grows(60)
            split(t, t.routes()[-1]["partition"], at)
            n1.kill()  # before, while or after it has made the copies
            n1.start()
            served(t)
        parts = [r["partition"] for r in t.routes()]
        merge(t, parts[0], parts[1]).expect(200)
        n1.kill()
        n1.start()
        served(t)
        load.finish()
        t.all_well()


if __name__ == "__main__":
    main()
