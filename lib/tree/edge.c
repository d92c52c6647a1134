/*
 * A leader's connections: who is at the other end, and which messages may come in which state; see
 * leader_inside.h.
 *
 * The other end has proved that it knows the secret, but it is not trusted: messages are checked
 * against the state, n and the number of machines.
 */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/process.h"
#include "tree/leader.h"
#include "tree/leader_inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EDGE_CHILDREN (HOOP_MAX_RANKS + 64u)

/* ---- Saying ------------------------------------------------------------------------------- */

bool hoop_edge_is_open(const struct hoop_edge *edge)
{
    return edge->connection != NULL;
}

void hoop_edge_send(const struct hoop_edge *edge, const union hoop_frame *frame)
{
    hoop_connection_say(edge->connection, frame);
}

void hoop_edge_say_ready(const struct hoop_edge *edge)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_READY);
    hoop_edge_send(edge, &frame);
}

void hoop_edge_say_info(const struct hoop_edge *edge)
{
    const struct hoop_tree *tree = &edge->leader->tree;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_INFO);
    if ((edge->kind & (HOOP_EDGE_ROOT | HOOP_EDGE_RANK)) != 0 && tree->endpoint != NULL) {
        frame.info.address = *hoop_endpoint_address(tree->endpoint);
    }
    frame.info.process = hoop_process_id();
    frame.info.pid = (int32_t)getpid();
    frame.info.machine = tree->machine;
    hoop_process_host(frame.info.host);
    hoop_edge_send(edge, &frame);
}

void hoop_edge_describe(const struct hoop_edge *edge, char *ret_text, size_t bytes)
{
    const struct hoop_frame_info *info = &edge->info;
    if (edge->kind == HOOP_EDGE_RANK && info->process == 0) {
        (void)snprintf(ret_text, bytes, "rank %u", edge->claims);
    } else if (edge->kind == HOOP_EDGE_RANK) {
        (void)snprintf(ret_text, bytes, "rank %u (pid %d, host %s)", edge->number, info->pid,
                       info->host);
    } else if (edge->kind != HOOP_EDGE_ROOT) {
        (void)snprintf(ret_text, bytes, "machine %u (host %s, pid %d)", edge->number,
                       info->host[0] != 0 ? info->host : "unknown", info->pid);
    } else if (info->process != 0) {
        (void)snprintf(ret_text, bytes, "(pid %d) at %s", info->pid,
                       hoop_connection_about(edge->connection)->peer);
    } else {
        (void)snprintf(ret_text, bytes, "at %s", hoop_connection_about(edge->connection)->peer);
    }
}

/* ---- The end of one ----------------------------------------------------------------------- */

void hoop_edge_end(struct hoop_edge *edge)
{
    hoop_connection_destroy(edge->connection);
    edge->connection = NULL;
}

void hoop_edge_destroy(struct hoop_edge *edge)
{
    struct hoop_leader *leader = edge->leader;
    hoop_list_remove(&edge->node);
    leader->child_count--;
    for (uint32_t rank = 0; edge->joined > 0 && rank < leader->n; rank++) {
        leader->via[rank] = leader->via[rank] != edge ? leader->via[rank] : NULL;
    }
    hoop_watched_finish(&edge->watched);
    hoop_edge_end(edge);
    if (edge->wake_fd >= 0) {
        close(edge->wake_fd);
    }
    hoop_free_later(edge);
}

static void edge_lose_root(struct hoop_edge *edge, const char *who, const struct hoop_failure *why)
{
    struct hoop_leader *leader = edge->leader;
    if (leader->state == HOOP_LEADER_FAILED) {
        hoop_tree_reject(leader); /* the root ended before it heard of the failure */
        hoop_leader_settle(leader);
    } else if (leader->state == HOOP_LEADER_RUNNING || leader->tree.sent_ready) {
        if (leader->tree.feared.code != HOOP_OK) {
            hoop_timer_start(leader->moment, 0, 0);
        }
    } else {
        hoop_leader_fail_with(leader, why->code, -1,
                              "the process %s that gathers the ranks ended during the join: %.160s",
                              who, why->text);
    }
}

