/*
 * Sends chunks of 8 bytes over an rdma link with both ends in this thread. rdma_instructions.sh
 * counts the instructions. Usage: `rdma_chunks N`
 */
#include "fakes/fake_verbs.h"
#include "transports/link_pair.h"
#include "transports/rdma.h"
#include "transports/table.h"
#include <stdio.h>
#include <stdlib.h>

#define CHUNK 65536u
#define SLOTS 4u

static unsigned chunks_done;
static const _Atomic uint8_t awake; /* the thread never sleeps */

static void chunks_count(struct hoop_xfer *xfer, hoop_result_t result)
{
    (void)xfer;
    chunks_done += result == HOOP_OK;
}

/* At each end as the engine does it: post, then progress. */
__attribute__((noinline)) static bool chunks_send(struct pair *pair, struct hoop_xfer *xfer)
{
    return hoop_link_send(pair->sender, xfer) == HOOP_OK && hoop_link_progress(pair->sender);
}

__attribute__((noinline)) static bool chunks_receive(struct pair *pair, struct hoop_xfer *xfer)
{
    return hoop_link_recv(pair->receiver, xfer) == HOOP_OK && hoop_link_progress(pair->receiver);
}

static bool chunks_move(struct pair *pair, uint64_t number)
{
    uint64_t from = number, to = 0;
    struct hoop_xfer send = {
        .data = &from, .bytes = sizeof(from), .chunk = number, .done = chunks_count};
    struct hoop_xfer recv = send;
    recv.data = &to;
    return chunks_send(pair, &send) && chunks_receive(pair, &recv) && to == number;
}

int main(int argc, char **argv)
{
    const uint64_t count = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    struct pair pair;
    hoop_rdma_verbs = &fake_verbs;
    setenv("HOOP_IB_HCA", "fake", 1);
    bool well = pair_open(&pair, &hoop_transport_rdma, SLOTS, CHUNK) == HOOP_OK;
    if (well) {
        pair.sender->params.sleeping = pair.receiver->params.sleeping = &awake;
    }
    for (uint64_t i = 0; i < count && well; i++) {
        well = chunks_move(&pair, i);
    }
    well = well && chunks_done == 2 * count;
    printf("%s after %u of %llu\n", well ? "well" : pair.sender->failure.text, chunks_done / 2,
           (unsigned long long)count);
    pair_close(&pair);
    return well ? 0 : 1;
}
