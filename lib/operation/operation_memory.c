/* What an operation needs of memory besides its buffers: it grows, and is used again. */
#include "operation/operation.h"

#include "base/sizes.h"
#include "reduce/reduce.h"

#include <stdint.h>
#include <stdlib.h>

/* Whole pages. what: "for ..." or "to ...", for the sentence. */
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
                                  "rank %u has no %zu bytes %s", me, bytes, what);
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
