/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rcu.h"

#include "base/mem.h"

#include <pthread.h>
#include <stddef.h>

#ifdef RCU_TSAN

/* Readers that never pause must not starve the one that retires; sections may nest, which such a
 * lock can't. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static _Thread_local unsigned depth;

void rcu_tsan_enter(void)
{
    if (depth++ == 0) {
        (void)pthread_rwlock_rdlock(&lock);
    }
}

void rcu_tsan_leave(void)
{
    if (--depth == 0) {
        (void)pthread_rwlock_unlock(&lock);
    }
}

void rcu_retire(void (*fn)(void *arg), void *arg)
{
    (void)pthread_rwlock_wrlock(&lock); /* readers from before have left */
    (void)pthread_rwlock_unlock(&lock);
    fn(arg);
}

void rcu_drain(void)
{
}

#else

struct retired {
    struct rcu_head head;
    void (*fn)(void *arg);
    void *arg;
};

static void run(struct rcu_head *head)
{
    struct retired *r = caa_container_of(head, struct retired, head);
    r->fn(r->arg);
    mem_free(r);
}

void rcu_retire(void (*fn)(void *arg), void *arg)
{
    struct retired *r = mem_alloc(sizeof *r);
    r->fn = fn;
    r->arg = arg;
    call_rcu(&r->head, run);
}

void rcu_drain(void)
{
    rcu_barrier();
}

#endif
