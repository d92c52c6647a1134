/*
 * What a comm's user has made for it, by handle. Operations: sums in which every rank first
 * multiplies its input with a scalar of its own, of which the operation keeps a copy, and each call
 * takes one. Registrations of buffers. Any thread; in a forked child removing does nothing, all
 * else is refused.
 */
#ifndef HOOP_OPS_H
#define HOOP_OPS_H

#include "comm/comm.h"

/* Makes one; *ret is its handle, HOOP_NUM_OPS or more. scalar: the bytes of one element. */
hoop_result_t hoop_ops_add(struct hoop_comm *comm, hoop_datatype_t type, const void *scalar,
                           hoop_red_op_t *ret);

/* HOOP_OK: there is such an operation for this type, and *ret is its scalar. */
hoop_result_t hoop_ops_find(struct hoop_comm *comm, hoop_red_op_t op, hoop_datatype_t type,
                            uint64_t *ret);

/* Forgets it. Calls that were made with it have their copy of the scalar. */
hoop_result_t hoop_ops_remove(struct hoop_comm *comm, hoop_red_op_t op);

/* A registration; *ret is its handle: a number that no other one of this process ever has, so that
 * one that is dead, or of another comm, is told from all that live. Never NULL. */
hoop_result_t hoop_ops_register(struct hoop_comm *comm, void **ret);

/* HOOP_INVALID_USAGE: this comm has none with this handle. */
hoop_result_t hoop_ops_deregister(struct hoop_comm *comm, const void *handle);

#endif
