/*
 * One end of a tcp link whose other end is a bare socket of the test, which can look at what the
 * link writes, and write anything to it. Nothing here asserts.
 */
#ifndef LINK_RAW_H
#define LINK_RAW_H

#include "transports/link_pair.h"

#define RAW_CHUNK ((size_t)65536)
#define RAW_SLOTS 3u

struct raw {
    struct pair pair; /* has only one end */
    struct hoop_link *link;
    int fd; /* non-blocking; -1: closed */
};

/* A socketpair stands for the connection in tests with many: it leaves no port in TIME_WAIT. */
enum raw_socket { RAW_TCP, RAW_SOCKETPAIR };

/* False: it could not be made, and is closed again. */
bool raw_open(struct raw *raw, bool sending, enum raw_socket kind, uint32_t check);
void raw_close(struct raw *raw);
/* Closes only the test's end. */
void raw_hang_up(struct raw *raw);

/* Posts a receive, and requires that the link accepts it. */
hoop_result_t raw_recv(struct raw *raw, struct item *item, void *data, size_t bytes,
                       uint32_t number);
hoop_result_t raw_send(struct raw *raw, struct item *item, const void *data, size_t bytes,
                       uint32_t number);

/* Writes all bytes, with progress of the link in between. False: they were not all accepted. */
bool raw_write(struct raw *raw, const void *data, size_t bytes);
/* Makes progress until the item is done. False: it was not at the deadline. */
bool raw_until_done(struct raw *raw, const struct item *item);

/*
 * What a sender writes that sends chunks 0, 1, ... of the given sizes (with link_pair.h's pattern),
 * and is then destroyed. The caller frees it. NULL: something failed.
 */
uint8_t *raw_record(const size_t *sizes, uint32_t count, uint32_t check, size_t *ret_bytes);

/* How many descriptors this process has open. */
uint32_t raw_count_open(void);

#endif
