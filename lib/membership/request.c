/*
 * What a rank asks of another: a region, or to take the blob of a link. For a rank of this process
 * it is done here; for others it goes over the peer connection.
 */
#include "membership/membership_inside.h"
#include "memory/region.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 16384u /* waiting for one process */

/* ---- To a peer ----------------------------------------------------------------------------- */

void hoop_request_destroy(struct hoop_peer_process *process, struct hoop_peer_request *request)
{
    hoop_list_remove(&request->node);
    process->request_count--;
    free(request);
}

/* Reports that a region can be used (code HOOP_OK) or why not. Nothing is reported about blobs. */
static void request_tell(const struct hoop_peer_request *request,
                         const struct hoop_failure *failure)
{
    const struct hoop_member_events *events = &request->member->events;
    const struct hoop_event answer = {.kind = HOOP_EVENT_ANSWER,
                                      .rank = request->rank,
                                      .id = request->want.region.id,
                                      .part = request->want.region.generation,
                                      .failure = *failure};
    if (request->want.header.type == HOOP_FRAME_REGION_GET) {
        events->event(events->arg, &answer);
    }
}

/* Fails because of the other rank; why completes "rank 3 (...)". */
static void request_fail(const struct hoop_peer_request *request, const char *why)
{
    char who[160];
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    hoop_member_describe(request->member, request->rank, who, sizeof(who));
    (void)hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)request->rank, "%s %s", who, why);
    request_tell(request, &failure);
}

void hoop_peer_drop(struct hoop_member *member, uint32_t rank, const char *why)
{
    struct hoop_peer_process *process = member->others[rank].process;
    if (process == NULL) {
        return;
    }
    HOOP_LIST_EACH(struct hoop_peer_request, request, &process->requests, node) {
        if (request->member == member && request->rank == rank) {
            request_fail(request, why);
            hoop_request_destroy(process, request);
        }
    }
}

void hoop_request_fail_here(const struct hoop_peer_request *request, hoop_result_t code,
                            const char *why)
{
    struct hoop_member *member = request->member;
    char who[160];
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    hoop_member_describe(member, request->rank, who, sizeof(who));
    (void)hoop_failure_set(&failure, code, (int)member->join.rank, "rank %u cannot reach %s: %s",
                           member->join.rank, who, why);
    request_tell(request, &failure);
    hoop_member_fail(member, &failure);
}

static struct hoop_peer_request *request_find(struct hoop_peer_process *process,
                                              const struct hoop_connection *connection,
                                              const struct hoop_frame_region_is *answer)
{
    HOOP_LIST_EACH(struct hoop_peer_request, request, &process->requests, node) {
        const struct hoop_frame_region *question = &request->want.region;
        if (request->via == connection && question->header.type == HOOP_FRAME_REGION_GET &&
            question->comm_id == answer->comm_id && question->id == answer->id &&
            question->generation == answer->generation) {
            return request;
        }
    }
    return NULL;
}

/* Maps the region that came, or fills in the failure. */
static void request_import(const struct hoop_peer_request *request, uint64_t process,
                           const struct hoop_frame_region_is *answer, int *fds,
                           struct hoop_failure *ret)
{
    char who[160];
    if (answer->code != 0) {
        hoop_member_describe(request->member, request->rank, who, sizeof(who));
        /* whatever its code is, the fault is there: nobody here passed a bad argument */
        (void)hoop_failure_set(ret, HOOP_REMOTE_ERROR, (int)request->rank,
                               "%s cannot share region %llu.%u: %s", who,
                               (unsigned long long)answer->id, answer->generation, answer->why);
        return;
    }
    const int fd = fds[0];
    fds[0] = -1;
    if (fd < 0) {
        (void)hoop_failure_set(ret, HOOP_SYSTEM_ERROR, (int)request->member->join.rank,
                               "its descriptor was lost: the limit of open files of rank %u is "
                               "low (raise ulimit -n)",
                               request->member->join.rank);
        return;
    }
    const hoop_result_t result = hoop_region_import(process, answer->id, answer->generation,
                                                    answer->kind, answer->bytes, fd);
    if (result != HOOP_OK) {
        (void)hoop_failure_set(ret, result, (int)request->rank, "%s", hoop_thread_error());
    }
}

