/* See look.h. */
#include "inspect/look.h"

#include "base/clock.h"
#include "stream/handle.h"
#include "stream/progress.h"

#include <inttypes.h>
#include <stdio.h>

static void look_past(struct hoop_json *json, const struct hoop_past *past)
{
    char what[96];
    hoop_signature_describe(&past->signature, what, sizeof(what));
    hoop_json_key(json, "sequence");
    hoop_json_uint(json, past->sequence);
    hoop_json_key(json, "what");
    hoop_json_string(json, what);
}

/* The last operations, oldest first. */
static void look_history(struct hoop_json *json, const struct hoop_comm *comm)
{
    hoop_json_key(json, "operations");
    hoop_json_array(json);
    for (uint32_t i = 0; i < HOOP_HISTORY_LENGTH; i++) {
        struct hoop_past past;
        if (hoop_history_at(&comm->history, i, &past)) {
            hoop_json_object(json);
            look_past(json, &past);
            hoop_json_key(json, "result");
            hoop_json_string(json, hoop_get_error_name(past.result));
            hoop_json_object_end(json);
        }
    }
    hoop_json_array_end(json);
}

/* The operation that waits, for what, whose and how long; null: none waits. */
static void look_waiting(struct hoop_json *json, const struct hoop_comm *comm)
{
    struct hoop_past past;
    struct hoop_sight sight;
    char whom[64];
    hoop_json_key(json, "waiting");
    if (!hoop_history_sight(&comm->history, &past, &sight)) {
        hoop_json_string(json, NULL);
        return;
    }
    const enum hoop_awaited_what what = (enum hoop_awaited_what)sight.what;
    hoop_awaited_describe(what, sight.rank, whom, sizeof(whom));
    hoop_json_object(json);
    look_past(json, &past);
    hoop_json_key(json, "for");
    hoop_json_string(json, whom);
    hoop_json_key(json, "rank");
    if (hoop_awaited_is_of_rank(what)) {
        hoop_json_uint(json, sight.rank);
    } else {
        hoop_json_string(json, NULL);
    }
    hoop_json_key(json, "ms");
    hoop_json_uint(json, (hoop_now_ns() - sight.since_ns) / HOOP_NS_PER_MS);
    hoop_json_object_end(json);
}

/* What the first thing in it does: "all_reduce of 12 float sum and others", or waits for; "": it is
 * empty. With the lock. */
static void look_first(const struct hoop_queue *queue, char *buf, size_t bytes)
{
    const struct hoop_list_node *first = hoop_list_first(&queue->items);
    char what[96];
    snprintf(buf, bytes, "%s", "");
    if (first == NULL) {
        return;
    }
    const struct hoop_item *item = HOOP_CONTAINER_OF(first, struct hoop_item, node);
    if (item->kind == HOOP_ITEM_WAIT) {
        snprintf(buf, bytes, "waits for ticket %llu of stream %p", (unsigned long long)item->number,
                 (void *)hoop_handle_of(item->target->uid));
        return;
    }
    const struct hoop_batch *batch = &item->piece->batch;
    hoop_signature_describe(&batch->work[0].request.signature, what, sizeof(what));
    snprintf(buf, bytes, "%s%s%s",
             item->piece->begun ? "" : "waits for the group's other streams: ", what,
             batch->count > 1 ? " and others" : "");
}

static void look_stream(struct hoop_json *json, const struct hoop_queue *queue)
{
    const uint64_t done = atomic_load_explicit(&queue->done, memory_order_relaxed);
    char text[160];
    snprintf(text, sizeof(text), "%p", (void *)hoop_handle_of(queue->uid));
    hoop_json_object(json);
    hoop_json_key(json, "stream");
    hoop_json_string(json, text);
    hoop_json_key(json, "queued");
    hoop_json_uint(json, queue->queued - done);
    hoop_json_key(json, "done");
    hoop_json_uint(json, done);
    look_first(queue, text, sizeof(text));
    hoop_json_key(json, "first");
    hoop_json_string(json, text);
    hoop_json_object_end(json);
}

uint32_t hoop_look_streams(struct hoop_json *json, size_t most_length)
{
    const struct hoop_queue *queue = NULL;
    uint32_t left_out = 0;
    hoop_json_key(json, "streams");
    hoop_json_array(json);
    hoop_progress_lock();
    while ((queue = hoop_handle_next(queue)) != NULL) {
        const struct hoop_json before = *json;
        if (!queue->closing && left_out == 0) {
            look_stream(json, queue);
        }
        if (!queue->closing && (left_out > 0 || json->length > most_length)) {
            *json = before;
            left_out++;
        }
    }
    hoop_progress_unlock();
    hoop_json_array_end(json);
    return left_out;
}

/* None of an aborted comm. */
static void look_peers(struct hoop_json *json, struct hoop_comm *comm)
{
    hoop_json_key(json, "peers");
    hoop_json_array(json);
    for (uint32_t rank = 0; rank < comm->n && !comm->over && hoop_comm_is_ready(comm); rank++) {
        const struct hoop_peer *peer = &comm->board.peers[rank];
        hoop_json_object(json);
        hoop_json_key(json, "rank");
        hoop_json_uint(json, rank);
        hoop_json_key(json, "pid");
        hoop_json_int(json, peer->pid);
        hoop_json_key(json, "host");
        hoop_json_string(json, peer->host);
        hoop_json_object_end(json);
    }
    hoop_json_array_end(json);
}

/* What all ranks of the comm know it by. Once it was born it keeps its roster until it is over. */
static void look_id(struct hoop_json *json, struct hoop_comm *comm)
{
    char text[32] = "";
    if (!comm->over && hoop_comm_is_ready(comm)) {
        const struct hoop_roster *roster = hoop_member_roster(comm->member);
        snprintf(text, sizeof(text), "%016" PRIx64, roster->comm_id);
    }
    hoop_json_key(json, "id");
    hoop_json_string(json, text);
}

void hoop_look_comm(struct hoop_json *json, struct hoop_comm *comm)
{
    struct hoop_failure failure = {.text = ""};
    const bool ready = hoop_comm_is_ready(comm);
    const hoop_result_t told = hoop_comm_look_state(comm, &failure);
    const hoop_result_t state = told == HOOP_OK && !ready ? HOOP_IN_PROGRESS : told;
    hoop_json_key(json, "name");
    hoop_json_string(json, comm->name);
    look_id(json, comm);
    hoop_json_key(json, "rank");
    hoop_json_uint(json, comm->rank);
    hoop_json_key(json, "ranks");
    hoop_json_uint(json, comm->n);
    hoop_json_key(json, "state");
    hoop_json_string(json, hoop_get_error_name(state));
    hoop_json_key(json, "failure");
    hoop_json_string(json, failure.text);
    if (ready) {
        hoop_json_key(json, "algo");
        hoop_json_string(json, hoop_algo_name((enum hoop_algo)comm->agreed.algo));
        hoop_json_key(json, "waiting_policy");
        hoop_json_string(json, comm->spins ? "spin" : "yield");
        look_waiting(json, comm);
        look_peers(json, comm);
        look_history(json, comm);
    }
}
