/* SPDX-License-Identifier: Apache-2.0 */
/* make drill. Exit status 1: something is not as docs/movement.md says. */
#include "tests/sim/drill_run.h"

int main(void)
{
    return drill_run(stdout) == 0 ? 0 : 1;
}
