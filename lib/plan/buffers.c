/* The buffers of an operation on shared memory (see buffers.h). */
#include "plan/buffers_inside.h"

#include "memory/ipc.h"
#include "runtime/process.h"

#include <stdlib.h>
#include <string.h>

hoop_result_t hoop_buffers_init(struct hoop_buffers *buffers)
{
    const uint32_t n = buffers->board->n;
    buffers->ins = calloc(n, sizeof(*buffers->ins));
    buffers->outs = calloc(n, sizeof(*buffers->outs));
    buffers->far = calloc(n, sizeof(*buffers->far));
    buffers->factors = calloc(n, sizeof(*buffers->factors));
    buffers->in_use = calloc(n, sizeof(*buffers->in_use));
    buffers->out_use = calloc(n, sizeof(*buffers->out_use));
    if (!buffers->ins || !buffers->outs || !buffers->far || !buffers->factors || !buffers->in_use ||
        !buffers->out_use) {
        hoop_buffers_finish(buffers);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the operations of %u ranks", n);
    }
    buffers->shows = !buffers->one_process && hoop_settings()->cuda_ipc != 0 &&
                     hoop_settings()->cuda_ahead != HOOP_AHEAD_ALL;
    return HOOP_OK;
}

void hoop_buffers_finish(struct hoop_buffers *buffers)
{
    hoop_ipc_close_forgotten(true);
    free(buffers->ins);
    free(buffers->outs);
    free(buffers->far);
    free(buffers->factors);
    free(buffers->in_use);
    free(buffers->out_use);
    free((void *)atomic_load(&buffers->known));
    *buffers = (struct hoop_buffers){0};
}

/* ---- What the others' steps access --------------------------------------------------------- */

bool hoop_buffers_reads(const struct hoop_plan *plan, uint32_t rank)
{
    return hoop_in_count(plan, rank) > 0;
}

/* Do the ranks share the folding of one vector? */
static bool buffers_share(const struct hoop_plan *plan)
{
    return hoop_collectives[plan->collective].folds &&
           !hoop_collective_is_blocked(plan->collective);
}

bool hoop_buffers_writes(const struct hoop_plan *plan, uint32_t rank)
{
    return (buffers_share(plan) || plan->one_acts || plan->gives) && hoop_out_count(plan, rank) > 0;
}

/* Does this rank access others' buffers? A rank that gets nothing, or for which another rank folds,
 * must not even request them: nobody waits for it, so they may be gone. */
static bool buffers_touches(const struct hoop_plan *plan)
{
    const bool folds = plan->algo == HOOP_ALGO_DIRECT && hoop_collectives[plan->collective].folds;
    return plan->one_acts ? plan->me == plan->actor
                          : folds || plan->gives || hoop_out_count(plan, plan->me) > 0;
}

/* ---- Announcing ----------------------------------------------------------------------------- */

#define BUFFERS_NOWHERE(me) (UINT64_MAX - (me)) /* a device that nobody has, unique to rank me */

/* A count as it is announced; no memory holds enough elements for bits to be lost. */
static uint64_t buffers_counted(uint64_t count)
{
    return count & UINT64_MAX >> 6;
}

/* Can others read this plain memory? */
static uint32_t buffers_try(struct hoop_buffers *buffers, const void *buffer, uint64_t bytes)
{
    /* Fibonacci hashing, because the low bits of buffers are alike. */
    const uint64_t hash = (uintptr_t)buffer * UINT64_C(0x9e3779b97f4a7c15);
    struct hoop_readable *known = &buffers->readable[hash >> (64 - HOOP_READABLES_SHIFT)];
    if (buffer == known->memory && bytes <= known->bytes) {
        return HOOP_BUFFERS_READABLE;
    }
    const bool can = hoop_process_can_be_read(buffer, bytes);
    *known = can ? (struct hoop_readable){buffer, bytes} : (struct hoop_readable){NULL, 0};
    return can ? HOOP_BUFFERS_READABLE : HOOP_BUFFERS_UNREADABLE;
}

