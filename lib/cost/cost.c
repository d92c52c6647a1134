/* See cost.h. */
#include "cost/cost.h"

#include "algo/taking.h"

#include <assert.h>
#include <string.h>

/*
 * The constants, in ns, and the measurements behind them. They are written before a profile's first
 * comm is born, and only read from then on. 2-core AMD EPYC, plain memory, us:
 *
 *     bytes of an all_reduce        1K    2K    4K    8K   16K   32K   64K
 *     2 ranks, oneshot            0.13  0.20  0.31  0.41  0.66  1.35  2.8   0.1 + 0.042 a KiB
 *     2 ranks, slab                            0.78  0.85  1.1   1.5   2.6   0.7 + 0.029 a KiB
 *
 * A oneshot of n ranks copies S and reads n S, where a rank's own vector costs as much as a peer's;
 * a slab copies 2 S, reads S and writes S. TCP over loopback: 15 us a message, 1.5 GB/s. Messages
 * that are sent at the same time wait together, but where ranks outnumber CPUs each of them is work
 * that somebody waits for: an all_reduce of 48 KiB of 4 ranks on 2 CPUs took 1.3 to 1.7 times as
 * much CPU time pairwise (24 messages) as by bruck (8). RDMA was not measured on an adapter, but
 * estimated for 100 Gbit/s: 1 us on the way and 1.5 us of work at both ends; of one more message at
 * the same time only a post and a completion count; bytes are copied and summed while others are on
 * the wire. Over Soft-RoCE these constants choose what is faster there, too
 * (docs/inside/tuning.md). A radix of bruck with fewer rounds and no more messages than another
 * needs no measurement: 3 for 3, 5, 6 and 9 ranks.
 *
 * That slab passed all of the input through itself. With the present one, between 2 ranks on 2
 * Sapphire Rapids cores, fastest iteration of 1500, in turn, on a busy machine:
 *
 *     bytes of an all_reduce          8K   16K   32K   48K   64K
 *     2 ranks, oneshot               2.9   4.1   7.0    11    16
 *     2 ranks, slab                  4.0   5.6   7.9   9.4    12
 *
 * By cma (process_vm_readv) a byte moves once, and each call takes 0.6 us. What it reads is in the
 * reader's cache when it is folded. 2 ranks on 2 Sapphire Rapids cores, fastest iteration of many
 * on a busy machine, us in place (all_gather, broadcast, and the old slab: fastest of 300, another
 * day):
 *
 *     bytes in all            256K   512K    1M    2M
 *     all_gather    slab        20
 *                   cma         10
 *     broadcast     slab        36
 *                   cma         13
 *     reduce_       slab        23                184
 *      scatter      cma         13                114
 *     reduce        slab        33     66         257
 *                   cma         24    160         476
 *     all_reduce    slab        24           98
 *                   cma         36          246
 *
 * A root that folds alone has to hold three vectors in its cache.
 *
 * Sends and receives both ways at once, 2 ranks, the same cores, us, fastest of 60 to 450:
 *
 *     bytes                4K    8K   16K   32K   256K    2M
 *     by slots            1.3   2.4   5.7   6.6    40    432
 *     read                1.9   2.3   3.6   4.5    14    232
 *
 * A sender whose data are read waits for the receiver, which it need not if they fit into slots.
 * That counts where ranks outnumber CPUs. 4 ranks on the 2 cores beside 40 other tasks, us of CPU
 * time:
 *
 *     bytes               32K        64K        128K       256K
 *     by slots          42, 37     45, 57     67, 78    152, 135
 *     read              67, 65     79, 75    100, 93    121, 118
 *
 * Ranks that outnumber CPUs, 2 CPUs of AMD (Zen 4 or 5), plain memory, us, medians:
 *
 *     bytes                          64    4K   32K   64K  128K  256K
 *     3 ranks, all_reduce, oneshot  2.3   3.9   9.5    16    31    61
 *                          slab      11    11    13    18    25    37
 *     4 ranks, all_reduce, oneshot  3.4   5.6    12    31    54    98
 *                          slab      13    12    17    28    40    63
 *     8 ranks, all_reduce, oneshot   11    15    51    77   157   312
 *                          slab      37    40    45    62    89   118
 *     4 ranks, alltoall,   oneshot  2.9   3.2   5.4    14    25    40
 *                          slab      11    12    15    22    30    48
 *                          cma       35    30    38    44    58    87
 *     4 ranks, broadcast,  oneshot  0.5   1.1   5.3   9.4    22    32
 *                          slab     8.6   8.7    13    19    28    47
 *                          cma       15    11    16    21    31    54
 *
 *    64 ranks, all_reduce, oneshot  110   440  4200                14000
 *                          slab           520   730                 1250
 *
 * A barrier's cost is that of a slab of 64 bytes, divided by its two or three barriers; a byte's
 * cost is that with 2 ranks on a CPU. Each further rank there counts half as much: it finds some of
 * what it reads in the cache, because the others have read it.
 */
