/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: asks every endpoint, and every member that an endpoint names, and compares what they say.
 * Hashes can only be compared at the same applied index, so servers are asked again until every one
 * was seen at an index of the first. */
#include "cli/cmd.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { DOCTOR_ROUNDS = 8, DOCTOR_PAUSE_MS = 150, DOCTOR_TEXT_MAX = 160 };

struct sample {
    uint64_t index;
    char hash[33];
};

struct patient {
    char url[HTTP_URL_MAX + 1];
    bool reachable, ready;
    char cluster[33];
    uint64_t generation;
    unsigned sample_count;
    struct sample samples[DOCTOR_ROUNDS];
    char complaint[DOCTOR_TEXT_MAX]; /* "" when well */
};

struct ward {
    struct cli *c;
    unsigned count;
    struct patient patients[HTTP_MEMBERS_MAX];
};

static void complain(struct patient *p, const char *text)
{
    if (p->complaint[0] == '\0') {
        (void)snprintf(p->complaint, sizeof p->complaint, "%s", text);
    }
}

static void admit(struct ward *w, const char *url)
{
    char origin[HTTP_URL_MAX + 1];
    if (!http_origin(url, origin) || w->count == HTTP_MEMBERS_MAX) {
        return;
    }
    for (unsigned i = 0; i < w->count; i++) {
        if (strcmp(w->patients[i].url, origin) == 0) {
            return;
        }
    }
    struct patient *p = &w->patients[w->count++];
    *p = (struct patient){0};
    memcpy(p->url, origin, sizeof p->url);
}

static void copy_hex(char out[33], const json_t *value)
{
    const char *text = json_string_value(value);
    (void)snprintf(out, 33, "%s", text != NULL ? text : "");
}

static void take_cluster(struct ward *w, struct patient *p, const json_t *body)
{
    struct sample *s = &p->samples[p->sample_count++];
    s->index = (uint64_t)json_integer_value(json_object_get(body, "applied_index"));
    copy_hex(s->hash, json_object_get(body, "state_hash"));
    copy_hex(p->cluster, json_object_get(body, "cluster"));
    p->generation = (uint64_t)json_integer_value(json_object_get(body, "generation"));
    size_t at;
    json_t *server;
    json_array_foreach(json_object_get(body, "servers"), at, server)
    {
        const char *url = json_string_value(json_object_get(server, "api_url"));
        if (url != NULL) {
            admit(w, url);
        }
    }
}

static void ask_cluster(struct ward *w, struct patient *p)
{
    struct http_request rq = {.method = "GET", .target = "/v1/cluster"};
    struct http_response r;
    struct err e;
    if (http_ask(w->c->http, p->url, &rq, &r, &e) != HTTP_ANSWERED) {
        complain(p, e.detail);
    } else if (r.status == 200) {
        json_t *body = json_loadb((const char *)r.body.data, r.body.len, 0, NULL);
        if (body != NULL) {
            take_cluster(w, p, body);
        } else {
            complain(p, "/v1/cluster is not JSON");
        }
        json_decref(body);
    } else {
        complain(p, "/v1/cluster did not answer 200");
    }
    http_response_close(&r);
}

static void ask_ready(struct ward *w, struct patient *p)
{
    struct http_request rq = {.method = "GET", .target = "/readyz", .accept = "text/plain"};
    struct http_response r;
    struct err e;
    p->reachable = http_ask(w->c->http, p->url, &rq, &r, &e) == HTTP_ANSWERED;
    p->ready = p->reachable && r.status == 200;
    if (!p->reachable) {
        complain(p, e.detail);
    } else if (!p->ready) {
        complain(p, "not ready");
    }
    http_response_close(&r);
}

/* Compares every two samples of the same index; false when there is no such pair. */
static bool compare(const struct patient *a, const struct patient *b, bool *ret_same)
{
    bool found = false;
    *ret_same = true;
    for (unsigned i = 0; i < a->sample_count; i++) {
        for (unsigned j = 0; j < b->sample_count; j++) {
            if (a->samples[i].index == b->samples[j].index) {
                found = true;
                *ret_same = *ret_same && strcmp(a->samples[i].hash, b->samples[j].hash) == 0;
            }
        }
    }
    return found;
}

