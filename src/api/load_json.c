/* SPDX-License-Identifier: Apache-2.0 */
/* A load report from JSON, without building a tree: it may be large, and comes often. */
#include "api/load_in.h"

#include "api/exchange.h"
#include "api/scan.h"
#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

struct reader {
    struct scan scan;
    struct load_batch *batch;
    struct batch_sample *sample; /* the present one; found anew after each batch_add() */
    struct batch_key *key;
    struct batch_part *part;
    struct err *e;
};

static enum err_code refuse(struct reader *r, const char *what)
{
    return scan_refuse(&r->scan, r->e, what);
}

/* The next event, which must be this one. */
static enum err_code expect(struct reader *r, enum scan_event wanted, const char *what)
{
    enum scan_event got = scan_next(&r->scan);
    if (got == wanted) {
        return ERR_OK;
    }
    if (got == SCAN_ARRAY) {
        r->scan.depth--; /* it is the array that is wrong, not its first element */
    }
    return got == SCAN_ERROR ? scan_error(&r->scan, r->e) : refuse(r, what);
}

static enum err_code take_u64(struct reader *r, uint64_t *ret)
{
    static const char what[] = "must be an integer from 0 to 9007199254740991";
    if (expect(r, SCAN_INTEGER, what) != ERR_OK) {
        return r->e->code;
    }
    if (r->scan.integer < 0 || r->scan.span.data[0] == '-') {
        return refuse(r, what);
    }
    *ret = (uint64_t)r->scan.integer;
    return ERR_OK;
}

static enum err_code take_text(struct reader *r, size_t max, struct batch_text *ret)
{
    uint8_t text[6 * DIR_ROUTING_KEY_MAX]; /* hex takes two for one, escapes up to six */
    if (expect(r, SCAN_STRING, "must be a string") != ERR_OK) {
        return r->e->code;
    }
    size_t len = scan_copy(&r->scan, text, max);
    if (len == SIZE_MAX) {
        return refuse(r, "is too long");
    }
    *ret = batch_put(r->batch, slice_of(text, len));
    return ERR_OK;
}

/* `member` at each name, until the object ends. */
static enum err_code take_members(struct reader *r, enum err_code (*member)(struct reader *r))
{
    for (;;) {
        enum scan_event event = scan_next(&r->scan);
        if (event == SCAN_OBJECT_END) {
            return ERR_OK;
        }
        if (event == SCAN_ERROR) {
            return scan_error(&r->scan, r->e);
        }
        if (member(r) != ERR_OK) {
            return r->e->code;
        }
    }
}

/* `item` inside each object of an array. */
static enum err_code take_objects(struct reader *r, enum err_code (*item)(struct reader *r))
{
    if (expect(r, SCAN_ARRAY, "must be an array") != ERR_OK) {
        return r->e->code;
    }
    for (;;) {
        enum scan_event event = scan_next(&r->scan);
        if (event == SCAN_ARRAY_END) {
            return ERR_OK;
        }
        if (event == SCAN_ARRAY) {
            r->scan.depth--; /* as in expect() */
        }
        if (event != SCAN_OBJECT) {
            return event == SCAN_ERROR ? scan_error(&r->scan, r->e)
                                       : refuse(r, "must be an object");
        }
        if (item(r) != ERR_OK) {
            return r->e->code;
        }
    }
}

static enum err_code unknown(struct reader *r)
{
    return refuse(r, "is not a member that is known here");
}

/* --- partitions --- */

static enum err_code key_member(struct reader *r)
{
    if (scan_is(&r->scan, "key")) {
        r->key->has_key = true;
        return take_text(r, 2 * DIR_KEY_MAX, &r->key->key);
    }
    if (scan_is(&r->scan, "end")) {
        r->key->has_end = true;
        return take_text(r, 2 * DIR_KEY_MAX, &r->key->end);
    }
    if (scan_is(&r->scan, "weight")) {
        r->key->has_weight = true;
        return take_u64(r, &r->key->weight);
    }
    return unknown(r);
}

static enum err_code key_item(struct reader *r)
{
    r->key = batch_add_key(r->batch);
    return take_members(r, key_member);
}

static enum err_code part_member(struct reader *r)
{
    static const char *const names[HEAT_NAMES] = {"operation", "outcome", "tenant"};
    for (unsigned n = 0; n < HEAT_NAMES; n++) {
        if (scan_is(&r->scan, names[n])) {
            r->part->has_tenant |= n == HEAT_BY_TENANT;
            return take_text(r, LOAD_PART_NAME_MAX, &r->part->name[n]);
        }
    }
    if (scan_is(&r->scan, "requests")) {
        r->part->has_requests = true;
        return take_u64(r, &r->part->requests);
    }
    return unknown(r);
}