static struct hoop_cost_constants cost_table[HOOP_COST_CLASSES] = {
    [HOOP_COST_MEMORY] = {.sync = 100,
                          .sync_per = 20,
                          .barrier = 230,
                          .barrier_per = 20,
                          .moved = 14,
                          .folded = 14,
                          .call = 600,
                          .read = 10},
    [HOOP_COST_OVERSUBSCRIBED] = {.sync = 900,
                                  .sync_per = 1250,
                                  .barrier = 1000,
                                  .barrier_per = 1800,
                                  .moved = 70,
                                  .folded = 70,
                                  .call = 5000,
                                  .read = 190},
    [HOOP_COST_LINKS] = {.sync = 15000, .message = 5000, .moved = 680, .folded = 60, .call = 40},
    [HOOP_COST_LINKS_OVERSUBSCRIBED] =
        {.sync = 15000, .message = 15000, .moved = 680, .folded = 60, .call = 40},
    [HOOP_COST_LINKS_RDMA] = {.sync = 2500, .message = 400, .moved = 150, .folded = 60, .call = 40},
};

void hoop_cost_get_memory(struct hoop_cost_constants ret[HOOP_COST_MEMORIES])
{
    memcpy(ret, cost_table, HOOP_COST_MEMORIES * sizeof(ret[0]));
}

void hoop_cost_set_memory(const struct hoop_cost_constants constants[HOOP_COST_MEMORIES])
{
    memcpy(cost_table, constants, HOOP_COST_MEMORIES * sizeof(constants[0]));
}

/* Rounds and bytes of the busiest rank. */
struct cost_work {
    uint64_t syncs, moved, folded, calls, read;
};

static uint64_t cost_log2(uint64_t n)
{
    uint64_t ret = 0;
    while (UINT64_C(1) << ret < n) {
        ret++;
    }
    return ret;
}

/* Exchanges of bruck in all rounds; *ret_rounds: the number of rounds. */
static uint64_t cost_exchanges(uint64_t n, uint64_t radix, uint64_t *ret_rounds)
{
    uint64_t ret = 0;
    *ret_rounds = 0;
    assert(radix >= 2);
    for (uint64_t have = 1; have < n; have *= radix) {
        const uint64_t missing = (n - 1) / have;
        ret += missing < radix - 1 ? missing : radix - 1;
        ++*ret_rounds;
    }
    return ret;
}

/* An all_gather by bruck always has radix 2. */
static uint64_t cost_radix(const struct hoop_plan *plan)
{
    return plan->collective == HOOP_COLL_ALL_GATHER ? 2 : plan->radix;
}

static uint64_t cost_rate(uint64_t bytes, uint64_t per_kib)
{
    return bytes / 1024 * per_kib + bytes % 1024 * per_kib / 1024;
}

/* Bytes that the busiest rank contributes. */
static uint64_t cost_in(const struct hoop_plan *plan, uint64_t block)
{
    return hoop_extent_blocks(hoop_collectives[plan->collective].in, plan->n, true) * block;
}

/* The part of these bytes that is for others. */
static uint64_t cost_brought(const struct hoop_plan *plan, uint64_t block)
{
    const bool gets = hoop_collectives[plan->collective].out >= HOOP_EXTENT_ROOT_ONE;
    return hoop_blocks_for_others(plan->collective, plan->n, !gets) * block;
}

