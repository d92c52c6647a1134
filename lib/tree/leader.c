/* A leader's life, the joins, and their failure; see leader.h and leader_inside.h. */
#include "tree/leader.h"
#include "base/clock.h"
#include "base/settings.h"
#include "rendezvous/file_store.h"
#include "runtime/process.h"
#include "tree/leader_inside.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hoop_list_node hoop_leaders = HOOP_LIST_EMPTY(hoop_leaders);

/* ---- Life --------------------------------------------------------------------------------- */

/* May there be ranks on other machines? */
static bool leader_spans(const struct hoop_leader *leader)
{
    return !leader->is_root && leader->rendezvous.address_count > 0;
}

/* This process's leader or root of that name, while children may come; or NULL. */
static struct hoop_leader *leader_find(const char *name, bool is_root)
{
    HOOP_LIST_EACH(struct hoop_leader, leader, &hoop_leaders, node) {
        if (leader->is_root == is_root && leader->endpoint != NULL &&
            strcmp(leader->rendezvous.name, name) == 0) {
            return leader;
        }
    }
    return NULL;
}

void hoop_leader_destroy(struct hoop_leader *leader)
{
    if (leader == NULL || leader->state == HOOP_LEADER_OVER) {
        return;
    }
    leader->state = HOOP_LEADER_OVER;
    hoop_list_remove(&leader->node);
    hoop_endpoint_expect_no_more(&leader->expectation);
    hoop_file_store_withdraw(leader->post);
    HOOP_LIST_EACH(struct hoop_edge, edge, &leader->children, node) {
        hoop_edge_destroy(edge);
    }
    hoop_tree_close(&leader->tree);
    hoop_watcher_finish(&leader->tree.watcher);
    hoop_endpoint_close(leader->endpoint);
    hoop_timer_destroy(leader->deadline);
    hoop_timer_destroy(leader->moment);
    if (leader->segment >= 0) {
        close(leader->segment);
    }
    hoop_gather_finish(&leader->gather);
    free(leader->via);
    free(leader->entries);
    free(leader->by_number);
    hoop_secret_wipe(&leader->roster, sizeof(leader->roster));
    hoop_rendezvous_finish(&leader->rendezvous);
    hoop_free_later(leader);
    hoop_flood_tell_idle();
}

static bool leader_has_ranks(const struct hoop_leader *leader)
{
    HOOP_LIST_EACH(const struct hoop_edge, edge, &leader->children, node) {
        if (edge->number != HOOP_NOBODY) {
            return true;
        }
    }
    return false;
}

void hoop_leader_settle(struct hoop_leader *leader)
{
    const struct hoop_tree *tree = &leader->tree;
    bool over = false;
    if (leader->state == HOOP_LEADER_FAILED) {
        const bool all_know = leader->expected > 0 && leader->told >= leader->expected;
        over = all_know && hoop_tree_is_closed(tree) &&
               (!leader->is_root || hoop_list_is_empty(&leader->children));
    } else if (leader->state == HOOP_LEADER_RUNNING) {
        const bool between = hoop_tree_open_count(tree) > 1 && !hoop_flood_is_over(leader);
        over = !between && tree->dialer == NULL && !leader_has_ranks(leader);
    }
    if (over) {
        hoop_leader_destroy(leader);
    }
    hoop_flood_tell_idle();
}

/* ---- Failing ------------------------------------------------------------------------------ */

/* Notes that this rank, one of up to n, knows of the failure or has ended. */
static void leader_mark_told(struct hoop_leader *leader, uint32_t rank, uint32_t n)
{
    leader->expected = n > leader->expected ? n : leader->expected;
    leader->told += hoop_rank_set_has(&leader->knows, rank) ? 0 : 1;
    hoop_rank_set_add(&leader->knows, rank);
}

/* Tells a child the failure. A machine's edge stays until the machine has read this and closes it,
 * since joins may still be on their way. */
