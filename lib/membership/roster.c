/*
 * The roster of a member: takes what the leader sends and makes it usable. The ranks of a process
 * share one mapping of the segment, and the wake descriptors, of which each would otherwise hold n.
 */
#include "membership/membership_inside.h"
#include "memory/memfd.h"
#include "runtime/process.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct hoop_list_node roster_shared = HOOP_LIST_EMPTY(roster_shared);

/* ---- What the ranks of one process share -------------------------------------------------- */

static struct hoop_shared *shared_ref(uint64_t comm_id, uint32_t n)
{
    HOOP_LIST_EACH(struct hoop_shared, shared, &roster_shared, node) {
        if (shared->comm_id == comm_id && shared->n == n) {
            shared->refs++;
            return shared;
        }
    }
    struct hoop_shared *shared = calloc(1, sizeof(*shared) + n * sizeof(int));
    if (shared == NULL) {
        return NULL;
    }
    shared->comm_id = comm_id;
    shared->refs = 1;
    shared->n = n;
    for (uint32_t rank = 0; rank < n; rank++) {
        shared->fds[rank] = -1;
    }
    hoop_list_push_back(&roster_shared, &shared->node);
    return shared;
}

static void shared_unref(struct hoop_shared *shared)
{
    if (shared == NULL || --shared->refs > 0) {
        return;
    }
    hoop_list_remove(&shared->node);
    for (uint32_t rank = 0; rank < shared->n; rank++) {
        if (shared->fds[rank] >= 0) {
            close(shared->fds[rank]);
        }
    }
    if (shared->segment != NULL) {
        munmap(shared->segment, shared->segment_bytes);
    }
    free(shared);
}

/* ---- The segment -------------------------------------------------------------------------- */

static hoop_result_t roster_map(struct hoop_roster *roster, struct hoop_shared *shared, int fd)
{
    if (shared->segment != NULL && shared->segment_bytes == roster->segment_bytes) {
        roster->segment = shared->segment;
        return HOOP_OK;
    }
    void *at = NULL;
    const hoop_result_t result = hoop_memfd_map(fd, roster->segment_bytes, &at);
    if (result != HOOP_OK) {
        return result;
    }
    if (madvise(at, roster->segment_bytes, MADV_DONTFORK) != 0) {
        const int err = errno;
        munmap(at, roster->segment_bytes);
        return hoop_errno_error(err, "MADV_DONTFORK");
    }
    roster->segment = shared->segment = at;
    shared->segment_bytes = roster->segment_bytes;
    return HOOP_OK;
}

/* ---- Taking it in ------------------------------------------------------------------------- */

hoop_result_t hoop_roster_begin(struct hoop_member *member, const struct hoop_frame_roster *frame,
                                int *fds)
{
    struct hoop_roster *roster = &member->roster;
    if (frame->n != member->join.n || frame->segment_bytes != member->join.segment_bytes ||
        roster->peers != NULL) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "the leader sent a roster that does not match this join");
    }
    roster->comm_id = frame->comm_id;
    roster->n = frame->n;
    roster->need_fence = frame->need_fence != 0;
    roster->no_rdma = frame->no_rdma != 0;
    roster->segment_bytes = frame->segment_bytes;
    member->server = frame->server;
    roster->machines = frame->machines;
    if (roster->machines == 1) { /* all ranks turned out to be on this machine */
        memcpy(member->secret.bytes, frame->secret, sizeof(frame->secret));
        member->address = (struct hoop_address){.family = 0};
        hoop_data_connection_finish(member);
    }
    roster->dead_after_ms = frame->dead_after_ms;
    roster->peers = calloc(roster->n, sizeof(*roster->peers));
    member->others = calloc(roster->n, sizeof(*member->others));
    member->shared = shared_ref(roster->comm_id, roster->n);
    if (roster->peers == NULL || member->others == NULL || member->shared == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u ranks", roster->n);
    }
    const hoop_result_t result = roster_map(roster, member->shared, fds[0]);
    close(fds[0]);
    fds[0] = -1;
    return result;
}

/* fd is the wake descriptor; NULL if the rank is on another machine. */
static void roster_take(struct hoop_member *member, uint32_t rank,
                        const struct hoop_frame_entry *entry, int *fd)
{
    struct hoop_peer *peer = &member->roster.peers[rank];
    peer->process = entry->process;
    peer->process_at = entry->process_at;
    peer->machine = entry->machine;
    peer->same_machine = fd != NULL;
    peer->same_process = peer->same_machine && entry->process == hoop_process_id();
    peer->pid = entry->pid;
    peer->wake_fd = -1;
    _Static_assert(sizeof(peer->host) == sizeof(entry->host), "host names fit");
    memcpy(peer->host, entry->host, sizeof(peer->host));
    member->others[rank].entry = *entry;
    if (fd == NULL) {
        return;
    }
    member->roster.here++;
    if (rank == member->join.rank) {
        peer->wake_fd = member->join.wake_fd; /* its own descriptor, to save a duplicate per comm */
        return;
    }
    if (member->shared->fds[rank] < 0) {
        member->shared->fds[rank] = *fd;
        *fd = -1;
    }
    peer->wake_fd = member->shared->fds[rank];
}

