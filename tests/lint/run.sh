#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every lint, as TAP.
cd "$(dirname "$0")/../.." || exit 2
n=0
failed=0
check() { # $1: name; rest: command
    name=$1
    shift
    n=$((n + 1))
    if output=$("$@" 2>&1); then
        echo "ok $n - $name"
    else
        failed=1
        echo "$output" | sed 's/^/# /'
        echo "not ok $n - $name"
    fi
}
formatted() { git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'examples/*.[ch]' | xargs clang-format-14 --dry-run -Werror; }
server_flags() { # in --help and in the manual page; the build folder is CADASTRE_BUILD's
    "${CADASTRE_BUILD:-build/release}/cadastred" --help | grep -oE '^ +--[a-z-]+|, --[a-z-]+' | grep -oE '[a-z][a-z-]+' |
        sort -u >"$1"
    sed -nE 's/^\.It Fl -([a-z-]+).*/\1/p' docs/man/cadastred.8 | sort | diff "$1" - && [ -s "$1" ]
}
man_pages() { ! mandoc -T lint docs/man/*.[1-8] | grep -v 'referenced manual not found: Xr cadastre'; }
check 'who includes whom' python3 tests/lint/includes.py
check 'banned calls and words' sh tests/lint/banned.sh
check 'sizes' python3 tests/lint/sizes.py
check 'formatting' formatted
check 'problem codes are the same everywhere' sh -c '[ ! -e tests/lint/errors ] || tests/lint/errors'
check 'man pages' man_pages
check 'the tests that docs name exist, and are named' python3 tests/lint/named_tests.py
scratch=$(mktemp)
check 'the flags of cadastred are those of its manual page' server_flags "$scratch"
rm -f "$scratch"
echo "1..$n"
exit $failed
