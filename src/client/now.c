/* SPDX-License-Identifier: Apache-2.0 */
#include "client/now.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <stddef.h>

int (*cl_clock)(clockid_t id, struct timespec *ret_time) = clock_gettime;

/* The kernel's page with the clock (vdso(7)); its handle is never closed. */
__attribute__((constructor)) static void find_clock(void)
{
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    union {
        void *symbol;
        int (*function)(clockid_t id, struct timespec *ret_time);
    } found = {vdso != NULL ? dlsym(vdso, "__vdso_clock_gettime") : NULL};
    if (found.symbol != NULL) {
        cl_clock = found.function;
    }
}

uint64_t cl_now_ms(void)
{
    static _Thread_local uint64_t tick, boot_ms;
    uint64_t now = cl_tick();
    if (now != tick || boot_ms == 0) {
        boot_ms = clock_boot_ms();
        tick = now;
    }
    return boot_ms;
}

bool cl_until_look(struct cl_until *u, uint64_t tick)
{
    /* The tick was read before the clock: if it has passed since, nobody goes by it. */
    bool ahead = clock_boot_ms() + CL_NOW_ERROR_MS < cl_until_get(u);
    if (ahead) {
        atomic_store_explicit(&u->tick, tick, memory_order_relaxed);
    }
    return ahead;
}

void cl_until_set(struct cl_until *u, uint64_t at_ms)
{
    bool sooner = at_ms < cl_until_get(u);
    atomic_store(&u->at_ms, at_ms);
    if (sooner) {
        atomic_store(&u->tick, 0);
    }
}