void hoop_request_answered(struct hoop_peer_process *process, struct hoop_connection *connection,
                           const struct hoop_frame_region_is *answer, int *fds)
{
    struct hoop_peer_request *request = request_find(process, connection, answer);
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    if (request == NULL) {
        return; /* the member that asked has left */
    }
    request_import(request, process->id, answer, fds, &failure);
    request_tell(request, &failure);
    hoop_request_destroy(process, request);
}

/* Sends it now, or once connected. */
static void request_send(const struct hoop_peer_request *request)
{
    struct hoop_member *member = request->member;
    struct hoop_peer_process *process = member->others[request->rank].process;
    if (member->events.left(member->events.arg, request->rank) != 0) {
        request_fail(request, "has left");
        return;
    }
    if (process->request_count >= REQUESTS_MAX) {
        request_fail(request, "cannot be asked");
        hoop_liveness_lose(member, request->rank, "cannot be asked: too many messages wait");
        return;
    }
    struct hoop_peer_request *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        hoop_request_fail_here(request, HOOP_OUT_OF_MEMORY, "no memory for a message");
        return;
    }
    *copy = *request;
    hoop_list_push_back(&process->requests, &copy->node);
    process->request_count++;
    hoop_peer_flush(process);
}

void hoop_request_take_blob(const struct hoop_member *member, const struct hoop_frame_blob *frame)
{
    struct hoop_event event = {.kind = HOOP_EVENT_BLOB,
                               .rank = frame->from,
                               .id = frame->lane,
                               .part = frame->sending == 0,
                               .blob.bytes = frame->bytes};
    memcpy(event.blob.data, frame->data, frame->bytes);
    member->events.event(member->events.arg, &event);
}

/* ---- Routing -------------------------------------------------------------------------------- */

/* For a rank of this process: no connection is needed, and its regions are usable already. */
static void request_here(const struct hoop_peer_request *request)
{
    if (request->want.header.type == HOOP_FRAME_REGION_GET) {
        request_tell(request, &(struct hoop_failure){.code = HOOP_OK, .rank = -1});
        return;
    }
    struct hoop_member *other = hoop_member_find(request->member->roster.comm_id, request->rank);
    if (other != NULL) { /* else it has left, or its loss is about to be reported */
        hoop_member_enter(other);
        hoop_request_take_blob(other, &request->want.blob);
    }
}

static void request_run(void *arg)
{
    const struct hoop_peer_request *request = arg;
    struct hoop_member *member = request->member;
    const uint32_t rank = request->rank;
    if (member->state != HOOP_MEMBER_IN || member->others[rank].lost) {
        request_fail(request, "cannot be asked");
    } else if (member->roster.peers[rank].same_process) {
        request_here(request);
    } else {
        request_send(request);
    }
}

static void request_post(struct hoop_peer_request *request, enum hoop_frame_type type)
{
    union hoop_frame frame;
    assert(request->rank < request->member->join.n);
    hoop_frame_init(&frame, type);
    request->want.header = frame.header;
    hoop_service_post(request_run, request, sizeof(*request));
}

void hoop_member_fetch(struct hoop_member *member, uint32_t rank, uint64_t region_id,
                       uint32_t generation)
{
    assert(region_id != 0);
    struct hoop_peer_request request = {.member = member, .rank = rank};
    request.want.region = (struct hoop_frame_region){
        .comm_id = member->roster.comm_id, .id = region_id, .generation = generation};
    request_post(&request, HOOP_FRAME_REGION_GET);
}

void hoop_member_send_blob(struct hoop_member *member, uint32_t rank, uint32_t lane, bool sending,
                           const struct hoop_blob *blob)
{
    assert(lane < HOOP_FRAME_MAX_LANES && blob->bytes <= HOOP_BLOB_BYTES);
    _Static_assert(HOOP_BLOB_BYTES == HOOP_FRAME_BLOB_BYTES, "a blob is what a frame carries");
    struct hoop_peer_request request = {.member = member, .rank = rank};
    request.want.blob = (struct hoop_frame_blob){.comm_id = member->roster.comm_id,
                                                 .from = member->join.rank,
                                                 .to = rank,
                                                 .lane = lane,
                                                 .sending = sending,
                                                 .bytes = blob->bytes};
    memcpy(request.want.blob.data, blob->data, blob->bytes);
    request_post(&request, HOOP_FRAME_BLOB);
}
