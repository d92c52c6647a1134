/*
 * A program written for NCCL, over the shim, with host memory. hooprun starts it as three ranks. It
 * does not know hoop; the ranks meet by a file with rank 0's token.
 */
#include "shims/nccl/nccl_abi.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS 3
#define COUNT 5
#define BLOCKS ((size_t)RANKS * COUNT) /* elements: one block for each rank */
#define PATIENCE_MS 20000

static int rank;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: not so: %s (%s)\n", rank, __FILE__, __LINE__,         \
                    #condition, ncclGetLastError(NULL));                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define DONE(call) CHECK((call) == ncclSuccess)

static void pause_ms(int ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- The token ------------------------------------------------------------------------------ */

static void token_name(char *ret_name, size_t bytes, const char *end)
{
    const char *folder = getenv("TMPDIR");
    snprintf(ret_name, bytes, "%s/nccl-token-%s%s", folder != NULL ? folder : "/tmp",
             getenv("TORCHELASTIC_RUN_ID"), end);
}

static void token_write(const ncclUniqueId *id)
{
    char name[4096];
    char early[4096];
    token_name(name, sizeof(name), "");
    token_name(early, sizeof(early), ".new");
    const int fd = open(early, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, id, sizeof(*id)) == (ssize_t)sizeof(*id));
    CHECK(close(fd) == 0 && rename(early, name) == 0);
}

static ncclUniqueId token_read(void)
{
    char name[4096];
    ncclUniqueId id;
    token_name(name, sizeof(name), "");
    int fd = -1;
    for (int waited = 0; fd < 0 && waited < PATIENCE_MS; waited += 10) {
        fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            pause_ms(10);
        }
    }
    CHECK(fd >= 0 && read(fd, &id, sizeof(id)) == (ssize_t)sizeof(id));
    close(fd);
    return id;
}

/* Rank 0's token. Later tokens are sent over a comm that exists already. */
static ncclUniqueId token_share(ncclComm_t comm)
{
    ncclUniqueId id;
    if (rank == 0) {
        DONE(ncclGetUniqueId(&id));
    }
    DONE(ncclBcast(&id, sizeof(id), ncclUint8, 0, comm, NULL));
    return id;
}

static ncclComm_t first_comm(void)
{
    char name[4096];
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    if (rank == 0) {
        DONE(ncclGetUniqueId(&id));
        token_write(&id);
    } else {
        id = token_read();
    }
    DONE(ncclCommInitRank(&comm, RANKS, id, rank));
    if (rank == 0) {
        token_name(name, sizeof(name), "");
        CHECK(unlink(name) == 0);
    }
    return comm;
}

/* ---- Births --------------------------------------------------------------------------------- */

