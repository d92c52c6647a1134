/*
 * See check.h. Element j of rank r's input is factor(r) * (j % 13 + 1) + offset(r): small integers,
 * which differ between ranks and positions. Their sums stay far below 2^24, so they are exact in
 * float: at most 1.9 million between 4096 ranks.
 */
#include "hoopinfo/check.h"
#include "hoop.h"
#include "hoopinfo/hoopinfo.h"
#include "hoopinfo/json.h"
#include "hoopinfo/ranks.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AWKWARD 1003u           /* elements: no multiple of any n but 17 and 59 */
#define SMALL 2u                /* 8 bytes */
#define LARGE ((size_t)1 << 18) /* between few ranks: 1 MiB */
#define LARGE_LEAST ((size_t)1 << 10)
#define BLOCKS_MOST ((size_t)1 << 26) /* elements of all ranks' inputs together */
#define SMALL_TURNS 200u
#define LARGE_TURNS 10u

_Static_assert(AWKWARD <= LARGE_LEAST, "a block has room for every count");

struct check {
    hoop_comm_t comm;
    int rank, n;
    bool json;
    size_t large;            /* elements of the largest block */
    float *in, *out;         /* n * large elements each */
    size_t factors, offsets; /* the sums of all ranks' */
    unsigned rows;           /* printed so far */
    char error[512];         /* why the check could not go on */
};

/* What block b of rank r's output should consist of. */
enum check_out {
    OUT_SUM,
    OUT_SUM_MINE,
    OUT_BLOCKS,
    OUT_FIRST,
    OUT_FIRST_MINE,
    OUT_CROSS,
    OUT_BEFORE
};

/* Each of n ranks has n blocks of input and of output, so the more ranks, the smaller. */
static size_t check_large(int n)
{
    size_t large = LARGE;
    while (large > LARGE_LEAST && (size_t)n * (size_t)n * large > BLOCKS_MOST) {
        large /= 2;
    }
    return large;
}

static size_t check_factor(size_t rank)
{
    return rank % 64 + 1;
}

static size_t check_offset(size_t rank)
{
    return rank / 64;
}

static float check_input(size_t rank, size_t j)
{
    return (float)(check_factor(rank) * (j % 13 + 1) + check_offset(rank));
}

static float check_sum(const struct check *c, size_t j)
{
    return (float)(c->factors * (j % 13 + 1) + c->offsets);
}

static hoop_result_t run_all_reduce(const struct check *c, size_t count)
{
    return hoop_all_reduce(c->in, c->out, count, HOOP_FLOAT, HOOP_SUM, c->comm, NULL);
}

static hoop_result_t run_reduce(const struct check *c, size_t count)
{
    return hoop_reduce(c->in, c->out, count, HOOP_FLOAT, HOOP_SUM, 0, c->comm, NULL);
}

static hoop_result_t run_reduce_scatter(const struct check *c, size_t count)
{
    return hoop_reduce_scatter(c->in, c->out, count, HOOP_FLOAT, HOOP_SUM, c->comm, NULL);
}

static hoop_result_t run_all_gather(const struct check *c, size_t count)
{
    return hoop_all_gather(c->in, c->out, count, HOOP_FLOAT, c->comm, NULL);
}

static hoop_result_t run_gather(const struct check *c, size_t count)
{
    return hoop_gather(c->in, c->out, count, HOOP_FLOAT, 0, c->comm, NULL);
}

static hoop_result_t run_broadcast(const struct check *c, size_t count)
{
    return hoop_broadcast(c->in, c->out, count, HOOP_FLOAT, 0, c->comm, NULL);
}

static hoop_result_t run_scatter(const struct check *c, size_t count)
{
    return hoop_scatter(c->in, c->out, count, HOOP_FLOAT, 0, c->comm, NULL);
}

static hoop_result_t run_alltoall(const struct check *c, size_t count)
{
    return hoop_alltoall(c->in, c->out, count, HOOP_FLOAT, c->comm, NULL);
}

/* Each rank sends to the next one. */
static hoop_result_t run_sendrecv(const struct check *c, size_t count)
{
    hoop_result_t result = hoop_group_start();
    if (result == HOOP_OK) {
        (void)hoop_send(c->in, count, HOOP_FLOAT, (c->rank + 1) % c->n, c->comm, NULL);
        (void)hoop_recv(c->out, count, HOOP_FLOAT, (c->rank + c->n - 1) % c->n, c->comm, NULL);
        result = hoop_group_end();
    }
    return result;
}

