# SPDX-License-Identifier: Apache-2.0
"""What must hold while the balancer works, as far as its own API tells."""
import datetime

TOOK_EFFECT = ("CUTOVER", "JOIN", "WINDOW", "CLEANUP", "DONE")


def at_ms(text):
    return datetime.datetime.fromisoformat(text).timestamp() * 1000


def over_budget(balancer):
    """Of an answer of GET /v1/balancer: what is in use above its limit."""
    over = []
    for u in balancer["usage"]:
        for what in ("moves", "bytes_per_s"):
            used, limit = u.get(what), u.get(f"{what}_limit")
            if used is not None and limit is not None and used > limit:
                over.append(f"{what} of {u['budget']} {u.get('value', '')}: {used} of {limit}")
    return over


def took_effect_ms(operation):
    """When it began to change who has the partition; None when it never did."""
    if operation["state"] not in ("running", "done"):
        return None
    return min((at_ms(s["at"]) for s in operation["stages"] if s["stage"] in TOOK_EFFECT), default=None)


def moved_too_soon(proposals, operations, residence_ms):
    """Partitions that the balancer moved by itself within `residence_ms` of the time when it had moved them before."""
    by_id, moves, soon = {o["id"]: o for o in operations}, {}, []
    for p in proposals:
        for number in p["operations"]:
            if p.get("settled_by") == "balancer" and number in by_id:
                o = by_id[number]
                moves.setdefault(o["partition"], []).append((at_ms(p["made"]), took_effect_ms(o), p["id"]))
    for partition, its in moves.items():
        last = None
        for made, effect, number in sorted(its, key=lambda m: m[0]):
            if last is not None and made - last < residence_ms:
                soon.append(f"partition {partition}: proposal {number}, {made - last:.0f} ms after the move before")
            last = effect if effect is not None else last
    return soon


def in_two_operations(operations):
    """Partitions that two operations hold at once."""
    held, twice = {}, []
    for o in operations:
        if o["state"] == "running":
            twice += [o["partition"]] if o["partition"] in held else []
            held[o["partition"]] = o["id"]
    return twice


def busiest(lines, nodes):
    """max/mean over `nodes` of what shardkv-load noted for each second (`rates`)."""
    asked = dict.fromkeys(nodes, 0)
    for line in lines:
        for node, count in line["nodes"].items():
            asked[node] += count
    total = sum(asked.values())
    return max(asked.values()) * len(asked) / total if total else 0
