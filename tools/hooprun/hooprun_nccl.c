#include "hooprun/hooprun_nccl.h"

#include "hoop.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libnccl.so.2"

/* The real path of the folder of the libhoop that this program uses. */
static bool nccl_folder(char ret_folder[PATH_MAX])
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)&hoop_get_version, &info) == 0 ||
        realpath(info.dli_fname, ret_folder) == NULL) {
        return false;
    }
    *strrchr(ret_folder, '/') = '\0';
    return true;
}

static bool nccl_find(char ret_path[PATH_MAX])
{
    static const char *const places[] = {"hoop", "shims/nccl"};
    char folder[PATH_MAX];
    if (!nccl_folder(folder)) {
        fprintf(stderr, "hooprun: --nccl: cannot find out where libhoop is\n");
        return false;
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const int length = snprintf(ret_path, PATH_MAX, "%s/%s/" LIBRARY, folder, places[i]);
        if (length >= PATH_MAX || access(ret_path, R_OK) != 0) {
            continue;
        }
        if (strpbrk(ret_path, " :") == NULL) {
            return true;
        }
        fprintf(stderr,
                "hooprun: --nccl: '%s' cannot be preloaded: expected a path without blanks and "
                "colons\n",
                ret_path);
        return false;
    }
    fprintf(stderr,
            "hooprun: --nccl: there is no %s/hoop/" LIBRARY ": expected a hoop that was built with "
            "it (meson configure -Dnccl=enabled)\n",
            folder);
    return false;
}

bool hooprun_nccl_preload(void)
{
    const char *others = getenv("LD_PRELOAD");
    char path[PATH_MAX];
    char *all = NULL;
    if (!nccl_find(path)) {
        return false;
    }
    if (asprintf(&all, "%s%s%s", path, others != NULL ? ":" : "", others != NULL ? others : "") <
        0) {
        all = NULL;
    }
    const bool set = all != NULL && setenv("LD_PRELOAD", all, 1) == 0;
    free(all);
    if (!set) {
        fprintf(stderr, "hooprun: --nccl: out of memory\n");
    }
    return set;
}
