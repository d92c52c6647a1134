/*
 * The board (see board.h): layout, failure record, waking, announcements.
 *
 * Only a rank itself writes its lines. What it reads of other ranks it loads with acquire, and
 * checks before it uses it for anything but comparisons.
 */
#include "exec/board.h"

#include "algo/taking.h"
#include "runtime/site.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

_Static_assert(sizeof(struct hoop_cell) == HOOP_LINE_BYTES, "a cell is a line");
_Static_assert(sizeof(struct hoop_announce) == HOOP_CELL_DATA_BYTES, "announced in one cell");

/* A tag, from its lowest bit: count (19 bits, and one that marks larger counts), root (12), op (3),
 * type (4), collective (4), sequence (21). */
#define TAG_COUNTS (UINT64_C(1) << 19)
#define TAG_ROOT_SHIFT 20
#define TAG_OP_SHIFT 32
#define TAG_TYPE_SHIFT 35
#define TAG_COLLECTIVE_SHIFT 39
#define TAG_SEQUENCES (UINT64_C(1) << (64 - HOOP_TAG_SEQUENCE_SHIFT))
_Static_assert(3 * HOOP_ONESHOT_MAX_BYTES <= HOOP_AREA_BYTES, "one in use, room before or behind");
_Static_assert(HOOP_ONESHOT_MAX_BYTES < TAG_COUNTS, "what is published is compared exactly");
_Static_assert(HOOP_MAX_RANKS <= 1 << 12, "a root has 12 bits");
_Static_assert(HOOP_NUM_OPS < 1 << 3 && HOOP_NUM_DATATYPES <= 1 << 4, "an op has 3, a type 4");
_Static_assert(HOOP_COLL_COUNT <= 1 << 4, "a collective has 4");

/* The same time for which a rank anywhere waits for the cause of what may be only an effect. */
#define BOARD_CLAIM_PATIENCE_NS (2 * HOOP_NS_PER_S)

