/* SPDX-License-Identifier: Apache-2.0 */
/* What commands may carry. Apply checks all of it again, whatever the API checked before: a
 * committed command is data from outside. */
#include "base/parse.h"
#include "directory/internal.h"

#include <stdio.h>
#include <stdlib.h>

bool valid_text(const char *s, size_t max)
{
    size_t n = strlen(s);
    if (n == 0 || n > max || !parse_is_utf8(slice_of(s, n))) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return true;
}

bool valid_address(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > DIR_ADDRESS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] <= 0x20 || s[i] >= 0x7f) {
            return false;
        }
    }
    return true;
}

static int label_order(const void *x, const void *y)
{
    const struct dir_label *a = x, *b = y;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : strcmp(a->value, b->value);
}

/* In order of name and value, so that equal sets are equal bytes. */
static enum err_code read_labels(struct err *e,
                                 const char *pointer,
                                 Cadastre__Label **in,
                                 size_t count,
                                 struct dir_label *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(in[i]->name);
        if (!parse_is_name(slice_of(in[i]->name, n))) {
            return err_set_at(e, ERR_INVALID_REQUEST, pointer,
                              "label %zu of them has no valid name", i);
        }
        if (!valid_text(in[i]->value, DIR_NAME_MAX)) {
            return err_set_at(e, ERR_INVALID_REQUEST, pointer,
                              "the value of \"%s\" is not a text of 1 to %d bytes", in[i]->name,
                              DIR_NAME_MAX);
        }
        memset(&out[i], 0, sizeof out[i]);
        memcpy(out[i].name, in[i]->name, n);
        memcpy(out[i].value, in[i]->value, strlen(in[i]->value));
    }
    qsort(out, count, sizeof out[0], label_order);
    return ERR_OK;
}

enum err_code valid_labels(struct err *e,
                           const char *pointer,
                           Cadastre__Label **in,
                           size_t count,
                           struct dir_label *out)
{
    if (count > DIR_LABELS_MAX) {
        return err_set_at(e, ERR_LIMIT_EXCEEDED, pointer, "there are more than %d", DIR_LABELS_MAX);
    }
    enum err_code code = read_labels(e, pointer, in, count, out);
    for (size_t i = 1; code == ERR_OK && i < count; i++) {
        if (strcmp(out[i - 1].name, out[i].name) == 0) {
            code =
                err_set_at(e, ERR_INVALID_REQUEST, pointer, "\"%s\" is there twice", out[i].name);
        }
    }
    return code;
}

enum err_code
valid_placement(struct err *e, const Cadastre__Placement *in, struct dir_placement *out)
{
    memset(out, 0, sizeof *out);
    if (in == NULL) {
        return ERR_OK;
    }
    if (in->n_require > DIR_REQUIRE_MAX) {
        return err_set_at(e, ERR_LIMIT_EXCEEDED, "/placement/require", "there are more than %d",
                          DIR_REQUIRE_MAX);
    }
    enum err_code code =
        read_labels(e, "/placement/require", in->require, in->n_require, out->require);
    if (code != ERR_OK) {
        return code;
    }
    out->require_count = (uint32_t)in->n_require;
    size_t n = strlen(in->spread);
    if (n > 0 && !parse_is_name(slice_of(in->spread, n))) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/placement/spread",
                          "it is not the name of a label");
    }
    memcpy(out->spread, in->spread, n);
    return ERR_OK;
}
