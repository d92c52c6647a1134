/*
 * A device for ddp.c over the fake driver that HOOP_CUDA names: its memory is not the host's, and
 * its streams are late by chance, so what is not ordered shows.
 */
#ifndef TRAINER_FAKE_DEVICE_H
#define TRAINER_FAKE_DEVICE_H

#include "device.h"

/* Exits where there is no such driver. */
const struct device *fake_device_open(void);
void *fake_device_memory(size_t bytes);
void fake_device_free(void *memory);
/* Where the host sees it. */
void *fake_device_seen(const void *memory);
/* Computing: fn(arg), later. */
void fake_device_compute(void (*fn)(void *arg), void *arg);
/* All computing is over. */
void fake_device_settle(void);

#endif
