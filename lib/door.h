/*
 * Doors: the TCP ports that this process listens at. One listener serves all that is expected at
 * its address: machines of a hub, branches of a rendezvous, data connections of links; who wants
 * what stands in the hello, and the proof covers it.
 *
 * Service thread only, but for hoop_door_ports().
 */
#ifndef HOOP_DOOR_H
#define HOOP_DOOR_H

#include "base/address.h"
#include "control.h"

struct hoop_door;

/* HOOP_PORT_RANGE; {0, 0} if it is not set or not valid (that was reported). Thread-safe. */
struct hoop_ports hoop_door_ports(void);

/*
 * Opens a door at at->ip: at a port of ports, or where at->port is not 0, at exactly that one. A
 * door of this process that is open there already is shared. The sentence goes to *failure; it
 * names address and ports.
 */
hoop_result_t hoop_door_open(const struct hoop_address *at, const struct hoop_ports *ports,
                             struct hoop_door **ret_door, struct hoop_failure *failure);
/* The last user's close shuts it. NULL is allowed. */
void hoop_door_close(struct hoop_door *door);
/* With its port. */
const struct hoop_address *hoop_door_address(const struct hoop_door *door);

#endif
