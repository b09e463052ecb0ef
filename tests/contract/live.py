#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""contract.mjs against a server of its own: fresh, on free ports, with its data in a temporary folder."""
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))
from cluster import Cluster  # noqa: E402  pylint: disable=wrong-import-position

with Cluster(1) as cluster:
    done = subprocess.run(["node", str(HERE / "contract.mjs"), cluster.servers[0].url], check=False)
sys.exit(done.returncode)
