/* SPDX-License-Identifier: Apache-2.0 */
/* Any thread pushes onto a stack; the loop takes all of it and runs it oldest first. */
#include "raft/internal.h"

#include "base/mem.h"

static void run_posted(uv_async_t *wake)
{
    struct replica *r = wake->data;
    struct posted *newest = atomic_exchange(&r->post.newest, NULL), *oldest = NULL;
    while (newest != NULL) {
        struct posted *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct posted *p = oldest;
        oldest = p->next;
        void (*fn)(void *) = p->fn;
        void *arg = p->arg;
        mem_free(p);
        fn(arg);
    }
}

void post_init(struct replica *r)
{
    atomic_init(&r->post.newest, NULL);
    uv_async_init(r->loop, &r->post.wake, run_posted);
    r->post.wake.data = r;
}

void replica_post(struct replica *r, void (*fn)(void *arg), void *arg)
{
    struct posted *p = mem_alloc(sizeof *p);
    p->fn = fn;
    p->arg = arg;
    p->next = atomic_load(&r->post.newest);
    while (!atomic_compare_exchange_weak(&r->post.newest, &p->next, p)) {
    }
    (void)uv_async_send(&r->post.wake); /* fails only for a closed handle */
}
