/* The version, results and error texts, and the functions that are refused. */
#include "nccl/nccl_shim.h"

/* The shim's own last error text; NULL: the last error is hoop's. */
static _Thread_local const char *nccl_said;

/* hoop's results below 64 have NCCL's numbers. */
static ncclResult_t nccl_result_of(hoop_result_t result)
{
    switch (result) {
    case HOOP_TIMEOUT:
        return ncclTimeout;
    case HOOP_UNSUPPORTED:
    case HOOP_MISMATCH:
        return ncclInvalidUsage;
    case HOOP_ABORTED:
        return ncclRemoteError;
    case HOOP_NOT_AUTHENTICATED:
    case HOOP_OUT_OF_MEMORY:
        return ncclSystemError;
    default:
        return (ncclResult_t)result;
    }
}

ncclResult_t nccl_result(hoop_result_t result)
{
    nccl_said = NULL;
    return nccl_result_of(result);
}

ncclResult_t nccl_refuse(ncclResult_t result, const char *sentence)
{
    nccl_said = sentence;
    return result;
}

ncclResult_t ncclGetVersion(int *version)
{
    if (version == NULL) {
        return nccl_refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    }
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return hoop_get_error_string(result == ncclTimeout ? HOOP_TIMEOUT : (hoop_result_t)result);
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return nccl_said != NULL ? nccl_said : hoop_get_last_error(nccl_comm(comm));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    hoop_result_t state = HOOP_OK;
    const hoop_result_t result =
        hoop_comm_get_async_error(nccl_comm(comm), asyncError != NULL ? &state : NULL);
    if (asyncError != NULL && result == HOOP_OK) {
        *asyncError = nccl_result_of(state);
    }
    return nccl_result(result);
}

/* Does nothing: logging is set by HOOP_DEBUG, which is read once. */
void ncclResetDebugInit(void)
{
}

#define NCCL_REFUSE(name)                                                                          \
    ncclResult_t name(void)                                                                        \
    {                                                                                              \
        return nccl_refuse(ncclInvalidUsage,                                                       \
                           #name "() is not supported by hoop: it has no windows, no "             \
                                 "one-sided transfers, no communicators for "                      \
                                 "kernels, and does not suspend");                                 \
    }
NCCL_REFUSED(NCCL_REFUSE)
