/* See look.h. */
#include "inspect/look.h"

#include "base/clock.h"
#include "base/error.h"
#include "stream/handle.h"
#include "stream/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

void hoop_look_process(struct hoop_json *json)
{
    char version[36];
    (void)snprintf(version, sizeof(version), "%d.%d.%d", HOOP_MAJOR, HOOP_MINOR, HOOP_PATCH);
    hoop_json_string(json, "version", version);
    hoop_json_int(json, "pid", getpid());
}

static void look_past(struct hoop_json *json, const struct hoop_past *past)
{
    char what[96];
    hoop_signature_describe(&past->signature, what, sizeof(what));
    hoop_json_uint(json, "sequence", past->sequence);
    hoop_json_string(json, "what", what);
}

/* The last operations, oldest first. */
static void look_history(struct hoop_json *json, const struct hoop_comm *comm)
{
    hoop_json_array(json, "operations");
    for (uint32_t i = 0; i < HOOP_HISTORY_LENGTH; i++) {
        struct hoop_past past;
        if (hoop_history_at(&comm->history, i, &past)) {
            hoop_json_object(json, NULL);
            look_past(json, &past);
            hoop_json_string(json, "result", hoop_get_error_name(past.result));
            hoop_json_object_end(json);
        }
    }
    hoop_json_array_end(json);
}

/* The operation that waits, for what, for which rank, and how long; null if none waits. */
static void look_waiting(struct hoop_json *json, const struct hoop_comm *comm)
{
    struct hoop_past past;
    struct hoop_sight sight;
    char whom[64];
    if (!hoop_history_sight(&comm->history, &past, &sight)) {
        hoop_json_string(json, "waiting", NULL);
        return;
    }
    const enum hoop_awaited_what what = (enum hoop_awaited_what)sight.what;
    hoop_awaited_describe(what, sight.rank, whom, sizeof(whom));
    hoop_json_object(json, "waiting");
    look_past(json, &past);
    hoop_json_string(json, "for", whom);
    if (hoop_awaited_is_of_rank(what)) {
        hoop_json_uint(json, "rank", sight.rank);
    } else {
        hoop_json_string(json, "rank", NULL);
    }
    hoop_json_uint(json, "ms", (hoop_now_ns() - sight.since_ns) / HOOP_NS_PER_MS);
    hoop_json_object_end(json);
}

/* What the first item of the queue does ("all_reduce of 12 float sum and others"), or waits for; ""
 * if the queue is empty. The caller holds the lock. */
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
    hoop_json_object(json, NULL);
    hoop_json_string(json, "stream", text);
    hoop_json_uint(json, "queued", queue->queued - done);
    hoop_json_uint(json, "done", done);
    look_first(queue, text, sizeof(text));
    hoop_json_string(json, "first", text);
    hoop_json_object_end(json);
}

uint32_t hoop_look_streams(struct hoop_json *json, size_t most_length)
{
    const struct hoop_queue *queue = NULL;
    uint32_t left_out = 0;
    hoop_json_array(json, "streams");
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

/* Empty for an aborted comm. */
static void look_peers(struct hoop_json *json, struct hoop_comm *comm)
{
    hoop_json_array(json, "peers");
    for (uint32_t rank = 0; rank < comm->n && !comm->over && hoop_comm_is_ready(comm); rank++) {
        const struct hoop_peer *peer = &comm->board.peers[rank];
        hoop_json_object(json, NULL);
        hoop_json_uint(json, "rank", rank);
        hoop_json_int(json, "pid", peer->pid);
        hoop_json_string(json, "host", peer->host);
        hoop_json_bool(json, "left", hoop_comm_left(comm, rank));
        hoop_json_object_end(json);
    }
    hoop_json_array_end(json);
}

/* The comm's id, the same on all ranks. A comm keeps its roster from its birth until it is over. */
static void look_id(struct hoop_json *json, struct hoop_comm *comm)
{
    char text[32] = "";
    if (!comm->over && hoop_comm_is_ready(comm)) {
        const struct hoop_roster *roster = hoop_member_roster(comm->member);
        snprintf(text, sizeof(text), "%016" PRIx64, roster->comm_id);
    }
    hoop_json_string(json, "id", text);
}

void hoop_look_comm(struct hoop_json *json, struct hoop_comm *comm)
{
    struct hoop_failure failure = {.text = ""};
    const bool ready = hoop_comm_is_ready(comm);
    const hoop_result_t told = hoop_comm_look_state(comm, &failure);
    const hoop_result_t state = told == HOOP_OK && !ready ? HOOP_IN_PROGRESS : told;
    hoop_json_string(json, "name", comm->name);
    look_id(json, comm);
    hoop_json_uint(json, "rank", comm->rank);
    hoop_json_uint(json, "ranks", comm->n);
    hoop_json_string(json, "state", hoop_get_error_name(state));
    hoop_json_string(json, "failure", failure.text);
    if (ready) {
        hoop_json_string(json, "algo", hoop_algo_name((enum hoop_algo)comm->agreed.algo));
        hoop_json_string(json, "waiting_policy", comm->spins ? "spin" : "yield");
        hoop_json_bool(json, "cma", comm->agreed.no_cma == 0);
        hoop_json_string(json, "cma_why_not", comm->no_cma);
        look_waiting(json, comm);
        look_peers(json, comm);
        look_history(json, comm);
    }
}
