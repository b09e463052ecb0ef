/* SPDX-License-Identifier: Apache-2.0 */
/* make drill says what docs/movement.md says, of each of the four points. */
#include "tests/harness/tap.h"
#include "tests/sim/drill_run.h"

#include <string.h>

static char text[65536];

static void the_drill_is_as_the_protocol_says(void)
{
    FILE *out = tmpfile();
    CHECK(out != NULL);
    CHECK_U64(drill_run(out), 0);
    rewind(out);
    size_t n = fread(text, 1, sizeof text - 1, out);
    text[n] = '\0';
    (void)fclose(out);
    CHECK(strstr(text, "WRONG") == NULL);
    tap_note("%s", text);
}

static void each_point_is_there(void)
{
    static const char *const words[] = {"in the copy, ", "in catch-up, ",
                                        "immediately before the epoch is published, ",
                                        "immediately after the epoch is published, "};
    const char *at = text;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tap_note("%s", words[i]);
        at = strstr(at, words[i]);
        CHECK(at != NULL);
        if (at == NULL) {
            return;
        }
    }
}

/* Each of the four that there are, at least once, and 8 192 s of copying. */
static void it_says_what_becomes_of_it(void)
{
    static const char *const words[] = {"recovery: resume; way back: discard",
                                        "recovery: stay; way back: new_epoch",
                                        "recovery: forward; way back: impossible",
                                        "goes forward to the destination",
                                        "discards the candidate",
                                        "resumes with the copy that is there",
                                        "512 GiB copied",
                                        "the rest: below it n1",
                                        "the rest: below it nobody"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tap_note("%s", words[i]);
        CHECK(strstr(text, words[i]) != NULL);
    }
    CHECK(strstr(text, "in catch-up, 81") != NULL || strstr(text, "in catch-up, 82") != NULL);
}

int main(void)
{
    RUN(the_drill_is_as_the_protocol_says);
    RUN(each_point_is_there);
    RUN(it_says_what_becomes_of_it);
    return tap_done();
}
