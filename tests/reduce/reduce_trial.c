/* See reduce_trial.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fakes/reference.h"
#include "reduce/reduce_trial.h"

#define MAX_BYTES ((size_t)TRIAL_MAX_COUNT * 8)
#define FIELD_BYTES ((size_t)16 * 4096)
#define FIELDS (TRIAL_MAX_SRC + 2)
#define PATTERN 0xa5

unsigned char *trial_originals[TRIAL_MAX_SRC];
unsigned char *trial_expected;
static unsigned char *fields[FIELDS];

/* ---- Fields ---- */

static unsigned char *field_create(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p =
        mmap(NULL, FIELD_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, FIELD_BYTES, PROT_READ | PROT_WRITE) != 0) {
        return NULL;
    }
    return p + page;
}

int trial_setup(void **state)
{
    (void)state;
    trial_expected = malloc(MAX_BYTES);
    for (unsigned f = 0; f < FIELDS; f++) {
        fields[f] = field_create();
        if (fields[f] == NULL) {
            return -1;
        }
        memset(fields[f], PATTERN, FIELD_BYTES);
    }
    for (unsigned s = 0; s < TRIAL_MAX_SRC; s++) {
        trial_originals[s] = malloc(MAX_BYTES);
        if (trial_originals[s] == NULL) {
            return -1;
        }
    }
    return trial_expected == NULL ? -1 : 0;
}

int trial_teardown(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned f = 0; f < FIELDS; f++) {
        munmap(fields[f] - page, FIELD_BYTES + 2 * page);
    }
    for (unsigned s = 0; s < TRIAL_MAX_SRC; s++) {
        free(trial_originals[s]);
    }
    free(trial_expected);
    return 0;
}

/* Where a vector begins in its field: at any alignment, or so that it ends at the field's end. */
static size_t place(const struct trial *trial, unsigned field, size_t bytes)
{
    const unsigned round = trial->round;
    if (trial->together) {
        return 64 + field * 16 + round % 16;
    }
    if ((round + field) % 3 == 0) {
        return FIELD_BYTES - bytes;
    }
    return (round + field) % 3 == 1 ? 64 + (field * 7 + round * 5) % 64 : 0;
}

static int has_pattern(const unsigned char *p, size_t bytes)
{
    return bytes == 0 || (p[0] == PATTERN && memcmp(p, p + 1, bytes - 1) == 0);
}

/* Checks that only [at, at + bytes) of the field was written, looking at 256 bytes on either
 * side. */
static int field_is_clean(unsigned field, size_t at, size_t bytes)
{
    const size_t before = at < 256 ? at : 256;
    const size_t rest = FIELD_BYTES - at - bytes;
    return has_pattern(fields[field] + at - before, before) &&
           has_pattern(fields[field] + at + bytes, rest < 256 ? rest : 256);
}

/* ---- One fold ---- */

static const char *const pattern_names[] = {"apart", "first", "last", "all", "mixed"};

/* Which fields get the result, by the pattern. The sources are fields 0 to n_src-1. */
static unsigned trial_dst(const struct trial *trial, unsigned ret_dst[TRIAL_MAX_SRC])
{
    unsigned n = 1;
    switch (trial->pattern) {
    case TRIAL_FIRST:
        ret_dst[0] = 0;
        break;
    case TRIAL_LAST:
        ret_dst[0] = trial->n_src - 1;
        break;
    case TRIAL_ALL:
        for (n = 0; n < trial->n_src; n++) {
            ret_dst[n] = n;
        }
        break;
    case TRIAL_MIXED:
        ret_dst[0] = FIELDS - 2;
        ret_dst[1] = trial->n_src / 2;
        ret_dst[2] = FIELDS - 1;
        n = 3;
        break;
    default:
        ret_dst[0] = FIELDS - 1;
        break;
    }
    return n;
}

static void trial_fail(const struct trial *trial, const char *what)
{
    fail_msg("%s: %s %s divisor %u, %s, %u sources, %zu elements, in place: %s, round %u", what,
             hoop_datatype_name(trial->reduction.type), hoop_op_name(trial->reduction.op),
             trial->reduction.divisor, hoop_isa_name(trial->isa), trial->n_src, trial->count,
             pattern_names[trial->pattern], trial->round);
}

static void trial_check(const struct trial *trial, const unsigned *dst, unsigned n_dst,
                        size_t bytes)
{
    int is_dst[FIELDS] = {0};
    for (unsigned d = 0; d < n_dst; d++) {
        const size_t at = place(trial, dst[d], bytes);
        is_dst[dst[d]] = 1;
        if (memcmp(fields[dst[d]] + at, trial_expected, bytes) != 0) {
            trial_fail(trial, "wrong result");
        }
        if (!field_is_clean(dst[d], at, bytes)) {
            trial_fail(trial, "written outside");
        }
        memset(fields[dst[d]] + at, PATTERN, bytes);
    }
    for (unsigned s = 0; s < trial->n_src; s++) {
        const size_t at = place(trial, s, bytes);
        if (!is_dst[s] && memcmp(fields[s] + at, trial_originals[s], bytes) != 0) {
            trial_fail(trial, "source changed");
        }
        memset(fields[s] + at, PATTERN, bytes);
    }
}

void trial_run(const struct trial *trial)
{
    const size_t bytes = trial->count * hoop_datatype_bytes(trial->reduction.type);
    const void *src[TRIAL_MAX_SRC];
    void *dst[TRIAL_MAX_SRC];
    unsigned dst_field[TRIAL_MAX_SRC];
    for (unsigned s = 0; s < trial->n_src; s++) {
        unsigned char *at = fields[s] + place(trial, s, bytes);
        memcpy(at, trial_originals[s], bytes);
        src[s] = at;
    }
    const unsigned n_dst = trial_dst(trial, dst_field);
    for (unsigned d = 0; d < n_dst; d++) {
        dst[d] = fields[dst_field[d]] + place(trial, dst_field[d], bytes);
    }
    if (trial->fold != NULL) {
        trial->fold(trial, dst, n_dst, src);
    } else {
        hoop_fold_isa(trial->isa, &trial->reduction, dst, n_dst, src, trial->n_src, trial->count);
    }
    trial_check(trial, dst_field, n_dst, bytes);
}

void trial_run_all(hoop_datatype_t type, hoop_red_op_t op, uint32_t divisor, unsigned n_src,
                   size_t count)
{
    struct trial trial = {.reduction = {type, op, divisor}, .n_src = n_src, .count = count};
    reference_fold(type, op, divisor, (const void *const *)trial_originals, n_src, count,
                   trial_expected);
    for (unsigned isa = 0; isa < HOOP_ISA_COUNT; isa++) {
        trial.isa = (enum hoop_isa)isa;
        if (hoop_isa_supported(trial.isa)) {
            trial_run(&trial);
        }
    }
}
