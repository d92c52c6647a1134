/*
 * Endpoints: where this process listens, at a name or at a TCP port, and who is expected there. One
 * endpoint serves all that is expected at its place: who wants what stands in the hello, and the
 * proof covers it. Only proven connections reach who expects them.
 *
 * On one machine the kernel has proved the uid, and nobody has to make room for others. Over TCP
 * anybody may come: strangers have few places, and the newest takes that of the oldest; an address
 * from which somebody has proved himself has places of its own from then on.
 *
 * Service thread only.
 */
#ifndef HOOP_CONTROL_ENDPOINT_H
#define HOOP_CONTROL_ENDPOINT_H

#include "base/list.h"
#include "control/connection.h"

struct hoop_endpoint;

/* Who may come. Embedded by its owner, in the endpoint's list while it holds. */
struct hoop_expectation {
    struct hoop_list_node node;
    struct hoop_endpoint *endpoint;   /* set by hoop_endpoint_expect() */
    struct hoop_frame_hello hello;    /* what it says: kind, comm, rendezvous; data: ranks, lane */
    const struct hoop_secret *secret; /* borrowed */
    /* for who is not the one expected: which job this is; NULL: nobody's matter */
    const char *label;
    /* Once for each that came and proved itself. Adopts the connection or destroys it. */
    void (*opened)(void *arg, struct hoop_connection *connection);
    void *arg;
};

/*
 * Opens an endpoint at a name; or at an address: at a port of ports (NULL or first 0: any), or
 * where at->address.port is not 0, at exactly that one. One that this process has open there is
 * shared. A failure's sentence names the place; HOOP_INVALID_USAGE: it is taken.
 */
hoop_result_t hoop_endpoint_open(const struct hoop_place *at, const struct hoop_ports *ports,
                                 struct hoop_endpoint **ret_endpoint);
/* The last user's close shuts it. NULL is allowed. */
void hoop_endpoint_close(struct hoop_endpoint *endpoint);
/* With its port; family 0: it has a name. */
const struct hoop_address *hoop_endpoint_address(const struct hoop_endpoint *endpoint);

/* From now on. Whoever is expected by nobody is asked to come back later. */
void hoop_endpoint_expect(struct hoop_endpoint *endpoint, struct hoop_expectation *expectation);
/* No more; also for one that never was. Who has not proved itself yet is not opened any more. */
void hoop_endpoint_expect_no_more(struct hoop_expectation *expectation);

/* "hoop-" and 32 random hexadecimal digits: a name that nobody has. */
hoop_result_t hoop_endpoint_name(char ret_name[HOOP_NAME_BYTES]);

#endif
