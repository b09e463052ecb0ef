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
# shellcheck disable=SC2086
exec prove --timer -j 2 --exec '' tests/lint/run.sh $tests $scripts
