# SPDX-License-Identifier: Apache-2.0
"""What the records of shardkv-load say: a line for each acknowledged write, with true times of this one machine."""
import bisect
import statistics

from shardkv import check_records


def conflict(records):
    """None, or what two nodes did at the same time."""
    try:
        check_records(records)
    except AssertionError as why:
        return str(why)
    return None


def pauses(records):
    """(epoch, ms) of each change of a partition's epoch: from the last acknowledged write of the old one, or since a
    write waited, to the first of the new one."""
    spans = {}
    for r in records:
        first, last, begun = spans.get((r["partition"], r["epoch"]), (r["acknowledged"], 0, r["begun"]))
        spans[r["partition"], r["epoch"]] = (
            min(first, r["acknowledged"]), max(last, r["acknowledged"]), min(begun, r["begun"]),
        )
    ordered = sorted(spans.items())
    for ((partition, _), (_, last, _)), ((same, epoch), (first, _, begun)) in zip(ordered, ordered[1:]):
        if same == partition:
            yield epoch, max(0, first - max(last, begun)) / 1e6


def pauses_by_cause(records, marks, causes):
    """An epoch is a revision: `marks` has the one at which each cause began."""
    by_cause = {cause: [] for cause in causes}
    for epoch, ms in pauses(records):
        if epoch > marks[0]:
            by_cause[causes[bisect.bisect_left(marks, epoch) - 1]].append(ms)
    return by_cause


def describe(found, write_ms):
    """Of planned cutovers."""
    if not found:
        return "none"
    median = statistics.median(found)
    return f"{len(found)}, median {median:.1f} ms = {median / write_ms:.1f} durable writes, longest {max(found):.1f} ms"
