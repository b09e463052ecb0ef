#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# openapi.yaml against its ruleset, its own examples, the server's routes and codes, and a live server; as TAP.
# What needs npm's packages is skipped, with the reason, when they can't be had; the rest is checked in any case.
cd "$(dirname "$0")" || exit 2
CADASTRE_BUILD=${CADASTRE_BUILD:-$(cd ../.. && pwd)/build/release}
export CADASTRE_BUILD
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
# Sets `reason` when the packages are missing and the registry can't be reached.
install_packages() {
    reason=
    [ node_modules/.package-lock.json -nt package-lock.json ] && return 0 # npm writes it last
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        reason='node and npm are not there'
        return 0
    fi
    output=$(npm ci --fetch-retries=1 --fetch-timeout=30000 2>&1) && return 0
    code=$(echo "$output" | sed -n 's/^npm [eE]\(RR!\|rror\) code \([A-Z0-9_]*\)$/\2/p' | head -n 1)
    case $code in
    ENOTFOUND | EAI_AGAIN | ECONN* | ETIMEDOUT | EHOSTUNREACH | ENETUNREACH | ERR_SOCKET_TIMEOUT | E403 | E407 | E5??)
        reason="the npm registry can't be reached ($code)"
        return 0
        ;;
    esac
    echo "$output" | sed 's/^/# /'
    return 1
}
check_with_packages() {
    if [ -n "$reason" ]; then
        n=$((n + 1))
        echo "ok $n - $1 # SKIP $reason"
    else
        check "$@"
    fi
}

check 'the operations are the routes of the server' ./routes.py "$CADASTRE_BUILD/cadastred"
check 'the problem codes are those of the server' ../lint/errors
if ! install_packages; then
    echo 'Bail out! npm ci failed'
    exit 1
fi
check_with_packages 'the document passes its ruleset, and its examples their schemas' ./lint.sh
check_with_packages 'a server that breaks the contract is noticed' node selftest.mjs
check_with_packages 'a live server keeps the contract' ./live.py
echo "1..$n"
exit $failed
