/*
 * Copies that go on while an operation runs over links, in pieces:
 *
 *     work         | fetch 0 | fetch 1 | fetch 2 | deliver 0 | fetch 3 | deliver 1 | ...
 *     operation              '-> steps that touch nothing but piece 0 | ... of piece 1 | ...
 *
 * The steps are a function of the plan, so it is known beforehand which of them touches what. The
 * staging memory is cut into grains; a grain is fetched before the first step of any lane that
 * touches it and delivered behind the last one, and what no step touches is fetched first. The
 * operation's plan is what it is without: the same bits, and other ranks see nothing of it.
 *
 * Of fetches two pieces at most are on the stream, so that what is to be delivered gets on it.
 *
 * Where all copies are on the caller's stream before the operation begins (device/pieces.h) the
 * same pieces are a flow: the stream counts those that it has fetched, and waits for a word before
 * it delivers one.
 */
#ifndef HOOP_OVERLAP_H
#define HOOP_OVERLAP_H

#include "algo/step.h"

#include <stdatomic.h>

/* Of a buffer on the device, and its place in staging memory. */
struct hoop_staging_piece {
    void *device;
    size_t offset, bytes;
    bool deliver;
};

/* A grain's bytes of one of them. */
struct hoop_overlap_part {
    uint64_t step; /* the first that touches its grain, or the last */
    char *host, *device;
    size_t bytes;
};

#define HOOP_OVERLAP_FLYING 2u

struct hoop_overlap {
    struct hoop_overlap_part *parts; /* to be fetched, then to be delivered, each in their order */
    size_t room, count;              /* count 0: this operation's copies are not in pieces */
    size_t fetches;                  /* so many of them are fetched */
    size_t fetched, delivered;       /* the next one, as far as copies are launched */
    uint64_t ready;                  /* from this step on not all that it touches is there */
    bool begun;                      /* the first piece is there */
    uint32_t flying;
    struct {
        uint32_t mark;  /* with it it is there */
        uint64_t ready; /* then */
    } pieces[HOOP_OVERLAP_FLYING];
};

struct hoop_overlap_buffers {
    const struct hoop_staging_piece *pieces;
    size_t count;
    char *host; /* staging memory */
    size_t bytes;
    const void *in, *out; /* of the operation, there or elsewhere */
};

/* Are so many bytes cut? */
bool hoop_overlap_is_worth_it(size_t bytes);

/* Cuts the copies of an operation with these steps. Not where they are small, or there is no memory
 * to note it: then they are whole. */
void hoop_overlap_cut(struct hoop_overlap *overlap, const struct hoop_overlap_buffers *buffers,
                      const struct hoop_plan *plan, hoop_step_fn *steps);

/* The next piece is parts [from, to), which the caller launches; from == to: there is none now. */
struct hoop_overlap_piece {
    size_t from, to;
};

/* Of those to be fetched; mark: the number of the mark behind it, if there is one. */
struct hoop_overlap_piece hoop_overlap_fetch(struct hoop_overlap *overlap, uint32_t mark);

/* All up to this mark have come. */
void hoop_overlap_arrive(struct hoop_overlap *overlap, uint32_t mark);

/* Of those to be delivered, when all lanes have done the steps before `passed`; UINT64_MAX: of all.
 */
struct hoop_overlap_piece hoop_overlap_deliver(struct hoop_overlap *overlap, uint64_t passed);

/* ---- All at once ---- */

#define HOOP_FLOW_MOST 16u /* pieces of a direction */

struct hoop_flow_piece {
    struct hoop_overlap_piece parts;
    uint64_t last, next; /* step of its last part, and of the one behind that */
};
struct hoop_flow_pieces {
    uint32_t count;
    struct hoop_flow_piece pieces[HOOP_FLOW_MOST];
};

struct hoop_told;

struct hoop_flow {
    struct hoop_flow_pieces fetch, deliver;
    struct hoop_told
        *told; /* no copies: it runs on the device (staging/device_worker.h); or NULL */
    const _Atomic uint32_t *came; /* what the stream counts, */
    uint32_t before;              /* up to this before the first */
    _Atomic uint32_t *go;         /* what it waits for: `held` and the number of the piece */
    uint32_t held;
    /* of who drives */
    uint32_t delivered;
    uint64_t ready; /* as above */
};

/* The pieces of what is cut, whose parts are joined where they follow each other. The words are the
 * caller's. */
void hoop_flow_make(struct hoop_flow *flow, struct hoop_overlap *overlap);

/* Of what is copied as a whole it only says when that has come. */
static inline bool hoop_flow_is_cut(const struct hoop_flow *flow)
{
    return flow->fetch.count + flow->deliver.count > 0;
}

/* The first piece is there; or, where there is none, the stream has come. */
bool hoop_flow_has_begun(const struct hoop_flow *flow);

/* Sees what has come, and lets pieces go when all lanes have done the steps before `passed`. The
 * last is the caller's, when all is well. */
void hoop_flow_move(struct hoop_flow *flow, uint64_t passed);

#endif
