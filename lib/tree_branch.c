/*
 * A machine's neighbours in the tree; see tree_inside.h.
 *
 *      child                                   parent
 *      HELLO {BRANCH, from, to} ... WELCOME    admits it for its place among the children
 *      GATE {machine, pid, process} ---->
 *                                    <----     GATE; what it has of the roster, and what comes
 *      READY, when it and its children are ->
 *                                    <----     GO
 *
 * A child may come before this machine knows its own number: it was told where to go by the hub,
 * which tells all at once. Then the parent's GATE waits for that.
 */
#include "base/clock.h"
#include "base/log.h"
#include "memory.h"
#include "tree_inside.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Time that is left for a reason to reach the others, when the parent cannot be reached. */
#define BRANCH_SPARE_MS 2000u

static const struct hoop_control_owner branch_owner;

static bool branch_is_child(const struct hoop_branch *branch)
{
    return branch != &branch->tree->branches[0];
}

static bool branch_is_open(const struct hoop_branch *branch)
{
    return branch->control != NULL;
}

/* ---- Saying ------------------------------------------------------------------------------- */

static void branch_send(const struct hoop_branch *branch, const union hoop_frame *frame)
{
    if (branch_is_open(branch)) {
        hoop_control_send(branch->control, &frame->header, NULL, 0);
    }
}

void hoop_branch_send_all(const struct hoop_tree *tree, const union hoop_frame *frame,
                          const struct hoop_branch *but)
{
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES; i++) {
        if (&tree->branches[i] != but) {
            branch_send(&tree->branches[i], frame);
        }
    }
}

void hoop_branch_send_down(const struct hoop_tree *tree, const union hoop_frame *frame)
{
    hoop_branch_send_all(tree, frame, &tree->branches[0]);
}

static void branch_say_gate(const struct hoop_branch *branch)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_GATE);
    frame.gate.machine = branch->tree->machine;
    frame.gate.pid = (int32_t)getpid();
    frame.gate.process = hoop_process_id();
    branch_send(branch, &frame);
}

/* What has come of the roster so far. */
static void branch_say_roster(const struct hoop_branch *branch)
{
    const struct hoop_tree *tree = branch->tree;
    union hoop_frame frame;
    if (tree->roster.n == 0) {
        return;
    }
    frame.roster = tree->roster;
    branch_send(branch, &frame);
    for (uint32_t first = 0; first < tree->told; first += HOOP_FRAME_MAX_FDS) {
        const uint32_t left = tree->told - first;
        const uint32_t count = left < HOOP_FRAME_MAX_FDS ? left : HOOP_FRAME_MAX_FDS;
        hoop_frame_init(&frame, HOOP_FRAME_ROSTER_PART);
        hoop_frame_set_count(&frame, first, count);
        for (uint32_t i = 0; i < count; i++) {
            frame.part.entries[i] = tree->entries[first + i];
        }
        branch_send(branch, &frame);
    }
}

/* ---- Hearing ------------------------------------------------------------------------------ */

static bool branch_take_gate(struct hoop_branch *branch, const struct hoop_frame_gate *gate)
{
    if (branch->process != 0 || gate->machine != branch->machine) {
        return false;
    }
    branch->process = gate->process;
    branch->pid = gate->pid;
    return true;
}

/* A machine cannot go on, and the hub is gone. */
static void branch_take_reject(struct hoop_branch *branch, const union hoop_frame *frame)
{
    struct hoop_tree *tree = branch->tree;
    struct hoop_failure failure = {.code = (hoop_result_t)frame->reject.code,
                                   .rank = frame->reject.rank};
    memcpy(failure.text, frame->reject.text, sizeof(failure.text));
    hoop_branch_send_all(tree, frame, branch);
    hoop_tree_fail_told(tree, &failure);
}

