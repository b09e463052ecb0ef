/* SPDX-License-Identifier: Apache-2.0 */
#include "join.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_MAX_BYTES = 1 << 20,
    TRY_FOR_MS = 60000,
    TRY_MOVED_MS = 15000,
    TRY_AGAIN_MS = 500,
    ONE_TRY_SECONDS = 10,
    REDIRECTS_MAX = 4
};

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct buf *b = arg;
    buf_put(b, data, size * count);
    return b->overflow ? 0 : size * count;
}

static void instance_hex(const uint8_t *instance, char out[2 * REPLICA_INSTANCE_SIZE + 1])
{
    for (unsigned i = 0; i < REPLICA_INSTANCE_SIZE; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", instance[i]);
    }
}

static bool instance_parse(const char *text, uint8_t out[REPLICA_INSTANCE_SIZE])
{
    size_t len;
    return parse_hex(slice_of(text, strlen(text)), out, REPLICA_INSTANCE_SIZE, &len) &&
           len == REPLICA_INSTANCE_SIZE;
}

static char *request_body(const struct config *config, const struct replica_identity *identity)
{
    char instance[2 * REPLICA_INSTANCE_SIZE + 1];
    instance_hex(identity->instance, instance);
    json_t *body = json_pack("{s:I,s:s,s:s,s:s,s:s}", "id", (json_int_t)identity->id,
                             "raft_address", config->raft_addr, "api_url", config->api_url, "role",
                             config->observer ? "observer" : "voter", "instance", instance);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/* One POST. The HTTP status, or 0 when nothing was reached (`why` says what). */
static long post(const char *url, const char *body, struct buf *answer, char why[CURL_ERROR_SIZE])
{
    long status = 0;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    why[0] = '\0';
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)ONE_TRY_SECONDS);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    if (curl_easy_perform(curl) == CURLE_OK) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

static bool read_peer(json_t *server, struct replica_peer *ret_peer)
{
    json_int_t id = 0;
    const char *raft_address = NULL, *api_url = NULL, *instance = NULL;
    *ret_peer = (struct replica_peer){0};
    if (json_unpack(server, "{s:I,s:s,s:s,s:s}", "id", &id, "raft_address", &raft_address,
                    "api_url", &api_url, "instance", &instance) != 0 ||
        id <= 0 || strlen(raft_address) > REPLICA_ADDRESS_MAX ||
        strlen(api_url) > REPLICA_ADDRESS_MAX || !instance_parse(instance, ret_peer->instance)) {
        return false;
    }
    ret_peer->id = (uint64_t)id;
    (void)snprintf(ret_peer->raft_address, sizeof ret_peer->raft_address, "%s", raft_address);
    (void)snprintf(ret_peer->api_url, sizeof ret_peer->api_url, "%s", api_url);
    return true;
}

static enum err_code read_answer(const struct buf *body, struct join_answer *a, struct err *e)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)body->data, body->len, 0, &why), *server,
           *servers = NULL;
    const char *cluster = NULL;
    json_int_t generation = 0;
    size_t i;
    *a = (struct join_answer){0};
    bool ok = root != NULL &&
              json_unpack(root, "{s:s,s:I,s:o}", "cluster", &cluster, "generation", &generation,
                          "servers", &servers) == 0 &&
              strlen(cluster) == sizeof a->cluster - 1 && json_is_array(servers) &&
              json_array_size(servers) <= REPLICA_SERVERS_MAX;
    if (ok) {
        memcpy(a->cluster, cluster, sizeof a->cluster);
        a->generation = (uint64_t)generation;
        json_array_foreach(servers, i, server)
        {
            ok = ok && read_peer(server, &a->peers[a->peer_count]);
            a->peer_count++;
        }
    }
    json_decref(root);
    return ok ? ERR_OK : err_set(e, ERR_IO, "the cluster's answer to --join can't be read");
}

static enum err_code refused(const struct buf *body, long status, struct err *e)
{
    json_t *root = json_loadb((const char *)body->data, body->len, 0, NULL);
    const char *detail = json_string_value(json_object_get(root, "detail"));
    (void)err_set(e, ERR_INVALID_REQUEST, "the cluster refused this server (%ld): %s", status,
                  detail != NULL ? detail : "no reason given");
    json_decref(root);
    return e->code;
}

/* Posts until it is answered for good. */
static enum err_code ask(const struct config *config,
                         const struct replica_identity *identity,
                         bool moved,
                         struct join_answer *ret_answer,
                         struct err *e)
{
    char url[CONFIG_TEXT_MAX + 32], why[CURL_ERROR_SIZE];
    struct buf answer;
    uint64_t until =
        clock_mono_ms() + (moved ? TRY_MOVED_MS + 4 * (uint64_t)config->election_ms : TRY_FOR_MS);
    enum err_code code = ERR_IO;
    char *body = request_body(config, identity);
    (void)snprintf(url, sizeof url, "%s/v1/cluster/servers", config->join);
    buf_init(&answer, ANSWER_MAX_BYTES);
    do {
        buf_reset(&answer);
        long status = post(url, body, &answer, why);
        if (status == 200 || status == 201) {
            code = read_answer(&answer, ret_answer, e);
            break;
        }
        if (status >= 400 && status < 500) {
            code = refused(&answer, status, e);
            if (!moved) {
                break;
            } /* its old process may still count as connected for a moment */
        } else {
            code =
                err_set(e, ERR_IO, "no answer from %s: %s", url, status == 0 ? why : "not ready");
        }
        (void)nanosleep(&(struct timespec){0, TRY_AGAIN_MS * 1000000L}, NULL);
    } while (clock_mono_ms() < until);
    buf_close(&answer);
    mem_free(body); /* jansson allocates with malloc */
    return code;
}

enum err_code join_cluster(const struct config *config,
                           const struct replica_identity *identity,
                           struct join_answer *ret_answer,
                           struct err *e)
{
    return ask(config, identity, false, ret_answer, e);
}

enum err_code
join_moved(const struct config *config, const struct replica_identity *identity, struct err *e)
{
    struct join_answer answer;
    return ask(config, identity, true, &answer, e);
}
