/* What all ranks of a comm must have alike: a pure comparison of two joins. */
#ifndef HOOP_AGREEMENT_H
#define HOOP_AGREEMENT_H

#include "base/frame.h"
#include <stdbool.h>

/* The first setting in which two joins differ, and its value in each, as text. */
struct hoop_difference {
    const char *name;
    char a[32], b[32];
};

/* False: they agree, and *ret is untouched. */
bool hoop_agreement_differs(const struct hoop_frame_join *a, const struct hoop_frame_join *b,
                            struct hoop_difference *ret);

#endif
