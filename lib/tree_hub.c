/*
 * A machine and the hub; see tree_inside.h.
 *
 * The hub ends when all are ready, so that its end means something only until this machine said
 * READY. Until then it is also the one that tells everybody why a join failed; without it the
 * reason goes along the branches.
 */
#include "base/clock.h"
#include "memory.h"
#include "tree_inside.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void hoop_tree_describe_hub(const struct hoop_tree *tree, char ret_text[HOOP_TREE_HUB_BYTES])
{
    const char *peer = hoop_control_peer(tree->hub);
    if (tree->hub_pid != 0) {
        (void)snprintf(ret_text, HOOP_TREE_HUB_BYTES, "(pid %d) at %s", tree->hub_pid, peer);
    } else {
        (void)snprintf(ret_text, HOOP_TREE_HUB_BYTES, "at %s", peer);
    }
}

_Static_assert(HOOP_MEETING_ADDRESSES <= HOOP_SEARCH_ADDRESSES, "a search takes all addresses");

void hoop_tree_say_join(struct hoop_tree *tree, const struct hoop_tree_join *join)
{
    const uint64_t now = hoop_now_ns();
    union hoop_frame frame;
    frame.join = join->frame;
    frame.join.left_ms = now < join->deadline_ns ? (join->deadline_ns - now) / HOOP_NS_PER_MS : 0;
    hoop_control_send(tree->hub, &frame.header, NULL, 0);
}

static hoop_result_t hub_say_machine(struct hoop_tree *tree, struct hoop_failure *failure)
{
    const struct hoop_ports ports = hoop_door_ports();
    union hoop_frame frame;
    tree->address = hoop_control_local(tree->hub);
    const hoop_result_t result = hoop_door_open(&tree->address, &ports, &tree->door, failure);
    if (result != HOOP_OK) {
        return result;
    }
    hoop_frame_init(&frame, HOOP_FRAME_MACHINE);
    frame.machine.address = *hoop_door_address(tree->door);
    frame.machine.process = hoop_process_id();
    if (gethostname(frame.machine.host, sizeof(frame.machine.host) - 1) != 0) {
        (void)snprintf(frame.machine.host, sizeof(frame.machine.host), "unknown");
    }
    hoop_control_send(tree->hub, &frame.header, NULL, 0);
    return HOOP_OK;
}

static void hub_take_tree(struct hoop_tree *tree, const struct hoop_frame_tree *frame)
{
    tree->state = HOOP_TREE_BRANCHING;
    tree->machine = frame->machine;
    tree->machines = frame->machines;
    hoop_branch_begin(tree, &frame->parent);
}

static void hub_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                        int *fds)
{
    struct hoop_tree *tree = arg;
    const uint32_t type = frame->header.type;
    const bool first = tree->state == HOOP_TREE_BRANCHING && tree->machine == 0;
    (void)fds;
    if (type == HOOP_FRAME_GATE && tree->hub_pid == 0) {
        tree->hub_pid = frame->gate.pid;
    } else if (type == HOOP_FRAME_REJECT && tree->state == HOOP_TREE_REJECTING) {
        hoop_tree_destroy(tree); /* the hub tells everybody */
    } else if (type == HOOP_FRAME_REJECT && tree->state != HOOP_TREE_RUNNING) {
        const struct hoop_frame_reject *m = &frame->reject;
        struct hoop_failure failure = {.code = (hoop_result_t)m->code, .rank = m->rank};
        memcpy(failure.text, m->text, sizeof(failure.text));
        hoop_tree_fail_told(tree, &failure);
    } else if (tree->state == HOOP_TREE_REJECTING || tree->state == HOOP_TREE_RUNNING) {
        return; /* it did not know yet */
    } else if (type == HOOP_FRAME_TREE && tree->state == HOOP_TREE_TOLD &&
               frame->tree.machines > 1) {
        hub_take_tree(tree, &frame->tree);
    } else if (type == HOOP_FRAME_ROSTER && first) {
        hoop_tree_take_roster(tree, &frame->roster);
    } else if (type == HOOP_FRAME_ROSTER_PART && first) {
        hoop_tree_take_part(tree, &frame->part);
    } else {
        hoop_control_refuse(control, HOOP_MISMATCH, "it sent an unexpected %s",
                            hoop_frame_name(type));
    }
}

static void hub_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct hoop_tree *tree = arg;
    char peer[HOOP_TREE_HUB_BYTES];
    hoop_tree_describe_hub(tree, peer);
    hoop_control_destroy(control);
    tree->hub = NULL;
    if (tree->state == HOOP_TREE_REJECTING) {
        hoop_tree_send_reject(tree); /* it ended before it had heard of it, so all may be in */
    } else if (tree->state == HOOP_TREE_RUNNING || tree->sent_ready) {
        if (tree->failure.code != HOOP_OK) {
            hoop_timer_start(tree->timer, 0, 0);
        }
    } else {
        hoop_tree_fail(tree, why->code,
                       "the process %s that gathers the ranks ended during the join: %.160s", peer,
                       why->text);
    }
}

static const struct hoop_control_owner hub_owner = {
    .message = hub_message,
    .closed = hub_closed,
};

static void hub_found(void *arg, struct hoop_control *control)
{
    struct hoop_tree *tree = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    hoop_search_destroy(tree->search);
    tree->search = NULL;
    tree->hub = control;
    tree->found = true;
    hoop_control_adopt(control, &hub_owner, tree);
    if (hub_say_machine(tree, &failure) != HOOP_OK) {
        if (tree->state == HOOP_TREE_REJECTING) {
            hoop_tree_destroy(tree);
        } else {
            hoop_tree_fail_told(tree, &failure); /* the hub does not know this machine yet */
        }
        return;
    }
    if (tree->state == HOOP_TREE_REJECTING) {
        hoop_tree_send_reject(tree);
        hoop_timer_start(tree->timer, HOOP_TREE_MOMENT_MS, 0);
        return;
    }
    tree->state = HOOP_TREE_TOLD;
    for (uint32_t i = 0; i < tree->join_count; i++) {
        hoop_tree_say_join(tree, &tree->joins[i]);
    }
    hoop_tree_await(tree);
}

static void hub_missed(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_tree *tree = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    char who[192];
    if (tree->state == HOOP_TREE_REJECTING) {
        hoop_tree_destroy(tree);
        return;
    }
    hoop_tree_describe_here(tree, who, sizeof(who));
    (void)hoop_failure_set(&failure, code, -1, "%s did not find the hub: %s", who, why);
    hoop_tree_fail_told(tree, &failure);
}

static const struct hoop_search_owner hub_search_owner = {
    .found = hub_found,
    .failed = hub_missed,
};

hoop_result_t hoop_tree_seek_hub(struct hoop_tree *tree)
{
    union hoop_frame hello;
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_MACHINE;
    (void)snprintf(hello.hello.meeting, sizeof(hello.hello.meeting), "%s", tree->meeting.name);
    const struct hoop_search_order order = {
        .addresses = tree->meeting.addresses,
        .count = tree->meeting.address_count,
        .hello = &hello.hello,
        .secret = &tree->meeting.secret,
        .deadline_ns = tree->deadline_ns,
    };
    return hoop_search_create(&order, &hub_search_owner, tree, &tree->search);
}
