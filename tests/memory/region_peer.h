/*
 * A peer that is played by this process: it exports a region and imports it under the name of
 * another process, which maps the same pages at a second address. All functions assert, so they are
 * for the main thread only, except peer_bring().
 */
#ifndef REGION_PEER_H
#define REGION_PEER_H

#include "base/sizes.h"
#include "memory/region.h"

#include <sys/resource.h>

#define PAGE hoop_page_bytes()
#define PEER 77u
#define OTHER_PEER 78u

void *peer_make(uint64_t bytes);
struct hoop_region_ref peer_ref(const void *ptr);

/* Does what a peer does with a region: gets its descriptor, and maps that under the name of
 * process. */
hoop_result_t peer_bring(uint64_t process, const struct hoop_region_ref *ref);

/* Sets a limit. Returns the earlier one. */
rlim_t peer_limit(int resource, rlim_t most);

/* To be called around every test; checks that it leaves nothing behind. */
int peer_begin(void **state);
int peer_end(void **state);

#endif
