/* What the user created on a comm (see ops.h), guarded by the comm's look_lock. */
#include "comm/ops.h"

#include "reduce/reduce.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Operations ------------------------------------------------------------------------------ */

struct hoop_op {
    bool used;
    hoop_datatype_t type;
    uint64_t scalar; /* its first bytes are the element */
};

static uint32_t ops_free_slot(const struct hoop_comm *comm)
{
    uint32_t i = 0;
    while (i < comm->n_ops && comm->ops[i].used) {
        i++;
    }
    return i;
}

hoop_result_t hoop_ops_add(struct hoop_comm *comm, hoop_datatype_t type, const void *scalar,
                           hoop_red_op_t *ret)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    struct hoop_op op = {.used = true, .type = type};
    memcpy(&op.scalar, scalar, hoop_datatype_bytes(type));
    pthread_mutex_lock(&comm->look_lock);
    const uint32_t slot = ops_free_slot(comm);
    hoop_result_t result = HOOP_OK;
    if (slot == comm->n_ops) {
        struct hoop_op *grown = realloc(comm->ops, (slot + 1) * sizeof(*grown));
        result = grown != NULL ? HOOP_OK : HOOP_OUT_OF_MEMORY;
        comm->ops = grown != NULL ? grown : comm->ops;
        comm->n_ops += grown != NULL;
    }
    if (result == HOOP_OK) {
        comm->ops[slot] = op;
        *ret = (hoop_red_op_t)(HOOP_NUM_OPS + slot);
    }
    pthread_mutex_unlock(&comm->look_lock);
    return result == HOOP_OK ? result : hoop_error(result, "no memory for one more operation");
}

/* The one with this handle; NULL: there is none. */
static struct hoop_op *ops_at(const struct hoop_comm *comm, hoop_red_op_t op)
{
    const uint32_t slot = (uint32_t)op - HOOP_NUM_OPS;
    return (int)op >= HOOP_NUM_OPS && slot < comm->n_ops && comm->ops[slot].used ? &comm->ops[slot]
                                                                                 : NULL;
}

hoop_result_t hoop_ops_find(struct hoop_comm *comm, hoop_red_op_t op, hoop_datatype_t type,
                            uint64_t *ret)
{
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    pthread_mutex_lock(&comm->look_lock);
    const struct hoop_op *found = ops_at(comm, op);
    const bool known = found != NULL, fits = known && found->type == type;
    const hoop_datatype_t its = known ? found->type : type;
    *ret = fits ? found->scalar : 0;
    pthread_mutex_unlock(&comm->look_lock);
    if (!known) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "op is %d, expected 0 to %d, or one made for this communicator", (int)op,
                          HOOP_NUM_OPS - 1);
    }
    return fits ? HOOP_OK
                : hoop_error(HOOP_INVALID_ARGUMENT, "op %d was made for %s, not for %s", (int)op,
                             hoop_datatype_name(its), hoop_datatype_name(type));
}

hoop_result_t hoop_ops_remove(struct hoop_comm *comm, hoop_red_op_t op)
{
    if (hoop_is_forked()) {
        return HOOP_OK;
    }
    pthread_mutex_lock(&comm->look_lock);
    struct hoop_op *found = ops_at(comm, op);
    if (found != NULL) {
        found->used = false;
    }
    pthread_mutex_unlock(&comm->look_lock);
    return found != NULL
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_ARGUMENT,
                            "op is %d, which was not made for this communicator", (int)op);
}

/* ---- Registrations --------------------------------------------------------------------------- */

hoop_result_t hoop_ops_register(struct hoop_comm *comm, void **ret)
{
    static _Atomic uintptr_t registrations;
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    pthread_mutex_lock(&comm->look_lock);
    uintptr_t *grown =
        realloc(comm->registered, (comm->n_registered + 1) * sizeof(*comm->registered));
    if (grown != NULL) {
        comm->registered = grown;
        grown[comm->n_registered] = atomic_fetch_add(&registrations, 1) + 1;
        *ret = (void *)grown[comm->n_registered++]; /* NOLINT(performance-no-int-to-ptr) */
    }
    pthread_mutex_unlock(&comm->look_lock);
    return grown != NULL ? HOOP_OK : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a handle");
}

hoop_result_t hoop_ops_deregister(struct hoop_comm *comm, const void *handle)
{
    if (hoop_is_forked()) {
        return HOOP_OK;
    }
    pthread_mutex_lock(&comm->look_lock);
    size_t at = 0;
    while (at < comm->n_registered && comm->registered[at] != (uintptr_t)handle) {
        at++;
    }
    const bool found = at < comm->n_registered;
    if (found) {
        comm->registered[at] = comm->registered[--comm->n_registered];
    }
    pthread_mutex_unlock(&comm->look_lock);
    return found ? HOOP_OK
                 : hoop_error(HOOP_INVALID_USAGE,
                              "handle %p was not registered with this communicator, or was given "
                              "back before",
                              handle);
}
