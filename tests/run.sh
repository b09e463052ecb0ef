#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make test` runs, under prove: every lint, C test program and integration test. $1: the build folder.
cd "$(dirname "$0")/.." || exit 2
CADASTRE_BUILD=$PWD/${1:-build/release}
export CADASTRE_BUILD
# The pinned interpreters of a developer's shell may hide Debian's.
PATH=/usr/bin:$PATH
export PATH
tests=$(find "$CADASTRE_BUILD/tests" -name '*_test' -type f -perm -u+x | sort)
scripts=$(find tests/integration tests/contract tests/fuzz -name '*_test.py' -o -name '*_test.sh' | sort)
for script in $scripts; do
    [ -x "$script" ] || { echo "$script is not executable: prove would stop there" >&2; exit 1; }
done
state=$(mktemp)
trap 'rm -f "$state"' EXIT
# shellcheck disable=SC2086
prove --timer -j 2 --state=save --statefile="$state" --exec '' tests/lint/run.sh $tests $scripts && exit 0
# Real processes on a shared machine: what failed is run once more, alone. One that passes now is flaky, is named here,
# and has to be mended.
echo 'Running once more, one at a time, what failed:'
prove --timer --state=failed --statefile="$state" --exec ''
