/*
 * A meeting point for forked ranks (family.h) that join by unique ids: shared memory into which
 * rank 0 writes the ids. A rank's exit code says whether all was well.
 */
#ifndef HOOP_TESTS_MEETING_H
#define HOOP_TESTS_MEETING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "harness/family.h"
#include "hoop.h"

#include <sys/mman.h>
#include <unistd.h>

struct meeting {
    _Atomic int ready;
    hoop_unique_id_t ids[2];
};

/* In a rank, with the argument of its `run`: waits until the ids are there. */
static inline const struct meeting *meeting_open(const struct family_self *self, const void *arg)
{
    struct meeting *meeting = (struct meeting *)(uintptr_t)arg;
    for (int i = 0; i < 2 && self->rank == 0; i++) {
        if (hoop_get_unique_id(&meeting->ids[i]) != HOOP_OK) {
            _exit(10);
        }
    }
    if (self->rank == 0) {
        meeting->ready = 1;
    }
    while (meeting->ready == 0) {
        usleep(50);
    }
    return meeting;
}

/* In the parent: starts n ranks that meet; meeting_end() ends both. */
static inline struct meeting *meeting_start(struct family *family, int n, family_run *run)
{
    struct meeting *meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(meeting, MAP_FAILED);
    family_init(family, n);
    assert_true(family_fork_all(family, run, meeting));
    return meeting;
}

/* Each rank must exit with 0. */
static inline void meeting_end(struct family *family, struct meeting *meeting, unsigned patience_ms)
{
    for (int rank = 0; rank < family->n; rank++) {
        assert_true(family_reap(family, rank, hoop_deadline_ns(patience_ms)));
    }
    family_finish(family);
    munmap(meeting, sizeof(*meeting));
}

static inline void meeting_run(int n, family_run *run)
{
    struct family family;
    struct meeting *meeting = meeting_start(&family, n, run);
    meeting_end(&family, meeting, 60000);
}

#endif
