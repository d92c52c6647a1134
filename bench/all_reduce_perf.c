/* The allreduce benchmark: what is particular to this collective. */
#include "perf.h"

static void all_reduce_shape(size_t bytes, size_t type_bytes, int nranks, int rank,
                             struct perf_shape *ret)
{
    (void)nranks;
    (void)rank;
    size_t count = bytes / type_bytes;
    *ret = (struct perf_shape){
        .bytes = count * type_bytes,
        .count = count,
        .send_count = count,
        .recv_count = count,
    };
}

/* Each byte crosses the bus of a rank 2(n-1)/n times in the best ring: hence the factor. */
static void all_reduce_bandwidth(const struct perf_shape *shape, size_t type_bytes, double seconds,
                                 int nranks, double *ret_alg, double *ret_bus)
{
    (void)type_bytes;
    *ret_alg = seconds > 0 ? (double)shape->bytes / seconds / 1e9 : 0;
    *ret_bus = *ret_alg * (2.0 * (nranks - 1) / nranks);
}

/* All inputs are read at least once, all outputs written at least once. */
static double all_reduce_traffic(int nranks)
{
    return 2.0 * nranks;
}

static void all_reduce_expect(const struct perf_case *data, int rank, size_t first, size_t count,
                              void *dst)
{
    (void)rank;
    perf_data_reduced(data, first, count, dst);
}

static hoop_result_t all_reduce_start(const struct perf_call *call)
{
    return hoop_all_reduce(call->send, call->recv, call->count, call->type, call->op, call->comm,
                           NULL);
}

static const struct perf_collective all_reduce = {
    .program = "all_reduce_perf",
    .has_op = true,
    .has_root = false,
    .shape = all_reduce_shape,
    .bandwidth = all_reduce_bandwidth,
    .traffic = all_reduce_traffic,
    .expect = all_reduce_expect,
    .start = all_reduce_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &all_reduce);
}
