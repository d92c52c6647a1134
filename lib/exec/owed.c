/* Announcements owed to the previous rank (see owed.h). */
#include "exec/owed.h"

#include <assert.h>
#include <stddef.h>

/* Touches nothing but *owed: a link that is being destroyed calls it, too. */
static void owed_done(struct hoop_xfer *xfer, hoop_result_t result)
{
    struct hoop_owed *owed =
        ((struct hoop_owed_entry *)(void *)((char *)xfer - offsetof(struct hoop_owed_entry, xfer)))
            ->owed;
    owed->first = (owed->first + 1) % HOOP_OWED_MOST;
    owed->count--;
    owed->failed = owed->failed || result != HOOP_OK;
}

static uint32_t owed_most(const struct hoop_link *link)
{
    const uint32_t holds = hoop_link_holds(link);
    return holds < HOOP_OWED_MOST ? holds : HOOP_OWED_MOST;
}

/* Once too many are owed, waits for half of them, so that not every operation has to look. */
static bool owed_has_room(struct hoop_owed *owed, uint32_t most)
{
    owed->waits = owed->count >= (owed->waits ? most / 2 + 1 : most);
    return !owed->waits;
}

hoop_result_t hoop_owed_post(struct hoop_owed *owed, struct hoop_link *link,
                             const struct hoop_xfer *xfer)
{
    static char nothing; /* NULL would ask the link for its own memory */
    const uint32_t most = owed_most(link);
    assert(xfer->bytes == 0 && most > 0 && (owed->link == NULL || owed->link == link));
    owed->link = link;
    if (!owed_has_room(owed, most)) {
        (void)hoop_owed_progress(owed);
        if (!owed_has_room(owed, most)) {
            return HOOP_AGAIN;
        }
    }
    struct hoop_owed_entry *entry = &owed->entries[(owed->first + owed->count) % HOOP_OWED_MOST];
    *entry = (struct hoop_owed_entry){.owed = owed, .xfer = *xfer};
    entry->xfer.data = &nothing;
    entry->xfer.done = owed_done;
    const hoop_result_t result = hoop_link_recv(link, &entry->xfer);
    owed->count += result == HOOP_OK;
    return result;
}

bool hoop_owed_progress(struct hoop_owed *owed)
{
    return owed->count > 0 && hoop_link_progress(owed->link);
}

hoop_result_t hoop_owed_check(const struct hoop_owed *owed, struct hoop_failure *failure)
{
    if (!owed->failed) {
        return owed->count > 0 ? HOOP_AGAIN : HOOP_OK;
    }
    const struct hoop_link_params *params = &owed->link->params;
    return hoop_link_blame(owed->link, false, params->me, params->peer, HOOP_INTERNAL_ERROR,
                           " (announcement)", failure);
}
