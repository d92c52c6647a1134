/* See kill_family.h. */
#include "whole/kill_family.h"
#include <sys/mman.h>
#include <unistd.h>

#define FAMILY_SHARED_BYTES ((size_t)4096)

/* Inherited by every rank. */
struct legacy {
    const struct kill_job *job;
    int id[2];
    _Atomic uint64_t *operations;
};

static void kill_family_run(const struct family_self *self, const void *arg)
{
    const struct legacy *legacy = arg;
    const struct kill_pipes pipes = {.parent = self, .id = {legacy->id[0], legacy->id[1]}};
    kill_rank_main(legacy->job, (uint32_t)self->rank, &pipes, &legacy->operations[self->rank]);
}

bool kill_family_start(struct kill_family *family, const struct kill_job *job)
{
    struct legacy legacy = {.job = job};
    *family = (struct kill_family){.operations = NULL};
    family_init(&family->ranks, (int)job->n);
    void *shared =
        mmap(NULL, FAMILY_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return false;
    }
    family->operations = legacy.operations = shared;
    if (pipe(legacy.id) != 0) {
        return false;
    }
    const bool good = family_fork_all(&family->ranks, kill_family_run, &legacy);
    close(legacy.id[0]);
    close(legacy.id[1]);
    return good;
}

void kill_family_finish(struct kill_family *family)
{
    family_finish(&family->ranks);
    if (family->operations != NULL) {
        munmap(family->operations, FAMILY_SHARED_BYTES);
    }
    *family = (struct kill_family){.operations = NULL};
}