/* The rank has this number of so many, and the comm works. */
static void comm_try(ncclComm_t comm, int nranks, int as)
{
    int count = 0;
    int mine = -1;
    int device = 7;
    float one = 1;
    DONE(ncclCommCount(comm, &count));
    DONE(ncclCommUserRank(comm, &mine));
    DONE(ncclCommCuDevice(comm, &device));
    CHECK(count == nranks && mine == as && device >= -1);
    DONE(ncclAllReduce(&one, &one, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(one == (float)nranks);
}

static ncclConfig_t config_of(size_t size)
{
    ncclConfig_t config;
    memset(&config, 0xff, sizeof(config)); /* fields that an older caller's struct does not have */
    config.size = size;
    config.magic = NCCL_CONFIG_MAGIC;
    config.version = NCCL_VERSION_CODE;
    config.blocking = 1;
    if (size >= sizeof(config)) {
        config.commName = "by config";
    }
    return config;
}

/* The structs of NCCL 2.14, 2.18, 2.30.7, and of a future version. */
static void test_configs(ncclComm_t comm)
{
    static const size_t sizes[] = {24, 48, sizeof(ncclConfig_t), sizeof(ncclConfig_t) + 64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct {
            ncclConfig_t config;
            char more[64];
        } given = {.config = config_of(sizes[i])};
        ncclComm_t made = NULL;
        DONE(ncclCommInitRankConfig(&made, RANKS, token_share(comm), rank, &given.config));
        comm_try(made, RANKS, rank);
        DONE(ncclCommFinalize(made));
        DONE(ncclCommDestroy(made));
    }
    ncclConfig_t bad = config_of(sizeof(bad));
    ncclComm_t none = NULL;
    const ncclUniqueId id = token_share(comm);
    bad.magic = 0;
    CHECK(ncclCommInitRankConfig(&none, RANKS, id, rank, &bad) == ncclInvalidArgument);
    CHECK(none == NULL && strstr(ncclGetLastError(NULL), "NCCL_CONFIG_INITIALIZER") != NULL);
    bad = config_of(8);
    CHECK(ncclCommInitRankConfig(&none, RANKS, id, rank, &bad) == ncclInvalidArgument);
    bad = config_of(sizeof(bad));
    bad.blocking = 2;
    CHECK(ncclCommInitRankConfig(&none, RANKS, id, rank, &bad) == ncclInvalidArgument);
}

static void await(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (int waited = 0; state == ncclInProgress && waited < PATIENCE_MS; waited++) {
        DONE(ncclCommGetAsyncError(comm, &state));
        pause_ms(1);
    }
    CHECK(state == ncclSuccess);
}

static void test_births(ncclComm_t comm)
{
    ncclUniqueId ids[2];
    ncclConfig_t config = config_of(sizeof(config));
    ncclComm_t made = NULL;
    config.blocking = 0;
    const ncclResult_t begun =
        ncclCommInitRankConfig(&made, RANKS, token_share(comm), rank, &config);
    CHECK(begun == ncclInProgress || begun == ncclSuccess);
    await(made);
    comm_try(made, RANKS, rank);
    DONE(ncclCommDestroy(made));

    ids[0] = token_share(comm);
    ids[1] = token_share(comm);
    DONE(ncclCommInitRankScalable(&made, RANKS, rank, 2, ids, NULL));
    comm_try(made, RANKS, rank);
    DONE(ncclCommDestroy(made));
    CHECK(ncclCommInitRankScalable(&made, RANKS, rank, 0, ids, NULL) == ncclInvalidArgument);
}

/* Ranks 0 and 1 in one comm, 2 in none; then 2 joins them, and then 0 leaves. */
static void test_families(ncclComm_t comm)
{
    ncclComm_t pair = (ncclComm_t)&pair;
    ncclComm_t all = NULL;
    ncclUniqueId id;
    DONE(ncclCommSplit(comm, rank < 2 ? 7 : NCCL_SPLIT_NOCOLOR, -rank, &pair, NULL));
    CHECK((pair == NULL) == (rank == 2));
    if (rank < 2) {
        comm_try(pair, 2, 1 - rank);
    }
    if (rank == 0) {
        DONE(ncclCommGetUniqueId(pair, &id));
    }
    DONE(ncclBcast(&id, sizeof(id), ncclUint8, 0, comm, NULL));
    DONE(ncclCommGrow(rank < 2 ? pair : NULL, 3, rank == 1 ? NULL : &id, rank < 2 ? -1 : 2, &all,
                      NULL));
    comm_try(all, 3, rank < 2 ? 1 - rank : 2);
    DONE(ncclCommDestroy(all));
    DONE(ncclCommDestroy(pair));
}

static void test_all_in_one(void)
{
    static const int devices[] = {0, 1, 2};
    ncclComm_t comms[RANKS];
    float values[RANKS] = {1, 2, 4};
    DONE(ncclCommInitAll(comms, RANKS, devices));
    DONE(ncclGroupStart());
    for (int i = 0; i < RANKS; i++) {
        DONE(ncclAllReduce(&values[i], &values[i], 1, ncclFloat32, ncclSum, comms[i], NULL));
    }
    DONE(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        CHECK(values[i] == 7);
        DONE(ncclCommDestroy(comms[i]));
    }
}

/* ---- Operations ----------------------------------------------------------------------------- */

/* Element i of block b of rank r. */
static float value_of(int r, int b, int i)
{
    return (float)(100 * r + 10 * b + i);
}

static void fill(float *buffer, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < COUNT; i++) {
            buffer[b * COUNT + i] = value_of(rank, b, i);
        }
    }
}

/* Block b of the buffer must be block of_block of rank of_rank, or the sum over ranks. */
static void expect(const float *buffer, int b, int of_rank, int of_block)
{
    for (int i = 0; i < COUNT; i++) {
        CHECK(buffer[b * COUNT + i] == value_of(of_rank, of_block, i));
    }
}

static void expect_sum(const float *buffer, int of_block)
{
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int r = 0; r < RANKS; r++) {
            sum += value_of(r, of_block, i);
        }
        CHECK(buffer[i] == sum);
    }
}

static void test_reductions(ncclComm_t comm, float *in, float *out)
{
    fill(in, RANKS);
    DONE(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL));
    expect_sum(out, 0);
    DONE(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclMax, comm, NULL));
    expect(out, 0, RANKS - 1, 0);
    DONE(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclAvg, comm, NULL));
    expect(out, 0, 1, 0); /* rank 1 is in the middle, so its value is the mean */
    DONE(ncclReduce(in, out, COUNT, ncclFloat32, ncclSum, 2, comm, NULL));
    if (rank == 2) {
        expect_sum(out, 0);
    }
    DONE(ncclReduceScatter(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL));
    expect_sum(out, rank);
    DONE(ncclAllReduce(in, out, 0, ncclFloat32, ncclSum, comm, NULL));
}

static void test_moves(ncclComm_t comm, float *in, float *out)
{
    fill(in, RANKS);
    DONE(ncclBroadcast(in, out, COUNT, ncclFloat32, 1, comm, NULL));
    expect(out, 0, 1, 0);
    fill(out, 1);
    DONE(ncclBcast(out, COUNT, ncclFloat32, 2, comm, NULL));
    expect(out, 0, 2, 0);
    DONE(ncclAllGather(in, out, COUNT, ncclFloat32, comm, NULL));
    for (int r = 0; r < RANKS; r++) {
        expect(out, r, r, 0);
    }
    DONE(ncclAlltoAll(in, out, COUNT, ncclFloat32, comm, NULL));
    for (int r = 0; r < RANKS; r++) {
        expect(out, r, r, rank);
    }
    memset(out, 0, BLOCKS * sizeof(*out));
    DONE(ncclGather(in, out, COUNT, ncclFloat32, 1, comm, NULL));
    for (int r = 0; r < RANKS && rank == 1; r++) {
        expect(out, r, r, 0);
    }
    DONE(ncclScatter(in, out, COUNT, ncclFloat32, 2, comm, NULL));
    expect(out, 0, 2, rank);
}

