/* The flight recorder; see comm_dump.h. */
#include "comm_dump.h"
#include "base/log.h"

static _Atomic uint32_t dumps_asked;

void hoop_comm_dump_init(struct hoop_comm *comm)
{
    comm->dumps_seen = atomic_load_explicit(&dumps_asked, memory_order_relaxed);
}

static void dump_past(const struct hoop_comm *comm, const struct hoop_comm_past *past)
{
    char what[96];
    hoop_signature_describe(&past->signature, what, sizeof(what));
    hoop_log(HOOP_LOG_INFO, HOOP_LOG_COMM, "rank %u%s%s: operation %u: %s: %s", comm->rank,
             comm->name[0] != '\0' ? " of " : "", comm->name, past->sequence, what,
             hoop_get_error_name(past->result));
}

/* The last operations, oldest first. */
static void dump(const struct hoop_comm *comm)
{
    const uint32_t last = comm->board.sequence;
    for (uint32_t i = 0; i < HOOP_HISTORY; i++) {
        const uint32_t sequence = last - HOOP_HISTORY + 1 + i;
        const struct hoop_comm_past *past = &comm->history[sequence % HOOP_HISTORY];
        if (past->sequence == sequence && sequence != 0) {
            dump_past(comm, past);
        }
    }
}

void hoop_comm_dump_all(struct hoop_comm *comm)
{
    if (!hoop_log_enabled(HOOP_LOG_INFO, HOOP_LOG_COMM)) {
        return;
    }
    comm->dumps_seen = atomic_fetch_add_explicit(&dumps_asked, 1, memory_order_relaxed) + 1;
    dump(comm);
}

void hoop_comm_dump_if_asked(struct hoop_comm *comm)
{
    const uint32_t asked = atomic_load_explicit(&dumps_asked, memory_order_relaxed);
    if (__builtin_expect(asked != comm->dumps_seen, 0)) {
        char what[256];
        comm->dumps_seen = asked;
        hoop_operation_describe(&comm->operation, what, sizeof(what));
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_COMM, "rank %u: another communicator failed; here: %s",
                 comm->rank, what);
        dump(comm);
    }
}
