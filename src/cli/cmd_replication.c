/* SPDX-License-Identifier: Apache-2.0 */
/* What partitions lack, and what is done about it. */
#include "cli/cmd.h"

#include "base/mem.h"

static void put_live_of_wanted(struct buf *cell, const json_t *copies)
{
    buf_put_u64_dec(cell, (uint64_t)json_integer_value(json_object_get(copies, "live")));
    buf_put_u8(cell, '/');
    buf_put_u64_dec(cell, (uint64_t)json_integer_value(json_object_get(copies, "wanted")));
}

static void put_texts(struct buf *cell, const json_t *texts)
{
    for (size_t i = 0; i < json_array_size(texts); i++) {
        if (i > 0) {
            buf_put_u8(cell, ',');
        }
        buf_put_str(cell, json_string_value(json_array_get(texts, i)));
    }
}

static const struct out_column columns[] = {{"KEYSPACE", "keyspace", NULL},
                                            {"PARTITION", "partition", NULL},
                                            {"PROBLEMS", "problems", put_texts},
                                            {"SYNC", "sync", put_live_of_wanted},
                                            {"ASYNC", "async", put_live_of_wanted},
                                            {"SINCE", "since", NULL},
                                            {"OPERATION", "operation", NULL},
                                            {"NEXT", "next.kind", NULL},
                                            {"TO", "next.to", NULL},
                                            {"BLOCKED", "blocked.detail", NULL},
                                            {NULL, NULL, NULL}};
static const struct out_view view = {"partition", columns};

static int replication_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/replication");
    target_flag(&t, c, "keyspace");
    target_read_flags(&t, c);
    return cli_list(c, &t, "partitions", &view);
}

static const struct cli_flag flags[] = {
    {"keyspace", "KEYSPACE", "Only the partitions of this keyspace", ARGS_TEXT, 0, false, false},
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};

const struct cli_command replication_commands[] = {
    {"", "", "Show which partitions lack copies, and why",
     "cadastre replication\ncadastre replication --keyspace orders -o json\n", flags,
     replication_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
