/*
 * A device for ddp.c over the fake driver that HOOP_CUDA names. The host can't access its memory by
 * its addresses, and its streams have random delays, so that missing order is noticed.
 */
#ifndef TRAINER_FAKE_DEVICE_H
#define TRAINER_FAKE_DEVICE_H

#include "device.h"

/* Exits if there is no such driver. */
const struct device *fake_device_open(void);
void *fake_device_memory(size_t bytes);
void fake_device_free(void *memory);
/* Where the host can access it. */
void *fake_device_seen(const void *memory);
/* Computes on the device: fn(arg), later. */
void fake_device_compute(void (*fn)(void *arg), void *arg);
/* Waits until all computing is over. */
void fake_device_settle(void);

#endif
