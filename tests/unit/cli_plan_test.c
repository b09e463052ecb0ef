/* SPDX-License-Identifier: Apache-2.0 */
/* `cadastre plan`, from its flags to what it prints. */
#include "base/mem.h"
#include "base/parse.h"
#include "cli/cmd.h"
#include "cli/plan.h"
#include "tests/harness/tap.h"

#include <string.h>
#include <unistd.h>

enum { WORDS_MAX = 32, LINE_MAX_LEN = 512 };

/* Runs `cadastre plan LINE`; the caller frees what was printed. -1: it is refused as a command line
 * before it runs. */
static int run_plan(const char *line, char **ret_text)
{
    char copy[LINE_MAX_LEN], *words[WORDS_MAX], *rest = copy, *word;
    int n = 0;
    (void)snprintf(copy, sizeof copy, "cadastre plan %s", line);
    while (n < WORDS_MAX && (word = strsep(&rest, " ")) != NULL) {
        words[n++] = word;
    }
    struct args a;
    struct err e = {0};
    size_t len = 0;
    int code = -1;
    *ret_text = NULL;
    FILE *file = open_memstream(ret_text, &len);
    if (args_parse(&cli_grammar, n, words, &a, &e) == ERR_OK) {
        struct cli c = {.grammar = &cli_grammar, .args = &a};
        const char *format = args_get(&a, "output");
        c.out = (struct out){.file = file, .headers = true};
        CHECK(out_format_parse(format != NULL ? format : "table", &c.out.format));
        code = a.command->run(&c);
    } else {
        tap_note("%s", e.detail);
    }
    args_close(&a);
    (void)fclose(file);
    return code;
}

static void prints(const char *line, const char *want)
{
    char *text;
    tap_note("plan %s", line);
    CHECK_U64(run_plan(line, &text), EXIT_DONE);
    CHECK_STR(text, want);
    mem_free(text);
}

/* The members of the answer that are numbers. */
static uint64_t figure(const char *line, const char *member)
{
    char *text;
    tap_note("plan %s: %s", line, member);
    CHECK_U64(run_plan(line, &text), EXIT_DONE);
    json_t *answer = json_loads(text, 0, NULL), *value = json_object_get(answer, member);
    if (json_is_array(json_object_get(answer, "components"))) {
        size_t at;
        json_t *one;
        json_array_foreach(json_object_get(answer, "components"), at, one)
        {
            const char *name = json_string_value(json_object_get(one, "name"));
            value = strcmp(name, member) == 0 ? json_object_get(one, "bytes") : value;
        }
    }
    CHECK(json_is_integer(value));
    uint64_t number = (uint64_t)json_integer_value(value);
    json_decref(answer);
    mem_free(text);
    return number;
}

/* --- what it has to come to --- */

#define MOVE                                                                                       \
    "move --size 512GiB --copy-rate 64MiB/s --live-rate 30MiB/s --budget 96MiB/s --dual-write 12m"

static void moves_half_a_tebibyte(void)
{
    prints(MOVE " -o jsonl",
           "{\"copy_s\":8192,\"peak_bytes_per_s\":98566144,\"margin_bytes_per_s\":2097152,"
           "\"dual_write_bytes\":22649241600,\"advised_copy_rate_bytes_per_s\":59139686,"
           "\"advised_copy_s\":9296,\"components\":["
           "{\"name\":\"source_reads\",\"bytes\":549755813888,\"from\":\"size\"},"
           "{\"name\":\"destination_writes\",\"bytes\":807453851648,"
           "\"from\":\"size + live rate x copy time\"},"
           "{\"name\":\"checksums\",\"bytes\":1099511627776,"
           "\"from\":\"size x 2 sides x checksum passes\"},"
           "{\"name\":\"change_capture\",\"bytes\":257698037760,"
           "\"from\":\"live rate x copy time\"},"
           "{\"name\":\"dual_writes\",\"bytes\":22649241600,"
           "\"from\":\"live rate x dual-write time\"},"
           "{\"name\":\"index_work\",\"bytes\":0,"
           "\"from\":\"index work x (destination writes + dual writes)\"},"
           "{\"name\":\"cache_warmup\",\"bytes\":0,\"from\":\"cache warm-up x size\"},"
           "{\"name\":\"replica_work\",\"bytes\":0,"
           "\"from\":\"replicas x (destination writes + dual writes)\"}],"
           "\"advice\":["
           "\"the margin of 2 MiB/s is too thin: a reserve of 10% is 9.6 MiB/s\","
           "\"copy at 56.4 MiB/s at most: the copy then takes 9296 s\"]}\n");
    prints(MOVE " -o name", "59139686\n");
}

