/*
 * The engine with steps that no algorithm has, and with links that make it wait: changing peers,
 * sends or receives alone, lanes that stand still, neighbours that leave; and what the engine
 * reports meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "exec/engine.h"
#include "fakes/fake_transport.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Ranks that all have links with each other, and take their steps from a table. */
#define MESH_RANKS 3
#define MESH_LANES 2
#define MESH_CHUNK 4

struct mesh_rank {
    struct mesh *mesh;
    struct hoop_plan plan;
    struct hoop_engine engine;
    struct hoop_failure failure;
    uint8_t scratch[MESH_LANES][MESH_RANKS * MESH_CHUNK]; /* divided as the engine does it */
    const void *src[MESH_RANKS];
    struct hoop_link *links[MESH_RANKS][MESH_LANES][2];
};

struct mesh {
    uint32_t n;
    unsigned no_links;  /* bits, 1 << sending: rank 0's links of this kind are still being made */
    uint32_t strangers; /* a bit per rank: it has another signature */
    struct mesh_rank ranks[MESH_RANKS];
};

static struct {
    const struct hoop_step *steps;
    uint64_t count;
} table[MESH_RANKS];

/* The table's steps, in lane 0. */
static bool table_step(const struct hoop_plan *plan, uint32_t lane, uint64_t k,
                       struct hoop_step *ret)
{
    if (lane > 0 || k >= table[plan->me].count) {
        return false;
    }
    *ret = table[plan->me].steps[k];
    return true;
}

static hoop_result_t mesh_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                               struct hoop_link **ret_link)
{
    struct mesh_rank *rank = arg;
    if (rank->plan.me == 0 && (rank->mesh->no_links >> sending & 1) != 0) {
        return HOOP_AGAIN;
    }
    *ret_link = rank->links[peer][lane][sending];
    return HOOP_OK;
}

static void mesh_connect(struct mesh *mesh, uint32_t from, uint32_t to, uint32_t lane)
{
    struct hoop_blob blobs[2];
    struct hoop_failure failure = {0};
    struct hoop_link **ends[2] = {&mesh->ranks[from].links[to][lane][true],
                                  &mesh->ranks[to].links[from][lane][false]};
    for (unsigned i = 0; i < 2; i++) {
        const struct hoop_link_params params = {.me = i == 0 ? from : to,
                                                .peer = i == 0 ? to : from,
                                                .lane = lane,
                                                .sending = i == 0,
                                                .chunk_bytes = 64};
        assert_int_equal(hoop_link_create(&fake_transport, &params, ends[i], &blobs[i], &failure),
                         HOOP_OK);
    }
    assert_int_equal(hoop_link_bind(*ends[0], &blobs[1]), HOOP_OK);
    assert_int_equal(hoop_link_bind(*ends[1], &blobs[0]), HOOP_OK);
}

static struct mesh *mesh_create(uint32_t n, const struct fake_script *script)
{
    struct mesh *mesh = calloc(1, sizeof(*mesh));
    assert_non_null(mesh);
    mesh->n = n;
    fake_play(script);
    for (uint32_t i = 0; i < n * n * MESH_LANES; i++) {
        const uint32_t from = i / MESH_LANES / n, to = i / MESH_LANES % n;
        mesh->ranks[from].mesh = mesh;
        if (from != to) {
            mesh_connect(mesh, from, to, i % MESH_LANES);
        }
    }
    return mesh;
}

static void mesh_start(struct mesh *mesh, uint32_t r, hoop_step_fn *steps, uint64_t count,
                       const void *in, void *out)
{
    struct mesh_rank *rank = &mesh->ranks[r];
    rank->plan = (struct hoop_plan){.algo = HOOP_ALGO_RING,
                                    .me = r,
                                    .n = mesh->n,
                                    .lanes = MESH_LANES,
                                    .type_bytes = 1,
                                    .count = count,
                                    .chunk = MESH_CHUNK,
                                    .scratch = (uint64_t)MESH_CHUNK * mesh->n};
    const struct hoop_engine_op op = {.plan = &rank->plan,
                                      .steps = steps,
                                      .reduction = {HOOP_UINT8, HOOP_AVG, 2},
                                      .in = in,
                                      .out = out,
                                      .scratch = rank->scratch,
                                      .src = rank->src,
                                      .signature = {.root = (int32_t)(mesh->strangers >> r & 1)},
                                      .sequence = 9,
                                      .link = mesh_link,
                                      .arg = rank};
    hoop_engine_start(&rank->engine, &op, &rank->failure);
}

