/*
 * A loop that loses a rank and goes on. In each step all ranks sum their vectors; half way the last
 * rank dies. The others shrink the communicator and repeat the step: from then on they sum without
 * it.
 *
 *     cc survive.c $(pkg-config --cflags --libs hoop) -o survive
 *     hooprun --on-failure=wait -n 4 ./survive
 *
 * hooprun exits with 137, the status of the lost rank's process; the others have ended well.
 */
#include <hoop.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS 10
#define COUNT ((size_t)100000)

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const hoop_result_t result_ = (call);                                                      \
        if (result_ != HOOP_OK) {                                                                  \
            fprintf(stderr, "%s: %s: %s\n", #call, hoop_get_error_string(result_),                 \
                    hoop_get_last_error(NULL));                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/*
 * Replaces a failed comm by one of the ranks that are left, and sets the step to continue with:
 * some ranks may have got their sum when others failed, so all go back to the first step that any
 * of them lacks. Repeats if that fails, too, because another rank has died.
 */
static void go_on(hoop_comm_t *comm, int *step)
{
    hoop_result_t result = HOOP_REMOTE_ERROR;
    const int mine = *step;
    while (result != HOOP_OK) {
        hoop_comm_t left = HOOP_COMM_NULL;
        CHECK(hoop_comm_shrink(*comm, NULL, 0, &left, NULL, HOOP_SHRINK_ABORT));
        CHECK(hoop_comm_destroy(*comm));
        *comm = left;
        result = hoop_all_reduce(&mine, step, 1, HOOP_INT32, HOOP_MIN, *comm, NULL);
    }
}

static bool is_right(const float *sum, int n)
{
    size_t i = 0;
    while (i < COUNT && sum[i] == (float)n) {
        i++;
    }
    return i == COUNT;
}

int main(void)
{
    hoop_comm_t comm = HOOP_COMM_NULL;
    float *in = NULL, *out = NULL;
    int rank = 0, n = 0, lost = 0;
    CHECK(hoop_comm_init_env(&comm, NULL));
    CHECK(hoop_comm_user_rank(comm, &rank));
    CHECK(hoop_comm_count(comm, &n));
    const bool dies = n > 1 && rank == n - 1;
    CHECK(hoop_mem_alloc((void **)&in, COUNT * sizeof(*in), HOOP_MEM_HOST));
    CHECK(hoop_mem_alloc((void **)&out, COUNT * sizeof(*out), HOOP_MEM_HOST));
    for (size_t i = 0; i < COUNT; i++) {
        in[i] = 1;
    }
    for (int step = 0; step < STEPS; step++) {
        if (dies && step == STEPS / 2) {
            (void)raise(SIGKILL);
        }
        /* out of place: if a sum fails its input is unchanged, and can be used again */
        while (hoop_all_reduce(in, out, COUNT, HOOP_FLOAT32, HOOP_SUM, comm, NULL) != HOOP_OK) {
            go_on(&comm, &step);
            lost++;
        }
        CHECK(hoop_comm_user_rank(comm, &rank));
        CHECK(hoop_comm_count(comm, &n));
        if (!is_right(out, n)) {
            fprintf(stderr, "step %d: not the sum of %d ranks\n", step, n);
            return 1;
        }
        if (rank == 0) {
            printf("step %d: %d ranks, every element is right\n", step, n);
        }
    }
    if (rank == 0) {
        printf("done, after %d shrink%s\n", lost, lost == 1 ? "" : "s");
    }
    CHECK(hoop_mem_free(in));
    CHECK(hoop_mem_free(out));
    CHECK(hoop_comm_destroy(comm));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("standard output");
        return 1;
    }
    return 0;
}
