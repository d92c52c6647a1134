/* The copies of a launch (see pieces.h). */
#include "device/pieces.h"

#include <stdlib.h>
#include <string.h>

/* ---- How calls were cut --------------------------------------------------------------------- */

/* All that the way a call is cut depends on: the comm, the call, and which buffers it has. */
struct cut_key {
    uint64_t comm_id;
    struct hoop_signature signature;
    uint64_t in_place;
    uint64_t offset[2], bytes[2]; /* of the buffer to fetch, and of the one to deliver */
};

/* Where the memory of a call is. */
struct cut_bases {
    char *host, *device[2];
};

struct hoop_cut {
    struct cut_key key;
    struct cut_bases bases;
    struct hoop_flow flow;
    size_t fetches, count;
    struct hoop_overlap_part parts[]; /* [count] */
};

/* False: there are more buffers than one to fetch and one to deliver, so the cut is not kept. */
static bool cut_describe(const struct hoop_work *work, const struct hoop_staging *staging,
                         struct cut_key *ret_key, struct cut_bases *ret_bases)
{
    const struct hoop_request *request = &work->request;
    bool simple = true;
    memset(ret_key, 0, sizeof(*ret_key));
    ret_key->comm_id = work->comm->id;
    ret_key->signature = request->signature;
    ret_key->in_place = request->in == request->out;
    *ret_bases = (struct cut_bases){.host = staging->host};
    for (size_t i = 0; i < staging->count; i++) {
        const struct hoop_staging_piece *piece = &staging->pieces[i];
        simple = simple && ret_key->bytes[piece->deliver] == 0;
        ret_key->offset[piece->deliver] = piece->offset;
        ret_key->bytes[piece->deliver] = piece->bytes;
        ret_bases->device[piece->deliver] = piece->device;
    }
    return simple;
}

/* Finds a cut and makes it the latest. NULL: there is none. */
static struct hoop_cut *cuts_use(struct hoop_cuts *cuts, const struct cut_key *key)
{
    size_t i = 0;
    while (i < HOOP_CUTS_KEPT && cuts->kept[i] != NULL &&
           memcmp(&cuts->kept[i]->key, key, sizeof(*key)) != 0) {
        i++;
    }
    struct hoop_cut *found = i < HOOP_CUTS_KEPT ? cuts->kept[i] : NULL;
    if (found != NULL) {
        memmove((void *)(cuts->kept + 1), (const void *)cuts->kept, i * sizeof(struct hoop_cut *));
        cuts->kept[0] = found;
    }
    return found;
}

/* Keeps a cut as the latest, in place of the oldest. */
static void cuts_keep(struct hoop_cuts *cuts, const struct cut_key *key,
                      const struct cut_bases *bases, const struct hoop_flow *flow,
                      const struct hoop_overlap *overlap)
{
    const size_t bytes = overlap->count * sizeof(overlap->parts[0]);
    struct hoop_cut *cut = malloc(sizeof(*cut) + bytes);
    if (cut == NULL) {
        return;
    }
    *cut = (struct hoop_cut){.key = *key,
                             .bases = *bases,
                             .flow = *flow,
                             .fetches = overlap->fetches,
                             .count = overlap->count};
    memcpy(cut->parts, overlap->parts, bytes);
    free(cuts->kept[HOOP_CUTS_KEPT - 1]);
    memmove((void *)(cuts->kept + 1), (const void *)cuts->kept,
            (HOOP_CUTS_KEPT - 1) * sizeof(struct hoop_cut *));
    cuts->kept[0] = cut;
}

/* The address that corresponds to `at` when the memory has moved from `then` to `now`. */
static char *cut_moved(const char *at, const char *then, char *now)
{
    return now + (at - then);
}

/* Sets the overlap's parts as they were cut, for where the memory is now. */
static bool cut_apply(const struct hoop_cut *cut, const struct cut_bases *bases,
                      struct hoop_overlap *overlap)
{
    struct hoop_overlap_part *parts = malloc(cut->count * sizeof(*parts));
    for (size_t i = 0; parts != NULL && i < cut->count; i++) {
        const int to = i >= cut->fetches;
        parts[i] = cut->parts[i];
        parts[i].host = cut_moved(parts[i].host, cut->bases.host, bases->host);
        parts[i].device = cut_moved(parts[i].device, cut->bases.device[to], bases->device[to]);
    }
    overlap->parts = parts;
    overlap->room = overlap->count = parts != NULL ? cut->count : 0;
    overlap->fetches = cut->fetches;
    return parts != NULL;
}

/* Cuts work whose buffers are in the staging's memory (hoop_room_place()) and leaves the parts in
 * the staging. Returns the flow, which the caller frees; NULL: the work is not cut. */
static struct hoop_flow *cuts_make(struct hoop_cuts *cuts, const struct hoop_work *work,
                                   struct hoop_staging *staging)
{
    struct cut_key key;
    struct cut_bases bases;
    struct hoop_flow *flow =
        hoop_overlap_is_worth_it(staging->bytes) ? malloc(sizeof(*flow)) : NULL;
    if (flow == NULL) {
        return NULL;
    }
    const bool simple = cut_describe(work, staging, &key, &bases);
    const struct hoop_cut *cut = simple ? cuts_use(cuts, &key) : NULL;
    if (cut != NULL && cut_apply(cut, &bases, &staging->overlap)) {
        *flow = cut->flow;
        return flow;
    }
    hoop_comm_cut(work->comm, &work->request, staging);
    if (staging->overlap.count == 0) {
        free(flow);
        return NULL;
    }
    hoop_flow_make(flow, &staging->overlap);
    if (simple) {
        cuts_keep(cuts, &key, &bases, flow, &staging->overlap);
    }
    return flow;
}

void hoop_cuts_finish(struct hoop_cuts *cuts)
{
    for (size_t i = 0; i < HOOP_CUTS_KEPT; i++) {
        free(cuts->kept[i]);
    }
}

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

/* How often the stream counts for one call. A call that is copied as a whole has no counts of its
 * own: it has arrived when all of the launch has, at the last count. */
static uint32_t pieces_marks(const struct hoop_flow *flow)
{
    return !hoop_flow_is_cut(flow) ? 0 : flow->fetch.count > 0 ? flow->fetch.count : 1;
}

static struct hoop_flow *pieces_make(struct hoop_pieces *pieces, const struct hoop_work *work,
                                     size_t i, uint32_t cut)
{
    struct hoop_flow *flow =
        cut < HOOP_ROOM_GO ? cuts_make(pieces->cuts, work, &pieces->stagings[i]) : NULL;
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

/* Spoils only what the stream was not let go for: the rest it may be copying now. */
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

/* The copies of call i to the room, with their counts. The last count of the last call is left to
 * the caller of hoop_pieces_fetch(). */
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

/* All pieces of call i from the room but the last, each behind its hold. */
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

/* The last piece of call i from the room, or all of a call that is not cut. */
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
