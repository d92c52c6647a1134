/* Buffers on devices: can all ranks open fresh memory, and which is known? (see buffers.h) */
#include "plan/buffers_inside.h"

#include "memory/ipc.h"
#include "memory/region.h"

#include <stdlib.h>

static uint32_t buffers_generation(const struct hoop_announce *announce, bool out)
{
    return out ? announce->out_generation : announce->in_generation;
}

/* An input in the same memory as the output counts as part of the output. */
static bool buffers_is_fresh(const struct hoop_buffers *buffers, uint32_t rank, bool out)
{
    const struct hoop_announce *a = hoop_buffers_announced(buffers, rank);
    const bool same = a->in_region == a->out_region && a->in_generation == a->out_generation;
    return (buffers_generation(a, out) & HOOP_BUFFERS_FRESH) != 0 && (out || !same);
}

bool hoop_buffers_are_fresh(const struct hoop_buffers *buffers)
{
    uint32_t i = 0;
    while (i < 2 * buffers->board->n && !buffers_is_fresh(buffers, i / 2, i % 2 != 0)) {
        i++;
    }
    return i < 2 * buffers->board->n;
}

static struct hoop_mapping *buffers_mapping(struct hoop_buffers *buffers, uint32_t rank, bool out)
{
    return out ? &buffers->out_use[rank] : &buffers->in_use[rank];
}

/* Opens one buffer of a peer, all of it that was announced. */
static hoop_result_t buffers_try_one(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                                     uint32_t rank, bool out, struct hoop_failure *failure)
{
    const struct hoop_announce *a = hoop_buffers_announced(buffers, rank);
    const uint64_t count = out ? hoop_out_count(plan, rank) : hoop_in_count(plan, rank);
    const struct hoop_buffers_place place = {.region = out ? a->out_region : a->in_region,
                                             .offset = out ? a->out_offset : a->in_offset,
                                             .bytes = count * plan->type_bytes,
                                             .generation =
                                                 buffers_generation(a, out) & ~HOOP_BUFFERS_FRESH};
    struct hoop_mapping *use = buffers_mapping(buffers, rank, out);
    const hoop_result_t result =
        hoop_buffers_use(buffers, rank, &place, use, &(void *){NULL}, failure);
    use->asked &= result == HOOP_AGAIN;
    return result;
}

hoop_result_t hoop_buffers_try(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                               uint32_t rank, struct hoop_failure *failure)
{
    hoop_result_t results[2] = {HOOP_OK, HOOP_OK};
    for (uint32_t i = 0; i < 2 && failure->code == HOOP_OK; i++) {
        if (rank != plan->me && buffers_is_fresh(buffers, rank, i == 0)) {
            results[i] = buffers_try_one(buffers, plan, rank, i == 0, failure);
        }
    }
    return results[0] == HOOP_OK ? results[1] : results[0];
}

void hoop_buffers_tried(struct hoop_buffers *buffers, bool refused)
{
    for (uint32_t i = 0; i < 2 * buffers->board->n; i++) {
        const bool out = i % 2 != 0;
        const struct hoop_announce *a = hoop_buffers_announced(buffers, i / 2);
        if (buffers_mapping(buffers, i / 2, out)->asked) { /* no longer needed */
            (void)buffers->maps.answered(buffers->maps.arg, i / 2,
                                         out ? a->out_region : a->in_region,
                                         buffers_generation(a, out) & ~HOOP_BUFFERS_FRESH, NULL);
        }
    }
    hoop_buffers_release(buffers);
    buffers->trial = refused ? HOOP_TRIAL_REFUSED : HOOP_TRIAL_OPENED;
}

/* Forgets everything that others have shown in this operation, as announced after the trial. */
static void buffers_forget_shown(const struct hoop_buffers *buffers)
{
    for (uint32_t i = 0; i < 2 * buffers->board->n; i++) {
        const struct hoop_announce *a = hoop_buffers_announced(buffers, i / 2);
        if (buffers_generation(a, i % 2 != 0) == HOOP_IPC_GENERATION) {
            hoop_region_forget(buffers->maps.peers[i / 2].process,
                               i % 2 ? a->out_region : a->in_region, HOOP_IPC_GENERATION);
        }
    }
    hoop_ipc_close_forgotten(true);
}

void hoop_buffers_end_trial(struct hoop_buffers *buffers, bool all, bool launched)
{
    for (uint32_t i = 0; i < 2 && all && !launched; i++) {
        buffers->confirmed[buffers->shown[i] % HOOP_BUFFERS_CONFIRMED] = buffers->shown[i];
    }
    if (!all) {
        buffers_forget_shown(buffers);
        buffers->shows = false;
    }
    buffers->trial = HOOP_TRIAL_NONE;
}

/* ---- What is known -------------------------------------------------------------------------- */

/* Stands for all ranks in place of one that acts. */
#define BUFFERS_ALL HOOP_MAX_RANKS

