/* What the files of the shim share. A comm of NCCL's is one of hoop's, under another name. */
#ifndef NCCL_SHIM_H
#define NCCL_SHIM_H

#include "hoop.h"
#include "nccl/nccl_abi.h"

/* NCCL's result for hoop's. The calling thread's sentence is then hoop's. */
ncclResult_t nccl_result(hoop_result_t result);

/* A mistake that hoop does not hear of: sentence is static, and the calling thread's from now on.
 */
ncclResult_t nccl_refuse(ncclResult_t result, const char *sentence);

static inline hoop_comm_t nccl_comm(ncclComm_t comm)
{
    return (hoop_comm_t)(void *)comm;
}

#endif
