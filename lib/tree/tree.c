/*
 * A leader's place among those of other machines: the root, and its neighbours in the tree; see
 * leader_inside.h.
 *
 *      leader                                  root
 *      HELLO {to root} ... WELCOME
 *      INFO                        ---->
 *      (each rank here is told this machine's address, opens a port there and tells it: INFO both
 *      ways)
 *      JOIN ..., with those ports  ---->
 *                                  <----       INFO; PLACE
 *      child                                   parent
 *      HELLO {to parent} ... WELCOME
 *      INFO                        ---->
 *                                  <----       INFO; what is there of the roster, then the rest
 *      READY, when all below are   ---->
 *                                  <----       GO
 *
 * The root sends PLACE to all at once. A child that comes before its parent knows its own number is
 * not expected yet, and tries again. The root ends when all are ready; so its end means something
 * only until this machine has said READY. Until then it also tells all machines why a join failed;
 * without it the reason travels along the tree.
 */
#include "base/clock.h"
#include "base/log.h"
#include "net/interface.h"
#include "tree/leader.h"
#include "tree/leader_inside.h"
#include <string.h>

_Static_assert((int)HOOP_RENDEZVOUS_ADDRESSES <= (int)HOOP_DIALER_PLACES, "all can be dialled");

/* ---- Neighbours in the tree --------------------------------------------------------------- */

void hoop_tree_init(struct hoop_leader *leader)
{
    struct hoop_tree *tree = &leader->tree;
    hoop_edge_init(&tree->root, leader, HOOP_EDGE_ROOT);
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        hoop_edge_init(&tree->neighbours[i], leader, i == 0 ? HOOP_EDGE_PARENT : HOOP_EDGE_CHILD);
    }
}

void hoop_tree_send(const struct hoop_tree *tree, const union hoop_frame *frame,
                    const struct hoop_edge *but)
{
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        if (&tree->neighbours[i] != but) {
            hoop_edge_send(&tree->neighbours[i], frame);
        }
    }
}

void hoop_tree_send_down(const struct hoop_tree *tree, const union hoop_frame *frame)
{
    hoop_tree_send(tree, frame, &tree->neighbours[0]);
}

static bool tree_wants(const struct hoop_tree *tree, uint32_t child)
{
    return 2 * tree->machine + child < tree->machines;
}

bool hoop_tree_is_ready(const struct hoop_tree *tree)
{
    for (uint32_t child = 1; child < HOOP_NEIGHBOURS; child++) {
        const struct hoop_edge *edge = &tree->neighbours[child];
        if (tree_wants(tree, child) && !(hoop_edge_is_open(edge) && edge->ready)) {
            return false;
        }
    }
    return true;
}

uint32_t hoop_tree_open_count(const struct hoop_tree *tree)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        count += hoop_edge_is_open(&tree->neighbours[i]) ? 1 : 0;
    }
    return count;
}

/* The child's place that this hello is for; NULL if there is none, or it is ready already. */
static struct hoop_edge *tree_child_for(struct hoop_tree *tree,
                                        const struct hoop_frame_hello *hello)
{
    const uint32_t child = hello->from - 2 * tree->machine;
    const bool fits = hello->to == tree->machine && child > 0 && child < HOOP_NEIGHBOURS &&
                      tree_wants(tree, child);
    return fits && !tree->neighbours[child].ready ? &tree->neighbours[child] : NULL;
}

static void tree_opened(void *arg, struct hoop_connection *connection)
{
    struct hoop_leader *leader = arg;
    struct hoop_tree *tree = &leader->tree;
    const struct hoop_frame_hello *hello = hoop_connection_about(connection)->hello;
    struct hoop_edge *edge = tree_child_for(tree, hello);
    if (edge == NULL || leader->state > HOOP_LEADER_HANDING) {
        hoop_connection_destroy(connection);
        return;
    }
    if (edge->number != HOOP_NOBODY) { /* it reconnected: the old connection is stale, and the
                                        * failure that its end may have caused is withdrawn */
        hoop_edge_end(edge);
        tree->feared.code = HOOP_OK;
        hoop_timer_stop(leader->moment);
    }
    edge->number = hello->from;
    hoop_edge_adopt(edge, connection);
    hoop_edge_say_info(edge);
    hoop_handout_send(leader, edge);
}

/* ---- Looking for those above -------------------------------------------------------------- */

static void tree_stop_dialling(struct hoop_tree *tree)
{
    hoop_lookup_stop(tree->lookup);
    tree->lookup = NULL;
    hoop_dialer_destroy(tree->dialer);
    tree->dialer = NULL;
}

