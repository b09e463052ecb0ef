/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files named, without libFuzzer: how the corpora are replayed in `make
 * test`. */
#include "base/mem.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat st;
        FILE *f = fopen(argv[i], "rb");
        if (f == NULL || fstat(fileno(f), &st) != 0) {
            (void)fprintf(stderr, "%s can't be read\n", argv[i]);
            return 1;
        }
        uint8_t *bytes = mem_alloc((size_t)st.st_size);
        size_t n = fread(bytes, 1, (size_t)st.st_size, f);
        (void)fclose(f);
        (void)LLVMFuzzerTestOneInput(bytes, n);
        mem_free(bytes);
    }
    (void)printf("%d passed, 0 failed\n", argc - 1);
    return 0;
}
