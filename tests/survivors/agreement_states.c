/* States of the world of agreement_world.h: when two are the same, when one is over, and when one
 * is wrong. */
#include "survivors/agreement_world.h"
#include <string.h>

/* ---- States ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
    hash ^= hash >> 33;
    hash *= 0xff51afd7ed558ccdu;
    return hash ^ hash >> 29;
}

/*
 * The numbers of comms only serve to tell them apart, so comms get names in the order in which the
 * hash meets them. A comm counts only if a living rank is in it, joins it, remembers it, or can
 * still hear of it. Of a rank that is dead or has failed only that fact counts.
 */
static struct {
    uint8_t of[WORLD_COMMS]; /* 0: it has no name yet */
    uint8_t comms[WORLD_COMMS];
    uint8_t count;
} names;

/* The name of a comm, by its number; the ranks' own numbers have higher bits, too. */
static uint64_t name(uint32_t number)
{
    const uint8_t comm = (uint8_t)(number % WORLD_COMMS);
    if (number != 0 && names.of[comm] == 0) {
        names.comms[names.count] = comm;
        names.of[comm] = ++names.count;
    }
    return number == 0 ? 0 : names.of[comm];
}

static uint64_t hash_survivors(uint64_t hash, const struct hoop_survivors *all)
{
    hash = mix(hash, all->state * 4u + (all->broken ? 2u : 0u) + (all->joining != NULL ? 1u : 0u));
    hash = mix(hash, all->out.bits[0]);
    for (uint32_t i = 0; i < world.n; i++) {
        const struct hoop_survivor *other = &all->others[i];
        const unsigned bits = (other->greeted ? 1u : 0u) | (other->said ? 2u : 0u) |
                              (other->done ? 4u : 0u) | (other->dialled != NULL ? 8u : 0u) |
                              (other->caller != NULL ? 16u : 0u) | (other->missed ? 32u : 0u) |
                              other->misses << 6;
        hash = mix(hash, bits);
    }
    return hash;
}

static uint64_t hash_rank(uint64_t hash, const struct world_rank *rank)
{
    const struct world_furniture *has = world_furniture_of(rank);
    unsigned lost = 0;
    if (!world_lives(rank)) {
        return mix(hash, rank->dead ? 1 : 2);
    }
    for (uint32_t at = 0; at < has->member.roster.n; at++) {
        lost |= has->others[at].lost ? 1u << at : 0;
    }
    const unsigned bits = (rank->stopped ? 2u : 0u) | (rank->blamed ? 4u : 0u) |
                          (rank->dropped ? 8u : 0u) | (rank->cancelled ? 64u : 0u) |
                          (rank->timer.runs ? 128u : 0u);
    hash = mix(hash, bits | (unsigned)rank->phase << 8 | lost << 12 | rank->again << 24);
    hash = mix(hash, name(rank->comm) | name(rank->joins) << 8 | name(rank->number) << 16 |
                         (uint64_t)rank->out << 24);
    return rank->survivors != NULL ? hash_survivors(hash, rank->survivors) : hash;
}

/* The hash of a call, whatever place in the table it has. */
static uint64_t hash_call(const struct world_call *call)
{
    uint64_t hash = mix(7, call->client + 8u * call->server + (call->accepted ? 64u : 0u));
    for (uint32_t side = 0; side < 2; side++) {
        const struct hoop_connection *end = &call->ends[side];
        if (!end->open) { /* not open yet, and then it may be over before it begins; or not any more
                           */
            hash = mix(hash, end->eof && !call->accepted ? 1 : 0);
            continue;
        }
        const struct world_rank *rank = &world.ranks[side == 0 ? call->client : call->server];
        const uint32_t other = side == 0 ? call->server : call->client;
        const bool known =
            rank->survivors != NULL && (side == 0 ? rank->survivors->others[other].dialled
                                                  : rank->survivors->others[other].caller) == end;
        hash = mix(hash, (end->open ? 1u : 0u) | (end->established ? 2u : 0u) |
                             (end->eof ? 4u : 0u) | (known ? 8u : 0u) | end->count * 16u);
        for (uint8_t i = 0; i < end->count; i++) {
            const struct world_letter *l = &end->letters[i];
            const bool decides = l->kind == LETTER_VIEW && l->phase == HOOP_VIEW_AGREED;
            const uint64_t nonce = decides ? name(l->nonce) : l->kind == LETTER_VIEW ? 0 : l->nonce;
            hash = mix(hash, l->kind | l->phase << 4 | l->out << 8 | nonce << 16 |
                                 (unsigned)l->code << 24);
        }
    }
    return hash;
}

static uint64_t hash_comm(uint64_t hash, uint8_t comm)
{
    const uint8_t members = world.members[comm];
    hash = mix(hash, members | (world.readies[comm] & members) << 8 |
                         (world.given_up[comm] & members) << 16);
    for (uint32_t i = 0; i < world.n; i++) {
        const uint32_t how = world.how[comm][i];
        const bool named = how != 0 && how != HOOP_LEFT;
        hash = mix(hash, !named ? how : names.of[how % WORLD_COMMS] + 2u);
    }
    return hash;
}

uint64_t world_hash(void)
{
    uint64_t hash = mix(world.left.deaths + world.left.resets * 16u + (world.expired ? 256u : 0u),
                        world.left.stops * 16u + world.left.accusations);
    uint64_t calls = 0;
    memset(&names, 0, sizeof(names));
    for (uint32_t i = 0; i < world.n; i++) {
        hash = hash_rank(hash, &world.ranks[i]);
    }
    for (uint32_t i = 0; i < WORLD_CALLS; i++) {
        calls += world.calls[i].used ? hash_call(&world.calls[i]) : 0;
    }
    hash = hash_comm(hash, 0);
    for (uint8_t i = 0; i < names.count; i++) {
        hash = hash_comm(hash, names.comms[i]);
    }
    return mix(hash, calls);
}

/* ---- Judgement ---------------------------------------------------------------------------- */

const char *world_wrong(void)
{
    for (uint32_t i = 0; i < world.n; i++) {
        const struct world_rank *rank = &world.ranks[i];
        if (!rank->dead && rank->phase == WORLD_FAILED && !rank->blamed && !world.expired) {
            return "a rank failed that lives, was never stopped, and that nobody took for lost";
        }
    }
    return NULL;
}

/* No member was ever stopped, accused, or left out while it lived. */
static bool is_blameless(uint8_t comm)
{
    for (uint32_t i = 0; i < world.n; i++) {
        if (world_has(world.members[comm], i) &&
            (world.ranks[i].blamed || world.ranks[i].dropped)) {
            return false;
        }
    }
    return true;
}

/* Two comms may both live on only if each has taken a rank of the other for lost. */
bool world_is_over(const char **ret_wrong)
{
    uint8_t comms[WORLD_RANKS];
    size_t count = 0;
    bool blameless = false, differ = false;
    *ret_wrong = NULL;
    for (uint32_t i = 0; i < world.n; i++) {
        const struct world_rank *rank = &world.ranks[i];
        if (!world_lives(rank)) {
            continue;
        }
        if (rank->stopped || rank->phase != WORLD_IDLE || world_has_failed(rank->comm)) {
            return false;
        }
        comms[count++] = rank->comm;
        differ = differ || rank->comm != comms[0];
        blameless = blameless || is_blameless(rank->comm);
    }
    if (differ && blameless) {
        *ret_wrong = "two communicators live on, one of them without anybody who was blamed";
    }
    return true;
}
