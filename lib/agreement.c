/* Comparing what two ranks joined with; see agreement.h. */
#include "agreement.h"
#include "base/settings.h"
#include <stddef.h>
#include <stdio.h>

/* A value's name if it has one; else its number. */
static void agreement_show(const char *name, uint64_t value, char *ret_text, size_t bytes)
{
    if (name != NULL) {
        (void)snprintf(ret_text, bytes, "%s", name);
    } else {
        (void)snprintf(ret_text, bytes, "%llu", (unsigned long long)value);
    }
}

static const char *agreement_algo(uint64_t algo)
{
    return algo < HOOP_ALGO_COUNT ? hoop_algo_name((enum hoop_algo)algo) : NULL;
}

static const char *agreement_order(uint64_t order)
{
    static const char *const names[] = {[HOOP_ORDER_ANY] = "any", [HOOP_ORDER_RANK] = "rank"};
    return order <= HOOP_ORDER_RANK ? names[order] : NULL;
}

static const char *agreement_transport(uint64_t transport)
{
    static const char *const names[] = {
        [HOOP_TRANSPORT_AUTO] = "auto", [HOOP_TRANSPORT_TCP] = "tcp"};
    return transport <= HOOP_TRANSPORT_TCP ? names[transport] : NULL;
}

static const char *agreement_check(uint64_t check)
{
    static const char *const names[] = {
        [HOOP_CHECK_SUM] = "sum", [HOOP_CHECK_CRC32C] = "crc32c", [HOOP_CHECK_OFF] = "off"};
    return check <= HOOP_CHECK_OFF ? names[check] : NULL;
}

bool hoop_agreement_differs(const struct hoop_frame_join *a, const struct hoop_frame_join *b,
                            struct hoop_difference *ret)
{
    const struct {
        const char *name;
        uint64_t a, b;
        const char *(*show)(uint64_t value);
    } settings[] = {
        {"HOOP_ALGO", a->algo, b->algo, agreement_algo},
        {"HOOP_ORDER", a->order, b->order, agreement_order},
        {"HOOP_LANES", a->lanes, b->lanes, NULL},
        {"HOOP_CHUNK_BYTES", a->chunk_bytes, b->chunk_bytes, NULL},
        {"HOOP_BRUCK_BYTES", a->bruck_bytes, b->bruck_bytes, NULL},
        {"HOOP_TRANSPORT", a->transport, b->transport, agreement_transport},
        {"HOOP_CHECK", a->check, b->check, agreement_check},
        {"HOOP_ONESHOT_BYTES", a->oneshot_bytes, b->oneshot_bytes, NULL},
        {"the size of the shared memory", a->segment_bytes, b->segment_bytes, NULL},
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (settings[i].a != settings[i].b) {
            const bool named = settings[i].show != NULL;
            ret->name = settings[i].name;
            agreement_show(named ? settings[i].show(settings[i].a) : NULL, settings[i].a, ret->a,
                           sizeof(ret->a));
            agreement_show(named ? settings[i].show(settings[i].b) : NULL, settings[i].b, ret->b,
                           sizeof(ret->b));
            return true;
        }
    }
    return false;
}