static void shows_a_move_as_a_table(void)
{
    char *text;
    CHECK_U64(run_plan(MOVE, &text), EXIT_DONE);
    static const char *const lines[] = {
        "FIGURE             VALUE       EXACT\n",
        "copy time          2h 16m 32s  8192 s\n",
        "peak               94 MiB/s    98566144 bytes/s\n",
        "advised copy rate  56.4 MiB/s  59139686 bytes/s\n",
        "dual_writes         21.1 GiB  22649241600    live rate x dual-write time\n",
        "\n\nthe margin of 2 MiB/s is too thin"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        tap_note("%s", lines[i]);
        CHECK(strstr(text, lines[i]) != NULL);
    }
    mem_free(text);
}

static void costs_by_component(void)
{
    static const char line[] =
        "move --size 1000 --copy-rate 10B/s --live-rate 2B/s --budget 100B/s --dual-write 1500ms "
        "--index-work 150% --cache-warmup 2.5% --checksum-passes 3 --replicas 2 -o json";
    static const struct {
        const char *name;
        uint64_t bytes;
    } table[] = {{"source_reads", 1000},  {"destination_writes", 1200}, {"checksums", 6000},
                 {"change_capture", 200}, {"dual_writes", 3},           {"index_work", 1804},
                 {"cache_warmup", 25},    {"replica_work", 2406}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CHECK_U64(figure(line, table[i].name), table[i].bytes);
    }
}

static void shards_by_storage(void)
{
    prints("shards --rate 5000 --shard-rate 200 --size 10400GB --shard-size 200GB --hot-share 20% "
           "--hot-buckets 8 -o jsonl",
           "{\"throughput_floor\":25,\"storage_floor\":52,\"shards\":64,\"binding\":\"storage\","
           "\"per_shard\":{\"rate\":78.125,\"bytes\":162500000000},"
           "\"hot\":{\"rate\":1000,\"bucket_rate\":125,\"background_rate\":62.5,"
           "\"owner_rate\":187.5,\"limit\":200,\"fits\":true,\"buckets_per_owner\":1},"
           "\"advice\":[]}\n");
    prints("shards --rate 5000 --shard-rate 200 --size 10400GB --shard-size 200GB -o jsonl",
           "{\"throughput_floor\":25,\"storage_floor\":52,\"shards\":64,\"binding\":\"storage\","
           "\"per_shard\":{\"rate\":78.125,\"bytes\":162500000000},\"advice\":[]}\n");
    prints("shards --rate 10001 --shard-rate 200 --size 0 --shard-size 1 -o name", "64\n");
}

static void shards_say_what_would_fit(void)
{
    /* 4000/64 = 62.5 beside it leaves 137.5 for a bucket: 1000/137.5 = 7.3. */
    prints("shards --rate 5000 --shard-rate 200 --size 10400GB --shard-size 200GB --hot-share 20% "
           "--hot-buckets 7",
           "FIGURE               VALUE             EXACT\n"
           "shards for the rate  25                25\n"
           "shards for the size  52                52\n"
           "shards               64                64\n"
           "binding              storage           storage\n"
           "rate of a shard      78.125            78.125\n"
           "size of a shard      151.3 GiB         162500000000 bytes\n"
           "hot rate             1000              1000\n"
           "rate of a bucket     142.857142857143  142.857142857143\n"
           "rate beside it       62.5              62.5\n"
           "rate of its owner    205.357142857143  205.357142857143\n"
           "limit                200               200\n"
           "fits                 false             false\n"
           "\n8 buckets would fit\n");
}

