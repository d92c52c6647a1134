/*
 * The least time that an all_reduce takes over verbs: each message is one write with immediate data
 * to registered memory, and sums are made in place. There is no header, check, credit or choice,
 * and a lost packet may end it. In turn with that, what ib_write_lat prints: half of a round trip
 * between two ranks.
 *
 *     least RANKS BYTES ITERATIONS      in tests/vm/run with so many devices; 2 to 4 ranks
 *
 * Prints medians, us: "half 21.3 oneshot 42.9", for 3 ranks "half 410 pairwise 1310", for 4
 * "half 1372 pairwise 4452 halving 4128".
 * Slots and sums are used again in every other operation: a rank in the next but one has received
 * what all sent in the next, which they did after they were done with this one.
 */
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#define RANKS 4
#define GID_INDEX 1 /* RoCE v2 with IPv4 */
#define TURNS 4
#define RECEIVES 64
#define INLINE_BYTES 256

/* One rank's side of its queue with another. */
struct end {
    uint32_t queue, key;
    uint64_t memory;
    union ibv_gid gid;
};

static struct {
    struct end ends[RANKS][RANKS];
    _Atomic int here;
} * shared;

static int n, me, barriers;
static size_t bytes; /* of a vector */
static uint32_t operation;
static bool crowded;
/* The vector, and then for even and odd operations: a slot for each rank, and the sums. */
static char *memory;
static struct ibv_mr *region;
static struct ibv_cq *events;
static struct ibv_qp *queues[RANKS];
static uint32_t sent, heard[RANKS], awaited[RANKS];

static void need(bool well, const char *what)
{
    if (!well) {
        fprintf(stderr, "least: rank %d: %s failed\n", me, what);
        exit(1);
    }
}

static void barrier(void)
{
    const int all = n * ++barriers;
    (void)atomic_fetch_add(&shared->here, 1);
    while (atomic_load(&shared->here) < all) {
        usleep(1000);
    }
}

static size_t slot_at(int slot)
{
    return bytes * (1 + (size_t)(operation % 2) * (RANKS + 1) + (size_t)slot);
}

static size_t sums_at(void)
{
    return slot_at(RANKS);
}

/* ---- Setting up ------------------------------------------------------------------------------ */

static void receive(int peer)
{
    struct ibv_recv_wr wr = {.wr_id = (uint64_t)peer}, *bad = NULL;
    need(ibv_post_recv(queues[peer], &wr, &bad) == 0, "ibv_post_recv");
}

static struct ibv_context *open_device(void)
{
    char name[16];
    struct ibv_device **list = ibv_get_device_list(NULL);
    snprintf(name, sizeof(name), "rxe%d", me);
    while (list != NULL && *list != NULL && strcmp(ibv_get_device_name(*list), name) != 0) {
        list++;
    }
    return list != NULL && *list != NULL ? ibv_open_device(*list) : NULL;
}

static void make_queue(struct ibv_context *device, struct ibv_pd *domain, int peer)
{
    struct ibv_qp_init_attr attr = {.send_cq = events,
                                    .recv_cq = events,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {1024, RECEIVES, 1, 1, INLINE_BYTES}};
    struct end *end = &shared->ends[me][peer];
    queues[peer] = ibv_create_qp(domain, &attr);
    need(queues[peer] != NULL, "ibv_create_qp");
    *end = (struct end){queues[peer]->qp_num, region->rkey, (uintptr_t)memory, {{0}}};
    need(ibv_query_gid(device, 1, GID_INDEX, &end->gid) == 0, "ibv_query_gid");
}

