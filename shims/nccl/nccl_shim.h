/* Shared by the files of the shim. An ncclComm_t is a hoop_comm_t under another type. */
#ifndef NCCL_SHIM_H
#define NCCL_SHIM_H

#include "hoop.h"
#include "nccl/nccl_abi.h"

/* Translates hoop's result to NCCL's, and makes hoop's error text the calling thread's last one. */
ncclResult_t nccl_result(hoop_result_t result);

/* Returns result for a mistake that the shim finds itself; sentence, a static string, becomes the
 * calling thread's last error text. */
ncclResult_t nccl_refuse(ncclResult_t result, const char *sentence);

static inline hoop_comm_t nccl_comm(ncclComm_t comm)
{
    return (hoop_comm_t)(void *)comm;
}

#endif