/* Announces a buffer's place in its region, or else its address, which gives its page offset. */
static void buffers_find(const void *buffer, uint64_t bytes, uint64_t *ret_region,
                         uint32_t *ret_generation, uint64_t *ret_offset)
{
    struct hoop_region_ref ref;
    *ret_offset = (uintptr_t)buffer;
    if (bytes == 0 || !hoop_region_find(buffer, bytes, &ref)) {
        return;
    }
    *ret_region = ref.id;
    *ret_generation = ref.generation;
    *ret_offset = ref.offset;
}

/* The same for a buffer on a device that others access; marks it as fresh where it is. */
static void buffers_say(const struct hoop_buffers *buffers, const struct hoop_region_ref *ref,
                        uint64_t *ret_region, uint32_t *ret_generation, uint64_t *ret_offset)
{
    const bool fresh = ref->generation == HOOP_IPC_GENERATION &&
                       buffers->confirmed[ref->id % HOOP_BUFFERS_CONFIRMED] != ref->id &&
                       buffers->trial == HOOP_TRIAL_NONE;
    *ret_region = ref->id;
    *ret_generation = ref->generation | (fresh ? HOOP_BUFFERS_FRESH : 0);
    *ret_offset = ref->offset;
}

/* Posts the announcement followed by the factor and the peers of its device. */
static void buffers_post_there(const struct hoop_buffers *buffers,
                               const struct hoop_announce *announce, bool meets)
{
    struct {
        struct hoop_announce announce;
        uint64_t factor;
        uint64_t peers[HOOP_ANNOUNCE_PEERS];
    } post = {.announce = *announce, .factor = buffers->factor};
    _Static_assert(HOOP_CUDA_MOST_PEERS < HOOP_ANNOUNCE_PEERS, "with a 0 behind the last");
    const size_t n = meets ? buffers->staging->n_peers : 0;
    memcpy(post.peers, buffers->staging->peers, n * sizeof(post.peers[0]));
    hoop_board_post(buffers->board, &post, sizeof(*announce) + (n + 2) * sizeof(uint64_t));
}

/* Announces buffers on a device. Those that nobody accesses are left out (id 0). */
static void buffers_announce_there(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                                   bool meets)
{
    const bool refused = buffers->trial == HOOP_TRIAL_REFUSED;
    struct hoop_announce announce = {.count = buffers_counted(plan->count),
                                     .launched = buffers->launched,
                                     .device =
                                         refused ? BUFFERS_NOWHERE(plan->me) : buffers->device};
    buffers_say(buffers, &buffers->mine.out, &announce.out_region, &announce.out_generation,
                &announce.out_offset);
    buffers_say(buffers, &buffers->mine.in, &announce.in_region, &announce.in_generation,
                &announce.in_offset);
    buffers->shown[0] = announce.in_generation == HOOP_IPC_GENERATION ? announce.in_region : 0;
    buffers->shown[1] = announce.out_generation == HOOP_IPC_GENERATION ? announce.out_region : 0;
    buffers_post_there(buffers, &announce, meets);
}

void hoop_buffers_announce(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                           const void *in, void *out, uint64_t device, bool meets,
                           struct hoop_learned_say says)
{
    struct hoop_announce announce = {
        .count = buffers_counted(plan->count), .choice = says.choice, .grant = says.grant};
    const uint64_t in_bytes = hoop_in_count(plan, plan->me) * plan->type_bytes;
    const uint64_t out_bytes = hoop_out_count(plan, plan->me) * plan->type_bytes;
    buffers->device = device;
    if (device != 0) {
        buffers_announce_there(buffers, plan, meets);
        return;
    }
    buffers_find(out, out_bytes, &announce.out_region, &announce.out_generation,
                 &announce.out_offset);
    buffers_find(in, in_bytes, &announce.in_region, &announce.in_generation, &announce.in_offset);
    const bool tries =
        !buffers->one_process && hoop_plan_may_read(buffers->agreed, plan->collective);
    if (tries && announce.out_region == 0 && hoop_buffers_writes(plan, plan->me)) {
        announce.out_generation = buffers_try(buffers, out, out_bytes);
    }
    if (tries && announce.in_region == 0 && hoop_buffers_reads(plan, plan->me)) {
        announce.in_generation = buffers_try(buffers, in, in_bytes);
    }
    hoop_board_post(buffers->board, &announce, sizeof(announce));
}

