/* What a TCP socket has sent and the other end has not acknowledged yet. */
#ifndef HOOP_NET_FLIGHT_H
#define HOOP_NET_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct hoop_flight {
    uint64_t landed_bytes; /* acknowledged, ever */
    uint64_t bytes;        /* on the way; 0 also where the receiver has no room for more */
};

/* False: it is no TCP socket, or this kernel does not tell. */
bool hoop_flight_look(int fd, struct hoop_flight *ret);

#endif
