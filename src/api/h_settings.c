/* SPDX-License-Identifier: Apache-2.0 */
/* The directory's own settings: replicated, so that all servers go by the same. */
#include "api/endpoints.h"

#include "base/parse.h"

#include <inttypes.h>

static void put_settings(struct buf *b, const struct dir_settings *s)
{
    buf_printf(b,
               "{\"lease_ms\":%" PRIu64 ",\"heartbeat_ms\":%" PRIu64
               ",\"history_retention_ms\":%" PRIu64 ",\"history_max\":%" PRIu64
               ",\"dedupe_retention_ms\":%" PRIu64,
               s->lease_ms, s->heartbeat_ms, s->history_retention_ms, s->history_max,
               s->dedupe_retention_ms);
    buf_printf(b,
               ",\"stage_timeout_ms\":%" PRIu64 ",\"dual_write_max_ms\":%" PRIu64
               ",\"fence_max_ms\":%" PRIu64 ",\"validation_window_ms\":%" PRIu64
               ",\"cutover_lag_bytes\":%" PRIu64 ",\"recovery_delay_ms\":%" PRIu64
               ",\"distrust_ms\":%" PRIu64,
               s->stage_timeout_ms, s->dual_write_max_ms, s->fence_max_ms, s->validation_window_ms,
               s->cutover_lag_bytes, s->recovery_delay_ms, s->distrust_ms);
}

static void get_settings(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    put_settings(out, &v->settings);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_settings_get(struct exchange *x)
{
    read_begin(x, get_settings);
}

static void take(struct mutation *m, const char *member, protobuf_c_boolean *has, uint64_t *value)
{
    bool present = false;
    *value = json_in_u64(&m->in, member, false, 0, PARSE_INT_MAX, &present);
    *has = present;
}

void h_settings_patch(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "settings_patch", render_revision);
    Cadastre__SettingsPatch *p;
    if (m == NULL) {
        return;
    }
    p = exchange_alloc(x, sizeof *p);
    cadastre__settings_patch__init(p);
    take(m, "lease_ms", &p->has_lease_ms, &p->lease_ms);
    take(m, "heartbeat_ms", &p->has_heartbeat_ms, &p->heartbeat_ms);
    take(m, "history_retention_ms", &p->has_history_retention_ms, &p->history_retention_ms);
    take(m, "history_max", &p->has_history_max, &p->history_max);
    take(m, "stage_timeout_ms", &p->has_stage_timeout_ms, &p->stage_timeout_ms);
    take(m, "dual_write_max_ms", &p->has_dual_write_max_ms, &p->dual_write_max_ms);
    take(m, "fence_max_ms", &p->has_fence_max_ms, &p->fence_max_ms);
    take(m, "validation_window_ms", &p->has_validation_window_ms, &p->validation_window_ms);
    take(m, "cutover_lag_bytes", &p->has_cutover_lag_bytes, &p->cutover_lag_bytes);
    take(m, "recovery_delay_ms", &p->has_recovery_delay_ms, &p->recovery_delay_ms);
    take(m, "distrust_ms", &p->has_distrust_ms, &p->distrust_ms);
    take(m, "dedupe_retention_ms", &p->has_dedupe_retention_ms, &p->dedupe_retention_ms);
    if (!mutation_close(x, m)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_SETTINGS_PATCH;
    m->command.settings_patch = p;
    mutation_submit(x, m);
}
