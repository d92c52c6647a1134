/* The work of the two ends of a link over TCP; for tcp.c, which makes and destroys them. */
#ifndef HOOP_TCP_ENDS_H
#define HOOP_TCP_ENDS_H

#include "transports/tcp/tcp_wire.h"

/* Create returns NULL without memory. finish frees what only that end has, and runs `done` of what
 * is pending. The others are functions of struct hoop_transport. */
struct hoop_tcp_link *hoop_tcp_sender_create(const struct hoop_link_params *params);
hoop_result_t hoop_tcp_sender_post(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_tcp_sender_push(struct hoop_link *link);
bool hoop_tcp_sender_progress(struct hoop_tcp_link *tcp);
void hoop_tcp_sender_finish(struct hoop_tcp_link *tcp);

struct hoop_tcp_link *hoop_tcp_receiver_create(const struct hoop_link_params *params);
hoop_result_t hoop_tcp_receiver_post(struct hoop_link *link, struct hoop_xfer *xfer);
void hoop_tcp_receiver_release(struct hoop_link *link, struct hoop_xfer *xfer);
bool hoop_tcp_receiver_progress(struct hoop_tcp_link *tcp);
void hoop_tcp_receiver_finish(struct hoop_tcp_link *tcp);

#endif
