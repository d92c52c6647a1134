/* What the announcements of all ranks say about an operation's buffers together (see buffers.h). */
#include "plan/buffers_inside.h"

#include "base/log.h"

/* Does the device of rank, by its announcement, reach this device? */
static bool buffers_meets(const struct hoop_buffers *buffers, uint32_t rank, uint64_t device)
{
    const bool same = hoop_buffers_announced(buffers, rank)->device == device;
    uint64_t peer = 0;
    for (size_t i = 0; i < HOOP_ANNOUNCE_PEERS && !same; i++) {
        peer = hoop_buffers_word(buffers, rank, 1 + i);
        if (peer == 0 || peer == device) {
            break;
        }
    }
    return same || peer == device;
}

/* Logs once why operations go through the host. */
static void buffers_tell_apart(struct hoop_buffers *buffers, uint32_t rank)
{
    if (!buffers->told_apart && buffers->trial == HOOP_TRIAL_NONE) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_PLAN,
                 "devices meet in host memory: that of rank %u cannot reach all others, cannot see "
                 "them (CUDA_VISIBLE_DEVICES), or must not use them (HOOP_CUDA_PEERS), or its "
                 "buffer cannot be mapped by them",
                 rank);
    }
    buffers->told_apart |= buffers->trial == HOOP_TRIAL_NONE; /* else a rank has logged why */
}

static bool buffers_all_meet(struct hoop_buffers *buffers, uint64_t device)
{
    for (uint32_t rank = 0; rank < buffers->board->n; rank++) {
        if (!buffers_meets(buffers, rank, device)) {
            buffers_tell_apart(buffers, rank);
            return false;
        }
    }
    return true;
}

/* Notes if this rank's device does not reach that of another. Not in one process, where contexts
 * have names of their own. */
static void buffers_note_reach(struct hoop_buffers *buffers, uint64_t device)
{
    const struct hoop_staging *staging = buffers->staging;
    bool reaches = device == buffers->device || buffers->device == 0;
    for (uint32_t i = 0; i < staging->n_peers; i++) {
        reaches |= staging->peers[i] == device;
    }
    if (!reaches && !buffers->one_process && buffers->trial == HOOP_TRIAL_NONE) {
        atomic_store(&buffers->apart_in, staging->context);
    }
}

/* Without a switch a device has at most eight peers (CUDA's guide, "Peer-to-Peer Memory Access"),
 * which queries for pairs of devices do not show. */
#define BUFFERS_MOST_DEVICES 9u

/* Are all buffers on one device, or on several that reach each other? Checks each device once. */
static enum hoop_reach_place buffers_meeting_place(struct hoop_buffers *buffers,
                                                   bool *ret_one_device)
{
    uint64_t seen[BUFFERS_MOST_DEVICES] = {0};
    uint32_t n_seen = 0;
    bool meet = true;
    for (uint32_t rank = 0; rank < buffers->board->n && meet; rank++) {
        const uint64_t device = hoop_buffers_announced(buffers, rank)->device;
        uint32_t i = 0;
        while (i < n_seen && seen[i] != device) {
            i++;
        }
        if (i == n_seen) {
            meet = n_seen == 0 || (n_seen < BUFFERS_MOST_DEVICES && device != 0 && seen[0] != 0);
            if (meet) {
                seen[n_seen++] = device;
            }
        }
    }
    for (uint32_t i = 0; i < n_seen && n_seen > 1; i++) {
        buffers_note_reach(buffers, seen[i]);
        meet = meet && buffers_all_meet(buffers, seen[i]);
    }
    *ret_one_device = n_seen == 1 && seen[0] != 0;
    return !meet ? HOOP_REACH_MIXED : seen[0] != 0 ? HOOP_REACH_DEVICE : HOOP_REACH_HOST;
}

/* Accumulates the bytes of an output before its first whole page and after its last. Both region
 * offsets and addresses count from a page. */
static void buffers_edges(const struct hoop_announce *announce, uint64_t bytes,
                          struct hoop_reach *reach)
{
    const uint64_t start = announce->out_offset, end = start + bytes, page = hoop_page_bytes();
    const uint64_t head = (page - start % page) % page;
    const uint64_t tail = end % page;
    reach->head_bytes = head > reach->head_bytes ? head : reach->head_bytes;
    reach->tail_bytes = tail > reach->tail_bytes ? tail : reach->tail_bytes;
}

bool hoop_buffers_outs_are_reached(const struct hoop_buffers *buffers, const struct hoop_plan *plan)
{
    uint32_t rank = 0;
    while (rank < plan->n && (buffers->one_process || hoop_out_count(plan, rank) == 0 ||
                              hoop_buffers_announced(buffers, rank)->out_region != 0)) {
        rank++;
    }
    return rank == plan->n;
}

