#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That what judges the balancer (tests/harness/balancing.py) sees what it is there for."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "harness")]
from balancing import busiest, in_two_operations, moved_too_soon, over_budget  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position


def at(second):
    return f"2026-11-30T10:00:{second:02d}.000Z"


def operation(number, partition, state="done", cutover=None):
    stages = [{"stage": "QUEUED", "at": at(0)}] + ([{"stage": "CUTOVER", "at": at(cutover)}] if cutover is not None else [])
    return {"id": number, "partition": partition, "state": state, "stages": stages}


def proposal(number, made, *operations, by="balancer"):
    return {"id": number, "made": at(made), "operations": list(operations), "settled_by": by}


@test
def a_budget_that_is_exceeded():
    usage = {"budget": "source", "value": "n1", "moves": 2, "moves_limit": 2, "bytes_per_s": 11, "bytes_per_s_limit": 10}
    equal(over_budget({"usage": [usage]}), ["bytes_per_s of source n1: 11 of 10"])
    equal(over_budget({"usage": [{**usage, "bytes_per_s": 10}]}), [])
    equal(over_budget({"usage": [{"budget": "cluster", "moves": 9, "moves_limit": None}]}), [])


@test
def a_partition_in_two_operations():
    equal(in_two_operations([operation(1, 7, "running"), operation(2, 8, "running"), operation(3, 7)]), [])
    equal(in_two_operations([operation(1, 7, "running"), operation(2, 7, "running")]), [7])


@test
def a_move_within_the_residence():
    operations = [operation(1, 7, cutover=5), operation(2, 7, cutover=14)]
    equal(moved_too_soon([proposal(10, 3, 1), proposal(11, 15, 2)], operations, 10000), [])
    equal(len(moved_too_soon([proposal(11, 14, 2), proposal(10, 3, 1)], operations, 10000)), 1)
    equal(moved_too_soon([proposal(10, 3, 1), proposal(11, 14, 2, by="ada")], operations, 10000), [])
    aborted = [operation(1, 7, "aborted", cutover=None), operation(2, 7, cutover=14)]
    equal(moved_too_soon([proposal(10, 3, 1), proposal(11, 14, 2)], aborted, 10000), [])


@test
def the_busiest_node():
    lines = [{"nodes": {"a": 30, "b": 10}}, {"nodes": {"a": 30}}]
    equal(busiest(lines, ("a", "b", "c", "d")), 60 * 4 / 70)
    equal(busiest([], ("a",)), 0)


main()
