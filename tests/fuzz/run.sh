#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_FOLDER NAME…: each fuzz target for FUZZ_SECONDS from its corpus. What it found joins the corpus, merged
# to the fewest files with the same coverage and never above 150 files and 200 KB. Fails at the first target that
# crashes; the input is then in the build folder. (Leaks: `make VARIANT=asan fuzz-replay`; what RCU frees later looks
# like one to libFuzzer, which then looks for it after each input.)
cd "$(dirname "$0")/../.." || exit 2
build=$1
shift
seconds=${FUZZ_SECONDS:-60}
export ASAN_OPTIONS=abort_on_error=1:allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1
for name in "$@"; do
    target=$build/tests/fuzz/${name}_fuzz
    corpus=tests/fuzz/corpus/$name
    work=$build/fuzz-$name
    mkdir -p "$corpus" "$work/found" "$work/merged"
    dict=
    [ ! -e "tests/fuzz/$name.dict" ] || dict=-dict=tests/fuzz/$name.dict
    max=$(cat "tests/fuzz/$name.max" 2>/dev/null || echo 4096)
    echo "--- $name"
    # shellcheck disable=SC2086
    nice -n 10 "$target" -max_total_time="$seconds" -max_len="$max" -timeout=20 -rss_limit_mb=2048 -detect_leaks=0 -print_final_stats=1 \
        -artifact_prefix="$work/" $dict "$work/found" "$corpus" >"$work/log" 2>&1
    status=$?
    grep -E '^stat::number_of_executed_units|^stat::average_exec_per_sec' "$work/log"
    if [ $status -ne 0 ]; then
        tail -60 "$work/log"
        echo "$name failed: $(ls -t "$work"/crash-* "$work"/timeout-* "$work"/oom-* "$work"/leak-* 2>/dev/null | head -1)"
        exit 1
    fi
    rm -rf "$work/merged" && mkdir "$work/merged"
    # The corpus first, so that what is there already stays; failures of this step lose nothing.
    nice -n 10 "$target" -merge=1 -max_len="$max" "$work/merged" "$corpus" "$work/found" >"$work/merge.log" 2>&1 || continue
    files=$(find "$corpus" -type f | wc -l)
    bytes=$(find "$corpus" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')
    # Small ones first: they are what a person can read.
    find "$work/merged" -type f -printf '%s %f\n' | sort -n | while read -r size file; do
        [ ! -e "$corpus/$file" ] || continue
        [ $((files + 1)) -le 150 ] && [ $((bytes + size)) -le 200000 ] || break
        ! find "$corpus" -type f -size "${size}c" -exec cmp -s "$work/merged/$file" {} \; -print | grep -q . || continue
        cp "$work/merged/$file" "$corpus/$file"
        files=$((files + 1))
        bytes=$((bytes + size))
    done
    echo "corpus: $(find "$corpus" -type f | wc -l) files"
done
