/* Addresses and their text, without any look-up. See address.h. */
#include "net/address.h"
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_IP4_BYTES 4u
#define ADDRESS_PORT_DIGITS 5u
#define ADDRESS_SCOPE_DIGITS 10u
/* How much of a text an error quotes; the text may come from anywhere. */
#define ADDRESS_QUOTE_BYTES 127

/* ---- What an address is ------------------------------------------------------------------- */

static bool address_is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool address_is_link_local(const struct hoop_address *address)
{
    return address->family == 6 && address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80;
}

/* Is it an IPv4-mapped IPv6 address, such as ::ffff:10.0.0.1? */
static bool address_is_mapped(const struct hoop_address *address)
{
    return address->family == 6 && address_is_zero(address->ip, 10) && address->ip[10] == 0xff &&
           address->ip[11] == 0xff;
}

bool hoop_address_is_valid(const struct hoop_address *address)
{
    switch (address->family) {
    case 0:
        return address->port == 0 && address->scope == 0 &&
               address_is_zero(address->ip, sizeof(address->ip));
    case 4:
        return address->scope == 0 && address_is_zero(address->ip + ADDRESS_IP4_BYTES,
                                                      sizeof(address->ip) - ADDRESS_IP4_BYTES);
    case 6:
        return address->scope == 0 || address_is_link_local(address);
    default:
        return false;
    }
}

bool hoop_address_is_loopback(const struct hoop_address *address)
{
    if (address->family == 4) {
        return address->ip[0] == 127;
    }
    return address->family == 6 && ((address_is_zero(address->ip, 15) && address->ip[15] == 1) ||
                                    (address_is_mapped(address) && address->ip[12] == 127));
}

bool hoop_address_is_any(const struct hoop_address *address)
{
    const struct hoop_address *a = address;
    return a->family != 0 && (address_is_zero(a->ip, sizeof(a->ip)) ||
                              (address_is_mapped(a) && address_is_zero(a->ip + 12, 4)));
}

bool hoop_address_same_ip(const struct hoop_address *a, const struct hoop_address *b)
{
    return a->family != 0 && a->family == b->family && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0 &&
           (a->scope == b->scope || a->scope == 0 || b->scope == 0);
}

/* ---- To text ------------------------------------------------------------------------------ */

void hoop_address_format(const struct hoop_address *address, char *ret_text, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN] = "";
    char zone[ADDRESS_SCOPE_DIGITS + 2] = "";
    if (address->family == 0) {
        (void)snprintf(ret_text, bytes, "nowhere");
        return;
    }
    (void)inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->ip, ip, sizeof(ip));
    if (address->scope != 0) {
        (void)snprintf(zone, sizeof(zone), "%%%u", address->scope);
    }
    if (address->port == 0) {
        (void)snprintf(ret_text, bytes, "%s%s", ip, zone);
    } else if (address->family == 4) {
        (void)snprintf(ret_text, bytes, "%s:%u", ip, address->port);
    } else {
        (void)snprintf(ret_text, bytes, "[%s%s]:%u", ip, zone, address->port);
    }
}

/* ---- From text ---------------------------------------------------------------------------- */

static hoop_result_t address_refuse(const char *text, const char *expected)
{
    return hoop_error(HOOP_INVALID_ARGUMENT, "\"%.*s\"%s is not %s", ADDRESS_QUOTE_BYTES, text,
                      strlen(text) > ADDRESS_QUOTE_BYTES ? "..." : "", expected);
}

/* Parses `length` decimal digits, 1 to max_digits, to a number from 1 to most. */
static bool address_number(const char *digits, size_t length, size_t max_digits, uint64_t most,
                           uint64_t *ret_number)
{
    if (length == 0 || length > max_digits || strspn(digits, "0123456789") != length) {
        return false;
    }
    *ret_number = strtoull(digits, NULL, 10);
    return *ret_number >= 1 && *ret_number <= most;
}

static bool address_port(const char *digits, size_t length, uint16_t *ret_port)
{
    uint64_t port = 0;
    if (!address_number(digits, length, ADDRESS_PORT_DIGITS, UINT16_MAX, &port)) {
        return false;
    }
    *ret_port = (uint16_t)port;
    return true;
}

/* Is it an IPv6 address, optionally followed by %zone, where the zone may be any name? */
static bool address_is_ip6(const char *host, size_t length)
{
    char ip[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    const char *zone = memchr(host, '%', length);
    const size_t ip_length = zone != NULL ? (size_t)(zone - host) : length;
    if (ip_length >= sizeof(ip) || (zone != NULL && ip_length + 1 == length)) {
        return false;
    }
    memcpy(ip, host, ip_length);
    ip[ip_length] = 0;
    return inet_pton(AF_INET6, ip, bytes) == 1;
}

static bool address_is_host(const char *host, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)host[i];
        if (c <= 0x20 || c == 0x7f || strchr("/[]@?#\\\"'", c) != NULL) {
            return false;
        }
    }
    return length > 0;
}

