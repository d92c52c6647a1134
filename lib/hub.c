/*
 * The hub; see hub.h. All on the service thread.
 *
 * Who speaks here has proved that it knows the secret. It is still not believed: joins are at most
 * n, everything else comes once and in its state, and what does not fit ends the connection.
 */
#include "hub.h"
#include "base/clock.h"
#include "base/log.h"
#include "door.h"
#include "gathering.h"
#include "interface.h"
#include "meeting_file.h"
#include "memory.h"
#include "watch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUB_MACHINES (HOOP_FRAME_MAX_RANKS + 64u)
#define HUB_NAMED_MACHINES 3u /* in a sentence */
#define HUB_NO_NUMBER UINT32_MAX

enum hub_state { HUB_GATHERING, HUB_TELLING, HUB_FAILED };

/* One proven connection. */
struct hub_machine {
    struct hub_machine *next;
    struct hoop_hub *hub;
    struct hoop_control *control;
    bool known; /* its MACHINE came */
    bool told;  /* the failure */
    struct hoop_frame_machine place;
    uint32_t joined; /* how many ranks it brought */
    uint32_t number; /* in the tree; HUB_NO_NUMBER until all are there, and without ranks */
};

struct hoop_hub {
    struct hoop_hub *next;
    struct hoop_meeting meeting; /* owned copy */
    struct hoop_door *door;
    bool published; /* at the meeting's file */
    struct hoop_timer *timer;
    enum hub_state state;
    struct hub_machine *machines;
    uint32_t machine_count;
    struct hoop_gathering gathering;
    struct hub_machine **brought; /* [n]: by whom; NULL: not there, or its machine has gone */
    struct hub_machine **tree;    /* TELLING: the machines by number */
    uint32_t tree_count;
    uint32_t expected, told; /* FAILED: how many ranks may come, and how many know */
    uint8_t told_bits[HOOP_FRAME_MAX_RANKS / 8];
    struct hoop_failure failure;
};

static struct hoop_hub *hub_all;

static struct hoop_hub *hub_find(const char *name)
{
    struct hoop_hub *hub = hub_all;
    while (hub != NULL && strcmp(hub->meeting.name, name) != 0) {
        hub = hub->next;
    }
    return hub;
}

/* ---- Life --------------------------------------------------------------------------------- */

static void hub_dismiss(struct hub_machine *machine)
{
    struct hoop_hub *hub = machine->hub;
    struct hub_machine **at = &hub->machines;
    while (*at != machine) {
        at = &(*at)->next;
    }
    *at = machine->next;
    hub->machine_count--;
    for (uint32_t rank = 0; machine->joined > 0 && rank < hub->gathering.n; rank++) {
        if (hub->brought[rank] == machine) {
            hub->brought[rank] = NULL;
        }
    }
    hoop_control_destroy(machine->control);
    free(machine);
}

static void hub_destroy(struct hoop_hub *hub)
{
    struct hoop_hub **at = &hub_all;
    while (*at != NULL && *at != hub) {
        at = &(*at)->next;
    }
    if (*at == hub) {
        *at = hub->next;
    }
    if (hub->published) {
        hoop_meeting_file_withdraw(&hub->meeting);
    }
    struct hub_machine *machine = hub->machines;
    while (machine != NULL) {
        struct hub_machine *next = machine->next;
        hub_dismiss(machine);
        machine = next;
    }
    hoop_timer_destroy(hub->timer);
    hoop_door_close(hub->door);
    hoop_gathering_finish(&hub->gathering);
    hoop_meeting_finish(&hub->meeting);
    free(hub->brought);
    free(hub->tree);
    free(hub);
}

void hoop_hub_retire(const char *name)
{
    struct hoop_hub *hub = hub_find(name);
    if (hub != NULL) {
        hub_destroy(hub);
    }
}

/* ---- In words ----------------------------------------------------------------------------- */

/* "host a (10.0.0.1:4000)" */
static void hub_describe(const struct hub_machine *machine, char *ret_text, size_t bytes)
{
    char address[HOOP_ADDRESS_TEXT_BYTES];
    hoop_address_format(&machine->place.address, address, sizeof(address));
    (void)snprintf(ret_text, bytes, "host %s (%s)", machine->place.host, address);
}

