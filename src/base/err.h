/* SPDX-License-Identifier: Apache-2.0 */
/* The one list of outcomes: what apply rejects with, what the API answers, how the CLI exits. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdint.h>

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* X(NAME, slug, HTTP status, CLI exit, title). The slug is the problem code of the API;
 * docs/errors.md and openapi.yaml are tested against this list. CLI exits: 1 failure, 2 usage, 3
 * not found, 4 conflict, 5 unavailable, 6 timeout, 7 not allowed. */
#define ERR_LIST(X)                                                                                \
    X(INVALID_REQUEST, "invalid_request", 400, 2, "The request is not valid")                      \
    X(INVALID_KEY, "invalid_key", 400, 2, "The key is not valid")                                  \
    X(UNAUTHORIZED, "unauthorized", 401, 7, "Credentials are missing or wrong")                    \
    X(FORBIDDEN, "forbidden", 403, 7, "Not allowed")                                               \
    X(NOT_FOUND, "not_found", 404, 3, "There is no such resource")                                 \
    X(KEYSPACE_NOT_FOUND, "keyspace_not_found", 404, 3, "There is no such keyspace")               \
    X(PARTITION_NOT_FOUND, "partition_not_found", 404, 3, "There is no such partition")            \
    X(NODE_NOT_FOUND, "node_not_found", 404, 3, "There is no such node")                           \
    X(SERVER_NOT_FOUND, "server_not_found", 404, 3, "There is no such server")                     \
    X(OPERATION_NOT_FOUND, "operation_not_found", 404, 3, "There is no such operation")            \
    X(PROPOSAL_NOT_FOUND, "proposal_not_found", 404, 3, "There is no such proposal")               \
    X(COMMAND_NOT_FOUND, "command_not_found", 404, 3, "No command with this key was applied")      \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", 405, 2, "The method is not allowed here")          \
    X(KEYSPACE_EXISTS, "keyspace_exists", 409, 4, "A keyspace of this name exists")                \
    X(KEYSPACE_BUSY, "keyspace_busy", 409, 4, "The keyspace is busy")                              \
    X(STALE_EPOCH, "stale_epoch", 409, 4, "The epoch is not the present one")                      \
    X(FUTURE_EPOCH, "future_epoch", 409, 4, "The epoch is ahead of the present one")               \
    X(STALE_REVISION, "stale_revision", 409, 4, "The revision is not the present one")             \
    X(NOT_OWNER, "not_owner", 409, 4, "The node may not write this partition")                     \
    X(NOT_MERGEABLE, "not_mergeable", 409, 4, "The partitions can't be merged")                    \
    X(PARTITION_BUSY, "partition_busy", 409, 4, "An operation holds the partition")                \
    X(NEEDS_STAGED_MOVE, "needs_staged_move", 409, 4, "Data has to be copied first")               \
    X(LEASE_HELD, "lease_held", 409, 4, "The present primary may still write")                     \
    X(SESSION_ENDED, "session_ended", 409, 4, "The session has ended")                             \
    X(STALE_REPORT, "stale_report", 409, 4, "The report is not of the present attempt")            \
    X(PAST_CUTOVER, "past_cutover", 409, 4, "The destination has the authority already")           \
    X(SOURCE_LAPSED, "source_lapsed", 409, 4, "Only the destination can go on")                    \
    X(PROPOSAL_SETTLED, "proposal_settled", 409, 4, "The proposal does not wait any more")         \
    X(FROZEN, "frozen", 409, 4, "A freeze is in force")                                            \
    X(NODE_IN_USE, "node_in_use", 409, 4, "The node holds partitions")                             \
    X(NO_DESTINATION, "no_destination", 409, 4, "No node may take the partition")                  \
    X(PLACEMENT_VIOLATED, "placement_violated", 409, 4, "The placement rules forbid this")         \
    X(BUDGET_EXCEEDED, "budget_exceeded", 409, 4, "A budget has no room for it at present")        \
    X(SERVER_EXISTS, "server_exists", 409, 4, "A server of this id exists")                        \
    X(MEMBERSHIP_BUSY, "membership_busy", 409, 4, "Another membership change is under way")        \
    X(NOT_A_VOTER, "not_a_voter", 409, 4, "The server has no vote")                                \
    X(QUORUM_AT_RISK, "quorum_at_risk", 409, 4, "The change would cost the majority")              \
    X(PARTITION_RETIRED, "partition_retired", 410, 3, "The partition was split or merged")         \
    X(COMPACTED, "compacted", 410, 3, "The history no longer reaches back that far")               \
    X(CURSOR_EXPIRED, "cursor_expired", 410, 3, "The cursor is too old")                           \
    X(TOO_LARGE, "too_large", 413, 2, "The request is too large")                                  \
    X(URI_TOO_LONG, "uri_too_long", 414, 2, "The request line is too long")                        \
    X(UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, 2, "The body must be JSON")           \
    X(IDEMPOTENCY_MISMATCH, "idempotency_mismatch", 422, 4, "The key was used by another request") \
    X(BAD_SPLIT_KEY, "bad_split_key", 422, 2, "The partition can't be split there")                \
    X(UNSUPPORTED_SCHEME, "unsupported_scheme", 422, 2, "The keyspace's scheme has no such thing") \
    X(INVALID_SETTINGS, "invalid_settings", 422, 2, "The settings make no sense together")         \
    X(LIMIT_EXCEEDED, "limit_exceeded", 422, 2, "A limit of the directory is reached")             \
    X(RATE_LIMITED, "rate_limited", 429, 5, "Too many requests")                                   \
    X(INTERNAL, "internal", 500, 1, "The server failed")                                           \
    X(NO_LEADER, "no_leader", 503, 5, "No leader is known")                                        \
    X(OUTCOME_UNKNOWN, "outcome_unknown", 503, 5, "The outcome is not known")                      \
    X(BEHIND, "behind", 503, 5, "This server has not reached that revision")                       \
    X(TOO_STALE, "too_stale", 503, 5, "This server heard from a leader too long ago")              \
    X(OVERLOADED, "overloaded", 503, 5, "The server is overloaded")                                \
    X(NOT_READY, "not_ready", 503, 5, "The server is not ready")

enum err_code {
    ERR_OK = 0,
#define X(name, slug, http, exit, title) ERR_##name,
    ERR_LIST(X)
#undef X
    /* Not for the API: told to the caller inside one process. */
    ERR_NOT_LEADER, /* becomes a 307, or ERR_NO_LEADER */
    ERR_IO,         /* a file or a socket failed; the message says which */
    ERR_CORRUPT,    /* bytes that we wrote do not read back */
    ERR_COUNT
};

/* A code with the text for a person. Plain value, no heap; `pointer` is a JSON Pointer (RFC 6901)
 * or empty. */
struct err {
    enum err_code code;
    char detail[320];
    char pointer[96];
};

/* Never NULL. For ERR_OK and the private codes: "ok", "not_leader", "io", "corrupt"; 500 and
 * exit 1. */
const char *err_slug(enum err_code code);
const char *err_title(enum err_code code);
int err_http_status(enum err_code code);
int err_cli_exit(enum err_code code);

/* ERR_COUNT when no code has this slug. */
enum err_code err_from_slug(const char *slug);

/* Fills `e` (may be NULL) and returns `code`, so that a caller can `return err_set(e, ERR_X, "…",
 * …)`. */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same, naming the field at fault. */
enum err_code
err_set_at(struct err *e, enum err_code code, const char *pointer, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* Puts "what: " before the detail. Returns e->code. */
enum err_code err_wrap(struct err *e, const char *what);

#endif
