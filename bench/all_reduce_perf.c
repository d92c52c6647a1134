/* The allreduce benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void all_reduce_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                             struct perf_shape *ret)
{
    (void)nranks;
    (void)rank;
    (void)root;
    const size_t count = perf_count_whole(bytes, type_bytes);
    *ret = (struct perf_shape){
        .bytes = count * type_bytes,
        .count = count,
        .send_count = count,
        .recv_count = count,
    };
}

/* All inputs are read at least once, all outputs written at least once. */
static double all_reduce_traffic(int nranks)
{
    return 2.0 * nranks;
}

/* Each byte crosses the bus of a rank 2(n-1)/n times in the best ring: hence the factor. */
static double all_reduce_bus(int nranks)
{
    return 2 * perf_bus_others(nranks);
}

static hoop_result_t all_reduce_start(const struct perf_call *call)
{
    return hoop_all_reduce(call->send, call->recv, call->count, call->type, call->op, call->comm,
                           NULL);
}

static const struct perf_collective all_reduce = {
    .program = "all_reduce_perf",
    .has_op = true,
    .shape = all_reduce_shape,
    .bus_factor = all_reduce_bus,
    .traffic = all_reduce_traffic,
    .origin = perf_origin_same,
    .start = all_reduce_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &all_reduce);
}
