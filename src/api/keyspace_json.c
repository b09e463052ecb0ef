/* SPDX-License-Identifier: Apache-2.0 */
#include "api/keyspace_json.h"

#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- out --- */

static void put_values(struct buf *b, const struct dir_placement *p, unsigned first, unsigned n)
{
    if (n > 1) {
        buf_put_u8(b, '[');
    }
    for (unsigned i = first; i < first + n; i++) {
        if (i > first) {
            buf_put_u8(b, ',');
        }
        json_put_cstring(b, p->require[i].value);
    }
    if (n > 1) {
        buf_put_u8(b, ']');
    }
}

/* Alternatives of one label stand together. */
static void put_placement(struct buf *b, const struct dir_placement *p)
{
    buf_put_str(b, "{\"require\":{");
    for (unsigned i = 0; i < p->require_count;) {
        unsigned n = 1;
        while (i + n < p->require_count &&
               strcmp(p->require[i].name, p->require[i + n].name) == 0) {
            n++;
        }
        if (i > 0) {
            buf_put_u8(b, ',');
        }
        json_put_cstring(b, p->require[i].name);
        buf_put_u8(b, ':');
        put_values(b, p, i, n);
        i += n;
    }
    buf_put_u8(b, '}');
    if (p->spread[0] != '\0') {
        buf_put_str(b, ",\"spread\":");
        json_put_cstring(b, p->spread);
    }
    buf_put_u8(b, '}');
}

void keyspace_put_open(struct buf *b,
                       const struct dir_keyspace *ks,
                       uint64_t partitions,
                       uint64_t unavailable)
{
    buf_printf(b, "{\"name\":\"%s\",\"id\":%" PRIu64 ",\"scheme\":\"%s\",\"key_encoding\":\"%s\"",
               ks->name, ks->id, dir_scheme_name(ks->scheme),
               ks->key_encoding == DIR_ENCODING_HEX ? "hex" : "utf8");
    if (ks->custom_partition_key) {
        buf_put_str(b, ",\"partition_key\":{\"delimiter\":");
        json_put_string(b, slice_of(&ks->partition_key.delimiter, 1));
        buf_printf(b, ",\"fields\":%" PRIu32 "}", ks->partition_key.fields);
    }
    buf_printf(b,
               ",\"authority\":\"%s\",\"replicas\":{\"sync\":%" PRIu32 ",\"async\":%" PRIu32
               "},\"placement\":",
               ks->authority == DIR_AUTHORITY_AFFINITY ? "affinity" : "exclusive",
               ks->sync_replicas, ks->async_replicas);
    put_placement(b, &ks->placement);
    buf_put_str(b, ",\"policy\":");
    buf_put(b, ks->policy, ks->policy_len);
    if (ks->policy_len == 0) {
        buf_put_str(b, "{}");
    }
    if (partitions != UINT64_MAX) {
        buf_printf(b, ",\"partitions\":%" PRIu64, partitions);
    }
    if (unavailable != UINT64_MAX) {
        buf_printf(b, ",\"unavailable\":%" PRIu64, unavailable);
    }
    buf_printf(b, ",\"created_revision\":%" PRIu64 ",\"mod_revision\":%" PRIu64 ",\"created_at\":",
               ks->created, ks->mod_revision);
    json_put_time(b, ks->created_ms);
}

/* --- placement --- */

static bool is_name(const char *text)
{
    return parse_is_name(slice_of(text, strlen(text)));
}

static void drop_label(struct dir_placement *p, const char *name)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < p->require_count; i++) {
        if (strcmp(p->require[i].name, name) != 0) {
            p->require[kept++] = p->require[i];
        }
    }
    p->require_count = kept;
}

/* `place`: "" or "/3" within a list. Keys of the body may hold what a pointer must escape, so only
 * names get that far. */
