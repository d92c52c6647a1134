/* Describing operations; see signature.h. */
#include "transports/signature.h"
#include "reduce/reduce.h"
#include <stdio.h>

void hoop_signature_describe(const struct hoop_signature *s, char *buf, size_t bytes)
{
    char op[24] = "", root[24] = "";
    if (s->collective == HOOP_TRANSFER) {
        (void)snprintf(buf, bytes, "send/recv of %llu %s", (unsigned long long)s->count,
                       hoop_datatype_name((hoop_datatype_t)s->type));
        return;
    }
    if (s->collective >= HOOP_COLL_COUNT) {
        (void)snprintf(buf, bytes, "an unknown operation (%u)", s->collective);
        return;
    }
    const char *type = hoop_datatype_name((hoop_datatype_t)s->type);
    if (s->collective == HOOP_COLL_ALLTOALLV && s->op == HOOP_ALLTOALLV_BLOCK) {
        (void)snprintf(buf, bytes, "alltoallv with %llu %s for this pair",
                       (unsigned long long)s->count, type);
        return;
    }
    if (s->collective == HOOP_COLL_ALLTOALLV) {
        (void)snprintf(buf, bytes, "alltoallv of %s", type);
        return;
    }
    const struct hoop_collective_row *row = &hoop_collectives[s->collective];
    if (row->in == HOOP_EXTENT_NONE && row->out == HOOP_EXTENT_NONE) {
        (void)snprintf(buf, bytes, "%s", row->name);
        return;
    }
    if (row->folds) {
        (void)snprintf(op, sizeof(op), " %s", hoop_op_name((hoop_red_op_t)s->op));
    }
    if (hoop_collective_is_rooted((enum hoop_collective)s->collective)) {
        (void)snprintf(root, sizeof(root), ", root %d", s->root);
    }
    (void)snprintf(buf, bytes, "%s of %llu %s%s%s", row->name, (unsigned long long)s->count,
                   hoop_datatype_name((hoop_datatype_t)s->type), op, root);
}
