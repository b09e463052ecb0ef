/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/saved.h"

#include "base/mem.h"
#include "directory/store.h"

/* Any moment on the clock of loads, at which all of them are fresh. */
#define NOW_MS UINT64_C(1000000000)

struct saved {
    struct directory *d;
    struct loads *loads;
};

enum err_code saved_open(const char *path, struct saved **ret, struct err *e)
{
    struct directory *d;
    enum err_code code = store_read_file(path, &d, e);
    if (code == ERR_OK) {
        *ret = mem_alloc(sizeof **ret);
        **ret = (struct saved){d, loads_new()};
    }
    return code;
}

void saved_close(struct saved *s)
{
    loads_free(s->loads);
    directory_free(s->d);
    mem_free(s);
}

enum err_code saved_take_loads(struct saved *s, struct slice page, struct err *e)
{
    unsigned next;
    uint64_t records;
    if (!loads_take_summary(s->loads, directory_state(s->d), page, NOW_MS, &next, &records)) {
        return err_set(e, ERR_INVALID_REQUEST, "it is no page of GET /v1/load/summary");
    }
    return ERR_OK;
}

uint64_t saved_assume_loads(struct saved *s, uint64_t bytes)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    struct load_entry known;
    uint64_t count = 0;
    ptree_seek(&directory_state(s->d)->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (loads_get(s->loads, p->id, 0, &known)) {
            continue;
        }
        struct load_sample one = {.partition = p->id,
                                  .epoch = p->epoch,
                                  .interval_ms = LOAD_KNOWN_AFTER_MS,
                                  .has = 1u << LOAD_READS | 1u << LOAD_SIZE};
        one.value[LOAD_READS] = SAVED_REQUESTS * (uint64_t)LOAD_KNOWN_AFTER_MS / 1000;
        one.value[LOAD_SIZE] = bytes;
        count += loads_put(s->loads, &one, NOW_MS) == LOAD_COUNTED;
    }
    return count;
}

struct whatif_state saved_state(const struct saved *s)
{
    const struct dir_view *v = directory_state(s->d);
    return (struct whatif_state){
        .view = v, .loads = s->loads, .mono_ms = NOW_MS, .log_ms = v->time_ms};
}
