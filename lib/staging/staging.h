/*
 * Buffers on devices: what of CUDA an operation needs, and the way through host memory.
 *
 * Where all ranks' buffers lie on one device the operation's steps run there (device_worker.h),
 * behind what is on the user's stream. Else it works on host memory, and what lies on a device is
 * brought there before and taken back afterwards:
 *
 *     user's stream   ... kernels ... | (mark, or bell)
 *     work                            '-> fetch to the host |           | deliver to the device
 *     operation                                             '-> runs ---'
 *
 * Over links, where they are large, the three overlap (overlap.h).
 *
 * The work is done on hoop's own stream (order.h), when a mark on the user's says that it has come
 * to the call; and a mark behind the work says that it is over. Marks are words (order.h), or,
 * where there are none, host functions, which wake who waits. The host memory is a pinned region:
 * peers map it, so that the operation on it is the fastest there is.
 *
 * One thread at a time, the one that drives the comm. Never waits, but for hoop_staging_cancel().
 */
#ifndef HOOP_STAGING_H
#define HOOP_STAGING_H

#include "runtime/wait.h"
#include "staging/order.h"
#include "transfer/overlap.h"

struct hoop_kernels;

/* Not IDLE: something may still be done, nothing can be freed. MARKED: a mark is behind it all. */
/* Each is at least twice the one before. They stay until the end: CUDA waits for all streams before
 * it lets go of memory, and one of them may be held until the operation is over. */
#define HOOP_STAGING_OUTGROWN 48

enum hoop_staging_state { HOOP_STAGING_IDLE, HOOP_STAGING_LAUNCHED, HOOP_STAGING_MARKED };

struct hoop_staging {
    int wake_fd; /* of who waits */
    bool *naps;  /* of his: whether a word is awaited, which wakes nobody; or NULL */
    /* of the operation */
    struct hoop_staging_piece *pieces;
    size_t count, room;
    size_t bytes;                 /* of host memory that its pieces need */
    bool delivers, fetches;       /* copies are still to be launched */
    const struct hoop_bell *bell; /* that is awaited; NULL: none */
    struct hoop_overlap overlap;  /* its memory is the comm's */
    /* of the comm */
    char *host;
    size_t host_bytes;
    char *outgrown[HOOP_STAGING_OUTGROWN]; /* host memory before */
    uint32_t n_outgrown;
    hoop_cu_context_t context; /* NULL: nothing below is there */
    uint64_t device;           /* its name on this machine; 0: none */
    int number;                /* that CUDA gives it here */
    bool primary;              /* the context is its primary one, and it has peers */
    uint32_t n_peers;          /* other devices whose memory it can reach, by their names */
    uint64_t peers[HOOP_CUDA_MOST_PEERS];
    const struct hoop_kernels *kernels; /* NULL: there are none */
    hoop_stream_t work;                 /* hoop's own (order.h) */
    struct hoop_staging_arrival *arrival;
    struct hoop_mark own, theirs; /* on the work, and on a stream of the caller's */
    uint32_t launched;            /* host functions, where there is no word */
    uint64_t asked_ns;            /* when CUDA was asked last whether the device has failed */
    enum hoop_staging_state state;
};

/* All zero but wake_fd before; takes it back to that. */
void hoop_staging_finish(struct hoop_staging *staging);

/* An operation begins: no pieces. */
void hoop_staging_reset(struct hoop_staging *staging);

/* Room for bytes; where it begins. */
size_t hoop_staging_room(struct hoop_staging *staging, size_t bytes);

/*
 * bytes at `device` have their place at `offset`: they are fetched before, or delivered after. The
 * memory is borrowed until the end.
 */
hoop_result_t hoop_staging_add(struct hoop_staging *staging, void *device, size_t offset,
                               size_t bytes, bool deliver);

/* The host memory, for offsets; in the context of the buffers. Pinned, and kept for the next. */
hoop_result_t hoop_staging_open(struct hoop_staging *staging, hoop_cu_context_t context);

/* The same without all that works on it, for the copies of graphs: bytes of memory. */
hoop_result_t hoop_staging_open_host(struct hoop_staging *staging, hoop_cu_context_t context,
                                     size_t bytes);

/* Puts the copies of one direction on a stream: of the caller's, which captures. In the context. */
hoop_result_t hoop_staging_record(const struct hoop_staging *staging, hoop_stream_t stream,
                                  bool deliver);

/* The same of a piece of what is cut. */
hoop_result_t hoop_staging_record_piece(const struct hoop_staging *staging,
                                        struct hoop_overlap_piece piece, hoop_stream_t stream);

/* What would be delivered is 0xff in all bytes: no number, where there is one that says so. */
void hoop_staging_spoil(const struct hoop_staging *staging);

/* hoop_staging_poll() waits for what is on the user's stream by now. NULL: the legacy default one.
 */
hoop_result_t hoop_staging_follow(struct hoop_staging *staging, hoop_stream_t stream);
/* The same for a bell that hangs there already. Borrowed until it has rung. */
void hoop_staging_await(struct hoop_staging *staging, const struct hoop_bell *bell);
/* And launches the copies to the host then, before it says that all is done. */
void hoop_staging_fetch(struct hoop_staging *staging);
/* Both at once, where they are small: the copies to the host are on the user's stream, if it is one
 * of the context; a mark less. */
hoop_result_t hoop_staging_fetch_behind(struct hoop_staging *staging, hoop_stream_t stream);

/* Launches the copies of one direction, and the mark behind them; of those in pieces (overlap.h)
 * the first to be fetched, or all that are still to be delivered. */
hoop_result_t hoop_staging_copy(struct hoop_staging *staging, bool deliver);

/* For what is launched by others, which say LAUNCHED then: makes the context current, and not any
 * more. */
hoop_result_t hoop_staging_enter(const struct hoop_staging *staging);
void hoop_staging_leave(void);

/* A mark behind all that was launched: hoop_staging_poll() tells when it is over. */
hoop_result_t hoop_staging_mark(struct hoop_staging *staging);

/* Cuts the copies of an operation over links that works on in and out. */
void hoop_staging_cut(struct hoop_staging *staging, const struct hoop_plan *plan,
                      hoop_step_fn *steps, const void *in, const void *out);

/* Copies in pieces: launches what can be, when all lanes have done the steps before `passed`;
 * UINT64_MAX: all that is still to be delivered. HOOP_OK, or CUDA's error. */
hoop_result_t hoop_staging_move(struct hoop_staging *staging, uint64_t passed);

/* HOOP_OK: the work is done; HOOP_AGAIN; or CUDA's error, with the sentence. */
hoop_result_t hoop_staging_poll(struct hoop_staging *staging);

/* Waits for work that was launched, at most timeout_ms (0: as long as it takes): HOOP_TIMEOUT.
 */
hoop_result_t hoop_staging_cancel(struct hoop_staging *staging, uint64_t timeout_ms);

#endif
