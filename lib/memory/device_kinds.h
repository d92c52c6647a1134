/* The implementations behind device.h: one per kind of memory. */
#ifndef HOOP_DEVICE_KINDS_H
#define HOOP_DEVICE_KINDS_H

struct hoop_device;

extern const struct hoop_device hoop_device_host;
extern const struct hoop_device hoop_device_cuda;

#endif
