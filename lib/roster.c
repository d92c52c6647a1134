/*
 * The roster of a member: takes what the rendezvous sends and makes it usable. The ranks of a
 * process share one mapping of the segment, and the wake descriptors, of which they would else
 * hold n x n.
 */
#include "life.h"
#include "member.h"
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROSTER_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static struct hoop_commons *roster_commons;

/* ---- What the ranks of one process share -------------------------------------------------- */

static struct hoop_commons *commons_ref(uint64_t comm_id, uint32_t n)
{
    for (struct hoop_commons *commons = roster_commons; commons != NULL; commons = commons->next) {
        if (commons->comm_id == comm_id && commons->n == n) {
            commons->refs++;
            return commons;
        }
    }
    struct hoop_commons *commons = calloc(1, sizeof(*commons) + n * sizeof(int));
    if (commons == NULL) {
        return NULL;
    }
    commons->comm_id = comm_id;
    commons->refs = 1;
    commons->n = n;
    for (uint32_t rank = 0; rank < n; rank++) {
        commons->fds[rank] = -1;
    }
    commons->next = roster_commons;
    roster_commons = commons;
    return commons;
}

static void commons_unref(struct hoop_commons *commons)
{
    if (commons == NULL || --commons->refs > 0) {
        return;
    }
    struct hoop_commons **at = &roster_commons;
    while (*at != commons) {
        at = &(*at)->next;
    }
    *at = commons->next;
    for (uint32_t rank = 0; rank < commons->n; rank++) {
        if (commons->fds[rank] >= 0) {
            close(commons->fds[rank]);
        }
    }
    if (commons->segment != NULL) {
        munmap(commons->segment, commons->segment_bytes);
    }
    free(commons);
}

/* ---- The segment -------------------------------------------------------------------------- */

static hoop_result_t roster_map(struct hoop_roster *roster, struct hoop_commons *commons, int fd)
{
    struct stat status;
    if (commons->segment != NULL && commons->segment_bytes == roster->segment_bytes) {
        roster->segment = commons->segment;
        return HOOP_OK;
    }
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & ROSTER_SEALS) != ROSTER_SEALS || fstat(fd, &status) != 0 ||
        (uint64_t)status.st_size != roster->segment_bytes) {
        return hoop_error(HOOP_REMOTE_ERROR,
                          "the rendezvous sent no sealed shared memory of %llu bytes",
                          (unsigned long long)roster->segment_bytes);
    }
    void *at = mmap(NULL, roster->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err), "cannot map %llu bytes of shared memory: %s",
                          (unsigned long long)roster->segment_bytes, hoop_errno_name(err));
    }
    if (madvise(at, roster->segment_bytes, MADV_DONTFORK) != 0) {
        const int err = errno;
        munmap(at, roster->segment_bytes);
        return hoop_error(hoop_from_errno(err), "MADV_DONTFORK: %s", hoop_errno_name(err));
    }
    roster->segment = commons->segment = at;
    commons->segment_bytes = roster->segment_bytes;
    return HOOP_OK;
}

/* ---- Taking it in ------------------------------------------------------------------------- */

hoop_result_t hoop_roster_begin(struct hoop_member *member, const struct hoop_frame_roster *frame,
                                int *fds)
{
    struct hoop_roster *roster = &member->roster;
    if (frame->n != member->join.n || frame->segment_bytes != member->join.segment_bytes ||
        roster->peers != NULL) {
        return hoop_error(HOOP_REMOTE_ERROR, "the rendezvous sent a roster that does not fit");
    }
    roster->comm_id = frame->comm_id;
    roster->epoch = frame->epoch;
    roster->n = frame->n;
    roster->need_fence = frame->need_fence != 0;
    roster->crowded = frame->crowded != 0;
    roster->segment_bytes = frame->segment_bytes;
    member->server = frame->server;
    roster->machines = frame->machines;
    member->address = frame->address;
    member->beat_ms = hoop_life_beat_ms(frame->dead_after_ms);
    roster->peers = calloc(roster->n, sizeof(*roster->peers));
    member->fellows = calloc(roster->n, sizeof(*member->fellows));
    member->neighbours = calloc(roster->n, sizeof(*member->neighbours));
    member->commons = commons_ref(roster->comm_id, roster->n);
    if (roster->peers == NULL || member->fellows == NULL || member->neighbours == NULL ||
        member->commons == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u ranks", roster->n);
    }
    const hoop_result_t result = roster_map(roster, member->commons, fds[0]);
    close(fds[0]);
    fds[0] = -1;
    return result;
}