/* Polls all ranks in turn until nothing moves. Returns how many are done. */
static uint32_t mesh_poll(struct mesh *mesh)
{
    uint32_t done = 0;
    for (unsigned idle = 0; idle < 1000 && done < mesh->n; idle++) {
        done = 0;
        for (uint32_t r = 0; r < mesh->n; r++) {
            const enum hoop_poll polled = hoop_engine_poll(&mesh->ranks[r].engine);
            done += polled == HOOP_POLL_DONE;
            idle = polled == HOOP_POLL_BUSY ? 0 : idle;
        }
    }
    return done;
}

static void mesh_destroy(struct mesh *mesh)
{
    for (uint32_t i = 0; i < MESH_RANKS * MESH_RANKS * MESH_LANES * 2; i++) {
        const uint32_t me = i / 2 / MESH_LANES / MESH_RANKS;
        hoop_link_destroy(
            mesh->ranks[me].links[i / 2 / MESH_LANES % MESH_RANKS][i / 2 % MESH_LANES][i % 2]);
    }
    assert_int_equal(fake_outstanding(), 0);
    free(mesh);
}

static struct hoop_ref ref_of(enum hoop_space space, uint32_t me, uint64_t off, uint64_t count)
{
    return (struct hoop_ref){(uint8_t)space, me, off, count};
}

static void step_send(struct hoop_step *step, uint32_t me, uint32_t peer, uint64_t off,
                      uint64_t count)
{
    step->send.peer = (int32_t)peer;
    step->send.from = ref_of(HOOP_SPACE_IN, me, off, count);
}

static void step_recv(struct hoop_step *step, uint32_t me, uint32_t peer, enum hoop_recv_mode mode,
                      uint64_t off, uint64_t count)
{
    step->recv.peer = (int32_t)peer;
    step->recv.mode = (uint8_t)mode;
    step->recv.to = ref_of(HOOP_SPACE_OUT, me, off, count);
    step->recv.own = ref_of(HOOP_SPACE_IN, me, off, count);
}

/*
 * Peers that change, parts without bytes, an empty step, a local copy, steps with only a send or a
 * receive. Rank r's input is 10 * (r + 1) + offset.
 */
static void test_other_steps(void **state)
{
    (void)state;
    enum { STEPS = 6, COUNT = 20 };
    struct hoop_step steps[MESH_RANKS][STEPS];
    uint8_t in[MESH_RANKS][COUNT], out[MESH_RANKS][COUNT] = {{0}};
    const struct fake_script script = {.seed = 1, .slots = 1, .late_percent = 40};
    struct mesh *mesh = mesh_create(3, &script);
    for (uint32_t me = 0; me < 3; me++) {
        const uint32_t right = (me + 1) % 3, left = (me + 2) % 3;
        for (unsigned k = 0; k < STEPS; k++) {
            steps[me][k] = hoop_step_none();
        }
        step_send(&steps[me][0], me, right, 0, 4);
        step_recv(&steps[me][0], me, left, HOOP_RECV_COPY, 1, 4);
        step_send(&steps[me][1], me, left, 5, 3);
        step_recv(&steps[me][1], me, right, HOOP_RECV_REDUCE, 5, 3);
        step_send(&steps[me][3], me, right, 8, 0);
        step_recv(&steps[me][3], me, left, HOOP_RECV_REDUCE, 8, 0);
        steps[me][3].local.op = HOOP_LOCAL_COPY;
        steps[me][3].local.dst = ref_of(HOOP_SPACE_OUT, me, 8, 4);
        steps[me][3].local.src = ref_of(HOOP_SPACE_IN, me, 9, 4);
        for (unsigned i = 0; i < COUNT; i++) {
            in[me][i] = (uint8_t)(10 * (me + 1) + i);
        }
        table[me].steps = steps[me];
        table[me].count = STEPS;
    }
    step_send(&steps[0][4], 0, 1, 12, 2);
    step_recv(&steps[1][4], 1, 0, HOOP_RECV_REDUCE_LAST, 12, 2);
    step_send(&steps[1][5], 1, 2, 15, 5);
    step_recv(&steps[2][5], 2, 1, HOOP_RECV_COPY, 15, 5);
    for (uint32_t me = 0; me < 3; me++) {
        mesh_start(mesh, me, table_step, COUNT, in[me], out[me]);
    }
    assert_int_equal(mesh_poll(mesh), 3);
    for (uint32_t me = 0; me < 3; me++) {
        const uint32_t right = (me + 1) % 3, left = (me + 2) % 3;
        assert_int_equal(mesh->ranks[me].failure.code, HOOP_OK);
        assert_memory_equal(out[me] + 1, in[left], 4);
        for (unsigned i = 5; i < 8; i++) {
            assert_int_equal(out[me][i], in[right][i] + in[me][i]);
        }
        assert_memory_equal(out[me] + 8, in[me] + 9, 4);
        assert_int_equal(out[me][0], 0);
    }
    assert_int_equal(out[1][12], (in[0][12] + in[1][12]) / 2);
    assert_int_equal(out[0][12], 0);
    assert_memory_equal(out[2] + 15, in[1] + 15, 5);
    mesh_destroy(mesh);
}

