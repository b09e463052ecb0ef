#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A short run of tests/chaos/movement.py: real servers, nodes and writers, and a few stages with a fault in each. The whole
table is `make chaos-move`."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tools"), str(HERE.parent / "chaos"), str(HERE.parent / "harness")]
from movement import Run  # noqa: E402  pylint: disable=wrong-import-position
from netns import why_not  # noqa: E402  pylint: disable=wrong-import-position
from tap import main, test  # noqa: E402  pylint: disable=wrong-import-position

CELLS = [("move", "CUTOVER", "replay reports"), ("move", "DUAL_WRITE", "kill source"), ("move", "FENCE", "kill destination"),
         ("move", "VALIDATE", "move leader"), ("move", "WINDOW", "abort")]
SECONDS, LEAST = 24, 2  # on a slow machine not all get their turn


@test
def movements_under_faults_lose_nothing():
    reason = why_not()
    if reason:
        print(f"# on loopback: {reason}")
    run, todo = Run(20261201, reason is None, sync=0), list(CELLS)
    run.world(todo, SECONDS)
    run.report(CELLS)
    assert sum(run.hits.values()) >= LEAST, f"void: {dict(run.hits)}"


if __name__ == "__main__":
    main()
