#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The short ones of tests/scenarios; `make scenarios` runs all, with more seeds.
exec "$(dirname "$0")/../scenarios/run.sh" breathing crumbs demand few_large flapping freeze headroom in_flight jumbo no_inversion night nodeloss noise one_key residency \
    scaleout single_copies spread square_wave
