/* SPDX-License-Identifier: Apache-2.0 */
/* Agents' reports of their part in an operation. */
#include "api/endpoints.h"

#include "base/hash.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

enum { CHECKS_MAX = 64 };

static const char *const stages[] = {"PREPARE",    "SNAPSHOT", "COPY",  "CATCH_UP",
                                     "DUAL_WRITE", "VALIDATE", "FENCE", "CUTOVER",
                                     "WINDOW",     "CLEANUP",  NULL};
static const uint32_t stage_values[] = {
    DIR_STAGE_PREPARE,    DIR_STAGE_SNAPSHOT, DIR_STAGE_COPY,  DIR_STAGE_CATCH_UP,
    DIR_STAGE_DUAL_WRITE, DIR_STAGE_VALIDATE, DIR_STAGE_FENCE, DIR_STAGE_CUTOVER,
    DIR_STAGE_WINDOW,     DIR_STAGE_CLEANUP};

/* The body as it is read. */
struct reading {
    struct json_in *in;
    Cadastre__OperationReport *m;
};

static uint64_t number(struct reading *r, const char *member, uint64_t field)
{
    bool present = false;
    uint64_t v = json_in_u64(r->in, member, false, 0, PARSE_INT_MAX, &present);
    r->m->has |= present ? field : 0;
    return v;
}

static protobuf_c_boolean flag(struct reading *r, const char *member, uint64_t field)
{
    bool present = false;
    bool v = json_in_bool(r->in, member, false, &present);
    r->m->has |= present ? field : 0;
    return v;
}

static char *words(struct reading *r, const char *member, size_t max, uint64_t field)
{
    struct slice s = json_in_string(r->in, member, false, 1, max);
    if (s.data == NULL) {
        return text_lent("");
    }
    if (strlen((const char *)s.data) != s.len) {
        json_in_fail(r->in, member, ERR_INVALID_REQUEST, "must not hold NUL");
    }
    r->m->has |= field;
    return text_lent((const char *)s.data);
}

/* XXH3-64 as 16 hex digits. */
static uint64_t checksum(struct reading *r)
{
    struct slice s = json_in_string(r->in, "checksum", false, 16, 16);
    uint8_t bytes[8];
    size_t len = 0;
    uint64_t v = 0;
    if (s.data == NULL) {
        return 0;
    }
    if (!parse_hex(s, bytes, sizeof bytes, &len) || len != sizeof bytes) {
        json_in_fail(r->in, "checksum", ERR_INVALID_REQUEST, "must be 16 hex digits");
        return 0;
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        v = v << 8 | bytes[i];
    }
    r->m->has |= DIR_REPORT_CHECKSUM;
    return v;
}

/* {"name":true,…}: only those that failed, or are there, matter. */
static void read_checks(struct exchange *x, struct reading *r)
{
    json_t *given = json_in_object(r->in, "checks", false), *value;
    const char *name;
    Cadastre__Check *checks;
    if (given == NULL) {
        return;
    }
    if (json_object_size(given) > CHECKS_MAX) {
        json_in_fail(r->in, "checks", ERR_INVALID_REQUEST, "at most %d of them", CHECKS_MAX);
        return;
    }
    checks = exchange_alloc(x, CHECKS_MAX * sizeof *checks);
    r->m->checks = exchange_alloc(x, CHECKS_MAX * sizeof(Cadastre__Check *));
    json_object_foreach(given, name, value)
    {
        Cadastre__Check *c = &checks[r->m->n_checks];
        if (!json_is_boolean(value)) {
            json_in_fail(r->in, "checks", ERR_INVALID_REQUEST, "must be names and true or false");
            return;
        }
        cadastre__check__init(c);
        c->name = text_lent(name);
        c->ok = json_is_true(value);
        r->m->checks[r->m->n_checks++] = c;
    }
}

/* What both sides must agree on beside the sums: one hash over its canonical form. */
static void read_extras(struct reading *r)
{
    struct buf b;
    json_t *parts[4] = {json_in_array(r->in, "ranges", false, 0, API_BATCH_MAX),
                        json_in_object(r->in, "indexes", false),
                        json_in_array(r->in, "samples", false, 0, API_BATCH_MAX),
                        json_in_object(r->in, "invariants", false)};
    buf_init(&b, API_BODY_MAX);
    for (unsigned i = 0; i < 4; i++) {
        if (parts[i] != NULL) {
            buf_put_u8(&b, (uint8_t)i);
            json_put_canonical(&b, parts[i]);
        }
    }
    if (b.len > 0) {
        r->m->has |= DIR_REPORT_EXTRAS;
        r->m->extras = hash_xxh3_64(b.data, b.len);
    }
    buf_close(&b);
}