hoop_result_t hoop_host_port_parse(const char *text, char *ret_host, size_t host_bytes,
                                   uint16_t *ret_port)
{
    const char *host = text;
    const char *colon = strchr(text, ':');
    size_t length = strlen(text);
    const char *port_text = NULL;
    uint16_t port = 0;
    bool good = true;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        host = text + 1;
        length = end != NULL ? (size_t)(end - host) : 0;
        good = end != NULL && address_is_ip6(host, length) && (end[1] == 0 || end[1] == ':');
        port_text = good && end[1] == ':' ? end + 2 : NULL;
    } else if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        length = (size_t)(colon - text);
        port_text = colon + 1;
    } else if (colon != NULL) {
        good = address_is_ip6(host, length);
    }
    if (!good || !address_is_host(host, length) || length >= host_bytes ||
        (port_text != NULL && !address_port(port_text, strlen(port_text), &port))) {
        return address_refuse(text, "host, host:port, [ipv6]:port or ipv6, with a port of 1 to "
                                    "65535");
    }
    memcpy(ret_host, host, length);
    ret_host[length] = 0;
    *ret_port = port;
    return HOOP_OK;
}

/* Parses a numeric host; a link-local one may have a numeric zone. */
static bool address_from_host(char *host, struct hoop_address *ret)
{
    char *zone = strchr(host, '%');
    uint64_t scope = 0;
    if (inet_pton(AF_INET, host, ret->ip) == 1) {
        ret->family = 4;
        return true;
    }
    if (zone != NULL) {
        *zone++ = 0;
    }
    ret->family = 6;
    if (inet_pton(AF_INET6, host, ret->ip) != 1) {
        return false;
    }
    if (zone == NULL) {
        return true;
    }
    const bool numbered =
        address_number(zone, strlen(zone), ADDRESS_SCOPE_DIGITS, UINT32_MAX, &scope);
    ret->scope = (uint32_t)scope;
    return numbered && address_is_link_local(ret);
}

/* Makes an IPv4-mapped address IPv4, so that each address has one form and can be compared. */
static void address_unmap(struct hoop_address *address)
{
    if (address_is_mapped(address)) {
        const struct hoop_address mapped = *address;
        *address = (struct hoop_address){.family = 4, .port = mapped.port};
        memcpy(address->ip, mapped.ip + 12, ADDRESS_IP4_BYTES);
    }
}

hoop_result_t hoop_address_parse(const char *text, struct hoop_address *ret)
{
    char host[HOOP_ADDRESS_TEXT_BYTES];
    struct hoop_address address = {.family = 0};
    if (hoop_host_port_parse(text, host, sizeof(host), &address.port) != HOOP_OK ||
        !address_from_host(host, &address)) {
        return address_refuse(text, "a numeric address, with or without a port (10.0.0.1:29500, "
                                    "[fe80::1%2]:29500)");
    }
    address_unmap(&address);
    *ret = address;
    return HOOP_OK;
}

hoop_result_t hoop_ports_parse(const char *text, struct hoop_ports *ret)
{
    struct hoop_ports ports = {.first = 0};
    const char *dash = strchr(text, '-');
    const size_t length = dash != NULL ? (size_t)(dash - text) : strlen(text);
    bool good = address_port(text, length, &ports.first);
    ports.last = ports.first;
    if (good && dash != NULL) {
        good = address_port(dash + 1, strlen(dash + 1), &ports.last);
    }
    if (!good || ports.last < ports.first) {
        return address_refuse(text, "a port, or a first and a last one (29500-29600)");
    }
    *ret = ports;
    return HOOP_OK;
}

/* ---- Sockets' addresses ------------------------------------------------------------------- */

socklen_t hoop_address_to_sockaddr(const struct hoop_address *address, struct sockaddr_storage *ret)
{
    assert(address->family == 4 || address->family == 6);
    memset(ret, 0, sizeof(*ret));
    if (address->family == 4) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(address->port)};
        memcpy(&in.sin_addr, address->ip, sizeof(in.sin_addr));
        memcpy(ret, &in, sizeof(in));
        return sizeof(in);
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    memcpy(&in6.sin6_addr, address->ip, sizeof(in6.sin6_addr));
    in6.sin6_scope_id = address->scope;
    memcpy(ret, &in6, sizeof(in6));
    return sizeof(in6);
}

bool hoop_address_from_sockaddr(const struct sockaddr *from, struct hoop_address *ret)
{
    struct hoop_address address = {.family = 0};
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof(in));
        address.family = 4;
        address.port = ntohs(in.sin_port);
        memcpy(address.ip, &in.sin_addr, sizeof(in.sin_addr));
    } else if (from->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, from, sizeof(in6));
        address.family = 6;
        address.port = ntohs(in6.sin6_port);
        memcpy(address.ip, &in6.sin6_addr, sizeof(in6.sin6_addr));
        address.scope = address_is_link_local(&address) ? in6.sin6_scope_id : 0;
    } else {
        return false;
    }
    address_unmap(&address);
    *ret = address;
    return true;
}
