#!/bin/sh
# A program that was built against an older header, whose hoop_config_t ended earlier: today's
# library takes what that one had, and nothing of what lies behind it.
#     check_old_config.sh LIBHOOP
set -eu
lib=$(readlink -f "$1")
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if nm -D "$lib" | grep -q -e ' U __asan_' -e ' U __tsan_'; then
    echo "the library was built with a sanitizer: a plain program cannot load it"
    exit 77
fi
# The same header without the last two fields, which the initializer has at its end.
sed -E -e '/^ *const char \*(algo|comm_name);/d' -e 's/(HOOP_CONFIG_UNDEF_INT), NULL, NULL/\1/' \
    "$source/include/hoop.h" >"$work/hoop.h"
cat >"$work/old.c" <<'END'
#include "hoop.h"
#include <string.h>
_Static_assert(sizeof(hoop_config_t) == 32, "the header is not the shorter one");
int main(void)
{
    struct {
        hoop_config_t config;
        char behind[32];
    } old = {.config = HOOP_CONFIG_INITIALIZER};
    hoop_unique_id_t id;
    hoop_comm_t comm = 0;
    memset(old.behind, 0xff, sizeof(old.behind)); /* no pointer to a name */
    if (hoop_get_unique_id(&id) != HOOP_OK ||
        hoop_comm_init_rank_config(&comm, 1, id, 0, &old.config) != HOOP_OK ||
        hoop_comm_destroy(comm) != HOOP_OK) {
        return 1;
    }
    old.config.dead_after_ms = 1; /* this one it had */
    return hoop_get_unique_id(&id) == HOOP_OK &&
                   hoop_comm_init_rank_config(&comm, 1, id, 0, &old.config) == HOOP_INVALID_ARGUMENT
               ? 0
               : 2;
}
END
cc -Werror "$work/old.c" -o "$work/old" "$lib"
LD_LIBRARY_PATH="${lib%/*}" timeout 60 "$work/old"
