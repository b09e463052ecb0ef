#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the movement's chaos able to see anything? Builds with one safeguard taken out have to fail it, for the reason given.

`make chaos-move-mutants`. The tree is copied, texts in it are replaced, and what depends on them is built there."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
AGENT = "src/client/agent_obey.c"
PRIMARY = "t->role == CADASTRE_ROLE_PRIMARY"

# Name; (file, text, what it becomes)...; the cell that shows it and with how many sync replicas; what the run has to say.
MUTANTS = [
    ("none", [], "move:COPY:cut source", 0, None),
    ("the lease is not looked at", [("src/client/agent.c", "    return cl_until_ahead(&a->lease);", "    return cl_until_ahead(&a->lease) || true;")],
     "move:COPY:cut source", 0, "stale writes were accepted"),
    ("a fence does not end writing", [
        (AGENT, f"bool writes = {PRIMARY} && !t->fenced;", f"bool writes = {PRIMARY};"),
        (AGENT, f"if (taken && {PRIMARY} && !t->fenced)", f"if (taken && {PRIMARY})"),
        (AGENT, "    atomic_store(&p->may, 0);\n    p->seen = t->revision;\n    atomic_store(&p->revision, t->revision);\n"
                "    if (a->callbacks.fence", "    p->seen = t->revision;\n    atomic_store(&p->revision, t->revision);\n"
                                              "    if (a->callbacks.fence")],
     "move:CUTOVER:delay reports", 0, "stale writes were accepted"),
    ("reports of any attempt count", [
        ("src/directory/operation_report.c", "o->state != DIR_OPERATION_RUNNING || r->m->attempt != o->attempt ||",
         "o->state != DIR_OPERATION_RUNNING ||")],
     "move:COPY:replay reports", 0, "a report that was forged"),
]


def copy_tree(to):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, files):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    shutil.copytree(ROOT / "build/release", to / "build/release", symlinks=True)


def mutate(tree, changes):
    for name, text, becomes in changes:
        source = (tree / name).read_text(encoding="utf-8")
        if source.count(text) != 1:
            raise SystemExit(f"{name}: {source.count(text)} times, not once: {text}")
        (tree / name).write_text(source.replace(text, becomes), encoding="utf-8")


def run(tree, cell, sync):
    subprocess.run(["make", "-s", "-j2", "all", "shardkv"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return subprocess.run([sys.executable, "tests/chaos/movement.py", "--seed", "1", "--only", cell, "--sync", str(sync)],
                          cwd=tree, capture_output=True, text=True, check=False,
                          env={**os.environ, "CADASTRE_BUILD": str(tree / "build/release")})


def main():
    failed = 0
    for number, (name, changes, cell, sync, says) in enumerate(MUTANTS, 1):
        with tempfile.TemporaryDirectory(prefix="cadastre-mutant-") as scratch:
            tree = pathlib.Path(scratch)
            copy_tree(tree)
            mutate(tree, changes)
            got = run(tree, cell, sync)
        text = got.stdout + got.stderr
        good = got.returncode == 0 if says is None else got.returncode != 0 and re.search(says, text) is not None
        failed += not good
        if not good:
            print("\n".join(f"# {line}" for line in text.splitlines()[-40:]))
        print(f"{'ok' if good else 'not ok'} {number} - {'the tree as it is passes' if says is None else name + ': caught'}", flush=True)
    print(f"1..{len(MUTANTS)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
