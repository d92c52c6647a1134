/* The copies of a launch (see pieces.h). */
#include "device/pieces.h"

#include <stdlib.h>
#include <string.h>

/* ---- What is cut ---------------------------------------------------------------------------- */

bool hoop_pieces_init(struct hoop_pieces *pieces, size_t count, hoop_stream_t stream)
{
    *pieces = (struct hoop_pieces){.stream = stream, .count = count};
    pieces->stagings = calloc(count, sizeof(*pieces->stagings));
    pieces->flows = calloc(count, sizeof(struct hoop_flow *));
    return pieces->stagings != NULL && pieces->flows != NULL;
}

void hoop_pieces_finish(struct hoop_pieces *pieces)
{
    const size_t count = pieces->stagings != NULL && pieces->flows != NULL ? pieces->count : 0;
    hoop_room_forget(pieces->stagings, count);
    for (size_t i = 0; i < count; i++) {
        free(pieces->flows[i]);
    }
    free(pieces->flows);
    free(pieces->stagings);
}

/* What is copied as a whole has come with all of the launch, which is the last count of it. */
static uint32_t pieces_marks(const struct hoop_flow *flow)
{
    return !hoop_flow_is_cut(flow) ? 0 : flow->fetch.count > 0 ? flow->fetch.count : 1;
}

static struct hoop_flow *pieces_make(struct hoop_pieces *pieces, const struct hoop_work *work,
                                     size_t i, uint32_t cut)
{
    struct hoop_flow *flow =
        cut < HOOP_ROOM_GO ? hoop_cuts_make(pieces->cuts, work, &pieces->stagings[i]) : NULL;
    return flow != NULL ? flow : calloc(1, sizeof(*flow));
}

bool hoop_pieces_cut(struct hoop_pieces *pieces, struct hoop_work *work, uint32_t number)
{
    struct hoop_room *room = pieces->room;
    uint32_t cut = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        struct hoop_flow *flow = pieces_make(pieces, &work[i], i, cut);
        if (flow == NULL) {
            return false;
        }
        pieces->flows[i] = work[i].request.flow = flow;
        flow->came = room->came;
        flow->before = room->counted;
        flow->go = &room->go[cut];
        flow->held = number * HOOP_FLOW_MOST;
        cut += hoop_flow_is_cut(flow);
        room->counted += pieces_marks(flow);
    }
    room->counted += !hoop_flow_is_cut(pieces->flows[pieces->count - 1]);
    for (size_t i = 0; i < pieces->count; i++) {
        if (!hoop_flow_is_cut(pieces->flows[i])) {
            pieces->flows[i]->before = room->counted - 1;
        }
    }
    return true;
}

void hoop_pieces_begin(const struct hoop_pieces *pieces)
{
    hoop_room_hold_all(pieces->room);
    for (size_t i = 0; i < pieces->count; i++) {
        pieces->flows[i]->delivered = 0;
        pieces->flows[i]->ready = 0;
    }
}

/* What the stream was not let go for; from the rest it may be copying. */
void hoop_pieces_spoil(const struct hoop_pieces *pieces, size_t i)
{
    const struct hoop_staging *staging = &pieces->stagings[i];
    const struct hoop_flow *flow = pieces->flows[i];
    if (!hoop_flow_is_cut(flow)) {
        hoop_staging_spoil(staging);
    } else if (flow->deliver.count > 0) {
        const struct hoop_overlap_part *parts = staging->overlap.parts;
        for (size_t at = flow->deliver.pieces[flow->delivered].parts.from;
             at < staging->overlap.count; at++) {
            memset(parts[at].host, 0xff, parts[at].bytes);
        }
    }
}

/* ---- On the stream -------------------------------------------------------------------------- */

/* The last one's last is not counted here. */
static hoop_result_t pieces_fetch(const struct hoop_pieces *pieces, size_t i)
{
    const struct hoop_flow *flow = pieces->flows[i];
    const uint32_t marks = pieces_marks(flow), own = marks - (i + 1 == pieces->count);
    hoop_result_t result = HOOP_OK;
    for (uint32_t k = 0; k < marks && result == HOOP_OK; k++) {
        if (k < flow->fetch.count) {
            result = hoop_staging_record_piece(&pieces->stagings[i], flow->fetch.pieces[k].parts,
                                               pieces->stream);
        }
        if (k < own && result == HOOP_OK) {
            result = hoop_room_count(pieces->room, pieces->stream, flow->before + k + 1);
        }
    }
    return result;
}

hoop_result_t hoop_pieces_fetch(const struct hoop_pieces *pieces)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < pieces->count && result == HOOP_OK; i++) {
        result = hoop_flow_is_cut(pieces->flows[i])
                     ? pieces_fetch(pieces, i)
                     : hoop_staging_record(&pieces->stagings[i], pieces->stream, false);
    }
    return result;
}

/* All but the last. */
static hoop_result_t pieces_deliver(const struct hoop_pieces *pieces, size_t i)
{
    const struct hoop_flow *flow = pieces->flows[i];
    hoop_result_t result = HOOP_OK;
    for (uint32_t k = 0; k + 1 < flow->deliver.count && result == HOOP_OK; k++) {
        result = hoop_room_wait(pieces->room, pieces->stream, flow->go, flow->held + k + 1);
        if (result == HOOP_OK) {
            result = hoop_staging_record_piece(&pieces->stagings[i], flow->deliver.pieces[k].parts,
                                               pieces->stream);
        }
    }
    return result;
}

/* The last piece, or all. */
static hoop_result_t pieces_end(const struct hoop_pieces *pieces, size_t i)
{
    const struct hoop_staging *staging = &pieces->stagings[i];
    const struct hoop_flow *flow = pieces->flows[i];
    if (!hoop_flow_is_cut(flow)) {
        return hoop_staging_record(staging, pieces->stream, true);
    }
    const struct hoop_flow_pieces *deliver = &flow->deliver;
    return deliver->count > 0
               ? hoop_staging_record_piece(staging, deliver->pieces[deliver->count - 1].parts,
                                           pieces->stream)
               : HOOP_OK;
}

hoop_result_t hoop_pieces_deliver(const struct hoop_pieces *pieces, uint32_t number)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < pieces->count && result == HOOP_OK; i++) {
        result = hoop_flow_is_cut(pieces->flows[i]) ? pieces_deliver(pieces, i) : HOOP_OK;
    }
    if (result == HOOP_OK) {
        result = hoop_room_wait(pieces->room, pieces->stream, pieces->room->let, number);
    }
    for (size_t i = 0; i < pieces->count && result == HOOP_OK; i++) {
        result = pieces_end(pieces, i);
    }
    return result;
}