static const struct check_row {
    const char *name;
    hoop_result_t (*run)(const struct check *c, size_t count);
    enum check_out out;
    bool blocks;    /* the output has one block per rank */
    bool root_only; /* only rank 0 has output */
} check_rows[] = {
    {"all_reduce", run_all_reduce, OUT_SUM, false, false},
    {"reduce", run_reduce, OUT_SUM, false, true},
    {"reduce_scatter", run_reduce_scatter, OUT_SUM_MINE, false, false},
    {"all_gather", run_all_gather, OUT_BLOCKS, true, false},
    {"gather", run_gather, OUT_BLOCKS, true, true},
    {"broadcast", run_broadcast, OUT_FIRST, false, false},
    {"scatter", run_scatter, OUT_FIRST_MINE, false, false},
    {"alltoall", run_alltoall, OUT_CROSS, true, false},
    {"send and recv", run_sendrecv, OUT_BEFORE, false, false},
};
#define CHECK_ROWS (sizeof(check_rows) / sizeof(check_rows[0]))

/* The right value of element i of a block. */
static float check_expected(const struct check *c, enum check_out out, size_t count, size_t block,
                            size_t i)
{
    const size_t mine = (size_t)c->rank * count + i;
    switch (out) {
    case OUT_SUM:
        return check_sum(c, i);
    case OUT_SUM_MINE:
        return check_sum(c, mine);
    case OUT_BLOCKS:
        return check_input(block, i);
    case OUT_FIRST_MINE:
        return check_input(0, mine);
    case OUT_CROSS:
        return check_input(block, mine);
    case OUT_BEFORE:
        return check_input((size_t)((c->rank + c->n - 1) % c->n), i);
    case OUT_FIRST:
    default:
        return check_input(0, i);
    }
}

static size_t check_wrong(const struct check *c, const struct check_row *row, size_t count)
{
    size_t wrong = 0;
    const size_t blocks = row->root_only && c->rank != 0 ? 0 : row->blocks ? (size_t)c->n : 1;
    for (size_t block = 0; block < blocks; block++) {
        for (size_t i = 0; i < count; i++) {
            wrong += c->out[block * count + i] != check_expected(c, row->out, count, block, i);
        }
    }
    return wrong;
}

static double check_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Seconds per operation, over many in a row after a warm-up. */
static hoop_result_t check_time(const struct check *c, const struct check_row *row, size_t count,
                                unsigned turns, double *ret_seconds)
{
    hoop_result_t result = HOOP_OK;
    double start = 0.0;
    for (unsigned i = 0; i < turns + turns / 4 && result == HOOP_OK; i++) {
        if (i == turns / 4) {
            result = hoop_barrier(c->comm, NULL);
            start = check_seconds();
        }
        result = result == HOOP_OK ? row->run(c, count) : result;
    }
    result = result == HOOP_OK ? hoop_barrier(c->comm, NULL) : result;
    *ret_seconds = (check_seconds() - start) / turns;
    return result;
}

/* ---- Printing ------------------------------------------------------------------------------- */

static void print_head(const struct check *c)
{
    const char *set = getenv("HOOP_TRANSPORT");
    const char *transport = set != NULL && *set != 0 ? set : "auto";
    if (c->json) {
        fputs("{\"transport\": ", stdout);
        json_quote(transport, stdout);
        printf(", \"ranks\": %d, \"block_bytes\": %zu, \"operations\": [", c->n,
               c->large * sizeof(float));
    } else {
        char block[32] = "1 MiB a block";
        if (c->large < LARGE) {
            (void)snprintf(block, sizeof(block), "%zu KiB a block", c->large * sizeof(float) >> 10);
        }
        printf("%d ranks, HOOP_TRANSPORT=%s\n  %-16s %5s %13s %15s\n", c->n, transport, "", "",
               "8 bytes", block);
    }
}

/* small and large: seconds for 8 bytes and for the largest block. */
static void print_row(struct check *c, const struct check_row *row, bool right, double small,
                      double large)
{
    const double us = small * 1e6;
    const double gbps = (double)(c->large * sizeof(float)) / large * 1e-9;
    if (c->json) {
        printf("%s\n  {\"name\": \"%s\", \"right\": %s, \"us_8_bytes\": %.3f, "
               "\"gb_per_s_1_mib\": %.3f}",
               c->rows > 0 ? "," : "", row->name, right ? "true" : "false", us, gbps);
    } else {
        printf("  %-16s %s %10.2f us %10.3f GB/s\n", row->name, right ? "right" : "WRONG", us,
               gbps);
    }
    c->rows++;
}