/* Before GO. False: it does not belong here. */
static bool branch_take_early(struct hoop_branch *branch, const union hoop_frame *frame)
{
    struct hoop_tree *tree = branch->tree;
    const bool child = branch_is_child(branch);
    const bool known = tree->state == HOOP_TREE_BRANCHING && branch->process != 0;
    const uint32_t type = frame->header.type;
    if (type == HOOP_FRAME_GATE) {
        return branch_take_gate(branch, &frame->gate);
    }
    if (type == HOOP_FRAME_REJECT) {
        branch_take_reject(branch, frame);
    } else if (known && child && type == HOOP_FRAME_READY && !branch->ready) {
        branch->ready = true;
        hoop_tree_try_ready(tree);
    } else if (known && !child && type == HOOP_FRAME_ROSTER) {
        hoop_tree_take_roster(tree, &frame->roster);
    } else if (known && !child && type == HOOP_FRAME_ROSTER_PART) {
        hoop_tree_take_part(tree, &frame->part);
    } else if (known && !child && type == HOOP_FRAME_GO && tree->sent_ready) {
        hoop_tree_take_go(tree);
    } else {
        return false;
    }
    return true;
}

static void branch_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                           int *fds)
{
    struct hoop_branch *branch = arg;
    struct hoop_tree *tree = branch->tree;
    bool fits = true;
    (void)fds;
    branch->heard_ns = hoop_now_ns();
    if (tree->state == HOOP_TREE_RUNNING) {
        fits = hoop_route_take(tree, frame, branch);
    } else if (tree->state != HOOP_TREE_REJECTING) {
        fits = branch_take_early(branch, frame);
    }
    if (!fits && tree->state != HOOP_TREE_OVER) {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                            hoop_frame_name(frame->header.type));
    }
}

static void branch_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct hoop_branch *branch = arg;
    struct hoop_tree *tree = branch->tree;
    char who[160];
    char text[HOOP_FAILURE_TEXT_BYTES];
    hoop_control_destroy(control);
    branch->control = NULL;
    hoop_tree_describe(tree, branch, who, sizeof(who));
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: the connection with %s ended: %s",
             tree->meeting.name, who, why->text);
    if (tree->state == HOOP_TREE_RUNNING) {
        hoop_route_lose(tree, branch, "died, or its machine cannot be reached");
        hoop_tree_settle(tree);
    } else if (tree->state == HOOP_TREE_BRANCHING) {
        (void)snprintf(text, sizeof(text), "the rendezvous of %s ended during the join: %.160s",
                       who, why->text);
        hoop_tree_fear(tree, HOOP_REMOTE_ERROR, text);
    }
}

static const struct hoop_control_owner branch_owner = {
    .message = branch_message,
    .closed = branch_closed,
};

/* ---- The parent --------------------------------------------------------------------------- */

static void branch_found_parent(void *arg, struct hoop_control *control)
{
    struct hoop_branch *branch = arg;
    hoop_search_destroy(branch->tree->search);
    branch->tree->search = NULL;
    branch->control = control;
    hoop_control_adopt(control, &branch_owner, branch);
    branch_say_gate(branch);
}

static void branch_missed_parent(void *arg, hoop_result_t code, const char *why)
{
    const struct hoop_branch *branch = arg;
    char who[192];
    hoop_tree_describe_here(branch->tree, who, sizeof(who));
    hoop_tree_fail(branch->tree, code,
                   "%s cannot reach the machine that stands between them and the others: %s", who,
                   why);
}

static const struct hoop_search_owner branch_search_owner = {
    .found = branch_found_parent,
    .failed = branch_missed_parent,
};

static void branch_seek_parent(struct hoop_branch *branch, const struct hoop_address *parent)
{
    struct hoop_tree *tree = branch->tree;
    const uint64_t now = hoop_now_ns();
    const uint64_t left = now < tree->deadline_ns ? tree->deadline_ns - now : 0;
    const uint64_t spare = BRANCH_SPARE_MS * HOOP_NS_PER_MS;
    struct hoop_address address = *parent;
    union hoop_frame hello;
    if (address.scope != 0) {
        address.scope = tree->address.scope; /* an interface has its own number on each machine */
    }
    branch->machine = (tree->machine - 1) / 2;
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_BRANCH;
    hello.hello.from = tree->machine;
    hello.hello.to = branch->machine;
    (void)snprintf(hello.hello.meeting, sizeof(hello.hello.meeting), "%s", tree->meeting.name);
    const struct hoop_search_order order = {
        .addresses = &address,
        .count = 1,
        .hello = &hello.hello,
        .secret = &tree->meeting.secret,
        .deadline_ns = now + left - (left / 4 < spare ? left / 4 : spare),
    };
    const hoop_result_t result =
        hoop_search_create(&order, &branch_search_owner, branch, &tree->search);
    if (result != HOOP_OK) {
        hoop_tree_fail(tree, result, "%s", hoop_thread_error());
    }
}

