/* SPDX-License-Identifier: Apache-2.0 */
#include "api/balancer_json.h"

#include "api/windows_json.h"
#include "base/clock.h"
#include "base/parse.h"
#include "control/brake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const groups[] = {"thresholds", "classes", "guardrails"};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static bool is_switch(int which)
{
    return strcmp(dir_balancer_group((enum dir_balancer_value)which), "classes") == 0;
}

/* --- out --- */

static void put_group(struct buf *b, const struct dir_balancer *row, const char *group)
{
    const char *comma = "";
    buf_printf(b, "\"%s\":{", group);
    for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
        enum dir_balancer_value which = (enum dir_balancer_value)i;
        if (strcmp(dir_balancer_group(which), group) != 0) {
            continue;
        }
        buf_printf(b, "%s\"%s\":", comma, dir_balancer_name(which));
        if (is_switch(i)) {
            json_put_bool(b, row->values[i] != 0);
        } else {
            buf_printf(b, "%" PRIu64, row->values[i]);
        }
        comma = ",";
    }
    buf_put_str(b, "},");
}

static void put_pause(struct buf *b, const struct dir_balancer *row, uint64_t now_ms)
{
    if (!dir_balancer_is_paused(row, now_ms)) {
        buf_put_str(b, "\"pause\":null,");
        return;
    }
    buf_put_str(b, "\"pause\":{\"by\":");
    json_put_cstring(b, row->pause_by);
    buf_put_str(b, ",\"reason\":");
    json_put_cstring(b, row->pause_reason);
    buf_put_str(b, ",\"since\":");
    json_put_time(b, row->pause_since_ms);
    buf_put_str(b, ",\"until\":");
    if (row->pause_until_ms != 0) {
        json_put_time(b, row->pause_until_ms);
    } else {
        buf_put_str(b, "null");
    }
    buf_put_str(b, "},");
}

/* What was said beyond a guardrail's limit, when that was noted. */
static void put_guardrail(struct buf *b, const struct dir_balancer_note *n)
{
    if (n != NULL && n->metric[0] != '\0') {
        buf_put_str(b, ",\"guardrail\":{\"node\":");
        json_put_cstring(b, n->node);
        buf_put_str(b, ",\"metric\":");
        json_put_cstring(b, n->metric);
        buf_printf(b, ",\"value\":%" PRIu64 ",\"limit\":%" PRIu64 "}", n->value, n->limit);
    }
}

/* `n`: the note that says so, if one does. */
static void put_idle(struct buf *b,
                     const char *code,
                     const char *detail,
                     uint64_t since_ms,
                     const struct dir_balancer_note *n)
{
    buf_printf(b, "\"idle\":{\"code\":\"%s\",\"detail\":", code);
    json_put_cstring(b, detail);
    put_guardrail(b, n);
    buf_put_str(b, ",\"since\":");
    if (since_ms != 0) {
        json_put_time(b, since_ms);
    } else {
        buf_put_str(b, "null");
    }
    buf_put_str(b, "},");
}

/* Why nothing is begun: what was set says so at once, the rest as the leader's last round found it.
 */
static void put_why_idle(struct buf *b,
                         const struct dir_balancer *row,
                         const struct windows_hold *hold,
                         uint64_t now_ms)
{
    const struct dir_balancer_note *last = dir_balancer_last(row);
    if (row->values[DIR_BALANCER_MODE] == DIR_BALANCER_OFF) {
        put_idle(b, "off", "the mode is off", 0, NULL);
    } else if (dir_balancer_is_paused(row, now_ms)) {
        put_idle(b, "paused", row->pause_reason, row->pause_since_ms, NULL);
    } else if (hold->code != NULL) {
        bool noted = last != NULL && strcmp(last->code, hold->code) == 0;
        put_idle(b, hold->code, hold->detail, noted ? dir_balancer_since(row) : 0, NULL);
    } else if (last == NULL) {
        put_idle(b, "no_load", "no partition's load has been heard of", 0, NULL);
    } else if (strcmp(last->code, DIR_BALANCER_ACTIVE) == 0) {
        buf_put_str(b, "\"idle\":null,");
    } else {
        put_idle(b, last->code, last->detail, dir_balancer_since(row), last);
    }
}

static void put_decisions(struct buf *b, const struct dir_balancer *row)
{
    buf_put_str(b, "\"decisions\":[");
    for (uint32_t i = row->note_count; i-- > 0;) {
        const struct dir_balancer_note *n = &row->notes[i];
        buf_printf(b, "%s{\"at\":", i + 1 < row->note_count ? "," : "");
        json_put_time(b, n->at_ms);
        buf_put_str(b, ",\"code\":");
        json_put_cstring(b, n->code);
        buf_put_str(b, ",\"detail\":");
        json_put_cstring(b, n->detail);
        put_guardrail(b, n);
        buf_printf(b,
                   ",\"proposed\":%" PRIu64 ",\"rejected\":%" PRIu64 ",\"open\":%" PRIu64
                   ",\"rounds\":%" PRIu64 "}",
                   n->proposed, n->rejected, n->open, n->rounds);
    }
    buf_put_str(b, "],");
}

static void put_oscillation(struct buf *b, const struct dir_view *v, uint64_t now_ms)
{
    struct brake brake;
    brake_measure(v, now_ms, &brake);
    buf_put_str(b, "\"oscillation\":[");
    for (unsigned i = 0; i < BRAKE_CLASSES; i++) {
        const struct brake_class *c = &brake.of[i];
        buf_printf(b,
                   "%s{\"class\":\"%s\",\"moves\":%" PRIu64 ",\"returns\":%" PRIu64
                   ",\"variation_ppm\":%" PRIu64 ",\"net_ppm\":%" PRIu64 ",\"braked\":%s}",
                   i > 0 ? "," : "", dir_class_name(c->class_of), c->moves, c->returns,
                   c->variation_ppm, c->net_ppm, c->braked ? "true" : "false");
    }
    buf_put_str(b, "],");
}

void balancer_put_settings(struct buf *b, const struct dir_view *v, uint64_t now_ms)
{
    const struct dir_balancer *row = view_balancer(v);
    struct windows windows = {.count = 0};
    struct windows_hold hold;
    windows_read(&windows, row, clock_mono_ms());
    windows_look(&windows, now_ms, &hold);
    buf_printf(b, "\"mode\":\"%s\",", dir_balancer_mode_name(row->values[DIR_BALANCER_MODE]));
    for (unsigned i = 0; i < GROUPS; i++) {
        put_group(b, row, groups[i]);
    }
    put_pause(b, row, now_ms);
    windows_put_json(b, &windows, now_ms);
    put_why_idle(b, row, &hold, now_ms);
    put_decisions(b, row);
    windows_close(&windows);
    put_oscillation(b, v, now_ms);
}