static enum err_code part_item(struct reader *r)
{
    r->part = batch_add_part(r->batch);
    return take_members(r, part_member);
}

static enum err_code sample_member(struct reader *r)
{
    if (scan_is(&r->scan, "keyspace")) {
        return take_text(r, DIR_NAME_MAX, &r->sample->keyspace);
    }
    if (scan_is(&r->scan, "partition")) {
        return take_u64(r, &r->sample->partition);
    }
    if (scan_is(&r->scan, "epoch")) {
        return take_u64(r, &r->sample->epoch);
    }
    if (scan_is(&r->scan, "keys")) {
        return take_objects(r, key_item);
    }
    if (scan_is(&r->scan, "by")) {
        return take_objects(r, part_item);
    }
    enum load_resource which = r->scan.escaped ? LOAD_RESOURCES : load_by_name(r->scan.span);
    if (which == LOAD_RESOURCES) {
        return unknown(r);
    }
    r->sample->has |= 1U << which;
    return take_u64(r, &r->sample->value[which]);
}

static enum err_code sample_item(struct reader *r)
{
    r->sample = batch_add(r->batch);
    return r->sample != NULL ? take_members(r, sample_member)
                             : refuse(r, "more partitions than one report may have");
}

/* --- the node --- */

/* Cores busy, as a number with up to three decimals. */
static enum err_code take_thousandths(struct reader *r, uint64_t *ret)
{
    enum scan_event event = scan_next(&r->scan);
    struct slice text = r->scan.span;
    uint64_t value = 0;
    unsigned decimals = 0;
    bool point = false;
    if (event != SCAN_INTEGER && event != SCAN_REAL) {
        return event == SCAN_ERROR ? scan_error(&r->scan, r->e) : refuse(r, "must be a number");
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '.') {
            point = true;
        } else if (text.data[i] < '0' || text.data[i] > '9' || value > PARSE_INT_MAX / 1000) {
            return refuse(r, "must be a number of at least 0, without an exponent");
        } else if (decimals < 3) {
            value = 10 * value + (uint64_t)(text.data[i] - '0');
            decimals += point ? 1 : 0;
        }
    }
    for (; decimals < 3; decimals++) {
        value *= 10;
    }
    *ret = value;
    return ERR_OK;
}

static enum err_code node_member(struct reader *r)
{
    static const char *const names[LOADS_FIGURES] = {
#define X(name, member, max) member,
        LOADS_FIGURE_LIST(X)
#undef X
    };
    for (unsigned f = 0; f < LOADS_FIGURES; f++) {
        if (scan_is(&r->scan, names[f])) {
            r->batch->node.has |= 1U << f;
            return f == LOADS_CPU ? take_thousandths(r, &r->batch->node.figure[f])
                                  : take_u64(r, &r->batch->node.figure[f]);
        }
    }
    return unknown(r);
}

/* --- the report --- */

static enum err_code top_member(struct reader *r)
{
    if (scan_is(&r->scan, "session")) {
        return take_u64(r, &r->batch->session);
    }
    if (scan_is(&r->scan, "interval_ms")) {
        return take_u64(r, &r->batch->interval_ms);
    }
    if (scan_is(&r->scan, "revision")) {
        r->batch->has_revision = true;
        return take_u64(r, &r->batch->revision);
    }
    if (scan_is(&r->scan, "seq")) {
        r->batch->has_seq = true;
        return take_u64(r, &r->batch->seq);
    }
    if (scan_is(&r->scan, "partitions")) {
        r->batch->has_partitions = true;
        return take_objects(r, sample_item);
    }
    if (scan_is(&r->scan, "node")) {
        return expect(r, SCAN_OBJECT, "must be an object") == ERR_OK ? take_members(r, node_member)
                                                                     : r->e->code;
    }
    return unknown(r);
}

enum err_code load_read_json(struct slice body, struct load_batch *ret, struct err *e)
{
    struct reader *r = mem_zalloc(sizeof *r); /* its stack of names is large */
    enum err_code code;
    *ret = (struct load_batch){.encoded = true};
    buf_init(&ret->text, API_BODY_MAX);
    r->batch = ret;
    r->e = e;
    scan_open(&r->scan, body, true);
    code = expect(r, SCAN_OBJECT, "the body must be a JSON object");
    code = code == ERR_OK ? take_members(r, top_member) : code;
    code = code == ERR_OK ? expect(r, SCAN_END, "nothing may follow the object") : code;
    scan_close(&r->scan);
    mem_free(r);
    return code == ERR_OK ? batch_check(ret, e) : code;
}
