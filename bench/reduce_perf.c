/* The reduce benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void reduce_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                         struct perf_shape *ret)
{
    (void)nranks;
    const size_t count = perf_count_whole(bytes, type_bytes);
    *ret = (struct perf_shape){
        .bytes = count * type_bytes,
        .count = count,
        .send_count = count,
        .recv_count = rank == root ? count : 0,
    };
}

/* All inputs are read at least once, the root's output is written once. */
static double reduce_traffic(int nranks)
{
    return nranks + 1.0;
}

static hoop_result_t reduce_start(const struct perf_call *call)
{
    return hoop_reduce(call->send, call->recv, call->count, call->type, call->op, call->root,
                       call->comm, call->stream);
}

static const struct perf_collective reduce = {
    .program = "reduce_perf",
    .has_op = true,
    .has_root = true,
    .shape = reduce_shape,
    .bus_factor = perf_bus_once,
    .traffic = reduce_traffic,
    .origin = perf_origin_same,
    .start = reduce_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &reduce);
}
