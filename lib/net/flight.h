/* How much of what a TCP socket has sent is not acknowledged yet. */
#ifndef HOOP_NET_FLIGHT_H
#define HOOP_NET_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct hoop_flight {
    uint64_t landed_bytes; /* acknowledged since the connection was made */
    uint64_t bytes;        /* not acknowledged; 0 while only a full receiver holds it up */
};

/* Returns false if fd is no TCP socket or the kernel does not tell. */
bool hoop_flight_look(int fd, struct hoop_flight *ret);

#endif
