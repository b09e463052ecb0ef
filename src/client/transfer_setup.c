/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transfer_setup.h"

#include <string.h>
#include <strings.h>

void transfer_setup(CURL *curl, const char *url, long connect_ms)
{
    curl_easy_reset(curl);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
}

void transfer_setup_method(CURL *curl, const char *method, const char *body)
{
    if (strcmp(method, "GET") == 0) {
        return;
    }
    (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    if (body != NULL || strcmp(method, "DELETE") != 0) {
        const char *sent = body != NULL ? body : "";
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(sent));
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, sent);
    }
}

void transfer_setup_stall(CURL *curl, long seconds)
{
    (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, seconds);
}

bool transfer_header_line(const char *data, size_t len, char *line, size_t size)
{
    while (len > 0 && strchr("\r\n \t", data[len - 1]) != NULL) {
        len--;
    }
    if (len >= size || memchr(data, '\0', len) != NULL) {
        return false;
    }
    memcpy(line, data, len);
    line[len] = '\0';
    return true;
}

bool transfer_header(const char *line, const char *name, const char **ret_value)
{
    size_t len = strlen(name);
    if (strncasecmp(line, name, len) != 0 || line[len] != ':') {
        return false;
    }
    *ret_value = line + len + 1 + strspn(line + len + 1, " \t");
    return true;
}
