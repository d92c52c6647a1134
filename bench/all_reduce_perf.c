/* The allreduce benchmark: what is particular to this collective. */
#include "perf/perf.h"

/* In the best ring each byte passes a rank 2(n-1)/n times. */
static double all_reduce_bus(int nranks)
{
    return 2 * perf_bus_others(nranks);
}

static hoop_result_t all_reduce_start(const struct perf_call *call)
{
    return hoop_all_reduce(call->send, call->recv, call->count, call->type, call->op, call->comm,
                           call->stream);
}

static const struct perf_collective all_reduce = {
    .program = "all_reduce_perf",
    .has_op = true,
    .shape = perf_shape_whole,
    .bus_factor = all_reduce_bus,
    .traffic = perf_traffic_both,
    .origin = perf_origin_same,
    .start = all_reduce_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &all_reduce);
}