static void edge_lose_neighbour(struct hoop_edge *edge, const char *who,
                                const struct hoop_failure *why)
{
    struct hoop_leader *leader = edge->leader;
    struct hoop_tree *tree = &leader->tree;
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: the connection with %s ended: %s",
             leader->rendezvous.name, who, why->text);
    if (leader->state == HOOP_LEADER_RUNNING) {
        hoop_flood_lose_neighbour(edge);
    } else if (leader->state < HOOP_LEADER_RUNNING && tree->machines > 0) {
        /* the root may know more, so give it a moment to say why */
        tree->feared.code = HOOP_OK;
        (void)hoop_failure_set(&tree->feared, HOOP_REMOTE_ERROR, -1,
                               "the leader of %s ended during the join: %.160s", who, why->text);
        hoop_timer_start(leader->moment, hoop_edge_is_open(&tree->root) ? HOOP_MOMENT_MS : 0, 0);
    }
}

static void edge_closed(void *arg, struct hoop_connection *connection,
                        const struct hoop_failure *why)
{
    struct hoop_edge *edge = arg;
    const bool mine = hoop_result_is_own(why->code);
    char who[160];
    (void)connection;
    hoop_edge_describe(edge, who, sizeof(who));
    hoop_edge_end(edge);
    if (mine && edge->leader->state == HOOP_LEADER_RUNNING) {
        (void)hoop_error(why->code, "%s was lost: %.200s", who, why->text);
        hoop_flood_fail_by(edge, why->code);
    }
    switch (edge->kind) {
    case HOOP_EDGE_RANK:
        hoop_leader_lose_rank(edge, who, why);
        break;
    case HOOP_EDGE_MACHINE:
        hoop_root_lose_machine(edge, why);
        break;
    case HOOP_EDGE_ROOT:
        edge_lose_root(edge, who, why);
        break;
    case HOOP_EDGE_PARENT:
    case HOOP_EDGE_CHILD:
        edge_lose_neighbour(edge, who, why);
        break;
    }
}

/* ---- What comes --------------------------------------------------------------------------- */

static bool edge_ignore(struct hoop_edge *edge, const union hoop_frame *frame)
{
    (void)edge;
    (void)frame;
    return true;
}

/* A neighbour in the tree must be the machine that its hello named. */
static bool edge_take_info(struct hoop_edge *edge, const union hoop_frame *frame)
{
    const bool neighbour = (edge->kind & (HOOP_EDGE_PARENT | HOOP_EDGE_CHILD)) != 0;
    if (edge->info.process != 0 || (neighbour && frame->info.machine != edge->number)) {
        return false;
    }
    edge->info = frame->info;
    return true;
}

/* The root returns what this machine told it: it has told all others. */
static bool edge_take_echo(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    (void)frame;
    hoop_tree_close(&leader->tree);
    hoop_leader_settle(leader);
    return true;
}

#define EDGE_NEIGHBOUR (HOOP_EDGE_PARENT | HOOP_EDGE_CHILD)
#define EDGE_ABOVE (HOOP_EDGE_ROOT | HOOP_EDGE_PARENT)
#define EDGE_ANYBODY (HOOP_EDGE_RANK | HOOP_EDGE_MACHINE | HOOP_EDGE_ROOT | EDGE_NEIGHBOUR)
#define EDGE_EARLY (HOOP_LEADER_GATHERING | HOOP_LEADER_HANDING)
#define EDGE_ANY 0u

/* Which messages may come from whom in which states. The first line that fits applies. */
static const struct edge_rule {
    uint32_t type;
    unsigned kinds, states;
    hoop_edge_take *take;
} edge_rules[] = {
    {HOOP_FRAME_JOIN, HOOP_EDGE_RANK | HOOP_EDGE_MACHINE, EDGE_EARLY, hoop_leader_take_join},
    {HOOP_FRAME_JOIN, HOOP_EDGE_RANK, HOOP_LEADER_FAILED, hoop_leader_take_late},
    {EDGE_ANY, HOOP_EDGE_MACHINE, HOOP_LEADER_FAILED, hoop_leader_take_late},
    {HOOP_FRAME_INFO, HOOP_EDGE_MACHINE | HOOP_EDGE_ROOT | EDGE_NEIGHBOUR, EDGE_EARLY,
     edge_take_info},
    {HOOP_FRAME_INFO, HOOP_EDGE_RANK, EDGE_EARLY, hoop_tree_take_address},
    {HOOP_FRAME_PLACE, HOOP_EDGE_ROOT, HOOP_LEADER_GATHERING, hoop_tree_take_place},
    {HOOP_FRAME_ROSTER, EDGE_ABOVE, HOOP_LEADER_GATHERING, hoop_handout_take_roster},
    {HOOP_FRAME_ROSTER_PART, EDGE_ABOVE, HOOP_LEADER_HANDING, hoop_handout_take_part},
    {HOOP_FRAME_READY, HOOP_EDGE_RANK | HOOP_EDGE_CHILD, HOOP_LEADER_HANDING,
     hoop_handout_take_ready},
    {HOOP_FRAME_READY, HOOP_EDGE_MACHINE, EDGE_EARLY, hoop_root_take_ready},
    {HOOP_FRAME_GO, HOOP_EDGE_PARENT, HOOP_LEADER_HANDING, hoop_handout_take_go},
    {HOOP_FRAME_REJECT, EDGE_ANYBODY, EDGE_EARLY, hoop_leader_take_reject},
    {HOOP_FRAME_REJECT, HOOP_EDGE_ROOT, HOOP_LEADER_FAILED, edge_take_echo},
    {HOOP_FRAME_REJECT, HOOP_EDGE_RANK | EDGE_NEIGHBOUR, HOOP_LEADER_RUNNING,
     hoop_flood_take_reject},
    {EDGE_ANY, HOOP_EDGE_RANK | EDGE_NEIGHBOUR, HOOP_LEADER_RUNNING, hoop_flood_take},
    /* sent before the other end knew this state */
    {EDGE_ANY, HOOP_EDGE_ROOT, HOOP_LEADER_RUNNING | HOOP_LEADER_FAILED, edge_ignore},
    {EDGE_ANY, EDGE_NEIGHBOUR, HOOP_LEADER_FAILED, edge_ignore},
};

