/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a snapshot: first as they are, then with a right header put before them, so that the
 * checksum does not hide the database reader. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/store.h"
#include "directory/store_image.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void ignore(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

static void check(struct slice snapshot)
{
    struct err e;
    uint64_t violations;
    char scratch[64];
    (void)snprintf(scratch, sizeof scratch, "/dev/shm/cadastre-fuzz-%d", (int)getpid());
    enum err_code code = store_check_snapshot(snapshot, scratch, ignore, NULL, &violations, &e);
    ASSERT(code == ERR_OK || code == ERR_CORRUPT || code == ERR_IO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(slice_of(data, size));
    struct store_image_header header;
    store_image_header_make(&header, slice_of(data, size));
    uint8_t *whole = mem_alloc(sizeof header.bytes + size);
    memcpy(whole, header.bytes, sizeof header.bytes);
    memcpy(whole + sizeof header.bytes, data, size);
    check(slice_of(whole, sizeof header.bytes + size));
    mem_free(whole);
    return 0;
}
