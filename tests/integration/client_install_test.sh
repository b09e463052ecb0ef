#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The installed client library, as a user meets it: one header, a pkg-config file, and nothing seen but cadastre_*.
cd "$(dirname "$0")/../.." || exit 2
BUILD=${CADASTRE_BUILD:-build/release}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
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
pkg() {
    PKG_CONFIG_PATH=$root/usr/lib/pkgconfig pkg-config --define-variable=prefix="$root/usr" "$@" libcadastre
}
only_public() { # stdin: nm's lines
    ! grep -v ' cadastre_' | grep -E ' [A-Z] '
}
shared() {
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Wextra -Werror -o "$root/$1-shared" "examples/$1.c" $(pkg --cflags --libs) &&
        LD_LIBRARY_PATH=$root/usr/lib "$root/$1-shared" 2>"$root/usage"
    [ $? -eq 2 ] && grep -q '^usage: ' "$root/usage"
}
static() {
    # shellcheck disable=SC2046
    cc -std=c11 -o "$root/$1-static" "examples/$1.c" $(pkg --cflags) "$root/usr/lib/libcadastre.a" \
        $(pkg-config --libs libcurl jansson) -lpthread && "$root/$1-static" 2>"$root/usage"
    [ $? -eq 2 ] && grep -q '^usage: ' "$root/usage"
}
exports_shared() { nm -D --defined-only "$root/usr/lib/libcadastre.so" | only_public; }
exports_static() { nm -g --defined-only "$root/usr/lib/libcadastre.a" | only_public; }
soname() { readelf -d "$root/usr/lib/libcadastre.so" | grep -q 'SONAME.*\[libcadastre\.so\.0\]'; }
needs() { ! readelf -d "$root/usr/lib/libcadastre.so" | grep NEEDED | grep -vE 'libc\.so|libcurl|libjansson|ld-linux'; }
header() { ! grep '#include' src/client/cadastre.h | grep -vE '<std(bool|def|int)\.h>'; }
nothing_left() {
    make -s uninstall DESTDIR="$root" PREFIX=/usr && [ -z "$(find "$root/usr" -type f -o -type l)" ]
}
case $BUILD in
*/release | build/release) ;;
*)
    echo "1..0 # SKIP only the release variant is installed"
    exit 0
    ;;
esac
check 'make install' make -s install DESTDIR="$root" PREFIX=/usr
check 'the header includes nothing but what C gives it' header
check 'the shared library shows cadastre_* only' exports_shared
check 'the archive shows cadastre_* only' exports_static
check 'the shared library has a soname' soname
check 'it needs libcurl and jansson only' needs
check 'router.c, shared' shared router
check 'router.c, static' static router
check 'agent.c, shared' shared agent
check 'agent.c, static' static agent
check 'make uninstall leaves nothing' nothing_left
echo "1..$n"
exit $failed