static bool edge_take(struct hoop_edge *edge, const union hoop_frame *frame)
{
    for (size_t i = 0; i < sizeof(edge_rules) / sizeof(edge_rules[0]); i++) {
        const struct edge_rule *rule = &edge_rules[i];
        if ((rule->type == EDGE_ANY || rule->type == frame->header.type) &&
            (rule->kinds & edge->kind) != 0 && (rule->states & edge->leader->state) != 0) {
            return rule->take(edge, frame);
        }
    }
    return false;
}

static bool edge_message(void *arg, struct hoop_connection *connection,
                         const union hoop_frame *frame, int *fds)
{
    struct hoop_edge *edge = arg;
    (void)connection;
    if (frame->header.type == HOOP_FRAME_JOIN && edge->wake_fd < 0) {
        edge->wake_fd = fds[0];
        fds[0] = -1;
    }
    hoop_watched_heard(&edge->watched);
    return edge_take(edge, frame);
}

static const struct hoop_connection_owner edge_owner = {
    .message = edge_message,
    .closed = edge_closed,
};

/* ---- Children ----------------------------------------------------------------------------- */

void hoop_edge_init(struct hoop_edge *edge, struct hoop_leader *leader, enum hoop_edge_kind kind)
{
    edge->leader = leader;
    edge->kind = kind;
    edge->number = HOOP_NOBODY;
    edge->wake_fd = -1;
    edge->waiting_ns = HOOP_NEVER;
}

void hoop_edge_adopt(struct hoop_edge *edge, struct hoop_connection *connection)
{
    edge->connection = connection;
    memset(&edge->info, 0, sizeof(edge->info));
    hoop_connection_adopt(connection, &edge_owner, edge);
}

/* Fails the join: the other end has been let in, and would not try again. */
static void edge_lacks_memory(struct hoop_leader *leader, struct hoop_connection *connection)
{
    const hoop_result_t code =
        hoop_error(HOOP_OUT_OF_MEMORY, "the %s (pid %d) has no memory for another connection",
                   leader->is_root ? "root" : "leader", (int)getpid());
    hoop_connection_refuse(connection, code);
    hoop_connection_destroy(connection);
    hoop_leader_fail_with(leader, code, -1, "%s", hoop_thread_error());
}

void hoop_edge_opened(void *arg, struct hoop_connection *connection)
{
    struct hoop_leader *leader = arg;
    if (leader->child_count >= EDGE_CHILDREN) {
        hoop_connection_destroy(connection); /* it tries again */
        return;
    }
    struct hoop_edge *edge = calloc(1, sizeof(*edge));
    if (edge == NULL) {
        edge_lacks_memory(leader, connection);
        return;
    }
    hoop_edge_init(edge, leader, leader->is_root ? HOOP_EDGE_MACHINE : HOOP_EDGE_RANK);
    hoop_list_push_back(&leader->children, &edge->node);
    leader->child_count++;
    edge->claims = hoop_connection_about(connection)->hello->from;
    hoop_edge_adopt(edge, connection);
    if (leader->is_root) { /* so that errors can name the root, even early */
        hoop_edge_say_info(edge);
    }
}
