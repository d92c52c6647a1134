/* Describing operations; see signature.h. */
#include "signature.h"
#include "reduce.h"
#include <stdio.h>

void hoop_signature_describe(const struct hoop_signature *s, char *buf, size_t bytes)
{
    if (s->collective == HOOP_COLL_BARRIER) {
        (void)snprintf(buf, bytes, "barrier");
    } else if (s->collective == HOOP_COLL_ALL_REDUCE) {
        (void)snprintf(buf, bytes, "all_reduce of %llu %s %s", (unsigned long long)s->count,
                       hoop_datatype_name((hoop_datatype_t)s->type),
                       hoop_op_name((hoop_red_op_t)s->op));
    } else {
        (void)snprintf(buf, bytes, "an unknown operation (%u)", s->collective);
    }
}