hoop_result_t hoop_buffers_agree(const struct hoop_buffers *buffers, uint32_t rank, uint64_t count,
                                 struct hoop_failure *failure)
{
    return hoop_buffers_announced(buffers, rank)->count == buffers_counted(count)
               ? HOOP_OK
               : hoop_board_mismatch(buffers->board, rank, failure);
}

/* Where a buffer that others access lies; threads share plain memory by its address. */
static bool buffers_look(const struct hoop_buffers *buffers, bool shows, const void *buffer,
                         uint64_t bytes, struct hoop_region_ref *ret)
{
    if (shows ? hoop_region_show(buffer, bytes, ret) : hoop_region_find(buffer, bytes, ret)) {
        return true;
    }
    *ret = (struct hoop_region_ref){.offset = (uintptr_t)buffer};
    return buffers->one_process;
}

bool hoop_buffers_look(const struct hoop_buffers *buffers, bool shows, const struct hoop_plan *plan,
                       const void *in, const void *out, struct hoop_buffers_own *ret)
{
    const uint64_t in_bytes = hoop_in_count(plan, plan->me) * plan->type_bytes;
    const uint64_t out_bytes = hoop_out_count(plan, plan->me) * plan->type_bytes;
    const bool reads = hoop_buffers_reads(plan, plan->me), has_out = out_bytes > 0;
    *ret = (struct hoop_buffers_own){.in = {.id = 0}};
    const bool found = has_out && buffers_look(buffers, shows, out, out_bytes, &ret->out);
    if (!found) {
        ret->out = (struct hoop_region_ref){.id = 0};
    }
    if (hoop_buffers_writes(plan, plan->me) && !found) {
        return false;
    }
    if (reads && found && in == out && in_bytes <= out_bytes) {
        ret->in = ret->out;
        return true;
    }
    return !reads || buffers_look(buffers, shows, in, in_bytes, &ret->in);
}

/* Not stream-ordered memory of CUDA's, nor memory that belongs to no device. Before a call was
 * launched this was asked (hoop_buffers_are_known()). */
static bool buffers_lets_in(const struct hoop_buffers *buffers, const struct hoop_region_ref *own)
{
    const void *plain = own->id == 0 ? (const void *)(uintptr_t)own->offset : NULL;
    if (plain == NULL || buffers->launched != HOOP_LAUNCHED_NOT) {
        return true; /* a region, or nobody accesses it */
    }
    if (hoop_staging_enter(buffers->staging) != HOOP_OK) {
        return false;
    }
    const bool lets = hoop_cuda_is_plain(plain);
    hoop_staging_leave();
    return lets;
}

bool hoop_buffers_let_in(const struct hoop_buffers *buffers, const struct hoop_plan *plan)
{
    return buffers_lets_in(buffers, &buffers->mine.in) &&
           (!hoop_buffers_writes(plan, plan->me) || buffers_lets_in(buffers, &buffers->mine.out));
}

/* ---- Mapping -------------------------------------------------------------------------------- */

/* Opens another device's memory to this one's. In its own process a region is open to its own; and
 * memory that is not opened by itself was opened before a call was launched (device/launch.c). */
