/* The table of memory kinds (see device.h). */
#include "memory/device.h"

#include "memory/device_kinds.h"

const struct hoop_device *hoop_device(hoop_mem_kind_t kind)
{
    return kind == HOOP_MEM_HOST ? &hoop_device_host : &hoop_device_cuda;
}
