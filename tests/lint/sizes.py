#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes as a ratchet: functions <= 70 lines and complexity <= 15 (pmccabe), files <= 600 lines, lines <= 100 columns.

What is over a limit must be listed in tests/lint/sizes.allow with its present size, and may only shrink: a larger one
fails, and so does a listed one that no longer needs it."""
import pathlib
import subprocess
import sys

FUNCTION_LINES, COMPLEXITY, FILE_LINES, COLUMNS = 70, 15, 600, 100
ALLOW = pathlib.Path("tests/lint/sizes.allow")


def measured(files):
    for path in files:
        lines = path.read_text().splitlines()
        yield f"{path} lines", len(lines), FILE_LINES
        yield f"{path} columns", max(map(len, lines), default=0), COLUMNS
    out = subprocess.run(["pmccabe", *(str(f) for f in files if f.suffix == ".c")], capture_output=True, text=True, check=False).stdout
    for row in out.splitlines():
        fields = row.split("\t")
        if len(fields) >= 6:
            path = fields[5].split("(")[0]
            name = fields[5].split(": ")[-1]
            yield f"{path}:{name} complexity", int(fields[1]), COMPLEXITY
            yield f"{path}:{name} length", int(fields[4]), FUNCTION_LINES


def main():
    allowed = {}
    for line in ALLOW.read_text().splitlines() if ALLOW.exists() else []:
        if line and not line.startswith("#"):
            what, size = line.rsplit(" ", 1)
            allowed[what] = int(size)
    files = [p for d in ("src", "examples") for p in sorted(pathlib.Path(d).glob("**/*.[ch]"))]
    over = {what: size for what, size, limit in measured(files) if size > limit}
    failures = []
    for what, size in over.items():
        if size > allowed.get(what, 0):
            failures.append(f"{what}: {size} is over the limit" + (f" of {allowed[what]}" if what in allowed else ""))
    failures += [f"{what}: no longer over its limit, take it off {ALLOW}" for what in allowed if what not in over]
    print("\n".join(failures), end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
