/*
 * How far a rank may run ahead of the others: whole operations of several ranks over one board, all
 * driven by this thread in a random order, some of them rarely. What a rank publishes stays until
 * all have taken it; a rank that called something else is reported, however late.
 */
#include "operation/operation.h"
#include "runtime/site.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 5u
#define MOST_COUNT 10000u /* more than a oneshot */
#define AHEAD (HOOP_BOARD_SETS - 1)

struct call {
    enum hoop_collective collective;
    uint32_t root;
    uint64_t count;
};

struct rank {
    struct hoop_board board;
    struct hoop_operation operation;
    uint64_t in[MOST * MOST_COUNT], out[MOST * MOST_COUNT];
    uint32_t done; /* how many of the drawn calls it has completed */
    bool runs;
};

struct world {
    uint32_t n;
    struct hoop_agreement agreed;
    struct hoop_roster roster;
    struct hoop_peer peers[MOST];
    struct rank *ranks; /* [n] */
};

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

static void world_make(struct world *world, uint32_t n)
{
    memset(world, 0, sizeof(*world));
    world->n = n;
    world->agreed.oneshot_bytes = HOOP_ONESHOT_MAX_BYTES;
    world->roster.n = n;
    world->roster.segment_bytes = hoop_board_bytes(n);
    world->roster.segment = mmap(NULL, world->roster.segment_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(world->roster.segment, MAP_FAILED);
    world->roster.peers = world->peers;
    world->ranks = calloc(n, sizeof(*world->ranks));
    assert_non_null(world->ranks);
    for (uint32_t r = 0; r < n; r++) {
        struct rank *rank = &world->ranks[r];
        const struct hoop_operation_env env = {.board = &rank->board,
                                               .maps.peers = world->peers,
                                               .agreed = &world->agreed,
                                               .one_process = true,
                                               .wake_fd = -1};
        world->peers[r] = (struct hoop_peer){.pid = getpid(), .wake_fd = -1, .same_process = true};
        assert_int_equal(hoop_board_init(&rank->board, &world->roster, r), HOOP_OK);
        assert_int_equal(hoop_operation_init(&rank->operation, &env), HOOP_OK);
    }
}

static void world_end(struct world *world)
{
    for (uint32_t r = 0; r < world->n; r++) {
        hoop_operation_finish(&world->ranks[r].operation);
        hoop_board_finish(&world->ranks[r].board);
    }
    free(world->ranks);
    munmap(world->roster.segment, world->roster.segment_bytes);
}

/* Element i of block b of rank r's input to operation `at`. */
static uint64_t input(uint32_t at, uint32_t r, uint64_t b, uint64_t i)
{
    return at * UINT64_C(1000003) + r * UINT64_C(10007) + b * 101 + i;
}

static void start(struct world *world, uint32_t r, const struct call *call)
{
    struct rank *rank = &world->ranks[r];
    const uint64_t blocks =
        hoop_extent_blocks(hoop_collectives[call->collective].in, world->n, r == call->root);
    for (uint64_t b = 0; b < blocks; b++) {
        for (uint64_t i = 0; i < call->count; i++) {
            rank->in[b * call->count + i] = input(rank->done, r, b, i);
        }
    }
    const struct hoop_request request = {
        .signature = {.collective = (uint8_t)call->collective,
                      .type = HOOP_UINT64,
                      .op = HOOP_SUM,
                      .root =
                          hoop_collective_is_rooted(call->collective) ? (int32_t)call->root : -1,
                      .count = call->count},
        .in = rank->in,
        .out = rank->out,
    };
    rank->runs = true;
    hoop_operation_start(&rank->operation, &request);
}

/* Element i of block b of rank r's output. */
static uint64_t output(const struct world *world, uint32_t at, const struct call *call, uint32_t r,
                       uint64_t b, uint64_t i)
{
    const struct hoop_collective_row *row = &hoop_collectives[call->collective];
    const uint64_t block = hoop_extent_is_each(row->in) ? r : 0;
    uint64_t sum = 0;
    for (uint32_t q = 0; q < world->n; q++) {
        sum += input(at, q, block, i);
    }
    return row->folds                        ? sum
           : hoop_extent_is_each(row->out)   ? input(at, (uint32_t)b, block, i)
           : row->in >= HOOP_EXTENT_ROOT_ONE ? input(at, call->root, block, i)
                                             : 0;
}

static void check(const struct world *world, uint32_t r, const struct call *call)
{
    const struct rank *rank = &world->ranks[r];
    const uint64_t blocks =
        hoop_extent_blocks(hoop_collectives[call->collective].out, world->n, r == call->root);
    for (uint64_t at = 0; at < blocks * call->count; at++) {
        const uint64_t block = at / call->count, i = at % call->count;
        if (rank->out[at] != output(world, rank->done, call, r, block, i)) {
            fail_msg("operation %u, %s of %llu, root %u: element %llu of block %llu of rank %u",
                     rank->done, hoop_collectives[call->collective].name,
                     (unsigned long long)call->count, call->root, (unsigned long long)i,
                     (unsigned long long)block, r);
        }
    }
}

/* One call or one poll of a rank. IDLE: it can't move. */
static enum hoop_poll move(struct world *world, uint32_t r, const struct call *call)
{
    struct rank *rank = &world->ranks[r];
    if (!rank->runs) {
        start(world, r, call);
        return HOOP_POLL_BUSY;
    }
    const enum hoop_poll polled = hoop_operation_poll(&rank->operation);
    rank->runs = polled != HOOP_POLL_DONE;
    return polled;
}

/* Makes the same call as often as it can, up to `most` times. */
static uint32_t run_ahead(struct world *world, uint32_t r, const struct call *call, uint32_t most)
{
    const uint32_t before = world->ranks[r].done;
    enum hoop_poll polled = HOOP_POLL_BUSY;
    while (polled != HOOP_POLL_IDLE && world->ranks[r].done - before < most) {
        polled = move(world, r, call);
        if (polled == HOOP_POLL_DONE) {
            assert_int_equal(world->ranks[r].operation.failure.code, HOOP_OK);
            check(world, r, call);
            world->ranks[r].done++;
        }
    }
    return world->ranks[r].done - before;
}

/* ---- How far -------------------------------------------------------------------------------- */

/* Rank `ahead` runs as far as it can: `room` calls. Only when the others have done half of these
 * can it go on, for `again` calls. */
static void check_room(uint32_t n, uint32_t ahead, struct call call, uint32_t room, uint32_t again)
{
    struct world world;
    world_make(&world, n);
    assert_int_equal(run_ahead(&world, ahead, &call, 1000), room);
    const uint32_t back = room - room / 2;
    for (uint32_t r = 0; r < n; r++) {
        if (r != ahead) {
            assert_int_equal(run_ahead(&world, r, &call, back - 1), back - 1);
        }
    }
    assert_int_equal(run_ahead(&world, ahead, &call, 1000), 0);
    for (uint32_t r = 0; r < n; r++) {
        if (r != ahead) {
            assert_int_equal(run_ahead(&world, r, &call, 1), 1);
        }
    }
    assert_int_equal(run_ahead(&world, ahead, &call, 1000), again);
    world_end(&world);
}

static void test_room(void **state)
{
    (void)state;
    const uint64_t cells = HOOP_CELL_DATA_BYTES / 8;
    /* of a cycle */
    const uint64_t tenth = hoop_board_cycle(HOOP_COLL_GATHER, 5, 65536, 1) / 10 / 4096 * 4096 / 8;
    check_room(2, 0, (struct call){HOOP_COLL_BROADCAST, 0, 1}, AHEAD, 16);
    check_room(3, 0, (struct call){HOOP_COLL_BROADCAST, 0, cells}, AHEAD, 16);
    check_room(3, 2, (struct call){HOOP_COLL_BROADCAST, 2, 500}, AHEAD, 15);
    check_room(3, 1, (struct call){HOOP_COLL_BROADCAST, 1, tenth}, AHEAD, 16);
    /* One of the four blocks is the root's own. */
    check_room(4, 0, (struct call){HOOP_COLL_SCATTER, 0, 300}, AHEAD, 15);
    check_room(4, 0, (struct call){HOOP_COLL_SCATTER, 0, tenth / 3}, AHEAD, 16);
    check_room(2, 1, (struct call){HOOP_COLL_REDUCE, 0, 1}, AHEAD, 16);
    check_room(2, 1, (struct call){HOOP_COLL_GATHER, 0, 512}, AHEAD, 15);
    check_room(5, 0, (struct call){HOOP_COLL_GATHER, 4, tenth / 2}, 21, 9);
    check_room(5, 0, (struct call){HOOP_COLL_GATHER, 4, tenth}, 10, 3);
}

/* ---- An area -------------------------------------------------------------------------------- */

struct piece {
    size_t start, bytes; /* bytes 0: none */
};

/* Nothing that is still in use lies where the new piece goes. */
static void check_piece(const struct piece last[HOOP_BOARD_SETS], const struct hoop_board *board,
                        struct piece piece)
{
    assert_true(piece.start + piece.bytes <= HOOP_AREA_BYTES);
    for (uint32_t back = 1; back <= board->owing + 1; back++) {
        const struct piece other = last[(board->sequence - back) % HOOP_BOARD_SETS];
        assert_true(piece.start + piece.bytes <= other.start ||
                    other.start + other.bytes <= piece.start);
    }
}

/* Pieces of random sizes, by a rank that owes now and then, and settles when it has to. */
static void test_area(void **state)
{
    (void)state;
    static const uint8_t collectives[] = {HOOP_COLL_ALL_GATHER, HOOP_COLL_BROADCAST,
                                          HOOP_COLL_REDUCE};
    struct world world;
    struct piece last[HOOP_BOARD_SETS] = {{0, 0}};
    world_make(&world, 2);
    struct hoop_board *board = &world.ranks[0].board;
    seed = 11;
    for (uint32_t at = 0; at < 200000; at++) {
        const uint32_t shift = draw(9), most = (uint32_t)HOOP_ONESHOT_MAX_BYTES >> shift;
        const size_t bytes = draw(8) == 0 ? most : 1 + draw(most);
        const bool in_area = bytes > HOOP_CELL_DATA_BYTES;
        const struct hoop_signature drawn = {.collective = collectives[draw(3)]};
        hoop_board_begin(board, &drawn, NULL);
        if (!hoop_board_has_room(board, bytes, board->owing)) {
            board->owing = draw(board->owing);
        }
        if (!hoop_board_has_room(board, bytes, board->owing)) {
            board->owing = 0;
            assert_true(hoop_board_has_room(board, bytes, 0));
        }
        struct piece piece = {0, 0};
        if (in_area) {
            hoop_board_take_room(board, bytes);
            piece.start = board->starts[board->sequence % HOOP_BOARD_SETS];
            piece.bytes = bytes;
            check_piece(last, board, piece);
        }
        last[board->sequence % HOOP_BOARD_SETS] = piece;
        board->owing = draw(6) == 0 ? 0 : board->owing + 1;
    }
    world_end(&world);
}

/* ---- Who writes where ------------------------------------------------------------------------ */

/* All ranks publish: a rank writes where the rank before it wrote when pieces last lay there. If
 * only one rank publishes it always writes to the same area. */
static void check_turns(uint32_t n, enum hoop_collective collective, uint64_t count)
{
    struct world world;
    const struct call call = {collective, 0, count};
    const uint32_t pieces = hoop_board_around(collective, n, count * sizeof(uint64_t), 1);
    const uint32_t further = collective != HOOP_COLL_BROADCAST;
    size_t before[MOST] = {0};
    world_make(&world, n);
    for (uint32_t at = 0; at < 7 * pieces; at++) {
        for (uint32_t finished = 0; finished < n;) {
            const uint32_t r = draw(n);
            finished += world.ranks[r].done == at && run_ahead(&world, r, &call, 1) == 1;
        }
        size_t now[MOST] = {0};
        for (uint32_t r = 0; r < n; r++) {
            const struct hoop_board *board = &world.ranks[0].board;
            now[r] = (size_t)(hoop_board_area(board, r) - board->areas);
            for (uint32_t seer = 1; seer < n; seer++) {
                board = &world.ranks[seer].board;
                assert_int_equal(hoop_board_area(board, r) - board->areas, now[r]);
            }
        }
        for (uint32_t r = 0; at % pieces == 0 && r < n; r++) {
            assert_true(at == 0 || now[(r + further) % n] == before[r]);
        }
        if (at % pieces == 0) {
            memcpy(before, now, sizeof(before));
        }
    }
    world_end(&world);
}

static void test_turns(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MOST; n++) {
        check_turns(n, HOOP_COLL_ALL_GATHER, 1024);
        check_turns(n, HOOP_COLL_ALL_REDUCE, 1024);
        check_turns(n, HOOP_COLL_ALL_REDUCE, 100);
        check_turns(n, HOOP_COLL_BROADCAST, 1024);
    }
}

