/*
 * The roster on its way down, READY on its way up, and GO; see leader_inside.h.
 *
 * The roster is made where the joins of all ranks are, and goes along the tree part by part. The
 * ranks of a machine get it once it is complete there, with the machine's segment and the wake
 * descriptors of its ranks.
 */
#include "base/log.h"
#include "memory/memfd.h"
#include "runtime/process.h"
#include "tree/leader_inside.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HANDOUT_IN_FLIGHT_MOST 8192u /* limits the kernel memory that descriptors in flight use */

/* ---- Made here ---------------------------------------------------------------------------- */

static bool handout_make_room(struct hoop_leader *leader)
{
    leader->entries = calloc(leader->n, sizeof(*leader->entries));
    if (leader->entries == NULL) {
        hoop_leader_fail_by(leader, hoop_error(HOOP_OUT_OF_MEMORY,
                                               "no memory for a roster of %u ranks", leader->n));
    }
    return leader->entries != NULL;
}

bool hoop_handout_make(struct hoop_leader *leader)
{
    const uint32_t machines = leader->is_root ? leader->machines : 1;
    const hoop_result_t result = hoop_gather_roster(&leader->gather, machines, &leader->roster);
    if (result != HOOP_OK) {
        hoop_leader_fail_by(leader, result);
        return false;
    }
    if (!handout_make_room(leader)) {
        return false;
    }
    for (uint32_t rank = 0; rank < leader->n; rank++) {
        leader->entries[rank] = leader->gather.joins[rank]->who;
        leader->entries[rank].machine = (uint16_t)(leader->is_root ? leader->via[rank]->number : 0);
    }
    leader->known = leader->n;
    leader->state = HOOP_LEADER_HANDING;
    return true;
}

/* ---- Handed out --------------------------------------------------------------------------- */

/* Adds the wake descriptors of this machine's ranks to a part for a rank. */
static uint32_t handout_add_fds(const struct hoop_leader *leader,
                                struct hoop_frame_roster_part *part, int *ret_fds)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        const struct hoop_edge *rank = leader->via[part->first + i];
        if (rank != NULL) {
            part->entries[i].has_fd = 1;
            ret_fds[count++] = rank->wake_fd;
        }
    }
    return count;
}

static void handout_send_parts(const struct hoop_leader *leader, const struct hoop_edge *edge)
{
    union hoop_frame frame;
    int fds[HOOP_MAX_FDS];
    for (uint32_t first = 0; first < leader->known; first += HOOP_MAX_FDS) {
        const uint32_t left = leader->known - first;
        const uint32_t count = left < HOOP_MAX_FDS ? left : HOOP_MAX_FDS;
        hoop_frame_init(&frame, HOOP_FRAME_ROSTER_PART);
        hoop_frame_set_count(&frame, first, count);
        memcpy(frame.part.entries, &leader->entries[first], count * sizeof(leader->entries[0]));
        const uint32_t fd_count =
            edge->kind == HOOP_EDGE_RANK ? handout_add_fds(leader, &frame.part, fds) : 0;
        hoop_connection_send(edge->connection, &frame.header, fds, fd_count);
    }
}

void hoop_handout_send(const struct hoop_leader *leader, const struct hoop_edge *edge)
{
    union hoop_frame frame;
    if (leader->roster.n == 0 || !hoop_edge_is_open(edge)) {
        return;
    }
    frame.roster = leader->roster;
    if (edge->kind == HOOP_EDGE_RANK) {
        frame.roster.server = hoop_process_id();
        hoop_connection_send(edge->connection, &frame.header, &leader->segment, 1);
    } else {
        hoop_edge_send(edge, &frame);
    }
    handout_send_parts(leader, edge);
    hoop_secret_wipe(&frame, sizeof(frame.roster));
}

/*
 * How many ranks may hold the roster unread at once. The kernel limits a user's descriptors in
 * flight to RLIMIT_NOFILE, and each roster carries one descriptor per rank here.
 */
static uint32_t handout_window(uint32_t here)
{
    struct rlimit limit;
    uint64_t fds = HANDOUT_IN_FLIGHT_MOST;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < fds) {
        fds = limit.rlim_cur / 2;
    }
    const uint32_t window = (uint32_t)fds / (here + 1);
    return window > 0 ? window : 1;
}

static void handout_tell_ranks(struct hoop_leader *leader)
{
    const uint32_t here = leader->gather.arrived;
    const uint32_t window = handout_window(here);
    while (leader->handed < here && leader->handed - leader->ready < window) {
        struct hoop_edge *rank = leader->via[leader->next_rank++];
        if (rank != NULL) {
            leader->handed++;
            hoop_handout_send(leader, rank);
        }
    }
}

void hoop_handout_begin(struct hoop_leader *leader)
{
    struct hoop_frame_roster *roster = &leader->roster;
    hoop_result_t result = hoop_memfd_create("hoop-comm", roster->segment_bytes, &leader->segment);
    if (result == HOOP_OK && roster->machines == 1) { /* it stays on this machine */
        result = hoop_random(roster->secret, sizeof(roster->secret));
    }
    if (result != HOOP_OK) {
        hoop_leader_fail_by(leader, result);
        return;
    }
    handout_tell_ranks(leader);
}

/* ---- From above --------------------------------------------------------------------------- */

static void handout_refuse(struct hoop_leader *leader)
{
    hoop_leader_fail_with(leader, HOOP_REMOTE_ERROR, -1,
                          "this machine was sent a roster that does not match its join");
}