/* By number, when they have one. */
static void hub_list_machines(const struct hoop_hub *hub, char *ret_text, size_t bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < hub->tree_count && i < HUB_NAMED_MACHINES && at < bytes; i++) {
        char machine[160];
        hub_describe(hub->tree[i], machine, sizeof(machine));
        at += (size_t)snprintf(ret_text + at, bytes - at, "%s%s", i == 0 ? "" : ", ", machine);
    }
    if (hub->tree_count > HUB_NAMED_MACHINES && at < bytes) {
        (void)snprintf(ret_text + at, bytes - at, " and %u more",
                       hub->tree_count - HUB_NAMED_MACHINES);
    }
}

static bool hub_is_brought(const void *arg, uint32_t rank)
{
    const struct hub_machine *machine = arg;
    return machine->hub->brought[rank] == machine;
}

/* The rank whose process spoke for the machine; -1: it is none of the ranks that joined. */
static int hub_speaker(const struct hub_machine *machine)
{
    const struct hoop_gathering *gathering = &machine->hub->gathering;
    for (uint32_t rank = 0; rank < gathering->n; rank++) {
        if (hub_is_brought(machine, rank) &&
            gathering->joins[rank]->process == machine->place.process) {
            return (int)rank;
        }
    }
    return -1;
}

/* ---- Failing ------------------------------------------------------------------------------ */

/* This rank of n knows, or needs to know nothing any more. */
static void hub_mark_told(struct hoop_hub *hub, uint32_t rank, uint32_t n)
{
    const uint8_t bit = (uint8_t)(1u << (rank % 8));
    hub->expected = n > hub->expected ? n : hub->expected;
    if ((hub->told_bits[rank / 8] & bit) == 0) {
        hub->told_bits[rank / 8] |= bit;
        hub->told++;
    }
}

/* It closes its connection when it has read this; until then its joins may still be coming. */
static void hub_reject(struct hub_machine *machine)
{
    const struct hoop_failure *failure = &machine->hub->failure;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = (int32_t)failure->code;
    frame.reject.rank = failure->rank;
    memcpy(frame.reject.text, failure->text, sizeof(frame.reject.text));
    machine->told = true;
    hoop_control_send(machine->control, &frame.header, NULL, 0);
}

/* A failed hub for which nobody can come any more is over. */
static void hub_settle(struct hoop_hub *hub)
{
    const bool all_know = hub->expected > 0 && hub->told >= hub->expected;
    if (all_know && hub->machines == NULL) {
        hub_destroy(hub);
    }
}

/*
 * Fails the join of all. The hub stays for those who come late, as long as the join could have
 * lasted, so that they learn the reason and do not wait for nobody. It may be gone afterwards.
 */
static void hub_fail(struct hoop_hub *hub, const struct hoop_failure *failure)
{
    assert(hub->state != HUB_FAILED && failure->code != HOOP_OK);
    const struct hoop_gathering *gathering = &hub->gathering;
    hub->failure = *failure;
    hub->state = HUB_FAILED;
    for (uint32_t at = 0; at < gathering->n; at++) {
        if (gathering->joins[at] != NULL) {
            hub_mark_told(hub, at, gathering->n);
        }
    }
    for (struct hub_machine *machine = hub->machines; machine != NULL; machine = machine->next) {
        if (machine->known) {
            hub_reject(machine);
        }
    }
    hoop_timer_start(
        hub->timer,
        gathering->arrived > 0 ? gathering->timeout_ms : hoop_settings()->init_timeout_ms, 0);
    hub_settle(hub);
}

static void hub_fail_missing(struct hoop_hub *hub)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    char missing[HOOP_FAILURE_TEXT_BYTES];
    char address[HOOP_ADDRESS_TEXT_BYTES];
    uint32_t count = 0;
    for (const struct hub_machine *machine = hub->machines; machine != NULL;
         machine = machine->next) {
        count += machine->joined > 0 ? 1 : 0;
    }
    hoop_gathering_describe_missing(&hub->gathering, missing, sizeof(missing));
    hoop_address_format(hoop_door_address(hub->door), address, sizeof(address));
    (void)hoop_failure_set(&failure, HOOP_TIMEOUT, -1, "%s; %u machine%s came to %s", missing,
                           count, count == 1 ? "" : "s", address);
    hub_fail(hub, &failure);
}

