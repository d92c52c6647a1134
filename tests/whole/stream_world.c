/* See stream_world.h. */
#include "whole/stream_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void world_make(struct world *world)
{
    assert_int_equal(hoop_comm_init_all(world->comms, RANKS, NULL), HOOP_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_stream_create(&world->streams[r]), HOOP_OK);
    }
}

void world_synchronize(const struct world *world)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_stream_synchronize(world->streams[r]), HOOP_OK);
    }
}

void world_end(struct world *world)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(hoop_stream_destroy(world->streams[r]), HOOP_OK);
        assert_int_equal(hoop_comm_destroy(world->comms[r]), HOOP_OK);
    }
}

hoop_result_t stream_sum(int64_t *x, hoop_comm_t comm, hoop_stream_t stream)
{
    return hoop_all_reduce(x, x, 1, HOOP_INT64, HOOP_SUM, comm, stream);
}

hoop_ticket_t stream_record(hoop_stream_t stream)
{
    hoop_ticket_t ticket;
    assert_int_equal(hoop_stream_record(stream, &ticket), HOOP_OK);
    return ticket;
}