static void test_groups(ncclComm_t comm, float *in, float *out)
{
    ncclSimInfo_t info = {sizeof(info), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, -1.0f};
    fill(in, 1);
    DONE(ncclGroupStart());
    DONE(ncclSend(in, COUNT, ncclFloat32, (rank + 1) % RANKS, comm, NULL));
    DONE(ncclRecv(out, COUNT, ncclFloat32, (rank + RANKS - 1) % RANKS, comm, NULL));
    DONE(ncclGroupEnd());
    expect(out, 0, (rank + RANKS - 1) % RANKS, 0);

    DONE(ncclGroupStart());
    DONE(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL));
    DONE(ncclGroupSimulateEnd(&info));
    CHECK(info.estimatedTime > 0);
    info.magic = 0;
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

static void test_factors(ncclComm_t comm)
{
    float factor = (float)(rank + 1);
    float value = 2;
    ncclRedOp_t op = ncclSum;
    DONE(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    CHECK((int)op >= 5);
    DONE(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, NULL));
    CHECK(value == 12);
    DONE(ncclRedOpDestroy(op, comm));
    CHECK(ncclRedOpCreatePreMulSum(NULL, &factor, ncclFloat32, ncclScalarHostImmediate, comm) ==
          ncclInvalidArgument);
}

/* ---- Mistakes and ends ---------------------------------------------------------------------- */

static void test_mistakes(ncclComm_t comm)
{
    float value = 0;
    ncclResult_t state = ncclInternalError;
    CHECK(ncclAllReduce(&value, &value, 1, (ncclDataType_t)12, ncclSum, comm, NULL) ==
          ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(comm), "12") != NULL);
    CHECK(ncclBroadcast(&value, &value, 1, ncclFloat32, RANKS, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL) ==
          ncclInvalidArgument);
    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument);
    CHECK(ncclCommGetAsyncError(comm, NULL) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister() == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(comm), "ncclCommWindowRegister()") != NULL);
    CHECK(ncclPutSignal() == ncclInvalidUsage && ncclDevCommCreate() == ncclInvalidUsage);
    DONE(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    comm_try(comm, RANKS, rank);
}

/* Different calls, then an abort, each with a comm of its own. */
static void test_ends(ncclComm_t comm)
{
    ncclComm_t made = NULL;
    ncclResult_t state = ncclSuccess;
    float value = 1;
    DONE(ncclCommSplit(comm, 0, rank, &made, NULL));
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, rank == 1 ? ncclMax : ncclSum, made,
                        NULL) == ncclInvalidUsage);
    DONE(ncclCommGetAsyncError(made, &state));
    CHECK(state == ncclInvalidUsage && ncclGetLastError(made)[0] != '\0');
    DONE(ncclCommAbort(made));

    DONE(ncclCommSplit(comm, 0, rank, &made, NULL));
    if (rank == 0) {
        DONE(ncclCommRevoke(made, 0));
    }
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, made, NULL) == ncclRemoteError);
    DONE(ncclCommDestroy(made));
}

static void test_memory(ncclComm_t comm, float **ret_buffer)
{
    void *handle = NULL;
    DONE(ncclMemAlloc((void **)ret_buffer, 2 * BLOCKS * sizeof(float)));
    DONE(ncclCommRegister(comm, *ret_buffer, COUNT, &handle));
    DONE(ncclCommDeregister(comm, handle));
}

static void test_texts(void)
{
    int version = 0;
    DONE(ncclGetVersion(&version));
    CHECK(version == 23007);
    for (int result = ncclSuccess; result <= ncclTimeout; result++) {
        CHECK(strcmp(ncclGetErrorString((ncclResult_t)result), "unknown result") != 0);
    }
    CHECK(strcmp(ncclGetErrorString((ncclResult_t)9), "unknown result") == 0);
    ncclResetDebugInit();
}

int main(void)
{
    float *buffer = NULL;
    const char *number = getenv("RANK");
    rank = number != NULL ? atoi(number) : -1;
    CHECK(rank >= 0 && rank < RANKS);
    test_texts();
    ncclComm_t comm = first_comm();
    test_memory(comm, &buffer);
    test_configs(comm);
    test_births(comm);
    test_families(comm);
    test_all_in_one();
    test_reductions(comm, buffer, buffer + BLOCKS);
    test_moves(comm, buffer, buffer + BLOCKS);
    test_groups(comm, buffer, buffer + BLOCKS);
    test_factors(comm);
    test_mistakes(comm);
    test_ends(comm);
    DONE(ncclMemFree(buffer));
    DONE(ncclCommDestroy(comm));
    return 0;
}
