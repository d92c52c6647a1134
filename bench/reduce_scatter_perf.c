/* The reduce-scatter benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void reduce_scatter_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                                 struct perf_shape *ret)
{
    (void)root;
    const size_t count = perf_count_part(bytes, type_bytes, nranks);
    const size_t all = count * (size_t)nranks;
    *ret = (struct perf_shape){
        .bytes = all * type_bytes,
        .count = count,
        .send_count = all,
        .recv_count = count,
        .in_place_recv_at = count * (size_t)rank,
    };
}

/* All inputs are read at least once, and each part is written once. */
static double reduce_scatter_traffic(int nranks)
{
    return nranks + 1.0;
}

static struct perf_origin reduce_scatter_origin(const struct perf_case *data, size_t count,
                                                int rank, int block)
{
    (void)data;
    (void)block;
    return (struct perf_origin){rank, count * (size_t)rank};
}

static hoop_result_t reduce_scatter_start(const struct perf_call *call)
{
    return hoop_reduce_scatter(call->send, call->recv, call->count, call->type, call->op,
                               call->comm, call->stream);
}

static const struct perf_collective reduce_scatter = {
    .program = "reduce_scatter_perf",
    .has_op = true,
    .shape = reduce_scatter_shape,
    .bus_factor = perf_bus_others,
    .traffic = reduce_scatter_traffic,
    .origin = reduce_scatter_origin,
    .start = reduce_scatter_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &reduce_scatter);
}
