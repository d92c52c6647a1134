/* The order of copies in pieces (see overlap.h). */
#include "transfer/overlap.h"

#include "base/settings.h"

#include <stdlib.h>

/* Grains of a piece, unless they would be smaller than the least. */
#define OVERLAP_GRAINS 64
#define OVERLAP_GRAIN_LEAST 64
#define OVERLAP_MOST_OF_PIECE 8 /* a part's share of a piece at most, of adjacent grains */

/* Used while cutting. */
struct overlap_grain {
    uint64_t first, last; /* first > last: no step accesses it */
};
struct overlap_map {
    char *host;
    size_t bytes, grain;
    struct overlap_grain *grains;
};

/* ---- Which step touches what ---- */

static void map_touch(const struct overlap_map *map, const char *base, uint64_t off, uint64_t count,
                      uint64_t type_bytes, uint64_t k)
{
    const uint64_t at = (uintptr_t)base + off * type_bytes - (uintptr_t)map->host;
    if (count == 0 || at >= map->bytes) {
        return; /* a buffer on the host */
    }
    const uint64_t end = (at + count * type_bytes - 1) / map->grain;
    for (uint64_t i = at / map->grain; i <= end; i++) {
        struct overlap_grain *grain = &map->grains[i];
        grain->first = k < grain->first ? k : grain->first;
        grain->last = k > grain->last ? k : grain->last;
    }
}

struct overlap_walk {
    const struct overlap_map *map;
    const struct hoop_plan *plan;
    const void *in, *out;
};

static void walk_ref(const struct overlap_walk *walk, const struct hoop_ref *ref, uint64_t k)
{
    if (ref->space == HOOP_SPACE_IN || ref->space == HOOP_SPACE_OUT) {
        map_touch(walk->map, ref->space == HOOP_SPACE_IN ? walk->in : walk->out, ref->off,
                  ref->count, walk->plan->type_bytes, k);
    }
}

static void walk_step(const struct overlap_walk *walk, const struct hoop_step *step, uint64_t k)
{
    if (step->send.peer >= 0) {
        walk_ref(walk, &step->send.from, k);
    }
    if (step->recv.peer >= 0) {
        walk_ref(walk, &step->recv.to, k);
    }
    if (step->recv.peer >= 0 && step->recv.mode != HOOP_RECV_COPY) {
        walk_ref(walk, &step->recv.own, k);
    }
    if (step->local.op != HOOP_LOCAL_NONE) {
        walk_ref(walk, &step->local.src, k);
        walk_ref(walk, &step->local.dst, k);
        walk_ref(walk, &step->local.own, k);
    }
}

static void walk_all(const struct overlap_walk *walk, hoop_step_fn *steps)
{
    struct hoop_step step;
    for (uint32_t lane = 0; lane < walk->plan->lanes; lane++) {
        for (uint64_t k = 0; steps(walk->plan, lane, k, &step); k++) {
            walk_step(walk, &step, k);
        }
    }
}

/* ---- Parts ---- */

static int part_compare(const void *a, const void *b)
{
    const struct hoop_overlap_part *x = a, *y = b;
    return x->step != y->step ? (x->step < y->step ? -1 : 1)
                              : (x->host > y->host) - (x->host < y->host);
}

/* Appends a part, or extends the last one if it is adjacent in both memories and of the same
 * step. */
static void overlap_append(struct hoop_overlap *overlap, size_t from,
                           const struct hoop_overlap_part *part)
{
    const size_t most = hoop_settings()->cuda_piece_bytes / OVERLAP_MOST_OF_PIECE;
    struct hoop_overlap_part *last =
        overlap->count > from ? &overlap->parts[overlap->count - 1] : NULL;
    if (last != NULL && last->step == part->step && last->bytes + part->bytes <= most) {
        last->bytes += part->bytes;
    } else {
        overlap->parts[overlap->count++] = *part;
    }
}

static void overlap_add(struct hoop_overlap *overlap, const struct overlap_map *map,
                        const struct hoop_staging_piece *piece)
{
    const size_t from = overlap->count;
    for (size_t at = piece->offset; at < piece->offset + piece->bytes;) {
        const struct overlap_grain *grain = &map->grains[at / map->grain];
        const size_t end = (at / map->grain + 1) * map->grain;
        const size_t left = piece->offset + piece->bytes - at;
        const size_t bytes = end - at < left ? end - at : left;
        const struct hoop_overlap_part part = {.step = grain->first > grain->last ? 0
                                                       : piece->deliver           ? grain->last
                                                                                  : grain->first,
                                               .host = map->host + at,
                                               .device =
                                                   (char *)piece->device + (at - piece->offset),
                                               .bytes = bytes};
        overlap_append(overlap, from, &part);
        at += bytes;
    }
}

