/*
 * The root: a leader whose children are the leaders of machines; see leader.h and leader_inside.h.
 * It runs in the process that serves the rendezvous, at a TCP port of one of its addresses, from
 * its first use until all ranks are in or the join has failed.
 *
 * When all ranks have joined, the root numbers the machines by their lowest ranks. It tells each
 * its number and its parent's address in a binary heap (PLACE; the parent of i is (i-1)/2), and
 * gives the roster to machine 0. READY from machine 0 says that all ranks are in. An earlier READY,
 * from a machine that brought all ranks so far, says that the other ranks were found on that
 * machine.
 *
 * If a machine's connection ends before that, the join fails, unless the machine had brought all n
 * ranks (then they need no root) or none. Whoever gets a REJECT closes its connection.
 */
#include "base/clock.h"
#include "base/log.h"
#include "net/interface.h"
#include "net/port_holder.h"
#include "rendezvous/file_store.h"
#include "tree/leader.h"
#include "tree/leader_inside.h"
#include <stdio.h>
#include <stdlib.h>

#define ROOT_NAMED_MACHINES 3u /* in an error */

/* ---- In words ----------------------------------------------------------------------------- */

/* "host a (10.0.0.1:4000)" */
static void root_describe(const struct hoop_edge *machine, char *ret_text, size_t bytes)
{
    char address[HOOP_ADDRESS_TEXT_BYTES];
    hoop_address_format(&machine->info.address, address, sizeof(address));
    (void)snprintf(ret_text, bytes, "host %s (%s)", machine->info.host, address);
}

/* Lists machines by number. */
static void root_list_machines(const struct hoop_leader *root, char *ret_text, size_t bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < root->machines && i < ROOT_NAMED_MACHINES; i++) {
        char machine[160];
        root_describe(root->by_number[i], machine, sizeof(machine));
        hoop_text_append(ret_text, bytes, &at, "%s%s", i == 0 ? "" : ", ", machine);
    }
    if (root->machines > ROOT_NAMED_MACHINES) {
        hoop_text_append(ret_text, bytes, &at, " and %u more",
                         root->machines - ROOT_NAMED_MACHINES);
    }
}

static bool root_is_brought(const void *arg, uint32_t rank)
{
    const struct hoop_edge *machine = arg;
    return machine->leader->via[rank] == machine;
}

/* The rank in whose process the machine's leader runs; -1 if that process has none that joined. */
static int root_speaker(const struct hoop_edge *machine)
{
    const struct hoop_gather *gather = &machine->leader->gather;
    for (uint32_t rank = 0; rank < gather->n; rank++) {
        if (root_is_brought(machine, rank) &&
            gather->joins[rank]->who.process == machine->info.process) {
            return (int)rank;
        }
    }
    return -1;
}

/* ---- Deadlines ---------------------------------------------------------------------------- */

static void root_fail_missing(struct hoop_leader *root)
{
    char missing[HOOP_FAILURE_TEXT_BYTES];
    char address[HOOP_ADDRESS_TEXT_BYTES];
    uint32_t count = 0;
    HOOP_LIST_EACH(const struct hoop_edge, machine, &root->children, node) {
        count += machine->joined > 0 ? 1 : 0;
    }
    hoop_gather_describe_missing(&root->gather, missing, sizeof(missing));
    hoop_address_format(hoop_endpoint_address(root->endpoint), address, sizeof(address));
    hoop_leader_fail_with(root, HOOP_TIMEOUT, -1, "%s; %u machine%s connected to %s", missing,
                          count, count == 1 ? "" : "s", address);
}

static void root_fail_unready(struct hoop_leader *root)
{
    char machines[HOOP_FAILURE_TEXT_BYTES];
    root_list_machines(root, machines, sizeof(machines));
    hoop_leader_fail_with(root, HOOP_TIMEOUT, -1,
                          "all %u ranks arrived, but their machines did not get ready within %llu "
                          "ms; can they reach each other? %s",
                          root->n, (unsigned long long)root->gather.timeout_ms, machines);
}

void hoop_root_due(struct hoop_leader *root)
{
    const uint64_t grace_ns = HOOP_ROOT_GRACE_MS * HOOP_NS_PER_MS;
    if (root->state == HOOP_LEADER_GATHERING) {
        root_fail_missing(root);
    } else if (hoop_now_ns() < root->gather.deadline_ns + grace_ns) {
        hoop_timer_start(root->deadline, HOOP_ROOT_GRACE_MS, 0);
    } else {
        root_fail_unready(root);
    }
}

/* ---- All are there ------------------------------------------------------------------------ */

/* Numbers the machines by the lowest rank on each. */
static bool root_number(struct hoop_leader *root)
{
    root->by_number = calloc(root->n, sizeof(struct hoop_edge *));
    for (uint32_t rank = 0; root->by_number != NULL && rank < root->n; rank++) {
        struct hoop_edge *machine = root->via[rank];
        if (machine->number == HOOP_NOBODY) {
            machine->number = root->machines;
            root->by_number[root->machines++] = machine;
        }
    }
    return root->by_number != NULL;
}

void hoop_root_complete(struct hoop_leader *root)
{
    union hoop_frame frame;
    if (!root_number(root)) {
        hoop_leader_fail_by(root, hoop_error(HOOP_OUT_OF_MEMORY, "no memory to number machines"));
        return;
    }
    if (!hoop_handout_make(root)) {
        return;
    }
    for (uint32_t i = 0; i < root->machines; i++) {
        hoop_frame_init(&frame, HOOP_FRAME_PLACE);
        frame.place.machine = i;
        frame.place.machines = root->machines;
        if (i > 0) {
            frame.place.parent = root->by_number[(i - 1) / 2]->info.address;
        }
        hoop_edge_send(root->by_number[i], &frame);
    }
    hoop_handout_send(root, root->by_number[0]);
}