static void salts_a_hot_key(void)
{
    prints(
        "salt --total 80000 --hot 32000 --partitions 16 --salts 8 --limit 10000 -o jsonl",
        "{\"cold_rate\":3000,\"unsplit_owner_rate\":35000,\"salt_rate\":4000,"
        "\"salted_owner_rate\":7000,\"fits\":true,\"shared_owners\":[],\"salts_per_owner\":1}\n");
    prints("salt --total 80000 --hot 32000 --partitions 16 --salts 8 --limit 10000 --owners "
           "a,b,c,d,e,f,g,h -o name",
           "true\n");
    prints("salt --total 80000 --hot 32000 --partitions 16 --salts 8 --limit 11000 --owners "
           "c,b,a,a,b,d,a,e -o jsonl",
           "{\"cold_rate\":3000,\"unsplit_owner_rate\":35000,\"salt_rate\":4000,"
           "\"salted_owner_rate\":7000,\"fits\":false,\"shared_owners\":["
           "{\"owner\":\"b\",\"salts\":2,\"rate\":11000,\"fits\":true},"
           "{\"owner\":\"a\",\"salts\":3,\"rate\":15000,\"fits\":false}],\"salts_per_owner\":1}\n");
    /* Five salts on four partitions: one has two. */
    prints("salt --total 100 --hot 50 --partitions 4 --salts 5 --limit 32 -o jsonl",
           "{\"cold_rate\":12.5,\"unsplit_owner_rate\":62.5,\"salt_rate\":10,"
           "\"salted_owner_rate\":32.5,\"fits\":false,\"shared_owners\":[],"
           "\"salts_per_owner\":2}\n");
}

/* --- edges --- */

static struct plan_move_input small_move(void)
{
    return (struct plan_move_input){.size = 1000,
                                    .copy_rate = 10,
                                    .live_rate = 4,
                                    .budget = 20,
                                    .dual_write_ms = 1000,
                                    .checksum_passes = 1,
                                    .reserve_ppm = 100000};
}

static void moves_at_the_edges(void)
{
    struct plan_move p;
    struct err e;
    struct plan_move_input in = small_move();
    CHECK(plan_move(&in, &p, &e) == ERR_OK);
    CHECK(!p.too_thin && !p.falls_behind);
    CHECK_U64(p.advised_rate, 14);
    CHECK_U64(p.advised_s, 72);

    in.budget = 14; /* exactly the peak */
    CHECK(plan_move(&in, &p, &e) == ERR_OK && p.margin == 0 && p.too_thin);
    in.reserve_ppm = 0;
    CHECK(plan_move(&in, &p, &e) == ERR_OK && !p.too_thin);
    CHECK_U64(p.advised_rate, 10);

    in.budget = 3; /* below the live rate */
    CHECK(plan_move(&in, &p, &e) == ERR_OK && p.margin == -11 && p.too_thin);
    CHECK_U64(p.advised_rate, 0);
    CHECK_U64(p.advised_s, 0);

    in = small_move();
    in.live_rate = 10;
    CHECK(plan_move(&in, &p, &e) == ERR_OK && p.falls_behind);

    in = small_move();
    in.live_rate = in.size = in.dual_write_ms = 0;
    CHECK(plan_move(&in, &p, &e) == ERR_OK);
    CHECK_U64(p.copy_s, 0);
    CHECK_U64(p.dual_write_bytes, 0);

    in = small_move(); /* 999 ms of 1 byte/s is a byte */
    in.live_rate = 1;
    in.dual_write_ms = 999;
    CHECK(plan_move(&in, &p, &e) == ERR_OK);
    CHECK_U64(p.dual_write_bytes, 1);
}