static struct hoop_neighbour *roster_neighbour(struct hoop_member *member,
                                               const struct hoop_frame_entry *entry)
{
    for (uint32_t i = 0; i < member->neighbour_count; i++) {
        if (member->neighbours[i].process == entry->process) {
            return &member->neighbours[i];
        }
    }
    struct hoop_neighbour *neighbour = &member->neighbours[member->neighbour_count++];
    neighbour->member = member;
    neighbour->process = entry->process;
    neighbour->start_time = entry->start_time;
    neighbour->pid_fd = -1;
    return neighbour;
}

/* fd: the wake descriptor; NULL: the rank is on another machine. */
static void roster_take(struct hoop_member *member, uint32_t rank,
                        const struct hoop_frame_entry *entry, int *fd)
{
    struct hoop_peer *peer = &member->roster.peers[rank];
    struct hoop_fellow *fellow = &member->fellows[rank];
    peer->process = entry->process;
    peer->machine = entry->machine;
    peer->same_machine = fd != NULL;
    peer->same_process = peer->same_machine && entry->process == hoop_process_id();
    peer->pid = entry->pid;
    peer->wake_fd = -1;
    _Static_assert(sizeof(peer->host) == sizeof(entry->host), "host names fit");
    memcpy(peer->host, entry->host, sizeof(peer->host));
    memcpy(fellow->listener, entry->listener, sizeof(fellow->listener));
    if (fd == NULL) {
        return;
    }
    member->roster.here++;
    if (!peer->same_process) {
        fellow->neighbour = roster_neighbour(member, entry);
    }
    if (member->commons->fds[rank] < 0) {
        member->commons->fds[rank] = *fd;
        *fd = -1;
    }
    peer->wake_fd = member->commons->fds[rank];
}

/* Those on my machine, and only they, must be those whose descriptors came. */
static hoop_result_t roster_check(const struct hoop_member *member)
{
    const struct hoop_peer *me = &member->roster.peers[member->join.rank];
    bool fits = me->same_process;
    for (uint32_t rank = 0; fits && rank < member->roster.n; rank++) {
        const struct hoop_peer *peer = &member->roster.peers[rank];
        fits = peer->same_machine == (peer->machine == me->machine);
    }
    return fits ? HOOP_OK
                : hoop_error(HOOP_REMOTE_ERROR, "the rendezvous takes me for another process");
}

hoop_result_t hoop_roster_add(struct hoop_member *member, const struct hoop_frame_roster_part *part,
                              int *fds)
{
    uint32_t next_fd = 0;
    if (member->roster.peers == NULL || part->first != member->told ||
        part->count > member->roster.n - member->told) {
        return hoop_error(HOOP_REMOTE_ERROR, "the rendezvous sent a roster that does not fit");
    }
    for (uint32_t i = 0; i < part->count; i++) {
        const struct hoop_frame_entry *entry = &part->entries[i];
        if (entry->process == hoop_process_id() && entry->pid != (int32_t)getpid()) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "rank %u is pid %d, rank %u is pid %d, and one was forked from the "
                              "other, or both from a third, after it had used hoop",
                              member->join.rank, (int)getpid(), part->first + i, entry->pid);
        }
        if (entry->machine >= member->roster.machines) {
            return hoop_error(HOOP_REMOTE_ERROR, "the rendezvous sent a roster that does not fit");
        }
        roster_take(member, part->first + i, entry, entry->has_fd != 0 ? &fds[next_fd++] : NULL);
    }
    member->told += part->count;
    return hoop_roster_is_complete(member) ? roster_check(member) : HOOP_OK;
}

bool hoop_roster_is_complete(const struct hoop_member *member)
{
    return member->roster.peers != NULL && member->told == member->roster.n;
}

void hoop_roster_finish(struct hoop_member *member)
{
    struct hoop_roster *roster = &member->roster;
    commons_unref(member->commons);
    free(member->neighbours);
    free(member->fellows);
    free(roster->peers);
    member->commons = NULL;
    member->neighbours = NULL;
    member->neighbour_count = 0;
    member->fellows = NULL;
    member->told = 0;
    *roster = (struct hoop_roster){.n = 0};
}

uint64_t hoop_process_start_time(int pid)
{
    char path[48];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    const ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0) {
        return 0;
    }
    text[got] = 0;
    /* the name, field 2, may hold anything: count from its closing parenthesis */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}