static hoop_result_t buffers_open(const struct hoop_buffers *buffers, uint32_t rank,
                                  const struct hoop_mapping *use, uint64_t offset, void **base)
{
    const struct hoop_staging *staging = buffers->staging;
    const bool same = hoop_buffers_announced(buffers, rank)->device == buffers->device;
    const bool here = buffers->maps.peers[rank].same_process;
    const bool grants = use->used && !(here && use->generation == HOOP_IPC_GENERATION);
    const bool launched = here && !grants && buffers->launched != HOOP_LAUNCHED_NOT;
    if (buffers->device == 0 || (same && here) || launched ||
        (grants && hoop_region_is_granted(use->process, use->region, use->generation,
                                          staging->number, base))) {
        return HOOP_OK;
    }
    hoop_result_t result = hoop_staging_enter(staging);
    if (result == HOOP_OK) {
        result = grants
                     ? hoop_region_grant(use->process, use->region, use->generation,
                                         staging->number, base)
                     : hoop_cuda_reach(staging->context, (const void *)((uintptr_t)*base + offset));
        hoop_staging_leave();
    }
    return result;
}

static hoop_result_t buffers_cannot_map(const struct hoop_buffers *buffers, uint32_t rank,
                                        hoop_result_t result, struct hoop_failure *failure)
{
    const bool same = hoop_buffers_announced(buffers, rank)->device == buffers->device;
    return hoop_failure_set(failure, result, (int)rank,
                            "rank %u cannot map the buffer of rank %u: %s%s", buffers->board->me,
                            rank, hoop_thread_error(),
                            same ? "" : "; with HOOP_CUDA_PEERS=0 devices meet in host memory");
}

/* Checks what was announced about a region that is mapped now. */
static hoop_result_t buffers_check(const struct hoop_buffers *buffers, uint32_t rank,
                                   const struct hoop_buffers_place *place,
                                   const struct hoop_mapping *use, uint64_t bytes,
                                   struct hoop_failure *failure)
{
    if (place->offset > bytes || place->bytes > bytes - place->offset) {
        return hoop_failure_set(failure, HOOP_REMOTE_ERROR, (int)rank,
                                "rank %u announced %llu bytes at %llu of a region of %llu", rank,
                                (unsigned long long)place->bytes, (unsigned long long)place->offset,
                                (unsigned long long)bytes);
    }
    const uint32_t kind = hoop_region_kind(use->process, use->region, use->generation);
    if ((kind != HOOP_MEM_HOST) != (buffers->device != 0)) {
        return hoop_failure_set(failure, HOOP_REMOTE_ERROR, (int)rank,
                                "rank %u announced memory of %s, but it is not", rank,
                                buffers->device != 0 ? "a device" : "the host");
    }
    return HOOP_OK;
}

hoop_result_t hoop_buffers_use(struct hoop_buffers *buffers, uint32_t rank,
                               const struct hoop_buffers_place *place, struct hoop_mapping *use,
                               void **ret, struct hoop_failure *failure)
{
    void *base = NULL;
    uint64_t bytes = 0;
    hoop_result_t result = HOOP_OK;
    if (use->used) {
        return HOOP_OK; /* mapped at an earlier poll */
    }
    if (place->region == 0) {
        const bool here = buffers->maps.peers[rank].same_process;
        buffers->far[rank] |= here ? 0 : place->far; /* plain memory of its process */
        if (!here && place->far == 0) {
            result = hoop_failure_set(failure, HOOP_REMOTE_ERROR, (int)rank,
                                      "rank %u announced plain memory, which rank %u cannot map",
                                      rank, buffers->board->me);
        }
    } else {
        result = hoop_mapping_poll(&buffers->maps, use, rank, place->region, place->generation,
                                   &base, &bytes);
        if (result == HOOP_OK) {
            result = buffers_check(buffers, rank, place, use, bytes, failure);
        } else if (result != HOOP_AGAIN) {
            result = buffers_cannot_map(buffers, rank, result, failure);
        }
    }
    if (result == HOOP_OK &&
        (result = buffers_open(buffers, rank, use, place->offset, &base)) != HOOP_OK) {
        result = buffers_cannot_map(buffers, rank, result, failure);
    }
    if (result == HOOP_OK) {
        *ret = (void *)((uintptr_t)base + place->offset);
    }
    return result;
}

