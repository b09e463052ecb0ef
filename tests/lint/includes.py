#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom (docs/ARCHITECTURE.md): an allow-list over #include lines. Prints what breaks it; exit 1."""
import pathlib
import re
import sys

FOLDERS = {
    "base": {"base"},
    "directory": {"base", "directory"},
    "raft": {"base", "raft"},
    "balancer": {"base", "directory", "balancer"},
    "simulate": {"base", "directory", "balancer", "simulate"},
    "control": {"base", "directory", "balancer", "control"},
    "api": {"base", "directory", "balancer", "control", "api"},
    "client": {"base", "client"},
    "cli": {"base", "client", "cli"},
}
CROSSING = {
    ("control", "raft/replica.h"),
    ("api", "raft/replica.h"),
    ("simulate", "control/admission.h"),
    ("simulate", "control/balancer.h"),
    ("simulate", "control/fleet.h"),
    ("api", "simulate/whatif.h"),
    ("simulate", "control/windows.h"),
    ("cli", "simulate/simulate.h"),
    ("cli", "balancer/plan.h"),
    ("cli", "simulate/saved.h"),
    ("cli", "api/whatif_json.h"),
}
# A library that only some files may know.
LIBRARIES = {
    "sqlite3.h": r"src/directory/store\w*\.[ch]|tests/.*",
    "raft.h": r"src/raft/\w+\.[ch]|tests/.*",
    "raft/": r"src/raft/\w+\.[ch]|tests/.*",
    "uv.h": r"src/raft/\w+\.[ch]|src/control/\w+\.[ch]|src/server\.c|tests/.*",
    "microhttpd.h": r"src/api/mhd\.c",
    "jansson.h": r"src/(api|cli|client)/\w+\.[ch]|src/simulate/(scenario|fields)\w*\.[ch]|src/join\.c|tests/.*",
    "curl/curl.h": r"src/(cli|client)/\w+\.[ch]|src/(join|warm)\.c|tests/.*",
    "xxhash.h": r"src/base/hash\.c",
    "urcu": r"src/base/rcu\.[ch]",
    "assert.h": r"$^",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def own_folder(path):
    parts = path.parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def broken(path, quote, name):
    folder, target = own_folder(path), name.split("/")[0]
    if quote == '"' and folder is not None:
        if "/" not in name or target not in FOLDERS[folder]:
            if (folder, name) not in CROSSING:
                return f"{folder} may not include {name}"
        if name.endswith("internal.h") and target != folder:
            return f"{name} is private to {target}"
    if name == "server.h" and path.name not in ("main.c", "server.c"):
        return "only main.c includes server.h"
    for library, allowed in LIBRARIES.items():
        if quote == "<" and (name == library or (library[-1] in "/u" and name.startswith(library))):
            if not re.fullmatch(allowed, str(path)):
                return f"{name} may not be included here"
    return None


def main():
    failures = 0
    for path in sorted(pathlib.Path(".").glob("src/**/*.[ch]")) + sorted(pathlib.Path(".").glob("tests/**/*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            why = match and broken(path, match.group(1), match.group(2))
            if why:
                failures += 1
                print(f"{path}:{number}: {why}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
