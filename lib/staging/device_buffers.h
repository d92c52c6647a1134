/* Which buffers of an operation lie on a device, and what replaces them (see staging.h). */
#ifndef HOOP_DEVICE_BUFFERS_H
#define HOOP_DEVICE_BUFFERS_H

#include "staging/staging.h"
#include "transfer/exchange.h"

/* The contexts in which the buffers of a collective lie; NULL: on the host. Found out at the call,
 * because when it runs the buffers may already be freed, in the order of their stream. */
struct hoop_device_look {
    bool known;
    hoop_cu_context_t in, out;
};

/* An operation of a rank. */
struct hoop_device_call {
    const struct hoop_signature *signature;
    uint32_t me, n;
    hoop_stream_t stream;         /* a CUDA stream, or NULL; transfers have their own */
    const struct hoop_bell *bell; /* on its streams; NULL: it follows what is on them now */
    const struct hoop_device_look *look;
    bool captured; /* only records the copies, for a graph or a launch: the host memory exists */
    bool arrived;  /* its stream has come to the call, and is held */
};

/* The size of this rank's input or output; extent: as in base/collective.h. */
size_t hoop_device_buffers_bytes(const struct hoop_device_call *call, uint8_t extent);

/* How many bytes of staging memory the call takes if it goes through the host. */
size_t hoop_device_buffers_need(const struct hoop_device_call *call, const void *in,
                                const void *out);

/* Finds out where the buffers of a collective lie. */
hoop_result_t hoop_device_buffers_look(const struct hoop_device_call *call, const void *in,
                                       const void *out, struct hoop_device_look *ret);
/* The same for what a transfer moves. */
hoop_result_t hoop_device_buffers_look_transfer(struct hoop_transfer *transfer);

/*
 * Begins to bring a call to the host. HOOP_OK: all buffers are host memory, and the call has no
 * stream, so there is nothing to do. HOOP_AGAIN: device buffers (of the transfers in the list *out,
 * or *in and *out) were replaced by staging memory, and hoop_staging_poll() tells when the
 * operation may begin. Otherwise a failure, with error text. The driver must be loaded.
 */
hoop_result_t hoop_device_buffers_fetch(struct hoop_staging *staging,
                                        const struct hoop_device_call *call, const void **in,
                                        void **out);

/*
 * The same for an operation whose steps may run on the device. HOOP_AGAIN: they can there: all of
 * the call's buffers lie in one context, in which the staging is open now, and hoop_staging_poll()
 * tells when they may be used. HOOP_OK: they can't.
 */
hoop_result_t hoop_device_buffers_follow(struct hoop_staging *staging,
                                         const struct hoop_device_call *call, const void *in,
                                         const void *out);

#endif