/* Three pieces have room. Where all read what more than eight write it is no more than one area's
 * worth, unless three are. */
static void check_cycle(enum hoop_collective collective, uint32_t n, size_t bytes,
                        uint32_t sequence)
{
    const bool wide = n > 8 && !hoop_collective_is_rooted(collective);
    const size_t cycle = hoop_board_cycle(collective, n, bytes, sequence);
    assert_true(hoop_board_around(collective, n, bytes, sequence) >= 3);
    assert_true(cycle <= HOOP_AREA_BYTES);
    assert_true(!wide || collective == HOOP_COLL_BARRIER || cycle <= 3 * (bytes + 4096) ||
                cycle * (n - 1) <= HOOP_AREA_BYTES);
}

/* Small pieces lie in few pages. */
static void test_cycle(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 1000; n += 1 + n / 9) {
        for (size_t bytes = HOOP_CELL_DATA_BYTES + 1; bytes <= HOOP_ONESHOT_MAX_BYTES; bytes *= 2) {
            for (unsigned c = 0; c < HOOP_COLL_ALLTOALLV; c++) {
                check_cycle((enum hoop_collective)c, n, bytes, 1);
                check_cycle((enum hoop_collective)c, n, bytes, HOOP_BOARD_FAR_AFTER);
            }
        }
    }
    assert_int_equal(hoop_board_cycle(HOOP_COLL_ALL_REDUCE, 8, 100, 1), HOOP_BOARD_SETS * 4096);
    assert_int_equal(hoop_board_cycle(HOOP_COLL_ALL_REDUCE, 64, 100, 1), HOOP_BOARD_SETS * 1024);
    assert_true(hoop_board_cycle(HOOP_COLL_REDUCE, 2, 4096, HOOP_BOARD_FAR_AFTER) >
                hoop_board_cycle(HOOP_COLL_REDUCE, 2, 4096, HOOP_BOARD_FAR_AFTER - 1));
}