static uint64_t cost_out(const struct hoop_plan *plan, uint64_t block)
{
    return hoop_extent_blocks(hoop_collectives[plan->collective].out, plan->n, true) * block;
}

/* Does it fold one vector, so that ranks can share the work? */
static bool cost_shares(const struct hoop_plan *plan)
{
    return hoop_collectives[plan->collective].folds &&
           !hoop_collective_is_blocked(plan->collective);
}

/*
 * Counts one call per source, as for a single slice: with more slices only bytes matter. What is
 * read to be folded stays in the cache, unless a root folds everything. A shard that one rank folds
 * for all is written once and then read from there, as through a slab.
 */
static struct cost_work cost_cma(const struct hoop_plan *plan, uint64_t block)
{
    const struct hoop_collective_row *row = &hoop_collectives[plan->collective];
    const uint64_t others = plan->n - 1, not_mine = block - block / plan->n;
    if (plan->collective == HOOP_COLL_ALL_REDUCE) {
        return (struct cost_work){.syncs = 3,
                                  .moved = 2 * not_mine,
                                  .folded = block,
                                  .calls = 2 * others,
                                  .read = not_mine};
    }
    if (row->folds) {
        return (struct cost_work){.syncs = 2,
                                  .folded = cost_shares(plan) ? plan->n * block : block,
                                  .calls = others,
                                  .read = others * block};
    }
    return row->in >= HOOP_EXTENT_ROOT_ONE
               ? (struct cost_work){.syncs = 2, .calls = 1, .read = block}
               : (struct cost_work){
                     .syncs = 2, .moved = block, .calls = others, .read = others * block};
}

/* A rank's own block does not pass through its slab, nor does the shard that it folds. */
static struct cost_work cost_slab(const struct hoop_plan *plan, uint64_t block)
{
    const struct hoop_collective_row *row = &hoop_collectives[plan->collective];
    const uint64_t in = cost_in(plan, block), out = cost_out(plan, block);
    const uint64_t slab = plan->chunk * plan->type_bytes;
    const uint64_t chunks = slab > 0 ? in / slab + (in % slab != 0) : 1;
    const uint64_t brought = cost_brought(plan, block);
    if (cost_shares(plan)) {
        return (struct cost_work){
            .syncs = 2 + chunks, .moved = 2 * (block - block / plan->n), .folded = block};
    }
    return row->folds ? (struct cost_work){.syncs = 1 + chunks,
                                           .moved = brought,
                                           .folded = plan->n * block}
                      : (struct cost_work){.syncs = 1 + chunks, .moved = brought + out};
}

static struct cost_work cost_memory(const struct hoop_plan *plan, uint64_t block)
{
    const bool folds = hoop_collectives[plan->collective].folds;
    const uint64_t brought = cost_brought(plan, block), out = cost_out(plan, block);
    const uint64_t read = folds ? plan->n * block : 0, copied = folds ? 0 : out;
    switch (plan->algo) {
    case HOOP_ALGO_ONESHOT:
        return (struct cost_work){.syncs = 1, .moved = brought + copied, .folded = read};
    case HOOP_ALGO_DIRECT:
        return cost_shares(plan) ? (struct cost_work){.syncs = 2, .moved = block, .folded = block}
               : plan->collective == HOOP_COLL_GATHER /* each rank writes its own */
                   ? (struct cost_work){.syncs = 2, .moved = block}
                   : (struct cost_work){.syncs = 2, .moved = copied, .folded = read};
    case HOOP_ALGO_CMA:
        return cost_cma(plan, block);
    default:
        return cost_slab(plan, block);
    }
}

/* Do all blocks go to the root, or come from it? */
static bool cost_is_star(const struct hoop_plan *plan)
{
    return hoop_collective_is_rooted(plan->collective) && !cost_shares(plan);
}

