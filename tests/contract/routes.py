#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operations of openapi.yaml are exactly the routes of the server, which prints a line "METHOD /path" for each.
Names of path variables don't matter. Reads the file by its indentation: there is no YAML in Python's library.

    routes.py build/release/cadastred
"""
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "openapi.yaml"


def plain(method, path):
    return method.upper() + " " + re.sub(r"\{\w+\}", "{}", path)


def documented():
    text = DOCUMENT.read_text(encoding="utf-8")
    paths = text[text.index("\npaths:\n"):text.index("\ncomponents:\n")]
    found = set()
    for path, item in re.findall(r"^  (/\S*):\n((?:    .*\n|\n)+)", paths, re.M):
        found |= {plain(method, path) for method in re.findall(r"^    (get|put|post|patch|delete):$", item, re.M)}
    return found


def served(program):
    lines = subprocess.run([program, "--list-routes"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {plain(*line.split()) for line in lines}


def main():
    document, server = documented(), served(sys.argv[1])
    for route in sorted(server - document):
        print(route, "is served, but not documented")
    for route in sorted(document - server):
        print(route, "is documented, but not served")
    print(len(document & server), "routes agree")
    sys.exit(0 if document == server and server else 1)


if __name__ == "__main__":
    main()