static void read_early(struct exchange *x, struct reading *r)
{
    Cadastre__OperationReport *m = r->m;
    m->ready = flag(r, "ready", DIR_REPORT_READY);
    m->refused = words(r, "refused", DIR_TEXT_MAX, 0);
    m->free_bytes = number(r, "free_bytes", DIR_REPORT_FREE_BYTES);
    m->warm = flag(r, "warm", 0);
    read_checks(x, r);
    m->snapshot = words(r, "snapshot", DIR_SNAPSHOT_MAX, DIR_REPORT_SNAPSHOT);
    m->position = number(r, "position", DIR_REPORT_POSITION);
    m->bytes_total = number(r, "bytes_total", DIR_REPORT_BYTES_TOTAL);
    m->items_total = number(r, "items_total", DIR_REPORT_ITEMS_TOTAL);
    m->chunk = number(r, "chunk", DIR_REPORT_CHUNK);
    m->bytes_done = number(r, "bytes_done", DIR_REPORT_BYTES_DONE);
    m->checksum_failures = number(r, "checksum_failures", 0);
    m->complete = flag(r, "complete", DIR_REPORT_COMPLETE);
}

static void read_late(struct reading *r)
{
    Cadastre__OperationReport *m = r->m;
    m->applied_position = number(r, "applied_position", DIR_REPORT_APPLIED_POSITION);
    m->lag_bytes = number(r, "lag_bytes", DIR_REPORT_LAG_BYTES);
    m->gap = flag(r, "gap", 0);
    m->active = flag(r, "active", DIR_REPORT_ACTIVE);
    m->from_position = number(r, "from_position", DIR_REPORT_FROM_POSITION);
    m->at_position = number(r, "at_position", DIR_REPORT_AT_POSITION);
    m->items = number(r, "items", DIR_REPORT_ITEMS);
    m->checksum = checksum(r);
    m->passed = flag(r, "passed", 0);
    read_extras(r);
    m->fenced = flag(r, "fenced", DIR_REPORT_FENCED);
    m->epoch = number(r, "epoch", 0);
    m->final_position = number(r, "final_position", DIR_REPORT_FINAL_POSITION);
    m->open_operations = number(r, "open_operations", DIR_REPORT_OPEN_OPERATIONS);
    m->stale_reads = number(r, "stale_reads", DIR_REPORT_STALE_READS);
    m->problem = words(r, "problem", DIR_TEXT_MAX, 0);
    m->old_epoch_writes = number(r, "old_epoch_writes", DIR_REPORT_OLD_EPOCH_WRITES);
    m->deleted_bytes = number(r, "deleted_bytes", 0);
}

static void render_report(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    if (r->operation == NULL) {
        render_revision(x, m, r);
        return;
    }
    buf_printf(out,
               "{\"operation\":%" PRIu64 ",\"attempt\":%" PRIu32
               ",\"stage\":\"%s\",\"state\":\"%s\",\"revision\":%" PRIu64 "}",
               r->operation->id, r->operation->attempt, dir_stage_name(r->operation->stage),
               dir_operation_state_name(r->operation->state), r->revision);
    exchange_reply(x, 200, NULL);
}

void h_operation_report(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "report", render_report);
    struct reading r;
    struct slice node;
    if (m == NULL) {
        return;
    }
    r.in = &m->in;
    r.m = exchange_alloc(x, sizeof *r.m);
    cadastre__operation_report__init(r.m);
    node = json_in_name(&m->in, "node", true);
    r.m->session = json_in_u64(&m->in, "session", true, 1, PARSE_INT_MAX, NULL);
    r.m->attempt = json_in_u64(&m->in, "attempt", true, 1, PARSE_INT_MAX, NULL);
    r.m->stage = stage_values[json_in_enum(&m->in, "stage", true, stages, 0)];
    r.m->seq = json_in_u64(&m->in, "seq", true, 1, PARSE_INT_MAX, NULL);
    read_early(x, &r);
    read_late(&r);
    if (!mutation_close(x, m)) {
        return;
    }
    if (!path_id(x, 0, &r.m->operation)) {
        reply_problem(x, ERR_OPERATION_NOT_FOUND, "there is no operation of this id");
        return;
    }
    r.m->node = text_lent((const char *)node.data);
    m->command.body_case = CADASTRE__COMMAND__BODY_OPERATION_REPORT;
    m->command.operation_report = r.m;
    mutation_submit(x, m);
}
