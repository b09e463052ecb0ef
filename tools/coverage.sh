#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Line coverage by file, from gcov's notes below the given build folder, least covered first; then the total.
cd "$(dirname "$0")/.." || exit 2
find "$1/src" -name '*.gcda' -print0 | xargs -0 gcov -n -r -s "$PWD" 2>/dev/null |
    awk -F"'" '/^File/ {file = $2}
        /^Lines executed/ {
            split($0, part, /[:% ]+/); covered = part[3]; lines = $0; sub(/.* of /, "", lines)
            if (file ~ /^src\//) { printf "%6.2f%% of %5d  %s\n", covered, lines, file; total += lines; hit += lines * covered / 100 }
            file = ""
        }
        END { if (total > 0) printf "%6.2f%% of %5d  total\n", 100 * hit / total, total }' | sort -n
