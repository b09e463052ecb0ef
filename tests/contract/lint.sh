#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lints openapi.yaml with the small ruleset beside this file, and holds its examples to its own schemas.
set -eu
cd "$(dirname "$0")"
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci >&2
node_modules/.bin/spectral lint --ruleset ruleset.yaml --fail-severity warn --quiet ../../openapi.yaml
node examples.mjs ../../openapi.yaml