static void says_when_nothing_is_left(void)
{
    char *text;
    CHECK_U64(run_plan("move --size 1GiB --copy-rate 8MiB/s --live-rate 30MiB/s --budget 20MiB/s "
                       "--dual-write 0s -o jsonl",
                       &text),
              EXIT_DONE);
    CHECK(strstr(text, "\"margin_bytes_per_s\":-18874368,") != NULL);
    CHECK(strstr(text, "\"advised_copy_rate_bytes_per_s\":0,\"advised_copy_s\":null,") != NULL);
    CHECK(strstr(text, "the peak is above the budget by 18 MiB/s") != NULL);
    CHECK(strstr(text, "raise the budget") != NULL);
    CHECK(strstr(text, "catching up may never end") != NULL);
    mem_free(text);
}

static void refuses_what_does_not_fit(void)
{
    struct plan_move p;
    struct err e;
    struct plan_move_input in = small_move();
    in.size = PARSE_INT_MAX + 1;
    CHECK(plan_move(&in, &p, &e) == ERR_INVALID_REQUEST);
    in = small_move();
    in.size = PARSE_INT_MAX; /* both sides' checksums are twice that */
    CHECK(plan_move(&in, &p, &e) == ERR_INVALID_REQUEST);
    in.checksum_passes = 0;
    in.live_rate = 0;
    CHECK(plan_move(&in, &p, &e) == ERR_OK);
    in.replicas = PARSE_INT_MAX; /* wraps in 64 bits */
    CHECK(plan_move(&in, &p, &e) == ERR_INVALID_REQUEST);
    in = small_move();
    in.live_rate = in.dual_write_ms = PARSE_INT_MAX;
    CHECK(plan_move(&in, &p, &e) == ERR_INVALID_REQUEST);
    in = small_move();
    in.copy_rate = in.budget = PARSE_INT_MAX;
    CHECK(plan_move(&in, &p, &e) == ERR_INVALID_REQUEST); /* the peak */
    in.live_rate = 0;
    CHECK(plan_move(&in, &p, &e) == ERR_OK);
    CHECK_U64(p.advised_rate, UINT64_C(8106479329266891)); /* floor(0.9 * (2^53 - 1)) */

    struct plan_shards s;
    struct plan_shards_input shards = {.rate = PARSE_INT_MAX, .shard_rate = 1, .shard_size = 1};
    CHECK(plan_shards(&shards, &s, &e) == ERR_INVALID_REQUEST); /* 2^53 shards */
    shards.rate /= 2;
    CHECK(plan_shards(&shards, &s, &e) == ERR_OK && s.shards == UINT64_C(1) << 52);
    shards = (struct plan_shards_input){.rate = PARSE_INT_MAX,
                                        .shard_rate = PARSE_INT_MAX,
                                        .shard_size = 1,
                                        .hot_ppm = 333333,
                                        .hot_buckets = 999983};
    CHECK(plan_shards(&shards, &s, &e) == ERR_INVALID_REQUEST); /* no exact fraction */

    struct plan_salt t;
    struct plan_salt_input salt = {.total = PARSE_INT_MAX,
                                   .hot = 2,
                                   .partitions = PARSE_INT_MAX - 1,
                                   .salts = PARSE_INT_MAX - 3};
    CHECK(plan_salt(&salt, &t, &e) == ERR_INVALID_REQUEST);
}

static void plans_shards_at_the_edges(void)
{
    struct plan_shards p;
    struct err e;
    struct plan_shards_input in = {.shard_rate = 1, .shard_size = 1};
    CHECK(plan_shards(&in, &p, &e) == ERR_OK);
    CHECK_U64(p.shards, 1);
    CHECK_STR(p.binding, "both");
    in = (struct plan_shards_input){.rate = 65, .shard_rate = 1, .size = 1, .shard_size = 1};
    CHECK(plan_shards(&in, &p, &e) == ERR_OK);
    CHECK_U64(p.shards, 128);
    CHECK_STR(p.binding, "throughput");
    CHECK_U64(p.bytes, 1);
    /* Eight buckets on two shards: each has four. */
    in = (struct plan_shards_input){.rate = 16,
                                    .shard_rate = 8,
                                    .size = 2,
                                    .shard_size = 1,
                                    .hot_ppm = 500000,
                                    .hot_buckets = 8};
    CHECK(plan_shards(&in, &p, &e) == ERR_OK && p.fits);
    CHECK_U64(p.buckets_per_owner, 4);
    CHECK(p.owner_rate.num == 8 && p.owner_rate.den == 1);
    /* The rest alone is too much: no number of buckets helps. */
    in = (struct plan_shards_input){
        .rate = 16, .shard_rate = 16, .size = 0, .shard_size = 1, .hot_ppm = 1, .hot_buckets = 1};
    CHECK(plan_shards(&in, &p, &e) == ERR_OK && p.fits);
    in.shard_rate = 15;
    in.hot_ppm = 500000;
    in.rate = 30;
    CHECK(plan_shards(&in, &p, &e) == ERR_OK && !p.fits && p.shards == 2);
    CHECK_U64(p.buckets_needed, 2);
    in.hot_ppm = 1000000;
    in.hot_buckets = 2;
    CHECK(plan_shards(&in, &p, &e) == ERR_OK && p.fits && p.buckets_needed == 2);
}