/* The first one that answers: what the others are held against. */
static const struct patient *reference(const struct ward *w)
{
    for (unsigned i = 0; i < w->count; i++) {
        if (w->patients[i].sample_count > 0) {
            return &w->patients[i];
        }
    }
    return NULL;
}

static bool all_compared(const struct ward *w)
{
    const struct patient *first = reference(w);
    bool same;
    for (unsigned i = 0; first != NULL && i < w->count; i++) {
        if (w->patients[i].sample_count > 0 && !compare(first, &w->patients[i], &same)) {
            return false;
        }
    }
    return true;
}

static const char *judge(const struct ward *w, struct patient *p)
{
    const struct patient *first = reference(w);
    bool same;
    if (first == NULL || p->sample_count == 0) {
        return "unknown";
    }
    if (strcmp(p->cluster, first->cluster) != 0) {
        complain(p, "another cluster");
        return "unknown";
    }
    if (p->generation != first->generation) {
        complain(p, "another generation");
        return "unknown";
    }
    if (!compare(first, p, &same)) {
        complain(p, "never seen at an index of the first server: try again when less is written");
        return "unknown";
    }
    if (!same) {
        complain(p, "its state differs at the same index");
    }
    return same ? "same" : "differs";
}

static void examine(struct ward *w)
{
    /* The list grows while members are learnt. */
    for (unsigned i = 0; i < w->count; i++) {
        ask_ready(w, &w->patients[i]);
        if (w->patients[i].reachable) {
            ask_cluster(w, &w->patients[i]);
        }
    }
    for (unsigned round = 1; round < DOCTOR_ROUNDS && !all_compared(w); round++) {
        struct timespec pause = {0, DOCTOR_PAUSE_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
        for (unsigned i = 0; i < w->count; i++) {
            if (w->patients[i].sample_count > 0) {
                ask_cluster(w, &w->patients[i]);
            }
        }
    }
}

static json_t *row_of(const struct ward *w, struct patient *p)
{
    json_t *row = json_object();
    const char *state = judge(w, p);
    (void)json_object_set_new(row, "server", json_string(p->url));
    (void)json_object_set_new(row, "reachable", json_boolean(p->reachable));
    (void)json_object_set_new(row, "ready", json_boolean(p->ready));
    if (p->sample_count > 0) {
        const struct sample *s = &p->samples[p->sample_count - 1];
        (void)json_object_set_new(row, "generation", json_integer((json_int_t)p->generation));
        (void)json_object_set_new(row, "applied_index", json_integer((json_int_t)s->index));
    }
    (void)json_object_set_new(row, "state", json_string(state));
    (void)json_object_set_new(row, "verdict",
                              json_string(p->complaint[0] == '\0' ? "ok" : p->complaint));
    return row;
}

static const struct out_column columns[] = {
    {"SERVER", "server", NULL},         {"REACHABLE", "reachable", NULL},
    {"READY", "ready", NULL},           {"GENERATION", "generation", NULL},
    {"APPLIED", "applied_index", NULL}, {"STATE", "state", NULL},
    {"VERDICT", "verdict", NULL},       {NULL, NULL, NULL}};
static const struct out_view view = {"server", columns};

static int doctor_run(struct cli *c)
{
    struct ward w = {.c = c};
    for (unsigned i = 0; i < http_endpoint_count(c->http); i++) {
        admit(&w, http_endpoint(c->http, i));
    }
    examine(&w);
    json_t *rows = json_array(), *answer = json_object();
    unsigned ill = 0;
    for (unsigned i = 0; i < w.count; i++) {
        (void)json_array_append_new(rows, row_of(&w, &w.patients[i]));
        ill += w.patients[i].complaint[0] != '\0';
    }
    (void)json_object_set_new(answer, "servers", rows);
    (void)cmd_finish_rows(c, EXIT_DONE, answer, "servers", &view);
    if (ill > 0) {
        return cli_fail(EXIT_FAILED, "%u of %u servers have a problem", ill, w.count);
    }
    cli_note(c, "all is well");
    return EXIT_DONE;
}

const struct cli_command doctor_commands[] = {
    {"", "", "Ask every server whether it is well, and compare their states",
     "cadastre -e http://10.0.0.1:7400,http://10.0.0.2:7400 doctor\n", NULL, doctor_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