static void hub_fail_unready(struct hoop_hub *hub)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    char machines[HOOP_FAILURE_TEXT_BYTES];
    hub_list_machines(hub, machines, sizeof(machines));
    (void)hoop_failure_set(&failure, HOOP_TIMEOUT, -1,
                           "all %u ranks arrived, but their machines did not get ready within %llu "
                           "ms; can they reach each other? %s",
                           hub->gathering.n, (unsigned long long)hub->gathering.timeout_ms,
                           machines);
    hub_fail(hub, &failure);
}

static void hub_due(void *arg)
{
    struct hoop_hub *hub = arg;
    if (hub->state == HUB_FAILED) {
        hub_destroy(hub);
    } else if (hub->state == HUB_GATHERING) {
        hub_fail_missing(hub);
    } else {
        hub_fail_unready(hub);
    }
}

/* ---- Telling ------------------------------------------------------------------------------ */

/* By the lowest rank on each. */
static bool hub_number(struct hoop_hub *hub)
{
    hub->tree = calloc(hub->gathering.n, sizeof(struct hub_machine *));
    for (uint32_t rank = 0; hub->tree != NULL && rank < hub->gathering.n; rank++) {
        struct hub_machine *machine = hub->brought[rank];
        if (machine->number == HUB_NO_NUMBER) {
            machine->number = hub->tree_count;
            hub->tree[hub->tree_count++] = machine;
        }
    }
    return hub->tree != NULL;
}

static void hub_tell_roster(const struct hoop_hub *hub, struct hoop_control *control,
                            const struct hoop_frame_roster *roster)
{
    union hoop_frame frame;
    hoop_control_send(control, &roster->header, NULL, 0);
    for (uint32_t first = 0; first < roster->n; first += HOOP_FRAME_MAX_FDS) {
        const uint32_t left = roster->n - first;
        const uint32_t count = left < HOOP_FRAME_MAX_FDS ? left : HOOP_FRAME_MAX_FDS;
        hoop_frame_init(&frame, HOOP_FRAME_ROSTER_PART);
        hoop_frame_set_count(&frame, first, count);
        for (uint32_t i = 0; i < count; i++) {
            hoop_gathering_entry(&hub->gathering, first + i, hub->brought[first + i]->number,
                                 &frame.part.entries[i]);
        }
        hoop_control_send(control, &frame.header, NULL, 0);
    }
}

static void hub_tell(struct hoop_hub *hub)
{
    union hoop_frame frame;
    struct hoop_frame_roster roster;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    if (!hub_number(hub)) {
        (void)hoop_failure_set(&failure, HOOP_OUT_OF_MEMORY, -1, "no memory to number machines");
        hub_fail(hub, &failure);
        return;
    }
    const hoop_result_t result = hoop_gathering_roster(&hub->gathering, hub->tree_count, &roster);
    if (result != HOOP_OK) {
        (void)hoop_failure_set(&failure, result, -1, "%s", hoop_thread_error());
        hub_fail(hub, &failure);
        return;
    }
    hub->state = HUB_TELLING;
    for (uint32_t i = 0; i < hub->tree_count; i++) {
        hoop_frame_init(&frame, HOOP_FRAME_TREE);
        frame.tree.machine = i;
        frame.tree.machines = hub->tree_count;
        if (i > 0) {
            frame.tree.parent = hub->tree[(i - 1) / 2]->place.address;
        }
        hoop_control_send(hub->tree[i]->control, &frame.header, NULL, 0);
    }
    hub_tell_roster(hub, hub->tree[0]->control, &roster);
}

/* ---- What a proven connection does -------------------------------------------------------- */

/* The hub may be gone afterwards. */
static void hub_take_join(struct hub_machine *machine, const struct hoop_frame_join *join)
{
    struct hoop_hub *hub = machine->hub;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const uint64_t before = hub->gathering.deadline_ns;
    hoop_result_t result = HOOP_OK;
    if (hub->brought == NULL) {
        hub->brought = calloc(join->n, sizeof(struct hub_machine *));
    }
    if (hub->brought == NULL) {
        result = HOOP_OUT_OF_MEMORY;
        (void)hoop_failure_set(&failure, result, -1, "no memory for %u ranks", join->n);
    } else {
        result = hoop_gathering_add(&hub->gathering, join, &failure);
    }
    if (result != HOOP_OK) {
        hub_mark_told(hub, join->rank, join->n);
        hub_fail(hub, &failure);
        return;
    }
    hub->brought[join->rank] = machine;
    machine->joined++;
    if (hub->gathering.deadline_ns != before) {
        hoop_timer_start(hub->timer, join->left_ms, 0);
    }
    if (hoop_gathering_is_complete(&hub->gathering)) {
        hub_tell(hub);
    }
}

