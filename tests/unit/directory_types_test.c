/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "directory/types.h"
#include "directory/view.h"
#include "tests/harness/tap.h"

static struct dir_object *bytes_new(void)
{
    struct dir_object *o = mem_zalloc(sizeof *o);
    o->refs = 1;
    o->kind = DIR_KIND_BYTES;
    return o;
}

static void references_are_counted(void)
{
    CHECK(dir_ref(NULL) == NULL);
    dir_unref(NULL);
    struct dir_object *o = bytes_new();
    CHECK(dir_ref(o) == o);
    CHECK_U64(o->refs, 2);
    dir_unref(o);
    CHECK_U64(o->refs, 1);
    dir_unref(o);
}

/* The last reference of a map takes its tree with it, and the tree what is in it. */
static void a_map_owns_its_tree(void)
{
    struct dir_map *map = mem_zalloc(sizeof *map);
    struct dir_object *value = bytes_new();
    map->object.refs = 2;
    map->object.kind = DIR_KIND_MAP;
    CHECK(ptree_put(&map->by_start, slice_of("k", 1), dir_ref(value)) == NULL);
    dir_unref(map);
    CHECK_U64(value->refs, 2);
    dir_unref(map);
    CHECK_U64(value->refs, 1);
    dir_unref(value);
}

static void names_are_the_words_of_the_api(void)
{
    CHECK_STR(dir_change_name(DIR_CHANGE_CREATE), "create");
    CHECK_STR(dir_change_name(DIR_CHANGE_SPLIT), "split");
    CHECK_STR(dir_change_name(DIR_CHANGE_LOST), "lost");
    CHECK_STR(dir_scheme_name(DIR_SCHEME_RANGE), "range");
    CHECK_STR(dir_scheme_name(DIR_SCHEME_HASH), "hash");
    CHECK_STR(dir_role_name(DIR_ROLE_PRIMARY), "primary");
    CHECK_STR(dir_role_name(DIR_ROLE_JOINING), "joining");
    CHECK_STR(dir_state_name(DIR_ACTIVE), "active");
    CHECK_STR(dir_state_name(DIR_FENCING), "fencing");
    CHECK_STR(dir_state_name(DIR_UNAVAILABLE), "unavailable");
    for (int kind = DIR_CHANGE_CREATE; kind <= DIR_CHANGE_LOST; kind++) {
        CHECK(dir_change_name((enum dir_change_kind)kind) != NULL);
    }
}

int main(void)
{
    RUN(references_are_counted);
    RUN(a_map_owns_its_tree);
    RUN(names_are_the_words_of_the_api);
    return tap_done();
}
