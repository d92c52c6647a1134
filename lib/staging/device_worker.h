/* Steps on a device: copies and folds are launched on the stream of the copies (see staging.h). */
#ifndef HOOP_DEVICE_WORKER_H
#define HOOP_DEVICE_WORKER_H

#include "exec/board_steps.h"
#include "staging/staging.h"

/* The worker of an open staging, which is borrowed. */
struct hoop_board_worker hoop_device_worker(struct hoop_staging *staging);

#endif
