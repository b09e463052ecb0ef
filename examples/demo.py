#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make demo`, on loopback. First three servers and a keyspace of the world's cities in 1 000 partitions, with a router
that follows the map while it changes and while the leader is killed. Then six data nodes in three zones under load:
partitions move, a node is killed, another one is drained. Then the load follows the sun, and the balancer the load. Ends by
itself after some four minutes, with summaries; exit 0 when all held."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "harness")]
import demo_map  # noqa: E402  pylint: disable=wrong-import-position
import demo_store  # noqa: E402  pylint: disable=wrong-import-position
import demo_sun  # noqa: E402  pylint: disable=wrong-import-position
from demo_cities import read_cities, say  # noqa: E402  pylint: disable=wrong-import-position


def main():
    cities = read_cities()
    try:
        held = demo_map.run(cities) and demo_store.run(cities) and demo_sun.run(cities)
    except AssertionError as why:
        say(f"This did not hold: {why}")
        held = False
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
