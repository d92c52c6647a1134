/* Streams of CUDA, as arguments of calls. */
#ifndef HOOP_DEVICE_STREAM_H
#define HOOP_DEVICE_STREAM_H

#include "base/error.h"

/* HOOP_OK: stream, not NULL and not hoop's own, is one of CUDA on which the call can be ordered. */
hoop_result_t hoop_device_stream_check(const char *function, hoop_stream_t stream);

#endif