static void test_no_buffers(void **state)
{
    (void)state;
    struct hoop_step steps[2][2];
    const struct fake_script script = {.slots = 1};
    struct mesh *mesh = mesh_create(2, &script);
    for (uint32_t me = 0; me < 2; me++) {
        for (unsigned k = 0; k < 2; k++) {
            steps[me][k] = hoop_step_none();
            step_send(&steps[me][k], me, 1 - me, 0, 0);
            step_recv(&steps[me][k], me, 1 - me, k == 0 ? HOOP_RECV_COPY : HOOP_RECV_REDUCE, 0, 0);
        }
        table[me].steps = steps[me];
        table[me].count = 2;
        mesh_start(mesh, me, table_step, 0, NULL, NULL);
    }
    assert_int_equal(mesh_poll(mesh), 2);
    mesh_destroy(mesh);
}

/* Each lane has a SCRATCH of its own, where the others' vectors lie in the order of their distance,
 * and no more than that. */
static void run_scratch(bool kept)
{
    enum { SHARD = 12, COUNT = MESH_RANKS * SHARD };
    const uint32_t columns[MESH_LANES] = {2, 1}; /* the last element of each lane */
    uint8_t in[MESH_RANKS][COUNT], out[MESH_RANKS][COUNT];
    const struct fake_script script = {.seed = 5, .late_percent = 30};
    struct mesh *mesh = mesh_create(MESH_RANKS, &script);
    for (uint32_t me = 0; me < MESH_RANKS; me++) {
        for (unsigned i = 0; i < COUNT; i++) {
            in[me][i] = (uint8_t)(20 * me + i);
        }
        mesh_start(mesh, me, hoop_pairwise_step, COUNT, in[me], out[me]);
        mesh->ranks[me].engine.op.keeps = kept;
    }
    assert_int_equal(mesh_poll(mesh), MESH_RANKS);
    for (uint32_t i = 0; i < MESH_RANKS * MESH_LANES * (MESH_RANKS - 1); i++) {
        const uint32_t others = MESH_RANKS - 1;
        const uint32_t me = i / MESH_LANES / others, lane = i / others % MESH_LANES;
        const size_t distance = 1 + i % others, owner = (me + MESH_RANKS - distance) % MESH_RANKS;
        const size_t chunk = me * (size_t)SHARD + columns[lane] * (size_t)MESH_CHUNK;
        const uint8_t nothing[MESH_CHUNK] = {0};
        assert_memory_equal(mesh->ranks[me].scratch[lane] + distance * MESH_CHUNK,
                            kept ? nothing : in[owner] + chunk, MESH_CHUNK);
    }
    for (unsigned i = 0; i < MESH_RANKS * COUNT; i++) {
        const unsigned at = i % COUNT;
        assert_int_equal(out[i / COUNT][at], (in[0][at] + in[1][at] + in[2][at]) / 2);
    }
    mesh_destroy(mesh);
}

static void test_scratch(void **state)
{
    (void)state;
    run_scratch(false);
}

/* Data that are only folded are folded in the link's own memory. */
static void test_kept(void **state)
{
    (void)state;
    run_scratch(true);
}