/* Exactly this machine's ranks must have come with descriptors; others must have addresses. */
static hoop_result_t roster_check(const struct hoop_member *member)
{
    const struct hoop_peer *me = &member->roster.peers[member->join.rank];
    bool fits = me->same_process;
    for (uint32_t rank = 0; fits && rank < member->roster.n; rank++) {
        const struct hoop_peer *peer = &member->roster.peers[rank];
        const bool reachable = member->others[rank].entry.address.family != 0;
        fits = peer->machine < member->roster.machines &&
               (peer->machine == me->machine) == peer->same_machine &&
               (peer->same_machine || reachable);
    }
    return fits ? HOOP_OK
                : hoop_error(HOOP_REMOTE_ERROR,
                             "the leader's roster has another process in the place of this rank");
}

/* The CPUs of a machine's ranks, and of ranks elsewhere that may use the same CPUs: containers of
 * one host count as machines. */
static uint32_t roster_gather_cpus(const struct hoop_member *member, uint32_t machine,
                                   struct hoop_cpus *ret)
{
    const struct hoop_roster *roster = &member->roster;
    uint64_t set = 0; /* of its lowest rank */
    uint32_t n = 0;
    for (uint32_t rank = roster->n; rank-- > 0;) {
        set = roster->peers[rank].machine == machine ? member->others[rank].entry.cpus.set : set;
    }
    for (uint32_t rank = 0; rank < roster->n; rank++) {
        const struct hoop_cpus *cpus = &member->others[rank].entry.cpus;
        if (roster->peers[rank].machine == machine || (set != 0 && cpus->set == set)) {
            ret[n++] = *cpus;
        }
    }
    return n;
}

/* Finds out on which machines ranks outnumber CPUs. */
static hoop_result_t roster_count_cpus(struct hoop_member *member)
{
    struct hoop_roster *roster = &member->roster;
    struct hoop_cpus *cpus = calloc(roster->n, sizeof(*cpus));
    if (cpus == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u ranks", roster->n);
    }
    for (uint32_t machine = 0; machine < roster->machines; machine++) {
        const uint32_t n = roster_gather_cpus(member, machine, cpus);
        const uint32_t shared_by = n > 0 ? hoop_cpus_shared_by(cpus, n) : 0;
        if (roster->oversubscribed < shared_by) {
            roster->oversubscribed = shared_by;
        }
        roster->crowded |= shared_by > 0 && roster->peers[member->join.rank].machine == machine;
    }
    free(cpus);
    return HOOP_OK;
}

hoop_result_t hoop_roster_add(struct hoop_member *member, const struct hoop_frame_roster_part *part,
                              int *fds)
{
    uint32_t next_fd = 0;
    if (member->roster.peers == NULL || part->first != member->told ||
        part->count > member->roster.n - member->told) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "the leader sent a roster that does not match this join");
    }
    for (uint32_t i = 0; i < part->count; i++) {
        const struct hoop_frame_entry *entry = &part->entries[i];
        if (entry->process == hoop_process_id() && entry->pid != (int32_t)getpid()) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "rank %u is pid %d, rank %u is pid %d, and one was forked from the "
                              "other, or both from a third, after it had used hoop",
                              member->join.rank, (int)getpid(), part->first + i, entry->pid);
        }
        roster_take(member, part->first + i, entry, entry->has_fd != 0 ? &fds[next_fd++] : NULL);
    }
    member->told += part->count;
    if (!hoop_roster_is_complete(member)) {
        return HOOP_OK;
    }
    const hoop_result_t result = roster_check(member);
    return result == HOOP_OK ? roster_count_cpus(member) : result;
}

bool hoop_roster_is_complete(const struct hoop_member *member)
{
    return member->roster.peers != NULL && member->told == member->roster.n;
}

void hoop_roster_finish(struct hoop_member *member)
{
    struct hoop_roster *roster = &member->roster;
    shared_unref(member->shared);
    free(member->others);
    free(roster->peers);
    member->shared = NULL;
    member->others = NULL;
    member->told = 0;
    *roster = (struct hoop_roster){.n = 0};
}

void hoop_peer_describe(const struct hoop_peer *peer, uint32_t rank, char *ret_text, size_t bytes)
{
    char pid[24] = "";
    if (peer->pid != 0) {
        (void)snprintf(pid, sizeof(pid), "pid %d, ", peer->pid);
    }
    (void)snprintf(ret_text, bytes, "rank %u (%shost %s)", rank, pid, peer->host);
}

void hoop_member_describe(const struct hoop_member *member, uint32_t rank, char *ret_text,
                          size_t bytes)
{
    if (!hoop_roster_is_complete(member)) {
        (void)snprintf(ret_text, bytes, "rank %u", rank);
        return;
    }
    hoop_peer_describe(&member->roster.peers[rank], rank, ret_text, bytes);
}

const struct hoop_roster *hoop_member_roster(const struct hoop_member *member)
{
    return &member->roster;
}