static size_t board_align(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t board_rank_stride(uint32_t n)
{
    return board_align(sizeof(struct hoop_board_rank) + (size_t)n * 5 * sizeof(uint64_t),
                       HOOP_APART_BYTES);
}

static size_t board_ranks_bytes(uint32_t n)
{
    return board_align(n * board_rank_stride(n), HOOP_PAGE_BYTES);
}

static size_t board_head_bytes(void)
{
    return board_align(sizeof(struct hoop_board_head), HOOP_PAGE_BYTES);
}

uint64_t hoop_board_bytes(uint32_t n)
{
    return board_head_bytes() + board_ranks_bytes(n) + n * (HOOP_AREA_BYTES + HOOP_SLABS_BYTES);
}

hoop_result_t hoop_board_init(struct hoop_board *board, const struct hoop_roster *roster,
                              uint32_t me)
{
    const uint32_t n = roster->n;
    memset(board, 0, sizeof(*board));
    assert(n <= HOOP_MAX_RANKS && roster->segment_bytes >= hoop_board_bytes(n));
    board->me = me;
    board->n = n;
    board->need_fence = roster->need_fence;
    board->peers = roster->peers;
    board->head = roster->segment;
    board->ranks = (uint8_t *)roster->segment + board_head_bytes();
    board->rank_stride = board_rank_stride(n);
    board->areas = board->ranks + board_ranks_bytes(n);
    board->slabs = board->areas + (size_t)n * HOOP_AREA_BYTES;
    board->scratch = malloc(hoop_scratch_bytes());
    board->src = calloc(n, sizeof(*board->src));
    board->dst = calloc(n, sizeof(*board->dst));
    board->mapped = calloc(2 * (size_t)n, sizeof(*board->mapped));
    board->stuck = calloc(n, sizeof(*board->stuck));
    if (!board->scratch || !board->src || !board->dst || !board->mapped || !board->stuck) {
        hoop_board_finish(board);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the board of %u ranks", n);
    }
    return HOOP_OK;
}

void hoop_board_finish(struct hoop_board *board)
{
    free(board->scratch);
    free(board->src);
    free(board->dst);
    free(board->mapped);
    free(board->stuck);
    memset(board, 0, sizeof(*board));
}

/* Where the kernel cannot (before Linux 5.14) pages are mapped as they are used. */
static void board_map(uint8_t *memory, size_t *mapped, size_t bytes)
{
    if (*mapped < bytes) {
        *mapped = bytes;
        (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
    }
}

void hoop_board_map_slabs(struct hoop_board *board, uint32_t rank, size_t bytes)
{
    board_map(board->slabs + (size_t)rank * HOOP_SLABS_BYTES, &board->mapped[rank], bytes);
}

void hoop_board_say(const struct hoop_board *board, uint32_t what)
{
    atomic_store_explicit(&hoop_board_rank(board, board->me)->said, what, memory_order_release);
}

bool hoop_board_all_say(const struct hoop_board *board, uint32_t what, uint32_t *ret_not)
{
    for (uint32_t rank = 0; rank < board->n; rank++) {
        const uint32_t said =
            atomic_load_explicit(&hoop_board_rank(board, rank)->said, memory_order_acquire);
        if ((said & what) != what) {
            *ret_not = rank;
            return false;
        }
    }
    return true;
}

/* ---- Failure and waking -------------------------------------------------------------------- */

static void board_wake(const struct hoop_board *board, uint32_t rank)
{
    if (board->peers[rank].wake_fd >= 0) { /* else the rank is on another machine */
        hoop_wake(board->peers[rank].wake_fd);
    }
}

static void board_wake_all(const struct hoop_board *board)
{
    for (uint32_t rank = 0; rank < board->n; rank++) {
        board_wake(board, rank);
    }
}

bool hoop_board_fail(struct hoop_board *board, const struct hoop_failure *failure)
{
    uint32_t none = HOOP_FAILED_NOT;
    assert(failure->code != HOOP_OK);
    if (!atomic_compare_exchange_strong(&board->head->failed, &none, HOOP_FAILED_CLAIMED)) {
        return false;
    }
    board->head->failure = *failure;
    atomic_store_explicit(&board->head->failed, HOOP_FAILED_WRITTEN, memory_order_release);
    board_wake_all(board);
    return true;
}

hoop_result_t hoop_board_failure(const struct hoop_board *board, struct hoop_failure *ret)
{
    if (atomic_load_explicit(&board->head->failed, memory_order_acquire) != HOOP_FAILED_WRITTEN) {
        return HOOP_OK;
    }
    struct hoop_failure failure = board->head->failure;
    failure.text[sizeof(failure.text) - 1] = '\0';
    if (!hoop_is_failure((int32_t)failure.code)) {
        failure.code = HOOP_REMOTE_ERROR;
    }
    if (failure.rank < 0 || (uint32_t)failure.rank >= board->n) {
        failure.rank = -1;
    }
    if (ret != NULL) {
        *ret = failure;
    }
    return failure.code;
}

/*
 * CLAIMED: a thread is writing the record and may have lost its CPU, so wait. If the writer died
 * meanwhile, the report of its death finds the record taken and no text ever comes: return without
 * it, but only when the patience has shown that nothing else explains the delay.
 */
hoop_result_t hoop_board_failed(const struct hoop_board *board, struct hoop_failure *ret)
{
    const uint64_t until = hoop_now_ns() + BOARD_CLAIM_PATIENCE_NS;
    uint32_t failed = atomic_load_explicit(&board->head->failed, memory_order_acquire);
    while (failed == HOOP_FAILED_CLAIMED && hoop_now_ns() < until) {
        sched_yield();
        failed = atomic_load_explicit(&board->head->failed, memory_order_acquire);
    }
    if (failed != HOOP_FAILED_CLAIMED) {
        return hoop_board_failure(board, ret);
    }
    if (ret != NULL) {
        *ret = (struct hoop_failure){.code = HOOP_REMOTE_ERROR, .rank = -1};
        strcpy(ret->text, "a rank died while it reported a failure");
    }
    return HOOP_REMOTE_ERROR;
}

void hoop_board_leave(const struct hoop_board *board, uint32_t rank, uint32_t how)
{
    atomic_store_explicit(&hoop_board_rank(board, rank)->left, how, memory_order_release);
    board_wake_all(board);
}

/*
 * Orders a publisher's stores before its loads of `sleeping`. Without need_fence the membarrier
 * between the sleeper's store of `sleeping` and its last look (wait.c) makes a compiler fence
 * enough.
 */
static void board_publish_fence(const struct hoop_board *board)
{
    if (board->need_fence) {
        atomic_thread_fence(memory_order_seq_cst);
    } else {
        atomic_signal_fence(memory_order_seq_cst);
    }
}

/*
 * Of all publishers only the one that clears the flag wakes the rank: until the rank sleeps again,
 * it looks at what the others published. If that one is preempted between the exchange and the
 * wake, the rank sleeps until it runs again.
 */
static void board_wake_sleeper(const struct hoop_board *board, uint32_t rank)
{
    _Atomic uint8_t *sleeping = &board->head->sleeping[rank];
    if (atomic_load_explicit(sleeping, memory_order_relaxed) != 0 &&
        atomic_exchange(sleeping, 0) != 0) {
        board_wake(board, rank);
    }
}

void hoop_board_notify(const struct hoop_board *board, uint32_t rank)
{
    board_publish_fence(board);
    board_wake_sleeper(board, rank);
}

/* Some of these eight ranks sleep. */
__attribute__((cold, noinline)) static void board_wake_of_eight(const struct hoop_board *board,
                                                                uint32_t first)
{
    for (uint32_t i = first; i < first + 8 && i < board->n; i++) {
        if (i != board->me) {
            board_wake_sleeper(board, i);
        }
    }
}

void hoop_board_wake_sleepers(const struct hoop_board *board)
{
    board_publish_fence(board);
    const uint8_t *flags = (const uint8_t *)board->head->sleeping;
    for (uint32_t rank = 0; rank < board->n; rank += 8) {
        /* Eight flags in one load, as every operation comes here. */
        const uint64_t eight =
            __atomic_load_n((const uint64_t *)(const void *)(flags + rank), __ATOMIC_RELAXED);
        if (__builtin_expect(eight != 0, 0)) {
            board_wake_of_eight(board, rank);
        }
    }
}

/* ---- Announcements ------------------------------------------------------------------------- */

/* The lower part of a tag. It is exact where the count fits, which includes everything whose data
 * travel in cells or areas. Larger counts are also in the announcement, and are compared there. */
static uint64_t board_signature(const struct hoop_signature *s)
{
    const uint64_t count = s->count < TAG_COUNTS ? s->count : TAG_COUNTS | s->count % TAG_COUNTS;
    const uint64_t root = s->root < 0 ? 0 : (uint64_t)s->root;
    return count | root << TAG_ROOT_SHIFT | (uint64_t)s->op << TAG_OP_SHIFT |
           (uint64_t)s->type << TAG_TYPE_SHIFT | (uint64_t)s->collective << TAG_COLLECTIVE_SHIFT;
}

void hoop_board_begin(struct hoop_board *board, const struct hoop_signature *signature,
                      const void *site)
{
    const uint32_t set = ++board->sequence % HOOP_BOARD_SETS;
    struct hoop_board_rank *mine = hoop_board_rank(board, board->me);
    struct hoop_signature *now = &mine->now[set];
    atomic_store_explicit(&mine->sites[set], hoop_board_site(site, board->sequence),
                          memory_order_relaxed);
    /* Most operations have the signature of the previous one in their set: store nothing then. */
    if (__builtin_expect(
            board->sequence <= HOOP_BOARD_SETS || !hoop_signature_equal(now, signature), 0)) {
        *now = *signature;
        board->called[set] = board_signature(signature);
    }
    board->starts[set] = board->end;
    board->tag = board->called[set] | (uint64_t)board->sequence << HOOP_TAG_SEQUENCE_SHIFT;
}

/*
 * Pieces are aligned to this, so that nobody is about to write what a core prefetches behind one.
 */
#define BOARD_ROOM_BYTES ((size_t)4096)
/* Less with many ranks, so that the pieces in use lie in few pages: each is a page fault at first,
 * in every process, and later a line of the TLB. But at least this. */
#define BOARD_ROOM_LEAST_BYTES ((size_t)256)
/* Pieces return to the start after this many bytes, or after as many pieces as may be owed, so that
 * they stay in the cache; but not before there is room for three. */
#define BOARD_CYCLE_BYTES ((size_t)262144)

static size_t board_room(uint32_t n, size_t bytes)
{
    const size_t each = HOOP_AREA_BYTES / HOOP_BOARD_SETS; /* of all ranks together */
    if (n <= each / BOARD_ROOM_BYTES) {
        return board_align(bytes, BOARD_ROOM_BYTES);
    }
    const size_t room = each / n / HOOP_LINE_BYTES * HOOP_LINE_BYTES;
    return board_align(bytes, room > BOARD_ROOM_LEAST_BYTES ? room : BOARD_ROOM_LEAST_BYTES);
}

static bool board_goes_far(enum hoop_collective collective, size_t bytes, uint32_t sequence)
{
    const size_t least =
        sequence < HOOP_BOARD_FAR_AFTER ? HOOP_BOARD_FAR_BYTES : HOOP_BOARD_FAR_LEAST_BYTES;
    return bytes >= least && hoop_collective_is_rooted(collective);
}

/* Do so many read what all of them write that what goes round would not stay in a cache? Nobody is
 * more than an operation ahead then, so that few pieces are enough. */
static bool board_is_wide(enum hoop_collective collective, uint32_t n)
{
    return n > HOOP_AREA_BYTES / BOARD_CYCLE_BYTES && !hoop_collective_is_rooted(collective);
}

size_t hoop_board_cycle(enum hoop_collective collective, uint32_t n, size_t bytes,
                        uint32_t sequence)
{
    const size_t room = board_room(n, bytes), all = room * HOOP_BOARD_SETS;
    const bool far = board_goes_far(collective, bytes, sequence);
    size_t most = BOARD_CYCLE_BYTES;
    if (far || board_is_wide(collective, n)) {
        const size_t share = HOOP_AREA_BYTES / hoop_writers(collective, n);
        most = far && share < most ? most : share;
    }
    most = room * 3 > most ? room * 3 : most;
    return far || most < all ? most : all;
}

uint32_t hoop_board_around(enum hoop_collective collective, uint32_t n, size_t bytes,
                           uint32_t sequence)
{
    return (uint32_t)(hoop_board_cycle(collective, n, bytes, sequence) / board_room(n, bytes));
}

static enum hoop_collective board_collective(const struct hoop_board *board)
{
    return (enum hoop_collective)hoop_board_rank(board, board->me)
        ->now[board->sequence % HOOP_BOARD_SETS]
        .collective;
}

/* Where a piece of `bytes` begins: after the latest, or at the start of the area, unless it would
 * overlap the piece of the previous operation, which somebody may still read. */
static size_t board_next_start(const struct hoop_board *board, size_t bytes)
{
    const bool fits = board->end + bytes <=
                      hoop_board_cycle(board_collective(board), board->n, bytes, board->sequence);
    return fits || bytes >= board->starts[(board->sequence - 1) % HOOP_BOARD_SETS] ? board->end : 0;
}

/* The range from `oldest` to `end`, wrapped, is in use; the two are equal only if nothing is. */
bool hoop_board_has_room(const struct hoop_board *board, size_t bytes, uint32_t owing)
{
    if (owing > hoop_may_owe(HOOP_BOARD_SETS) || bytes <= HOOP_CELL_DATA_BYTES) {
        return owing <= hoop_may_owe(HOOP_BOARD_SETS);
    }
    const uint32_t oldest = board->starts[(board->sequence - owing - 1) % HOOP_BOARD_SETS];
    const bool wrapped = board->end < oldest;
    const size_t room = board_room(board->n, bytes);
    const size_t start = board_next_start(board, room);
    return start == board->end ? !wrapped || start + room < oldest : !wrapped && room < oldest;
}

void hoop_board_map_area(struct hoop_board *board, uint32_t rank, size_t bytes)
{
    const enum hoop_collective collective = board_collective(board);
    if (board_goes_far(collective, bytes, board->sequence)) {
        const uint32_t owner = hoop_board_owner(board, rank);
        board_map(board->areas + (size_t)owner * HOOP_AREA_BYTES, &board->mapped[board->n + owner],
                  hoop_board_cycle(collective, board->n, bytes, board->sequence));
    }
}

void hoop_board_take_room(struct hoop_board *board, size_t bytes)
{
    const uint32_t set = board->sequence % HOOP_BOARD_SETS;
    const size_t room = board_room(board->n, bytes);
    const uint32_t start = (uint32_t)board_next_start(board, room);
    struct hoop_board_rank *mine = hoop_board_rank(board, board->me);
    if (start != board->end && !hoop_collective_is_rooted(board_collective(board))) {
        board->turn = board->turn > 0 ? board->turn - 1 : board->n - 1;
    }
    memcpy(mine->cells[set]->data, &start, sizeof(start));
    board->starts[set] = start;
    board->end = start + (uint32_t)room;
}

void hoop_board_post(struct hoop_board *board, const void *data, size_t bytes)
{
    const uint32_t set = board->sequence % HOOP_BOARD_SETS;
    struct hoop_board_rank *mine = hoop_board_rank(board, board->me);
    struct hoop_cell *cell = mine->cells[set];
    const uint8_t *from = data;
    assert(bytes <= HOOP_BOARD_CELLS * HOOP_CELL_DATA_BYTES);
    for (; bytes > HOOP_CELL_DATA_BYTES; bytes -= HOOP_CELL_DATA_BYTES) {
        memcpy(cell++->data, from, HOOP_CELL_DATA_BYTES);
        from += HOOP_CELL_DATA_BYTES;
    }
    if (bytes > 0) {
        memcpy(cell->data, from, bytes);
    }
    atomic_store_explicit(&mine->cells[set]->tag, board->tag, memory_order_release);
    atomic_store_explicit(&mine->called[set], board->tag, memory_order_release);
    hoop_board_wake_sleepers(board);
}

static struct hoop_called board_called(const struct hoop_board *board, uint32_t rank,
                                       uint32_t sequence)
{
    return (struct hoop_called){.rank = rank,
                                .op = sequence,
                                .signature =
                                    hoop_board_rank(board, rank)->now[sequence % HOOP_BOARD_SETS]};
}

static hoop_result_t board_differs(const struct hoop_board *board, uint32_t sequence, uint32_t rank,
                                   struct hoop_failure *failure)
{
    const struct hoop_called mine = board_called(board, board->me, sequence);
    const struct hoop_called theirs = board_called(board, rank, sequence);
    return hoop_called_fail(&mine, &theirs, failure);
}

hoop_result_t hoop_board_mismatch(struct hoop_board *board, uint32_t rank,
                                  struct hoop_failure *failure)
{
    return board_differs(board, board->sequence, rank, failure);
}

/* Counts the owed operations that rank has not announced. HOOP_MISMATCH: it announced another. */
static hoop_result_t board_count_owed(struct hoop_board *board, uint32_t rank, uint32_t *ret,
                                      struct hoop_failure *failure)
{
    const struct hoop_board_rank *mine = hoop_board_rank(board, board->me);
    const struct hoop_board_rank *theirs = hoop_board_rank(board, rank);
    for (*ret = board->owing; *ret > 0; --*ret) {
        const uint32_t sequence = board->sequence - *ret, set = sequence % HOOP_BOARD_SETS;
        const uint64_t my = atomic_load_explicit(&mine->called[set], memory_order_relaxed);
        const uint64_t tag = atomic_load_explicit(&theirs->called[set], memory_order_acquire);
        const uint64_t behind = (my >> HOOP_TAG_SEQUENCE_SHIFT) - (tag >> HOOP_TAG_SEQUENCE_SHIFT);
        if (tag != my && behind == 0) {
            return board_differs(board, sequence, rank, failure);
        }
        if (tag != my && (behind & TAG_SEQUENCES / 2) == 0) {
            break;
        }
        /* The same tag; or that of a later operation, before which rank has compared mine. */
    }
    return HOOP_OK;
}

hoop_result_t hoop_board_apart(struct hoop_board *board, uint32_t rank,
                               struct hoop_failure *failure)
{
    uint32_t owed = 0;
    const hoop_result_t result = board_count_owed(board, rank, &owed, failure);
    return result != HOOP_OK
               ? result
               : hoop_failure_set(failure, HOOP_REMOTE_ERROR, (int)rank,
                                  "rank %u published operation %u where rank %u does not look: its "
                                  "memory is damaged",
                                  rank, board->sequence, board->me);
}

hoop_result_t hoop_board_settle(struct hoop_board *board, uint32_t most, uint32_t *ret_rank,
                                struct hoop_failure *failure)
{
    board->still = *ret_rank > 0 ? board->still : 0;
    for (; *ret_rank < board->n; ++*ret_rank) {
        uint32_t owed = 0;
        const hoop_result_t result = board_count_owed(board, *ret_rank, &owed, failure);
        if (result != HOOP_OK || owed > most) {
            return result != HOOP_OK ? result : HOOP_AGAIN;
        }
        board->still = owed > board->still ? owed : board->still;
    }
    board->owing = board->still;
    return HOOP_OK;
}

hoop_result_t hoop_board_look_back(struct hoop_board *board, struct hoop_failure *failure)
{
    hoop_result_t result = HOOP_OK;
    uint32_t owed = 0;
    board->sequence++; /* owed operations are counted back from the one after the latest */
    for (uint32_t rank = 0; rank < board->n && result == HOOP_OK; rank++) {
        result = board_count_owed(board, rank, &owed, failure);
    }
    board->sequence--;
    return result;
}

/*
 * Adds the call site of a rank of this machine, unless the sentence has it. other: the other rank.
 */
static void board_add_site(const struct hoop_board *board, const struct hoop_called *call,
                           uint32_t other, bool sending, struct hoop_failure *failure)
{
    static const char called[] = "; called by";
    char where[HOOP_SITE_TEXT_BYTES], more[HOOP_SITE_TEXT_BYTES + 48], at[32];
    const int pid = board->peers[call->rank].pid;
    const uint64_t word = atomic_load_explicit(
        call->transfer ? hoop_board_transfer(board, call->rank, other, sending)
                       : &hoop_board_rank(board, call->rank)->sites[call->op % HOOP_BOARD_SETS],
        memory_order_relaxed);
    const uint64_t site = word & ((UINT64_C(1) << HOOP_SITE_BITS) - 1);
    (void)snprintf(at, sizeof(at), " rank %u at ", call->rank);
    if (pid == 0 || site == 0 || word != hoop_board_site((void *)(uintptr_t)site, call->op) ||
        strstr(failure->text, at) != NULL) {
        return;
    }
    hoop_site_describe(pid, site, where, sizeof(where));
    if (strncmp(where, "0x", 2) == 0 || strstr(where, "ffi_call") != NULL ||
        strstr(where, "libffi") != NULL) {
        return; /* of a process that has ended; or called by an interpreter, which knows better */
    }
    (void)snprintf(more, sizeof(more), "%s%s%s",
                   strstr(failure->text, called) != NULL ? "," : called, at, where);
    const size_t length = strlen(failure->text);
    (void)snprintf(failure->text + length, sizeof(failure->text) - length, "%s", more);
}

void hoop_board_name_sites(const struct hoop_board *board, struct hoop_failure *failure)
{
    struct hoop_called calls[2];
    if (hoop_called_find(failure->text, calls) && calls[0].rank < board->n &&
        calls[1].rank < board->n) {
        board_add_site(board, &calls[0], calls[1].rank, false, failure);
        board_add_site(board, &calls[1], calls[0].rank, true, failure);
    }
}
