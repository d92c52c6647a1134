/* The scatter benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void scatter_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                          struct perf_shape *ret)
{
    const size_t count = perf_count_part(bytes, type_bytes, nranks);
    const size_t all = count * (size_t)nranks;
    *ret = (struct perf_shape){
        .bytes = all * type_bytes,
        .count = count,
        .send_count = rank == root ? all : 0,
        .recv_count = count,
        .in_place_recv_at = rank == root ? count * (size_t)root : 0,
    };
}

/* Each part is read once and written once. */
static double scatter_traffic(int nranks)
{
    (void)nranks;
    return 2;
}

static struct perf_origin scatter_origin(const struct perf_case *data, size_t count, int rank,
                                         int block)
{
    (void)block;
    return (struct perf_origin){data->root, count * (size_t)rank};
}

static hoop_result_t scatter_start(const struct perf_call *call)
{
    return hoop_scatter(call->send, call->recv, call->count, call->type, call->root, call->comm,
                        call->stream);
}

static const struct perf_collective scatter = {
    .program = "scatter_perf",
    .has_root = true,
    .shape = scatter_shape,
    .bus_factor = perf_bus_others,
    .traffic = scatter_traffic,
    .origin = scatter_origin,
    .start = scatter_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &scatter);
}
