/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of client_driver share: the router's commands and the agent's. */
#ifndef TESTS_DRIVER_H
#define TESTS_DRIVER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DRIVER_WORDS_MAX = 16 };

struct driver_command {
    const char *name;
    unsigned words_min; /* with the name */
    void (*run)(char *const *words);
};

extern const struct driver_command driver_agent_commands[]; /* the last has no name */
void driver_agent_end(void);

void driver_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t driver_number(const char *text);
bool driver_credentials(void *arg, const char *server, char *out, size_t out_size);
void driver_event(void *arg, const char *name, const char *detail);

#endif