static void connect_queue(int peer)
{
    const struct end *end = &shared->ends[peer][me];
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
                               .path_mtu = IBV_MTU_4096,
                               .dest_qp_num = end->queue,
                               .min_rnr_timer = 12,
                               .timeout = 17,
                               .retry_cnt = 6,
                               .rnr_retry = 6,
                               .ah_attr = {.port_num = 1, .is_global = 1}};
    attr.ah_attr.grh = (struct ibv_global_route){end->gid, 0, GID_INDEX, 64, 0};
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    need(ibv_modify_qp(queues[peer], &attr, init) == 0, "INIT");
    attr.qp_state = IBV_QPS_RTR;
    const int receives = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    need(ibv_modify_qp(queues[peer], &attr, receives) == 0, "RTR");
    attr.qp_state = IBV_QPS_RTS;
    const int sends = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    need(ibv_modify_qp(queues[peer], &attr, sends) == 0, "RTS");
    for (int i = 0; i < RECEIVES; i++) {
        receive(peer);
    }
}

static void set_up(void)
{
    const size_t room = bytes * (1 + 2 * (RANKS + 1));
    struct ibv_context *device = open_device();
    need(device != NULL, "opening rxe");
    struct ibv_pd *domain = ibv_alloc_pd(device);
    events = ibv_create_cq(device, 4096, NULL, NULL, 0);
    memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(domain != NULL && events != NULL && memory != MAP_FAILED, "memory");
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        ((float *)(void *)memory)[i] = (float)((size_t)me + i % 7);
    }
    region = ibv_reg_mr(domain, memory, room, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    need(region != NULL, "ibv_reg_mr");
    for (int i = 1; i < n; i++) {
        make_queue(device, domain, (me + i) % n);
    }
    barrier();
    for (int i = 1; i < n; i++) {
        connect_queue((me + i) % n);
    }
    barrier();
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Writes from one offset to another; the memory is laid out alike on all ranks. */
static void put(int peer, size_t from, size_t to, size_t count)
{
    const struct end *end = &shared->ends[peer][me];
    struct ibv_sge part = {(uintptr_t)memory + from, (uint32_t)count, region->lkey};
    struct ibv_send_wr *bad = NULL;
    struct ibv_send_wr wr = {.wr_id = RANKS,
                             .sg_list = &part,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .send_flags = (++sent % 16 == 0 ? IBV_SEND_SIGNALED : 0u) |
                                           (count <= INLINE_BYTES ? IBV_SEND_INLINE : 0u),
                             .wr = {.rdma = {end->memory + to, end->key}}};
    need(ibv_post_send(queues[peer], &wr, &bad) == 0, "ibv_post_send");
}

/* Waits for the next message of this peer. */
static void await(int peer)
{
    awaited[peer]++;
    while ((int32_t)(heard[peer] - awaited[peer]) < 0) {
        struct ibv_wc event;
        const int came = ibv_poll_cq(events, 1, &event);
        need(came >= 0 && (came == 0 || event.status == IBV_WC_SUCCESS), "a message");
        if (came > 0 && event.wr_id < RANKS) {
            heard[event.wr_id]++;
            receive((int)event.wr_id);
        } else if (came == 0 && crowded) {
            sched_yield();
        }
    }
}

static void add(size_t to, size_t from, size_t other, size_t count)
{
    float *sum = (void *)(memory + to);
    const float *a = (void *)(memory + from), *b = (void *)(memory + other);
    for (size_t i = 0; i < count / sizeof(float); i++) {
        sum[i] = a[i] + b[i];
    }
}

static void half(void)
{
    if (me < 2) {
        if (me == 0) {
            put(1, 0, slot_at(0), bytes);
        }
        await(1 - me);
        if (me == 1) {
            put(0, 0, slot_at(0), bytes);
        }
    }
}

static void oneshot(void)
{
    put(1 - me, 0, slot_at(0), bytes);
    await(1 - me);
    add(sums_at(), 0, slot_at(0), bytes);
}

/* Where a rank's part begins. */
static size_t part_at(int rank)
{
    return bytes / sizeof(float) * (size_t)rank / (size_t)n * sizeof(float);
}

/* Each rank sums one part of all vectors, and sends it to all. */
static void pairwise(void)
{
    const size_t mine = part_at(me), part = part_at(me + 1) - mine;
    for (int i = 1; i < n; i++) {
        const int peer = (me + i) % n;
        put(peer, part_at(peer), slot_at(me), part_at(peer + 1) - part_at(peer));
    }
    for (int i = 1; i < n; i++) {
        const int peer = (me + n - i) % n;
        await(peer);
        add(sums_at() + mine, i == 1 ? mine : sums_at() + mine, slot_at(peer), part);
    }
    for (int i = 1; i < n; i++) {
        put((me + i) % n, sums_at() + mine, sums_at() + mine, part);
    }
    for (int i = 1; i < n; i++) {
        await((me + n - i) % n);
    }
}

/* Exchanges halves with one peer, halves of these with the next, and then the same backwards. */
static void halving(void)
{
    size_t at = 0, count = bytes, from = 0;
    for (int bit = n / 2; bit > 0; bit /= 2) {
        const int peer = me ^ bit;
        count /= 2;
        const size_t theirs = at + (peer > me ? count : 0);
        at += me > peer ? count : 0;
        put(peer, from + theirs, slot_at(bit), count);
        await(peer);
        add(sums_at() + at, from + at, slot_at(bit), count);
        from = sums_at();
    }
    for (int bit = 1; bit < n; bit *= 2) {
        const int peer = me ^ bit;
        put(peer, sums_at() + at, sums_at() + at, count);
        await(peer);
        at -= me > peer ? count : 0;
        count *= 2;
    }
}

/* ---- Measuring ------------------------------------------------------------------------------- */

static void verify(void)
{
    const float *sums = (void *)(memory + sums_at());
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        need(sums[i] == (float)((size_t)(n * (n - 1) / 2) + (size_t)n * (i % 7)), "the sum");
    }
}