/* Where ranks give, only the root takes from others, and only what belongs to its edges. */
static bool buffers_takes(const struct hoop_plan *plan)
{
    return !plan->gives || (plan->me == plan->root && plan->head + plan->tail > 0);
}

/* Both buffers of a peer, as far as they are accessed. */
static hoop_result_t buffers_peer(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                                  uint32_t rank, struct hoop_failure *failure)
{
    const struct hoop_announce *a = hoop_buffers_announced(buffers, rank);
    const bool writes = hoop_buffers_writes(plan, rank), reads_far = plan->algo == HOOP_ALGO_CMA;
    const uint64_t in_bytes = hoop_in_count(plan, rank) * plan->type_bytes;
    const uint64_t out_bytes = hoop_out_count(plan, rank) * plan->type_bytes;
    hoop_result_t result = HOOP_OK;
    buffers->far[rank] = 0;
    if (writes) {
        const struct hoop_buffers_place out = {.region = a->out_region,
                                               .offset = a->out_offset,
                                               .bytes = out_bytes,
                                               .generation = a->out_generation,
                                               .far = reads_far ? HOOP_FAR_OUT : 0};
        result = hoop_buffers_use(buffers, rank, &out, &buffers->out_use[rank],
                                  &buffers->outs[rank], failure);
    }
    buffers->factors[rank] = a->device != 0 ? hoop_buffers_word(buffers, rank, 0) : 0;
    if (result != HOOP_OK || !hoop_buffers_reads(plan, rank) || !buffers_takes(plan)) {
        return result;
    }
    if (writes && a->in_region == a->out_region && a->in_offset == a->out_offset &&
        in_bytes <= out_bytes) {
        buffers->ins[rank] = buffers->outs[rank]; /* in place */
        buffers->far[rank] |= buffers->far[rank] != 0 ? HOOP_FAR_IN : 0;
        return HOOP_OK;
    }
    void *in = (void *)(uintptr_t)buffers->ins[rank];
    const struct hoop_buffers_place place = {.region = a->in_region,
                                             .offset = a->in_offset,
                                             .bytes = in_bytes,
                                             .generation = a->in_generation,
                                             .far = reads_far ? HOOP_FAR_IN : 0};
    result = hoop_buffers_use(buffers, rank, &place, &buffers->in_use[rank], &in, failure);
    buffers->ins[rank] = in;
    return result;
}

hoop_result_t hoop_buffers_resolve(struct hoop_buffers *buffers, const struct hoop_plan *plan,
                                   const void *in, void *out, uint32_t *ret_awaited,
                                   struct hoop_failure *failure)
{
    hoop_ipc_close_forgotten(false);
    *ret_awaited = plan->n;
    for (uint32_t rank = 0; rank < plan->n && buffers_touches(plan); rank++) {
        const hoop_result_t result =
            rank == plan->me ? HOOP_OK : buffers_peer(buffers, plan, rank, failure);
        if (result != HOOP_OK && result != HOOP_AGAIN) {
            return result;
        }
        if (result == HOOP_AGAIN && *ret_awaited == plan->n) {
            *ret_awaited = rank;
        }
    }
    buffers->ins[plan->me] = in;
    buffers->outs[plan->me] = out;
    buffers->factors[plan->me] = buffers->factor;
    return *ret_awaited == plan->n ? HOOP_OK : HOOP_AGAIN;
}

void hoop_buffers_release(struct hoop_buffers *buffers)
{
    for (uint32_t rank = 0; rank < buffers->board->n; rank++) {
        hoop_mapping_finish(&buffers->in_use[rank]);
        hoop_mapping_finish(&buffers->out_use[rank]);
    }
}