/* A receive of another operation with the same number. */
static void test_signature(void **state)
{
    (void)state;
    const struct fake_script script = {.slots = 1};
    uint8_t in[2][8] = {{1}}, out[2][8];
    for (uint32_t strangers = 0; strangers < 4; strangers++) {
        struct mesh *mesh = mesh_create(2, &script);
        const bool differ = strangers == 1 || strangers == 2;
        mesh->strangers = strangers;
        for (uint32_t me = 0; me < 2; me++) {
            mesh_start(mesh, me, hoop_ring_step, sizeof(in[me]), in[me], out[me]);
        }
        (void)mesh_poll(mesh);
        for (uint32_t me = 0; me < 2; me++) {
            assert_int_equal(mesh->ranks[me].failure.code, differ ? HOOP_MISMATCH : HOOP_OK);
        }
        mesh_destroy(mesh);
    }
}

/* Steps that only the board can execute are refused, not skipped. */
static void test_steps_of_the_board(void **state)
{
    (void)state;
    const struct fake_script script = {.slots = 1};
    struct mesh *mesh = mesh_create(2, &script);
    struct hoop_step step = hoop_step_none();
    step.local.op = HOOP_LOCAL_AWAIT;
    table[0].steps = &step;
    table[0].count = 1;
    mesh_start(mesh, 0, table_step, 0, NULL, NULL);
    assert_int_equal(hoop_engine_poll(&mesh->ranks[0].engine), HOOP_POLL_DONE);
    assert_int_equal(mesh->ranks[0].failure.code, HOOP_INTERNAL_ERROR);
    assert_non_null(strstr(mesh->ranks[0].failure.text, "step 0: local part 2"));
    mesh_destroy(mesh);
}

/* Element indices that do not fit 32 bits, in memory that is mapped but hardly touched. */
static void test_far_offsets(void **state)
{
    (void)state;
    const uint64_t far = UINT32_MAX + 77ull;
    const size_t bytes = far + 4096;
    struct hoop_step steps[2];
    uint8_t *memory[2][2];
    const struct fake_script script = {.slots = 1};
    for (unsigned i = 0; i < 4; i++) {
        memory[i / 2][i % 2] = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(memory[i / 2][i % 2], MAP_FAILED);
    }
    struct mesh *mesh = mesh_create(2, &script);
    for (uint32_t me = 0; me < 2; me++) {
        steps[me] = hoop_step_none();
        step_send(&steps[me], me, 1 - me, far, 5);
        step_recv(&steps[me], me, 1 - me, HOOP_RECV_REDUCE, far, 5);
        memset(memory[me][0] + far, (int)(3 + me), 5);
        table[me].steps = &steps[me];
        table[me].count = 1;
        mesh_start(mesh, me, table_step, bytes, memory[me][0], memory[me][1]);
    }
    assert_int_equal(mesh_poll(mesh), 2);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(memory[0][1][far + i], 7);
        assert_int_equal(memory[1][1][far + i], 7);
    }
    mesh_destroy(mesh);
    for (unsigned i = 0; i < 4; i++) {
        munmap(memory[i / 2][i % 2], bytes);
    }
}

/* A part is sent although the link of the other part does not exist yet. */
static void test_parts_are_independent(void **state)
{
    (void)state;
    for (unsigned sending = 0; sending < 2; sending++) {
        struct hoop_step steps[2];
        uint8_t in[2][4] = {"abc", "def"}, out[2][4] = {{0}};
        const struct fake_script script = {.slots = 1};
        struct mesh *mesh = mesh_create(2, &script);
        mesh->no_links = 1u << sending;
        for (uint32_t me = 0; me < 2; me++) {
            steps[me] = hoop_step_none();
            step_send(&steps[me], me, 1 - me, 0, 4);
            step_recv(&steps[me], me, 1 - me, HOOP_RECV_COPY, 0, 4);
            table[me].steps = &steps[me];
            table[me].count = 1;
            mesh_start(mesh, me, table_step, 4, in[me], out[me]);
        }
        assert_int_equal(mesh_poll(mesh), sending ? 0 : 1);
        assert_memory_equal(out[sending ? 0 : 1], in[sending ? 1 : 0], 4);
        assert_int_equal(out[sending ? 1 : 0][0], 0);
        mesh->no_links = 0;
        assert_int_equal(mesh_poll(mesh), 2);
        assert_memory_equal(out[0], in[1], 4);
        assert_memory_equal(out[1], in[0], 4);
        mesh_destroy(mesh);
    }
}

