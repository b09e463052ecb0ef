/* SPDX-License-Identifier: Apache-2.0 */
/* GUARD_PARK: a snapshot that comes while another one is being stored is handed to libraft after
 * that. Raft lets messages be as late as they like. One at a time: a newer one takes its place. */
#include "base/mem.h"
#include "raft/guard_internal.h"

#include <string.h>

static bool is_storing(const struct raft *r)
{
    return r->snapshot.put.data != NULL || r->snapshot.pending.term != 0;
}

void guard_park_drop(struct guard *g)
{
    struct raft_message *m = &g->parked;
    if (g->parked_address != NULL) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
        mem_free(g->parked_address);
        g->parked_address = NULL;
    }
}

bool guard_park(struct guard *g, const struct raft_message *m)
{
    if (!guard_on(g, GUARD_PARK) || !is_storing(g->raft) ||
        m->install_snapshot.term < g->raft->current_term) {
        return false;
    }
    guard_park_drop(g);
    g->parked = *m;
    g->parked_address = mem_strdup(m->server_address);
    g->parked.server_address = g->parked_address;
    g->stats.snapshots_parked++;
    return true;
}

bool guard_unpark(struct guard *g, struct raft_message *ret_message, char **ret_address)
{
    if (g->parked_address == NULL || is_storing(g->raft)) {
        return false;
    }
    *ret_message = g->parked;
    *ret_address = g->parked_address;
    g->parked_address = NULL;
    return true;
}
