#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The writer-interval checker as a program: histories as JSON lines, by its exit status and what it prints.
check=${CADASTRE_BUILD:-build/release}/tests/harness/writers_check
n=0
failed=0
expect() { # $1: name; $2: exit status; $3: text in the output; $4: the history; rest: options
    name=$1 status=$2 text=$3 history=$4
    shift 4
    n=$((n + 1))
    out=$(printf '%s\n' "$history" | "$check" "$@" - 2>&1)
    got=$?
    if [ "$got" -eq "$status" ] && echo "$out" | grep -qF "$text"; then
        echo "ok $n - $name"
    else
        failed=1
        echo "$out" | sed 's/^/# /'
        echo "not ok $n - $name: exit $got"
    fi
}
good='{"event":"accepted","time":100,"node":"a","key":"p1","epoch":1,"sequence":1,"id":"m1"}
{"event":"acknowledged","time":110,"key":"p1","epoch":1,"id":"m1"}

{"event":"accepted","time":200,"since":190,"node":"b","key":"p1","epoch":2,"sequence":2,"id":"m2"}
{"event":"final","key":"p1","id":"m1"}'
late='{"event":"accepted","time":201,"node":"a","key":"p1","epoch":1,"id":"m3"}'
lost='{"event":"acknowledged","time":300,"key":"p1","id":"m2"}'
ghost='{"event":"final","key":7,"id":9}'
lf='
'
expect 'a good history' 0 '0 violations in 4 events: 2 accepted, 1 acknowledged' "$good"
expect 'too few acknowledged' 1 'too little to prove anything' "$good" --min-acknowledged 2
expect 'too few epochs' 1 'too little to prove anything' "$good" --min-epochs 3
expect 'two writers' 1 'violation: two nodes accepted writes at the same time' "$good$lf$late"
expect 'both lines are shown' 1 'line 4 {"event":"accepted","time":200' "$good$lf$late"
expect 'a lost write' 1 'violation: an acknowledged write is lost' "$good$lf$lost"
expect 'no final state' 0 '0 violations' "$good$lf$lost" --no-final
expect 'numbers as names' 1 'violation: a write is there that nobody accepted' "$ghost"
expect 'a partial record' 0 '0 violations' "$ghost" --partial
expect 'a field is missing' 2 'line 1 is not an event' '{"event":"accepted","time":1}'
expect 'not JSON' 2 'line 1 is not an event' '{"event":"accepted"'
expect 'an unknown option' 2 'usage' '' --what
echo "1..$n"
exit $failed
