/* See engine_world.h. */
#include "fakes/engine_world.h"

#include "base/clock.h"
#include "memory/region.h"
#include "runtime/process.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define WORLD_MAX_IMPORTS (ENGINE_MAX_RANKS * HOOP_MAX_LANES)
#define WORLD_COMM_ID 0x1122334455667788u
/* A fake link may do nothing many times in a row by chance, but not as often as this. */
#define WORLD_IDLE_POLLS 2000
#define WORLD_THREAD_TIMEOUT_MS 60000

struct world_import {
    uint64_t region_id;
    uint32_t generation;
};

struct world_rank {
    struct world *world;
    uint32_t me;
    bool started, ended;
    unsigned current; /* the case that it is in */
    uint64_t random, link_calls;
    const char *wrong;
    struct case_data *data; /* for each case; that of the strangers comes last */
    struct hoop_link *links[ENGINE_MAX_RANKS][HOOP_MAX_LANES][2]; /* [peer][lane][sending] */
    struct world_import imports[WORLD_MAX_IMPORTS]; /* in use until the links are gone */
    uint32_t n_imports;
    const void *src[ENGINE_MAX_RANKS];
    struct hoop_plan plan;
    struct hoop_engine engine;
    struct hoop_failure failure;
};

struct world {
    const struct world_setup *setup;
    const struct engine_case *cases;
    unsigned n_cases;
    uint32_t lanes; /* the most of any case */
    bool mesh;      /* links between all ranks, not only round the ring */
    uint64_t chunk_bytes;
    bool bad_link_happened;
    uint64_t deadline_ns;
    struct world_rank ranks[ENGINE_MAX_RANKS];
};

/* ---- Cases ---- */

/* How many cases there are, with that of the strangers, which comes last. */
static unsigned world_cases(const struct world *world)
{
    return world->n_cases + (world->setup->strange != NULL);
}

static const struct engine_case *world_case_at(const struct world *world, unsigned i)
{
    return i < world->n_cases ? &world->cases[i] : world->setup->strange;
}

/* ---- Links ---- */

/* All ranks are in this process, and so are their regions. */
static hoop_result_t world_import(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                                  void **ret_base, uint64_t *ret_bytes)
{
    struct world_rank *rank = arg;
    (void)peer;
    assert(rank->n_imports < WORLD_MAX_IMPORTS);
    const hoop_result_t result =
        hoop_region_use(hoop_process_id(), region_id, generation, ret_base, ret_bytes);
    if (result == HOOP_OK) {
        rank->imports[rank->n_imports++] = (struct world_import){region_id, generation};
    }
    return result;
}

/* Makes one end, and its blob for the other. */
static void world_link_create(struct world_rank *rank, uint32_t peer, uint32_t lane, bool sending,
                              struct hoop_blob *ret_blob)
{
    const struct world_setup *setup = rank->world->setup;
    const struct hoop_link_params params = {
        .comm_id = WORLD_COMM_ID,
        .me = rank->me,
        .peer = peer,
        .lane = lane,
        .sending = sending,
        .slots = setup->slots,
        .chunk_bytes = rank->world->chunk_bytes,
        .import = world_import,
        .arg = rank,
    };
    if (hoop_link_create(setup->transport, &params, &rank->links[peer][lane][sending], ret_blob,
                         &rank->failure) != HOOP_OK) {
        rank->wrong = "a link cannot be created";
    }
}

static void world_link_bind(struct world_rank *rank, struct hoop_link *link,
                            const struct hoop_blob *blob)
{
    hoop_result_t result = HOOP_AGAIN;
    for (unsigned i = 0; i < WORLD_IDLE_POLLS && result == HOOP_AGAIN; i++) {
        result = hoop_link_bind(link, blob);
    }
    if (result != HOOP_OK) {
        rank->wrong = "a link cannot be bound";
    }
}

