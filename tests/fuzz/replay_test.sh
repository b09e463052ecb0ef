#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every fuzz target over its corpus, without libFuzzer: what once failed stays found.
cd "$(dirname "$0")/../.." || exit 2
build=${CADASTRE_BUILD:-build/release}
n=0
failed=0
for replay in "$build"/tests/fuzz/*_replay; do
    name=$(basename "$replay" _replay)
    n=$((n + 1))
    if output=$(find "tests/fuzz/corpus/$name" -type f -exec "$replay" {} + 2>&1); then
        echo "ok $n - $name: $(echo "$output" | tail -1)"
    else
        failed=1
        echo "$output" | tail -20 | sed 's/^/# /'
        echo "not ok $n - $name"
    fi
done
echo "1..$n"
exit $failed
