/*
 * Which of this machine's addresses to use, and look-ups of host names. See interface.h.
 *
 * The best of the allowed addresses is the one on the best kind of interface; among those the best
 * kind of address; among those the first in the kernel's list.
 */
#include "net/interface.h"
#include "base/log.h"
#include "base/settings.h"
#include "net/socket.h"
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INTERFACE_LIST_BYTES 256 /* of the list of interfaces in an error */
#define INTERFACE_UNUSABLE UINT32_MAX

/* In the order of HOOP_SOCKET_FAMILY's choices. */
enum interface_family { INTERFACE_ANY, INTERFACE_IP4, INTERFACE_IP6 };

/* Bridges for containers of this machine. Other machines cannot reach their addresses. */
static const char *const interface_bridges[] = {
    "docker", "br-", "virbr", "lxcbr", "lxdbr", "podman", "cni", "cbr", "flannel", "cali", "kube",
};

/* ---- Rules -------------------------------------------------------------------------------- */

static bool interface_in_list(const char *list, const char *name, bool whole)
{
    while (*list != 0) {
        list += strspn(list, ", ");
        const size_t length = strcspn(list, ", ");
        if (length > 0 && strncmp(list, name, length) == 0 && (!whole || name[length] == 0)) {
            return true;
        }
        list += length;
    }
    return false;
}

bool hoop_interface_allowed(const char *rule, const char *name)
{
    if (rule == NULL) {
        return true;
    }
    const bool exclude = rule[0] == '^';
    const char *list = exclude ? rule + 1 : rule;
    const bool whole = list[0] == '=';
    list = whole ? list + 1 : list;
    if (strspn(list, ", ") == strlen(list)) {
        return true; /* an empty list excludes nothing */
    }
    return interface_in_list(list, name, whole) != exclude;
}

static bool interface_family_allowed(const struct hoop_address *address)
{
    switch (hoop_settings()->socket_family) {
    case INTERFACE_IP4:
        return address->family == 4;
    case INTERFACE_IP6:
        return address->family == 6;
    default:
        return true;
    }
}

/* ---- Choosing ----------------------------------------------------------------------------- */

/* The address of a list entry; false if it has none or its interface is down. */
static bool interface_address(const struct ifaddrs *at, struct hoop_address *ret)
{
    const unsigned up = IFF_UP | IFF_RUNNING;
    return at->ifa_addr != NULL && (at->ifa_flags & up) == up &&
           hoop_address_from_sockaddr(at->ifa_addr, ret);
}

