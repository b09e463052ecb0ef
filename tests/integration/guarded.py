# SPDX-License-Identifier: Apache-2.0
"""Guardrails in tests: what they are set to, what a node says of itself, and how fast a copy may go."""
from cluster import once, wait_for

GUARD = {"foreground_latency_ms_p99": 50, "step_ms": 100, "resume_ms": 300}


def guard(c, **settings):
    c.call("PATCH", "/v1/balancer", {"guardrails": settings}).expect(200)


def says(c, node, latency_ms):
    session = once(c.leader().url, "GET", f"/v1/nodes/{node}").expect(200)["session"]
    body = {"session": session, "interval_ms": 1000, "node": {"latency_ms_p99": latency_ms}, "partitions": []}
    answer = once(c.leader().url, "POST", f"/v1/nodes/{node}/load", body)
    assert answer.status < 300, answer.raw


def operation(c, number):
    return once(c.leader().url, "GET", f"/v1/operations/{number}").expect(200)


def share(c, number):
    return operation(c, number).get("throttled", {}).get("share_ppm", 1000000)


def shares_until_full(c, number):
    """Each that is seen until nothing holds it back."""
    seen = []

    def full():
        now = share(c, number)
        if not seen or seen[-1] != now:
            seen.append(now)
        return now == 1000000

    wait_for(full, "the full rate")
    return seen
