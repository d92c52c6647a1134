/* Operations, groups and memory: each call becomes hoop's call of the same name in snake case. */
#include "nccl/nccl_shim.h"

_Static_assert((int)ncclFloat8e5m2 == (int)HOOP_FLOAT8E5M2 && (int)ncclAvg == (int)HOOP_AVG,
               "datatypes and operations have NCCL's numbers");

#define TYPE ((hoop_datatype_t)datatype)
#define OP ((hoop_red_op_t)op)
#define COMM nccl_comm(comm)

/* ---- Collectives and transfers -------------------------------------------------------------- */

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return nccl_result(hoop_all_reduce(sendbuff, recvbuff, count, TYPE, OP, COMM, stream));
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_reduce(sendbuff, recvbuff, count, TYPE, OP, root, COMM, stream));
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    return nccl_result(hoop_reduce_scatter(sendbuff, recvbuff, recvcount, TYPE, OP, COMM, stream));
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_all_gather(sendbuff, recvbuff, sendcount, TYPE, COMM, stream));
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_broadcast(sendbuff, recvbuff, count, TYPE, root, COMM, stream));
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return nccl_result(hoop_bcast(buff, count, TYPE, root, COMM, stream));
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_alltoall(sendbuff, recvbuff, count, TYPE, COMM, stream));
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_gather(sendbuff, recvbuff, count, TYPE, root, COMM, stream));
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_scatter(sendbuff, recvbuff, count, TYPE, root, COMM, stream));
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_send(sendbuff, count, TYPE, peer, COMM, stream));
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return nccl_result(hoop_recv(recvbuff, count, TYPE, peer, COMM, stream));
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    hoop_red_op_t made = HOOP_SUM;
    const hoop_result_t result = hoop_red_op_create_pre_mul_sum(
        op != NULL ? &made : NULL, scalar, TYPE, (hoop_scalar_residence_t)residence, COMM);
    if (op != NULL && result == HOOP_OK) {
        *op = (ncclRedOp_t)made;
    }
    return nccl_result(result);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return nccl_result(hoop_red_op_destroy(OP, COMM));
}

/* ---- Groups --------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void)
{
    return nccl_result(hoop_group_start());
}

ncclResult_t ncclGroupEnd(void)
{
    return nccl_result(hoop_group_end());
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    hoop_sim_info_t info = HOOP_SIM_INFO_INITIALIZER;
    if (simInfo == NULL || simInfo->magic != NCCL_SIM_INFO_MAGIC ||
        simInfo->size < offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float)) {
        return nccl_refuse(ncclInvalidArgument, "ncclGroupSimulateEnd: simInfo was not made with "
                                                "NCCL_SIM_INFO_INITIALIZER");
    }
    const hoop_result_t result = hoop_group_simulate_end(&info);
    if (result == HOOP_OK) {
        simInfo->estimatedTime = info.estimated_time;
    }
    return nccl_result(result);
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* Without a device it returns host memory, which all calls take, too. */
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    const hoop_result_t result = hoop_mem_alloc(ptr, size, HOOP_MEM_DEVICE);
    return nccl_result(result == HOOP_UNSUPPORTED ? hoop_mem_alloc(ptr, size, HOOP_MEM_HOST)
                                                  : result);
}

ncclResult_t ncclMemFree(void *ptr)
{
    return nccl_result(hoop_mem_free(ptr));
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    return nccl_result(hoop_comm_register(COMM, buff, size, handle));
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return nccl_result(hoop_comm_deregister(COMM, handle));
}
