/*
 * A machine's way into the tree, and the tree's end; see tree.h and tree_inside.h.
 *
 * Who is at the other ends has proved that it knows the secret. It is still not believed: what
 * comes is checked against the state, n, and the number of machines.
 */
#include "base/clock.h"
#include "gathering.h"
#include "tree_inside.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TREE_GRACE_MS 500u /* for the hub to say who is missing */

struct hoop_tree *hoop_trees;
static struct hoop_job *tree_idle_job;

/* ---- The end ------------------------------------------------------------------------------ */

static bool tree_is_any_needed(void)
{
    for (const struct hoop_tree *tree = hoop_trees; tree != NULL; tree = tree->next) {
        if (tree->state == HOOP_TREE_RUNNING && !tree->comm_failed) {
            return true;
        }
    }
    return false;
}

void hoop_tree_tell_idle(void)
{
    struct hoop_job *job = tree_idle_job;
    if (job != NULL && !tree_is_any_needed()) {
        tree_idle_job = NULL;
        hoop_job_complete(job, NULL);
    }
}

void hoop_tree_on_idle(struct hoop_job *job)
{
    assert(tree_idle_job == NULL);
    tree_idle_job = job;
    hoop_tree_tell_idle();
}

static void tree_forget_joins(struct hoop_tree *tree)
{
    free(tree->joins);
    free(tree->entries);
    tree->joins = NULL;
    tree->entries = NULL;
    tree->join_count = 0;
}

void hoop_tree_destroy(struct hoop_tree *tree)
{
    if (tree == NULL || tree->state == HOOP_TREE_OVER) {
        return;
    }
    struct hoop_tree **at = &hoop_trees;
    while (*at != tree) {
        at = &(*at)->next;
    }
    *at = tree->next;
    tree->state = HOOP_TREE_OVER;
    tree->owned = false;
    hoop_search_destroy(tree->search);
    tree->search = NULL;
    hoop_control_destroy(tree->hub);
    tree->hub = NULL;
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES; i++) {
        hoop_control_destroy(tree->branches[i].control);
        tree->branches[i].control = NULL;
    }
    hoop_door_close(tree->door);
    tree->door = NULL;
    tree_forget_joins(tree);
    free(tree->ranks);
    tree->ranks = NULL;
    hoop_secret_wipe(&tree->meeting, sizeof(tree->meeting));
    hoop_timer_start(tree->timer, 0, 0);
    hoop_tree_tell_idle();
}

void hoop_tree_settle(struct hoop_tree *tree)
{
    if (!tree->owned && tree->state == HOOP_TREE_RUNNING &&
        (hoop_branch_open_count(tree) < 2 || hoop_route_is_over(tree))) {
        hoop_tree_destroy(tree);
    }
}

void hoop_tree_leave(struct hoop_tree *tree)
{
    assert(tree->state == HOOP_TREE_RUNNING);
    tree->owned = false;
    hoop_tree_settle(tree);
}

void hoop_tree_describe(const struct hoop_tree *tree, const struct hoop_branch *branch,
                        char *ret_text, size_t bytes)
{
    const char *host = NULL;
    for (uint32_t rank = 0; tree->entries != NULL && rank < tree->told && host == NULL; rank++) {
        host = tree->entries[rank].machine == branch->machine ? tree->entries[rank].host : NULL;
    }
    (void)snprintf(ret_text, bytes, "machine %u (host %s, pid %d)", branch->machine,
                   host != NULL ? host : "unknown", branch->pid);
}

static bool tree_is_here(const void *arg, uint32_t rank)
{
    const struct hoop_tree *tree = arg;
    uint32_t i = 0;
    while (i < tree->join_count && tree->joins[i].frame.rank != rank) {
        i++;
    }
    return i < tree->join_count;
}

void hoop_tree_describe_here(const struct hoop_tree *tree, char *ret_text, size_t bytes)
{
    const struct hoop_frame_join *join = &tree->joins[0].frame;
    char ranks[96];
    hoop_gathering_list(join->n, tree_is_here, tree, ranks, sizeof(ranks));
    (void)snprintf(ret_text, bytes, "%s of %u (host %s)", ranks, join->n, join->host);
}

/* ---- Failing ------------------------------------------------------------------------------ */

void hoop_tree_send_reject(struct hoop_tree *tree)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = (int32_t)tree->failure.code;
    frame.reject.rank = tree->failure.rank;
    memcpy(frame.reject.text, tree->failure.text, sizeof(frame.reject.text));
    if (tree->hub != NULL) {
        hoop_control_send(tree->hub, &frame.header, NULL, 0);
    } else {
        hoop_branch_send_all(tree, &frame, NULL);
    }
}

void hoop_tree_reject(struct hoop_tree *tree, const struct hoop_failure *failure)
{
    const bool seeking = tree->state == HOOP_TREE_SEEKING;
    tree->owned = false;
    tree->failure = *failure;
    tree->state = HOOP_TREE_REJECTING;
    if (seeking && tree->search != NULL) {
        return; /* the hub hears of it when it is found */
    }
    hoop_search_destroy(tree->search);
    tree->search = NULL;
    if (tree->hub == NULL && hoop_branch_open_count(tree) == 0) {
        hoop_tree_destroy(tree); /* nobody to tell */
        return;
    }
    hoop_tree_send_reject(tree);
    hoop_timer_start(tree->timer, HOOP_TREE_MOMENT_MS, 0);
}

