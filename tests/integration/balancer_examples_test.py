#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of the balancer's commands, as `--help` and docs/balancing.md print them, against a real server: none is
wrong in itself. Only the proposals that they name are not there."""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "harness"), str(HERE)]
from cluster import BUILD, Cluster, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from model_node import ModelNode  # noqa: E402  pylint: disable=wrong-import-position
from tap import equal, main, test  # noqa: E402  pylint: disable=wrong-import-position

DONE, NOT_FOUND = 0, 3
BY_ID = [["proposal", verb] for verb in ("show", "approve", "reject")]


def run(words, url, folder):
    done = subprocess.run([str(BUILD / "cadastre"), *words], capture_output=True, text=True, timeout=120, check=False,
                          cwd=folder, env={**os.environ, "CADASTRE_ENDPOINTS": url})
    return done.returncode, done.stdout, done.stderr


def printed(text):
    """The commands among its lines, without `$ ` and comments."""
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines() if line[:1] == " "]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("cadastre ")]
    return [w[1:] for w in words if w]


def fleet(c):
    thresholds = {"round_ms": 100, "quiet_ms": 0, "sustain_ms": 0}
    c.call("PATCH", "/v1/balancer", {"thresholds": thresholds}).expect(200)
    nodes = [ModelNode(c, f"n{i}", labels={"zone": z}).start() for i, z in ((1, "eu-1a"), (2, "eu-1b"), (3, "eu-1c"))]
    splits = [f"{i:02}" for i in range(1, 20)]  # ids up to more than 17
    c.call("POST", "/v1/keyspaces", {"name": "orders", "scheme": "range", "splits": splits}).expect(201)
    c.call("POST", "/v1/keyspaces", {"name": "ks", "scheme": "range"}).expect(201)
    wait_for(lambda: c.call("GET", "/v1/balancer/explain?keyspace=orders&partition=17").status == 200, "the first round")
    return nodes


def try_all(examples, least):
    assert len(examples) >= least, examples
    with Cluster(1) as c, tempfile.TemporaryDirectory() as folder:
        nodes = fleet(c)
        pathlib.Path(folder, "question.json").write_text(json.dumps({"hours": 1}), encoding="utf-8")
        for words in examples:
            code, _, said = run(words, c.leader().url, folder)
            equal(code, NOT_FOUND if words[:2] in BY_ID else DONE, f"{words} {said}")
        for n in nodes:
            n.crash()


@test
def the_examples_of_help_run():
    examples = []
    for noun in ("balancer", "proposal", "skew", "heatmap"):
        code, text, _ = run([noun, "--help"], "http://127.0.0.1:1", None)
        equal(code, DONE)
        examples += printed(text.split("Examples:")[1].split("More:")[0])
    try_all(examples, 25)


@test
def the_examples_of_the_manual_run():
    try_all([w for w in printed((ROOT / "docs" / "balancing.md").read_text(encoding="utf-8")) if w[0] != "simulate"], 12)


if __name__ == "__main__":
    main()