static void leader_reject(struct hoop_edge *edge)
{
    union hoop_frame frame;
    hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, &edge->leader->failure);
    hoop_edge_send(edge, &frame);
    edge->told = true;
    if (edge->kind == HOOP_EDGE_RANK) {
        leader_mark_told(edge->leader, edge->number, edge->n);
        hoop_edge_destroy(edge);
    }
}

static void leader_reject_all(struct hoop_leader *leader)
{
    const struct hoop_gather *gather = &leader->gather;
    for (uint32_t rank = 0; leader->is_root && rank < gather->n; rank++) {
        if (gather->joins[rank] != NULL) {
            leader_mark_told(leader, rank, gather->n);
        }
    }
    HOOP_LIST_EACH(struct hoop_edge, edge, &leader->children, node) {
        if (leader->is_root ? edge->info.process != 0 : edge->number != HOOP_NOBODY) {
            leader_reject(edge);
        }
    }
}

/* The failed leader stays, so that late ranks learn the reason and do not wait in vain. */
void hoop_leader_fail(struct hoop_leader *leader, const struct hoop_failure *failure, bool told)
{
    assert(failure->code != HOOP_OK);
    if (leader->state > HOOP_LEADER_HANDING) {
        return;
    }
    leader->failure = *failure;
    leader->state = HOOP_LEADER_FAILED;
    leader_reject_all(leader);
    if (told) {
        hoop_tree_close(&leader->tree);
    } else if (leader_spans(leader)) {
        hoop_tree_reject(leader);
    }
    hoop_timer_start(leader->deadline,
                     leader->gather.arrived > 0 ? leader->gather.timeout_ms
                                                : hoop_settings()->init_timeout_ms,
                     0);
    hoop_leader_settle(leader);
}

