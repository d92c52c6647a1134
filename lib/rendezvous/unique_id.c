/*
 * Unique ids: a rendezvous as 128 bytes that a program hands to its ranks. Whoever has them can
 * join.
 */
#include "rendezvous/rendezvous.h"
#include <stddef.h>
#include <string.h>

#define UNIQUE_ID_MAGIC "hoop-id"
#define UNIQUE_ID_VERSION 3u

/* The contents of a unique id. The check shows whether an id is damaged. */
struct unique_id {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    struct hoop_secret secret;
    struct hoop_address address; /* of the root; family 0 if all ranks are on one machine */
    uint64_t reserved_too[3];
    uint8_t check[HOOP_MAC_BYTES]; /* MAC of all other bytes, keyed by the secret */
};
_Static_assert(sizeof(struct unique_id) == HOOP_UNIQUE_ID_BYTES, "an id is plain bytes");

static hoop_result_t unique_id_mac(const struct unique_id *id, uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return hoop_hmac(&id->secret, "hoop unique id", id, offsetof(struct unique_id, check), NULL, 0,
                     ret_mac);
}

hoop_result_t hoop_rendezvous_to_id(const struct hoop_rendezvous *rendezvous,
                                    hoop_unique_id_t *ret_id)
{
    struct unique_id id = {
        .magic = UNIQUE_ID_MAGIC,
        .version = UNIQUE_ID_VERSION,
        .secret = rendezvous->secret,
        .address = rendezvous->addresses[0],
    };
    const hoop_result_t result = unique_id_mac(&id, id.check);
    if (result == HOOP_OK) {
        memcpy(ret_id->internal, &id, sizeof(id));
    }
    hoop_secret_wipe(&id, sizeof(id));
    return result;
}

hoop_result_t hoop_rendezvous_from_id(const hoop_unique_id_t *id, struct hoop_rendezvous *ret)
{
    struct unique_id bytes;
    uint8_t mac[HOOP_MAC_BYTES];
    memcpy(&bytes, id->internal, sizeof(bytes));
    bool good = memcmp(bytes.magic, UNIQUE_ID_MAGIC, sizeof(UNIQUE_ID_MAGIC)) == 0 &&
                bytes.version == UNIQUE_ID_VERSION;
    hoop_result_t result = good ? unique_id_mac(&bytes, mac) : HOOP_OK;
    good = good && result == HOOP_OK && hoop_mac_equal(bytes.check, mac) &&
           hoop_address_is_valid(&bytes.address) &&
           (bytes.address.family == 0) == (bytes.address.port == 0);
    if (good) {
        result = hoop_rendezvous_by_secret(&bytes.secret, ret);
    }
    if (good && result == HOOP_OK) {
        ret->address_count = bytes.address.family != 0 ? 1 : 0;
        ret->addresses[0] = bytes.address;
    }
    hoop_secret_wipe(&bytes, sizeof(bytes));
    return good || result != HOOP_OK ? result
                                     : hoop_error(HOOP_INVALID_ARGUMENT,
                                                  "this is not a unique id of hoop %d.%d: expected "
                                                  "the %d bytes that hoop_get_unique_id() wrote",
                                                  HOOP_MAJOR, HOOP_MINOR, HOOP_UNIQUE_ID_BYTES);
}