/* ---- Any operations behind each other ------------------------------------------------------- */

#define CALLS 400u

static void draw_calls(struct call calls[CALLS], uint32_t n)
{
    const uint64_t counts[] = {0, 1, 7, 56, 57, 600, 3000, MOST_COUNT};
    for (uint32_t at = 0; at < CALLS; at++) {
        if (at > 0 && draw(10) != 0) {
            calls[at] = calls[at - 1];
            continue;
        }
        const uint32_t size = draw(16);
        do {
            calls[at].collective = (enum hoop_collective)draw(HOOP_COLL_COUNT);
        } while (calls[at].collective == HOOP_COLL_ALLTOALLV); /* that one goes over links */
        calls[at].root = draw(n);
        calls[at].count = counts[size < 8 ? size : 1];
        calls[at].count = calls[at].collective == HOOP_COLL_BARRIER ? 0 : calls[at].count;
    }
}

/* Rank `slow` moves rarely. Returns the largest distance between the first and the last rank. */
static uint32_t run(struct world *world, const struct call calls[CALLS], uint32_t slow)
{
    uint32_t finished = 0, most = 0;
    while (finished < world->n) {
        const uint32_t r = draw(world->n);
        struct rank *rank = &world->ranks[r];
        if (rank->done == CALLS || (r == slow && draw(200) != 0)) {
            continue;
        }
        if (move(world, r, &calls[rank->done]) == HOOP_POLL_DONE) {
            assert_int_equal(rank->operation.failure.code, HOOP_OK);
            check(world, r, &calls[rank->done]);
            finished += ++rank->done == CALLS;
        }
        const uint32_t ahead = rank->done - world->ranks[slow].done;
        most = rank->done > world->ranks[slow].done && ahead > most ? ahead : most;
    }
    return most;
}