static void tree_dial(struct hoop_leader *leader, const struct hoop_place *places, uint32_t count,
                      uint64_t deadline_ns, enum hoop_hello_kind kind,
                      const struct hoop_dialer_owner *owner)
{
    struct hoop_tree *tree = &leader->tree;
    struct hoop_dialer_order order = {
        .places = places,
        .count = count,
        .hello = {.kind = kind},
        .secret = &leader->rendezvous.secret,
        .deadline_ns = deadline_ns,
    };
    if (kind == HOOP_HELLO_TO_PARENT) {
        order.hello.from = tree->machine;
        order.hello.to = tree->neighbours[0].number;
    }
    memcpy(order.hello.rendezvous, leader->rendezvous.name, sizeof(order.hello.rendezvous));
    const hoop_result_t result = hoop_dialer_create(&order, owner, leader, &tree->dialer);
    if (result != HOOP_OK && leader->state == HOOP_LEADER_GATHERING) {
        hoop_leader_fail_by(leader, result);
    } /* else the leader needs nobody any more */
}

static void tree_found_parent(void *arg, struct hoop_connection *connection)
{
    struct hoop_leader *leader = arg;
    tree_stop_dialling(&leader->tree);
    hoop_edge_adopt(&leader->tree.neighbours[0], connection);
    hoop_edge_say_info(&leader->tree.neighbours[0]);
}

static void tree_missed_parent(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_leader *leader = arg;
    char who[192];
    tree_stop_dialling(&leader->tree);
    hoop_leader_describe_here(leader, who, sizeof(who));
    hoop_leader_fail_with(leader, code, -1,
                          "%s cannot reach the machine that connects them with the others: %s", who,
                          why);
}

static const struct hoop_dialer_owner tree_parent_owner = {
    .found = tree_found_parent,
    .failed = tree_missed_parent,
};

static void tree_seek_parent(struct hoop_leader *leader, const struct hoop_address *parent)
{
    struct hoop_tree *tree = &leader->tree;
    const uint64_t left_ms = hoop_left_ms(leader->gather.deadline_ns);
    const uint64_t spare_ms =
        left_ms / 4 < HOOP_PARENT_SPARE_MS ? left_ms / 4 : HOOP_PARENT_SPARE_MS;
    struct hoop_place place = {.address = *parent};
    hoop_address_rescope(&place.address, hoop_endpoint_address(tree->endpoint));
    tree->neighbours[0].number = (tree->machine - 1) / 2;
    tree_dial(leader, &place, 1, leader->gather.deadline_ns - spare_ms * HOOP_NS_PER_MS,
              HOOP_HELLO_TO_PARENT, &tree_parent_owner);
}

bool hoop_tree_take_place(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    struct hoop_tree *tree = &leader->tree;
    if (tree->machines != 0 || tree->endpoint == NULL) {
        return false;
    }
    tree->machine = frame->place.machine;
    tree->machines = frame->place.machines;
    hoop_leader_expect(leader, HOOP_HELLO_TO_PARENT, tree->endpoint, &tree->children, tree_opened);
    if (tree->machine != 0) {
        tree_seek_parent(leader, &frame->place.parent);
    }
    return true;
}

/* ---- The root ----------------------------------------------------------------------------- */

/* Passes a join to the root, with the deadline of this machine's least patient rank. */
static void tree_say_join(const struct hoop_leader *leader, const struct hoop_frame_join *join)
{
    const uint64_t left_ms = hoop_left_ms(leader->gather.deadline_ns);
    const uint64_t timeout_ms = leader->gather.timeout_ms;
    union hoop_frame frame;
    frame.join = *join;
    frame.join.timeout_ms = timeout_ms;
    frame.join.left_ms = left_ms < timeout_ms ? left_ms : timeout_ms;
    hoop_edge_send(&leader->tree.root, &frame);
}

/* A rank has said at which address its process listens, which completes its join. */
bool hoop_tree_take_address(struct hoop_edge *edge, const union hoop_frame *frame)
{
    struct hoop_leader *leader = edge->leader;
    if (edge->number == HOOP_NOBODY || leader->tree.endpoint == NULL ||
        frame->info.address.family == 0) {
        return leader->state == HOOP_LEADER_HANDING; /* all are here, so the answer is not needed */
    }
    struct hoop_frame_join *join = leader->gather.joins[edge->number];
    const bool news = join->who.address.family == 0;
    join->who.address = frame->info.address;
    if (news) {
        tree_say_join(leader, join);
    }
    return news;
}

/* Listens for children, at the address from which this machine reached the root. */
static hoop_result_t tree_listen(struct hoop_leader *leader)
{
    struct hoop_tree *tree = &leader->tree;
    const struct hoop_ports ports = hoop_port_range();
    struct hoop_place place = {.address = hoop_connection_about(tree->root.connection)->local};
    place.address.port = 0;
    return hoop_endpoint_open(&place, &ports, &tree->endpoint);
}

static void tree_found_root(void *arg, struct hoop_connection *connection)
{
    struct hoop_leader *leader = arg;
    struct hoop_tree *tree = &leader->tree;
    tree_stop_dialling(tree);
    tree->found = true;
    hoop_edge_adopt(&tree->root, connection);
    const bool gathering = leader->state == HOOP_LEADER_GATHERING;
    const hoop_result_t result = gathering ? tree_listen(leader) : HOOP_OK;
    hoop_edge_say_info(&tree->root);
    if (result != HOOP_OK) {
        hoop_leader_fail_by(leader, result);
    } else if (leader->state == HOOP_LEADER_FAILED) {
        hoop_tree_reject(leader);
    } else if (!gathering) {
        hoop_tree_excuse(leader);
        hoop_leader_settle(leader);
    }
    for (uint32_t rank = 0; gathering && result == HOOP_OK && rank < leader->n; rank++) {
        if (leader->gather.joins[rank] != NULL) {
            hoop_edge_say_info(leader->via[rank]);
        }
    }
}

