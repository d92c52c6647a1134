/* Which calls can be launched, and how (see launch.h). */
#include "device/launch_inside.h"

#include "base/collective.h"
#include "base/log.h"
#include "base/settings.h"
#include "memory/ipc.h"
#include "runtime/process.h"
#include "staging/kernels.h"
#include "stream/progress.h"

#include <stdlib.h>

#define LAUNCH_STREAMS_MOST 64u /* as many have rooms */

/* The calls of the work that are on one stream. */
struct stream_part {
    hoop_stream_t stream;
    hoop_cu_context_t context; /* of all buffers; NULL: there are none */
    size_t first, count;       /* where they are in the work, once it is sorted */
};

struct stream_parts {
    struct stream_part each[LAUNCH_STREAMS_MOST];
    size_t n;
    bool nowhere; /* a call has no buffers, and its stream's name no context */
};

void hoop_launch_free(struct hoop_launch *launch)
{
    hoop_pieces_finish(&launch->pieces);
    free(launch->told);
    free(launch);
}

/* For launches that were not run. */
static void launches_cancel(struct hoop_launch *first)
{
    for (struct hoop_launch *at = first, *next = NULL; at != NULL; at = next) {
        next = at->next;
        hoop_rooms_leave(at->room);
        hoop_launch_free(at);
    }
}

/* Enters a room of so many bytes, with device memory to tell kernels if there are any. Or NULL. */
static struct hoop_stream_room *launch_find_room(const struct hoop_launch *launch,
                                                 const struct hoop_work *work,
                                                 hoop_cu_context_t context,
                                                 unsigned long long stream, size_t bytes)
{
    struct hoop_stream_room *room = hoop_rooms_enter(context, stream, bytes, work->comm->id);
    if (room != NULL && launch->told != NULL &&
        !hoop_rooms_make_told(room, launch->told, work, launch->pieces.count)) {
        hoop_rooms_leave(room);
        room = NULL;
    }
    return room;
}

/* Finds out how much room the work needs, and enters such a room. False: it can't. */
static bool launch_enter(struct hoop_launch *launch, struct hoop_work *work,
                         hoop_cu_context_t context)
{
    unsigned long long number = 0;
    hoop_stream_t own = NULL; /* made now, for the health thread to query */
    size_t bytes = 0;
    if (hoop_cuda_enter(context) != HOOP_OK) {
        return false;
    }
    const hoop_stream_t stream = launch->pieces.stream;
    const bool named = hoop_cuda.stream_id(stream, &number) == HOOP_CU_SUCCESS &&
                       hoop_cuda_stream(context, &own) == HOOP_OK;
    hoop_cuda_leave();
    const size_t count = launch->pieces.count;
    const hoop_result_t result = launch->told == NULL ? hoop_room_need(work, count, stream, &bytes)
                                 : count <= HOOP_ROOM_GO ? HOOP_OK
                                                         : HOOP_AGAIN;
    bytes = launch->told == NULL ? bytes : hoop_room_told_bytes(launch->told, work, count);
    if (named && result == HOOP_OK) {
        launch->room = launch_find_room(launch, work, context, number, bytes);
    }
    return launch->room != NULL;
}

/* Adds it to launches of the same group, which are in the order in which a thread locks rooms. */
static struct hoop_launch *launch_join(struct hoop_launch *launch, struct hoop_launch *with)
{
    struct hoop_launch **at = &with;
    while (*at != NULL && (uintptr_t)(*at)->room < (uintptr_t)launch->room) {
        at = &(*at)->next;
    }
    launch->next = *at;
    *at = launch;
    return with;
}

/* Prepares the launch of one stream's part, and adds it to the others of the work, which it takes
 * over, also on failure. told: of the whole work; NULL: through the host. */
static struct hoop_launch *launch_create(struct hoop_work *work, const struct stream_part *part,
                                         const struct hoop_told *told, struct hoop_launch *with)
{
    const size_t count = part->count;
    struct hoop_launch *made = calloc(1, sizeof(*made) + count * sizeof(made->parts[0]));
    if (made == NULL) {
        launches_cancel(with);
        return NULL;
    }
    made->first = part->first;
    made->told = told != NULL ? calloc(count, sizeof(*told)) : NULL;
    for (size_t i = 0; i < count; i++) {
        made->parts[i] = (struct launch_part){.comm_id = work[part->first + i].comm->id};
        if (made->told != NULL) {
            made->told[i] = told[part->first + i];
        }
    }
    if (hoop_pieces_init(&made->pieces, count, part->stream) &&
        (told == NULL || made->told != NULL) && hoop_progress_start() == HOOP_OK &&
        hoop_launched_start() && launch_enter(made, work + part->first, part->context)) {
        made->pieces.room = &made->room->room;
        made->pieces.cuts = &made->room->cuts;
        return launch_join(made, with);
    }
    hoop_launch_free(made);
    launches_cancel(with);
    return NULL;
}

/* ---- Which calls can be launched ------------------------------------------------------------- */

