#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests that docs/cases.md and docs/testing.md name exist, and docs/testing.md names every program that is no unit test."""
import fnmatch
import pathlib
import re
import sys

CASES, TABLE = pathlib.Path("docs/cases.md"), pathlib.Path("docs/testing.md")
ENDS = ("_test.c", "_test.py", "_test.sh", ".json")
CASE = re.compile(r"`([a-z]+/[a-z0-9_]+)(?:: ([^`]+))?`")
PROGRAM = re.compile(r"`(?:tests/[a-z]+/)?([a-z0-9_*]+_(?:test|\*))(?:\.[a-z]+)?`")


def wrong_case(name, test):
    if name == "folder/file":  # the page's word on names
        return None
    files = [f for f in (pathlib.Path(f"tests/{name}{end}") for end in ENDS) if f.exists()]
    if not files:
        return f"there is no tests/{name}"
    if test and not any(re.search(rf"\b{re.escape(test)}\b", f.read_text(encoding="utf-8")) for f in files):
        return f"{files[0]} has no {test}"
    return None


def cases():
    for number, line in enumerate(CASES.read_text(encoding="utf-8").splitlines(), 1):
        for name, test in CASE.findall(line):
            why = wrong_case(name, test)
            if why:
                yield f"{CASES}:{number}: {why}"


def table():
    programs = {f.stem: f for end in ENDS[:3] for f in pathlib.Path("tests").glob(f"*/*{end}")}
    named = set(PROGRAM.findall(TABLE.read_text(encoding="utf-8")))
    for name in sorted(named):
        if not fnmatch.filter(programs, name):
            yield f"{TABLE}: there is no {name}"
    for stem, file in sorted(programs.items()):
        if file.parent.name != "unit" and not any(fnmatch.fnmatch(stem, name) for name in named):
            yield f"{TABLE}: {file} is not in it"


def main():
    faults = [*cases(), *table()]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