static double now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void measure(void (*run)(void), int iterations, double *ret)
{
    barrier();
    run();
    operation++;
    double before = now_us();
    for (int i = 0; i < iterations; i++) {
        run();
        const double now = now_us();
        ret[i] = run == half ? (now - before) / 2 : now - before;
        before = now;
        operation++;
    }
    operation--;
    if (run != half) {
        verify();
        memset(memory + sums_at(), 0, bytes);
    }
    operation++;
}

static int compare(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

int main(int argc, char **argv)
{
    n = argc == 4 ? atoi(argv[1]) : 0;
    bytes = n > 0 ? (size_t)atol(argv[2]) : 0;
    const int turn = n > 0 ? atoi(argv[3]) / TURNS : 0;
    const size_t count = (size_t)turn * TURNS;
    if (n < 2 || n > RANKS || bytes % 16 > (n == 2 ? 8 : 0) || bytes == 0 || turn < 1) {
        fprintf(stderr, "usage: least 2|3|4 BYTES ITERATIONS\n");
        return 2;
    }
    void (*const runs[])(void) = {half, n == 2 ? oneshot : pairwise, halving};
    const char *const names[] = {"half", n == 2 ? "oneshot" : "pairwise", "halving"};
    const int kinds = n == 4 ? 3 : 2;
    double *times = calloc((size_t)kinds * count, sizeof(*times));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(times != NULL && shared != MAP_FAILED, "memory");
    for (int i = 1; i < n && me == 0; i++) {
        me = fork() == 0 ? i : 0;
    }
    need(me == 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
    crowded = n > get_nprocs();
    set_up();
    for (int i = 0; i < TURNS * kinds; i++) {
        const int kind = i % kinds;
        measure(runs[kind], turn,
                times + (size_t)kind * count + (size_t)(i / kinds) * (size_t)turn);
    }
    barrier();
    for (int kind = 0; kind < kinds && me == 0; kind++) {
        double *of_kind = times + (size_t)kind * count;
        qsort(of_kind, count, sizeof(*of_kind), compare);
        printf("%s %.1f%s", names[kind], of_kind[count / 2], kind + 1 < kinds ? " " : "\n");
    }
    return 0;
}
