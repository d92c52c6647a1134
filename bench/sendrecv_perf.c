/* The send and receive benchmark: what is particular to this collective. */
#include "perf/perf.h"

/* Every rank sends to the next one and receives from the one before. */
static struct perf_origin sendrecv_origin(const struct perf_case *data, size_t count, int rank,
                                          int block)
{
    (void)count;
    (void)block;
    return (struct perf_origin){(rank + data->nranks - 1) % data->nranks, 0};
}

static hoop_result_t sendrecv_start(const struct perf_call *call)
{
    const int next = (call->rank + 1) % call->nranks;
    const int before = (call->rank + call->nranks - 1) % call->nranks;
    const hoop_result_t result =
        hoop_send(call->send, call->count, call->type, next, call->comm, call->stream);
    return result != HOOP_OK
               ? result
               : hoop_recv(call->recv, call->count, call->type, before, call->comm, call->stream);
}

static const struct perf_collective sendrecv = {
    .program = "sendrecv_perf",
    .not_in_place = true,
    .grouped = true,
    .shape = perf_shape_whole,
    .bus_factor = perf_bus_once,
    .traffic = perf_traffic_both,
    .origin = sendrecv_origin,
    .start = sendrecv_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &sendrecv);
}
