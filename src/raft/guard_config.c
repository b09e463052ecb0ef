/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/guard_config.h"

#include "base/assert.h"
#include "base/mem.h"

#include <stdint.h>
#include <string.h>

enum { FORMAT = 1 };

struct cursor {
    const uint8_t *at, *end;
};

static bool read_u8(struct cursor *c, uint8_t *value)
{
    if (c->at == c->end) {
        return false;
    }
    *value = *c->at++;
    return true;
}

static bool read_u64(struct cursor *c, uint64_t *value)
{
    if (c->end - c->at < 8) {
        return false;
    }
    *value = 0;
    for (unsigned i = 0; i < 8; i++) {
        *value |= (uint64_t)c->at[i] << (8 * i);
    }
    c->at += 8;
    return true;
}

static bool read_string(struct cursor *c, const char **text)
{
    const uint8_t *nul = memchr(c->at, '\0', (size_t)(c->end - c->at));
    if (nul == NULL) {
        return false;
    }
    *text = (const char *)c->at;
    c->at = nul + 1;
    return true;
}

/* u8 format, u64 count, and for each: u64 id, address with its NUL, u8 role; little endian, padded.
 */
static bool decode(const struct raft_buffer *entry, struct raft_configuration *to)
{
    struct cursor c = {entry->base, (const uint8_t *)entry->base + entry->len};
    uint8_t format;
    uint64_t count;
    if (!read_u8(&c, &format) || format != FORMAT || !read_u64(&c, &count)) {
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id;
        const char *address;
        uint8_t role;
        if (!read_u64(&c, &id) || !read_string(&c, &address) || !read_u8(&c, &role) ||
            raft_configuration_add(to, id, address, role) != 0) {
            return false;
        }
    }
    return true;
}

static struct guard_config *push(struct guard_configs *c, raft_index index)
{
    if (c->count == c->capacity) {
        c->capacity = c->capacity * 2 + 4;
        c->items = mem_realloc(c->items, c->capacity * sizeof *c->items);
    }
    struct guard_config *item = &c->items[c->count++];
    item->index = index;
    raft_configuration_init(&item->configuration);
    return item;
}

bool guard_configs_add_entry(struct guard_configs *c,
                             raft_index index,
                             const struct raft_buffer *entry)
{
    guard_configs_truncate(c, index);
    return decode(entry, &push(c, index)->configuration);
}

void guard_configs_reset(struct guard_configs *c,
                         raft_index index,
                         const struct raft_configuration *configuration)
{
    guard_configs_truncate(c, 0);
    guard_configuration_copy(configuration, &push(c, index)->configuration);
}

void guard_configs_truncate(struct guard_configs *c, raft_index index)
{
    while (c->count > 0 && c->items[c->count - 1].index >= index) {
        raft_configuration_close(&c->items[--c->count].configuration);
    }
}

void guard_configs_prune(struct guard_configs *c, raft_index committed)
{
    unsigned old = 0;
    while (old + 1 < c->count && c->items[old + 1].index <= committed) {
        raft_configuration_close(&c->items[old].configuration);
        old++;
    }
    if (old > 0) {
        c->count -= old;
        memmove(c->items, c->items + old, c->count * sizeof *c->items);
    }
}

const struct guard_config *guard_configs_at(const struct guard_configs *c, raft_index index)
{
    unsigned i = c->count;
    while (i > 0 && c->items[i - 1].index > index) {
        i--;
    }
    return i > 0 ? &c->items[i - 1] : NULL;
}

void guard_configs_close(struct guard_configs *c)
{
    guard_configs_truncate(c, 0);
    mem_free(c->items);
    *c = (struct guard_configs){0};
}

void guard_configuration_copy(const struct raft_configuration *from,
                              struct raft_configuration *ret_to)
{
    raft_configuration_init(ret_to);
    for (unsigned i = 0; i < from->n; i++) {
        const struct raft_server *s = &from->servers[i];
        int rv = raft_configuration_add(ret_to, s->id, s->address, s->role);
        ASSERT(rv == 0); /* a valid one was copied, and memory does not fail (base/mem.h) */
    }
}

bool guard_configuration_equal(const struct raft_configuration *a,
                               const struct raft_configuration *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (unsigned i = 0; i < a->n; i++) {
        if (a->servers[i].id != b->servers[i].id || a->servers[i].role != b->servers[i].role ||
            strcmp(a->servers[i].address, b->servers[i].address) != 0) {
            return false;
        }
    }
    return true;
}