static void print_end(const struct check *c, uint64_t wrong)
{
    if (c->json) {
        printf("],\n  \"wrong_elements\": %llu, \"error\": ", (unsigned long long)wrong);
        json_quote(c->error, stdout);
        printf(", \"works\": %s}", wrong == 0 && c->error[0] == 0 ? "true" : "false");
    } else if (c->error[0] == 0) {
        printf(wrong == 0 ? "  All of it is right.\n" : "  %llu elements are WRONG.\n",
               (unsigned long long)wrong);
    }
}

/* ---- Ranks ---------------------------------------------------------------------------------- */

/* Adds the number of wrong elements on all ranks to *wrong. */
static hoop_result_t check_row(struct check *c, const struct check_row *row, uint64_t *wrong)
{
    const size_t counts[] = {0, 1, AWKWARD, c->large};
    uint64_t found = 0;
    double small = 0.0;
    double large = 0.0;
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && result == HOOP_OK; i++) {
        memset(c->out, 0xff, (size_t)c->n * c->large * sizeof(float));
        result = row->run(c, counts[i]);
        found += result == HOOP_OK ? check_wrong(c, row, counts[i]) : 0;
    }
    if (result == HOOP_OK) {
        result = hoop_all_reduce(&found, &found, 1, HOOP_UINT64, HOOP_SUM, c->comm, NULL);
    }
    result = result == HOOP_OK ? check_time(c, row, SMALL, SMALL_TURNS, &small) : result;
    result = result == HOOP_OK ? check_time(c, row, c->large, LARGE_TURNS, &large) : result;
    if (result == HOOP_OK && c->rank == 0) {
        print_row(c, row, found == 0, small, large);
    }
    *wrong += found;
    return result;
}

static int check_failed(struct check *c, const char *what, hoop_result_t result)
{
    (void)snprintf(c->error, sizeof(c->error), "rank %d: %s: %s: %s", c->rank, what,
                   hoop_get_error_string(result), hoop_get_last_error(c->comm));
    fprintf(stderr, "hoopinfo: %s\n", c->error);
    return 1;
}

static hoop_result_t check_buffers(struct check *c)
{
    c->large = check_large(c->n);
    const size_t bytes = (size_t)c->n * c->large * sizeof(float);
    hoop_result_t result = hoop_mem_alloc((void **)&c->in, bytes, HOOP_MEM_HOST);
    result = result == HOOP_OK ? hoop_mem_alloc((void **)&c->out, bytes, HOOP_MEM_HOST) : result;
    for (size_t j = 0; result == HOOP_OK && j < (size_t)c->n * c->large; j++) {
        c->in[j] = check_input((size_t)c->rank, j);
    }
    for (size_t rank = 0; rank < (size_t)c->n; rank++) {
        c->factors += check_factor(rank);
        c->offsets += check_offset(rank);
    }
    return result;
}

/* Runs the whole table. Returns an exit code. */
static int check_rank(struct check *c)
{
    uint64_t wrong = 0;
    const char *what = "memory";
    hoop_result_t result = check_buffers(c);
    if (c->rank == 0) {
        print_head(c);
    }
    for (size_t i = 0; result == HOOP_OK && i < CHECK_ROWS; i++) {
        what = check_rows[i].name;
        result = check_row(c, &check_rows[i], &wrong);
    }
    const int failed = result != HOOP_OK ? check_failed(c, what, result) : 0;
    if (c->rank == 0) {
        print_end(c, wrong);
        (void)fflush(stdout);
    }
    if (failed == 0) {
        (void)hoop_barrier(c->comm, NULL); /* an exit code of 7 ends the other ranks */
    }
    return failed != 0 ? failed : wrong == 0 ? 0 : 7;
}

/* ---- Jobs of hoopinfo's own ---------------------------------------------------------------- */

