/*
 * A rank of one of several jobs, for jobs.sh: every rank contributes its job's number and its own,
 * so that the sum shows whether all ranks of this job, and no others, took part.
 *
 *     job_rank JOB
 *
 * Exit code 0: the sum is right; 3: refused, with the sentence on standard error; 4: the sum is
 * wrong though every call returned HOOP_OK.
 */
#include <hoop.h>
#include <stdio.h>
#include <stdlib.h>

#define JOB_WEIGHT 1000

int main(int argc, char **argv)
{
    hoop_comm_t comm = HOOP_COMM_NULL;
    int rank = 0;
    int n = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: job_rank JOB\n");
        return 2;
    }
    const int job = (int)strtol(argv[1], NULL, 10);
    hoop_result_t result = hoop_comm_init_env(&comm, NULL);
    if (result == HOOP_OK) {
        result = hoop_comm_user_rank(comm, &rank);
    }
    if (result == HOOP_OK) {
        result = hoop_comm_count(comm, &n);
    }
    int sum = JOB_WEIGHT * job + rank;
    if (result == HOOP_OK) {
        result = hoop_all_reduce(&sum, &sum, 1, HOOP_INT32, HOOP_SUM, comm, NULL);
    }
    if (result != HOOP_OK) {
        fprintf(stderr, "job %d refused: %s\n", job, hoop_get_last_error(NULL));
        return 3;
    }
    (void)hoop_comm_destroy(comm);
    if (sum != n * JOB_WEIGHT * job + n * (n - 1) / 2) {
        fprintf(stderr, "job %d merged: the sum is %d\n", job, sum);
        return 4;
    }
    return 0;
}