/*
 * If all are launched, the root acts on one device, and each rank on several: the kernels of
 * launched ranks serve only that. If some wait the first of these acts for all, on several devices,
 * too: it can open fresh memory, and report if it cannot, which launched ranks can't.
 */
static void buffers_find_actor(const struct hoop_buffers *buffers, const struct hoop_plan *plan,
                               bool one_device, struct hoop_reach *reach)
{
    const uint32_t usual = one_device ? HOOP_LAUNCHED_ONE : HOOP_LAUNCHED_EACH;
    uint32_t waits = plan->n;
    bool fit = true;
    for (uint32_t rank = plan->n; rank-- > 0;) {
        const uint32_t launched = hoop_buffers_announced(buffers, rank)->launched;
        reach->launched |= launched != HOOP_LAUNCHED_NOT;
        waits = launched != HOOP_LAUNCHED_NOT ? waits : rank;
        fit &= launched == HOOP_LAUNCHED_NOT || launched == usual;
    }
    const bool some_wait = waits < plan->n;
    reach->one_acts = (one_device || (reach->launched && some_wait)) &&
                      hoop_buffers_outs_are_reached(buffers, plan);
    reach->actor = reach->launched && some_wait ? waits : plan->root;
    const bool can = some_wait ? reach->one_acts : fit && reach->one_acts == one_device;
    if (reach->launched && !can) {
        reach->place = HOOP_REACH_MIXED;
    }
}

/*
 * Lets later operations on devices wait instead of being launched: one, so that launched ranks try
 * the fresh memory of others; or several, if launched ones had to go through the host, or to let
 * one rank work for all devices. All ranks count alike, as they see the same announcements, so that
 * they are launched together again.
 */
static void buffers_count_waits(struct hoop_buffers *buffers, const struct hoop_reach *reach,
                                bool one_device)
{
    const uint32_t before = atomic_load(&buffers->waits);
    if (buffers->trial != HOOP_TRIAL_NONE) {
        return; /* the same operation, announced again */
    }
    if (reach->launched) {
        const bool parted = reach->place == HOOP_REACH_MIXED || (reach->one_acts && !one_device);
        const uint32_t least = parted ? HOOP_BUFFERS_PARTED_WAITS : hoop_buffers_are_fresh(buffers);
        atomic_store(&buffers->waits, before > least ? before : least);
    } else if (before > 0 && reach->place == HOOP_REACH_DEVICE) {
        atomic_store(&buffers->waits, before - 1);
    }
}

struct hoop_reach hoop_buffers_reach(struct hoop_buffers *buffers, const struct hoop_plan *plan)
{
    const struct hoop_announce *first = hoop_buffers_announced(buffers, 0);
    struct hoop_reach reach = {.mapped = true, .choice = first->choice, .grant = first->grant};
    bool one_device = false;
    reach.place = buffers_meeting_place(buffers, &one_device);
    buffers_find_actor(buffers, plan, one_device, &reach);
    buffers_count_waits(buffers, &reach, one_device);
    for (uint32_t rank = 0; rank < plan->n; rank++) {
        const struct hoop_announce *announce = hoop_buffers_announced(buffers, rank);
        const bool reads = hoop_buffers_reads(plan, rank), writes = hoop_buffers_writes(plan, rank);
        reach.mapped &= buffers->one_process || ((!reads || announce->in_region != 0) &&
                                                 (!writes || announce->out_region != 0));
        reach.unreadable |= (reads && announce->in_region == 0 &&
                             announce->in_generation == HOOP_BUFFERS_UNREADABLE) ||
                            (writes && announce->out_region == 0 &&
                             announce->out_generation == HOOP_BUFFERS_UNREADABLE);
        if (writes) {
            buffers_edges(announce, hoop_out_count(plan, rank) * plan->type_bytes, &reach);
        }
    }
    reach.gives = reach.mapped && reach.place == HOOP_REACH_HOST &&
                  plan->collective == HOOP_COLL_GATHER &&
                  hoop_buffers_outs_are_reached(buffers, plan);
    if (reach.gives) {
        buffers_edges(hoop_buffers_announced(buffers, plan->root),
                      hoop_out_count(plan, plan->root) * plan->type_bytes, &reach);
    }
    /* Only direct runs on a device. A rank that announces a device there and no region is wrong. */
    if (reach.place == HOOP_REACH_DEVICE && !reach.mapped) {
        reach.place = HOOP_REACH_MIXED;
    }
    return reach;
}