static void test_any(void **state)
{
    (void)state;
    static struct call calls[CALLS];
    uint32_t most = 0;
    for (uint64_t s = 1; s <= 40; s++) {
        struct world world;
        seed = s;
        const uint32_t n = 2 + draw(MOST - 1);
        world_make(&world, n);
        /* every other time pieces go further from some call on */
        for (uint32_t r = 0; s % 2 == 0 && r < n; r++) {
            world.ranks[r].board.sequence = HOOP_BOARD_FAR_AFTER - CALLS / 2;
        }
        draw_calls(calls, n);
        const uint32_t ahead = run(&world, calls, draw(n));
        most = ahead > most ? ahead : most;
        world_end(&world);
    }
    /* The first had begun one more than it had completed. */
    assert_in_range(most, AHEAD, AHEAD + 1);
}

/* ---- Calls that differ ---------------------------------------------------------------------- */

/* Runs until no rank moves. No rank passes the last call, a barrier. Returns how many ranks were
 * told about operation `which`. */
static uint32_t run_apart(struct world *world, uint32_t calls, const struct call *all,
                          uint32_t differs, const struct call *other, uint32_t which)
{
    bool over[MOST] = {false};
    uint32_t told = 0, idle = 0;
    char said[64];
    (void)snprintf(said, sizeof(said), "operation %u differs: ", which + 1);
    while (idle < 1000) {
        const uint32_t r = draw(world->n);
        struct rank *rank = &world->ranks[r];
        if (over[r]) {
            idle++;
            continue;
        }
        const enum hoop_poll polled =
            move(world, r, r == differs && rank->done == which ? other : &all[rank->done]);
        idle = polled == HOOP_POLL_IDLE ? idle + 1 : 0;
        if (polled == HOOP_POLL_DONE && rank->operation.failure.code == HOOP_OK) {
            if (rank->done != which) {
                check(world, r, &all[rank->done]);
            }
            assert_true(++rank->done < calls);
        } else if (polled == HOOP_POLL_DONE) {
            assert_int_equal(rank->operation.failure.code, HOOP_MISMATCH);
            assert_non_null(strstr(rank->operation.failure.text, said));
            over[r] = true;
            told++;
        }
    }
    return told;
}

