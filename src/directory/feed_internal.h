/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's side of the feed: for directory.c and tests. Loop thread only. */
#ifndef DIRECTORY_FEED_INTERNAL_H
#define DIRECTORY_FEED_INTERNAL_H

#include "directory/feed.h"

struct dir_feed *feed_new(void);
/* No reader may be left. */
void feed_free(struct dir_feed *f);

/* Appends a change; takes over the reference. Revisions never go down; several changes may have
 * one. Publish the changes of a revision before the view that shows it, or a reader of that view
 * misses them. Each array and each bound of the change is a mem_alloc of its own (or NULL), which
 * change_unref frees. */
void feed_publish(struct dir_feed *f, struct dir_change *change);

/* After the view of `revision` was published: runs the listeners. */
void feed_wake(struct dir_feed *f, dir_rev revision);

/* Forgets everything: the state is now one at `revision` that no change led to. */
void feed_reset(struct dir_feed *f, dir_rev revision);

#endif