static void refuses_bad_flags(void)
{
    static const char *const lines[] = {
        "move --size 512XB --copy-rate 64MiB/s --live-rate 0B/s --budget 96MiB/s --dual-write 12m",
        "move --size 512GiB --copy-rate 64MiB --live-rate 0B/s --budget 96MiB/s --dual-write 12m",
        "move --size 512GiB --copy-rate 64MiB/s --live-rate -1/s --budget 96MiB/s --dual-write 12m",
        "move --size 512GiB --copy-rate 64MiB/s --live-rate 0/s --budget 96MiB/s --dual-write 12",
        "move --size 512GiB --copy-rate 0/s --live-rate 0/s --budget 96MiB/s --dual-write 12m",
        "move --size 512GiB --copy-rate 1/s --live-rate 0/s --budget 0MiB/s --dual-write 12m",
        MOVE " --reserve 10",
        MOVE " --reserve 100%",
        MOVE " --index-work 10001%",
        MOVE " --cache-warmup 1.%",
        "move --size 16384TiB --copy-rate 1/s --live-rate 0/s --budget 1/s --dual-write 1m",
        "shards --rate 1 --shard-rate 0 --size 1 --shard-size 1",
        "shards --rate 1 --shard-rate 1 --size 1 --shard-size 0",
        "shards --rate 1 --shard-rate 1 --size 1 --shard-size 1 --hot-share 20%",
        "shards --rate 1 --shard-rate 1 --size 1 --shard-size 1 --hot-buckets 2",
        "shards --rate 1 --shard-rate 1 --size 1 --shard-size 1 --hot-share 2% --hot-buckets 0",
        "shards --rate 1 --shard-rate 1 --size 1 --shard-size 1 --hot-share 101% --hot-buckets 1",
        "salt --total 1 --hot 2 --partitions 1 --salts 1 --limit 1",
        "salt --total 1 --hot 1 --partitions 0 --salts 1 --limit 1",
        "salt --total 1 --hot 1 --partitions 1 --salts 0 --limit 1",
        "salt --total 1 --hot 1 --partitions 2 --salts 2 --limit 1 --owners a",
        "salt --total 1 --hot 1 --partitions 2 --salts 2 --limit 1 --owners a,b,c",
        "salt --total 1 --hot 1 --partitions 2 --salts 2 --limit 1 --owners a,",
        "salt --total 1 --hot 1 --partitions 1 --salts 2 --limit 1 --owners a,b",
        "salt --total 1 --hot 1 --partitions 2 --salts 5000 --limit 1 --owners a"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char *text;
        tap_note("%s", lines[i]);
        CHECK_U64(run_plan(lines[i], &text), EXIT_USAGE);
        CHECK_STR(text, "");
        mem_free(text);
    }
    static const char *const missing[] = {"move --size 1GiB", "shards --rate 1 --shard-rate 1",
                                          "salt --total 1.5 --hot 1", "salt --total -5"};
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        char *text;
        tap_note("%s", missing[i]);
        CHECK(run_plan(missing[i], &text) == -1);
        mem_free(text);
    }
}

