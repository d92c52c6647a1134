/*
 * What a rank pays, in descriptors and memory, for many communicators of the same ranks.
 *
 *     hooprun -n 8 comm_cost 100
 *
 * Makes that many communicators and uses each twice: with memory of its own that peers map, and
 * with a small call. Rank 0 prints the minimum and maximum over all ranks of what was added.
 */
#include <dirent.h>
#include <hoop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT ((size_t)65536)

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const hoop_result_t result_ = (call);                                                      \
        if (result_ != HOOP_OK) {                                                                  \
            fprintf(stderr, "comm_cost: %s: %s\n", #call, hoop_get_last_error(NULL));              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A rank's descriptors, and its memory in KiB. */
struct cost {
    double descriptors, anonymous, shared;
};

static double count_descriptors(void)
{
    double count = -1; /* without the one of the directory itself */
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry = NULL;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

static struct cost cost_now(void)
{
    struct cost cost = {.descriptors = count_descriptors()};
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "RssAnon: %lf", &cost.anonymous);
        (void)sscanf(line, "RssShmem: %lf", &cost.shared);
    }
    if (file != NULL) {
        fclose(file);
    }
    return cost;
}

/* Makes a communicator of the same ranks; its id travels from rank 0 by a sum with zeros. */
static hoop_comm_t make(hoop_comm_t world, int rank, int ranks)
{
    hoop_unique_id_t id;
    hoop_comm_t comm = HOOP_COMM_NULL;
    memset(&id, 0, sizeof(id));
    if (rank == 0) {
        CHECK(hoop_get_unique_id(&id));
    }
    CHECK(hoop_all_reduce(&id, &id, sizeof(id), HOOP_UINT8, HOOP_SUM, world, NULL));
    CHECK(hoop_comm_init_rank(&comm, ranks, id, rank));
    return comm;
}

static void use(hoop_comm_t comm)
{
    float *values = NULL;
    CHECK(hoop_mem_alloc((void **)&values, COUNT * sizeof(*values), HOOP_MEM_HOST));
    CHECK(hoop_all_reduce(values, values, COUNT, HOOP_FLOAT32, HOOP_MAX, comm, NULL));
    CHECK(hoop_barrier(comm, NULL));
    CHECK(hoop_mem_free(values));
}

static void report(hoop_comm_t world, int rank, int ranks, int comms, struct cost before)
{
    struct cost most = cost_now();
    most.descriptors -= before.descriptors;
    most.anonymous -= before.anonymous;
    most.shared -= before.shared;
    struct cost least = most;
    CHECK(hoop_all_reduce(&most, &most, 3, HOOP_FLOAT64, HOOP_MAX, world, NULL));
    CHECK(hoop_all_reduce(&least, &least, 3, HOOP_FLOAT64, HOOP_MIN, world, NULL));
    if (rank == 0) {
        printf("%d comms of %d ranks, a rank: %.0f to %.0f descriptors, %.0f to %.0f KiB "
               "anonymous, %.0f to %.0f KiB shared\n",
               comms, ranks, least.descriptors, most.descriptors, least.anonymous, most.anonymous,
               least.shared, most.shared);
    }
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 100;
    hoop_comm_t world = HOOP_COMM_NULL;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): a handle is a pointer */
    hoop_comm_t *comms = calloc(count > 0 ? (size_t)count : 1, sizeof(*comms));
    int rank = 0, ranks = 0;
    const struct cost before = cost_now();
    CHECK(hoop_comm_init_env(&world, NULL));
    CHECK(hoop_comm_user_rank(world, &rank));
    CHECK(hoop_comm_count(world, &ranks));
    if (comms == NULL) {
        fprintf(stderr, "comm_cost: no memory for %d communicators\n", count);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        comms[i] = make(world, rank, ranks);
        use(comms[i]);
    }
    report(world, rank, ranks, count, before);
    for (int i = 0; i < count; i++) {
        CHECK(hoop_comm_destroy(comms[i]));
    }
    CHECK(hoop_comm_destroy(world));
    free(comms);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("standard output");
        return 1;
    }
    return 0;
}