static void test_apart(void **state)
{
    (void)state;
    static const enum hoop_collective rooted[] = {HOOP_COLL_BROADCAST, HOOP_COLL_REDUCE,
                                                  HOOP_COLL_GATHER, HOOP_COLL_SCATTER};
    struct call calls[AHEAD + 1];
    for (uint64_t s = 1; s <= 1000; s++) {
        struct world world;
        seed = s;
        const uint32_t n = 2 + draw(MOST - 1), which = draw(AHEAD);
        world_make(&world, n);
        for (uint32_t at = 0; at < AHEAD; at++) {
            calls[at] = (struct call){rooted[draw(4)], draw(n), 1 + draw(2)};
            calls[at].count *= draw(2) == 0 ? 1 : 600; /* in cells, or in areas */
        }
        calls[AHEAD] = (struct call){HOOP_COLL_BARRIER, 0, 0};
        struct call other = calls[which];
        if (draw(2) == 0) {
            other.root = (other.root + 1) % n;
        } else {
            other.count += draw(2) == 0 ? 1 : 600;
        }
        assert_true(run_apart(&world, AHEAD + 1, calls, draw(n), &other, which) > 0);
        world_end(&world);
    }
}

/* ---- Where they were called ----------------------------------------------------------------- */

static const void *site_of(uint32_t r, uint32_t which)
{
    return (const char *)(uintptr_t)&site_of + 1 + (size_t)16 * r + which;
}