/* Pairwise: the number of columns of chunks, which follow one another. */
static uint64_t cost_columns(const struct hoop_plan *plan, uint64_t block, uint64_t chunk)
{
    const uint64_t each = cost_shares(plan) ? block / plan->n : block;
    return chunk > 0 && each > chunk ? each / chunk + (each % chunk != 0) : 1;
}

/* Messages of all rounds beyond the one per round that is counted as a sync. */
static uint64_t cost_messages(const struct hoop_plan *plan, uint64_t block, uint64_t chunk)
{
    if (plan->algo == HOOP_ALGO_BRUCK) {
        uint64_t rounds = 0;
        const uint64_t exchanges = cost_exchanges(plan->n, cost_radix(plan), &rounds);
        return exchanges - rounds;
    }
    if (plan->algo == HOOP_ALGO_HIERARCHICAL) {
        /* One rank per machine sends: its work, spread over all ranks. */
        const uint64_t machines = plan->grid->machines;
        return hoop_collective_is_rooted(plan->collective) ? 0
                                                           : (machines - 2) * machines / plan->n;
    }
    const bool rounds = plan->algo == HOOP_ALGO_PAIRWISE && plan->n > 2 && !cost_is_star(plan);
    return rounds ? (cost_shares(plan) ? UINT64_C(2) : 1) * (plan->n - 2) *
                        cost_columns(plan, block, chunk)
                  : 0;
}

static struct cost_work cost_links(const struct hoop_plan *plan, uint64_t block, uint64_t chunk)
{
    const uint64_t n = plan->n, others = n - 1, hops = cost_log2(n);
    const bool shares = cost_shares(plan);
    const bool folds = hoop_collectives[plan->collective].folds;
    switch (plan->algo) {
    case HOOP_ALGO_RING:
    case HOOP_ALGO_PAIRWISE: {
        /*
         * Each phase moves others/n of the vector: in the ring by steps that wait for each other,
         * pairwise in one round, in which received data are copied once more, or compete with data
         * from other ranks. If all go to the root or come from it, they hardly wait for each other.
         */
        const uint64_t phases = shares ? 2 : 1;
        const uint64_t each = shares ? block / n : block;
        const uint64_t moved = phases * others * each, folded = folds ? others * each : 0;
        if (cost_is_star(plan)) {
            return (struct cost_work){.syncs = 1 + others / 4, .moved = moved, .folded = folded};
        }
        return plan->algo == HOOP_ALGO_RING
                   ? (struct cost_work){.syncs = phases * others, .moved = moved, .folded = folded}
                   : (struct cost_work){.syncs = phases * cost_columns(plan, block, chunk),
                                        .moved = moved,
                                        .folded = folded + others * each};
    }
    case HOOP_ALGO_TORUS: {
        /*
         * Inside a machine a step costs at most a context switch, and a byte goes through memory.
         * Measured where ranks outnumber CPUs: bruck wins up to 16 KiB with 4 ranks on 2 machines,
         * and up to 8 KiB with 8 on 2.
         */
        const uint64_t phases = shares ? 2 : 1, between = plan->grid->machines - 1;
        const uint64_t each = shares ? block / n : block;
        return (struct cost_work){.syncs = 1 + phases * between + phases * (others - between) / 3,
                                  .moved = phases * (between * 4 + others - between) * each / 4,
                                  .folded = folds ? others * each : 0};
    }
    case HOOP_ALGO_HIERARCHICAL: {
        /*
         * Likewise inside a machine, where a byte is gathered and handed on. Measured in the same
         * way: it wins up to 64 KiB on 2 machines of 2 or 4 ranks and on 4 of 2, in every
         * collective; in alltoall and reduce_scatter that is the size of all ranks' blocks
         * together.
         */
        const uint64_t far = plan->grid->machines - 1, most = plan->grid->most, mates = most - 1;
        const struct hoop_collective_row *row = &hoop_collectives[plan->collective];
        const bool rooted = hoop_collective_is_rooted(plan->collective);
        const bool blocked = hoop_collective_is_blocked(plan->collective);
        const uint64_t brought = (row->in == HOOP_EXTENT_EACH ? n : 1) * block;
        const uint64_t got = (row->out == HOOP_EXTENT_EACH ? n : 1) * block;
        const bool everywhere = plan->collective == HOOP_COLL_ALLTOALL; /* copied block by block */
        const uint64_t share = (everywhere ? most * most : blocked ? most : 1) * block;
        return (struct cost_work){.syncs = 1 + (rooted ? (mates + far) / 4 : mates / 3),
                                  .moved = far * share + mates * (brought + got) / 8,
                                  .folded = folds ? (mates + 1) * brought + far * share : 0,
                                  .calls = everywhere ? most * n : 0};
    }
    case HOOP_ALGO_CHAIN: {
        const uint64_t first = block < chunk ? block : chunk;
        return (struct cost_work){.syncs = others,
                                  .moved = block + (others > 0 ? others - 1 : 0) * first,
                                  .folded = folds ? block : 0};
    }
    case HOOP_ALGO_BINOMIAL:
        return plan->collective == HOOP_COLL_BROADCAST
                   ? (struct cost_work){.syncs = hops, .moved = hops * block}
                   : (struct cost_work){
                         .syncs = hops, .moved = others * block, .folded = folds ? n * block : 0};
    default: { /* bruck */
        uint64_t rounds = 0;
        (void)cost_exchanges(n, cost_radix(plan), &rounds);
        return (struct cost_work){
            .syncs = rounds, .moved = others * block, .folded = folds ? n * block : 0};
    }
    }
}