/* The kind of an interface: 0 network, 1 bridge for containers, 2 loopback. Less is better. */
static uint32_t interface_kind(const struct ifaddrs *at)
{
    if ((at->ifa_flags & IFF_LOOPBACK) != 0) {
        return 2;
    }
    for (size_t i = 0; i < sizeof(interface_bridges) / sizeof(interface_bridges[0]); i++) {
        if (strncmp(at->ifa_name, interface_bridges[i], strlen(interface_bridges[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

/* The kind of an address: IPv4, IPv6, then link-local ones (169.254.0.0/16, fe80::/10). */
static uint32_t interface_address_kind(const struct hoop_address *address)
{
    if (address->family == 4) {
        return address->ip[0] == 169 && address->ip[1] == 254 ? 2 : 0;
    }
    return address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80 ? 3 : 1;
}

/* An address's rank: less is better. family 0 means any that the settings allow. */
static uint32_t interface_rank(const struct ifaddrs *at, uint16_t family, struct hoop_address *ret)
{
    if (!interface_address(at, ret) ||
        !hoop_interface_allowed(hoop_settings()->socket_ifname, at->ifa_name) ||
        (family != 0 ? ret->family != family : !interface_family_allowed(ret))) {
        return INTERFACE_UNUSABLE;
    }
    return interface_kind(at) * 4 + interface_address_kind(ret);
}

/* Lists what there is: "lo (127.0.0.1), eth0 (10.0.0.1)". */
static void interface_describe(const struct ifaddrs *all, char *ret_text, size_t bytes)
{
    size_t length = 0;
    ret_text[0] = 0;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        struct hoop_address address;
        char text[HOOP_ADDRESS_TEXT_BYTES];
        if (interface_address(at, &address)) {
            hoop_address_format(&address, text, sizeof(text));
            hoop_text_append(ret_text, bytes, &length, "%s%s (%s)", length > 0 ? ", " : "",
                             at->ifa_name, text);
        }
    }
}

static hoop_result_t interface_none(const struct ifaddrs *all, uint16_t family)
{
    const struct hoop_settings *settings = hoop_settings();
    const uint32_t asked = family == 4   ? INTERFACE_IP4
                           : family == 6 ? INTERFACE_IP6
                                         : (uint32_t)settings->socket_family;
    const char *kind = asked == INTERFACE_IP4 ? "IPv4 " : asked == INTERFACE_IP6 ? "IPv6 " : "";
    char list[INTERFACE_LIST_BYTES];
    interface_describe(all, list, sizeof(list));
    if (settings->socket_ifname == NULL) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "no network interface that is up has an %saddress; there are: %s", kind,
                          list);
    }
    return hoop_error(HOOP_INVALID_USAGE,
                      "HOOP_SOCKET_IFNAME=%s allows no network interface that is up and has an "
                      "%saddress; there are: %s",
                      settings->socket_ifname, kind, list);
}

static hoop_result_t interface_list(struct ifaddrs **ret_all)
{
    return getifaddrs(ret_all) == 0 ? HOOP_OK
                                    : hoop_errno_error(errno, "cannot list the network interfaces");
}

/* Returns the best rank and its address; INTERFACE_UNUSABLE if no address is allowed. */
static uint32_t interface_best(const struct ifaddrs *all, uint16_t family, struct hoop_address *ret)
{
    uint32_t best = INTERFACE_UNUSABLE;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        struct hoop_address address;
        const uint32_t rank = interface_rank(at, family, &address);
        if (rank < best) {
            best = rank;
            *ret = address;
        }
    }
    return best;
}

/* The best address of the family; family 0 means any that the settings allow. */
static hoop_result_t interface_choose(uint16_t family, struct hoop_address *ret)
{
    struct ifaddrs *all = NULL;
    hoop_result_t result = interface_list(&all);
    if (result == HOOP_OK && interface_best(all, family, ret) == INTERFACE_UNUSABLE) {
        result = interface_none(all, family);
    }
    freeifaddrs(all);
    return result;
}

hoop_result_t hoop_interface_choose(struct hoop_address *ret)
{
    return interface_choose(0, ret);
}

/* Why an address of rank `rank` was not chosen, where the chosen one has rank `best`. */
static const char *interface_verdict(const struct ifaddrs *at, uint32_t rank, uint32_t best)
{
    if (rank == INTERFACE_UNUSABLE) {
        return hoop_interface_allowed(hoop_settings()->socket_ifname, at->ifa_name)
                   ? "HOOP_SOCKET_FAMILY asks for another"
                   : "HOOP_SOCKET_IFNAME does not allow it";
    }
    if (rank / 4 != best / 4) {
        return rank / 4 == 2 ? "loopback comes last" : "bridges of containers come late";
    }
    return rank % 4 >= 2          ? "link-local addresses come late"
           : rank % 4 != best % 4 ? "IPv4 comes first"
                                  : "another comes first";
}

void hoop_interface_each(hoop_interface_fn *each, void *arg)
{
    struct ifaddrs *all = NULL;
    struct hoop_address address;
    if (interface_list(&all) != HOOP_OK) {
        return;
    }
    const uint32_t best = interface_best(all, 0, &address);
    bool chosen = false;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (interface_address(at, &address)) {
            const uint32_t rank = interface_rank(at, 0, &address);
            const bool first = rank == best && rank != INTERFACE_UNUSABLE && !chosen;
            each(arg, at->ifa_name, &address, first ? "chosen" : interface_verdict(at, rank, best));
            chosen = chosen || first;
        }
    }
    freeifaddrs(all);
}

/* ---- Routes ------------------------------------------------------------------------------- */

/* Finds the source address for a route. Connecting a datagram socket makes the kernel look up the
 * route, and sends nothing. */
static hoop_result_t interface_route(const struct hoop_address *to, struct hoop_address *ret)
{
    struct sockaddr_storage address;
    struct hoop_address target = *to;
    target.port = to->port != 0 ? to->port : 9; /* any port but 0 */
    const socklen_t bytes = hoop_address_to_sockaddr(&target, &address);
    const int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return hoop_errno_error(errno, "cannot make a socket");
    }
    int err = connect(fd, (const struct sockaddr *)&address, bytes) != 0 ? errno : 0;
    if (err == 0 && !hoop_socket_local(fd, ret)) {
        err = EADDRNOTAVAIL;
    }
    close(fd);
    ret->port = 0;
    if (err != 0) {
        char text[HOOP_ADDRESS_TEXT_BYTES];
        hoop_address_format(to, text, sizeof(text));
        return hoop_errno_error(err, "this machine has no route to %s", text);
    }
    return HOOP_OK;
}

/* The entry that has this address and that the rule allows, or NULL. */
static const struct ifaddrs *interface_with(const struct ifaddrs *all,
                                            const struct hoop_address *address, const char *rule)
{
    const struct ifaddrs *at = all;
    struct hoop_address mine;
    while (at != NULL &&
           !(at->ifa_addr != NULL && hoop_address_from_sockaddr(at->ifa_addr, &mine) &&
             hoop_address_same_ip(&mine, address) && hoop_interface_allowed(rule, at->ifa_name))) {
        at = at->ifa_next;
    }
    return at;
}

