/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario's windows in the directory, and what they hold, as a leader sees it. */
#include "simulate/internal.h"

void fm_put_windows(const struct fm *x, struct fm_windows *room, Cadastre__BalancerPatch *m)
{
    m->has_windows = true;
    m->n_windows = x->s->window_count;
    m->windows = room->of;
    for (uint32_t i = 0; i < x->s->window_count; i++) {
        const struct scenario_window *w = &x->s->windows[i];
        Cadastre__BalancerWindow *o = room->of[i] = &room->values[i];
        cadastre__balancer_window__init(o);
        o->name = text_lent(w->name);
        o->kind = w->kind;
        o->time_zone = text_lent("UTC");
        o->from_ms = FM_EPOCH_MS + w->from_ms;
        o->to_ms = FM_EPOCH_MS + w->to_ms;
    }
}

void fm_hold(struct fm *x, struct windows_hold *ret)
{
    windows_read(&x->windows, view_balancer(fm_view(x)), 0);
    windows_look(&x->windows, fm_log_ms(x), ret);
}

bool fm_is_held(struct fm *x)
{
    struct windows_hold h;
    fm_hold(x, &h);
    return h.code != NULL;
}