/* Only its joins are of interest: those ranks' own rendezvous tells them. */
static void hub_take_late(struct hub_machine *machine, const union hoop_frame *frame)
{
    if (frame->header.type == HOOP_FRAME_JOIN) {
        hub_mark_told(machine->hub, frame->join.rank, frame->join.n);
    }
    if (!machine->told) {
        hub_reject(machine);
    }
}

/* A machine cannot go on, so nobody can. */
static void hub_take_reject(struct hoop_hub *hub, const struct hoop_frame_reject *reject)
{
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const uint32_t n = hub->gathering.n > 0 ? hub->gathering.n : HOOP_FRAME_MAX_RANKS;
    const bool named = reject->rank < (int32_t)n;
    (void)hoop_failure_set(&failure, (hoop_result_t)reject->code, named ? reject->rank : -1, "%s",
                           reject->text);
    hub_fail(hub, &failure);
}

static void machine_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                            int *fds)
{
    struct hub_machine *machine = arg;
    struct hoop_hub *hub = machine->hub;
    const uint32_t type = frame->header.type;
    (void)fds;
    if (hub->state == HUB_FAILED) {
        hub_take_late(machine, frame);
    } else if (type == HOOP_FRAME_MACHINE && !machine->known) {
        machine->known = true;
        machine->place = frame->machine;
    } else if (type == HOOP_FRAME_JOIN && machine->known) {
        hub_take_join(machine, &frame->join);
    } else if (type == HOOP_FRAME_REJECT && machine->known) {
        hub_take_reject(hub, &frame->reject);
    } else if (type == HOOP_FRAME_READY && hub->state == HUB_TELLING && machine->number == 0) {
        hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: all %u machines are ready", hub->meeting.name,
                 hub->tree_count);
        hub_destroy(hub);
    } else {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                            hoop_frame_name(type));
    }
}

static void machine_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct hub_machine *machine = arg;
    struct hoop_hub *hub = machine->hub;
    const uint32_t joined = machine->joined;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    (void)control;
    if (joined > 0) {
        char who[160];
        char ranks[96];
        hub_describe(machine, who, sizeof(who));
        hoop_gathering_list(hub->gathering.n, hub_is_brought, machine, ranks, sizeof(ranks));
        (void)hoop_failure_set(&failure, HOOP_REMOTE_ERROR, hub_speaker(machine),
                               "%s, with %s, ended during the join: %s", who, ranks, why->text);
    }
    hub_dismiss(machine);
    if (hub->state == HUB_FAILED) {
        hub_settle(hub);
    } else if (joined > 0 && joined == hub->gathering.n) {
        hub_destroy(hub); /* they are on one machine, and found each other there */
    } else if (joined > 0) {
        hub_fail(hub, &failure);
    }
}

static const struct hoop_control_owner hub_machine_owner = {
    .message = machine_message,
    .closed = machine_closed,
};

bool hoop_hub_admit(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                    struct hoop_failure *ret_failure)
{
    const struct hoop_hub *hub = hub_find(hello->meeting);
    if (hub == NULL) {
        ret_failure->code = HOOP_AGAIN;
        (void)snprintf(ret_failure->text, sizeof(ret_failure->text),
                       "this meeting is not served here (not yet, or with another secret)");
        return false;
    }
    ret->secret = hub->meeting.secret;
    ret->hand_out = false;
    return true;
}

void hoop_hub_opened(struct hoop_control *control)
{
    struct hoop_hub *hub = hub_find(hoop_control_hello(control)->meeting);
    struct hub_machine *machine =
        hub != NULL && hub->machine_count < HUB_MACHINES ? calloc(1, sizeof(*machine)) : NULL;
    if (machine == NULL) {
        hoop_control_destroy(control); /* ended since the hello, or one too many: it tries again */
        return;
    }
    machine->hub = hub;
    machine->control = control;
    machine->number = HUB_NO_NUMBER;
    machine->next = hub->machines;
    hub->machines = machine;
    hub->machine_count++;
    hoop_control_adopt(control, &hub_machine_owner, machine);
    /* who ends here, if the join does not get so far that all are known */
    union hoop_frame gate;
    hoop_frame_init(&gate, HOOP_FRAME_GATE);
    gate.gate.pid = (int32_t)getpid();
    gate.gate.process = hoop_process_id();
    hoop_control_send(control, &gate.header, NULL, 0);
}

