/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request by libcurl. The multi interface, because another thread can wake it up. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/fetch_internal.h"
#include "client/transfer_setup.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct transfer {
    struct cl_fetch *fetch;
    const struct cl_request *request;
    struct cl_answer *answer;
    struct attempt *attempt;
    bool broken; /* by the sink, or too large */
};

static void take_header(struct transfer *t, const char *line)
{
    const char *value;
    uint64_t number = 0;
    if (transfer_header(line, "Cadastre-Revision", &value)) {
        t->answer->revision = parse_u64(value, PARSE_INT_MAX, &number) ? number : 0;
    } else if (transfer_header(line, "Cadastre-Staleness-Ms", &value)) {
        t->answer->staleness_ms = parse_u64(value, PARSE_INT_MAX, &number) ? number : 0;
    } else if (transfer_header(line, "Retry-After", &value)) {
        t->attempt->retry_after_ms = parse_u64(value, 86400, &number) ? number * 1000 : 0;
    } else if (transfer_header(line, "Location", &value)) {
        (void)snprintf(t->attempt->location, sizeof t->attempt->location, "%s", value);
    }
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    size_t len = size * count;
    char line[CL_URL_MAX * 4];
    if (transfer_header_line(data, len, line, sizeof line)) {
        take_header(arg, line);
    }
    return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * count;
    long status = 0;
    (void)curl_easy_getinfo(t->fetch->easy, CURLINFO_RESPONSE_CODE, &status);
    if (t->request->sink != NULL && status == 200) {
        t->broken = !t->request->sink(t->request->sink_arg, slice_of(data, len));
    } else {
        buf_put(&t->answer->body, data, len);
        t->broken = t->answer->body.overflow;
    }
    return t->broken ? 0 : len;
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    if (value != NULL) {
        char *line = mem_printf("%s: %s", name, value);
        list = curl_slist_append(list, line);
        mem_free(line);
    }
    return list;
}

static struct curl_slist *
headers_for(struct cl_fetch *f, const char *server, const struct cl_request *rq)
{
    struct cl_hooks *h = f->hooks;
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    list = add_header(list, "Accept", rq->accept != NULL ? rq->accept : "application/json");
    list = add_header(list, "Content-Type", rq->body != NULL ? "application/json" : NULL);
    list = add_header(list, "Idempotency-Key", rq->idempotency_key);
    if (h->credentials != NULL) {
        char *token = mem_zalloc(CL_TOKEN_MAX);
        (void)pthread_mutex_lock(&h->lock);
        bool given = h->credentials(h->credentials_arg, server, token, CL_TOKEN_MAX);
        (void)pthread_mutex_unlock(&h->lock);
        list = add_header(list, "Authorization",
                          given && strpbrk(token, "\r\n") == NULL ? token : NULL);
        mem_free(token);
    }
    return list;
}

static void set_request(CURL *curl, const struct cl_request *rq, uint64_t limit_ms)
{
    transfer_setup_method(curl, rq->method, rq->body);
    if (rq->sink != NULL) {
        transfer_setup_stall(curl, CL_STALL_S);
    } else {
        (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)limit_ms);
    }
}

static void
set_transfer(struct transfer *t, const char *url, struct curl_slist *headers, uint64_t limit_ms)
{
    CURL *curl = t->fetch->easy;
    transfer_setup(curl, url, CL_CONNECT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    if (t->fetch->hooks->ca_file != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, t->fetch->hooks->ca_file);
    }
    set_request(curl, t->request, limit_ms);
}

/* Until it is done; CURLE_ABORTED_BY_CALLBACK when the fetch was stopped. */
static CURLcode perform(struct cl_fetch *f)
{
    int running = 1, queued;
    while (running > 0) {
        if (cl_fetch_ended(f)) {
            return CURLE_ABORTED_BY_CALLBACK;
        }
        if (curl_multi_perform(f->multi, &running) != CURLM_OK) {
            return CURLE_FAILED_INIT;
        }
        if (running > 0) {
            (void)curl_multi_poll(f->multi, NULL, 0, 1000, NULL);
        }
    }
    const CURLMsg *msg = curl_multi_info_read(f->multi, &queued);
    return msg != NULL && msg->msg == CURLMSG_DONE ? msg->data.result : CURLE_FAILED_INIT;
}

void cl_transfer(struct cl_fetch *f,
                 const char *server,
                 const struct cl_request *rq,
                 uint64_t limit_ms,
                 struct cl_answer *answer,
                 struct attempt *ret_attempt)
{
    struct transfer t = {f, rq, answer, ret_attempt, false};
    char *url = mem_printf("%s%s", server, rq->target);
    struct curl_slist *headers = headers_for(f, server, rq);
    *ret_attempt = (struct attempt){.end = TRY_FAILED};
    buf_reset(&answer->body);
    answer->status = 0;
    answer->revision = answer->staleness_ms = 0;
    answer->code[0] = '\0';
    (void)snprintf(answer->server, sizeof answer->server, "%s", server);
    if (rq->sink != NULL) {
        rq->restart(rq->sink_arg);
    }
    set_transfer(&t, url, headers, limit_ms);
    answer->sent_ms = clock_boot_ms();
    answer->first_ms = answer->first_ms > 0 ? answer->first_ms : answer->sent_ms;
    CURLcode rc = CURLE_FAILED_INIT;
    if (curl_multi_add_handle(f->multi, f->easy) == CURLM_OK) {
        rc = perform(f);
        (void)curl_multi_remove_handle(f->multi, f->easy);
    }
    (void)curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_slist_free_all(headers);
    mem_free(url);
    if (rc == CURLE_OK) {
        ret_attempt->end = TRY_ANSWERED;
    } else if (cl_fetch_ended(f)) {
        ret_attempt->end = TRY_STOPPED;
    } else if (t.broken) {
        ret_attempt->end = TRY_BROKEN;
        (void)snprintf(ret_attempt->why, sizeof ret_attempt->why, "the answer makes no sense");
    } else {
        answer->status = 0;
        (void)snprintf(ret_attempt->why, sizeof ret_attempt->why, "%s", curl_easy_strerror(rc));
    }
}
