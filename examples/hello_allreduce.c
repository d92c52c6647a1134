/*
 * The smallest hoop program: every rank contributes a vector, every rank gets the sum.
 *
 *     cc hello_allreduce.c $(pkg-config --cflags --libs hoop) -o hello_allreduce
 *     hooprun -n 4 ./hello_allreduce
 */
#include <hoop.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT ((size_t)1000000)

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const hoop_result_t result_ = (call);                                                      \
        if (result_ != HOOP_OK) {                                                                  \
            fprintf(stderr, "%s: %s: %s\n", #call, hoop_get_error_string(result_),                 \
                    hoop_get_last_error(NULL));                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void)
{
    /* Who takes part comes from the environment, which hooprun sets. Without it: one rank. */
    hoop_comm_t comm = HOOP_COMM_NULL;
    int rank = 0;
    int rank_count = 0;
    CHECK(hoop_comm_init_env(&comm, NULL));
    CHECK(hoop_comm_user_rank(comm, &rank));
    CHECK(hoop_comm_count(comm, &rank_count));

    /* Any memory works; the other ranks can read this kind where it is. */
    float *vector = NULL;
    CHECK(hoop_mem_alloc((void **)&vector, COUNT * sizeof(*vector), HOOP_MEM_HOST));
    for (size_t i = 0; i < COUNT; i++) {
        vector[i] = (float)(rank + 1);
    }

    /* In place: the sum replaces the contribution. */
    CHECK(hoop_all_reduce(vector, vector, COUNT, HOOP_FLOAT32, HOOP_SUM, comm, NULL));

    const int sum = rank_count * (rank_count + 1) / 2;
    const float expected = (float)sum;
    for (size_t i = 0; i < COUNT; i++) {
        if (vector[i] != expected) {
            fprintf(stderr, "rank %d: element %zu is %g, not %g\n", rank, i, vector[i], expected);
            return 1;
        }
    }
    if (rank == 0) {
        printf("%d ranks: every element is %g, as it should be\n", rank_count, expected);
    }
    CHECK(hoop_mem_free(vector));
    CHECK(hoop_comm_destroy(comm));
    if (fflush(stdout) != 0) {
        perror("standard output");
        return 1;
    }
    return 0;
}