/* ---- Serving ------------------------------------------------------------------------------ */

/*
 * Opens the door at one of the meeting's addresses, if it is this machine's. A host's name often
 * stands for a loopback address on that very host, where no other machine would find the hub: so
 * loopback counts only if there is nothing else.
 */
static hoop_result_t hub_open_at(struct hoop_hub *hub, const struct hoop_address *address,
                                 bool loopback_only, struct hoop_failure *failure)
{
    const struct hoop_ports ports = hoop_door_ports();
    const bool loopback = hoop_address_is_loopback(address);
    char text[HOOP_ADDRESS_TEXT_BYTES];
    hoop_address_format(address, text, sizeof(text));
    if (loopback && !loopback_only) {
        return hoop_failure_set(failure, HOOP_INVALID_USAGE, -1,
                                "%s is for this machine alone, and the meeting is not", text);
    }
    if (!loopback && !hoop_interface_is_mine(address)) {
        return hoop_failure_set(failure, HOOP_INVALID_USAGE, -1,
                                "%s is not an address of this machine", text);
    }
    return hoop_door_open(address, &ports, &hub->door, failure);
}

static hoop_result_t hub_open(struct hoop_hub *hub, struct hoop_failure *failure)
{
    const struct hoop_meeting *meeting = &hub->meeting;
    char tried[HOOP_FAILURE_TEXT_BYTES] = "";
    size_t at = 0;
    bool loopback_only = true;
    hoop_result_t result = HOOP_INVALID_USAGE;
    for (uint32_t i = 0; i < meeting->address_count; i++) {
        loopback_only = loopback_only && hoop_address_is_loopback(&meeting->addresses[i]);
    }
    for (uint32_t i = 0; i < meeting->address_count; i++) {
        struct hoop_failure why = {.code = HOOP_OK, .rank = -1};
        result = hub_open_at(hub, &meeting->addresses[i], loopback_only, &why);
        if (result == HOOP_OK) {
            return HOOP_OK;
        }
        if (at < sizeof(tried)) {
            at += (size_t)snprintf(tried + at, sizeof(tried) - at, "%s%s", i == 0 ? "" : "; ",
                                   why.text);
        }
    }
    return hoop_failure_set(failure, result, -1, "the meeting cannot be served: %s", tried);
}

static hoop_result_t hub_start(struct hoop_hub *hub, const struct hoop_meeting *meeting,
                               struct hoop_failure *failure)
{
    hub->meeting = *meeting;
    hub->meeting.file = NULL;
    if (meeting->file != NULL) {
        hub->meeting.file = strdup(meeting->file);
        if (hub->meeting.file == NULL) {
            return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a hub");
        }
    }
    hoop_result_t result = hoop_timer_create(hub_due, hub, &hub->timer);
    if (result != HOOP_OK) {
        return hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
    }
    result = hub_open(hub, failure);
    if (result == HOOP_OK && hub->meeting.file != NULL) {
        result = hoop_meeting_file_publish(&hub->meeting, hoop_door_address(hub->door), failure);
        hub->published = result == HOOP_OK;
    }
    return result;
}

hoop_result_t hoop_hub_serve(const struct hoop_meeting *meeting, struct hoop_address *ret_address,
                             struct hoop_failure *failure)
{
    assert(meeting->has_secret && meeting->address_count > 0);
    struct hoop_hub *hub = hub_find(meeting->name);
    if (hub == NULL) {
        hub = calloc(1, sizeof(*hub));
        if (hub == NULL) {
            return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a hub");
        }
        hub->failure.rank = -1;
        const hoop_result_t result = hub_start(hub, meeting, failure);
        if (result != HOOP_OK) {
            hub_destroy(hub);
            return result;
        }
        hub->next = hub_all;
        hub_all = hub;
    }
    if (ret_address != NULL) {
        *ret_address = *hoop_door_address(hub->door);
    }
    return HOOP_OK;
}
