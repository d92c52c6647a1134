/*
 * Data parallelism by all_reduce: every rank has the whole net and a part of each batch, and all
 * average their gradients. There is no master, and in a ring what a rank sends does not grow with
 * the number of ranks. (HOOP_ALGO=ring asks for the ring even where hoop would choose otherwise.
 * The trainer does the same in buckets, while backward runs.)
 */
#include "peers.h"
#include "study.h"

static bool train(struct study *study, struct peers *peers, struct problem *problem)
{
    for (int step = 0; step < study->options->steps; step++) {
        study_compute(study);
        if (!peers_average(peers, study->gradients, study->count, problem)) {
            return false;
        }
        study_update(study);
        if (study->worker == 0 && study_due(study)) {
            study_test(study);
        }
    }
    study_over(study, "by_ring", peers_count(peers));
    return true;
}

static bool run(const struct study_options *options, const struct study_data *data,
                struct problem *problem)
{
    struct peers *peers = peers_open(problem);
    if (peers == NULL) {
        return false;
    }
    struct study study;
    const int rank = peers_rank(peers);
    bool done =
        study_open(&study, options, data, rank, peers_count(peers), rank == 0, NULL, problem);
    float *shared = done ? peers_memory(study.count, problem) : NULL;
    if (shared != NULL) {
        study_place(&study, shared);
    }
    done = shared != NULL && train(&study, peers, problem) && report_kept(&study.report, problem);
    study_close(&study);
    peers_memory_free(shared);
    peers_close(peers);
    return done;
}

int main(int argc, char **argv)
{
    return study_main(argc, argv, "hooprun -n RANKS by_ring [options]: data parallel by all_reduce",
                      run);
}
