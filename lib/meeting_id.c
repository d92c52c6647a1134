/*
 * Unique ids: a meeting as 128 bytes that a program hands to its ranks. Whoever has them can join.
 */
#include "control.h"
#include "hub.h"
#include "interface.h"
#include "meeting.h"
#include "rendezvous.h"
#include <stddef.h>
#include <string.h>

#define MEETING_ID_MAGIC "hoop-id"
#define MEETING_ID_VERSION 2u

/* What a unique id holds; the check tells a damaged one from a wrong secret. */
struct meeting_id {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint8_t name[HOOP_MEETING_NAME_RANDOM];
    uint8_t secret[HOOP_SECRET_BYTES];
    struct hoop_address address; /* of the hub; family 0: all ranks are on one machine */
    uint64_t reserved_too;
    uint8_t check[HOOP_MAC_BYTES]; /* of all the rest, by the secret */
};
_Static_assert(sizeof(struct meeting_id) == HOOP_UNIQUE_ID_BYTES, "an id is plain bytes");
_Static_assert(HOOP_MEETING_NAME_BYTES == HOOP_FRAME_NAME_BYTES, "names travel in frames");

static hoop_result_t meeting_id_mac(const struct meeting_id *id, uint8_t ret_mac[HOOP_MAC_BYTES])
{
    struct hoop_secret secret;
    memcpy(secret.bytes, id->secret, sizeof(secret.bytes));
    const hoop_result_t result = hoop_hmac(&secret, "hoop unique id", id,
                                           offsetof(struct meeting_id, check), NULL, 0, ret_mac);
    hoop_secret_wipe(&secret, sizeof(secret));
    return result;
}

struct meeting_serve {
    struct hoop_meeting meeting;
    hoop_result_t result;
    struct hoop_failure failure;
};

/* Where others may come, the ranks of each machine serve themselves: this process may have none,
 * and end when all are in. */
static void meeting_serve(void *arg)
{
    struct meeting_serve *serve = arg;
    struct hoop_meeting *meeting = &serve->meeting;
    serve->result = meeting->address_count > 0
                        ? hoop_hub_serve(meeting, &meeting->addresses[0], &serve->failure)
                        : hoop_rendezvous_serve(meeting, &serve->failure);
}

/*
 * The interface at which others may come, unless none can. Without a network there is no address,
 * which is fine, unless the user named an interface that is not there.
 */
static hoop_result_t meeting_invite(struct hoop_meeting *meeting)
{
    struct hoop_launcher launcher;
    struct hoop_address address;
    const bool told = hoop_meeting_launcher(&launcher) == HOOP_OK && launcher.family != NULL;
    if (told && hoop_meeting_spread(&launcher) == HOOP_SPREAD_ONE) {
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_interface_choose(&address);
    if (result != HOOP_OK) {
        return hoop_settings()->socket_ifname != NULL ? result : HOOP_OK;
    }
    const bool alone = hoop_address_is_loopback(&address) && hoop_settings()->host_id == NULL;
    if (!alone) {
        meeting->address_count = 1;
        meeting->addresses[0] = address;
    }
    return HOOP_OK;
}

static hoop_result_t meeting_create(bool here, hoop_unique_id_t *ret_id)
{
    struct meeting_serve serve = {.failure = {.rank = -1}};
    struct meeting_id id = {.magic = MEETING_ID_MAGIC, .version = MEETING_ID_VERSION};
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        result = hoop_random(id.name, sizeof(id.name));
    }
    if (result == HOOP_OK) {
        result = hoop_random(id.secret, sizeof(id.secret));
    }
    if (result == HOOP_OK) {
        hoop_meeting_name("hoop-", id.name, serve.meeting.name);
        memcpy(serve.meeting.secret.bytes, id.secret, sizeof(id.secret));
        serve.meeting.has_secret = true;
        result = here ? HOOP_OK : meeting_invite(&serve.meeting);
    }
    if (result == HOOP_OK) {
        hoop_service_run(meeting_serve, &serve);
        result = serve.result;
        if (result != HOOP_OK) {
            (void)hoop_error(result, "%s", serve.failure.text);
        }
    }
    if (result == HOOP_OK) {
        id.address = serve.meeting.addresses[0];
        result = meeting_id_mac(&id, id.check);
    }
    if (result == HOOP_OK) {
        memcpy(ret_id->internal, &id, sizeof(id));
    }
    hoop_meeting_finish(&serve.meeting);
    hoop_secret_wipe(&id, sizeof(id));
    return result;
}

hoop_result_t hoop_meeting_create(hoop_unique_id_t *ret_id)
{
    return meeting_create(false, ret_id);
}

hoop_result_t hoop_meeting_create_here(hoop_unique_id_t *ret_id)
{
    return meeting_create(true, ret_id);
}

hoop_result_t hoop_meeting_from_id(const hoop_unique_id_t *id, struct hoop_meeting *ret)
{
    struct meeting_id bytes;
    uint8_t mac[HOOP_MAC_BYTES];
    memcpy(&bytes, id->internal, sizeof(bytes));
    bool good = memcmp(bytes.magic, MEETING_ID_MAGIC, sizeof(MEETING_ID_MAGIC)) == 0 &&
                bytes.version == MEETING_ID_VERSION;
    if (good) {
        const hoop_result_t result = meeting_id_mac(&bytes, mac);
        if (result != HOOP_OK) {
            return result;
        }
        good = hoop_mac_equal(bytes.check, mac) && hoop_address_is_valid(&bytes.address) &&
               (bytes.address.family == 0) == (bytes.address.port == 0);
    }
    if (good) {
        *ret = (struct hoop_meeting){.has_secret = true};
        hoop_meeting_name("hoop-", bytes.name, ret->name);
        memcpy(ret->secret.bytes, bytes.secret, sizeof(ret->secret.bytes));
        ret->address_count = bytes.address.family != 0 ? 1 : 0;
        ret->addresses[0] = bytes.address;
    }
    hoop_secret_wipe(&bytes, sizeof(bytes));
    if (!good) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "this is no unique id of hoop %d.%d: expected the %d bytes that "
                          "hoop_get_unique_id() wrote",
                          HOOP_MAJOR, HOOP_MINOR, HOOP_UNIQUE_ID_BYTES);
    }
    return HOOP_OK;
}
