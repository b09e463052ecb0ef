/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for and how often: so many requests a second, of them so many reads, and keys that
 * follow the sun: a city is drawn as often as people live there and are awake. */
#include "examples/shardkv/load.h"

#include <stdlib.h>
#include <string.h>

enum { MILLION = 1000000, DAY_MINUTES = 1440, VALUE_MAX_BYTES = VALUE_SIZE - 1 };

/* How many in a hundred are about at each full hour of their local time. */
static const uint8_t awake[25] = {25, 15, 11, 9,  9,  13, 24,  42, 60, 72, 81, 86, 89,
                                  90, 90, 91, 94, 97, 99, 100, 95, 82, 62, 41, 25};

static bool read_number(const char *text, uint64_t max, uint64_t *ret)
{
    char *end = NULL;
    *ret = strtoull(text, &end, 10);
    return end != text && *end == '\0' && *ret <= max;
}

bool demand_read(struct demand *d, char *option)
{
    const struct {
        const char *name;
        uint64_t max, *at;
    } numbers[] = {{"rate", 100000, &d->rate},
                   {"reads_ppm", MILLION, &d->reads_ppm},
                   {"value_bytes", VALUE_MAX_BYTES, &d->value_bytes},
                   {"day_ms", 86400000, &d->day_ms},
                   {"from_minute", DAY_MINUTES - 1, &d->from_minute},
                   {"hot_ppm", MILLION, &d->hot_ppm}};
    char *value = strchr(option, '=');
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(numbers[i].name, option) == 0) {
            return read_number(value, numbers[i].max, numbers[i].at);
        }
    }
    const char **text = strcmp(option, "hot_key") == 0 ? &d->hot_key
                        : strcmp(option, "rates") == 0 ? &d->rates
                                                       : NULL;
    if (text != NULL) {
        *text = value;
    }
    return text != NULL && *value != '\0';
}

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 16) % below;
}

unsigned demand_minute(const struct demand *d, uint64_t elapsed_ns)
{
    uint64_t ms = elapsed_ns / MILLION;
    return (unsigned)((d->from_minute + ms % d->day_ms * DAY_MINUTES / d->day_ms) % DAY_MINUTES);
}

bool demand_is_awake(unsigned minute, int offset, uint64_t *random)
{
    unsigned local = (unsigned)((int)minute + offset + DAY_MINUTES) % DAY_MINUTES;
    unsigned hour = local / 60, past = local % 60;
    return draw(random, 6000) < awake[hour] * (60 - past) + awake[hour + 1] * past;
}

bool demand_is_read(const struct demand *d, uint64_t *random)
{
    return d->reads_ppm > 0 && draw(random, MILLION) < d->reads_ppm;
}

bool demand_is_hot(const struct demand *d, uint64_t *random)
{
    return d->hot_key != NULL && draw(random, MILLION) < d->hot_ppm;
}

/* --- how much each node was asked --- */

/* With the lock. */
static void write_second(struct rates *r)
{
    (void)fprintf(r->file, "{\"second\":%llu,\"requests\":%llu,\"hot\":%llu,\"nodes\":{",
                  (unsigned long long)r->second, (unsigned long long)r->requests,
                  (unsigned long long)r->hot);
    for (unsigned i = 0; i < r->count; i++) {
        (void)fprintf(r->file, "%s\"%s\":%llu", i > 0 ? "," : "", r->nodes[i].name,
                      (unsigned long long)r->nodes[i].requests);
    }
    (void)fputs("}}\n", r->file);
    (void)fflush(r->file);
    r->count = 0;
    r->requests = r->hot = 0;
}

bool rates_open(struct rates *r, const char *path)
{
    r->file = fopen(path, "w");
    return r->file != NULL;
}

void rates_note(struct rates *r, uint64_t second, const char *node, bool hot)
{
    unsigned at = 0;
    if (r->file == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&r->lock);
    if (r->requests > 0 && r->second < second) {
        write_second(r);
    }
    r->second = second > r->second ? second : r->second;
    while (at < r->count && strcmp(r->nodes[at].name, node) != 0) {
        at++;
    }
    if (at == r->count && at < RATES_NODES_MAX) {
        r->nodes[at].requests = 0;
        (void)snprintf(r->nodes[at].name, sizeof r->nodes[at].name, "%s", node);
        r->count++;
    }
    if (at < r->count) {
        r->nodes[at].requests++;
    }
    r->requests++;
    r->hot += hot;
    (void)pthread_mutex_unlock(&r->lock);
}

bool rates_close(struct rates *r)
{
    if (r->file == NULL) {
        return true;
    }
    if (r->requests > 0) {
        write_second(r);
    }
    return fclose(r->file) == 0;
}
