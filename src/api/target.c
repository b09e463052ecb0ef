/* SPDX-License-Identifier: Apache-2.0 */
#include "api/target.h"

#include <string.h>

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Unescapes in place; false when a `%` is not followed by two hex digits. */
static bool unescape(uint8_t *text, size_t len, size_t *ret_len)
{
    if (memchr(text, '%', len) == NULL) {
        *ret_len = len;
        return true;
    }
    size_t to = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%') {
            text[to++] = text[i];
            continue;
        }
        int high = len - i > 2 ? hex_value(text[i + 1]) : -1;
        int low = len - i > 2 ? hex_value(text[i + 2]) : -1;
        if (high < 0 || low < 0) {
            return false;
        }
        text[to++] = (uint8_t)(high << 4 | low);
        i += 2;
    }
    *ret_len = to;
    return true;
}

static enum err_code add_segment(struct target *t, uint8_t *text, size_t len, struct err *e)
{
    size_t n;
    if (!unescape(text, len, &n)) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "a %% in the path is not followed by two hex digits");
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f || text[i] == '/' || text[i] == '\\') {
            return err_set(e, ERR_INVALID_REQUEST,
                           "the path has an escaped slash or a control byte");
        }
    }
    if ((n == 1 && text[0] == '.') || (n == 2 && memcmp(text, "..", 2) == 0)) {
        return err_set(e, ERR_INVALID_REQUEST, "the path has a dot segment");
    }
    if (t->segment_count < API_PATH_SEGMENTS_MAX) {
        t->segments[t->segment_count++] = slice_of(text, n);
    } else {
        t->segment_count = API_PATH_SEGMENTS_MAX + 1;
    }
    return ERR_OK;
}

/* `text` begins with the slash. A slash at the end makes an empty last segment, which no route has.
 */
static enum err_code parse_path(struct target *t, uint8_t *text, size_t len, struct err *e)
{
    enum err_code code = ERR_OK;
    for (size_t i = 1; i < len && code == ERR_OK;) {
        uint8_t *slash = memchr(text + i, '/', len - i);
        size_t n = slash != NULL ? (size_t)(slash - text) - i : len - i;
        if (n == 0) {
            return err_set(e, ERR_INVALID_REQUEST, "the path has an empty segment");
        }
        code = add_segment(t, text + i, n, e);
        i += n + 1;
        if (code == ERR_OK && i == len) {
            code = add_segment(t, text + len, 0, e);
        }
    }
    return code;
}

static enum err_code add_param(struct target *t, uint8_t *text, size_t len, struct err *e)
{
    uint8_t *equals = memchr(text, '=', len);
    size_t name_raw = equals != NULL ? (size_t)(equals - text) : len, name_len, value_len = 0;
    uint8_t *value = equals != NULL ? equals + 1 : text + len;
    if (name_raw == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "the query has a parameter without a name");
    }
    if (!unescape(text, name_raw, &name_len) ||
        !unescape(value, len - (size_t)(value - text), &value_len)) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "a %% in the query is not followed by two hex digits");
    }
    struct slice name = slice_of(text, name_len);
    for (unsigned i = 0; i < t->param_count; i++) {
        if (slice_eq(t->params[i].name, name)) {
            return err_set(e, ERR_INVALID_REQUEST, "the parameter \"%.*s\" comes twice",
                           (int)(name_len < 64 ? name_len : 64), (const char *)text);
        }
    }
    if (t->param_count == API_PARAMS_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "the query has more than %d parameters",
                       API_PARAMS_MAX);
    }
    t->params[t->param_count++] = (struct api_param){name, slice_of(value, value_len)};
    return ERR_OK;
}

static enum err_code parse_query(struct target *t, uint8_t *text, size_t len, struct err *e)
{
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < len && code == ERR_OK;) {
        uint8_t *amp = memchr(text + i, '&', len - i);
        size_t n = amp != NULL ? (size_t)(amp - text) - i : len - i;
        code = add_param(t, text + i, n, e);
        i += n + 1;
    }
    return code;
}

/* Bytes that no target may have as they are. Bytes above 0x7f are let through in the query only:
 * keys are bytes, and people type them. */
static enum err_code check_bytes(const uint8_t *text, size_t len, size_t path_len, struct err *e)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t c = text[i];
        if (c <= 0x20 || c == 0x7f) {
            return err_set(e, ERR_INVALID_REQUEST,
                           "the request target has a blank or a control byte");
        }
        if (c == '#') {
            return err_set(e, ERR_INVALID_REQUEST, "the request target has a fragment");
        }
        if (i < path_len && (c > 0x7f || c == '\\')) {
            return err_set(e, ERR_INVALID_REQUEST, "the path has a byte that must be escaped");
        }
    }
    return ERR_OK;
}

enum err_code target_parse(uint8_t *text,
                           size_t len,
                           struct api_param *params,
                           struct target *ret_target,
                           struct err *e)
{
    struct target t = {.params = params};
    if (len == 0 || text[0] != '/') {
        return err_set(e, ERR_INVALID_REQUEST,
                       "the request target must be a path that begins with /");
    }
    uint8_t *mark = memchr(text, '?', len);
    size_t path_len = mark != NULL ? (size_t)(mark - text) : len;
    enum err_code code = check_bytes(text, len, path_len, e);
    if (code == ERR_OK) {
        code = parse_path(&t, text, path_len, e);
    }
    if (code == ERR_OK && mark != NULL) {
        code = parse_query(&t, mark + 1, len - path_len - 1, e);
    }
    if (code == ERR_OK) {
        *ret_target = t;
    }
    return code;
}