/* Prints the job's report, or an error in its place. */
static void print_report(const char *report, const char *transport, int ranks, int code)
{
    const char *end = report != NULL && *report == '{' ? json_end(report) : NULL;
    char works[8] = "";
    if (end != NULL && *end == 0) {
        json_text(json_member(report, "works"), works, sizeof(works));
    }
    /* A rank may have failed after rank 0 reported success. */
    if (strcmp(works, "false") == 0 || (strcmp(works, "true") == 0 && code == 0)) {
        fputs(report, stdout);
        return;
    }
    fputs("{\"transport\": ", stdout);
    json_quote(transport, stdout);
    printf(", \"ranks\": %d, \"block_bytes\": %zu, \"operations\": [], \"wrong_elements\": 0,\n"
           "  \"error\": \"the ranks ended with code %d: standard error says why\", "
           "\"works\": false}",
           ranks, check_large(ranks) * sizeof(float), code);
}

static int check_job(int ranks, const char *transport, bool json)
{
    const struct ranks job = {
        .count = ranks, .transport = transport, .options = {"--test-rank", json ? "--json" : NULL}};
    char *report = NULL;
    const int code = ranks_run(&job, json ? &report : NULL);
    if (json) {
        print_report(report, transport, ranks, code);
    }
    free(report);
    return code;
}

static void print_verdict(int first, int last, bool json)
{
    const char *verdict = first == 0 && last == 0 ? "hoop works here."
                          : first == 0 ? "hoop works here, on this machine alone: over TCP it does "
                                         "NOT, see above."
                                       : "hoop does NOT work here, see above.";
    if (json) {
        printf("],\n \"verdict\": \"%s\", \"works\": %s}\n", verdict,
               first == 0 && last == 0 ? "true" : "false");
    } else {
        puts(verdict);
    }
}

static int check_jobs(int ranks, bool json)
{
    const char *chosen = getenv("HOOP_TRANSPORT");
    const bool all = chosen == NULL || *chosen == 0;
    const int first = check_job(ranks, all ? "auto" : chosen, json);
    int last = first;
    if (all) {
        fputs(json ? ",\n " : "", stdout);
        last = check_job(ranks, "tcp", json);
    }
    print_verdict(first, last, json);
    return first != 0 ? first : last;
}

/* As hoop_comm_init_env() reads variables: an empty one counts as unset. */
static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != 0;
}

/* Is a variable set of one of the launchers that hoop_comm_init_env() knows? */
static bool is_launched(void)
{
    return is_set("RANK") || is_set("OMPI_COMM_WORLD_RANK") || is_set("PMI_RANK") ||
           is_set("SLURM_STEP_ID");
}

/* Reports that the ranks did not meet. Under a launcher JSON is not printed, since it is unknown
 * which process is rank 0, and only that one may print. */
static int check_unborn(struct check *c, bool alone, hoop_result_t result)
{
    const int code = check_failed(c, "the ranks do not find each other", result);
    if (c->json && !alone && !is_launched()) {
        fputs("{\"error\": ", stdout);
        json_quote(c->error, stdout);
        fputs(",\n \"jobs\": [", stdout);
        print_verdict(code, code, true);
    }
    return code;
}

/* Refuses a --ranks that would have no effect. The barrier lets rank 0 say so before a launcher
 * ends it because of another one's exit code. */
static int check_refused(struct check *c, int ranks)
{
    if (c->rank == 0) {
        fprintf(stderr, "hoopinfo: --ranks %d: the launcher started %d ranks, expected the same\n",
                ranks, c->n);
    }
    (void)hoop_barrier(c->comm, NULL);
    (void)hoop_comm_destroy(c->comm);
    return 2;
}

int check_run(int ranks, bool alone, bool json)
{
    struct check check = {.comm = HOOP_COMM_NULL, .n = 1, .json = json};
    const hoop_result_t result = hoop_comm_init_env(&check.comm, NULL);
    if (result != HOOP_OK) {
        return check_unborn(&check, alone, result);
    }
    int code = 0;
    (void)hoop_comm_count(check.comm, &check.n);
    (void)hoop_comm_user_rank(check.comm, &check.rank);
    const bool job = alone || check.n > 1;
    if (job && ranks > 0 && ranks != check.n) {
        return check_refused(&check, ranks);
    }
    const bool whole = json && !alone && check.rank == 0; /* no caller adds the outer object */
    if (whole) {
        fputs("{\"jobs\": [\n ", stdout);
    }
    if (job) {
        code = check_rank(&check);
        (void)hoop_mem_free(check.in);
        (void)hoop_mem_free(check.out);
    }
    (void)(code == 1 ? hoop_comm_abort : hoop_comm_destroy)(check.comm);
    if (whole && job) {
        print_verdict(code, code, json);
    }
    return job ? code : check_jobs(ranks > 0 ? ranks : RANKS_USUAL, json);
}
