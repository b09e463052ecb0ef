#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Scenarios, each with what it expects, as TAP. Arguments: their names; none: all. SEEDS="1 2 3": those seeds too.
cd "$(dirname "$0")/../.." || exit 2
cadastre=${CADASTRE_BUILD:-build/release}/cadastre
[ $# -gt 0 ] || set -- $(cd tests/scenarios && ls ./*.json | sed 's,^\./,,; s,\.json$,,')
n=0
failed=0
for name in "$@"; do
    for seed in ${SEEDS:-1}; do
        n=$((n + 1))
        if out=$("$cadastre" simulate "tests/scenarios/$name.json" --seed "$seed" -o jsonl 2>&1 >/dev/null); then
            echo "ok $n - $name, seed $seed"
        else
            failed=1
            echo "$out" | sed 's/^/# /'
            echo "not ok $n - $name, seed $seed"
        fi
    done
done
echo "1..$n"
exit $failed
