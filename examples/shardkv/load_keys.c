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
    return k->texts != NULL;
}

static bool add(struct keys *k, size_t *size, const char *text, size_t len, uint64_t weight)
{
    if (k->count == *size) {
        size_t more = *size > 0 ? 2 * *size : FIRST_SIZE;
        char **texts = realloc(k->texts, more * sizeof *texts);
        k->texts = texts != NULL ? texts : k->texts;
        uint64_t *upto = realloc(k->upto, more * sizeof *upto);
        k->upto = upto != NULL ? upto : k->upto;
        if (texts == NULL || upto == NULL) {
            return false;
        }
        *size = more;
    }
    k->upto[k->count] = weight + (k->count > 0 ? k->upto[k->count - 1] : 0);
    k->texts[k->count] = strndup(text, len);
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
        size_t len = strcspn(line, "\t\n");
        uint64_t weight = line[len] == '\t' ? strtoull(line + len + 1, NULL, 10) : 1;
        ok = at % writers != number || len == 0 || weight == 0 || add(k, &size, line, len, weight);
    }
    free(line);
    if (f != NULL) {
        (void)fclose(f);
    }
    return ok && k->count > 0;
}

void keys_free(struct keys *k)
{
    for (size_t i = 0; i < k->count; i++) {
        free(k->texts[i]);
    }
    free(k->texts);
    free(k->upto);
}

size_t keys_choose(struct keys *k)
{
    if (k->upto == NULL) {
        size_t at = k->next;
        k->next = (k->next + 1) % k->count;
        return at;
    }
    k->random = k->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t want = (k->random >> 16) % k->upto[k->count - 1];
    size_t low = 0, high = k->count - 1;
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