static void world_links_open(struct world *world)
{
    const uint32_t n = world->setup->n;
    for (uint32_t i = 0; i < n * n * world->lanes; i++) {
        const uint32_t from = i / n % n, to = i % n, lane = i / n / n;
        struct world_rank *sender = &world->ranks[from], *receiver = &world->ranks[to];
        struct hoop_blob blobs[2] = {{0}};
        if (from == to || (!world->mesh && to != (from + 1) % n)) {
            continue;
        }
        world_link_create(sender, to, lane, true, &blobs[0]);
        world_link_create(receiver, from, lane, false, &blobs[1]);
        if (sender->wrong == NULL && receiver->wrong == NULL) {
            world_link_bind(sender, sender->links[to][lane][true], &blobs[1]);
            world_link_bind(receiver, receiver->links[from][lane][false], &blobs[0]);
        }
    }
}

static void world_links_close(struct world_rank *rank)
{
    for (uint32_t i = 0; i < 2 * HOOP_MAX_LANES * rank->world->setup->n; i++) {
        struct hoop_link **link =
            &rank->links[i / 2 / HOOP_MAX_LANES][i / 2 % HOOP_MAX_LANES][i % 2];
        hoop_link_destroy(*link);
        *link = NULL;
    }
    while (rank->n_imports > 0) {
        const struct world_import *import = &rank->imports[--rank->n_imports];
        hoop_region_unuse(hoop_process_id(), import->region_id, import->generation);
    }
}

static hoop_result_t world_link(void *arg, uint32_t peer, uint32_t lane, bool sending,
                                struct hoop_link **ret_link)
{
    struct world_rank *rank = arg;
    const struct world_setup *setup = rank->world->setup;
    if (engine_random(&rank->random, 100) < setup->no_link_percent) {
        return HOOP_AGAIN;
    }
    if (rank->me == setup->bad_link_rank && ++rank->link_calls == setup->bad_link_call) {
        rank->world->bad_link_happened = true;
        return HOOP_SYSTEM_ERROR;
    }
    if (lane >= rank->plan.lanes || peer >= setup->n || rank->links[peer][lane][sending] == NULL) {
        rank->wrong = "the engine asked for a link that there is not";
        return HOOP_INTERNAL_ERROR;
    }
    *ret_link = rank->links[peer][lane][sending];
    return HOOP_OK;
}

/* ---- One rank ---- */

static void world_rank_start(struct world_rank *rank)
{
    const struct world *world = rank->world;
    const struct world_setup *setup = world->setup;
    const bool stranger = (setup->stranger >> rank->me & 1) != 0;
    const bool strange = stranger && setup->strange != NULL;
    const unsigned i = strange ? world->n_cases : rank->current;
    const struct engine_case *c = world_case_at(world, i);
    const struct case_data *data = &rank->data[i];
    rank->plan = engine_case_plan(c, setup->n, rank->me);
    const struct hoop_engine_op op = {
        .plan = &rank->plan,
        .steps = hoop_algo_steps(HOOP_COLL_ALL_REDUCE, c->algo),
        .reduction = {c->type, c->op, c->op == HOOP_AVG ? setup->n : 0},
        .in = data->in,
        .out = data->out.data,
        .scratch = data->scratch,
        .src = data->scratch != NULL ? rank->src : NULL,
        .signature = engine_case_signature(c),
        .sequence = rank->current + (stranger && !strange ? 1000 : 0),
        .link = world_link,
        .arg = rank,
        .keeps = hoop_plan_keeps(&rank->plan),
    };
    hoop_engine_start(&rank->engine, &op, &rank->failure);
    rank->started = true;
}

/* How many of a lane's steps in [from, to) use a link. */
static unsigned world_linked_steps(const struct world_rank *rank, uint32_t lane, uint64_t from,
                                   uint64_t to)
{
    const struct hoop_engine_op *op = &rank->engine.op;
    struct hoop_step step;
    unsigned count = 0;
    for (uint64_t k = from; k < to; k++) {
        count +=
            op->steps(op->plan, lane, k, &step) && (step.send.peer >= 0 || step.recv.peer >= 0);
    }
    return count;
}

