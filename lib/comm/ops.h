/*
 * What a comm's user has made for it, by handle. Operations: sums in which every rank first
 * multiplies its input with a scalar of its own, of which the operation keeps a copy, and each call
 * takes one. Registrations of buffers. Any thread; in a forked child removing does nothing, all
 * else is refused.
 */
#ifndef HOOP_OPS_H
#define HOOP_OPS_H

#include "comm/comm.h"

/* Makes an operation; *ret is its handle, at least HOOP_NUM_OPS. scalar: one element; copied. */
hoop_result_t hoop_ops_add(struct hoop_comm *comm, hoop_datatype_t type, const void *scalar,
                           hoop_red_op_t *ret);

/* HOOP_OK: the operation exists, for this type; *ret is its scalar. */
hoop_result_t hoop_ops_find(struct hoop_comm *comm, hoop_red_op_t op, hoop_datatype_t type,
                            uint64_t *ret);

/* Removes an operation. Calls made with it have their own copy of the scalar. */
hoop_result_t hoop_ops_remove(struct hoop_comm *comm, hoop_red_op_t op);

/* Makes a registration; *ret is its handle, never NULL: a number that is used once in this process,
 * so that the handle of an ended registration, or of another comm, is recognized as wrong. */
hoop_result_t hoop_ops_register(struct hoop_comm *comm, void **ret);

/* HOOP_INVALID_USAGE: this comm has no registration with this handle. */
hoop_result_t hoop_ops_deregister(struct hoop_comm *comm, const void *handle);

#endif
