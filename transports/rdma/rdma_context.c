/*
 * Contexts: a rank's use of a port for one comm, with the memory that is registered there.
 *
 * Registered are the slots of its links, and the regions (memory/region.h) in which large xfers
 * were found: each region as a whole, once, until it is freed or the comm ends. Plain memory never
 * is, because nobody tells when it is freed, and memory that is later mapped at its address has
 * other pages than the device knows. A region is reported before it is freed, and its id is never
 * reused, so no key outlives its region. Its pages are shared ones, which a fork leaves in place.
 */
#include "base/log.h"
#include "memory/region.h"
#include "transports/rdma/rdma_link.h"
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RDMA_ENTRIES 4096u /* of a completion queue; links without room get another one */

struct hoop_rdma_region {
    uint64_t id;
    struct hoop_verbs_memory key; /* no handle: it cannot be registered */
};

static struct hoop_rdma_context *rdma_contexts;
static pthread_mutex_t rdma_lock = PTHREAD_MUTEX_INITIALIZER; /* before a context's own */
static pthread_once_t rdma_once = PTHREAD_ONCE_INIT;
static atomic_flag rdma_warned = ATOMIC_FLAG_INIT;
static _Atomic uint64_t rdma_registered; /* bytes registered by the whole process */

/* ---- The limit on locked memory -------------------------------------------------------------- */

/* What this process may lock, UINT64_MAX: all. Memory registered with two devices counts twice. */
static uint64_t memory_limit(void)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
    return known && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
}

/* Root in a container seems exempt, but is not: there regions may still use up what slots need. */
static bool memory_is_exempt(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capget, &header, caps) == 0 &&
           (caps[0].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

/* Reserves bytes for a region. Regions can be done without, so half of the limit is kept for slots,
 * which links of later operations may need. False: the thread's error says why. */
static bool memory_take_for_region(uint64_t bytes)
{
    const uint64_t limit = memory_limit();
    const uint64_t most = limit == UINT64_MAX || memory_is_exempt() ? UINT64_MAX : limit / 2;
    uint64_t taken = atomic_load(&rdma_registered);
    while (taken <= most && bytes <= most - taken) {
        if (atomic_compare_exchange_weak(&rdma_registered, &taken, taken + bytes)) {
            return true;
        }
    }
    (void)hoop_error(HOOP_OUT_OF_MEMORY,
                     "registering %llu bytes would use part of the half that is reserved for the "
                     "slots of links: this process may lock %llu bytes in all (ulimit -l), %llu "
                     "are registered, expected unlimited",
                     (unsigned long long)bytes, (unsigned long long)limit,
                     (unsigned long long)taken);
    return false;
}

hoop_result_t hoop_rdma_blame_limit(hoop_result_t result)
{
    const uint64_t limit = memory_limit();
    if (result != HOOP_OUT_OF_MEMORY || limit == UINT64_MAX) {
        return result;
    }
    char why[128];
    snprintf(why, sizeof(why), "%s", hoop_thread_error());
    return hoop_error(result,
                      "%s; this process may lock %llu bytes in all (ulimit -l), %llu are "
                      "registered, expected unlimited",
                      why, (unsigned long long)limit,
                      (unsigned long long)atomic_load(&rdma_registered));
}

/* Registers memory whose bytes are already counted, and uncounts them if it fails. */
static hoop_result_t memory_register(const struct hoop_rdma_context *context, void *data,
                                     size_t bytes, struct hoop_verbs_memory *ret)
{
    const hoop_result_t result = context->verbs->register_memory(context->device, data, bytes, ret);
    if (result != HOOP_OK) {
        (void)atomic_fetch_sub(&rdma_registered, bytes);
    }
    return hoop_rdma_blame_limit(result);
}

hoop_result_t hoop_rdma_register(const struct hoop_rdma_context *context, void *data, size_t bytes,
                                 struct hoop_verbs_memory *ret)
{
    (void)atomic_fetch_add(&rdma_registered, bytes);
    return memory_register(context, data, bytes, ret);
}

bool hoop_rdma_release_memory(const struct hoop_rdma_context *context,
                              struct hoop_verbs_memory *memory)
{
    const size_t bytes = memory->handle != NULL ? memory->bytes : 0;
    const int err = context->verbs->release_memory(memory);
    if (err != 0) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET,
                 "rank %u: %zu bytes stay registered with %s, which does not give them back: %s",
                 context->me, bytes, context->port->device, hoop_errno_name(err));
        return false;
    }
    (void)atomic_fetch_sub(&rdma_registered, bytes);
    return true;
}

/* ---- Registered regions ---------------------------------------------------------------------- */

