/* SPDX-License-Identifier: Apache-2.0 */
/* Structured log lines on stderr, one event a line, logfmt or JSON. Only the top (server, api,
 * control, raft's lifecycle) logs; libraries return errors. Any thread; lines never mix.
 *
 *     log_event(LOG_INFO, "raft.leader.changed", "leader=%" PRIu64 " term=%" PRIu64, id, term);
 *
 * `fields` is logfmt: space-separated name=value, a value with blanks or quotes through
 * log_quote(). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Before any thread starts. */
void log_init(enum log_level least, bool json);
bool log_level_parse(const char *name, enum log_level *ret_level);
void log_event(enum log_level level, const char *event, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes `text` as a quoted logfmt value, cut at the size of `out`, control bytes escaped. Returns
 * `out`. */
const char *log_quote(const char *text, char *out, size_t size);

/* Logs at LOG_ERROR and ends the process with `exit_code` at once, running nothing: what a failed
 * disk deserves. */
_Noreturn void log_fatal(int exit_code, const char *event, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));

/* Exit codes of cadastred (docs/ARCHITECTURE.md). */
enum { EXIT_FLAGS = 2, EXIT_DATA = 3, EXIT_DIVERGED = 4, EXIT_ADDRESS = 5 };

#endif