void hoop_tree_await(struct hoop_tree *tree)
{
    const uint64_t now = hoop_now_ns();
    const uint64_t left = now < tree->deadline_ns ? (tree->deadline_ns - now) / HOOP_NS_PER_MS : 0;
    hoop_timer_start(tree->timer, left + TREE_GRACE_MS, 0);
}

void hoop_tree_fail_told(struct hoop_tree *tree, const struct hoop_failure *failure)
{
    const struct hoop_failure copy = *failure;
    const bool owned = tree->owned;
    hoop_tree_destroy(tree);
    if (owned) {
        tree->owner->failed(tree->arg, &copy);
    }
}

void hoop_tree_fail(struct hoop_tree *tree, hoop_result_t code, const char *format, ...)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    char text[HOOP_FAILURE_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)hoop_text_format(text, sizeof(text), format, args);
    va_end(args);
    const bool owned = tree->owned;
    assert(tree->state < HOOP_TREE_RUNNING);
    (void)hoop_failure_set(&failure, code, -1, "%s", text);
    hoop_tree_reject(tree, &failure);
    if (owned) {
        tree->owner->failed(tree->arg, &failure);
    }
}

void hoop_tree_fear(struct hoop_tree *tree, hoop_result_t code, const char *why)
{
    (void)hoop_failure_set(&tree->failure, code, -1, "%s", why);
    hoop_timer_start(tree->timer, tree->hub != NULL ? HOOP_TREE_MOMENT_MS : 0, 0);
}

/* ---- The roster, READY and GO ------------------------------------------------------------- */

static void tree_refuse_roster(struct hoop_tree *tree)
{
    hoop_tree_fail(tree, HOOP_REMOTE_ERROR, "this machine was sent a roster that does not fit");
}

void hoop_tree_take_roster(struct hoop_tree *tree, const struct hoop_frame_roster *roster)
{
    if (tree->roster.n != 0 || tree->join_count == 0 || roster->n != tree->joins[0].frame.n ||
        roster->machines != tree->machines) {
        tree_refuse_roster(tree);
        return;
    }
    tree->ranks = calloc(roster->n, sizeof(*tree->ranks));
    tree->entries = calloc(roster->n, sizeof(*tree->entries));
    if (tree->ranks == NULL || tree->entries == NULL) {
        hoop_tree_fail(tree, HOOP_OUT_OF_MEMORY, "no memory for %u ranks", roster->n);
        return;
    }
    tree->roster = *roster;
    union hoop_frame frame;
    frame.roster = *roster;
    hoop_branch_send_down(tree, &frame);
    tree->owner->roster(tree->arg, roster);
}

void hoop_tree_take_part(struct hoop_tree *tree, const struct hoop_frame_roster_part *part)
{
    bool fits = tree->roster.n != 0 && part->first == tree->told &&
                part->count <= tree->roster.n - tree->told;
    for (uint32_t i = 0; fits && i < part->count; i++) {
        fits = part->entries[i].machine < tree->machines && part->entries[i].has_fd == 0;
    }
    if (!fits) {
        tree_refuse_roster(tree);
        return;
    }
    for (uint32_t i = 0; i < part->count; i++) {
        tree->entries[tree->told + i] = part->entries[i];
        tree->ranks[tree->told + i].process = part->entries[i].process;
        tree->ranks[tree->told + i].machine = part->entries[i].machine;
    }
    tree->told += part->count;
    union hoop_frame frame;
    frame.part = *part;
    hoop_branch_send_down(tree, &frame);
    tree->owner->part(tree->arg, part);
}

/* All are in; what has ended in between is lost. */
static void tree_go(struct hoop_tree *tree)
{
    tree->state = HOOP_TREE_RUNNING;
    tree->failure.code = HOOP_OK;
    hoop_search_destroy(tree->search);
    tree->search = NULL;
    tree_forget_joins(tree);
    hoop_door_close(tree->door); /* all branches are there */
    tree->door = NULL;
    tree->owner->go(tree->arg);
    if (tree->state == HOOP_TREE_RUNNING) {
        hoop_route_start(tree);
    }
}

void hoop_tree_try_ready(struct hoop_tree *tree)
{
    union hoop_frame frame;
    if (!tree->ready || tree->sent_ready || tree->failure.code != HOOP_OK ||
        !hoop_branch_all_ready(tree)) {
        return;
    }
    tree->sent_ready = true;
    hoop_frame_init(&frame, HOOP_FRAME_READY);
    if (tree->machine != 0) {
        if (tree->branches[0].control != NULL) {
            hoop_control_send(tree->branches[0].control, &frame.header, NULL, 0);
        }
        return;
    }
    if (tree->hub != NULL) {
        hoop_control_send(tree->hub, &frame.header, NULL, 0);
    }
    hoop_tree_take_go(tree);
}

