/*
 * Buffers on devices: what an operation keeps of CUDA, and the way through host memory.
 *
 * If all ranks' buffers lie on devices that reach each other the operation's steps run there
 * (device_worker.h), behind what is on the user's stream. Otherwise the operation works on host
 * memory. Input on a device is fetched to the host before, and output delivered afterwards:
 *
 *     user's stream   ... kernels ... | (mark, or bell)
 *     hoop's stream                   '-> fetch to the host |           | deliver to the device
 *     operation                                             '-> runs ---'
 *
 * For large buffers over links the three overlap (overlap.h).
 *
 * Device work is put on hoop's own stream (order.h), once a mark on the user's stream says that
 * this has come to the call. A mark behind the work says that it is over. Marks are words
 * (order.h), or host functions, which wake the driver, where there are no words. The host memory is
 * a pinned region, which peers map, so that the operation can use the fastest algorithms.
 *
 * Used by one thread at a time, the one that drives the comm. Waits only in hoop_staging_cancel()
 * and hoop_staging_finish().
 */
#ifndef HOOP_STAGING_H
#define HOOP_STAGING_H

#include "runtime/wait.h"
#include "staging/order.h"
#include "transfer/overlap.h"

struct hoop_kernels;

/* How many outgrown host memories there can be: each is at least twice as large as the one before.
 * They are kept until the end, because CUDA waits for all streams before it frees memory, and a
 * stream may be held until the operation is over. */
#define HOOP_STAGING_OUTGROWN 48

/* Unless IDLE device work may be outstanding, and nothing can be freed. MARKED: a mark is behind
 * all of it. */
enum hoop_staging_state { HOOP_STAGING_IDLE, HOOP_STAGING_LAUNCHED, HOOP_STAGING_MARKED };

struct hoop_staging {
    int wake_fd; /* wakes the driver */
    bool *naps;  /* set while it awaits a word, which wakes nobody (runtime/wait.h); or NULL */
    /* of the operation */
    struct hoop_staging_piece *pieces;
    size_t count, room;
    size_t bytes;                 /* of host memory that the pieces need */
    bool delivers, fetches;       /* copies in this direction are still to be launched */
    const struct hoop_bell *bell; /* awaited before the work begins; NULL: none */
    struct hoop_overlap overlap;  /* its memory is kept for the next operation */
    /* of the comm */
    char *host;
    size_t host_bytes;
    char *outgrown[HOOP_STAGING_OUTGROWN]; /* earlier host memory */
    uint32_t n_outgrown;
    hoop_cu_context_t context; /* NULL: not open, and nothing below exists */
    uint64_t device;           /* id of the device on this machine (hoop_cuda_device_id()), or 0 */
    int number;                /* CUDA's number for it in this process */
    bool primary;              /* the context is the device's primary one, and it has peers */
    uint32_t n_peers;          /* other devices whose memory the device reaches, */
    uint64_t peers[HOOP_CUDA_MOST_PEERS]; /* by their ids */
    const struct hoop_kernels *kernels;   /* NULL: the context has none */
    hoop_stream_t work;                   /* hoop's own stream (order.h) */
    struct hoop_staging_arrival *arrival;
    struct hoop_mark own, theirs; /* put on hoop's own stream, and on a stream of the caller's */
    uint32_t launched;            /* host functions, in place of marks, since the context is open */
    uint64_t asked_ns;            /* when CUDA was last asked whether the device has failed */
    enum hoop_staging_state state;
};

/* Frees everything. A new staging is all zero except wake_fd and naps, and is so again then. Device
 * work that has not ended keeps its memory until a later call finds that it has. */
void hoop_staging_finish(struct hoop_staging *staging);

/* An operation begins, with no pieces yet. */
void hoop_staging_reset(struct hoop_staging *staging);

/* Reserves bytes of host memory. Returns their offset. */
size_t hoop_staging_room(struct hoop_staging *staging, size_t bytes);

/*
 * Adds a piece: bytes at `device`, with their place at `offset` of the host memory. It is fetched
 * before the operation, or delivered after it. The device memory is borrowed until the end.
 */
hoop_result_t hoop_staging_add(struct hoop_staging *staging, void *device, size_t offset,
                               size_t bytes, bool deliver);

/* Makes all that the pieces need in the context of the buffers, above all pinned host memory, and
 * keeps it for later operations. */
hoop_result_t hoop_staging_open(struct hoop_staging *staging, hoop_cu_context_t context);

/* Makes only host memory, of so many bytes, for rooms (device/room.h). */
hoop_result_t hoop_staging_open_host(struct hoop_staging *staging, hoop_cu_context_t context,
                                     size_t bytes);

/* In the context: puts the copies of one direction on a stream, and no mark. */
hoop_result_t hoop_staging_record(const struct hoop_staging *staging, hoop_stream_t stream,
                                  bool deliver);

/* The same for one piece of copies that are cut. */
hoop_result_t hoop_staging_record_piece(const struct hoop_staging *staging,
                                        struct hoop_overlap_piece piece, hoop_stream_t stream);

/* Fills the output in host memory with 0xff bytes: NaN in types that have it. */
void hoop_staging_spoil(const struct hoop_staging *staging);

/* hoop_staging_poll() will wait for what is on the user's stream now. NULL: the legacy default
 * stream. */
hoop_result_t hoop_staging_follow(struct hoop_staging *staging, hoop_stream_t stream);
/* The same for a bell that hangs there already; borrowed until it has rung. */
void hoop_staging_await(struct hoop_staging *staging, const struct hoop_bell *bell);
/* hoop_staging_poll() will then launch the copies to the host, and wait for them. */
void hoop_staging_fetch(struct hoop_staging *staging);
/* Both. Small copies to the host are put on the user's stream at once, if that is of the staging's
 * context, which saves a mark. */
hoop_result_t hoop_staging_fetch_behind(struct hoop_staging *staging, hoop_stream_t stream);

/* Launches the copies of one direction, and a mark behind them. If they are in pieces (overlap.h):
 * the first ones to be fetched, or all that are still to be delivered. */
hoop_result_t hoop_staging_copy(struct hoop_staging *staging, bool deliver);

/* Makes the context current, and ends that, for code that launches work itself. Such code sets the
 * state to LAUNCHED. */
hoop_result_t hoop_staging_enter(const struct hoop_staging *staging);
void hoop_staging_leave(void);

/* Puts a mark behind all that was launched: hoop_staging_poll() tells when that is over. */
hoop_result_t hoop_staging_mark(struct hoop_staging *staging);

/* Cuts the copies of an operation over links, which works on in and out, into pieces. */
void hoop_staging_cut(struct hoop_staging *staging, const struct hoop_plan *plan,
                      hoop_step_fn *steps, const void *in, const void *out);

/* Copies in pieces: launches those that can be once all lanes have done the steps before `passed`;
 * UINT64_MAX: all that are still to be delivered. HOOP_OK, or CUDA's error. */
hoop_result_t hoop_staging_move(struct hoop_staging *staging, uint64_t passed);

/* HOOP_OK: all work is done; HOOP_AGAIN: not yet; or CUDA's error, with its text. */
hoop_result_t hoop_staging_poll(struct hoop_staging *staging);

/* Waits until work that was launched is done or has failed. HOOP_TIMEOUT: it was not after
 * timeout_ms (0: no limit). */
hoop_result_t hoop_staging_cancel(struct hoop_staging *staging, uint64_t timeout_ms);

#endif