/* A neighbour that has all it needs leaves; the data of the other neighbour still come. */
static void test_leaving_neighbour(void **state)
{
    (void)state;
    struct hoop_step steps[MESH_RANKS];
    uint8_t in[4] = "abc", out[MESH_RANKS][4] = {{0}};
    const struct fake_script script = {.slots = 1};
    struct mesh *mesh = mesh_create(3, &script);
    for (uint32_t me = 0; me < 3; me++) {
        steps[me] = hoop_step_none();
        table[me].steps = &steps[me];
        table[me].count = 1;
    }
    step_send(&steps[0], 0, 1, 0, 4);
    step_recv(&steps[0], 0, 2, HOOP_RECV_COPY, 0, 4);
    step_recv(&steps[1], 1, 0, HOOP_RECV_COPY, 0, 4);
    step_send(&steps[2], 2, 0, 0, 4);
    mesh_start(mesh, 0, table_step, 4, in, out[0]);
    mesh_start(mesh, 1, table_step, 4, in, out[1]);
    assert_int_equal(mesh_poll(mesh), 2); /* rank 2 has no operation yet */
    assert_int_equal(mesh->ranks[0].engine.running, 1);
    hoop_failure_set(&mesh->ranks[0].links[1][0][true]->failure, HOOP_REMOTE_ERROR, 1, "gone");
    mesh_start(mesh, 2, table_step, 4, in, out[2]);
    assert_int_equal(mesh_poll(mesh), 3);
    assert_int_equal(mesh->ranks[0].failure.code, HOOP_OK);
    assert_memory_equal(out[0], in, 4);
    mesh_destroy(mesh);
}

/* ---- Waiting ---- */

static void test_describe(void **state)
{
    (void)state;
    char text[256];
    uint8_t in[2][16] = {{1}}, out[2][16];
    const struct fake_script script = {.slots = 1, .full_lanes = 1};
    struct mesh *mesh = mesh_create(2, &script);
    const struct hoop_engine *engine = &mesh->ranks[0].engine;
    for (uint32_t me = 0; me < 2; me++) {
        mesh_start(mesh, me, hoop_ring_step, sizeof(in[me]), in[me], out[me]);
    }
    hoop_engine_describe(engine, text, sizeof(text));
    assert_string_equal(text, "");

    mesh->no_links = 3;
    assert_int_equal(mesh_poll(mesh), 0);
    hoop_engine_describe(engine, text, sizeof(text));
    assert_string_equal(text, "rank 1 (lane 0, step 0, recv, no link yet), "
                              "rank 1 (lane 0, step 0, send, no link yet), "
                              "rank 1 (lane 1, step 0, recv, no link yet), "
                              "rank 1 (lane 1, step 0, send, no link yet)");

    /* Lane 0 has no link to send on; lane 1 goes on without it. */
    mesh->no_links = 0;
    assert_int_equal(mesh_poll(mesh), 0);
    assert_int_equal(engine->running, 1);
    hoop_engine_describe(engine, text, sizeof(text));
    assert_string_equal(text, "rank 1 (lane 0, step 0, recv), rank 1 (lane 0, step 0, send)");
    for (size_t bytes = 0; bytes < sizeof(text); bytes++) {
        char cut[sizeof(text) + 1];
        memset(cut, '#', sizeof(cut));
        hoop_engine_describe(engine, cut, bytes);
        assert_int_equal(cut[bytes], '#');
        /* parts of the text are whole, as many as fit */
        static const char one[] = "rank 1 (lane 0, step 0, recv)";
        const char *fits = bytes > strlen(text) ? text : bytes > strlen(one) ? one : "";
        assert_true(bytes == 0 || strcmp(cut, fits) == 0);
    }

    /* A failure that the comm reports ends them. */
    for (uint32_t me = 0; me < 2; me++) {
        hoop_failure_set(&mesh->ranks[me].failure, HOOP_ABORTED, -1, "enough");
    }
    assert_int_equal(mesh_poll(mesh), 2);
    hoop_engine_describe(engine, text, sizeof(text));
    assert_string_equal(text, "");
    assert_true(fake_outstanding() > 0);
    mesh_destroy(mesh);
}

