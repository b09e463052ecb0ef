/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/internal.h"

#include "tests/harness/tap.h"

#include <pthread.h>

enum { THREADS = 4, POSTS = 20000 };

static uv_loop_t loop;
static struct replica replica;

struct poster {
    pthread_t thread;
    unsigned next; /* loop thread: what has to come next from it */
    bool in_order;
};

struct item {
    struct poster *from;
    unsigned number;
};

static struct poster posters[THREADS];
static struct item items[THREADS][POSTS];
static unsigned arrived;

static void on_item(void *arg)
{
    struct item *item = arg;
    item->from->in_order = item->from->in_order && item->from->next == item->number;
    item->from->next++;
    if (++arrived == THREADS * POSTS) {
        uv_stop(&loop);
    }
}

static void *post_all(void *arg)
{
    struct poster *p = arg;
    struct item *mine = items[p - posters];
    for (unsigned i = 0; i < POSTS; i++) {
        mine[i] = (struct item){p, i};
        replica_post(&replica, on_item, &mine[i]);
    }
    return NULL;
}

static void every_post_runs_once_and_each_threads_in_order(void)
{
    uv_loop_init(&loop);
    replica.loop = &loop;
    post_init(&replica);
    for (unsigned i = 0; i < THREADS; i++) {
        posters[i].in_order = true;
        CHECK(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]) == 0);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* until the last one has arrived */
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(posters[i].thread, NULL) == 0);
        CHECK_U64(posters[i].next, POSTS);
        CHECK(posters[i].in_order);
    }
}

int main(void)
{
    RUN(every_post_runs_once_and_each_threads_in_order);
    return tap_done();
}