/* Adds where a buffer lies. False: on the host, or in another context than those before. */
static bool part_add(struct stream_part *part, hoop_cu_context_t context, size_t bytes)
{
    if (bytes == 0) {
        return true;
    }
    const bool fits = context != NULL && (part->context == NULL || part->context == context);
    part->context = context;
    return fits;
}

/* Finds the stream of a work's calls and the context of their buffers. False: there are several, or
 * none. */
static bool part_of_work(const struct hoop_work *work, struct stream_part *ret)
{
    const struct hoop_request *request = &work->request;
    const uint32_t collective = request->signature.collective;
    const struct hoop_device_call call = {
        .signature = &request->signature, .me = work->comm->rank, .n = work->comm->n};
    const bool transfers = collective == HOOP_TRANSFER;
    *ret = (struct stream_part){.stream = request->stream};
    bool good = true;
    if (transfers || collective == HOOP_COLL_ALLTOALLV) {
        const struct hoop_transfer *first = request->out;
        ret->stream = transfers ? first->stream : request->stream;
        for (const struct hoop_transfer *at = first; at != NULL; at = at->next) {
            good = good && (!transfers || at->stream == ret->stream) &&
                   part_add(ret, at->context, at->bytes);
        }
    } else {
        const struct hoop_collective_row *row = &hoop_collectives[collective];
        good = request->look.known &&
               part_add(ret, request->look.in, hoop_device_buffers_bytes(&call, row->in)) &&
               part_add(ret, request->look.out, hoop_device_buffers_bytes(&call, row->out));
    }
    if (ret->context == NULL && ret->stream != NULL) {
        ret->context = hoop_cuda_stream_context(ret->stream, NULL);
    }
    /* A program that passes no stream may synchronize with none before it uses the result. */
    return good && ret->stream != NULL;
}

/* Adds a work to the part on its stream, or to a new one. *ret: which. False: that is too many. */
static bool parts_add(struct stream_parts *parts, const struct stream_part *its, size_t *ret)
{
    struct stream_part *at = parts->each;
    const struct stream_part *end = at + parts->n;
    while (at < end &&
           (at->stream != its->stream ||
            (at->context != its->context && at->context != NULL && its->context != NULL))) {
        at++;
    }
    if (at == end) {
        if (parts->n == LAUNCH_STREAMS_MOST) {
            return false;
        }
        *at = *its;
        parts->n++;
    }
    at->context = at->context != NULL ? at->context : its->context;
    parts->nowhere |= its->context == NULL;
    at->count++;
    *ret = (size_t)(at - parts->each);
    return true;
}

/* Sorts work by its parts, each in the order that it had. Different comms' works have no order.
 * False: no memory. */
static bool parts_sort(struct stream_parts *parts, struct hoop_work *work, const size_t *part,
                       size_t count)
{
    struct hoop_work *sorted = malloc(count * sizeof(*sorted));
    size_t at = 0;
    for (size_t k = 0; k < parts->n && sorted != NULL; k++) {
        parts->each[k].first = at;
        for (size_t i = 0; i < count; i++) {
            if (part[i] == k) {
                sorted[at++] = work[i];
            }
        }
    }
    for (size_t i = 0; i < at; i++) {
        work[i] = sorted[i];
    }
    free(sorted);
    return at == count;
}

/* Sorts work by streams. False: some of it can't be launched. */
static bool parts_make(struct stream_parts *parts, struct hoop_work *work, size_t count)
{
    size_t *part = malloc(count * sizeof(*part));
    bool can = part != NULL;
    for (size_t i = 0; i < count && can; i++) {
        struct stream_part its;
        can = part_of_work(&work[i], &its) && parts_add(parts, &its, &part[i]);
    }
    if (can && parts->n > 1) {
        /* `nowhere` names a stream that each context has, and no buffer says which is meant */
        can = !parts->nowhere && hoop_work_keeps_order(work, part, count) &&
              parts_sort(parts, work, part, count);
    }
    free(part);
    return can;
}

/* Does the stream belong to the context? *ret_kernels is cleared if hoop's kernels are not loaded
 * there. */
static bool part_has_context(struct stream_part *part, bool *ret_kernels)
{
    if ((part->context == NULL && hoop_cuda_stream_find(part->stream, &part->context) != HOOP_OK) ||
        hoop_cuda_stream_context(part->stream, part->context) != part->context ||
        hoop_cuda_enter(part->context) != HOOP_OK) {
        return false;
    }
    *ret_kernels &= hoop_kernels_load(part->context) != NULL;
    hoop_cuda_leave();
    return true;
}

/* How the call is launched. NOT, too, if its comm takes no calls: whoever runs it then returns the
 * error. */
static enum hoop_launch_way work_way(struct hoop_work *work, bool kernels, struct hoop_told *ret)
{
    const bool takes =
        atomic_load(&work->comm->closed) == 0 && hoop_comm_state(work->comm, NULL) == HOOP_OK;
    return takes ? hoop_comm_launch_way(work->comm, &work->request, kernels, ret) : HOOP_LAUNCH_NOT;
}

/* The way in which all calls can be launched: all through the host, or all on devices, with ret[i]
 * filled in. NOT: they differ, or one can't be launched. */
