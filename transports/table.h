/* The transports of this build; for transport.c and the files that define them. */
#ifndef HOOP_TRANSPORT_TABLE_H
#define HOOP_TRANSPORT_TABLE_H

struct hoop_transport;

extern const struct hoop_transport hoop_transport_inproc;
extern const struct hoop_transport hoop_transport_shm;
extern const struct hoop_transport hoop_transport_rdma;
extern const struct hoop_transport hoop_transport_tcp;

#endif
