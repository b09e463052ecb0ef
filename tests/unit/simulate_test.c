/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios as they are read, and that a run depends on nothing but its scenario and seed. */
#include "base/mem.h"
#include "base/rcu.h"
#include "simulate/simulate.h"
#include "tests/harness/tap.h"

#include <string.h>

#define NODES "\"nodes\":[{\"name\":\"n\",\"count\":3,\"capacity\":100,\"bytes\":\"1TiB\"}]"
#define PARTS "\"partitions\":{\"count\":30,\"bytes\":\"1GiB\",\"owners\":\"random\"}"
#define LOAD  "\"load\":{\"generator\":\"noise\"}"
#define HEAD  "\"name\":\"x\",\"duration\":\"2h\","
#define ALL   HEAD NODES "," PARTS "," LOAD

static void refusals(void)
{
    static const struct {
        const char *text, *pointer;
    } cases[] = {
        {"[]", ""},
        {"{", ""},
        {"{" ALL ",\"sed\":1}", "/sed"},
        {"{" NODES "," PARTS "," LOAD ",\"duration\":\"1h\"}", "/name"},
        {"{\"name\":\"x\",\"duration\":3600," NODES "," PARTS "," LOAD "}", "/duration"},
        {"{\"name\":\"x\",\"duration\":\"800h\"," NODES "," PARTS "," LOAD "}", "/duration"},
        {"{" ALL ",\"tick\":\"7s\"}", "/round"},
        {"{" HEAD "\"nodes\":[]," PARTS "," LOAD "}", "/nodes"},
        {"{" HEAD "\"nodes\":[{\"name\":\"n\",\"bytes\":1}]," PARTS "," LOAD "}",
         "/nodes/0/capacity"},
        {"{" HEAD "\"nodes\":[{\"name\":\"n\",\"bytes\":1,\"capacity\":0}]," PARTS "," LOAD "}",
         "/nodes/0/capacity"},
        {"{" HEAD
         "\"nodes\":[{\"name\":\"n\",\"bytes\":1,\"capacity\":1,\"labels\":{\"a\":1}}]," PARTS
         "," LOAD "}",
         "/nodes/0/labels/a"},
        {"{" HEAD NODES ",\"partitions\":{\"count\":30,\"bytes\":\"x\"}," LOAD "}",
         "/partitions/bytes"},
        {"{" HEAD NODES ",\"partitions\":[]," LOAD "}", "/partitions"},
        {"{" HEAD NODES ",\"partitions\":[{\"bytes\":1,\"load\":-1}]}", "/partitions/0/load"},
        {"{" HEAD NODES ",\"partitions\":[{\"bytes\":1,\"load\":1e999}]}", ""},
        {"{" HEAD NODES ",\"partitions\":[{\"bytes\":1,\"series\":[{\"at\":\"1s\",\"load\":1},"
         "{\"at\":\"1s\",\"load\":2}]}]}",
         "/partitions/0/series/1/at"},
        {"{" HEAD NODES "," PARTS ",\"load\":{\"generator\":\"listed\"}}", "/load/generator"},
        {"{" HEAD NODES "," PARTS ",\"load\":{\"generator\":\"nonsense\"}}", "/load/generator"},
        {"{" HEAD NODES "," PARTS ",\"load\":{\"generator\":\"flash\",\"sigma\":3}}",
         "/load/sigma"},
        {"{" ALL ",\"events\":[{\"at\":\"1h\",\"kind\":\"lose\"}]}", "/events/0/node"},
        {"{" ALL ",\"events\":[{\"at\":\"1h\",\"kind\":\"eat\",\"node\":\"n1\"}]}",
         "/events/0/kind"},
        {"{" ALL ",\"events\":[{\"at\":\"2h\",\"kind\":\"lose\",\"node\":\"n1\"}]}",
         "/events/0/at"},
        {"{" ALL ",\"planner\":{\"low\":0.5}}", "/planner/low"},
        {"{" ALL ",\"planner\":{\"hihg\":0.5}}", "/planner/hihg"},
        {"{" ALL ",\"budgets\":{\"source\":{\"moves\":-1}}}", "/budgets/source/moves"},
        {"{" ALL ",\"budgets\":{\"recovery_reserve_percent\":101}}",
         "/budgets/recovery_reserve_percent"},
        {"{" ALL ",\"copies\":{\"sync\":9}}", "/copies/sync"},
        {"{" ALL ",\"copies\":{\"require\":{\"a\":\"B\"}}}", "/copies/require/a"},
        {"{" ALL ",\"windows\":{}}", "/windows"},
        {"{" ALL ",\"windows\":[{\"name\":\"a\",\"kind\":\"x\",\"from\":\"1s\",\"to\":\"2s\"}]}",
         "/windows/0/kind"},
        {"{" ALL ",\"windows\":[{\"name\":\"a\",\"kind\":\"freeze\",\"from\":\"1s\"}]}",
         "/windows/0/to"},
        {"{" ALL ",\"expect\":{\"moves\":9}}", "/expect/moves"},
        {"{" ALL ",\"expect\":{\"recovered_within\":9}}", "/expect/recovered_within"},
    };
    struct scenario *s = mem_zalloc(sizeof *s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e;
        bool refused =
            scenario_read(cases[i].text, strlen(cases[i].text), s, &e) == ERR_INVALID_REQUEST;
        CHECK(refused);
        if (refused) {
            CHECK_STR(e.pointer, cases[i].pointer);
        } else {
            tap_note("%s", cases[i].text);
            scenario_close(s);
        }
    }
    mem_free(s);
}