bool hoop_root_take_ready(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *root = edge->leader;
    const bool found_each_other = root->state == HOOP_LEADER_GATHERING && edge->info.process != 0 &&
                                  edge->joined == root->gather.arrived;
    (void)frame;
    if (!found_each_other && edge->number != 0) {
        return false;
    }
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: all are ready", root->rendezvous.name);
    hoop_leader_destroy(root);
    return true;
}

void hoop_root_lose_machine(struct hoop_edge *edge, const struct hoop_failure *why)
{
    struct hoop_leader *root = edge->leader;
    const uint32_t joined = edge->joined;
    const bool mine = hoop_result_is_own(why->code);
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    char who[160];
    char ranks[96] = "no rank yet";
    root_describe(edge, who, sizeof(who));
    if (joined > 0) {
        hoop_gather_list(root->n, root_is_brought, edge, ranks, sizeof(ranks));
        (void)hoop_failure_set(&failure, HOOP_REMOTE_ERROR, root_speaker(edge),
                               "%s, with %s, ended during the join: %s", who, ranks, why->text);
    }
    hoop_edge_destroy(edge);
    if (root->state == HOOP_LEADER_FAILED) {
        hoop_leader_settle(root);
    } else if (joined > 0 && joined == root->gather.n) {
        hoop_leader_destroy(root); /* they are on one machine, and found each other there */
    } else if (mine) {             /* that machine was let in, and would not come again */
        (void)hoop_error(why->code, "%s, with %s, was lost: %.160s", who, ranks, why->text);
        hoop_leader_fail_by(root, why->code);
    } else if (joined > 0) {
        hoop_leader_fail(root, &failure, false);
    }
}

/* ---- Serving ------------------------------------------------------------------------------ */

/*
 * Is the port taken by another user's process? Then using the next address would not help: all
 * machines would dial that process first, and wait for its answer.
 */
static bool root_is_foreign(const struct hoop_address *address)
{
    struct hoop_port_holder holder;
    return address->port != 0 && hoop_port_holder(address->port, &holder) && holder.uid != 0 &&
           holder.uid != geteuid();
}

/*
 * Opens the endpoint at one of the rendezvous's addresses, if that is this machine's. A machine's
 * own name often resolves to loopback, where no other machine would find the root; so loopback
 * counts only if there is nothing else.
 */
static hoop_result_t root_open_at(struct hoop_leader *root, const struct hoop_address *address,
                                  bool loopback_only, bool *ret_foreign)
{
    const struct hoop_ports ports = hoop_port_range();
    const struct hoop_place place = {.address = *address};
    const bool loopback = hoop_address_is_loopback(address);
    char text[HOOP_ADDRESS_TEXT_BYTES];
    bool mine = false;
    hoop_address_format(address, text, sizeof(text));
    if (loopback && !loopback_only) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%s is a loopback address, where ranks of other machines cannot meet",
                          text);
    }
    hoop_result_t result = hoop_interface_is_mine(address, &mine);
    if (result == HOOP_OK && !mine) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is not an address of this machine", text);
    }
    if (result == HOOP_OK) {
        result = hoop_endpoint_open(&place, &ports, &root->endpoint);
    }
    *ret_foreign = result == HOOP_INVALID_USAGE && root_is_foreign(address);
    return result;
}

static hoop_result_t root_open(struct hoop_leader *root)
{
    const struct hoop_rendezvous *rendezvous = &root->rendezvous;
    char tried[HOOP_FAILURE_TEXT_BYTES] = "";
    size_t at = 0;
    bool loopback_only = true;
    bool foreign = false;
    hoop_result_t result = HOOP_INVALID_USAGE;
    for (uint32_t i = 0; i < rendezvous->address_count; i++) {
        loopback_only = loopback_only && hoop_address_is_loopback(&rendezvous->addresses[i]);
    }
    for (uint32_t i = 0; i < rendezvous->address_count && !foreign; i++) {
        result = root_open_at(root, &rendezvous->addresses[i], loopback_only, &foreign);
        if (result == HOOP_OK) {
            return HOOP_OK;
        }
        hoop_text_append(tried, sizeof(tried), &at, "%s%s", i == 0 ? "" : "; ",
                         hoop_thread_error());
    }
    return foreign ? hoop_error(result,
                                "the rendezvous cannot be served: %s; a port that another user "
                                "holds is not skipped: all machines would look there first",
                                hoop_thread_error())
                   : hoop_error(result, "the rendezvous cannot be served: %s", tried);
}

hoop_result_t hoop_root_start(struct hoop_leader *root, const struct hoop_rendezvous *rendezvous)
{
    const hoop_result_t result = root_open(root);
    if (result != HOOP_OK) {
        return result;
    }
    root->expectation.label = root->rendezvous.job;
    hoop_leader_expect(root, HOOP_HELLO_TO_ROOT, root->endpoint, &root->expectation,
                       hoop_edge_opened);
    return rendezvous->file == NULL
               ? HOOP_OK
               : hoop_file_store_publish(rendezvous, hoop_endpoint_address(root->endpoint),
                                         &root->post);
}
