#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs those of the named Debian packages that are missing, as root or through sudo; says which when it can't.
missing=
for package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "missing, and there is no apt-get to install them:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "missing:$missing" >&2
        echo "Neither root nor sudo is here. As root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "installing:$missing"
log=$(mktemp)
if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "could not install:$missing" >&2
    rm -f "$log"
    exit 1
fi
rm -f "$log"
