/* Communicators: how they come to be, and their ends. */
#include "nccl/nccl_shim.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(ncclUniqueId) == sizeof(hoop_unique_id_t), "a token is a token");
_Static_assert(NCCL_SPLIT_NOCOLOR == HOOP_SPLIT_NOCOLOR, "no color is no color");

static hoop_unique_id_t comms_token(const ncclUniqueId *id)
{
    hoop_unique_id_t token;
    memcpy(&token, id, sizeof(token));
    return token;
}

/* Has the caller's struct the field that ends there? */
#define HAS(config, field)                                                                         \
    ((config)->size >= offsetof(ncclConfig_t, field) + sizeof((config)->field))

/*
 * Two fields mean something here; the others are advice to NCCL's kernels and network. ret_used:
 * NULL where config is.
 */
static ncclResult_t comms_config(const ncclConfig_t *config, hoop_config_t *ret,
                                 const hoop_config_t **ret_used)
{
    static _Thread_local char name[128]; /* the most that hoop takes; NCCL has no limit */
    *ret_used = NULL;
    if (config == NULL) {
        return ncclSuccess;
    }
    if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclConfig_t, blocking)) {
        return nccl_refuse(ncclInvalidArgument,
                           "config was not made with NCCL_CONFIG_INITIALIZER: its magic number or "
                           "its size is another");
    }
    *ret = (hoop_config_t)HOOP_CONFIG_INITIALIZER;
    if (HAS(config, blocking) && config->blocking != NCCL_CONFIG_UNDEF_INT) {
        ret->blocking = config->blocking;
    }
    if (HAS(config, commName) && config->commName != NULL) {
        (void)snprintf(name, sizeof(name), "%s", config->commName);
        ret->comm_name = name;
    }
    *ret_used = ret;
    return ncclSuccess;
}

/* ---- Birth ---------------------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    return nccl_result(hoop_get_unique_id((hoop_unique_id_t *)(void *)uniqueId));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    hoop_config_t own;
    const hoop_config_t *used = NULL;
    const ncclResult_t known = comms_config(config, &own, &used);
    return known != ncclSuccess
               ? known
               : nccl_result(hoop_comm_init_rank_config((hoop_comm_t *)comm, nranks,
                                                        comms_token(&commId), rank, used));
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, commId, rank, NULL);
}

/* All ranks have the same tokens in the same order, and hoop's tree needs but one. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || commIds == NULL) {
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommInitRankScalable: expected at least one id");
    }
    return ncclCommInitRankConfig(newcomm, nranks, commIds[0], myrank, config);
}

/* devlist is not looked at: to hoop the device is that of each buffer. */
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    (void)devlist;
    return nccl_result(hoop_comm_init_all((hoop_comm_t *)comm, ndev, NULL));
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    hoop_config_t own;
    const hoop_config_t *used = NULL;
    const ncclResult_t known = comms_config(config, &own, &used);
    return known != ncclSuccess ? known
                                : nccl_result(hoop_comm_split(nccl_comm(comm), color, key,
                                                              (hoop_comm_t *)newcomm, used));
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                            ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    hoop_config_t own;
    const hoop_config_t *used = NULL;
    const ncclResult_t known = comms_config(config, &own, &used);
    return known != ncclSuccess
               ? known
               : nccl_result(hoop_comm_shrink(nccl_comm(comm), excludeRanksList, excludeRanksCount,
                                              (hoop_comm_t *)newcomm, used, shrinkFlags));
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
    return nccl_result(
        hoop_comm_get_unique_id(nccl_comm(comm), (hoop_unique_id_t *)(void *)uniqueId));
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                          ncclComm_t *newcomm, ncclConfig_t *config)
{
    hoop_config_t own;
    const hoop_config_t *used = NULL;
    const ncclResult_t known = comms_config(config, &own, &used);
    return known != ncclSuccess
               ? known
               : nccl_result(hoop_comm_grow(nccl_comm(comm), nRanks,
                                            (const hoop_unique_id_t *)(const void *)uniqueId, rank,
                                            (hoop_comm_t *)newcomm, used));
}

/* ---- What it is, and its end ---------------------------------------------------------------- */

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return nccl_result(hoop_comm_count(nccl_comm(comm), count));
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return nccl_result(hoop_comm_user_rank(nccl_comm(comm), rank));
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return nccl_result(hoop_comm_cu_device(nccl_comm(comm), device));
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return nccl_result(hoop_comm_finalize(nccl_comm(comm)));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return nccl_result(hoop_comm_destroy(nccl_comm(comm)));
}

/*
 * To NCCL the handle is dead afterwards, and programs call nothing more. hoop's stays, so that a
 * thread that is about to call finds it aborted; its few KiB are the price.
 */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return nccl_result(hoop_comm_abort(nccl_comm(comm)));
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    return nccl_result(hoop_comm_revoke(nccl_comm(comm), revokeFlags));
}
