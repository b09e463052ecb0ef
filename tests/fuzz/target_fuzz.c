/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a request target: refused with a reason, or read to segments and parameters that,
 * escaped again, are read the same. */
#include "api/target.h"
#include "base/assert.h"
#include "base/mem.h"
#include "tests/fuzz/target.h"

#include <string.h>

static void put_escaped(struct buf *b, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        buf_printf(b, "%%%02x", text.data[i]);
    }
}

static void check_segment(struct slice s)
{
    ASSERT(!(s.len == 1 && s.data[0] == '.') && !(s.len == 2 && memcmp(s.data, "..", 2) == 0));
    ASSERT(s.len == 0 || (memchr(s.data, '/', s.len) == NULL && memchr(s.data, 0, s.len) == NULL));
}

static void same_again(const struct target *t)
{
    struct buf b;
    struct api_param params[API_PARAMS_MAX];
    struct target again;
    struct err e;
    buf_init(&b, SIZE_MAX);
    for (unsigned i = 0; i < t->segment_count; i++) {
        buf_put_u8(&b, '/');
        put_escaped(&b, t->segments[i]);
    }
    if (t->segment_count == 0) {
        buf_put_u8(&b, '/');
    }
    for (unsigned i = 0; i < t->param_count; i++) {
        buf_put_u8(&b, i == 0 ? '?' : '&');
        put_escaped(&b, t->params[i].name);
        buf_put_u8(&b, '=');
        put_escaped(&b, t->params[i].value);
    }
    enum err_code code = target_parse(b.data, b.len, params, &again, &e);
    ASSERT(code == ERR_OK);
    ASSERT(again.segment_count == t->segment_count && again.param_count == t->param_count);
    for (unsigned i = 0; i < t->segment_count; i++) {
        ASSERT(slice_eq(again.segments[i], t->segments[i]));
    }
    for (unsigned i = 0; i < t->param_count; i++) {
        ASSERT(slice_eq(params[i].name, t->params[i].name));
        ASSERT(slice_eq(params[i].value, t->params[i].value));
    }
    buf_close(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_param params[API_PARAMS_MAX];
    struct target t;
    struct err e;
    uint8_t *text = mem_alloc(size + 1);
    memcpy(text, data, size);
    if (target_parse(text, size, params, &t, &e) == ERR_OK) {
        ASSERT(t.segment_count <= API_PATH_SEGMENTS_MAX + 1 && t.param_count <= API_PARAMS_MAX);
        for (unsigned i = 0; i < t.segment_count && i < API_PATH_SEGMENTS_MAX; i++) {
            check_segment(t.segments[i]);
        }
        if (t.segment_count <= API_PATH_SEGMENTS_MAX) {
            same_again(&t);
        }
    } else {
        ASSERT(e.code == ERR_INVALID_REQUEST && e.detail[0] != '\0');
    }
    mem_free(text);
    return 0;
}
