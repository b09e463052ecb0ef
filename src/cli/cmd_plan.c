/* SPDX-License-Identifier: Apache-2.0 */
/* `cadastre plan`: flags to src/cli/plan.h, and its figures to JSON or a table. */
#include "cli/cmd.h"
#include "cli/plan.h"

#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

enum { TEXT_MAX = 4096, RESERVE_PPM = 100000, FACTOR_PPM_MAX = 100 * PLAN_PPM };

/* --- flags --- */

typedef bool parse_fn(const char *text, uint64_t *ret_value);

/* The flag, if it was given; false after a message. */
static bool
take(const struct cli *c, const char *name, parse_fn *parse, const char *wanted, uint64_t *ret)
{
    const char *text = args_get(c->args, name);
    if (text == NULL || parse(text, ret)) {
        return true;
    }
    (void)cli_fail(EXIT_USAGE, "--%s takes %s, not '%.80s'", name, wanted, text);
    return false;
}

static bool take_size(const struct cli *c, const char *name, uint64_t *ret)
{
    return take(c, name, parse_size_bytes, "a size such as 512GiB", ret);
}

static bool take_rate(const struct cli *c, const char *name, uint64_t *ret)
{
    return take(c, name, parse_rate_bytes, "bytes per second such as 64MiB/s", ret);
}

static bool take_percent(const struct cli *c, const char *name, uint32_t max_ppm, uint32_t *ret)
{
    const char *text = args_get(c->args, name);
    if (text == NULL || parse_percent_ppm(text, max_ppm, ret)) {
        return true;
    }
    (void)cli_fail(EXIT_USAGE,
                   "--%s takes a percentage such as 10%% or 12.5%%, at most %u%%, "
                   "not '%.80s'",
                   name, max_ppm / (PLAN_PPM / 100), text);
    return false;
}

/* --- figures for people --- */

/* "2h 16m 32s" */
static void put_seconds(struct buf *b, uint64_t s)
{
    if (s >= 3600) {
        buf_printf(b, "%lluh ", (unsigned long long)(s / 3600));
    }
    if (s >= 60) {
        buf_printf(b, "%um ", (unsigned)(s / 60 % 60));
    }
    buf_printf(b, "%us", (unsigned)(s % 60));
}

