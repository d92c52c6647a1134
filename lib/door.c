/* TCP listeners that a process's users share; see door.h. */
#include "door.h"
#include "base/log.h"
#include "base/settings.h"
#include "dock.h"
#include "hub.h"
#include "tree.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct hoop_door {
    struct hoop_door *next;
    struct hoop_listener *listener;
    uint32_t users;
};

static struct hoop_door *door_all;

/* ---- Ports -------------------------------------------------------------------------------- */

static struct hoop_ports door_ports; /* written once, by door_read_ports() */

static void door_read_ports(void)
{
    const char *range = hoop_settings()->port_range;
    if (range != NULL && hoop_ports_parse(range, &door_ports) != HOOP_OK) {
        door_ports = (struct hoop_ports){.first = 0};
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_ENV, "HOOP_PORT_RANGE: %s; any port is used",
                 hoop_thread_error());
    }
}

struct hoop_ports hoop_door_ports(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, door_read_ports);
    return door_ports;
}

/* ---- Who comes in ------------------------------------------------------------------------- */

static const struct door_guest {
    bool (*admit)(const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                  struct hoop_failure *ret_failure);
    void (*opened)(struct hoop_control *control);
} door_guests[] = {
    [HOOP_HELLO_MACHINE] = {hoop_hub_admit, hoop_hub_opened},
    [HOOP_HELLO_BRANCH] = {hoop_tree_admit, hoop_tree_opened},
    [HOOP_HELLO_DATA] = {hoop_dock_admit, hoop_dock_opened},
};

static const struct door_guest *door_guest(const struct hoop_frame_hello *hello)
{
    const size_t kinds = sizeof(door_guests) / sizeof(door_guests[0]);
    const bool known = hello->kind < kinds && door_guests[hello->kind].admit != NULL;
    return known ? &door_guests[hello->kind] : NULL;
}

static bool door_admit(void *arg, const struct hoop_frame_hello *hello, struct hoop_admission *ret,
                       struct hoop_failure *ret_failure)
{
    const struct door_guest *guest = door_guest(hello);
    (void)arg;
    if (guest == NULL) {
        (void)hoop_failure_set(ret_failure, HOOP_NOT_AUTHENTICATED, -1,
                               "nobody is met over a network for a hello of kind %u", hello->kind);
        return false;
    }
    return guest->admit(hello, ret, ret_failure);
}

static void door_opened(void *arg, struct hoop_control *control)
{
    const struct door_guest *guest = door_guest(hoop_control_hello(control));
    (void)arg;
    assert(guest != NULL); /* or it would not have been admitted */
    guest->opened(control);
}

static const struct hoop_listener_owner door_owner = {
    .admit = door_admit,
    .opened = door_opened,
};

/* ---- Opening and closing ------------------------------------------------------------------ */

static bool door_serves(const struct hoop_door *door, const struct hoop_address *at,
                        const struct hoop_ports *ports)
{
    const struct hoop_address *mine = hoop_listener_address(door->listener);
    if (!hoop_address_same_ip(mine, at) || mine->scope != at->scope) {
        return false;
    }
    if (at->port != 0) {
        return mine->port == at->port;
    }
    return ports->first == 0 || (mine->port >= ports->first && mine->port <= ports->last);
}

hoop_result_t hoop_door_open(const struct hoop_address *at, const struct hoop_ports *ports,
                             struct hoop_door **ret_door, struct hoop_failure *failure)
{
    struct hoop_door *door = door_all;
    while (door != NULL && !door_serves(door, at, ports)) {
        door = door->next;
    }
    if (door == NULL) {
        const struct hoop_place place = {.address = *at};
        door = calloc(1, sizeof(*door));
        if (door == NULL) {
            return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a door");
        }
        const hoop_result_t result =
            hoop_listener_create(&place, ports, &door_owner, NULL, &door->listener, failure);
        if (result != HOOP_OK) {
            free(door);
            return result;
        }
        door->next = door_all;
        door_all = door;
    }
    door->users++;
    *ret_door = door;
    return HOOP_OK;
}

void hoop_door_close(struct hoop_door *door)
{
    if (door == NULL || --door->users > 0) {
        return;
    }
    struct hoop_door **at = &door_all;
    while (*at != door) {
        at = &(*at)->next;
    }
    *at = door->next;
    hoop_listener_destroy(door->listener);
    free(door);
}

const struct hoop_address *hoop_door_address(const struct hoop_door *door)
{
    return hoop_listener_address(door->listener);
}
