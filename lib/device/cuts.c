/* How calls were cut (see cuts.h). */
#include "device/cuts.h"

#include <stdlib.h>
#include <string.h>

/* All that it depends on: the comm, the call, and which buffers there are. */
struct cut_key {
    uint64_t comm_id;
    struct hoop_signature signature;
    uint64_t in_place;
    uint64_t offset[2], bytes[2]; /* fetched, delivered */
};

/* Where things were then. */
struct cut_bases {
    char *host, *device[2];
};

struct hoop_cut {
    struct cut_key key;
    struct cut_bases bases;
    struct hoop_flow flow;
    size_t fetches, count;
    struct hoop_overlap_part parts[]; /* [count] */
};

/* False: there is more than a collective has. */
static bool cut_describe(const struct hoop_work *work, const struct hoop_staging *staging,
                         struct cut_key *ret_key, struct cut_bases *ret_bases)
{
    const struct hoop_request *request = &work->request;
    bool simple = true;
    memset(ret_key, 0, sizeof(*ret_key));
    ret_key->comm_id = work->comm->id;
    ret_key->signature = request->signature;
    ret_key->in_place = request->in == request->out;
    *ret_bases = (struct cut_bases){.host = staging->host};
    for (size_t i = 0; i < staging->count; i++) {
        const struct hoop_staging_piece *piece = &staging->pieces[i];
        simple = simple && ret_key->bytes[piece->deliver] == 0;
        ret_key->offset[piece->deliver] = piece->offset;
        ret_key->bytes[piece->deliver] = piece->bytes;
        ret_bases->device[piece->deliver] = piece->device;
    }
    return simple;
}

/* It is the latest now; the oldest goes, if need be. NULL: there is none. */
static struct hoop_cut *cuts_use(struct hoop_cuts *cuts, const struct cut_key *key)
{
    size_t i = 0;
    while (i < HOOP_CUTS_KEPT && cuts->kept[i] != NULL &&
           memcmp(&cuts->kept[i]->key, key, sizeof(*key)) != 0) {
        i++;
    }
    struct hoop_cut *found = i < HOOP_CUTS_KEPT ? cuts->kept[i] : NULL;
    if (found != NULL) {
        memmove((void *)(cuts->kept + 1), (const void *)cuts->kept, i * sizeof(struct hoop_cut *));
        cuts->kept[0] = found;
    }
    return found;
}

static void cuts_keep(struct hoop_cuts *cuts, const struct cut_key *key,
                      const struct cut_bases *bases, const struct hoop_flow *flow,
                      const struct hoop_overlap *overlap)
{
    const size_t bytes = overlap->count * sizeof(overlap->parts[0]);
    struct hoop_cut *cut = malloc(sizeof(*cut) + bytes);
    if (cut == NULL) {
        return;
    }
    *cut = (struct hoop_cut){.key = *key,
                             .bases = *bases,
                             .flow = *flow,
                             .fetches = overlap->fetches,
                             .count = overlap->count};
    memcpy(cut->parts, overlap->parts, bytes);
    free(cuts->kept[HOOP_CUTS_KEPT - 1]);
    memmove((void *)(cuts->kept + 1), (const void *)cuts->kept,
            (HOOP_CUTS_KEPT - 1) * sizeof(struct hoop_cut *));
    cuts->kept[0] = cut;
}

/* Of memory that was at `then`. */
static char *cut_moved(const char *at, const char *then, char *now)
{
    return now + (at - then);
}

static bool cut_apply(const struct hoop_cut *cut, const struct cut_bases *bases,
                      struct hoop_overlap *overlap)
{
    struct hoop_overlap_part *parts = malloc(cut->count * sizeof(*parts));
    for (size_t i = 0; parts != NULL && i < cut->count; i++) {
        const int to = i >= cut->fetches;
        parts[i] = cut->parts[i];
        parts[i].host = cut_moved(parts[i].host, cut->bases.host, bases->host);
        parts[i].device = cut_moved(parts[i].device, cut->bases.device[to], bases->device[to]);
    }
    overlap->parts = parts;
    overlap->room = overlap->count = parts != NULL ? cut->count : 0;
    overlap->fetches = cut->fetches;
    return parts != NULL;
}

struct hoop_flow *hoop_cuts_make(struct hoop_cuts *cuts, const struct hoop_work *work,
                                 struct hoop_staging *staging)
{
    struct cut_key key;
    struct cut_bases bases;
    struct hoop_flow *flow =
        hoop_overlap_is_worth_it(staging->bytes) ? malloc(sizeof(*flow)) : NULL;
    if (flow == NULL) {
        return NULL;
    }
    const bool simple = cut_describe(work, staging, &key, &bases);
    const struct hoop_cut *cut = simple ? cuts_use(cuts, &key) : NULL;
    if (cut != NULL && cut_apply(cut, &bases, &staging->overlap)) {
        *flow = cut->flow;
        return flow;
    }
    hoop_comm_cut(work->comm, &work->request, staging);
    if (staging->overlap.count == 0) {
        free(flow);
        return NULL;
    }
    hoop_flow_make(flow, &staging->overlap);
    if (simple) {
        cuts_keep(cuts, &key, &bases, flow, &staging->overlap);
    }
    return flow;
}

void hoop_cuts_finish(struct hoop_cuts *cuts)
{
    for (size_t i = 0; i < HOOP_CUTS_KEPT; i++) {
        free(cuts->kept[i]);
    }
}
