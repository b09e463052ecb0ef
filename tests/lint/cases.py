#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests that docs/cases.md names exist."""
import pathlib
import re
import sys

PAGE = pathlib.Path("docs/cases.md")
ENDS = ("_test.c", "_test.py", "_test.sh", ".json")
NAMED = re.compile(r"`([a-z]+/[a-z0-9_]+)(?:: ([^`]+))?`")


def fault(name, test):
    if name == "folder/file":  # the page's word on names
        return None
    files = [f for f in (pathlib.Path(f"tests/{name}{end}") for end in ENDS) if f.exists()]
    if not files:
        return f"there is no tests/{name}"
    if test and not any(re.search(rf"\b{re.escape(test)}\b", f.read_text(encoding="utf-8")) for f in files):
        return f"{files[0]} has no {test}"
    return None


def main():
    faults = [
        f"{PAGE}:{number}: {why}"
        for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1)
        for name, test in NAMED.findall(line)
        if (why := fault(name, test))
    ]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