static json_t *take_text(struct buf *b)
{
    json_t *text = json_stringn((const char *)b->data, b->len);
    buf_reset(b);
    return text;
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Whole when it is whole; else the double next to it. */
static json_t *fraction(struct plan_ratio r)
{
    return r.den == 1 ? number(r.num) : json_real((double)r.num / (double)r.den);
}

static void set(json_t *object, const char *name, json_t *value)
{
    (void)json_object_set_new(object, name, value);
}

static void add_advice(json_t *advice, struct buf *b)
{
    (void)json_array_append_new(advice, take_text(b));
}

/* --- tables: the answer's own members, row by row --- */

static const struct out_column figure_columns[] = {{"FIGURE", "figure", NULL},
                                                   {"VALUE", "value", NULL},
                                                   {"EXACT", "exact", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view figure_view = {"figure", figure_columns};

static void put_size_cell(struct buf *cell, const json_t *bytes)
{
    plan_put_bytes(cell, (uint64_t)json_integer_value(bytes));
}

static const struct out_column component_columns[] = {{"COMPONENT", "name", NULL},
                                                      {"SIZE", "bytes", put_size_cell},
                                                      {"BYTES", "bytes", NULL},
                                                      {"COMPUTED FROM", "from", NULL},
                                                      {NULL, NULL, NULL}};
static const struct out_view component_view = {"name", component_columns};

static const struct out_column owner_columns[] = {{"SHARED OWNER", "owner", NULL},
                                                  {"SALTS", "salts", NULL},
                                                  {"RATE", "rate", NULL},
                                                  {"FITS", "fits", NULL},
                                                  {NULL, NULL, NULL}};
static const struct out_view owner_view = {"owner", owner_columns};

enum unit { PLAIN, BYTES, BYTES_PER_S, SECONDS };

struct figure {
    const char *title, *member; /* of the answer */
    enum unit unit;
};

static void put_value(struct buf *b, const json_t *value, enum unit unit)
{
    json_int_t n = json_integer_value(value);
    if (unit == PLAIN || !json_is_integer(value)) {
        out_put_json(b, value);
    } else if (unit == SECONDS) {
        put_seconds(b, (uint64_t)n);
    } else {
        buf_put_str(b, n < 0 ? "-" : "");
        plan_put_bytes(b, n < 0 ? (uint64_t)-n : (uint64_t)n);
        buf_put_str(b, unit == BYTES_PER_S ? "/s" : "");
    }
}

/* Members that the answer has not are left out. */
static json_t *figure_rows(const json_t *answer, const struct figure *figures)
{
    static const char *const suffixes[] = {"", " bytes", " bytes/s", " s"};
    json_t *rows = json_array();
    struct buf b;
    buf_init(&b, TEXT_MAX);
    for (; figures->title != NULL; figures++) {
        const json_t *value = json_object_get(answer, figures->member);
        if (value == NULL) {
            continue;
        }
        json_t *row = json_object();
        set(row, "figure", json_string(figures->title));
        put_value(&b, value, figures->unit);
        set(row, "value", take_text(&b));
        out_put_json(&b, value);
        buf_put_str(&b, json_is_null(value) ? "" : suffixes[figures->unit]);
        set(row, "exact", take_text(&b));
        (void)json_array_append_new(rows, row);
    }
    buf_close(&b);
    return rows;
}

static void print_figures(struct cli *c, const json_t *answer, const struct figure *figures)
{
    json_t *rows = figure_rows(answer, figures);
    out_rows(&c->out, &figure_view, rows);
    json_decref(rows);
    out_restart(&c->out);
}

static void print_rows(struct cli *c, const json_t *rows, const struct out_view *view)
{
    if (json_array_size(rows) > 0) {
        (void)fputc('\n', c->out.file);
        out_rows(&c->out, view, rows);
        out_restart(&c->out);
    }
}

static void print_advice(struct cli *c, const json_t *advice)
{
    size_t at;
    json_t *line;
    json_array_foreach(advice, at, line)
    {
        (void)fprintf(c->out.file, "%s%s\n", at == 0 ? "\n" : "", json_string_value(line));
    }
}

/* True when the format is one that shows the answer as it is; then it was printed. */
static bool print_plain(struct cli *c, const json_t *answer, const char *name)
{
    const struct out_view view = {name, figure_columns};
    if (c->out.format == OUT_TABLE) {
        return false;
    }
    out_object(&c->out, &view, answer);
    return true;
}

/* --- plan move --- */

static json_t *move_advice(const struct plan_move *p, uint32_t reserve_ppm)
{
    char lines[PLAN_ADVICE][PLAN_ADVICE_MAX];
    json_t *advice = json_array();
    unsigned n = plan_move_advice(p, reserve_ppm, lines);
    for (unsigned i = 0; i < n; i++) {
        (void)json_array_append_new(advice, json_string(lines[i]));
    }
    return advice;
}

static json_t *move_answer(const struct plan_move_input *in, const struct plan_move *p)
{
    json_t *answer = json_object(), *components = json_array();
    set(answer, "copy_s", number(p->copy_s));
    set(answer, "peak_bytes_per_s", number(p->peak));
    set(answer, "margin_bytes_per_s", json_integer(p->margin));
    set(answer, "dual_write_bytes", number(p->dual_write_bytes));
    set(answer, "advised_copy_rate_bytes_per_s", number(p->advised_rate));
    set(answer, "advised_copy_s", p->advised_rate > 0 ? number(p->advised_s) : json_null());
    for (unsigned i = 0; i < PLAN_COMPONENTS; i++) {
        const struct plan_component *from = &p->components[i];
        json_t *one = json_object();
        set(one, "name", json_string(from->name));
        set(one, "bytes", number(from->bytes));
        set(one, "from", json_string(from->from));
        (void)json_array_append_new(components, one);
    }
    set(answer, "components", components);
    set(answer, "advice", move_advice(p, in->reserve_ppm));
    return answer;
}

static bool move_flags(const struct cli *c, struct plan_move_input *in)
{
    return take_size(c, "size", &in->size) && take_rate(c, "copy-rate", &in->copy_rate) &&
           take_rate(c, "live-rate", &in->live_rate) && take_rate(c, "budget", &in->budget) &&
           take(c, "dual-write", parse_duration_ms, "a duration such as 12m", &in->dual_write_ms) &&
           take_percent(c, "reserve", PLAN_PPM - 1, &in->reserve_ppm) &&
           take_percent(c, "index-work", FACTOR_PPM_MAX, &in->index_work_ppm) &&
           take_percent(c, "cache-warmup", PLAN_PPM, &in->cache_warmup_ppm);
}

static int move_run(struct cli *c)
{
    static const struct figure figures[] = {
        {"copy time", "copy_s", SECONDS},
        {"peak", "peak_bytes_per_s", BYTES_PER_S},
        {"margin", "margin_bytes_per_s", BYTES_PER_S},
        {"dual writes", "dual_write_bytes", BYTES},
        {"advised copy rate", "advised_copy_rate_bytes_per_s", BYTES_PER_S},
        {"advised copy time", "advised_copy_s", SECONDS},
        {NULL, NULL, PLAIN}};
    struct plan_move_input in = {.reserve_ppm = RESERVE_PPM,
                                 .checksum_passes = args_number(c->args, "checksum-passes", 1),
                                 .replicas = args_number(c->args, "replicas", 0)};
    struct plan_move plan;
    struct err e;
    if (!move_flags(c, &in)) {
        return EXIT_USAGE;
    }
    if (plan_move(&in, &plan, &e) != ERR_OK) {
        return cli_fail(EXIT_USAGE, "%s", e.detail);
    }
    json_t *answer = move_answer(&in, &plan);
    if (!print_plain(c, answer, "advised_copy_rate_bytes_per_s")) {
        print_figures(c, answer, figures);
        print_rows(c, json_object_get(answer, "components"), &component_view);
        print_advice(c, json_object_get(answer, "advice"));
    }
    json_decref(answer);
    return EXIT_DONE;
}

/* --- plan shards --- */

static json_t *hot_answer(const struct plan_shards_input *in, const struct plan_shards *p)
{
    json_t *hot = json_object();
    set(hot, "rate", fraction(p->hot_rate));
    set(hot, "bucket_rate", fraction(p->bucket_rate));
    set(hot, "background_rate", fraction(p->background_rate));
    set(hot, "owner_rate", fraction(p->owner_rate));
    set(hot, "limit", number(in->shard_rate));
    set(hot, "fits", json_boolean(p->fits));
    set(hot, "buckets_per_owner", number(p->buckets_per_owner));
    return hot;
}

static json_t *shards_advice(const struct plan_shards_input *in, const struct plan_shards *p)
{
    json_t *advice = json_array();
    struct buf b;
    buf_init(&b, TEXT_MAX);
    if (in->hot_buckets > 0 && !p->fits && p->buckets_needed > 0) {
        buf_printf(&b, "%llu buckets would fit", (unsigned long long)p->buckets_needed);
        add_advice(advice, &b);
    } else if (in->hot_buckets > 0 && !p->fits) {
        buf_put_str(&b, "no number of buckets fits: more shards, or stronger ones, are needed");
        add_advice(advice, &b);
    }
    buf_close(&b);
    return advice;
}

static json_t *shards_answer(const struct plan_shards_input *in, const struct plan_shards *p)
{
    json_t *answer = json_object(), *shard = json_object();
    set(answer, "throughput_floor", number(p->throughput_floor));
    set(answer, "storage_floor", number(p->storage_floor));
    set(answer, "shards", number(p->shards));
    set(answer, "binding", json_string(p->binding));
    set(shard, "rate", fraction(p->rate));
    set(shard, "bytes", number(p->bytes));
    set(answer, "per_shard", shard);
    if (in->hot_buckets > 0) {
        set(answer, "hot", hot_answer(in, p));
    }
    set(answer, "advice", shards_advice(in, p));
    return answer;
}

static int shards_flags(const struct cli *c, struct plan_shards_input *in)
{
    *in = (struct plan_shards_input){.rate = args_number(c->args, "rate", 0),
                                     .shard_rate = args_number(c->args, "shard-rate", 0),
                                     .hot_buckets = args_number(c->args, "hot-buckets", 0)};
    if (!take_size(c, "size", &in->size) || !take_size(c, "shard-size", &in->shard_size) ||
        !take_percent(c, "hot-share", PLAN_PPM, &in->hot_ppm)) {
        return EXIT_USAGE;
    }
    if (args_has(c->args, "hot-share") != args_has(c->args, "hot-buckets")) {
        return cli_fail(EXIT_USAGE, "--hot-share and --hot-buckets go together");
    }
    if (args_has(c->args, "hot-buckets") && in->hot_buckets == 0) {
        return cli_fail(EXIT_USAGE, "--hot-buckets must be above 0");
    }
    return EXIT_DONE;
}

static int shards_run(struct cli *c)
{
    static const struct figure figures[] = {{"shards for the rate", "throughput_floor", PLAIN},
                                            {"shards for the size", "storage_floor", PLAIN},
                                            {"shards", "shards", PLAIN},
                                            {"binding", "binding", PLAIN},
                                            {NULL, NULL, PLAIN}};
    static const struct figure shard_figures[] = {{"rate of a shard", "rate", PLAIN},
                                                  {"size of a shard", "bytes", BYTES},
                                                  {NULL, NULL, PLAIN}};
    static const struct figure hot_figures[] = {{"hot rate", "rate", PLAIN},
                                                {"rate of a bucket", "bucket_rate", PLAIN},
                                                {"rate beside it", "background_rate", PLAIN},
                                                {"rate of its owner", "owner_rate", PLAIN},
                                                {"limit", "limit", PLAIN},
                                                {"fits", "fits", PLAIN},
                                                {NULL, NULL, PLAIN}};
    struct plan_shards_input in;
    struct plan_shards plan;
    struct err e;
    int code = shards_flags(c, &in);
    if (code != EXIT_DONE) {
        return code;
    }
    if (plan_shards(&in, &plan, &e) != ERR_OK) {
        return cli_fail(EXIT_USAGE, "%s", e.detail);
    }
    json_t *answer = shards_answer(&in, &plan), *hot = json_object_get(answer, "hot");
    if (!print_plain(c, answer, "shards")) {
        json_t *rows = figure_rows(answer, figures);
        json_t *more = figure_rows(json_object_get(answer, "per_shard"), shard_figures);
        (void)json_array_extend(rows, more);
        json_decref(more);
        more = hot != NULL ? figure_rows(hot, hot_figures) : json_array();
        (void)json_array_extend(rows, more);
        json_decref(more);
        out_rows(&c->out, &figure_view, rows);
        json_decref(rows);
        print_advice(c, json_object_get(answer, "advice"));
    }
    json_decref(answer);
    return EXIT_DONE;
}

/* --- plan salt --- */

static json_t *salt_answer(const struct plan_salt *p)
{
    json_t *answer = json_object(), *shared = json_array();
    set(answer, "cold_rate", fraction(p->cold_rate));
    set(answer, "unsplit_owner_rate", fraction(p->unsplit_owner_rate));
    set(answer, "salt_rate", fraction(p->salt_rate));
    set(answer, "salted_owner_rate", fraction(p->salted_owner_rate));
    set(answer, "fits", json_boolean(p->fits));
    for (unsigned i = 0; i < p->shared_count; i++) {
        const struct plan_owner *o = &p->shared[i];
        json_t *one = json_object();
        set(one, "owner", json_stringn((const char *)o->name.data, o->name.len));
        set(one, "salts", number(o->salts));
        set(one, "rate", fraction(o->rate));
        set(one, "fits", json_boolean(o->fits));
        (void)json_array_append_new(shared, one);
    }
    set(answer, "shared_owners", shared);
    set(answer, "salts_per_owner", number(p->salts_per_owner));
    return answer;
}

static int salt_run(struct cli *c)
{
    static const struct figure figures[] = {
        {"rate of a partition without the key", "cold_rate", PLAIN},
        {"rate of the key's owner, unsplit", "unsplit_owner_rate", PLAIN},
        {"rate of a salt", "salt_rate", PLAIN},
        {"rate of a salt's owner", "salted_owner_rate", PLAIN},
        {"salts of an owner", "salts_per_owner", PLAIN},
        {"fits", "fits", PLAIN},
        {NULL, NULL, PLAIN}};
    const struct plan_salt_input in = {.total = args_number(c->args, "total", 0),
                                       .hot = args_number(c->args, "hot", 0),
                                       .limit = args_number(c->args, "limit", 0),
                                       .partitions = args_number(c->args, "partitions", 0),
                                       .salts = args_number(c->args, "salts", 0),
                                       .owners = args_get(c->args, "owners")};
    struct plan_salt plan;
    struct err e;
    if (plan_salt(&in, &plan, &e) != ERR_OK) {
        return cli_fail(EXIT_USAGE, "%s", e.detail);
    }
    json_t *answer = salt_answer(&plan);
    if (!print_plain(c, answer, "fits")) {
        print_figures(c, answer, figures);
        print_rows(c, json_object_get(answer, "shared_owners"), &owner_view);
    }
    json_decref(answer);
    plan_salt_close(&plan);
    return EXIT_DONE;
}

/* --- the table --- */

static const struct cli_flag move_flag_table[] = {
    {"size", "SIZE", "What is to be copied", ARGS_TEXT, 0, true, false},
    {"copy-rate", "RATE", "How fast it is copied: 64MiB/s", ARGS_TEXT, 0, true, false},
    {"live-rate", "RATE", "How fast it changes meanwhile", ARGS_TEXT, 0, true, false},
    {"budget", "RATE", "What the path can carry in all", ARGS_TEXT, 0, true, false},
    {"dual-write", "DURATION", "How long writes go to both", ARGS_TEXT, 0, true, false},
    {"reserve", "PERCENT", "Of the budget, kept free for what is not known (10%)", ARGS_TEXT, 0,
     false, false},
    {"checksum-passes", "N", "How often each side is read whole for its checksum (1)", ARGS_NUMBER,
     0, false, false},
    {"index-work", "PERCENT", "Of what the destination writes, for its indexes (0%)", ARGS_TEXT, 0,
     false, false},
    {"cache-warmup", "PERCENT", "Of the size, read to warm caches (0%)", ARGS_TEXT, 0, false,
     false},
    {"replicas", "N", "Further copies beside the destination (0)", ARGS_NUMBER, 0, false, false},
    CLI_FLAGS_END};
static const struct cli_flag shards_flag_table[] = {
    {"rate", "N", "Requests per second in all", ARGS_NUMBER, 0, true, false},
    {"shard-rate", "N", "What one shard can do", ARGS_NUMBER, 0, true, false},
    {"size", "SIZE", "Bytes in all", ARGS_TEXT, 0, true, false},
    {"shard-size", "SIZE", "What one shard can hold", ARGS_TEXT, 0, true, false},
    {"hot-share", "PERCENT", "The share of the rate that goes to one key", ARGS_TEXT, 0, false,
     false},
    {"hot-buckets", "N", "Into how many buckets that key is cut", ARGS_NUMBER, 0, false, false},
    CLI_FLAGS_END};
static const struct cli_flag salt_flag_table[] = {
    {"total", "N", "Requests per second in all", ARGS_NUMBER, 0, true, false},
    {"hot", "N", "Those that go to one key", ARGS_NUMBER, 0, true, false},
    {"partitions", "N", "Over how many the rest is spread", ARGS_NUMBER, 0, true, false},
    {"salts", "N", "Into how many salts the key is cut", ARGS_NUMBER, 0, true, false},
    {"limit", "N", "What one owner can do", ARGS_NUMBER, 0, true, false},
    {"owners", "NAME[,NAME...]", "Who got each salt", ARGS_TEXT, 0, false, false},
    CLI_FLAGS_END};

const struct cli_command plan_commands[] = {
    {"move", "", "What a move costs, and whether the budget carries it",
     "cadastre plan move --size 512GiB --copy-rate 64MiB/s --live-rate 30MiB/s --budget 96MiB/s "
     "--dual-write 12m\n",
     move_flag_table, move_run},
    {"shards", "", "How many shards a rate and a size need",
     "cadastre plan shards --rate 5000 --shard-rate 200 --size 10400GB --shard-size 200GB\n"
     "cadastre plan shards --rate 5000 --shard-rate 200 --size 10400GB --shard-size 200GB "
     "--hot-share 20% --hot-buckets 8 -o json\n",
     shards_flag_table, shards_run},
    {"salt", "", "Whether salting a hot key brings its owners below their limit",
     "cadastre plan salt --total 80000 --hot 32000 --partitions 16 --salts 8 --limit 10000\n",
     salt_flag_table, salt_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