static void overlap_add_all(struct hoop_overlap *overlap, const struct overlap_map *map,
                            const struct hoop_overlap_buffers *buffers, bool deliver)
{
    const size_t from = overlap->count;
    for (size_t i = 0; i < buffers->count; i++) {
        if (buffers->pieces[i].deliver == deliver) {
            overlap_add(overlap, map, &buffers->pieces[i]);
        }
    }
    qsort(overlap->parts + from, overlap->count - from, sizeof(*overlap->parts), part_compare);
}

/* Room for the grains in both directions, and one more part that begins or ends within one. */
static bool overlap_grow(struct hoop_overlap *overlap, size_t grains)
{
    const size_t room = 2 * grains + 2;
    if (room > overlap->room) {
        free(overlap->parts);
        overlap->parts = malloc(room * sizeof(*overlap->parts));
        overlap->room = overlap->parts != NULL ? room : 0;
    }
    return overlap->room >= room;
}

bool hoop_overlap_is_worth_it(size_t bytes)
{
    const size_t piece = hoop_settings()->cuda_piece_bytes;
    return piece != 0 && bytes >= 2 * piece;
}

void hoop_overlap_cut(struct hoop_overlap *overlap, const struct hoop_overlap_buffers *buffers,
                      const struct hoop_plan *plan, hoop_step_fn *steps)
{
    const size_t piece = hoop_settings()->cuda_piece_bytes;
    if (!hoop_overlap_is_worth_it(buffers->bytes)) {
        return;
    }
    const size_t grain =
        piece / OVERLAP_GRAINS > OVERLAP_GRAIN_LEAST ? piece / OVERLAP_GRAINS : OVERLAP_GRAIN_LEAST;
    const size_t grains = (buffers->bytes + grain - 1) / grain;
    const struct overlap_map map = {buffers->host, buffers->bytes, grain,
                                    calloc(grains, sizeof(*map.grains))};
    if (map.grains != NULL && overlap_grow(overlap, grains)) {
        for (size_t i = 0; i < grains; i++) {
            map.grains[i].first = UINT64_MAX;
        }
        walk_all(&(struct overlap_walk){&map, plan, buffers->in, buffers->out}, steps);
        overlap_add_all(overlap, &map, buffers, false);
        overlap->fetches = overlap->count;
        overlap_add_all(overlap, &map, buffers, true);
        overlap->delivered = overlap->fetches;
        overlap->fetched = 0;
        overlap->flying = 0;
        overlap->begun = false;
        overlap->ready = overlap->fetches > 0 ? 0 : UINT64_MAX;
    }
    free(map.grains);
}

/* ---- Pieces ---- */

static int part_compare_place(const void *a, const void *b)
{
    const struct hoop_overlap_part *x = a, *y = b;
    return (x->host > y->host) - (x->host < y->host);
}

/* Sorts the parts of a piece by address, so that adjacent ones are copied at once. */
static struct hoop_overlap_piece overlap_sort(struct hoop_overlap *overlap,
                                              struct hoop_overlap_piece piece)
{
    qsort(overlap->parts + piece.from, piece.to - piece.from, sizeof(*overlap->parts),
          part_compare_place);
    return piece;
}

/* The end of the next piece from part `from` on, of parts whose steps are before `passed`. Returns
 * `from` if they are not enough for a piece. */
static size_t overlap_end(const struct hoop_overlap *overlap, size_t from, size_t end,
                          uint64_t passed)
{
    const size_t least = hoop_settings()->cuda_piece_bytes;
    size_t to = from, bytes = 0;
    while (to < end && bytes < least && overlap->parts[to].step < passed) {
        bytes += overlap->parts[to++].bytes;
    }
    return bytes >= least || to == end ? to : from;
}

struct hoop_overlap_piece hoop_overlap_fetch(struct hoop_overlap *overlap, uint32_t mark)
{
    /* The first piece alone: the operation waits for it to begin. */
    const uint32_t most = overlap->begun ? HOOP_OVERLAP_FLYING : 1;
    struct hoop_overlap_piece piece = {overlap->fetched, overlap->fetched};
    if (overlap->flying < most && overlap->fetched < overlap->fetches) {
        piece.to = overlap_end(overlap, piece.from, overlap->fetches, UINT64_MAX);
        overlap->pieces[overlap->flying].mark = mark;
        overlap->pieces[overlap->flying++].ready =
            piece.to < overlap->fetches ? overlap->parts[piece.to].step : UINT64_MAX;
        overlap->fetched = piece.to;
    }
    return overlap_sort(overlap, piece);
}