static enum err_code add_value(struct dir_placement *p,
                               const char *name,
                               const char *place,
                               const json_t *value,
                               struct err *e)
{
    char pointer[128];
    struct dir_label *label;
    size_t len = json_is_string(value) ? json_string_length(value) : 0;
    (void)snprintf(pointer, sizeof pointer, "/placement/require/%s%s", name, place);
    if (len < 1 || len > DIR_NAME_MAX || strlen(json_string_value(value)) != len) {
        return err_set_at(e, ERR_INVALID_REQUEST, pointer,
                          "must be a string of 1 to %d bytes, or a list of such", DIR_NAME_MAX);
    }
    if (p->require_count == DIR_REQUIRE_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/placement/require", "at most %d values in all",
                          DIR_REQUIRE_MAX);
    }
    label = &p->require[p->require_count++];
    memset(label, 0, sizeof *label);
    (void)snprintf(label->name, sizeof label->name, "%s", name);
    memcpy(label->value, json_string_value(value), len);
    return ERR_OK;
}

static enum err_code
read_label(struct dir_placement *p, const char *name, json_t *value, struct err *e)
{
    enum err_code code = ERR_OK;
    drop_label(p, name);
    if (json_is_null(value)) {
        return ERR_OK;
    }
    if (!json_is_array(value)) {
        return add_value(p, name, "", value, e);
    }
    if (json_array_size(value) == 0) {
        char pointer[128];
        (void)snprintf(pointer, sizeof pointer, "/placement/require/%s", name);
        return err_set_at(e, ERR_INVALID_REQUEST, pointer, "needs a value");
    }
    for (size_t i = 0; i < json_array_size(value) && code == ERR_OK; i++) {
        char place[24];
        (void)snprintf(place, sizeof place, "/%zu", i);
        code = add_value(p, name, place, json_array_get(value, i), e);
    }
    return code;
}

static enum err_code read_require(struct dir_placement *p, json_t *require, struct err *e)
{
    const char *name;
    json_t *value;
    json_object_foreach(require, name, value)
    {
        if (!is_name(name)) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/placement/require",
                              "a label's name is not valid");
        }
        if (read_label(p, name, value, e) != ERR_OK) {
            return e->code;
        }
    }
    return ERR_OK;
}

/* By label, then as given: one form for one meaning. */
static void sort_labels(struct dir_placement *p)
{
    for (unsigned i = 1; i < p->require_count; i++) {
        struct dir_label label = p->require[i];
        unsigned at = i;
        while (at > 0 && strcmp(p->require[at - 1].name, label.name) > 0) {
            p->require[at] = p->require[at - 1];
            at--;
        }
        p->require[at] = label;
    }
}

enum err_code placement_read(json_t *object, struct dir_placement *p, struct err *e)
{
    struct json_in in;
    struct slice spread;
    json_t *require = NULL;
    json_in_open(&in, object, "/placement", e);
    if (json_in_null(&in, "require")) {
        p->require_count = 0;
    } else {
        require = json_in_object(&in, "require", false);
    }
    if (json_in_null(&in, "spread")) {
        p->spread[0] = '\0';
    } else {
        spread = json_in_name(&in, "spread", false);
        if (spread.data != NULL && spread.len <= DIR_NAME_MAX) {
            memcpy(p->spread, spread.data, spread.len);
            p->spread[spread.len] = '\0';
        }
    }
    if (json_in_close(&in) != ERR_OK) {
        return e->code;
    }
    if (require != NULL && read_require(p, require, e) != ERR_OK) {
        return e->code;
    }
    sort_labels(p);
    return ERR_OK;
}

enum err_code replicas_read(json_t *object, uint32_t *sync, uint32_t *async, struct err *e)
{
    struct json_in in;
    bool has = false;
    uint64_t n;
    json_in_open(&in, object, "/replicas", e);
    n = json_in_u64(&in, "sync", false, 0, DIR_REPLICAS_MAX - 1, &has);
    if (has) {
        *sync = (uint32_t)n;
    }
    has = false;
    n = json_in_u64(&in, "async", false, 0, DIR_REPLICAS_MAX - 1, &has);
    if (has) {
        *async = (uint32_t)n;
    }
    if (json_in_close(&in) != ERR_OK) {
        return e->code;
    }
    if (*sync + *async > DIR_REPLICAS_MAX - 1) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/replicas",
                          "at most %d copies beside the primary", DIR_REPLICAS_MAX - 1);
    }
    return ERR_OK;
}
