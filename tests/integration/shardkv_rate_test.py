#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guardrail on a real copy of examples/shardkv: it goes at a quarter while one of its nodes says that it is in trouble, and
faster again step by step, without beginning anew."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "harness"), str(HERE)]
from cluster import once, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from guarded import GUARD, guard, operation, says, share, shares_until_full  # noqa: E402  pylint: disable=wrong-import-position
from shardkv import Nodes  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


@test
def a_real_copy_slows_down_and_comes_back():
    with Nodes(1, ["n1", "n2"], 0, splits=()) as t:
        c = t.cluster
        guard(c, **GUARD | {"step_ms": 300})
        route = t.routes()[0]
        source = t.nodes[route["primary"]["node"]]
        to = next(n for n in t.nodes.values() if n is not source)
        for i in range(800):
            once(source.url(), "PUT", f"/kv?keyspace=ks&partition={route['partition']}&epoch={route['epoch']}&key=k{i:05}"
                 f"&id=f{i}", b"x" * 100).expect(200)
        number = t.move(route["partition"], to, max_bytes_per_s=20000)
        wait_for(lambda: operation(c, number)["stage"] == "COPY", "the copy")
        equal(to.state(route["partition"])["rate_bytes_per_s"], 20000)
        says(c, source.name, 80)
        wait_for(lambda: share(c, number) == 250000, "the quarter")
        held = operation(c, number)["throttled"]
        equal([held[k] for k in ("code", "node", "value", "limit")], ["foreground_latency_ms_p99", source.name, 80, 50])
        equal((held["rate_bytes_per_s"], held["reserved_bytes_per_s"]), (5000, 20000))
        wait_for(lambda: to.state(route["partition"])["rate_bytes_per_s"] == 5000, "the node to obey")
        equal((operation(c, number)["stage"], operation(c, number)["attempt"]), ("COPY", 1))
        says(c, source.name, 10)
        seen = shares_until_full(c, number)
        equal(seen, sorted(seen))
        assert len([s for s in seen if s < 1000000]) >= 3, seen
        wait_for(lambda: operation(c, number)["stage"] != "COPY" or to.state(route["partition"])["rate_bytes_per_s"] == 20000,
                 "the node to go faster")
        op = t.wait_done(number)
        equal([s["stage"] for s in op["stages"]].count("COPY"), 1)
        assert op["progress"]["bytes_done"] >= 800 * 100, op["progress"]  # who begins anew counts anew
        t.all_well()


if __name__ == "__main__":
    main()
