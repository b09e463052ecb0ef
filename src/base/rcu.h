/* SPDX-License-Identifier: Apache-2.0 */
/* liburcu (memb flavour), and what stands in for it where ThreadSanitizer must see every access
 * (-DRCU_TSAN): there a reader-writer lock, because liburcu's barriers are invisible to the
 * sanitizer.
 *
 * A thread that reads calls rcu_reader_start() once before and rcu_reader_stop() before it ends.
 * Between rcu_enter() and rcu_leave() a pointer from rcu_get() stays valid. rcu_retire() runs
 * fn(arg) on another thread once no reader can hold what was published before. Any thread but the
 * retire thread. */
#ifndef BASE_RCU_H
#define BASE_RCU_H

#ifdef RCU_TSAN
#include <stdatomic.h>
void rcu_tsan_enter(void);
void rcu_tsan_leave(void);
#define rcu_enter()            rcu_tsan_enter()
#define rcu_leave()            rcu_tsan_leave()
#define rcu_get(pp)            __atomic_load_n((pp), __ATOMIC_ACQUIRE)
#define rcu_publish(pp, value) __atomic_store_n((pp), (value), __ATOMIC_RELEASE)
static inline void rcu_reader_start(void)
{
}
static inline void rcu_reader_stop(void)
{
}
#else
#ifndef _LGPL_SOURCE
#define _LGPL_SOURCE /* inline read side: 2 ns, not 22 */
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wshadow"
#include <urcu.h>
#pragma GCC diagnostic pop
#define rcu_enter()            rcu_read_lock()
#define rcu_leave()            rcu_read_unlock()
#define rcu_get(pp)            rcu_dereference(*(pp))
#define rcu_publish(pp, value) rcu_assign_pointer(*(pp), (value))
#define rcu_reader_start()     rcu_register_thread()
#define rcu_reader_stop()      rcu_unregister_thread()
#endif

void rcu_retire(void (*fn)(void *arg), void *arg);

/* Waits until everything retired so far has been run. Not between rcu_enter and rcu_leave. */
void rcu_drain(void);

#endif
