/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

#include <string.h>

int cmd_finish(struct cli *c, int code, json_t *answer, const struct out_view *view)
{
    if (code == EXIT_DONE) {
        out_object(&c->out, view, answer);
        json_decref(answer);
    }
    return code;
}

int cmd_finish_rows(struct cli *c,
                    int code,
                    json_t *answer,
                    const char *member,
                    const struct out_view *view)
{
    if (code != EXIT_DONE) {
        return code;
    }
    if (c->out.format == OUT_JSON) {
        out_json(&c->out, answer, true);
    } else {
        out_rows(&c->out, view, json_object_get(answer, member));
    }
    json_decref(answer);
    return code;
}

json_t *cmd_guard(const struct cli *c)
{
    if (!args_has(c->args, "expect-revision")) {
        return NULL;
    }
    json_t *body = json_object();
    body_number(body, c, "expect_revision");
    return body;
}

void cmd_keyspace_target(struct target *t, const struct cli *c)
{
    target_init(t, "/v1/keyspaces");
    target_segment(t, c->args->operands[0]);
}

bool cmd_read_file(const char *path, struct buf *text)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (f == NULL) {
        return false;
    }
    while (buf_reserve(text, 65536)) {
        size_t n = fread(text->data + text->len, 1, 65536, f);
        if (n == 0) {
            break;
        }
        text->len += n;
    }
    bool good = ferror(f) == 0 && !text->overflow;
    if (f != stdin) {
        (void)fclose(f);
    }
    return good;
}