/* The index of a region in the sorted array, or where it belongs. With the lock, as all of
 * these. */
static size_t regions_at(const struct hoop_rdma_context *context, uint64_t id)
{
    size_t low = 0, high = context->region_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (context->regions[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool regions_has(const struct hoop_rdma_context *context, size_t at, uint64_t id)
{
    return at < context->region_count && context->regions[at].id == id;
}

static void regions_drop(struct hoop_rdma_context *context, size_t at)
{
    (void)hoop_rdma_release_memory(context, &context->regions[at].key);
    context->region_count--;
    memmove(&context->regions[at], &context->regions[at + 1],
            (context->region_count - at) * sizeof(*context->regions));
}

/* Called by the thread that frees a region; any thread. */
static void regions_before_free(uint64_t id)
{
    pthread_mutex_lock(&rdma_lock);
    for (struct hoop_rdma_context *context = rdma_contexts; context != NULL;
         context = context->next) {
        pthread_mutex_lock(&context->lock);
        const size_t at = regions_at(context, id);
        if (regions_has(context, at, id)) {
            regions_drop(context, at);
        }
        pthread_mutex_unlock(&context->lock);
    }
    pthread_mutex_unlock(&rdma_lock);
}

static void regions_hear(void)
{
    hoop_region_before_free(regions_before_free);
}

/* If a device registers no more, copies do as well as before: one line in the log is enough. */
static void regions_warn(const struct hoop_rdma_context *context)
{
    if (!atomic_flag_test_and_set(&rdma_warned)) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET,
                 "rank %u copies what could go without copies over RDMA: %s", context->me,
                 hoop_thread_error());
    }
}

static void regions_register(struct hoop_rdma_context *context, void *base, uint64_t bytes,
                             struct hoop_verbs_memory *ret)
{
    if (memory_register(context, base, bytes, ret) == HOOP_OK) {
        /* A forked child keeps the memory; ibv_reg_mr() may have excluded it (ibv_fork_init). */
        (void)madvise(base, bytes, MADV_DOFORK);
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_NET, "rank %u: a region of %llu bytes registered with %s",
                 context->me, (unsigned long long)bytes, context->port->device);
    } else {
        regions_warn(context);
    }
}

/* False: no memory, or too much is locked now, which may change when other memory is released. */
static bool regions_add(struct hoop_rdma_context *context, size_t at, void *base,
                        const struct hoop_region_ref *ref)
{
    if (context->region_count == context->region_room) {
        const size_t room = context->region_room == 0 ? 16 : context->region_room * 2;
        struct hoop_rdma_region *grown = realloc(context->regions, room * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        context->regions = grown;
        context->region_room = room;
    }
    if (!memory_take_for_region(ref->bytes)) {
        regions_warn(context);
        return false;
    }
    struct hoop_rdma_region region = {.id = ref->id};
    regions_register(context, base, ref->bytes, &region.key);
    memmove(&context->regions[at + 1], &context->regions[at],
            (context->region_count - at) * sizeof(region));
    context->regions[at] = region;
    context->region_count++;
    return true;
}

/* Safe even if a region is freed during registration, which nobody should do: no key remains. */
static bool regions_key(struct hoop_rdma_context *context, void *data, uint64_t bytes,
                        const struct hoop_region_ref *ref, struct hoop_verbs_memory *ret)
{
    const size_t at = regions_at(context, ref->id);
    if (!regions_has(context, at, ref->id)) {
        struct hoop_region_ref again;
        if (!regions_add(context, at, (uint8_t *)data - ref->offset, ref)) {
            return false;
        }
        if (!hoop_region_find(data, bytes, &again) || again.id != ref->id) {
            regions_drop(context, at);
            return false;
        }
    }
    *ret = context->regions[at].key;
    return ret->handle != NULL;
}

bool hoop_rdma_key(struct hoop_rdma_link *rdma, void *data, uint64_t bytes,
                   struct hoop_verbs_memory *ret)
{
    struct hoop_rdma_context *context = rdma->context;
    struct hoop_region_ref ref;
    if (!hoop_region_find(data, bytes, &ref) || ref.kind != HOOP_MEM_HOST) {
        return false;
    }
    pthread_mutex_lock(&context->lock);
    const bool found = regions_key(context, data, bytes, &ref, ret);
    pthread_mutex_unlock(&context->lock);
    return found;
}

/* ---- Contexts -------------------------------------------------------------------------------- */

static bool context_is(const struct hoop_rdma_context *context,
                       const struct hoop_link_params *params, const struct hoop_verbs_port *port,
                       uint32_t entries)
{
    return context->comm_id == params->comm_id && context->me == params->me &&
           context->port == port && context->entries_left >= entries;
}

static hoop_result_t context_create(const struct hoop_link_params *params,
                                    const struct hoop_rdma_context *wanted, uint32_t entries,
                                    struct hoop_rdma_context **ret)
{
    struct hoop_rdma_context *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for the use of a port");
    }
    *context = *wanted;
    context->entries_left = entries > RDMA_ENTRIES ? entries : RDMA_ENTRIES;
    context->comm_id = params->comm_id;
    context->me = params->me;
    const hoop_result_t result = hoop_rdma_blame_limit(
        context->verbs->open(context->port->device, context->entries_left, &context->device));
    if (result != HOOP_OK) {
        free(context);
        return result;
    }
    (void)pthread_once(&rdma_once, regions_hear);
    (void)pthread_mutex_init(&context->lock, NULL);
    context->armed = context->verbs->arm(context->device);
    context->next = rdma_contexts;
    rdma_contexts = context;
    *ret = context;
    return HOOP_OK;
}

