#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# openapi.yaml against its ruleset, its examples, the server's routes, and a live server. $1: the build folder.
set -eu
cd "$(dirname "$0")"
build=$(cd "../../${1:-build/release}" && pwd)
[ -d node_modules ] || npm ci >&2
./lint.sh
node routes.mjs "$build/cadastred" --list-routes
PYTHONPATH=../../tools CADASTRE_BUILD="$build" exec python3 - <<'EOF'
import subprocess
import sys

from cluster import Cluster

with Cluster(1) as cluster:
    sys.exit(subprocess.run(["node", "contract.mjs", cluster.servers[0].url], check=False).returncode)
EOF
