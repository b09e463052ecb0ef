/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/forked.h"

#include "raft/guard.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum outcome run_forked(run_fn fn, unsigned measures)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (measures != GUARD_ALL && freopen("/dev/null", "w", stderr) == NULL) {
            _exit(UNEXPECTED);
        }
        _exit((int)fn(measures));
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return UNEXPECTED;
    }
    if (WIFSIGNALED(status)) {
        return WTERMSIG(status) == SIGALRM ? UNEXPECTED : CRASHED;
    }
    return (enum outcome)WEXITSTATUS(status);
}

void fatal_exit(void *ctx, struct raft *r, const char *why, int status)
{
    (void)ctx;
    (void)r;
    (void)why;
    (void)status;
    _exit(FATAL);
}