static void context_destroy(struct hoop_rdma_context *context)
{
    while (context->region_count > 0) {
        regions_drop(context, context->region_count - 1);
    }
    const int err = context->verbs->close(context->device);
    if (err != 0) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_NET, "rank %u cannot close %s: %s", context->me,
                 context->port->device, hoop_errno_name(err));
    }
    (void)pthread_mutex_destroy(&context->lock);
    free(context->regions);
    free(context->links);
    free(context);
}

static uint32_t context_entries(const struct hoop_rdma_link *rdma)
{
    return rdma->depth.sends + rdma->depth.receives;
}

/* The same rank's end for the opposite direction with this peer in this lane, maybe at another
 * port. With the lock. */
static struct hoop_rdma_link *context_other(const struct hoop_rdma_link *rdma)
{
    const struct hoop_link_params *mine = &rdma->base.params;
    for (struct hoop_rdma_context *at = rdma_contexts; at != NULL; at = at->next) {
        const bool same = context_is(at, mine, at->port, 0);
        for (uint32_t i = 0; same && i < at->link_count; i++) {
            struct hoop_rdma_link *link = at->links[i];
            if (link != NULL && link->other == NULL && link->base.params.peer == mine->peer &&
                link->base.params.lane == mine->lane &&
                link->base.params.sending != mine->sending) {
                return link;
            }
        }
    }
    return NULL;
}

hoop_result_t hoop_rdma_enter(struct hoop_rdma_link *rdma, const struct hoop_rdma_context *wanted)
{
    const struct hoop_link_params *params = &rdma->base.params;
    const uint32_t entries = context_entries(rdma);
    hoop_result_t result = HOOP_OK;
    pthread_mutex_lock(&rdma_lock);
    struct hoop_rdma_context *context = rdma_contexts;
    while (context != NULL && !context_is(context, params, wanted->port, entries)) {
        context = context->next;
    }
    if (context == NULL) {
        result = context_create(params, wanted, entries, &context);
    }
    if (context != NULL) {
        context->users++;
        context->entries_left -= entries;
        rdma->context = context;
    }
    pthread_mutex_unlock(&rdma_lock);
    if (context == NULL) {
        return result;
    }
    struct hoop_rdma_link **links =
        realloc(context->links, (context->link_count + 1) * sizeof(struct hoop_rdma_link *));
    if (links == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for %u links", context->link_count + 1);
    }
    context->links = links;
    rdma->number = context->link_count++;
    links[rdma->number] = rdma;
    pthread_mutex_lock(&rdma_lock);
    rdma->other = context_other(rdma);
    pthread_mutex_unlock(&rdma_lock);
    if (rdma->other != NULL) {
        rdma->other->other = rdma;
    }
    return HOOP_OK;
}

void hoop_rdma_leave(struct hoop_rdma_link *rdma)
{
    struct hoop_rdma_context *context = rdma->context;
    if (context == NULL) {
        return;
    }
    if (rdma->number < context->link_count && context->links[rdma->number] == rdma) {
        context->links[rdma->number] = NULL;
    }
    if (rdma->other != NULL) {
        rdma->other->other = NULL;
    }
    pthread_mutex_lock(&rdma_lock);
    context->entries_left += context_entries(rdma);
    const bool last = --context->users == 0;
    struct hoop_rdma_context **at = &rdma_contexts;
    while (last && *at != context) {
        at = &(*at)->next;
    }
    if (last) {
        *at = context->next;
    }
    pthread_mutex_unlock(&rdma_lock);
    if (last) {
        context_destroy(context);
    }
}