static bool interface_has(const struct hoop_address *address, const char *rule)
{
    struct ifaddrs *all = NULL;
    const bool found =
        interface_list(&all) == HOOP_OK && interface_with(all, address, rule) != NULL;
    freeifaddrs(all);
    return found;
}

hoop_result_t hoop_interface_towards(const struct hoop_address *to, struct hoop_address *ret)
{
    struct hoop_address routed = {.family = 0};
    const hoop_result_t result = interface_route(to, &routed);
    const char *rule = hoop_settings()->socket_ifname;
    if (rule != NULL && (result != HOOP_OK || !interface_has(&routed, rule))) {
        return interface_choose(to->family, ret);
    }
    if (result == HOOP_OK) {
        *ret = routed;
    }
    return result;
}

hoop_result_t hoop_interface_is_mine(const struct hoop_address *address, bool *ret)
{
    struct ifaddrs *all = NULL;
    const hoop_result_t result = interface_list(&all);
    /* all of 127.0.0.0/8 is this machine's, although interfaces list only 127.0.0.1 */
    *ret = hoop_address_is_loopback(address) ||
           (result == HOOP_OK && interface_with(all, address, NULL) != NULL);
    freeifaddrs(all);
    return *ret ? HOOP_OK : result;
}

uint32_t hoop_interface_prefix(const struct hoop_address *address)
{
    struct ifaddrs *all = NULL;
    struct hoop_address mask;
    uint32_t bits = 0;
    if (interface_list(&all) != HOOP_OK) {
        return 0;
    }
    const struct ifaddrs *at = interface_with(all, address, NULL);
    if (at != NULL && at->ifa_netmask != NULL &&
        hoop_address_from_sockaddr(at->ifa_netmask, &mask)) {
        for (size_t i = 0; i < sizeof(mask.ip); i++) {
            bits += (uint32_t)__builtin_popcount(mask.ip[i]);
        }
    }
    freeifaddrs(all);
    return bits;
}

/* ---- Names -------------------------------------------------------------------------------- */

/* Adds an address unless it is a duplicate or not allowed. */
static void resolve_add(const struct sockaddr *from, struct hoop_address *ret, uint32_t *count)
{
    struct hoop_address address;
    if (*count == HOOP_RESOLVE_MAX || !hoop_address_from_sockaddr(from, &address) ||
        !interface_family_allowed(&address)) {
        return;
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (hoop_address_same_ip(&ret[i], &address)) {
            return;
        }
    }
    ret[(*count)++] = address;
}

hoop_result_t hoop_resolve(const char *host, struct hoop_address ret[HOOP_RESOLVE_MAX],
                           uint32_t *ret_count)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    const struct addrinfo hints = {
        .ai_family = families[hoop_settings()->socket_family],
        .ai_socktype = SOCK_STREAM,
    };
    struct addrinfo *all = NULL;
    struct hoop_address numeric;
    uint32_t count = 0;
    if (hoop_address_parse(host, &numeric) == HOOP_OK && numeric.port == 0) {
        if (!interface_family_allowed(&numeric)) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "HOOP_SOCKET_FAMILY does not allow the address %s", host);
        }
        ret[0] = numeric;
        *ret_count = 1;
        return HOOP_OK;
    }
    const int err = getaddrinfo(host, NULL, &hints, &all);
    const char *why = err == EAI_SYSTEM ? hoop_errno_name(errno) : gai_strerror(err);
    if (err == 0) {
        for (const struct addrinfo *at = all; at != NULL; at = at->ai_next) {
            resolve_add(at->ai_addr, ret, &count);
        }
        freeaddrinfo(all);
        why = "it has no address that can be used";
    }
    if (count == 0) {
        return hoop_error(HOOP_INVALID_USAGE, "cannot look up the host %s: %s", host, why);
    }
    *ret_count = count;
    return HOOP_OK;
}

/* ---- Ports -------------------------------------------------------------------------------- */

static struct hoop_ports interface_ports; /* written once, by interface_read_ports() */

static void interface_read_ports(void)
{
    const char *range = hoop_settings()->port_range;
    if (range != NULL && hoop_ports_parse(range, &interface_ports) != HOOP_OK) {
        interface_ports = (struct hoop_ports){.first = 0};
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_ENV, "HOOP_PORT_RANGE: %s; any port is used",
                 hoop_thread_error());
    }
}

struct hoop_ports hoop_port_range(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, interface_read_ports);
    return interface_ports;
}
