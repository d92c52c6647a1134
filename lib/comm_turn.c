/*
 * Whose turn it is on a comm (see comm.h): the owner's by a plain store, others' by tickets after
 * they took that right away from the owner.
 *
 *   owner                                  another thread, holding a ticket
 *   inside = 1                             revoked = 1
 *   (compiler barrier)                     membarrier: a full barrier on every running thread
 *   revoked? then inside = 0, ticket       wait until inside == 0
 *
 * Either the owner sees `revoked` or the other sees `inside`: the membarrier falls before the
 * owner's store, and then its load is late enough, or after it, and then the store is seen.
 */
#include "comm.h"

struct turn {
    struct hoop_comm *comm;
    uint32_t ticket;
};

static enum hoop_poll turn_poll(void *arg, bool look)
{
    const struct turn *turn = arg;
    (void)look;
    return atomic_load_explicit(&turn->comm->serving, memory_order_acquire) == turn->ticket
               ? HOOP_POLL_DONE
               : HOOP_POLL_IDLE;
}

static enum hoop_poll turn_owner_out_poll(void *arg, bool look)
{
    struct hoop_comm *comm = arg;
    (void)look;
    return atomic_load_explicit(&comm->inside, memory_order_acquire) == 0 ? HOOP_POLL_DONE
                                                                          : HOOP_POLL_IDLE;
}

/* Who is inside has a deadline, so the waits for it need none. */
static void turn_take_ticket(struct hoop_comm *comm)
{
    struct turn turn = {
        .comm = comm,
        .ticket = atomic_fetch_add_explicit(&comm->next, 1, memory_order_relaxed),
    };
    hoop_wait(&(struct hoop_wait){.poll = turn_poll, .arg = &turn});
    if (atomic_load_explicit(&comm->revoked, memory_order_relaxed) == 0) {
        /* Pairs with the owner's store of `inside` before its load of `revoked`. */
        atomic_store(&comm->revoked, 1);
        hoop_membarrier();
        hoop_wait(&(struct hoop_wait){.poll = turn_owner_out_poll, .arg = comm});
    }
}

static uintptr_t turn_self(void)
{
    static _Thread_local char mark __attribute__((tls_model("initial-exec")));
    return (uintptr_t)&mark;
}

void hoop_comm_enter(struct hoop_comm *comm)
{
    const uintptr_t self = turn_self();
    uintptr_t owner = atomic_load_explicit(&comm->owner, memory_order_relaxed);
    if (owner == 0 && hoop_membarrier_ready() &&
        atomic_compare_exchange_strong(&comm->owner, &owner, self)) {
        owner = self;
    }
    if (owner == self) {
        atomic_store_explicit(&comm->inside, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&comm->revoked, memory_order_relaxed) == 0) {
            return;
        }
        atomic_store_explicit(&comm->inside, 0, memory_order_release);
    }
    turn_take_ticket(comm);
}

void hoop_comm_leave(struct hoop_comm *comm)
{
    if (atomic_load_explicit(&comm->inside, memory_order_relaxed) != 0 &&
        atomic_load_explicit(&comm->owner, memory_order_relaxed) == turn_self()) {
        atomic_store_explicit(&comm->inside, 0, memory_order_release);
    } else {
        const uint32_t ticket = atomic_load_explicit(&comm->serving, memory_order_relaxed);
        atomic_store_explicit(&comm->serving, ticket + 1, memory_order_release);
    }
}
