/* SPDX-License-Identifier: Apache-2.0 */
#include "warm.h"

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rcu.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    EVERY_MS = 5000,
    BYTES_A_MS = 8 << 10, /* 8 MiB/s: a large summary is asked for less often */
    PAGE_BYTES_MAX = 64 << 20,
    ONE_TRY_SECONDS = 10,
    JITTER_MS = 500,
    TARGET_MAX = 96,
    HEAT_OVERLAP_MS = 5000 /* a row that was being put to while a page was made comes again */
};

struct warm {
    struct control *control;
    const char *own_url;
    CURL *curl; /* kept, with its connection */
    struct buf page;
    uint64_t jitter;     /* servers that start together don't ask together */
    uint64_t heat_since; /* rows of the heat map that changed before that are here */
};

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct buf *b = arg;
    buf_put(b, data, size * count);
    return b->overflow ? 0 : size * count;
}

static void wait_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
    (void)nanosleep(&t, NULL);
}

/* The leader's API, when that is another server. Redirects are not followed: whoever leads by then
 * is known here soon. */
static bool leader(const struct warm *w, char url[DIR_ADDRESS_MAX + 1])
{
    struct control_status s;
    control_status(w->control, &s);
    memcpy(url, s.leader_url, sizeof s.leader_url);
    return !s.raft.active && url[0] != '\0' && strcmp(url, w->own_url) != 0;
}

static bool get(struct warm *w, const char *leader_url, const char *target)
{
    char url[DIR_ADDRESS_MAX + TARGET_MAX];
    long status = 0;
    (void)snprintf(url, sizeof url, "%s%s", leader_url, target);
    buf_reset(&w->page);
    w->page.overflow = false;
    (void)curl_easy_setopt(w->curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(w->curl, CURLOPT_PROTOCOLS_STR, "http");
    (void)curl_easy_setopt(w->curl, CURLOPT_TIMEOUT, (long)ONE_TRY_SECONDS);
    (void)curl_easy_setopt(w->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(w->curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(w->curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(w->curl, CURLOPT_WRITEDATA, &w->page);
    if (curl_easy_perform(w->curl) != CURLE_OK) {
        return false;
    }
    (void)curl_easy_getinfo(w->curl, CURLINFO_RESPONSE_CODE, &status);
    return status == 200;
}

/* All pages of the one that leads now; how many bytes that were. */
static uint64_t pull(struct warm *w, const char *from)
{
    struct loads *loads = control_loads(w->control);
    char now_leads[DIR_ADDRESS_MAX + 1];
    uint64_t bytes = 0, all = 0, records = 0;
    unsigned next = 0;
    bool ok = true;
    while (ok && next < LOADS_PAGES) {
        unsigned page = next;
        char target[TARGET_MAX];
        (void)snprintf(target, sizeof target, "/v1/load/summary?page=%u", page);
        ok = get(w, from, target);
        bytes += w->page.len;
        if (ok) {
            const struct dir_view *v = view_pin(control_published(w->control));
            ok = loads_take_summary(loads, v, slice_of(w->page.data, w->page.len), clock_mono_ms(),
                                    &next, &records) &&
                 next > page;
            view_unpin(v);
            all += records;
        }
        if (ok && next < LOADS_PAGES) {
            wait_ms(w->page.len / BYTES_A_MS);
            ok = leader(w, now_leads) && strcmp(now_leads, from) == 0;
        }
    }
    loads_note_pull(loads, ok, bytes, all, clock_mono_ms());
    return bytes;
}

/* What changed since the last time: all pages. */
static uint64_t pull_heat(struct warm *w, const char *from)
{
    struct loads *loads = control_loads(w->control);
    struct heat_page page = {.since_ms = w->heat_since};
    char now_leads[DIR_ADDRESS_MAX + 1], target[TARGET_MAX];
    struct heats *heats = loads_heats(loads);
    uint64_t bytes = 0, begun = 0, clock, ahead = heats_clock(heats, 0);
    bool ok = true;
    do {
        (void)snprintf(target, sizeof target, "/v1/load/heat?since_ms=%" PRIu64 "&next=%" PRIu32,
                       page.since_ms, page.next);
        ok = get(w, from, target);
        bytes += w->page.len;
        if (ok) {
            ok = heats_take_page(heats, slice_of(w->page.data, w->page.len), clock_mono_ms(), &page,
                                 &clock);
            begun = begun == 0 ? clock : begun;
        }
        if (ok && page.next != 0) {
            wait_ms(w->page.len / BYTES_A_MS);
            ok = leader(w, now_leads) && strcmp(now_leads, from) == 0;
        }
    } while (ok && page.next != 0);
    if (ok) {
        w->heat_since = begun > HEAT_OVERLAP_MS ? begun - HEAT_OVERLAP_MS : 0;
    }
    if (heats_clock(heats, 0) != ahead) { /* it was another's clock: all of it anew */
        w->heat_since = 0;
    }
    loads_note_heat(loads, ok, bytes);
    return bytes;
}

static void *main_of_thread(void *arg)
{
    struct warm *w = arg;
    char url[DIR_ADDRESS_MAX + 1];
    rcu_reader_start();
    for (;;) {
        uint64_t begun = clock_mono_ms(), wanted = EVERY_MS;
        if (leader(w, url)) {
            uint64_t bytes = pull(w, url);
            uint64_t slow = (bytes + pull_heat(w, url)) / BYTES_A_MS;
            wanted = slow > wanted ? slow : wanted;
        }
        uint64_t took = clock_mono_ms() - begun;
        wait_ms((wanted > took ? wanted - took : 0) + w->jitter);
    }
    return NULL;
}

void warm_start(struct control *control, const char *own_url)
{
    static struct warm warm; /* lives as long as the process */
    pthread_t thread;
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    warm = (struct warm){.control = control,
                         .own_url = own_url,
                         .curl = curl_easy_init(),
                         .jitter = clock_mono_ns() % JITTER_MS};
    ASSERT(warm.curl != NULL);
    buf_init(&warm.page, PAGE_BYTES_MAX);
    int rv = pthread_create(&thread, NULL, main_of_thread, &warm);
    ASSERT(rv == 0);
    (void)pthread_detach(thread);
}
