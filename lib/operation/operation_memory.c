/* The storage of a comm's operations, and the memory that they need besides the user's buffers,
 * which is kept, and grows as needed. */
#include "operation/operation.h"

#include "algo/taking.h"
#include "base/sizes.h"
#include "reduce/reduce.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

hoop_result_t hoop_operation_init(struct hoop_operation *operation,
                                  const struct hoop_operation_env *env)
{
    memset(operation, 0, sizeof(*operation));
    operation->env = *env;
    operation->state = OP_DONE;
    operation->staging.wake_fd = env->wake_fd;
    operation->staging.naps = env->naps;
    operation->buffers = (struct hoop_buffers){
        .board = env->board,
        .maps = env->maps,
        .staging = &operation->staging,
        .one_process = env->one_process,
        .agreed = env->agreed,
    };
    for (int i = 0; i < HOOP_COLL_COUNT; i++) {
        operation->oneshot_most[i] =
            hoop_plan_oneshot_most(env->agreed, env->board->n, (enum hoop_collective)i);
        operation->granted_most[i] =
            env->on_host
                ? hoop_plan_granted_most(env->agreed, env->board->n, (enum hoop_collective)i)
                : 0;
    }
    const bool noticed = !env->one_process && !env->over_links;
    operation->exchange = (struct hoop_exchange){
        .me = env->board->me,
        .n = env->board->n,
        .chunk_bytes = env->agreed->chunk_bytes,
        .board = env->board,
        .maps = &operation->env.maps,
        .notice_least_bytes = noticed ? HOOP_EXCHANGE_NOTICE_LEAST : UINT64_MAX,
        .read_least_bytes = hoop_plan_read_least(env->agreed),
        .learns = hoop_settings()->learn != 0,
        .link = env->link,
        .arg = env->arg};
    hoop_result_t result =
        hoop_plan_grid_create(env->board->peers, env->board->n, &operation->grid);
    result = result == HOOP_OK ? hoop_exchange_init(&operation->exchange) : result;
    return result == HOOP_OK ? hoop_buffers_init(&operation->buffers) : result;
}

void hoop_operation_finish(struct hoop_operation *operation)
{
    hoop_buffers_finish(&operation->buffers);
    hoop_exchange_finish(&operation->exchange);
    hoop_staging_finish(&operation->staging);
    free(operation->scratch.memory);
    free(operation->scaled.memory);
    free(operation->learned);
    free(operation->grid);
    free(operation->copies);
    memset(operation, 0, sizeof(*operation));
}

/* Grows to whole pages. what: "for ..." or "to ...", for the message. */
static hoop_result_t memory_grow(struct hoop_operation *operation, struct hoop_grown *grown,
                                 size_t bytes, const char *what)
{
    const uint32_t me = operation->env.board->me;
    const size_t most = SIZE_MAX / HOOP_PAGE_BYTES;
    const size_t pages = bytes / HOOP_PAGE_BYTES + (bytes % HOOP_PAGE_BYTES != 0 ? 1 : 0);
    if (grown->memory != NULL && bytes <= grown->bytes) {
        return HOOP_OK;
    }
    free(grown->memory);
    grown->bytes = (pages < 1 ? 1 : pages < most ? pages : most) * HOOP_PAGE_BYTES;
    grown->memory = aligned_alloc(HOOP_PAGE_BYTES, grown->bytes);
    return grown->memory != NULL
               ? HOOP_OK
               : hoop_failure_set(&operation->failure, HOOP_OUT_OF_MEMORY, (int)me,
                                  "rank %u cannot allocate %zu bytes %s", me, bytes, what);
}

hoop_result_t hoop_operation_make_scratch(struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    size_t bytes = (size_t)plan->lanes * plan->type_bytes;
    if (plan->scratch == 0) {
        return HOOP_OK;
    }
    if (__builtin_mul_overflow(bytes, plan->scratch, &bytes)) {
        bytes = SIZE_MAX;
    }
    return memory_grow(operation, &operation->scratch, bytes, "to gather what others send");
}

hoop_result_t hoop_operation_scale(struct hoop_operation *operation)
{
    struct hoop_request *request = &operation->request;
    const struct hoop_signature *s = &request->signature;
    const struct hoop_board *board = operation->env.board;
    const hoop_datatype_t type = (hoop_datatype_t)s->type;
    const size_t count = s->count * hoop_extent_blocks(hoop_collectives[s->collective].in, board->n,
                                                       s->root == (int32_t)board->me);
    const hoop_result_t result = memory_grow(
        operation, &operation->scaled, count * hoop_datatype_bytes(type), "for its scaled input");
    if (result == HOOP_OK) {
        hoop_scale(type, &request->scalar, request->in, operation->scaled.memory, count);
        request->in = operation->scaled.memory;
    }
    return result;
}

void hoop_operation_map_slabs(const struct hoop_operation *operation)
{
    const struct hoop_plan *plan = &operation->plan;
    const bool folds = hoop_collectives[plan->collective].folds;
    const size_t bytes = plan->slabs * plan->chunk * plan->type_bytes;
    for (uint32_t rank = 0; rank < plan->n && plan->slabs > 2; rank++) {
        const bool written =
            folds || hoop_blocks_for_others(plan->collective, plan->n, rank == plan->root) > 0;
        const bool read = folds || hoop_out_count(plan, plan->me) > 0;
        if (written && (read || rank == plan->me)) {
            hoop_board_map_slabs(operation->env.board, rank, bytes);
        }
    }
}
