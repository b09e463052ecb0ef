#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Calls and words that do not belong in the tree. Prints what it finds; exit 1 when there is something.
cd "$(dirname "$0")/../.." || exit 2
bad=0
report() { # $1: why; stdin: findings
    found=$(cat)
    if [ -n "$found" ]; then
        printf '%s:\n%s\n' "$1" "$found"
        bad=1
    fi
}
sources=$(git ls-files 'src/*.[ch]' 'examples/*.[ch]' 'tests/*.[ch]')
code() { # lines with the call, without comments
    # shellcheck disable=SC2086
    grep -nE "(^|[^A-Za-z0-9_])($1)[[:space:]]*\(" $2 /dev/null | grep -vE '^[^:]+:[0-9]+:[[:space:]]*(/?\*|//)'
}
code 'sprintf|vsprintf|strcpy|strcat|strncpy|gets|strtok|atoi|atol|sscanf|alloca|rand|srand|localtime|gmtime|signal|system|popen' "$sources" |
    report 'banned call'
code 'malloc|calloc|realloc|free' "$(git ls-files 'src/*.c' | grep -v '^src/base/mem.c$')" | report 'allocation outside base/mem.c'
pure=$(git ls-files 'src/directory/*.c' | grep -v 'src/directory/store')
code 'time|clock_gettime|clock_wall_ms|clock_mono_ms|clock_mono_ns|clock_boot_ms|getenv|setlocale|strtod|random|pthread_[a-z_]+' \
    "$(printf '%s\n' "$pure" | grep -v 'src/directory/feed.c')" | report 'not deterministic'
# shellcheck disable=SC2086
grep -nwE '(TODO|FIXME|XXX|HACK)' $sources /dev/null | report 'unfinished'
# shellcheck disable=SC2086
grep -nP '[ \t]+$' $sources /dev/null | report 'blanks at the end of a line'
for f in $sources; do
    head -1 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
done | report 'no SPDX line'
exit $bad
