/* See perf_part.h. */
#include "perf/perf_part.h"

#include "perf/perf_buffer.h"
#include "perf/perf_device.h"
#include "perf/perf_elements.h"
#include "perf/perf_failure.h"

size_t perf_shape_in_place(const struct perf_shape *shape)
{
    size_t send_end = shape->in_place_send_at + shape->send_count;
    size_t recv_end = shape->in_place_recv_at + shape->recv_count;
    return send_end > recv_end ? send_end : recv_end;
}

/* In place: where the window in use begins. */
static char *part_area(const struct perf_part *part)
{
    return part->area + (part->call.recv - part->recv);
}

/* Where the inputs of the window in use are. */
static char *part_input(const struct perf_part *part)
{
    return part->send + (part->call.recv - part->recv);
}

/* Elements of the rank's own input. */
static struct perf_span part_own(const struct perf_part *part, const struct perf_case *data,
                                 size_t first, size_t count)
{
    return (struct perf_span){perf_data_rules(data), part->rank->rank, first, count};
}

static int part_use(const struct perf_part *part)
{
    return part->rank->device < 0 ? PERF_SUCCESS : perf_device_use(part->rank->device);
}

/* Waits for the default stream, with which hoop's own is not ordered. */
static int part_settle(const struct perf_part *part)
{
    return part->rank->device < 0 ? PERF_SUCCESS : perf_device_wait(NULL);
}

int perf_part_fill(const struct perf_part *part, const struct perf_case *data, size_t windows,
                   size_t stride)
{
    const struct perf_buffer *buffer = &part->rank->send;
    const struct perf_span span = part_own(part, data, 0, part->shape.send_count);
    const size_t bytes = part->shape.send_count * perf_type_bytes(data->type);
    PERF_TRY(part_use(part));
    PERF_TRY(perf_elements_make(buffer, &span, part->send));
    for (size_t window = 1; window < windows; window++) {
        PERF_TRY(perf_buffer_copy(buffer, part->send + window * stride, part->send, bytes));
    }
    PERF_TRY(part_settle(part));
    return PERF_SUCCESS;
}

int perf_part_prepare(const struct perf_part *part, const struct perf_case *data, bool in_place)
{
    const struct perf_rank *rank = part->rank;
    const size_t type_bytes = perf_type_bytes(data->type);
    const size_t send_bytes = part->shape.send_count * type_bytes;
    const size_t recv_bytes = part->shape.recv_count * type_bytes;
    const struct perf_span span = part_own(part, data, 0, part->shape.send_count);
    PERF_TRY(part_use(part));
    PERF_TRY(perf_buffer_fill(&rank->recv, part->call.recv, 0xa5, recv_bytes));
    if (in_place) {
        PERF_TRY(perf_buffer_guard(&rank->recv, part_area(part),
                                   perf_shape_in_place(&part->shape) * type_bytes));
    } else {
        PERF_TRY(perf_buffer_guard(&rank->recv, part->call.recv, recv_bytes));
        PERF_TRY(perf_buffer_guard(&rank->send, part_input(part), send_bytes));
    }
    PERF_TRY(perf_elements_make(&rank->send, &span, part_input(part)));
    PERF_TRY(part_settle(part));
    return PERF_SUCCESS;
}

int perf_part_wrong(const struct perf_part *part, const struct perf_collective *collective,
                    const struct perf_case *data, size_t *found)
{
    const size_t block_count = part->shape.count;
    const char *at = part->call.recv;
    PERF_TRY(part_use(part));
    for (size_t first = 0; first < part->shape.recv_count; first += block_count) {
        const size_t rest = part->shape.recv_count - first;
        const struct perf_origin origin =
            collective->origin(data, block_count, part->rank->rank, (int)(first / block_count));
        const struct perf_span span = {perf_data_rules(data),
                                       collective->has_op ? PERF_REDUCED : origin.rank, origin.at,
                                       rest < block_count ? rest : block_count};
        PERF_TRY(perf_elements_wrong(&part->rank->recv, &span, at, found));
        at += block_count * perf_type_bytes(data->type);
    }
    return PERF_SUCCESS;
}

/* Adds how many bytes of the inputs from element first to end have changed. */
static int part_changed(const struct perf_part *part, const struct perf_case *data, size_t first,
                        size_t end, size_t *found)
{
    if (first >= end) {
        return PERF_SUCCESS;
    }
    const struct perf_span span = part_own(part, data, first, end - first);
    return perf_elements_changed(&part->rank->send, &span,
                                 part->call.send + first * perf_type_bytes(data->type), found);
}

int perf_part_damage(const struct perf_part *part, const struct perf_case *data, bool in_place,
                     size_t *found)
{
    const struct perf_rank *rank = part->rank;
    const struct perf_shape *shape = &part->shape;
    const size_t type_bytes = perf_type_bytes(data->type);
    PERF_TRY(part_use(part));
    if (!in_place) {
        PERF_TRY(perf_buffer_damage(&rank->recv, part->call.recv, shape->recv_count * type_bytes,
                                    found));
        PERF_TRY(perf_buffer_damage(&rank->send, part->call.send, shape->send_count * type_bytes,
                                    found));
        PERF_TRY(part_changed(part, data, 0, shape->send_count, found));
        return PERF_SUCCESS;
    }
    size_t send_end = shape->in_place_send_at + shape->send_count;
    size_t recv_end = shape->in_place_recv_at + shape->recv_count;
    size_t before = shape->in_place_recv_at < send_end ? shape->in_place_recv_at : send_end;
    size_t behind = recv_end > shape->in_place_send_at ? recv_end : shape->in_place_send_at;
    size_t first = shape->in_place_send_at;
    PERF_TRY(perf_buffer_damage(&rank->recv, part_area(part),
                                perf_shape_in_place(shape) * type_bytes, found));
    PERF_TRY(part_changed(part, data, 0, before > first ? before - first : 0, found));
    PERF_TRY(part_changed(part, data, behind - first, shape->send_count, found));
    return PERF_SUCCESS;
}
