/*
 * Copies in pieces that overlap with an operation over links:
 *
 *     work         | fetch 0 | fetch 1 | fetch 2 | deliver 0 | fetch 3 | deliver 1 | ...
 *     operation              '-> steps that access piece 0 only | ... of piece 1 | ...
 *
 * Steps are a function of the plan, so it is known in advance which of them access what. The
 * staging memory is cut into grains. A grain is fetched before the first step of any lane that
 * accesses it, and delivered after the last one; what no step accesses is fetched first. The plan
 * of the operation does not depend on the copies: the bits are the same, and other ranks notice
 * nothing.
 *
 * At most two pieces are being fetched at a time, so that deliveries get onto the stream between
 * them.
 *
 * If all copies are put on the caller's stream before the operation begins (device/pieces.h), the
 * same pieces make up a flow: the stream counts the pieces that it has fetched, and waits for a
 * word before it delivers one.
 */
#ifndef HOOP_OVERLAP_H
#define HOOP_OVERLAP_H

#include "algo/step.h"

#include <stdatomic.h>

/* Part of a buffer on the device, and its place in staging memory. */
struct hoop_staging_piece {
    void *device;
    size_t offset, bytes;
    bool deliver;
};

/* The bytes of one grain within a staging piece, to be fetched or delivered. */
struct hoop_overlap_part {
    uint64_t step; /* the first step that accesses the grain (fetch), or the last (deliver) */
    char *host, *device;
    size_t bytes;
};

#define HOOP_OVERLAP_FLYING 2u

struct hoop_overlap {
    struct hoop_overlap_part *parts; /* to be fetched, then to be delivered, in order of steps */
    size_t room, count;              /* count 0: the copies are not in pieces */
    size_t fetches;                  /* how many parts are to be fetched */
    size_t fetched, delivered;       /* the next part to launch, in each direction */
    uint64_t ready;                  /* the first step whose data are not all there */
    bool begun;                      /* the first piece has arrived */
    uint32_t flying;
    struct {
        uint32_t mark;  /* the mark that follows the piece */
        uint64_t ready; /* the value of `ready` once the piece has arrived */
    } pieces[HOOP_OVERLAP_FLYING];
};

struct hoop_overlap_buffers {
    const struct hoop_staging_piece *pieces;
    size_t count;
    char *host; /* staging memory */
    size_t bytes;
    const void *in, *out; /* the operation's, in staging memory or elsewhere */
};

/* Are copies of so many bytes cut into pieces? */
bool hoop_overlap_is_worth_it(size_t bytes);

/* Cuts the copies of an operation with these steps into parts. Does not if they are small, or
 * without memory for the parts: then they are made as a whole. */
void hoop_overlap_cut(struct hoop_overlap *overlap, const struct hoop_overlap_buffers *buffers,
                      const struct hoop_plan *plan, hoop_step_fn *steps);

/* The next piece: parts [from, to), which the caller launches; from == to: none now. */
struct hoop_overlap_piece {
    size_t from, to;
};

/* The next piece to fetch; mark: the number of the mark that follows it, if there is one. */
struct hoop_overlap_piece hoop_overlap_fetch(struct hoop_overlap *overlap, uint32_t mark);

/* All pieces up to this mark have arrived. */
void hoop_overlap_arrive(struct hoop_overlap *overlap, uint32_t mark);

/* The next piece to deliver, if all lanes have done the steps before `passed`; UINT64_MAX: all. */
struct hoop_overlap_piece hoop_overlap_deliver(struct hoop_overlap *overlap, uint64_t passed);

/* ---- All at once ---- */

#define HOOP_FLOW_MOST 16u /* pieces in one direction */

struct hoop_flow_piece {
    struct hoop_overlap_piece parts;
    uint64_t last, next; /* the step of its last part, and that of the part after it */
};
struct hoop_flow_pieces {
    uint32_t count;
    struct hoop_flow_piece pieces[HOOP_FLOW_MOST];
};

struct hoop_told;

struct hoop_flow {
    struct hoop_flow_pieces fetch, deliver;
    struct hoop_told
        *told; /* runs on the device, without copies (staging/device_worker.h); or NULL */
    const _Atomic uint32_t *came; /* counted by the stream as pieces arrive; */
    uint32_t before;              /* its value before this call's first piece */
    _Atomic uint32_t *go;         /* what the stream waits for: `held` + number of the piece */
    uint32_t held;
    /* the driver's */
    uint32_t delivered;
    uint64_t ready; /* as in hoop_overlap */
};

/* Makes pieces of the parts of a cut overlap, and joins adjacent parts. The words came and go are
 * set by the caller. */
void hoop_flow_make(struct hoop_flow *flow, struct hoop_overlap *overlap);

/* False: the copies are made as a whole, and the flow only says when they have arrived. */
static inline bool hoop_flow_is_cut(const struct hoop_flow *flow)
{
    return flow->fetch.count + flow->deliver.count > 0;
}

/* Has the first piece arrived or, without pieces, has the stream come to the call? */
bool hoop_flow_has_begun(const struct hoop_flow *flow);

/* Notes what has arrived, and releases pieces for delivery once all lanes have done the steps
 * before `passed`. The caller releases the last one, after the operation has succeeded. */
void hoop_flow_move(struct hoop_flow *flow, uint64_t passed);

#endif