/* Polls once. When a case has ended, begins the next. */
static enum hoop_poll world_rank_poll(struct world_rank *rank)
{
    uint64_t before[HOOP_MAX_LANES];
    if (!rank->started) {
        world_rank_start(rank);
    }
    const uint32_t lanes = rank->plan.lanes;
    for (uint32_t i = 0; i < lanes; i++) {
        before[i] = rank->engine.lanes[i].k;
    }
    const enum hoop_poll polled = hoop_engine_poll(&rank->engine);
    for (uint32_t i = 0; i < lanes; i++) {
        if (world_linked_steps(rank, i, before[i], rank->engine.lanes[i].k) > 1) {
            rank->wrong = "a poll did several steps of a lane";
        }
    }
    if (polled != HOOP_POLL_DONE) {
        return polled;
    }
    if (hoop_engine_poll(&rank->engine) != HOOP_POLL_DONE) {
        rank->wrong = "a poll after the end did not say done";
    }
    rank->started = false;
    rank->current++;
    rank->ended = rank->failure.code != HOOP_OK || rank->current == rank->world->n_cases;
    return HOOP_POLL_BUSY;
}

/* ---- All ranks ---- */

/* A rank that has failed loses its links, and its buffers are freed. */
static void world_rank_bury(struct world_rank *rank)
{
    world_links_close(rank);
    for (unsigned i = 0; i < world_cases(rank->world); i++) {
        case_data_bury(&rank->data[i]);
    }
}

static void world_tell(struct world *world, uint32_t culprit)
{
    for (uint32_t r = 0; r < world->setup->n; r++) {
        if (!world->ranks[r].ended) {
            hoop_failure_set(&world->ranks[r].failure, HOOP_REMOTE_ERROR, (int)culprit,
                             "rank %u failed", culprit);
        }
    }
}

/* Has it ended a case that some ranks have not begun, although it needs all of them? */
static bool world_is_early(const struct world_rank *rank, unsigned ended)
{
    const struct world *world = rank->world;
    const struct engine_case *c = &world->cases[ended];
    bool begun = true;
    for (uint32_t r = 0; r < world->setup->n; r++) {
        const struct world_rank *other = &world->ranks[r];
        begun = begun && (other->current > ended || other->started);
    }
    return !begun && (c->count > 0 || c->algo == HOOP_ALGO_BRUCK);
}

/* Draws among the ranks that have not ended; a late one only if no other moves. */
static struct world_rank *world_draw(struct world *world, uint64_t *random, unsigned idle)
{
    const uint32_t n = world->setup->n;
    struct world_rank *rank = NULL;
    for (unsigned i = 0; rank == NULL || rank->ended; i++) {
        rank = &world->ranks[engine_random(random, n)];
        if ((world->setup->late >> rank->me & 1) != 0 && idle < 8 * n && i < 8 * n) {
            rank = NULL;
        }
    }
    assert(rank->world == world);
    return rank;
}

/* One rank's turn. False: nothing moved. */
static bool world_turn(struct world *world, struct world_rank *rank)
{
    const unsigned before = rank->current;
    const enum hoop_poll polled = world_rank_poll(rank);
    if (rank->current > before && rank->failure.code == HOOP_OK && world->setup->n > 1 &&
        world_is_early(rank, before)) {
        rank->wrong = "a rank ended what another had not begun";
    }
    return polled != HOOP_POLL_IDLE;
}

/* One thread drives all ranks. If polls have no effect, many times in a row, the ranks hang. */
static void world_run_serial(struct world *world, struct world_outcome *ret)
{
    uint64_t random = world->setup->seed;
    unsigned idle = 0, running = world->setup->n;
    unsigned news = 0; /* polls until the others hear of a failure; 0: there is none */
    while (running > 0 && !ret->hung) {
        struct world_rank *rank = world_draw(world, &random, idle);
        idle = world_turn(world, rank) ? 0 : idle + 1;
        ret->hung = idle > WORLD_IDLE_POLLS * world->setup->n;
        if (rank->ended) {
            running--;
            if (rank->failure.code != HOOP_OK) {
                ret->first = news == 0 ? rank->me : ret->first;
                news = news == 0 ? 1 + (unsigned)engine_random(&random, 64) : news;
                world_rank_bury(rank);
            }
        }
        if (news > 0 && --news == 0) {
            world_tell(world, ret->first);
            news = UINT32_MAX;
        }
    }
}

static void *world_thread(void *arg)
{
    struct world_rank *rank = arg;
    while (!rank->ended) {
        if (world_rank_poll(rank) == HOOP_POLL_IDLE) {
            if (hoop_now_ns() > rank->world->deadline_ns) {
                return rank; /* hung */
            }
            sched_yield();
        }
    }
    return NULL;
}