/* What can be seen only when the fleet is there. */
static void refused_runs(void)
{
    static const struct {
        const char *text, *pointer;
    } cases[] = {
        {"{" ALL ",\"events\":[{\"at\":\"1h\",\"kind\":\"lose\",\"node\":\"m\"}]}", "/events/0"},
        {"{" ALL ",\"copies\":{\"sync\":1}}", "/partitions/owners"},
        {"{" ALL
         ",\"windows\":[{\"name\":\"a\",\"kind\":\"freeze\",\"from\":\"2s\",\"to\":\"2s\"}]}",
         "/windows/0/to"},
        {"{" ALL ",\"windows\":[{\"name\":\"a\",\"kind\":\"freeze\",\"from\":\"1s\",\"to\":\"2s\"},"
         "{\"name\":\"a\",\"kind\":\"freeze\",\"from\":\"1s\",\"to\":\"2s\"}]}",
         "/windows/1/name"},
        {"{" ALL ",\"copies\":{\"require\":{\"a\":\"b\"}}}", "/copies/require"},
        {"{" HEAD NODES ",\"partitions\":[{\"bytes\":1,\"owner\":\"m\"}]}", "/partitions/0/owner"},
        {"{" HEAD "\"nodes\":[{\"name\":\"n\",\"capacity\":1,\"bytes\":1,\"joins\":\"1h\"}]," PARTS
         "," LOAD "}",
         "/nodes"},
    };
    struct scenario *s = mem_zalloc(sizeof *s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct simulate_outcome o;
        struct err e;
        CHECK(scenario_read(cases[i].text, strlen(cases[i].text), s, &e) == ERR_OK);
        CHECK(simulate_run(s, 1, &o, &e) == ERR_INVALID_REQUEST);
        CHECK_STR(e.pointer, cases[i].pointer);
        scenario_close(s);
    }
    mem_free(s);
}

static void run(const char *text, uint64_t seed, struct buf *picture, struct simulate_outcome *o)
{
    struct scenario *s = mem_zalloc(sizeof *s);
    struct err e;
    CHECK(scenario_read(text, strlen(text), s, &e) == ERR_OK);
    CHECK(simulate_run(s, seed, o, &e) == ERR_OK);
    buf_init(picture, SIMULATE_SVG_MAX);
    simulate_svg(s, seed, o, picture);
    CHECK(!picture->overflow && picture->len > 1000);
    struct simulate_verdict v[SIMULATE_VERDICTS_MAX];
    unsigned count = simulate_judge(s, o, v);
    CHECK(count > 0 && v[0].met);
    scenario_close(s);
    mem_free(s);
}

static void same_seed(void)
{
    static const char text[] =
        "{" HEAD NODES "," PARTS ",\"load\":{\"generator\":\"zipf\"},\"events\":["
        "{\"at\":\"30m\",\"kind\":\"lose\",\"node\":\"n2\"},"
        "{\"at\":\"40m\",\"kind\":\"return\",\"node\":\"n2\"}]}";
    struct buf a, b, c;
    struct simulate_outcome x, y, z;
    run(text, 5, &a, &x);
    run(text, 5, &b, &y);
    run(text, 6, &c, &z);
    CHECK(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    CHECK(a.len != c.len || memcmp(a.data, c.data, a.len) != 0);
    CHECK(x.sample_count == y.sample_count && x.revision == y.revision);
    CHECK(memcmp(x.samples, y.samples, x.sample_count * sizeof x.samples[0]) == 0);
    CHECK(x.recovered_ms >= 600000); /* it had the only copies */
    buf_close(&a);
    buf_close(&b);
    buf_close(&c);
    simulate_close(&x);
    simulate_close(&y);
    simulate_close(&z);
}

static void unmet(void)
{
    static const char text[] = "{" ALL ",\"expect\":{\"median_max\":0.5,\"moves_min\":0,"
                               "\"drained_within\":\"1h\",\"advice\":[\"hot_key\"]}}";
    struct scenario *s = mem_zalloc(sizeof *s);
    struct simulate_verdict v[SIMULATE_VERDICTS_MAX];
    struct simulate_outcome o;
    struct err e;
    CHECK(scenario_read(text, strlen(text), s, &e) == ERR_OK);
    CHECK(simulate_run(s, 1, &o, &e) == ERR_OK);
    CHECK(simulate_judge(s, &o, v) == 5);
    CHECK(v[0].met);  /* violations */
    CHECK(!v[1].met); /* the most is never below the mean */
    CHECK(v[2].met);
    CHECK(!v[3].met); /* nothing was drained */
    CHECK(!v[4].met);
    simulate_close(&o);
    scenario_close(s);
    mem_free(s);
}

int main(void)
{
    rcu_reader_start();
    RUN(refusals);
    RUN(refused_runs);
    RUN(same_seed);
    RUN(unmet);
    rcu_drain();
    rcu_reader_stop();
    return tap_done();
}