/* 0 means none. A process does not reuse ids; if two keys collide, one call waits needlessly. */
static uint64_t buffers_key(const struct hoop_region_ref *ref, uint32_t actor)
{
    return ((ref->id * (HOOP_MAX_RANKS + 1) + actor) ^ (uint64_t)ref->generation << 40) + 1;
}

/* Fibonacci hashing, because ids are consecutive, as are CUDA's. */
static size_t buffers_place_of(uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HOOP_BUFFERS_KNOWN_SHIFT);
}

/* The table, allocated at first use. Without memory for it nothing is known. */
static _Atomic uint64_t *buffers_make_known(struct hoop_buffers *buffers)
{
    _Atomic uint64_t *known = atomic_load(&buffers->known);
    if (known == NULL) {
        known = calloc(HOOP_BUFFERS_KNOWN, sizeof(*known));
        atomic_store(&buffers->known, known);
    }
    return known;
}

static void buffers_note(struct hoop_buffers *buffers, const struct hoop_region_ref *ref,
                         uint32_t actor)
{
    const uint64_t key = buffers_key(ref, actor);
    _Atomic uint64_t *known = buffers_make_known(buffers);
    if (ref->id != 0 && known != NULL) {
        atomic_store_explicit(&known[buffers_place_of(key)], key, memory_order_relaxed);
    }
}

/* Are the buffers on several devices? */
static bool buffers_are_apart(const struct hoop_buffers *buffers)
{
    uint32_t rank = 0;
    while (rank < buffers->board->n &&
           (rank == buffers->board->me ||
            hoop_buffers_announced(buffers, rank)->device == buffers->device)) {
        rank++;
    }
    return rank < buffers->board->n;
}

/* Who reads this rank's input, and therefore opens it. */
static uint32_t buffers_reader(const struct hoop_plan *plan, bool apart)
{
    return apart && plan->collective != HOOP_COLL_GATHER ? BUFFERS_ALL : plan->root;
}

void hoop_buffers_note(struct hoop_buffers *buffers, const struct hoop_plan *plan)
{
    const bool apart = buffers_are_apart(buffers);
    if (apart ? plan->one_acts || !hoop_buffers_outs_are_reached(buffers, plan)
              : !plan->one_acts || plan->actor != plan->root) {
        return; /* other ranks acted than will if all are launched, or calls can't be launched */
    }
    if (!apart || hoop_buffers_reads(plan, plan->me)) {
        buffers_note(buffers, &buffers->mine.in, buffers_reader(plan, apart));
    }
    if (!apart || hoop_buffers_writes(plan, plan->me)) {
        buffers_note(buffers, &buffers->mine.out, apart ? BUFFERS_ALL : plan->root);
    }
    atomic_store(&buffers->known_in, buffers->staging->context);
    atomic_store(&buffers->known_apart, apart);
}

static bool buffers_is_known(const _Atomic uint64_t *known, const struct hoop_region_ref *ref,
                             uint32_t actor)
{
    const uint64_t key = buffers_key(ref, actor);
    return ref->id == 0 ||
           atomic_load_explicit(&known[buffers_place_of(key)], memory_order_relaxed) == key;
}

/* In one process: do other ranks' devices reach the buffers? Threads share memory without opening
 * it one by one; but not every allocation with other devices. */
static bool buffers_are_shared(const struct hoop_buffers_own *own, bool apart)
{
    const struct hoop_region_ref *const refs[] = {&own->in, &own->out};
    bool shared = true;
    for (size_t i = 0; i < 2 && apart && shared; i++) {
        shared = refs[i]->id != 0 || refs[i]->offset == 0 ||
                 hoop_cuda_is_plain((const void *)(uintptr_t)refs[i]->offset);
    }
    return shared;
}

enum hoop_launched hoop_buffers_are_known(const struct hoop_buffers *buffers,
                                          const struct hoop_plan *plan,
                                          const struct hoop_buffers_own *own,
                                          hoop_cu_context_t context)
{
    const _Atomic uint64_t *known = atomic_load(&buffers->known);
    const bool apart = atomic_load(&buffers->known_apart);
    if (known == NULL || context == NULL || context != atomic_load(&buffers->known_in) ||
        atomic_load(&buffers->waits) > 0 ||
        (buffers->one_process ? !buffers_are_shared(own, apart)
                              : own->out.id == 0 && hoop_out_count(plan, plan->me) > 0)) {
        return HOOP_LAUNCHED_NOT;
    }
    const bool in = (apart && !hoop_buffers_reads(plan, plan->me)) ||
                    buffers_is_known(known, &own->in, buffers_reader(plan, apart));
    const bool out = (apart && !hoop_buffers_writes(plan, plan->me)) ||
                     buffers_is_known(known, &own->out, apart ? BUFFERS_ALL : plan->root);
    return !in || !out ? HOOP_LAUNCHED_NOT : apart ? HOOP_LAUNCHED_EACH : HOOP_LAUNCHED_ONE;
}