static void world_run_threads(struct world *world, struct world_outcome *ret)
{
    pthread_t threads[ENGINE_MAX_RANKS];
    world->deadline_ns = hoop_deadline_ns(WORLD_THREAD_TIMEOUT_MS);
    for (uint32_t r = 0; r < world->setup->n; r++) {
        if (pthread_create(&threads[r], NULL, world_thread, &world->ranks[r]) != 0) {
            perror("engine_world");
            exit(1);
        }
    }
    for (uint32_t r = 0; r < world->setup->n; r++) {
        void *hung = NULL;
        pthread_join(threads[r], &hung);
        ret->hung = ret->hung || hung != NULL;
    }
}

/* ---- Birth, check and death of a world ---- */

static void world_measure(struct world *world)
{
    for (unsigned i = 0; i < world_cases(world); i++) {
        const struct engine_case *c = world_case_at(world, i);
        const uint64_t bytes = engine_case_chunk_bytes(c, world->setup->n);
        world->mesh = world->mesh || c->algo != HOOP_ALGO_RING;
        world->lanes = c->lanes > world->lanes ? c->lanes : world->lanes;
        world->chunk_bytes = bytes > world->chunk_bytes ? bytes : world->chunk_bytes;
    }
}

static void world_open(struct world *world)
{
    world_measure(world);
    for (uint32_t r = 0; r < world->setup->n; r++) {
        struct world_rank *rank = &world->ranks[r];
        rank->world = world;
        rank->me = r;
        rank->random = world->setup->seed + r;
        rank->data = engine_alloc(world_cases(world) * sizeof(*rank->data));
        for (unsigned i = 0; i < world_cases(world); i++) {
            case_data_init(&rank->data[i], world_case_at(world, i), world->setup->n, r);
        }
    }
    world_links_open(world);
}

static const char *world_check(const struct world *world)
{
    const char *wrong = NULL;
    const uint32_t n = world->setup->n;
    for (unsigned i = 0; i < world->n_cases && wrong == NULL; i++) {
        const struct engine_case *c = &world->cases[i];
        const void *inputs[ENGINE_MAX_RANKS] = {NULL};
        for (uint32_t r = 0; r < n; r++) {
            inputs[r] = world->ranks[r].data[i].pristine;
        }
        void *expected = engine_alloc(c->count * hoop_datatype_bytes(c->type));
        engine_case_expect(c, n, inputs, expected);
        for (uint32_t r = 0; r < n && wrong == NULL; r++) {
            wrong = case_data_check(&world->ranks[r].data[i], expected);
        }
        free(expected);
    }
    return wrong;
}

static void world_close(struct world *world)
{
    for (uint32_t r = 0; r < world->setup->n; r++) {
        struct world_rank *rank = &world->ranks[r];
        world_links_close(rank);
        for (unsigned i = 0; i < world_cases(world); i++) {
            case_data_finish(&rank->data[i]);
        }
        free(rank->data);
    }
}

void world_run(const struct world_setup *setup, const struct engine_case *cases, unsigned n_cases,
               struct world_outcome *ret)
{
    assert(setup->n >= 1 && setup->n <= ENGINE_MAX_RANKS);
    struct world *world = engine_alloc(sizeof(*world));
    *ret = (struct world_outcome){0};
    *world = (struct world){.setup = setup, .cases = cases, .n_cases = n_cases};
    world_open(world);
    bool well = true;
    for (uint32_t r = 0; r < setup->n; r++) {
        well = well && world->ranks[r].wrong == NULL;
    }
    if (well && setup->threads) {
        world_run_threads(world, ret);
    } else if (well) {
        world_run_serial(world, ret);
    }
    for (uint32_t r = 0; r < setup->n; r++) {
        const struct world_rank *rank = &world->ranks[r];
        ret->failure[r] = rank->failure;
        ret->wrong = ret->wrong == NULL ? rank->wrong : ret->wrong;
        well = well && rank->failure.code == HOOP_OK;
    }
    ret->bad_link_happened = world->bad_link_happened;
    if (well && !ret->hung && ret->wrong == NULL) {
        ret->wrong = world_check(world);
    }
    world_close(world);
    free(world);
}
