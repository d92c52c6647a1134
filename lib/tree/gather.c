/* Which ranks have joined, and whether they agree; see gather.h. */
#include "tree/gather.h"
#include "base/clock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATHERING_NAMED_RANKS 8u /* in "ranks 1, 2, ... and 3 more" */
#define GATHERING_NAMED_HOSTS 3u

void hoop_gather_finish(struct hoop_gather *gather)
{
    for (uint32_t rank = 0; rank < gather->n; rank++) {
        free(gather->joins[rank]);
    }
    free(gather->joins);
    memset(gather, 0, sizeof(*gather));
}

/* ---- Taking in ---------------------------------------------------------------------------- */

static bool gather_differs(const struct hoop_frame_join *a, const struct hoop_frame_join *b,
                           struct hoop_difference *ret)
{
    if (hoop_agreement_differs(&a->agreed, &b->agreed, ret)) {
        return true;
    }
    if (a->segment_bytes == b->segment_bytes) {
        return false;
    }
    ret->name = "the size of the shared memory";
    (void)snprintf(ret->a, sizeof(ret->a), "%llu", (unsigned long long)a->segment_bytes);
    (void)snprintf(ret->b, sizeof(ret->b), "%llu", (unsigned long long)b->segment_bytes);
    return true;
}

static hoop_result_t gather_compare(const struct hoop_gather *gather,
                                    const struct hoop_frame_join *mine,
                                    struct hoop_failure *failure)
{
    const struct hoop_frame_join *other = NULL;
    struct hoop_difference difference;
    for (uint32_t rank = 0; rank < gather->n && other == NULL; rank++) {
        other = gather->joins[rank];
    }
    if (other == NULL) {
        return HOOP_OK;
    }
    if (mine->n != gather->n) {
        return hoop_failure_set(
            failure, HOOP_MISMATCH, (int)mine->rank,
            "rank %u (pid %d, host %s) joined with %u ranks, rank %u (pid %d, host %s) with %u",
            mine->rank, mine->who.pid, mine->who.host, mine->n, other->rank, other->who.pid,
            other->who.host, other->n);
    }
    const struct hoop_frame_join *same = gather->joins[mine->rank];
    if (same != NULL) {
        return hoop_failure_set(
            failure, HOOP_INVALID_USAGE, (int)mine->rank,
            "rank %u joined twice: as pid %d on host %s and as pid %d on host %s", mine->rank,
            same->who.pid, same->who.host, mine->who.pid, mine->who.host);
    }
    if (gather_differs(mine, other, &difference)) {
        return hoop_failure_set(
            failure, HOOP_MISMATCH, (int)mine->rank,
            "%s must be the same on all ranks: it is %s on rank %u (pid %d, host %s) and %s on "
            "rank %u (pid %d, host %s)",
            difference.name, difference.a, mine->rank, mine->who.pid, mine->who.host, difference.b,
            other->rank, other->who.pid, other->who.host);
    }
    return HOOP_OK;
}

hoop_result_t hoop_gather_add(struct hoop_gather *gather, const struct hoop_frame_join *join,
                              struct hoop_failure *failure)
{
    assert(join->n > 0 && join->rank < join->n);
    const hoop_result_t result = gather_compare(gather, join, failure);
    if (result != HOOP_OK) {
        return result;
    }
    struct hoop_frame_join *copy = malloc(sizeof(*copy));
    if (copy != NULL && gather->joins == NULL) {
        gather->joins = calloc(join->n, sizeof(struct hoop_frame_join *));
        gather->n = gather->joins != NULL ? join->n : 0;
    }
    if (copy == NULL || gather->joins == NULL) {
        free(copy);
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1,
                                "no memory for the joins of %u "
                                "ranks",
                                join->n);
    }
    *copy = *join;
    gather->joins[join->rank] = copy;
    gather->arrived++;
    const uint64_t deadline = hoop_now_ns() + join->left_ms * HOOP_NS_PER_MS;
    if (gather->arrived == 1 || deadline < gather->deadline_ns) {
        gather->deadline_ns = deadline;
        gather->timeout_ms = join->timeout_ms;
    }
    return HOOP_OK;
}

bool hoop_gather_is_complete(const struct hoop_gather *gather)
{
    return gather->n > 0 && gather->arrived == gather->n;
}

/* ---- In words ----------------------------------------------------------------------------- */

