/* Windows: not in this version; the functions return HOOP_UNSUPPORTED with a sentence. */
#include "api/group.h"
#include "base/error.h"

#define UNSUPPORTED(name, ...)                                                                     \
    hoop_result_t name(__VA_ARGS__)                                                                \
    {                                                                                              \
        return hoop_group_spoil_by(                                                                \
            comm, hoop_error(HOOP_UNSUPPORTED, "%s() is not supported by this version", #name));   \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

UNSUPPORTED(hoop_comm_window_register, hoop_comm_t comm, void *buff, size_t size,
            hoop_window_t *win, int win_flags)
UNSUPPORTED(hoop_comm_window_deregister, hoop_comm_t comm, hoop_window_t win)