void hoop_leader_fail_with(struct hoop_leader *leader, hoop_result_t code, int rank,
                           const char *format, ...)
{
    struct hoop_failure failure = {.code = code, .rank = rank};
    va_list args;
    va_start(args, format);
    (void)hoop_text_format(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    hoop_leader_fail(leader, &failure, false);
}

void hoop_leader_blame(const struct hoop_leader *leader, hoop_result_t code, const char *why,
                       struct hoop_failure *ret)
{
    char host[HOOP_NAME_BYTES];
    hoop_process_host(host);
    ret->code = HOOP_OK;
    (void)hoop_failure_set(ret, code, -1, "the %s (pid %d, host %s): %s",
                           leader->is_root ? "root" : "leader", (int)getpid(), host, why);
}

void hoop_leader_fail_by(struct hoop_leader *leader, hoop_result_t code)
{
    struct hoop_failure failure;
    hoop_leader_blame(leader, code, hoop_thread_error(), &failure);
    hoop_leader_fail(leader, &failure, false);
}

static void leader_moment(void *arg)
{
    struct hoop_leader *leader = arg;
    if (leader->state == HOOP_LEADER_FAILED) {
        hoop_tree_close(&leader->tree);
        hoop_leader_settle(leader);
    } else if (leader->state < HOOP_LEADER_RUNNING) {
        const struct hoop_failure feared = leader->tree.feared;
        hoop_leader_fail(leader, &feared, false);
    }
}

/* ---- Deadlines ---------------------------------------------------------------------------- */

static void leader_fail_missing(struct hoop_leader *leader)
{
    const char *hint = leader->rendezvous.hint;
    char missing[HOOP_FAILURE_TEXT_BYTES];
    hoop_gather_describe_missing(&leader->gather, missing, sizeof(missing));
    hoop_leader_fail_with(leader, HOOP_TIMEOUT, -1, "%s%s%s", missing, hint != NULL ? "; " : "",
                          hint != NULL ? hint : "");
}

static bool leader_is_unready(const void *arg, uint32_t rank)
{
    const struct hoop_leader *leader = arg;
    return leader->via[rank] != NULL && !leader->via[rank]->ready;
}

static void leader_fail_unready(struct hoop_leader *leader)
{
    char ranks[128];
    hoop_gather_list(leader->n, leader_is_unready, leader, ranks, sizeof(ranks));
    hoop_leader_fail_with(leader, HOOP_TIMEOUT, -1,
                          "%s of %u arrived, but did not get ready within %llu ms", ranks,
                          leader->n, (unsigned long long)leader->gather.timeout_ms);
}

/* Fails because the root is silent. */
static void leader_fail_unheard(struct hoop_leader *leader)
{
    const struct hoop_edge *root = &leader->tree.root;
    const unsigned long long ms = leader->gather.timeout_ms;
    char who[HOOP_ADDRESS_TEXT_BYTES + 32] = "nowhere";
    if (leader->tree.machines > 0) {
        hoop_leader_fail_with(
            leader, HOOP_TIMEOUT, -1,
            "all ranks arrived, but their machines did not get ready within %llu ms", ms);
        return;
    }
    if (hoop_edge_is_open(root)) {
        hoop_edge_describe(root, who, sizeof(who));
    }
    hoop_leader_fail_with(leader, HOOP_TIMEOUT, -1,
                          "the process %s that gathers the ranks did not complete the join within "
                          "%llu ms: is it stopped?",
                          who, ms);
}

static void leader_due(void *arg)
{
    struct hoop_leader *leader = arg;
    const uint64_t grace_ns = HOOP_LEADER_GRACE_MS * HOOP_NS_PER_MS;
    const bool unready = leader->state == HOOP_LEADER_HANDING && leader->known == leader->n &&
                         leader->ready < leader->gather.arrived;
    if (leader->state == HOOP_LEADER_FAILED) {
        hoop_leader_destroy(leader);
    } else if (leader->is_root) {
        hoop_root_due(leader);
    } else if (unready) {
        leader_fail_unready(leader);
    } else if (!leader_spans(leader)) {
        leader_fail_missing(leader);
    } else if (hoop_now_ns() < leader->gather.deadline_ns + grace_ns) {
        hoop_timer_start(leader->deadline, HOOP_LEADER_GRACE_MS, 0);
    } else {
        leader_fail_unheard(leader);
    }
}

/* ---- Joins -------------------------------------------------------------------------------- */

static bool leader_is_here(const void *arg, uint32_t rank)
{
    const struct hoop_leader *leader = arg;
    return leader->gather.joins[rank] != NULL;
}

void hoop_leader_describe_here(const struct hoop_leader *leader, char *ret_text, size_t bytes)
{
    char ranks[96];
    char host[HOOP_NAME_BYTES];
    hoop_process_host(host);
    hoop_gather_list(leader->n, leader_is_here, leader, ranks, sizeof(ranks));
    (void)snprintf(ret_text, bytes, "%s of %u (host %s)", ranks, leader->n, host);
}

/* All n ranks joined on this machine, and by the launcher's numbers all may belong here. */
static void leader_complete(struct hoop_leader *leader)
{
    if (!hoop_handout_make(leader)) {
        return;
    }
    if (leader_spans(leader)) {
        hoop_tree_excuse(leader);
    }
    hoop_handout_begin(leader);
}

/* Adds a join, of which the first one determines n. Fails if it contradicts an earlier one. */
static hoop_result_t leader_add(struct hoop_leader *leader, const struct hoop_frame_join *join,
                                struct hoop_failure *failure)
{
    if (leader->via == NULL) {
        leader->via = calloc(join->n, sizeof(struct hoop_edge *));
        leader->n = leader->via != NULL ? join->n : 0;
    }
    if (leader->via == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for %u ranks", join->n);
    }
    const hoop_result_t result = hoop_gather_add(&leader->gather, join, failure);
    if (result != HOOP_OK || leader->state == HOOP_LEADER_GATHERING) {
        return result;
    }
    return hoop_failure_set(failure, HOOP_INVALID_USAGE, (int)join->rank,
                            "rank %u joined twice: the second time as pid %d on host %s",
                            join->rank, join->who.pid, join->who.host);
}

/* Goes on after a join that was added. */
static void leader_welcome(struct hoop_edge *edge, const struct hoop_frame_join *join)
{
    struct hoop_leader *leader = edge->leader;
    const bool complete = hoop_gather_is_complete(&leader->gather);
    leader->via[join->rank] = edge;
    edge->joined++;
    hoop_timer_start(leader->deadline, hoop_left_ms(leader->gather.deadline_ns), 0);
    if (complete && leader->is_root) {
        hoop_root_complete(leader);
    } else if (complete && hoop_rendezvous_is_whole_here(&leader->rendezvous, leader->n)) {
        leader_complete(leader);
    } else if (leader_spans(leader)) {
        hoop_tree_join(leader, join);
    }
}

/* Assigns the joining rank to its edge. Each rank has an edge of its own. */
static bool leader_take_rank(struct hoop_edge *edge, const struct hoop_frame_join *join)
{
    const struct hoop_leader *leader = edge->leader;
    const uint32_t local_n = leader->rendezvous.local_n;
    if (edge->number != HOOP_NOBODY || join->rank != edge->claims) {
        return false;
    }
    edge->number = join->rank;
    edge->n = leader_spans(leader) && local_n != 0 ? local_n : join->n;
    edge->info.process = join->who.process;
    edge->info.pid = join->who.pid;
    memcpy(edge->info.host, join->who.host, sizeof(edge->info.host));
    return true;
}

bool hoop_leader_take_join(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    const struct hoop_frame_join *join = &frame->join;
    if (leader->is_root ? edge->info.address.family == 0 : !leader_take_rank(edge, join)) {
        return false;
    }
    if (leader_add(leader, join, &failure) == HOOP_OK) {
        leader_welcome(edge, join);
        return true;
    }
    if (leader->is_root) {
        leader_mark_told(leader, join->rank, join->n);
    }
    if (failure.code == HOOP_OUT_OF_MEMORY) {
        hoop_leader_fail_by(leader, hoop_error(failure.code, "%s", failure.text));
    } else {
        hoop_leader_fail(leader, &failure, false);
    }
    return true;
}

bool hoop_leader_take_late(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    const bool join = frame->header.type == HOOP_FRAME_JOIN;
    if (leader->is_root) { /* their leaders tell the ranks */
        if (join) {
            leader_mark_told(leader, frame->join.rank, frame->join.n);
        }
        if (!edge->told) {
            leader_reject(edge);
        }
        return true;
    }
    if (!join || !leader_take_rank(edge, &frame->join)) {
        return false;
    }
    leader_reject(edge);
    hoop_leader_settle(leader);
    return true;
}

/* A rank cannot join or use what it got, or a machine cannot go on: so the comm fails. Who is above
 * or a neighbour tells it to all machines. */
bool hoop_leader_take_reject(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    struct hoop_failure failure = hoop_frame_to_failure(&frame->reject);
    if (edge->kind == HOOP_EDGE_RANK) {
        char who[160];
        leader_mark_told(leader, edge->claims, edge->n);
        hoop_edge_describe(edge, who, sizeof(who));
        hoop_leader_fail_with(leader, failure.code, (int)edge->claims, "%s: %.240s", who,
                              failure.text);
        return true;
    }
    if (edge->kind == HOOP_EDGE_MACHINE && edge->info.process == 0) {
        return false;
    }
    const uint32_t n = leader->n > 0 ? leader->n : HOOP_MAX_RANKS;
    failure.rank = failure.rank < (int32_t)n ? failure.rank : -1;
    hoop_leader_fail(leader, &failure, edge->kind != HOOP_EDGE_MACHINE);
    return true;
}

void hoop_leader_lose_rank(struct hoop_edge *edge, const char *who, const struct hoop_failure *why)
{
    struct hoop_leader *leader = edge->leader;
    const bool mine = hoop_result_is_own(why->code);
    if (leader->state == HOOP_LEADER_RUNNING && edge->number != HOOP_NOBODY) {
        hoop_flood_lose_rank(edge);
        return;
    }
    if (edge->number == HOOP_NOBODY && !mine) { /* it may come again */
        hoop_edge_destroy(edge);
        return;
    }
    leader_mark_told(leader, edge->claims, edge->n);
    hoop_edge_destroy(edge);
    if (!mine) {
        hoop_leader_fail_with(leader, HOOP_REMOTE_ERROR, (int)edge->claims,
                              "%s ended during the join: %.200s", who, why->text);
    } else {
        (void)hoop_error(why->code, "rank %u was lost: %.200s", edge->claims, why->text);
        hoop_leader_fail_by(leader, why->code);
    }
}

/* ---- Serving ------------------------------------------------------------------------------ */

hoop_result_t hoop_leader_place(const struct hoop_rendezvous *rendezvous, struct hoop_place *ret)
{
    static const struct hoop_secret none = {.bytes = {0}}; /* the hash only makes a name */
    const char *host_id = hoop_settings()->host_id;
    uint8_t mac[HOOP_MAC_BYTES];
    uint64_t hash = 0;
    memset(ret, 0, sizeof(*ret));
    if (rendezvous->address_count == 0 || host_id == NULL) {
        (void)snprintf(ret->name, sizeof(ret->name), "%s", rendezvous->name);
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_hmac(&none, "hoop machine", rendezvous->name,
                                           strlen(rendezvous->name), host_id, strlen(host_id), mac);
    memcpy(&hash, mac, sizeof(hash));
    (void)snprintf(ret->name, sizeof(ret->name), "%.46s-%016llx", rendezvous->name,
                   (unsigned long long)hash);
    return result;
}

/* Its join, and that of a root or leader of the same name here, fails in half the time after which
 * others would take this process for dead, or if less is left of the join. */
static void leader_starved(void *arg, uint64_t ms, const struct hoop_failure *why)
{
    const struct hoop_leader *starved = arg;
    HOOP_LIST_EACH(struct hoop_leader, leader, &hoop_leaders, node) {
        const bool mine = strcmp(leader->rendezvous.name, starved->rendezvous.name) == 0;
        const bool waits =
            leader->state == HOOP_LEADER_GATHERING ||
            (leader->state == HOOP_LEADER_HANDING && !hoop_tree_is_ready(&leader->tree));
        const bool due =
            ms >= hoop_settings()->dead_after_ms / 2 ||
            (leader->gather.arrived > 0 && ms >= hoop_left_ms(leader->gather.deadline_ns));
        if (mine && waits && due) {
            hoop_leader_blame(leader, why->code, why->text, &leader->tree.feared);
            hoop_timer_start(leader->moment, 0, 0);
        }
    }
}

void hoop_leader_expect(struct hoop_leader *leader, enum hoop_hello_kind kind,
                        struct hoop_endpoint *endpoint, struct hoop_expectation *expectation,
                        void (*opened)(void *arg, struct hoop_connection *connection))
{
    expectation->hello = (struct hoop_frame_hello){.kind = kind};
    memcpy(expectation->hello.rendezvous, leader->rendezvous.name, HOOP_NAME_BYTES);
    expectation->secret = &leader->rendezvous.secret;
    expectation->opened = opened;
    expectation->starved = leader_starved;
    expectation->arg = leader;
    hoop_endpoint_expect(endpoint, expectation);
}

/* Opens its endpoint and expects ranks. */
static hoop_result_t leader_open(struct hoop_leader *leader)
{
    struct hoop_place place;
    hoop_result_t result = hoop_leader_place(&leader->rendezvous, &place);
    if (result == HOOP_OK) {
        result = hoop_endpoint_open(&place, NULL, &leader->endpoint);
    }
    if (result == HOOP_OK) {
        hoop_leader_expect(leader, HOOP_HELLO_RANK, leader->endpoint, &leader->expectation,
                           hoop_edge_opened);
    }
    return result;
}

/* Makes a leader or a root. After a failure *ret_leader may be half made; destroy it. */
static hoop_result_t leader_create(const struct hoop_rendezvous *rendezvous, bool is_root,
                                   struct hoop_leader **ret_leader)
{
    struct hoop_leader *leader = *ret_leader = calloc(1, sizeof(*leader));
    if (leader == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a leader");
    }
    leader->is_root = is_root;
    leader->rendezvous = *rendezvous;
    leader->rendezvous.file = NULL;
    leader->failure.rank = -1;
    leader->segment = -1;
    leader->state = HOOP_LEADER_GATHERING;
    hoop_list_init(&leader->children);
    hoop_tree_init(leader);
    hoop_list_push_back(&hoop_leaders, &leader->node);
    hoop_result_t result = hoop_timer_create(leader_due, leader, &leader->deadline);
    if (result == HOOP_OK) {
        result = hoop_timer_create(leader_moment, leader, &leader->moment);
    }
    return result;
}

/* Finds this process's leader or root of the rendezvous, or starts one. */
static hoop_result_t leader_serve(const struct hoop_rendezvous *rendezvous, bool is_root,
                                  struct hoop_leader **ret_leader)
{
    *ret_leader = leader_find(rendezvous->name, is_root);
    if (*ret_leader != NULL) {
        return HOOP_OK;
    }
    hoop_result_t result = leader_create(rendezvous, is_root, ret_leader);
    assert(result != HOOP_OK || *ret_leader != NULL);
    if (result == HOOP_OK) {
        result = is_root ? hoop_root_start(*ret_leader, rendezvous) : leader_open(*ret_leader);
    }
    if (result != HOOP_OK) {
        hoop_leader_destroy(*ret_leader);
    }
    return result;
}

hoop_result_t hoop_leader_serve(const struct hoop_rendezvous *rendezvous)
{
    struct hoop_leader *leader = NULL;
    return leader_serve(rendezvous, false, &leader);
}

hoop_result_t hoop_leader_begin(struct hoop_rendezvous *rendezvous)
{
    const bool is_root = rendezvous->address_count > 0;
    struct hoop_leader *leader = NULL;
    const hoop_result_t result = leader_serve(rendezvous, is_root, &leader);
    if (result == HOOP_OK && is_root) {
        rendezvous->addresses[0] = *hoop_endpoint_address(leader->endpoint);
    }
    return result;
}

hoop_result_t hoop_leader_reach(const struct hoop_rendezvous *rendezvous, uint32_t rank,
                                struct hoop_connection **ret_end)
{
    struct hoop_leader *leader = leader_find(rendezvous->name, false);
    const struct hoop_frame_hello hello = {.kind = HOOP_HELLO_RANK, .from = rank};
    struct hoop_connection *ends[2];
    if (leader == NULL ||
        !hoop_mac_equal(rendezvous->secret.bytes, leader->rendezvous.secret.bytes)) {
        return HOOP_AGAIN;
    }
    const hoop_result_t result = hoop_connection_pair(&hello, ends);
    if (result == HOOP_OK) {
        hoop_edge_opened(leader, ends[1]);
        *ret_end = ends[0];
    }
    return result;
}

void hoop_leader_retire(const char *name, bool done)
{
    struct hoop_leader *leader = leader_find(name, false), *root = leader_find(name, true);
    if (leader != NULL && hoop_list_is_empty(&leader->children)) {
        hoop_leader_destroy(leader);
    }
    if (done) {
        hoop_leader_destroy(root);
    } else if (root != NULL && root->state < HOOP_LEADER_RUNNING) {
        hoop_leader_blame(root, HOOP_REMOTE_ERROR, "this process gave up the join",
                          &root->tree.feared);
        hoop_timer_start(root->moment, HOOP_MOMENT_MS, 0);
    }
}
