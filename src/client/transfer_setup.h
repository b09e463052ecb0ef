/* SPDX-License-Identifier: Apache-2.0 */
/* What each HTTP transfer by libcurl has in common: that of the library and that of the command
 * line. */
#ifndef CLIENT_TRANSFER_SETUP_H
#define CLIENT_TRANSFER_SETUP_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

/* Forgets what `curl` was set to. HTTP(S) alone, by no proxy, without signals; the path goes out as
 * it is. `url` is copied. */
void transfer_setup(CURL *curl, const char *url, long connect_ms);

/* `body` (NULL: none) must outlive the transfer. All methods but GET and DELETE send one, if an
 * empty one. */
void transfer_setup_method(CURL *curl, const char *method, const char *body);

/* A stream has no end to wait for: it fails when nothing came for so long. */
void transfer_setup_stall(CURL *curl, long seconds);

/* The text of a header line as libcurl hands it over, without its end. False: too long for `line`,
 * or it has a NUL. */
bool transfer_header_line(const char *data, size_t len, char *line, size_t size);

/* Whether `line` is this header; its value, within `line`. */
bool transfer_header(const char *line, const char *name, const char **ret_value);

#endif