void hoop_gather_list(uint32_t n, bool (*is)(const void *arg, uint32_t rank), const void *arg,
                      char *ret_text, size_t bytes)
{
    uint32_t count = 0;
    uint32_t named = 0;
    size_t at = 0;
    for (uint32_t rank = 0; rank < n; rank++) {
        count += is(arg, rank) ? 1 : 0;
    }
    hoop_text_append(ret_text, bytes, &at, count == 1 ? "rank" : "ranks");
    for (uint32_t rank = 0; rank < n && named < GATHERING_NAMED_RANKS; rank++) {
        if (is(arg, rank)) {
            hoop_text_append(ret_text, bytes, &at, "%s %u", named == 0 ? "" : ",", rank);
            named++;
        }
    }
    if (count > named) {
        hoop_text_append(ret_text, bytes, &at, " and %u more", count - named);
    }
}

static bool gather_is_absent(const void *arg, uint32_t rank)
{
    const struct hoop_gather *gather = arg;
    return gather->joins[rank] == NULL;
}

/* Is this the lowest rank that joined from its host? */
static bool gather_is_first(const struct hoop_gather *gather, uint32_t rank)
{
    for (uint32_t before = 0; before < rank; before++) {
        if (gather->joins[before] != NULL &&
            strcmp(gather->joins[before]->who.host, gather->joins[rank]->who.host) == 0) {
            return false;
        }
    }
    return true;
}

static void gather_list_hosts(const struct hoop_gather *gather, char *ret_text, size_t bytes)
{
    const struct hoop_frame_join *hosts[GATHERING_NAMED_HOSTS];
    uint32_t count = 0;
    size_t at = 0;
    for (uint32_t rank = 0; rank < gather->n; rank++) {
        if (gather->joins[rank] != NULL && gather_is_first(gather, rank)) {
            if (count < GATHERING_NAMED_HOSTS) {
                hosts[count] = gather->joins[rank];
            }
            count++;
        }
    }
    hoop_text_append(ret_text, bytes, &at, count == 1 ? "host" : "hosts");
    for (uint32_t i = 0; i < count && i < GATHERING_NAMED_HOSTS; i++) {
        hoop_text_append(ret_text, bytes, &at, "%s %s", i == 0 ? "" : ",", hosts[i]->who.host);
    }
    if (count > GATHERING_NAMED_HOSTS) {
        hoop_text_append(ret_text, bytes, &at, " and %u more", count - GATHERING_NAMED_HOSTS);
    }
}

void hoop_gather_describe_missing(const struct hoop_gather *gather, char *ret_text, size_t bytes)
{
    assert(gather->arrived > 0);
    char ranks[128];
    char hosts[256];
    hoop_gather_list(gather->n, gather_is_absent, gather, ranks, sizeof(ranks));
    gather_list_hosts(gather, hosts, sizeof(hosts));
    size_t at = 0;
    hoop_text_append(ret_text, bytes, &at,
                     "%s of %u did not arrive within %llu ms, the others are "
                     "on %s",
                     ranks, gather->n, (unsigned long long)gather->timeout_ms, hosts);
}

/* ---- What all are told -------------------------------------------------------------------- */

hoop_result_t hoop_gather_roster(const struct hoop_gather *gather, uint32_t machines,
                                 struct hoop_frame_roster *ret)
{
    assert(hoop_gather_is_complete(gather));
    union hoop_frame frame;
    struct hoop_frame_roster *roster = &frame.roster;
    hoop_frame_init(&frame, HOOP_FRAME_ROSTER);
    const hoop_result_t result = hoop_random(&roster->comm_id, sizeof(roster->comm_id));
    if (result != HOOP_OK) {
        return result;
    }
    roster->comm_id |= roster->comm_id == 0 ? 1 : 0;
    roster->n = gather->n;
    roster->machines = machines;
    roster->segment_bytes = gather->joins[0]->segment_bytes;
    roster->dead_after_ms = HOOP_FRAME_MAX_MS;
    for (uint32_t rank = 0; rank < gather->n; rank++) {
        const struct hoop_frame_join *join = gather->joins[rank];
        roster->need_fence |= join->no_membarrier;
        roster->no_rdma |= join->agreed.no_rdma;
        if (join->dead_after_ms < roster->dead_after_ms) {
            roster->dead_after_ms = join->dead_after_ms;
        }
    }
    *ret = *roster;
    return HOOP_OK;
}