static void tree_missed_root(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_leader *leader = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    char who[192];
    tree_stop_dialling(&leader->tree);
    if (leader->state != HOOP_LEADER_GATHERING) {
        hoop_leader_settle(leader);
        return;
    }
    hoop_leader_describe_here(leader, who, sizeof(who));
    (void)hoop_failure_set(&failure, code, -1, "%s did not find the root: %s", who, why);
    hoop_leader_fail(leader, &failure, true);
}

static const struct hoop_dialer_owner tree_root_owner = {
    .found = tree_found_root,
    .failed = tree_missed_root,
};

static void tree_root_places(const struct hoop_address *addresses, uint32_t count,
                             struct hoop_place ret[HOOP_RENDEZVOUS_ADDRESSES])
{
    memset(ret, 0, HOOP_RENDEZVOUS_ADDRESSES * sizeof(*ret));
    for (uint32_t i = 0; i < count; i++) {
        ret[i].address = addresses[i];
    }
}

/* The root's name resolves to other addresses now. */
static void tree_root_moved(void *arg, const struct hoop_address *addresses, uint32_t count)
{
    struct hoop_leader *leader = arg;
    struct hoop_place places[HOOP_RENDEZVOUS_ADDRESSES];
    tree_root_places(addresses, count, places);
    hoop_dialer_set_places(leader->tree.dialer, places, count);
}

static void tree_seek_root(struct hoop_leader *leader)
{
    const struct hoop_rendezvous *rendezvous = &leader->rendezvous;
    struct hoop_tree *tree = &leader->tree;
    struct hoop_place places[HOOP_RENDEZVOUS_ADDRESSES];
    tree_root_places(rendezvous->addresses, rendezvous->address_count, places);
    tree_dial(leader, places, rendezvous->address_count, leader->gather.deadline_ns,
              HOOP_HELLO_TO_ROOT, &tree_root_owner);
    if (tree->dialer != NULL &&
        hoop_lookup_start(rendezvous, tree_root_moved, leader, &tree->lookup) != HOOP_OK) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s: %s is not looked up again", hoop_thread_error(),
                 rendezvous->host);
    }
}

void hoop_tree_join(struct hoop_leader *leader, const struct hoop_frame_join *join)
{
    struct hoop_tree *tree = &leader->tree;
    if (hoop_edge_is_open(&tree->root)) {
        hoop_edge_say_info(leader->via[join->rank]);
    } else if (tree->dialer != NULL) {
        hoop_dialer_until(tree->dialer, leader->gather.deadline_ns);
    } else {
        tree_seek_root(leader);
    }
}

void hoop_tree_excuse(struct hoop_leader *leader)
{
    struct hoop_tree *tree = &leader->tree;
    tree->sent_ready = true;
    hoop_tree_shut(tree);
    if (tree->found) {
        hoop_edge_say_ready(&tree->root);
    } else if (tree->dialer == NULL) {
        tree_seek_root(leader);
    }
}

void hoop_tree_reject(struct hoop_leader *leader)
{
    struct hoop_tree *tree = &leader->tree;
    if (tree->found) {
        tree_stop_dialling(tree); /* else the root is told once it is found */
    }
    if (hoop_edge_is_open(&tree->root)) {
        union hoop_frame frame;
        hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, &leader->failure);
        hoop_edge_send(&tree->root, &frame);
        hoop_timer_start(leader->moment, HOOP_MOMENT_MS, 0);
    } else if (tree->dialer == NULL) {
        hoop_tree_close(tree);
    }
}

bool hoop_tree_is_closed(const struct hoop_tree *tree)
{
    return tree->dialer == NULL && !hoop_edge_is_open(&tree->root) &&
           hoop_tree_open_count(tree) == 0;
}

void hoop_tree_shut(struct hoop_tree *tree)
{
    hoop_endpoint_expect_no_more(&tree->children);
    hoop_endpoint_close(tree->endpoint);
    tree->endpoint = NULL;
}

/* Tells neighbours the failure first: one that is in would take a mere end for a death. */
void hoop_tree_close(struct hoop_tree *tree)
{
    const struct hoop_failure *failure = &tree->root.leader->failure;
    if (failure->code != HOOP_OK) {
        union hoop_frame frame;
        hoop_frame_from_failure(&frame, HOOP_FRAME_REJECT, failure);
        hoop_tree_send(tree, &frame, NULL);
    }
    tree_stop_dialling(tree);
    hoop_edge_end(&tree->root);
    for (uint32_t i = 0; i < HOOP_NEIGHBOURS; i++) {
        hoop_edge_end(&tree->neighbours[i]);
    }
    hoop_tree_shut(tree);
}