void hoop_overlap_arrive(struct hoop_overlap *overlap, uint32_t mark)
{
    while (overlap->flying > 0 && (int32_t)(mark - overlap->pieces[0].mark) >= 0) {
        overlap->ready = overlap->pieces[0].ready;
        overlap->pieces[0] = overlap->pieces[1];
        overlap->flying--;
        overlap->begun = true;
    }
}

struct hoop_overlap_piece hoop_overlap_deliver(struct hoop_overlap *overlap, uint64_t passed)
{
    const size_t from = overlap->delivered;
    overlap->delivered = overlap_end(overlap, from, overlap->count, passed);
    return overlap_sort(overlap, (struct hoop_overlap_piece){from, overlap->delivered});
}

/* ---- Flows: all copies launched at once ---- */

/* Moves parts [from, to) of a piece down to `at`, and joins those that are adjacent in both
 * memories. Returns the new end. */
static size_t flow_join(struct hoop_overlap_part *parts, size_t from, size_t to, size_t at)
{
    const size_t first = at;
    for (size_t i = from; i < to; i++) {
        struct hoop_overlap_part *last = at > first ? &parts[at - 1] : NULL;
        if (last != NULL && parts[i].host == last->host + last->bytes &&
            parts[i].device == last->device + last->bytes) {
            last->bytes += parts[i].bytes;
        } else {
            parts[at++] = parts[i];
        }
    }
    return at;
}

/* Makes pieces of parts [from, end), and moves the parts down to `at`. */
static void flow_cut(struct hoop_overlap *overlap, size_t from, size_t end, size_t at,
                     struct hoop_flow_pieces *ret)
{
    struct hoop_overlap_part *parts = overlap->parts;
    size_t bytes = 0;
    for (size_t i = from; i < end; i++) {
        bytes += parts[i].bytes;
    }
    const size_t share = bytes / HOOP_FLOW_MOST + 1, piece = hoop_settings()->cuda_piece_bytes;
    const size_t least = share > piece ? share : piece;
    ret->count = 0;
    for (size_t to = from; from < end; from = to) {
        for (bytes = 0; to < end && bytes < least; to++) {
            bytes += parts[to].bytes;
        }
        struct hoop_flow_piece *made = &ret->pieces[ret->count++];
        made->last = parts[to - 1].step;
        made->next = to < end ? parts[to].step : UINT64_MAX;
        made->parts.from = at;
        (void)overlap_sort(overlap, (struct hoop_overlap_piece){from, to});
        made->parts.to = at = flow_join(parts, from, to, at);
    }
}

void hoop_flow_make(struct hoop_flow *flow, struct hoop_overlap *overlap)
{
    struct hoop_flow_pieces *fetch = &flow->fetch, *deliver = &flow->deliver;
    *flow = (struct hoop_flow){.delivered = 0};
    flow_cut(overlap, 0, overlap->fetches, 0, fetch);
    const size_t at = fetch->count > 0 ? fetch->pieces[fetch->count - 1].parts.to : 0;
    flow_cut(overlap, overlap->fetches, overlap->count, at, deliver);
    overlap->fetches = at;
    overlap->count = deliver->count > 0 ? deliver->pieces[deliver->count - 1].parts.to : at;
}

/* Pieces of this call that the stream has fetched. Its count may still be short of `before`. */
static uint32_t flow_came(const struct hoop_flow *flow)
{
    const uint32_t came = atomic_load_explicit(flow->came, memory_order_acquire) - flow->before;
    return (int32_t)came > 0 ? came : 0;
}

bool hoop_flow_has_begun(const struct hoop_flow *flow)
{
    return flow_came(flow) > 0;
}

void hoop_flow_move(struct hoop_flow *flow, uint64_t passed)
{
    const uint32_t came = flow_came(flow), before = flow->delivered;
    flow->ready = came >= flow->fetch.count ? UINT64_MAX
                  : came > 0                ? flow->fetch.pieces[came - 1].next
                                            : 0;
    while (flow->delivered + 1 < flow->deliver.count &&
           flow->deliver.pieces[flow->delivered].last < passed) {
        flow->delivered++;
    }
    if (flow->delivered > before) {
        atomic_store_explicit(flow->go, flow->held + flow->delivered, memory_order_release);
    }
}
