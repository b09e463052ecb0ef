/* SPDX-License-Identifier: Apache-2.0 */
/* Text to values, strictly: the whole text must match. On failure false, and the output is
 * untouched. Any thread. */
#ifndef BASE_PARSE_H
#define BASE_PARSE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Integers on the wire stay at or below this (JSON numbers are doubles elsewhere). */
#define PARSE_INT_MAX ((UINT64_C(1) << 53) - 1)

/* Decimal digits only, no sign, no leading zeros but "0" itself, at most `max`. */
bool parse_u64(const char *text, uint64_t max, uint64_t *ret_value);

/* "250ms", "30s", "5m", "2h", "1d"; a bare number is refused. */
bool parse_duration_ms(const char *text, uint64_t *ret_ms);

/* "4096", "64KiB", "64MiB", "512GiB", "10400GB" (powers of 1000 without the i). */
bool parse_size_bytes(const char *text, uint64_t *ret_bytes);

/* A size a second: "64MiB/s"; without the "/s" it is refused. */
bool parse_rate_bytes(const char *text, uint64_t *ret_bytes_per_s);

/* "10%", "12.5%", to four decimals, at most `max_ppm`; in millionths: 10% is 100000. */
bool parse_percent_ppm(const char *text, uint32_t max_ppm, uint32_t *ret_ppm);

/* "2026-11-30T11:52:02.123Z": UTC alone, with up to three decimals; not before 1970. */
bool parse_rfc3339(const char *text, uint64_t *ret_wall_ms);

/* "host:port", "[v6]:port", ":port" is refused. `ret_host` holds `host_size` bytes, without
 * brackets. */
bool parse_host_port(const char *text, char *ret_host, size_t host_size, uint16_t *ret_port);

/* Lower-case hex digits, an even number of them, at most out_max bytes. */
bool parse_hex(struct slice text, uint8_t *out, size_t out_max, size_t *ret_len);

/* Is this a name: [a-z0-9]([a-z0-9._-]{0,62}) ? */
bool parse_is_name(struct slice text);

/* Well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates)? */
bool parse_is_utf8(struct slice text);

#endif
