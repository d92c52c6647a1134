/* What one end of a link tells the other over the control connection. */
#ifndef HOOP_BLOB_H
#define HOOP_BLOB_H

#include <stdint.h>

#define HOOP_BLOB_BYTES 128

/* Opaque to all but the transport that made it. The other end treats it as hostile input. */
struct hoop_blob {
    uint32_t bytes;
    uint8_t data[HOOP_BLOB_BYTES];
};

#endif
