/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a stored row, or a stored result: refused, or read to something that encodes to the
 * same bytes. */
#include "base/assert.h"
#include "directory/directory.h"
#include "tests/fuzz/target.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e;
    struct buf again;
    buf_init(&again, SIZE_MAX);
    struct dir_object *o = dir_object_decode(slice_of(data, size), &e);
    if (o != NULL) {
        dir_object_encode(o, &again);
        ASSERT(again.len == size && (size == 0 || memcmp(again.data, data, size) == 0));
        dir_unref(o);
    } else {
        ASSERT(e.code == ERR_CORRUPT);
    }
    struct dir_result *r = result_decode(slice_of(data, size), &e);
    result_unref(r);
    buf_close(&again);
    return 0;
}