uint64_t hoop_cost(enum hoop_cost_class class, uint64_t shared_by, const struct hoop_plan *plan,
                   uint64_t chunk_bytes)
{
    assert(class < HOOP_COST_CLASSES && plan->n > 0);
    const struct hoop_cost_constants *c = &cost_table[class];
    const uint64_t block = plan->count * plan->type_bytes;
    const struct cost_work work =
        class >= HOOP_COST_LINKS ? cost_links(plan, block, chunk_bytes) : cost_memory(plan, block);
    const bool barriers = class < HOOP_COST_LINKS && plan->algo != HOOP_ALGO_ONESHOT;
    const uint64_t first = barriers ? c->barrier : c->sync;
    const uint64_t per = barriers ? c->barrier_per : c->sync_per;
    const uint64_t sync = first + per * (plan->n > 2 ? plan->n - 2 : 0);
    const uint64_t busy = cost_rate(work.moved, c->moved) + cost_rate(work.folded, c->folded) +
                          work.calls * c->call + cost_rate(work.read, c->read);
    return work.syncs * sync + cost_messages(plan, block, chunk_bytes) * c->message +
           (shared_by > 2 ? busy * (shared_by + 2) / 4 : busy);
}

uint32_t hoop_cost_radix(enum hoop_cost_class class, uint32_t n)
{
    assert(class >= HOOP_COST_LINKS && class < HOOP_COST_CLASSES);
    const struct hoop_cost_constants *c = &cost_table[class];
    uint32_t ret = 2;
    uint64_t least = UINT64_MAX;
    for (uint32_t radix = 2; radix <= HOOP_RADIX_MOST && (radix == 2 || radix <= n); radix++) {
        uint64_t rounds = 0;
        const uint64_t exchanges = cost_exchanges(n, radix, &rounds);
        const uint64_t cost = rounds * c->sync + (exchanges - rounds) * c->message;
        if (cost <= least) { /* at equal cost the larger radix has fewer rounds */
            ret = radix;
            least = cost;
        }
    }
    return ret;
}

uint64_t hoop_cost_read_least(enum hoop_cost_class class)
{
    assert(class < HOOP_COST_MEMORIES);
    return class == HOOP_COST_OVERSUBSCRIBED ? 262144 : 16384;
}

uint64_t hoop_cost_transfer(enum hoop_cost_class class, uint64_t bytes, bool read)
{
    assert(class < HOOP_COST_CLASSES);
    const struct hoop_cost_constants *c = &cost_table[class];
    const uint64_t once = cost_rate(bytes, read ? c->read : c->moved);
    return c->sync + (read ? c->call + once : class >= HOOP_COST_LINKS ? once : 2 * once);
}
