/* See stress_program.h. */
#include "whole/stress_program.h"
#include "harness/splitmix.h"

/* ---- Draws -------------------------------------------------------------------------------- */

uint64_t stress_draw(struct stress_random *random)
{
    return splitmix(&random->state);
}

struct stress_random stress_random_from(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    const uint64_t parts[] = {a, b, c, d};
    struct stress_random random = {.state = 0};
    for (int i = 0; i < 4; i++) {
        random.state = stress_draw(&random) ^ parts[i];
    }
    return random;
}

uint32_t stress_below(struct stress_random *random, uint32_t end)
{
    return (uint32_t)((stress_draw(random) >> 32) * end >> 32);
}

/* ---- Steps -------------------------------------------------------------------------------- */

/* Mostly small: the smaller of two random powers of two. */
static size_t draw_bytes(const struct stress_program *program, struct stress_random *random)
{
    int powers = 0;
    while (program->most_bytes >> powers > 1) {
        powers++;
    }
    const uint32_t one = stress_below(random, (uint32_t)powers + 1);
    const uint32_t other = stress_below(random, (uint32_t)powers + 1);
    const uint32_t power = one < other ? one : other;
    const uint32_t bytes = stress_below(random, 2u << power);
    return bytes < program->most_bytes ? bytes : program->most_bytes;
}

static struct stress_call draw_call(const struct stress_program *program, bool messages,
                                    struct stress_random *random)
{
    struct stress_call call = {
        .comm = (int)stress_below(random, STRESS_COMMS),
        .message = messages && stress_below(random, 3) == 0,
        .kind = (enum model_kind)stress_below(random, MODEL_KINDS),
        .type = (hoop_datatype_t)stress_below(random, HOOP_NUM_DATATYPES),
        .op = (hoop_red_op_t)stress_below(random, HOOP_NUM_OPS),
        .root = stress_below(random, STRESS_MOST_RANKS),
        .peer = stress_below(random, STRESS_MOST_RANKS),
        .bytes = draw_bytes(program, random),
        .seed = stress_draw(random),
    };
    if (program->sums) {
        call.type %= HOOP_FLOAT16; /* the first type that is not an integer */
        call.op = HOOP_SUM;
    }
    return call;
}

void stress_program_step(const struct stress_program *program, int stream, uint64_t number,
                         struct stress_step *ret)
{
    struct stress_random random =
        stress_random_from(program->seed, (uint64_t)stream, number, UINT64_MAX);
    const uint32_t kind = stress_below(&random, 100);
    *ret = (struct stress_step){
        .kind = STRESS_CALLS,
        .comm = (int)stress_below(&random, STRESS_COMMS),
        .finalize = stress_below(&random, 2) == 0,
        .way = (enum stress_way)stress_below(&random, STRESS_WAYS),
        .n_calls = 1,
    };
    if (kind < 2) {
        ret->kind = STRESS_REBIRTH;
    } else if (kind < 8) {
        ret->kind = STRESS_BARRIER;
    } else if (kind < 14) {
        ret->kind = STRESS_TWINS;
    } else if (kind < 40) {
        ret->n_calls = 2 + (int)stress_below(&random, STRESS_MOST_CALLS - 1);
    }
    for (int i = 0; i < ret->n_calls; i++) {
        ret->calls[i] = draw_call(program, ret->kind == STRESS_CALLS, &random);
    }
}

struct model_call stress_call_in(const struct stress_call *call, int n)
{
    struct model_call model = {
        .kind = call->kind,
        .n = n,
        .type = call->type,
        .op = call->op,
        .root = (int)(call->root % (uint32_t)n),
        .seed = call->seed,
    };
    const size_t elements = call->bytes / model_type_bytes(call->type);
    model.count = 1;
    bool parts = false; /* has any call a block for each rank? */
    for (int r = 0; r < n && !call->message; r++) {
        parts = parts || model_send_count(&model, r) > 1 || model_recv_count(&model, r) > 1;
    }
    model.count = parts ? elements / (size_t)n : elements;
    return model;
}

int stress_part(const struct stress_program *program, int comm, int rank)
{
    return comm == 2 ? rank % 2 : comm == 3 && rank >= program->ranks / 2 ? 1 : 0;
}

int stress_members(const struct stress_program *program, int comm, int rank,
                   int ret_ranks[STRESS_MOST_RANKS])
{
    const int ranks = program->ranks;
    int n = 0;
    for (int i = 0; i < ranks; i++) {
        const int r = comm == 1 ? ranks - 1 - i : i;
        if (stress_part(program, comm, r) == stress_part(program, comm, rank)) {
            ret_ranks[n++] = r;
        }
    }
    return n;
}
