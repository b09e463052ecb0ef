/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/load.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_SIZE = 32, FIRST_SIZE = 1024 };

bool keys_make(struct keys *k, unsigned number, size_t count)
{
    *k = (struct keys){.texts = calloc(count, sizeof(char *))};
    for (; k->texts != NULL && k->count < count; k->count++) {
        char text[KEY_SIZE];
        (void)snprintf(text, sizeof text, "%c%02u-%03zu", (char)('a' + k->count % 26), number,
                       k->count);
        k->texts[k->count] = strdup(text);
        if (k->texts[k->count] == NULL) {
            return false;
        }
    }
    k->weighed = k->count;
    return k->texts != NULL;
}

static bool make_room(struct keys *k, size_t *size)
{
    size_t more = *size > 0 ? 2 * *size : FIRST_SIZE;
    char **texts = realloc(k->texts, more * sizeof *texts);
    k->texts = texts != NULL ? texts : k->texts;
    uint64_t *upto = realloc(k->upto, more * sizeof *upto);
    k->upto = upto != NULL ? upto : k->upto;
    int16_t *offsets = realloc(k->offsets, more * sizeof *offsets);
    k->offsets = offsets != NULL ? offsets : k->offsets;
    if (texts == NULL || upto == NULL || offsets == NULL) {
        return false;
    }
    *size = more;
    return true;
}

/* The sun is four minutes later for each degree further west. */
static int16_t offset_of(const char *longitude)
{
    double degrees = longitude != NULL ? strtod(longitude, NULL) : 0;
    return degrees >= -180 && degrees <= 180 ? (int16_t)(4 * degrees) : 0;
}

/* A line; true when it weighs nothing. */
static bool add(struct keys *k, size_t *size, const char *line)
{
    size_t len = strcspn(line, "\t\n");
    uint64_t weight = line[len] == '\t' ? strtoull(line + len + 1, NULL, 10) : 1;
    const char *field = line;
    if (len == 0 || weight == 0) {
        return true;
    }
    for (unsigned tabs = 0; field != NULL && tabs < 3; tabs++) {
        field = strchr(field, '\t');
        field = field != NULL ? field + 1 : NULL;
    }
    if (k->count == *size && !make_room(k, size)) {
        return false;
    }
    k->upto[k->count] = weight + (k->count > 0 ? k->upto[k->count - 1] : 0);
    k->offsets[k->count] = offset_of(field);
    k->texts[k->count] = strndup(line, len);
    return k->texts[k->count] != NULL && ++k->count > 0;
}

bool keys_read(struct keys *k, const char *path, unsigned number, unsigned writers)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t size = 0, line_size = 0;
    *k = (struct keys){.random = number + 1};
    bool ok = f != NULL;
    for (unsigned at = 0; ok && getline(&line, &line_size, f) > 0; at++) {
        ok = at % writers != number || add(k, &size, line);
    }
    free(line);
    if (f != NULL) {
        (void)fclose(f);
    }
    k->weighed = k->count;
    return ok && k->count > 0;
}

long keys_add(struct keys *k, const char *text)
{
    char **texts = realloc(k->texts, (k->count + 1) * sizeof *texts);
    k->texts = texts != NULL ? texts : k->texts;
    char *copy = texts != NULL ? strdup(text) : NULL;
    if (copy == NULL) {
        return -1;
    }
    k->texts[k->count] = copy;
    return (long)k->count++;
}

void keys_free(struct keys *k)
{
    for (size_t i = 0; i < k->count; i++) {
        free(k->texts[i]);
    }
    free(k->texts);
    free(k->upto);
    free(k->offsets);
}

static size_t by_weight(struct keys *k)
{
    k->random = k->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t want = (k->random >> 16) % k->upto[k->weighed - 1];
    size_t low = 0, high = k->weighed - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (k->upto[middle] > want) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

size_t keys_choose(struct keys *k, const struct demand *d, uint64_t elapsed_ns)
{
    if (k->upto == NULL) {
        size_t at = k->next;
        k->next = (k->next + 1) % k->weighed;
        return at;
    }
    size_t at = by_weight(k);
    while (d->day_ms > 0 &&
           !demand_is_awake(demand_minute(d, elapsed_ns), k->offsets[at], &k->random)) {
        at = by_weight(k);
    }
    return at;
}
