/* Buffers on devices that are fresh: whether all can open them (see buffers.h). */
#include "plan/buffers_inside.h"

#include "memory/ipc.h"
#include "memory/region.h"

static uint32_t buffers_generation(const struct hoop_announce *announce, bool out)
{
    return out ? announce->out_generation : announce->in_generation;
}

/* Of an input that lies where the output does, the output counts. */
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

/* One buffer of a peer, all of what was announced. */
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
        if (buffers_mapping(buffers, i / 2, out)->asked) { /* which nobody needs any more */
            (void)buffers->maps.answered(buffers->maps.arg, i / 2,
                                         out ? a->out_region : a->in_region,
                                         buffers_generation(a, out) & ~HOOP_BUFFERS_FRESH, NULL);
        }
    }
    hoop_buffers_release(buffers);
    buffers->trial = refused ? HOOP_TRIAL_REFUSED : HOOP_TRIAL_OPENED;
}

/* All of what others have shown of this operation, as it was announced after the trial. */
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

void hoop_buffers_end_trial(struct hoop_buffers *buffers, bool all)
{
    for (uint32_t i = 0; i < 2 && all; i++) {
        buffers->confirmed[buffers->shown[i] % HOOP_BUFFERS_CONFIRMED] = buffers->shown[i];
    }
    if (!all) {
        buffers_forget_shown(buffers);
        buffers->shows = false;
    }
    buffers->trial = HOOP_TRIAL_NONE;
}
