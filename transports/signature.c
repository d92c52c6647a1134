/* Descriptions of operations; see signature.h. */
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
    if (s->collective == HOOP_COLL_ALL_GATHER && s->op == HOOP_ALL_GATHER_OF_BIRTH) {
        (void)snprintf(buf, bytes, "hoop_comm_split() or the like");
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

hoop_result_t hoop_called_fail(const struct hoop_called *mine, const struct hoop_called *theirs,
                               struct hoop_failure *failure)
{
    char ours[96], other[96], as[32] = "";
    hoop_signature_describe(&mine->signature, ours, sizeof(ours));
    hoop_signature_describe(&theirs->signature, other, sizeof(other));
    /* One of the two ranks may have done its part of that operation, and be in a later one. */
    if (theirs->op != mine->op) {
        (void)snprintf(as, sizeof(as), " as operation %u", theirs->op);
    }
    return hoop_failure_set(failure, HOOP_MISMATCH, (int)theirs->rank,
                            "operation %u differs: rank %u called %s, rank %u called %s%s",
                            mine->op, mine->rank, ours, theirs->rank, other, as);
}

/* Is this how hoop_signature_describe() begins for a transfer's signature? */
static bool called_transfer(const char *what)
{
    static const char message[] = "send/recv of ", block[] = "alltoallv with ";
    return strncmp(what, message, strlen(message)) == 0 || strncmp(what, block, strlen(block)) == 0;
}

bool hoop_called_find(const char *text, struct hoop_called ret[2])
{
    const char *mine = strstr(text, "operation ");
    int at = 0;
    memset(ret, 0, 2 * sizeof(*ret));
    if (mine == NULL ||
        sscanf(mine, "operation %u differs: rank %u called %n", &ret[0].op, &ret[0].rank, &at) !=
            2 ||
        at == 0) {
        return false;
    }
    mine += at;
    at = 0;
    const char *theirs = strstr(mine, ", rank ");
    if (theirs == NULL || sscanf(theirs, ", rank %u called %n", &ret[1].rank, &at) != 1 ||
        at == 0) {
        return false;
    }
    theirs += at;
    ret[1].op = ret[0].op;
    const char *as = strstr(theirs, " as operation ");
    if (as != NULL && sscanf(as, " as operation %u", &ret[1].op) != 1) {
        return false;
    }
    ret[0].transfer = called_transfer(mine);
    ret[1].transfer = called_transfer(theirs);
    return true;
}
