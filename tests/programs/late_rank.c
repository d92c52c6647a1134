/*
 * A job that hangs until it is told to go on: rank 2 does not call the second operation until a
 * file exists. For hoopinfo --job.
 *
 *     hooprun -n 3 late_rank FILE
 */
#include "hoop.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 100

static hoop_result_t sum(hoop_comm_t comm)
{
    float x = 1;
    return hoop_all_reduce(&x, &x, 1, HOOP_FLOAT, HOOP_SUM, comm, NULL);
}

int main(int argc, char **argv)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    const time_t until = time(NULL) + PATIENCE_S;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    hoop_comm_t comm = HOOP_COMM_NULL;
    int rank = 0;
    config.comm_name = "late\t\"one\""; /* any characters are allowed */
    if (argc != 2 || hoop_comm_init_env(&comm, &config) != HOOP_OK ||
        hoop_comm_user_rank(comm, &rank) != HOOP_OK || sum(comm) != HOOP_OK) {
        fprintf(stderr, "late_rank: %s\n", hoop_get_last_error(comm));
        return 1;
    }
    while (rank == 2 && access(argv[1], F_OK) != 0 && time(NULL) < until) {
        nanosleep(&moment, NULL);
    }
    return sum(comm) == HOOP_OK && hoop_comm_destroy(comm) == HOOP_OK ? 0 : 1;
}
