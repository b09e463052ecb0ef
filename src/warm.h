/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a follower's loads warm: a thread asks the leader's API for what it has heard, every few
 * seconds, so that this server is not blind on the day that it leads. What fails is counted and
 * tried again; nothing depends on it. */
#ifndef WARM_H
#define WARM_H

#include "control/control.h"

/* `own_url` lives as long as the process, as the thread does. */
void warm_start(struct control *control, const char *own_url);

#endif