/* Only the process above may send a roster: the root to machine 0, else the identified parent. */
static bool handout_comes_from(const struct hoop_edge *edge)
{
    const struct hoop_tree *tree = &edge->leader->tree;
    return tree->machines > 0 && edge->info.process != 0 &&
           (edge->kind == HOOP_EDGE_ROOT) == (tree->machine == 0);
}

bool hoop_handout_take_roster(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    struct hoop_tree *tree = &leader->tree;
    if (!handout_comes_from(edge)) {
        return false;
    }
    if (frame->roster.n != leader->n || frame->roster.machines != tree->machines) {
        handout_refuse(leader);
        return true;
    }
    leader->roster = frame->roster;
    const hoop_result_t result = hoop_flood_prepare(leader);
    if (result != HOOP_OK) {
        hoop_leader_fail_by(leader, result);
    } else if (handout_make_room(leader)) {
        leader->state = HOOP_LEADER_HANDING;
        hoop_tree_send_down(tree, frame);
    }
    return true;
}

/* The first rank of which this machine and the roster disagree whether, or in which process, it is
 * here; n if there is none. */
static uint32_t handout_misplaced(const struct hoop_leader *leader)
{
    uint32_t rank = 0;
    while (rank < leader->n) {
        const struct hoop_frame_entry *entry = &leader->entries[rank];
        const struct hoop_edge *edge = leader->via[rank];
        if ((edge != NULL) != (entry->machine == leader->tree.machine) ||
            (edge != NULL && edge->info.process != entry->process)) {
            break;
        }
        rank++;
    }
    return rank;
}

static bool handout_fits(const struct hoop_leader *leader,
                         const struct hoop_frame_roster_part *part)
{
    bool fits = part->first == leader->known && part->count <= leader->n - leader->known;
    for (uint32_t i = 0; fits && i < part->count; i++) {
        fits = part->entries[i].machine < leader->tree.machines && part->entries[i].has_fd == 0;
    }
    return fits;
}

bool hoop_handout_take_part(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    const struct hoop_frame_roster_part *part = &frame->part;
    if (!handout_comes_from(edge)) {
        return false;
    }
    if (!handout_fits(leader, part)) {
        handout_refuse(leader);
        return true;
    }
    memcpy(&leader->entries[part->first], part->entries, part->count * sizeof(leader->entries[0]));
    leader->known += part->count;
    hoop_tree_send_down(&leader->tree, frame);
    if (leader->known < leader->n) {
        return true;
    }
    const uint32_t rank = handout_misplaced(leader);
    if (rank == leader->n) {
        hoop_handout_begin(leader);
    } else {
        hoop_leader_fail_with(
            leader, HOOP_REMOTE_ERROR, -1,
            "the roster has rank %u on host %s, pid %d, which does not match this machine", rank,
            leader->entries[rank].host, leader->entries[rank].pid);
    }
    return true;
}

/* ---- READY and GO ------------------------------------------------------------------------- */

/* All are in. From now on a connection that ends is a loss. */
static void handout_go(struct hoop_leader *leader)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_GO);
    hoop_tree_send_down(&leader->tree, &frame);
    leader->state = HOOP_LEADER_RUNNING;
    close(leader->segment);
    leader->segment = -1;
    hoop_timer_stop(leader->deadline);
    hoop_timer_stop(leader->moment);
    hoop_endpoint_expect_no_more(&leader->expectation);
    hoop_endpoint_close(leader->endpoint);
    leader->endpoint = NULL;
    hoop_tree_shut(&leader->tree);
    for (uint32_t rank = 0; rank < leader->n; rank++) {
        struct hoop_edge *edge = leader->via[rank];
        if (edge != NULL) {
            hoop_edge_send(edge, &frame);
            close(edge->wake_fd);
            edge->wake_fd = -1;
        }
    }
    hoop_gather_finish(&leader->gather);
    if (leader->roster.machines == 1) {
        free(leader->entries);
        leader->entries = NULL;
    }
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: all %u ranks are in", leader->rendezvous.name,
             leader->n);
    hoop_flood_start(leader);
}

/* If all below are ready, says READY to the process above, or GO if there is none. */
static void handout_try_ready(struct hoop_leader *leader)
{
    struct hoop_tree *tree = &leader->tree;
    if (leader->ready < leader->gather.arrived || tree->feared.code != HOOP_OK ||
        !hoop_tree_is_ready(tree)) {
        return;
    }
    if (tree->machine != 0) {
        hoop_edge_say_ready(&tree->neighbours[0]);
        tree->sent_ready = true;
        return;
    }
    if (tree->machines > 0) {
        hoop_edge_say_ready(&tree->root);
    }
    tree->sent_ready = true;
    handout_go(leader);
}

bool hoop_handout_take_ready(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    const bool rank = edge->kind == HOOP_EDGE_RANK;
    (void)frame;
    const bool handed = rank ? edge->number < leader->next_rank : edge->info.process != 0;
    if (edge->ready || !handed) {
        return false;
    }
    edge->ready = true;
    if (rank) {
        leader->ready++;
        handout_tell_ranks(leader);
    }
    handout_try_ready(leader);
    return true;
}

bool hoop_handout_take_go(struct hoop_edge *edge, const union hoop_frame *frame)
{
    (void)frame;
    if (!edge->leader->tree.sent_ready) {
        return false;
    }
    handout_go(edge->leader);
    return true;
}
