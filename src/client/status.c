/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the public enumerations. */
#include "client/cadastre.h"

#include <stddef.h>

const char *cadastre_status_name(enum cadastre_status status)
{
    static const char *const names[] = {
        [CADASTRE_OK] = "ok",
        [CADASTRE_MISS] = "miss",
        [CADASTRE_STALE] = "stale",
        [CADASTRE_TIMEOUT] = "timeout",
        [CADASTRE_UNAVAILABLE] = "unavailable",
        [CADASTRE_BUSY] = "busy",
        [CADASTRE_NOT_FOUND] = "not_found",
        [CADASTRE_INVALID] = "invalid",
        [CADASTRE_REFUSED] = "refused",
        [CADASTRE_DENIED] = "denied",
        [CADASTRE_UNSUPPORTED] = "unsupported",
        [CADASTRE_LOCKED] = "locked",
        [CADASTRE_IO] = "io",
        [CADASTRE_NO_SESSION] = "no_session",
        [CADASTRE_CLOSED] = "closed",
    };
    size_t i = (size_t)status;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

const char *cadastre_stage_name(enum cadastre_stage stage)
{
    static const char *const names[] = {
        [CADASTRE_STAGE_NONE] = "",
        [CADASTRE_STAGE_PREPARE] = "PREPARE",
        [CADASTRE_STAGE_SNAPSHOT] = "SNAPSHOT",
        [CADASTRE_STAGE_COPY] = "COPY",
        [CADASTRE_STAGE_CATCH_UP] = "CATCH_UP",
        [CADASTRE_STAGE_DUAL_WRITE] = "DUAL_WRITE",
        [CADASTRE_STAGE_VALIDATE] = "VALIDATE",
        [CADASTRE_STAGE_FENCE] = "FENCE",
        [CADASTRE_STAGE_CUTOVER] = "CUTOVER",
        [CADASTRE_STAGE_JOIN] = "JOIN",
        [CADASTRE_STAGE_WINDOW] = "WINDOW",
        [CADASTRE_STAGE_CLEANUP] = "CLEANUP",
        [CADASTRE_STAGE_OTHER] = "OTHER",
    };
    size_t i = (size_t)stage;
    return i < sizeof names / sizeof names[0] ? names[i] : "OTHER";
}

const char *cadastre_version(void)
{
    return CADASTRE_VERSION;
}
