/* SPDX-License-Identifier: Apache-2.0 */
/* What the balancer's rounds came to, as it is kept: what is news, what goes on, and since when. */
#include "directory/balancer.h"

#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <stdio.h>

enum { HOUR = DIR_BALANCER_NOTE_AGAIN_MS, START = 5000 };

static struct world w;

static const struct dir_balancer *balancer(void)
{
    return view_balancer(world_state(&w));
}

static enum err_code note(const char *code, const char *metric, uint64_t value)
{
    Cadastre__BalancerNote m;
    cadastre__balancer_note__init(&m);
    m.code = text_lent(code);
    m.detail = text_lent(metric[0] != '\0' ? "of n1" : "");
    m.metric = text_lent(metric);
    m.node = text_lent(metric[0] != '\0' ? "n1" : "");
    m.value = value;
    m.limit = 50;
    m.proposed = 2;
    m.rounds = 10;
    return world_do(&w, CADASTRE__COMMAND__BODY_BALANCER_NOTE, &m)->err.code;
}

/* As a leader's rounds come along, two a minute; each says whether it has written one. */
static uint64_t rounds(const char *code, uint64_t ms)
{
    uint64_t written = 0;
    for (uint64_t end = w.time_ms + ms; w.time_ms < end; w.time_ms += 30000) {
        if (dir_balancer_is_news(balancer(), code, "", w.time_ms)) {
            dir_rev before = world_state(&w)->revision;
            CHECK_U64(note(code, "", 0), ERR_OK);
            written += world_state(&w)->revision > before;
        }
    }
    return written;
}

static void open_world(void)
{
    world_open(&w);
    w.time_ms = START;
}

static void what_goes_on_is_noted_hourly(void)
{
    open_world();
    CHECK_U64(rounds("balanced", 10 * (uint64_t)HOUR + HOUR / 2), 11);
    CHECK_U64(balancer()->note_count, 2); /* when it began, and the last hour of it */
    CHECK_U64(balancer()->notes[0].at_ms, START);
    CHECK_U64(balancer()->notes[0].rounds, 10);
    CHECK_U64(balancer()->notes[1].at_ms, START + 10 * (uint64_t)HOUR);
    CHECK_U64(balancer()->notes[1].rounds, 100);
    CHECK_U64(balancer()->notes[1].proposed, 20);
    CHECK_U64(dir_balancer_since(balancer()), START);
    world_close_checked(&w);
}

static void another_outcome_begins_anew(void)
{
    open_world();
    CHECK_U64(dir_balancer_since(balancer()), 0);
    CHECK_U64(rounds("balanced", 2 * (uint64_t)HOUR), 2);
    uint64_t at = w.time_ms;
    CHECK_U64(rounds("residence", 3 * (uint64_t)HOUR), 3);
    CHECK_U64(balancer()->note_count, 4);
    CHECK_U64(dir_balancer_since(balancer()), at);
    CHECK_U64(rounds("balanced", HOUR / 2), 1);
    CHECK_U64(balancer()->note_count, 5);
    world_close_checked(&w);
}

static void days_of_it_leave_the_rest(void)
{
    char code[16];
    open_world();
    for (int i = 0; i < 70; i++) {
        (void)snprintf(code, sizeof code, "code%d", i);
        CHECK_U64(note(code, "", 0), ERR_OK);
        w.time_ms += 1000;
    }
    CHECK_U64(rounds("balanced", 200 * (uint64_t)HOUR), 200);
    CHECK_U64(balancer()->note_count, DIR_BALANCER_NOTES_MAX);
    CHECK_STR(balancer()->notes[0].code, "code8");
    CHECK_STR(balancer()->notes[61].code, "code69");
    world_close_checked(&w);
}

static void a_guardrail_names_what_it_is_of(void)
{
    open_world();
    CHECK_U64(note("guardrail", "queue_ms_p99", 80), ERR_OK);
    const struct dir_balancer_note *n = dir_balancer_last(balancer());
    CHECK_STR(n->node, "n1");
    CHECK_STR(n->metric, "queue_ms_p99");
    CHECK(n->value == 80 && n->limit == 50);
    dir_rev before = world_state(&w)->revision;
    CHECK_U64(note("guardrail", "queue_ms_p99", 95), ERR_OK); /* no news for that */
    CHECK_U64(world_state(&w)->revision, before);
    w.time_ms += HOUR;
    CHECK_U64(note("guardrail", "queue_ms_p99", 95), ERR_OK);
    CHECK_U64(dir_balancer_last(balancer())->value, 95);
    CHECK_U64(note("guardrail", "a\nb", 1), ERR_INVALID_REQUEST);
    world_close_checked(&w);
}

int main(void)
{
    RUN(what_goes_on_is_noted_hourly);
    RUN(another_outcome_begins_anew);
    RUN(days_of_it_leave_the_rest);
    RUN(a_guardrail_names_what_it_is_of);
    return tap_done();
}