static void begin(struct world *world, uint32_t r, uint32_t times)
{
    static const struct hoop_signature barrier = {.collective = HOOP_COLL_BARRIER, .root = -1};
    struct hoop_board *board = &world->ranks[r].board;
    for (uint32_t i = 0; i < times; i++) {
        hoop_board_begin(board, &barrier, site_of(r, board->sequence + 1));
    }
}

static void transfer(struct world *world, uint32_t r, uint32_t peer, bool sending, uint32_t which)
{
    atomic_store(hoop_board_transfer(&world->ranks[r].board, r, peer, sending),
                 hoop_board_site(site_of(r, which), which));
}

/* The text names the place of this call once if `named`, and otherwise not at all. */
static void check_site(const char *sentence, const struct hoop_called *call, bool named)
{
    char where[HOOP_SITE_TEXT_BYTES], expected[HOOP_SITE_TEXT_BYTES + 32], at[32];
    hoop_site_describe(getpid(), (uintptr_t)site_of(call->rank, call->op), where, sizeof(where));
    (void)snprintf(at, sizeof(at), " rank %u at ", call->rank);
    (void)snprintf(expected, sizeof(expected), "%s%s", at, where);
    const char *said = strstr(sentence, named ? expected : at);
    if ((said != NULL) != named || (said != NULL && strstr(said + 1, at) != NULL)) {
        fail_msg("%s: rank %u", sentence, call->rank);
    }
}

/* What rank 2 is told about ranks 0 and 1, which made these calls. */
static void check_sites(struct world *world, enum hoop_collective collective, uint32_t which0,
                        uint32_t which1, bool named0, bool named1)
{
    const struct hoop_called calls[2] = {
        {.rank = 0, .op = which0, .signature = {.collective = collective, .count = 3, .root = -1}},
        {.rank = 1, .op = which1, .signature = {.collective = collective, .count = 4, .root = -1}},
    };
    struct hoop_failure failure = {.code = HOOP_OK};
    assert_int_equal(hoop_called_fail(&calls[0], &calls[1], &failure), HOOP_MISMATCH);
    for (int twice = 0; twice < 2; twice++) {
        hoop_board_name_sites(&world->ranks[2].board, &failure);
        check_site(failure.text, &calls[0], named0);
        check_site(failure.text, &calls[1], named1);
    }
}

static void test_sites(void **state)
{
    (void)state;
    struct world world;
    world_make(&world, 3);
    begin(&world, 0, 5);
    begin(&world, 1, 8);
    check_sites(&world, HOOP_COLL_ALL_GATHER, 5, 5, true, true);
    check_sites(&world, HOOP_COLL_ALL_GATHER, 5, 7, true, true);
    check_sites(&world, HOOP_COLL_ALL_GATHER, 5, 9, true, false);
    begin(&world, 1, HOOP_BOARD_SETS);
    check_sites(&world, HOOP_COLL_ALL_GATHER, 5, 8, true, false);
    check_sites(&world, HOOP_COLL_ALL_GATHER, 5, 9, true, true);
    transfer(&world, 0, 1, false, 6);
    check_sites(&world, HOOP_TRANSFER, 6, 6, true, false);
    transfer(&world, 1, 0, true, 6);
    check_sites(&world, HOOP_TRANSFER, 6, 6, true, true);
    transfer(&world, 1, 0, true, 7);
    check_sites(&world, HOOP_TRANSFER, 6, 6, true, false);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),  cmocka_unit_test(test_area), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_cycle), cmocka_unit_test(test_any),  cmocka_unit_test(test_apart),
        cmocka_unit_test(test_sites),
    };
    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
