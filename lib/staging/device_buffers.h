/* Which buffers of an operation lie on a device, and what they become (see staging.h). */
#ifndef HOOP_DEVICE_BUFFERS_H
#define HOOP_DEVICE_BUFFERS_H

#include "staging/staging.h"
#include "transfer/exchange.h"

/* Where the buffers of a collective lie, as it was when it was called: it may run when they are
 * freed already, in the order of their stream. NULL: on the host. */
struct hoop_device_look {
    bool known;
    hoop_cu_context_t in, out;
};

/* An operation of a rank. */
struct hoop_device_call {
    const struct hoop_signature *signature;
    uint32_t me, n;
    hoop_stream_t stream;         /* of CUDA, or NULL; transfers have their own */
    const struct hoop_bell *bell; /* of its streams; NULL: it comes behind what is on them now */
    const struct hoop_device_look *look;
    bool captured; /* the copies are to be a graph's: the staging memory is there, nothing begins */
    bool arrived;  /* its stream has come, and is held */
};

/* Bytes of this rank's side of a collective; extent: as in base/collective.h. */
size_t hoop_device_buffers_bytes(const struct hoop_device_call *call, uint8_t extent);

/* Bytes of staging memory that it takes if it goes through the host. */
size_t hoop_device_buffers_need(const struct hoop_device_call *call, const void *in,
                                const void *out);

/* Finds out where they lie. */
hoop_result_t hoop_device_buffers_look(const struct hoop_device_call *call, const void *in,
                                       const void *out, struct hoop_device_look *ret);
/* The same for what a transfer moves. */
hoop_result_t hoop_device_buffers_look_transfer(struct hoop_transfer *transfer);

/*
 * HOOP_OK: all is host memory, and the call has no stream: nothing to do. HOOP_AGAIN: the buffers,
 * or those of the transfers that *out begins, are staging memory now, and hoop_staging_poll() tells
 * when the operation may begin. Else a failure, with the sentence. The driver is loaded.
 */
hoop_result_t hoop_device_buffers_fetch(struct hoop_staging *staging,
                                        const struct hoop_device_call *call, const void **in,
                                        void **out);

/*
 * The same for an operation whose steps may run on the device. HOOP_AGAIN: all of the call's
 * buffers lie in one context of one device, which is the staging's now, and hoop_staging_poll()
 * tells when they may be used. HOOP_OK: they don't.
 */
hoop_result_t hoop_device_buffers_follow(struct hoop_staging *staging,
                                         const struct hoop_device_call *call, const void *in,
                                         const void *out);

#endif