/* Which ranks the lanes wait for, as a number with two digits for each lane: rank + 1, then 5 if
 * there is a link. */
static unsigned awaited_for(const struct hoop_engine *engine, bool sending)
{
    const struct hoop_transport *transport = NULL;
    uint32_t cursor = 0, rank = 0;
    unsigned ret = 0;
    while (hoop_engine_awaited(engine, sending, &cursor, &rank, &transport)) {
        assert_true(cursor <= MESH_LANES * HOOP_ENGINE_FLIGHTS);
        assert_true(transport == NULL || transport == &fake_transport);
        ret = ret * 100 + (rank + 1) * 10 + (transport != NULL ? 5 : 0);
    }
    assert_false(hoop_engine_awaited(engine, sending, &cursor, &rank, &transport));
    return ret;
}

static unsigned awaited(const struct hoop_engine *engine)
{
    return awaited_for(engine, false);
}

static void test_awaited(void **state)
{
    (void)state;
    uint8_t in[MESH_RANKS][64] = {{0}}, out[MESH_RANKS][64];
    const struct fake_script script = {.slots = 1};
    struct mesh *mesh = mesh_create(MESH_RANKS, &script);
    const struct hoop_engine *engine = &mesh->ranks[0].engine;
    mesh->no_links = 3;
    mesh_start(mesh, 0, hoop_pairwise_step, sizeof(in[0]), in[0], out[0]);
    assert_int_equal(awaited(engine), 0);
    for (unsigned i = 0; i < 3; i++) {
        (void)hoop_engine_poll(&mesh->ranks[0].engine);
    }
    assert_int_equal(awaited(engine), 30203020);
    assert_int_equal(awaited_for(engine, true), 20302030);
    mesh->no_links = 0;
    (void)hoop_engine_poll(&mesh->ranks[0].engine);
    assert_int_equal(awaited(engine), 35253525);

    /* Rank 2 sends what it owes to the round; rank 1 sends nothing. */
    mesh_start(mesh, 2, hoop_pairwise_step, sizeof(in[2]), in[2], out[2]);
    for (unsigned i = 0; i < 20; i++) {
        (void)hoop_engine_poll(&mesh->ranks[2].engine);
        (void)hoop_engine_poll(&mesh->ranks[0].engine);
    }
    assert_int_equal(awaited(engine), 2525);
    assert_int_equal(awaited(&mesh->ranks[2].engine), 2525);
    mesh_start(mesh, 1, hoop_pairwise_step, sizeof(in[1]), in[1], out[1]);
    assert_int_equal(mesh_poll(mesh), MESH_RANKS);
    assert_int_equal(awaited(engine), 0);
    mesh_destroy(mesh);
}

/* A lane that makes no progress delays no other. */
static void test_lanes_are_independent(void **state)
{
    (void)state;
    uint8_t in[2][400] = {{0}}, out[2][400];
    for (uint32_t stalled = 0; stalled < 2; stalled++) {
        const struct fake_script script = {.slots = 2, .stalled_lanes = 1u << stalled};
        struct mesh *mesh = mesh_create(2, &script);
        for (uint32_t me = 0; me < 2; me++) {
            mesh_start(mesh, me, hoop_ring_step, sizeof(in[me]), in[me], out[me]);
        }
        assert_int_equal(mesh_poll(mesh), 0);
        for (uint32_t me = 0; me < 2; me++) {
            const struct hoop_engine *engine = &mesh->ranks[me].engine;
            assert_int_equal(engine->running, 1);
            assert_int_equal(engine->lanes[stalled].k, 1);
            assert_int_equal(engine->lanes[1 - stalled].k, 2 * (200 / 4) / 2);
        }
        mesh_destroy(mesh);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_steps),       cmocka_unit_test(test_no_buffers),
        cmocka_unit_test(test_scratch),           cmocka_unit_test(test_kept),
        cmocka_unit_test(test_signature),         cmocka_unit_test(test_steps_of_the_board),
        cmocka_unit_test(test_far_offsets),       cmocka_unit_test(test_parts_are_independent),
        cmocka_unit_test(test_leaving_neighbour), cmocka_unit_test(test_describe),
        cmocka_unit_test(test_awaited),           cmocka_unit_test(test_lanes_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