/* ---- Children ----------------------------------------------------------------------------- */

static uint32_t branch_number(const struct hoop_tree *tree, uint32_t child)
{
    return 2 * tree->machine + child;
}

static bool branch_is_wanted(const struct hoop_tree *tree, uint32_t child)
{
    return branch_number(tree, child) < tree->machines;
}

bool hoop_branch_all_ready(const struct hoop_tree *tree)
{
    for (uint32_t child = 1; child < HOOP_TREE_BRANCHES; child++) {
        const struct hoop_branch *branch = &tree->branches[child];
        if (branch_is_wanted(tree, child) && !(branch_is_open(branch) && branch->ready)) {
            return false;
        }
    }
    return true;
}

uint32_t hoop_branch_open_count(const struct hoop_tree *tree)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < HOOP_TREE_BRANCHES; i++) {
        count += branch_is_open(&tree->branches[i]) ? 1 : 0;
    }
    return count;
}

void hoop_branch_begin(struct hoop_tree *tree, const struct hoop_address *parent)
{
    for (uint32_t child = 1; child < HOOP_TREE_BRANCHES; child++) {
        struct hoop_branch *branch = &tree->branches[child];
        if (!branch_is_open(branch)) {
            continue;
        }
        if (!branch_is_wanted(tree, child) || branch->machine != branch_number(tree, child)) {
            hoop_control_destroy(branch->control);
            branch->control = NULL;
        }
        branch_say_gate(branch);
    }
    if (tree->machine != 0) {
        branch_seek_parent(&tree->branches[0], parent);
    }
}

/* The branch that this hello is for; NULL: there is none, or not any more. */
static struct hoop_branch *branch_for(const struct hoop_frame_hello *hello)
{
    const uint32_t child = 2 - hello->from % 2;
    for (struct hoop_tree *tree = hoop_trees; tree != NULL; tree = tree->next) {
        const bool early = tree->state == HOOP_TREE_TOLD;
        if ((!early && tree->state != HOOP_TREE_BRANCHING) ||
            strcmp(tree->meeting.name, hello->meeting) != 0) {
            continue;
        }
        const bool fits = hello->from > 0 && (hello->from - 1) / 2 == hello->to &&
                          (early || (tree->machine == hello->to && branch_is_wanted(tree, child)));
        return fits && !tree->branches[child].ready ? &tree->branches[child] : NULL;
    }
    return NULL;
}

bool hoop_tree_admit(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                     struct hoop_failure *ret_failure)
{
    const struct hoop_branch *branch = branch_for(hello);
    if (branch == NULL) {
        (void)hoop_failure_set(ret_failure, HOOP_NOT_AUTHENTICATED, -1,
                               "machine %u of a join that is not under way here", hello->to);
        return false;
    }
    ret->secret = branch->tree->meeting.secret;
    ret->hand_out = false;
    return true;
}

void hoop_tree_opened(struct hoop_control *control)
{
    const struct hoop_frame_hello *hello = hoop_control_hello(control);
    struct hoop_branch *branch = branch_for(hello);
    if (branch == NULL) {
        hoop_control_destroy(control);
        return;
    }
    struct hoop_tree *tree = branch->tree;
    hoop_control_destroy(branch->control); /* it comes again: the old one is stale */
    branch->control = control;
    branch->machine = hello->from;
    branch->process = 0;
    if (tree->failure.code != HOOP_OK) { /* its end was feared for */
        tree->failure.code = HOOP_OK;
        hoop_tree_await(tree);
    }
    hoop_control_adopt(control, &branch_owner, branch);
    if (tree->state == HOOP_TREE_BRANCHING) {
        branch_say_gate(branch);
        branch_say_roster(branch);
    }
}
