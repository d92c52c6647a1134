/*
 * The copies of a launch (launch.h), or of captured calls (capture.h), in pieces that overlap with
 * the operation over links. (The same for calls that are not launched: transfer/overlap.h.)
 *
 *     caller's stream   ... to the room 0 | 1 | 2 ... bell | hold 0 | from the room 0 | hold 1 ...
 *     driver                            '-> the steps that need no more | let 0 go | ...
 *
 * All of it is put on the stream within the call. Behind each piece to the room the stream writes
 * how many have arrived. Before each piece from the room it waits for a word; each call that is cut
 * has one in the room. The last piece of every call waits until the launch is let go, so that a
 * call that fails can still mark at least that part of its output as no result.
 */
#ifndef HOOP_PIECES_H
#define HOOP_PIECES_H

#include "device/room.h"

#define HOOP_CUTS_KEPT 8

/*
 * A cache of how the last calls were cut, the latest first. To cut a call takes longer than all the
 * rest of it, because every step is visited, and programs repeat their calls. Zeroed at first; used
 * by one thread at a time.
 */
struct hoop_cuts {
    struct hoop_cut *kept[HOOP_CUTS_KEPT];
};
void hoop_cuts_finish(struct hoop_cuts *cuts);

/* What a launch puts on its stream. */
struct hoop_pieces {
    struct hoop_room *room;
    struct hoop_cuts *cuts; /* of earlier calls in the room; borrowed */
    hoop_stream_t stream;
    size_t count;
    struct hoop_staging *stagings; /* [count], in the room */
    struct hoop_flow **flows;      /* [count] */
};

/* For `count` calls. False: no memory; hoop_pieces_finish() is still needed. */
bool hoop_pieces_init(struct hoop_pieces *pieces, size_t count, hoop_stream_t stream);
/* Calls no CUDA. */
void hoop_pieces_finish(struct hoop_pieces *pieces);

/* Cuts those calls that are worth it, and gives every request a flow. The work has its place in the
 * room already. number: of the launch, larger for each launch in the room. False: no memory. */
bool hoop_pieces_cut(struct hoop_pieces *pieces, struct hoop_work *work, uint32_t number);

/* Before each run of a graph: resets the flows and the room's words, as nothing has happened. */
void hoop_pieces_begin(const struct hoop_pieces *pieces);

/* Fills the output of work i that the stream has not been let go for with 0xff. */
void hoop_pieces_spoil(const struct hoop_pieces *pieces, size_t i);

/* In the context: puts the copies to the room on the stream. The caller puts the last count behind
 * them, room->counted. */
hoop_result_t hoop_pieces_fetch(const struct hoop_pieces *pieces);
/* Likewise the holds, and the copies from the room. number: at which the launch is let go. */
hoop_result_t hoop_pieces_deliver(const struct hoop_pieces *pieces, uint32_t number);

#endif
