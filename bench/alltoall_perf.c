/* The alltoall benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void alltoall_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                           struct perf_shape *ret)
{
    (void)rank;
    (void)root;
    const size_t count = perf_count_part(bytes, type_bytes, nranks);
    const size_t all = count * (size_t)nranks;
    *ret = (struct perf_shape){
        .bytes = all * type_bytes,
        .count = count,
        .send_count = all,
        .recv_count = all,
    };
}

static struct perf_origin alltoall_origin(const struct perf_case *data, size_t count, int rank,
                                          int block)
{
    (void)data;
    return (struct perf_origin){block, count * (size_t)rank};
}

static hoop_result_t alltoall_start(const struct perf_call *call)
{
    return hoop_alltoall(call->send, call->recv, call->count, call->type, call->comm, call->stream);
}

static const struct perf_collective alltoall = {
    .program = "alltoall_perf",
    .not_in_place = true,
    .shape = alltoall_shape,
    .bus_factor = perf_bus_others,
    .traffic = perf_traffic_both,
    .origin = alltoall_origin,
    .start = alltoall_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &alltoall);
}
