/* Mapping a region of a peer (see mapping.h). */
#include "transfer/mapping.h"

#include "memory/region.h"

#include <assert.h>

/* A mistake of the peer's caller, or of ours towards the peer, is not a mistake of my caller. */
static hoop_result_t mapping_refused(uint32_t rank, const struct hoop_failure *answer)
{
    const bool mistake = answer->code == HOOP_INVALID_ARGUMENT ||
                         answer->code == HOOP_INVALID_USAGE || answer->code == HOOP_UNSUPPORTED;
    return hoop_error(mistake ? HOOP_REMOTE_ERROR : answer->code, "memory of rank %u: %s", rank,
                      answer->text);
}

static hoop_result_t mapping_ask(const struct hoop_mapping_env *env, struct hoop_mapping *mapping,
                                 uint32_t rank, uint64_t region, uint32_t generation)
{
    struct hoop_failure answer;
    if (mapping->asked) {
        if (!env->answered(env->arg, rank, region, generation, &answer)) {
            return HOOP_AGAIN;
        }
        if (answer.code != HOOP_OK) {
            return mapping_refused(rank, &answer);
        }
    }
    mapping->asked = true;
    hoop_member_fetch(env->member, rank, region, generation);
    return HOOP_AGAIN;
}

hoop_result_t hoop_mapping_poll(const struct hoop_mapping_env *env, struct hoop_mapping *mapping,
                                uint32_t rank, uint64_t region, uint32_t generation,
                                void **ret_base, uint64_t *ret_bytes)
{
    const uint64_t process = env->peers[rank].process;
    assert(!mapping->used);
    const hoop_result_t result = hoop_region_use(process, region, generation, ret_base, ret_bytes);
    if (result == HOOP_AGAIN) {
        return mapping_ask(env, mapping, rank, region, generation);
    }
    if (mapping->asked) {
        /* Another rank of this process may have mapped it before the answer came. */
        (void)env->answered(env->arg, rank, region, generation, NULL);
    }
    *mapping = (struct hoop_mapping){
        .process = process, .region = region, .generation = generation, .used = result == HOOP_OK};
    return result;
}

void hoop_mapping_finish(struct hoop_mapping *mapping)
{
    if (mapping->used) {
        hoop_region_unuse(mapping->process, mapping->region, mapping->generation);
    }
    *mapping = (struct hoop_mapping){0};
}
