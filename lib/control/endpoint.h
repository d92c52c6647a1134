/*
 * Endpoints: where this process listens, at a name or at a TCP port, and which connections it
 * expects there. One endpoint serves all expectations of its place: the hello says what the client
 * wants, and the proof covers the hello. An expectation gets only proven connections.
 *
 * Service thread only.
 */
#ifndef HOOP_CONTROL_ENDPOINT_H
#define HOOP_CONTROL_ENDPOINT_H

#include "base/list.h"
#include "control/connection.h"

struct hoop_endpoint;

/* Which connections may come. Embedded in its owner; in the endpoint's list while in force. */
struct hoop_expectation {
    struct hoop_list_node node;
    struct hoop_endpoint *endpoint;   /* set by hoop_endpoint_expect() */
    struct hoop_frame_hello hello;    /* kind, comm, rendezvous; for DATA also ranks and lane */
    const struct hoop_secret *secret; /* borrowed */
    /* describes this job to clients that are looking for another; or NULL */
    const char *label;
    /* Called for each proven connection, which it adopts or destroys. */
    void (*opened)(void *arg, struct hoop_connection *connection);
    /* Called again and again while somebody, who may be expected, waits and cannot be let in for
     * want of descriptors or memory, so far for ms. Must not remove expectations. May be NULL. */
    void (*starved)(void *arg, uint64_t ms, const struct hoop_failure *why);
    void *arg;
};

/*
 * Opens an endpoint at a name, or at an address: at the address's port, or if that is 0 at a free
 * one of ports (NULL or first 0: any). An endpoint that this process already has there is shared.
 * The sentence of a failure names the place; HOOP_INVALID_USAGE: it is taken.
 */
hoop_result_t hoop_endpoint_open(const struct hoop_place *at, const struct hoop_ports *ports,
                                 struct hoop_endpoint **ret_endpoint);
/* Closes the endpoint when its last user closes it. NULL is allowed. */
void hoop_endpoint_close(struct hoop_endpoint *endpoint);
/* The address with its port; family 0 if the endpoint has a name. */
const struct hoop_address *hoop_endpoint_address(const struct hoop_endpoint *endpoint);

/* Adds an expectation. Clients that match none are asked to come back later. */
void hoop_endpoint_expect(struct hoop_endpoint *endpoint, struct hoop_expectation *expectation);
/* Removes it, if it was added. Clients without a proof are not passed to it any more. */
void hoop_endpoint_expect_no_more(struct hoop_expectation *expectation);

#endif