void hoop_tree_take_go(struct hoop_tree *tree)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_GO);
    hoop_branch_send_down(tree, &frame);
    tree_go(tree);
}

/* ---- Deadlines ---------------------------------------------------------------------------- */

static void tree_due(void *arg)
{
    struct hoop_tree *tree = arg;
    const struct hoop_failure failure = tree->failure;
    const unsigned long long ms = tree->timeout_ms;
    char hub[HOOP_TREE_HUB_BYTES] = "nowhere";
    switch (tree->state) {
    case HOOP_TREE_OVER:
        hoop_timer_destroy(tree->timer);
        free(tree);
        break;
    case HOOP_TREE_RUNNING:
        hoop_route_beat(tree);
        break;
    case HOOP_TREE_REJECTING:
        hoop_tree_destroy(tree);
        break;
    case HOOP_TREE_BRANCHING:
        if (failure.code != HOOP_OK) {
            hoop_tree_fail(tree, failure.code, "%s", failure.text);
        } else {
            hoop_tree_fail(tree, HOOP_TIMEOUT,
                           "all ranks arrived, but their machines did not get ready within %llu ms",
                           ms);
        }
        break;
    default:
        if (tree->hub != NULL) {
            hoop_tree_describe_hub(tree, hub);
        }
        hoop_tree_fail(tree, HOOP_TIMEOUT,
                       "the process %s that gathers the ranks did not complete the join within "
                       "%llu ms: is it stopped?",
                       hub, ms);
        break;
    }
}

/* ---- For the owner ------------------------------------------------------------------------ */

hoop_result_t hoop_tree_create(const struct hoop_meeting *meeting,
                               const struct hoop_tree_owner *owner, void *arg,
                               struct hoop_tree **ret_tree, struct hoop_failure *failure)
{
    assert(meeting->has_secret && meeting->address_count > 0);
    struct hoop_tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a tree");
    }
    tree->meeting = *meeting;
    tree->meeting.file = NULL;
    tree->owner = owner;
    tree->arg = arg;
    tree->owned = true;
    tree->deadline_ns = HOOP_NEVER;
    tree->failure.rank = -1;
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES; i++) {
        tree->branches[i].tree = tree;
    }
    const hoop_result_t result = hoop_timer_create(tree_due, tree, &tree->timer);
    if (result != HOOP_OK) {
        hoop_secret_wipe(&tree->meeting, sizeof(tree->meeting));
        free(tree);
        return hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
    }
    tree->next = hoop_trees;
    hoop_trees = tree;
    *ret_tree = tree;
    return HOOP_OK;
}

/* Remembers it for a hub that is found later. */
static struct hoop_tree_join *tree_keep_join(struct hoop_tree *tree,
                                             const struct hoop_frame_join *frame)
{
    if (tree->join_count == tree->join_size) {
        const uint32_t size = tree->join_size == 0 ? 8 : tree->join_size * 2;
        struct hoop_tree_join *joins = realloc(tree->joins, size * sizeof(*joins));
        if (joins == NULL) {
            return NULL;
        }
        tree->joins = joins;
        tree->join_size = size;
    }
    struct hoop_tree_join *join = &tree->joins[tree->join_count++];
    join->frame = *frame;
    join->deadline_ns = hoop_now_ns() + frame->left_ms * HOOP_NS_PER_MS;
    return join;
}

void hoop_tree_join(struct hoop_tree *tree, const struct hoop_frame_join *frame)
{
    const struct hoop_tree_join *join = tree_keep_join(tree, frame);
    hoop_result_t result = HOOP_OK;
    if (join == NULL) {
        hoop_tree_fail(tree, HOOP_OUT_OF_MEMORY, "no memory for a join");
        return;
    }
    if (join->deadline_ns < tree->deadline_ns) {
        tree->deadline_ns = join->deadline_ns;
        tree->timeout_ms = frame->timeout_ms;
        if (tree->state == HOOP_TREE_TOLD || tree->state == HOOP_TREE_BRANCHING) {
            hoop_tree_await(tree);
        }
    }
    if (tree->hub != NULL) {
        hoop_tree_say_join(tree, join);
    } else if (tree->search != NULL) {
        hoop_search_until(tree->search, tree->deadline_ns);
    } else if (!tree->found) {
        result = hoop_tree_seek_hub(tree);
    }
    if (result != HOOP_OK) {
        hoop_tree_fail(tree, result, "%s", hoop_thread_error());
    }
}

void hoop_tree_ready(struct hoop_tree *tree)
{
    tree->ready = true;
    hoop_tree_try_ready(tree);
}

void hoop_tree_send(struct hoop_tree *tree, const union hoop_frame *frame)
{
    if (tree->state == HOOP_TREE_RUNNING) {
        (void)hoop_route_take(tree, frame, NULL);
    }
}

uint64_t hoop_tree_waiting_since(const struct hoop_tree *tree)
{
    return hoop_route_waiting_since(tree, NULL);
}

uint32_t hoop_tree_machine(const struct hoop_tree *tree)
{
    return tree->machine;
}

struct hoop_address hoop_tree_address(const struct hoop_tree *tree)
{
    return tree->address;
}