static enum hoop_launch_way works_way(struct hoop_work *work, const struct stream_parts *parts,
                                      bool kernels, struct hoop_told *ret)
{
    enum hoop_launch_way way = HOOP_LAUNCH_NOT;
    for (size_t k = 0; k < parts->n; k++) {
        const struct stream_part *part = &parts->each[k];
        for (size_t i = part->first; i < part->first + part->count; i++) {
            ret[i].context = part->context;
            const enum hoop_launch_way its = work_way(&work[i], kernels, &ret[i]);
            if (its == HOOP_LAUNCH_NOT || (i > 0 && its != way)) {
                return HOOP_LAUNCH_NOT;
            }
            way = its;
        }
    }
    return way;
}

/* Is it memory from CUDA itself, which is opened with all of its context to other ranks here? */
static bool ref_is_plain(const struct hoop_region_ref *ref)
{
    return ref->id == 0 ? ref->offset != 0 : ref->generation == HOOP_IPC_GENERATION;
}

/* Has a rank of one part memory that is opened to the contexts of other ranks here as a whole, and
 * are there such ranks in the other part? */
static bool parts_meet(const struct hoop_work *work, const struct hoop_told *told,
                       const struct stream_part *from, const struct stream_part *to)
{
    bool meet = false;
    for (size_t i = to->first; i < to->first + to->count && !meet; i++) {
        const bool plain = ref_is_plain(&told[i].in) || ref_is_plain(&told[i].out);
        for (size_t j = from->first; j < from->first + from->count && plain && !meet; j++) {
            meet = work[i].comm->job_id == work[j].comm->job_id;
        }
    }
    return meet && from->context != to->context;
}

/* Opens the devices of ranks here to each other, as no rank does so while streams are held. */
static bool parts_open(const struct stream_parts *parts, const struct hoop_work *work,
                       const struct hoop_told *told)
{
    bool opened = true;
    for (size_t k = 0; k < parts->n * parts->n && opened; k++) {
        const struct stream_part *from = &parts->each[k / parts->n];
        const struct stream_part *to = &parts->each[k % parts->n];
        if (parts_meet(work, told, from, to)) {
            opened = hoop_cuda_enter(from->context) == HOOP_OK;
            if (opened) {
                opened = hoop_cuda_reach_context(from->context, to->context) == HOOP_OK;
                hoop_cuda_leave();
            }
        }
    }
    return opened;
}

/* Asks the driver once. */
static bool launching_is_possible(void)
{
    static _Atomic int known; /* 1: it is; 2: it is not */
    if (known == 0) {
        known = hoop_cuda_need_graphs() == HOOP_OK ? 1 : 2;
    }
    return hoop_settings()->cuda_ahead == HOOP_AHEAD_AUTO && !hoop_is_forked() && known == 1;
}

/* Has a graph calls on any of the comms? Then none is launched beside it. */
static bool works_are_captured(const struct hoop_work *work, size_t count)
{
    bool captured = false;
    for (size_t i = 0; i < count; i++) {
        captured |= atomic_load(&work[i].comm->captured) != 0;
    }
    return captured;
}

struct hoop_launch *hoop_launch_create(struct hoop_work *work, size_t count)
{
    struct stream_parts parts = {.n = 0};
    bool kernels = true;
    bool can = launching_is_possible() && !works_are_captured(work, count) &&
               hoop_work_is_whole(work, count) && parts_make(&parts, work, count);
    for (size_t k = 0; k < parts.n && can; k++) {
        can = part_has_context(&parts.each[k], &kernels);
    }
    struct hoop_told *told = can ? calloc(count, sizeof(*told)) : NULL;
    const enum hoop_launch_way way =
        told != NULL ? works_way(work, &parts, kernels, told) : HOOP_LAUNCH_NOT;
    const bool there = way == HOOP_LAUNCH_ON_DEVICE;
    struct hoop_launch *launch = NULL;
    can = way != HOOP_LAUNCH_NOT && (!there || parts_open(&parts, work, told));
    for (size_t k = 0; k < parts.n && can; k++) {
        launch = launch_create(work, &parts.each[k], there ? told : NULL, launch);
        can = launch != NULL;
    }
    free(told);
    return launch;
}

struct hoop_told *hoop_launch_tell_later(struct hoop_work *work, size_t count)
{
    struct stream_parts parts = {.n = 0};
    bool kernels = true;
    struct hoop_told *told = count <= HOOP_ROOM_GO ? calloc(count, sizeof(*told)) : NULL;
    const bool can = told != NULL && hoop_settings()->cuda_ahead != HOOP_AHEAD_ALL &&
                     parts_make(&parts, work, count) && parts.n == 1 &&
                     part_has_context(&parts.each[0], &kernels);
    const enum hoop_launch_way way =
        can ? works_way(work, &parts, kernels, told) : HOOP_LAUNCH_BY_HOST;
    if (way == HOOP_LAUNCH_ON_DEVICE) {
        return told;
    }
    if (way == HOOP_LAUNCH_NOT) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_PLAN,
                 "captured calls go through the host in every replay: on devices the communicator "
                 "must have used their buffers before the capture, and all calls of a group be of "
                 "that kind");
    }
    free(told);
    return NULL;
}