static void reads_rates_and_percentages(void)
{
    static const struct {
        const char *text;
        uint32_t ppm;
        bool ok;
    } percents[] = {{"0%", 0, true},
                    {"10%", 100000, true},
                    {"12.5%", 125000, true},
                    {"0.0001%", 1, true},
                    {"100%", 1000000, true},
                    {"33.3333%", 333333, true},
                    {"100.0001%", 0, false},
                    {"101%", 0, false},
                    {"0.00001%", 0, false},
                    {"10", 0, false},
                    {"%", 0, false},
                    {".5%", 0, false},
                    {"5.%", 0, false},
                    {"05%", 0, false},
                    {"-1%", 0, false},
                    {"1%%", 0, false},
                    {"1 %", 0, false},
                    {"", 0, false},
                    {"18446744073709551616%", 0, false}};
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        uint32_t ppm = 7;
        tap_note("'%s'", percents[i].text);
        CHECK(parse_percent_ppm(percents[i].text, 1000000, &ppm) == percents[i].ok);
        CHECK_U64(ppm, percents[i].ok ? percents[i].ppm : 7);
    }
    uint64_t rate = 7;
    CHECK(parse_rate_bytes("64MiB/s", &rate) && rate == UINT64_C(64) << 20);
    CHECK(parse_rate_bytes("0/s", &rate) && rate == 0);
    static const char *const bad[] = {
        "",        "/s",    "64MiB",    "64MiB/",
        "64MiB/h", "MiB/s", "1MiB/s/s", "00000000000000000000000000000000001/s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tap_note("'%s'", bad[i]);
        CHECK(!parse_rate_bytes(bad[i], &rate));
    }
}

static void reads_times(void)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.001Z", 1},
        {"2026-11-30T11:52:02.123Z", UINT64_C(1796039522123)},
        {"2026-11-30T11:52:02.5Z", UINT64_C(1796039522500)},
        {"2024-02-29T23:59:59Z", UINT64_C(1709251199000)},
        {"2000-03-01T00:00:00Z", UINT64_C(951868800000)},
        {"9999-12-31T23:59:59.999Z", UINT64_C(253402300799999)},
    };
    static const char *const bad[] = {"",
                                      "2026-11-30",
                                      "2026-11-30T11:52:02",
                                      "2026-11-30 11:52:02Z",
                                      "2026-11-30T11:52:02+01:00",
                                      "2026-11-30T11:52:02.Z",
                                      "2026-11-30T11:52:02.1234Z",
                                      "2026-11-30T24:00:00Z",
                                      "2026-11-30T23:60:00Z",
                                      "2026-11-30T23:59:60Z",
                                      "2026-11-31T00:00:00Z",
                                      "2025-02-29T00:00:00Z",
                                      "2100-02-29T00:00:00Z",
                                      "2026-13-01T00:00:00Z",
                                      "2026-00-01T00:00:00Z",
                                      "2026-01-00T00:00:00Z",
                                      "1969-12-31T23:59:59Z",
                                      "2026-11-30T11:52:02Zz"};
    uint64_t ms;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ms = 7;
        tap_note("'%s'", rows[i].text);
        CHECK(parse_rfc3339(rows[i].text, &ms));
        CHECK_U64(ms, rows[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ms = 7;
        tap_note("'%s'", bad[i]);
        CHECK(!parse_rfc3339(bad[i], &ms) && ms == 7);
    }
}

int main(void)
{
    (void)close(STDERR_FILENO); /* refusals are said there */
    json_set_alloc_funcs(mem_alloc, mem_free);
    RUN(moves_half_a_tebibyte);
    RUN(shows_a_move_as_a_table);
    RUN(costs_by_component);
    RUN(shards_by_storage);
    RUN(shards_say_what_would_fit);
    RUN(salts_a_hot_key);
    RUN(moves_at_the_edges);
    RUN(says_when_nothing_is_left);
    RUN(refuses_what_does_not_fit);
    RUN(plans_shards_at_the_edges);
    RUN(refuses_bad_flags);
    RUN(reads_rates_and_percentages);
    RUN(reads_times);
    return tap_done();
}
