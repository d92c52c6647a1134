/* Communicators: how they are made, what they are, and how they end. */
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

/* Does the caller's struct have the field? An older version's is shorter. */
#define HAS(config, field)                                                                         \
    ((config)->size >= offsetof(ncclConfig_t, field) + sizeof((config)->field))

/*
 * Translates a config. Only two fields mean anything to hoop; the others are hints for NCCL's
 * kernels and network. *ret_used: ret, or NULL if config is NULL.
 */
static ncclResult_t comms_config(const ncclConfig_t *config, hoop_config_t *ret,
                                 const hoop_config_t **ret_used)
{
    static _Thread_local char name[128]; /* hoop's limit; NCCL has none, so longer names are cut */
    *ret_used = NULL;
    if (config == NULL) {
        return ncclSuccess;
    }
    if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclConfig_t, blocking)) {
        return nccl_refuse(ncclInvalidArgument, "config was not made with NCCL_CONFIG_INITIALIZER: "
                                                "its magic number or its size differs");
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

/* All ranks have the same ids in the same order, and hoop needs only one of them. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || commIds == NULL) {
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommInitRankScalable: expected at least one id");
    }
    return ncclCommInitRankConfig(newcomm, nranks, commIds[0], myrank, config);
}

/* Without a GPU, where NCCL would fail, the numbers mean nothing. */
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    hoop_result_t result = hoop_comm_init_all((hoop_comm_t *)comm, ndev, devlist);
    if (result == HOOP_UNSUPPORTED && devlist != NULL) {
        result = hoop_comm_init_all((hoop_comm_t *)comm, ndev, NULL);
    }
    return nccl_result(result);
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

/* ---- Properties, and the end ---------------------------------------------------------------- */

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
 * In NCCL the handle is invalid afterwards. In hoop it stays, so that a thread that is about to
 * make a call finds the communicator aborted. As NCCL's programs do not destroy it after that, its
 * few KiB leak.
 */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return nccl_result(hoop_comm_abort(nccl_comm(comm)));
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    return nccl_result(hoop_comm_revoke(nccl_comm(comm), revokeFlags));
}
