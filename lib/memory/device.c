/* The table of memory kinds (see device.h). */
#include "memory/device.h"

const struct hoop_device *hoop_device(uint32_t kind)
{
    return kind == HOOP_MEM_HOST    ? &hoop_device_host
           : kind == HOOP_MEM_PLAIN ? &hoop_device_ipc
                                    : &hoop_device_cuda;
}
