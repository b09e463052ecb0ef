/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 9457 bodies. */
#include "api/internal.h"

#include "api/json.h"

void problem_public(const struct err *e, struct err *ret_public)
{
    *ret_public = *e;
    if (e->code == ERR_OK || e->code >= ERR_NOT_LEADER) {
        (void)err_set(ret_public, ERR_INTERNAL, "the server's log has the reason");
    }
}

void problem_write(struct buf *out,
                   const struct err *e,
                   const char *instance,
                   uint64_t retry_after_ms)
{
    buf_put_str(out, "{\"type\":\"/problems/");
    buf_put_str(out, err_slug(e->code));
    buf_put_str(out, "\",\"title\":");
    json_put_cstring(out, err_title(e->code));
    buf_put_str(out, ",\"status\":");
    buf_put_u64_dec(out, (uint64_t)err_http_status(e->code));
    buf_put_str(out, ",\"code\":\"");
    buf_put_str(out, err_slug(e->code));
    buf_put_str(out, "\",\"detail\":");
    json_put_cstring(out, e->detail);
    buf_put_str(out, ",\"instance\":");
    json_put_cstring(out, instance);
    if (e->pointer[0] != '\0') {
        buf_put_str(out, ",\"errors\":[{\"pointer\":");
        json_put_cstring(out, e->pointer);
        buf_put_str(out, ",\"detail\":");
        json_put_cstring(out, e->detail);
        buf_put_str(out, "}]");
    }
    if (retry_after_ms > 0) {
        buf_put_str(out, ",\"retry_after_ms\":");
        buf_put_u64_dec(out, retry_after_ms);
    }
    buf_put_u8(out, '}');
}
