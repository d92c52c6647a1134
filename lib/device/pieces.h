/*
 * The copies of a launch (launch.h), or of a graph's calls (capture.h), in pieces that overlap with
 * its operation over links, as those that are not launched do (transfer/overlap.h):
 *
 *     caller's stream   ... to the room 0 | 1 | 2 ... bell | hold 0 | from the room 0 | hold 1 ...
 *     who drives                        '-> the steps that need no more | let 0 go | ...
 *
 * All of it is put on the stream in the call. Behind each piece to the room the stream writes how
 * many there are; before each one from it the stream waits for a word, of which each cut work has
 * one in the room. The last pieces wait until the launch is let go: a call that fails has
 * some of its output still to come, which is marked as no result.
 */
#ifndef HOOP_PIECES_H
#define HOOP_PIECES_H

#include "device/room.h"

#define HOOP_CUTS_KEPT 8

/*
 * How the last calls were cut, the latest first: to find that out takes longer than all the rest of
 * a call, as it goes through every step, and programs make the same calls again and again. All zero
 * before. One thread at a time.
 */
struct hoop_cuts {
    struct hoop_cut *kept[HOOP_CUTS_KEPT];
};
void hoop_cuts_finish(struct hoop_cuts *cuts);

/* What a launch puts on its stream. */
struct hoop_pieces {
    struct hoop_room *room;
    struct hoop_cuts *cuts; /* of the calls before it in the room */
    hoop_stream_t stream;
    size_t count;
    struct hoop_staging *stagings; /* [count], in the room */
    struct hoop_flow **flows;      /* [count] */
};

/* With room for `count`. False: no memory. */
bool hoop_pieces_init(struct hoop_pieces *pieces, size_t count, hoop_stream_t stream);
/* Calls no CUDA. */
void hoop_pieces_finish(struct hoop_pieces *pieces);

/* Cuts what is worth it of work that is placed in the room, and gives each a flow; each launch of
 * the room has a larger number. False: no memory. */
bool hoop_pieces_cut(struct hoop_pieces *pieces, struct hoop_work *work, uint32_t number);

/* Of what a graph has: it is launched once more, and none of it has happened. */
void hoop_pieces_begin(const struct hoop_pieces *pieces);

/* What is still to come from work i's memory is 0xff in all bytes. */
void hoop_pieces_spoil(const struct hoop_pieces *pieces, size_t i);

/* In the context: the copies to the room, behind which the caller counts the last: room->counted.
 */
hoop_result_t hoop_pieces_fetch(const struct hoop_pieces *pieces);
/* The hold, and the copies from the room. */
hoop_result_t hoop_pieces_deliver(const struct hoop_pieces *pieces, uint32_t number);

#endif
