/*
 * What every element of an input is, and what results must be: the rules that perf_data.h
 * describes, in the common subset of C11 and CUDA C++. Both the host's functions (perf_data.c) and
 * the kernels (perf_kernels.cu) consist of them.
 *
 * Functions are declared with RULE and work on blocks of at most RULE_BLOCK elements. The kernels
 * define both before they include this file; the defaults are the host's, with blocks that fit the
 * first-level cache.
 *
 * An element is represented by its bits in a uint64_t, with unused bits zero.
 */
#ifndef PERF_RULES_H
#define PERF_RULES_H

#include <stdbool.h>
#include <string.h>

#include "perf/perf_data.h"

#ifndef RULE
#define RULE static inline
#define RULE_BLOCK 512
#endif

/* ---- Inputs ---------------------------------------------------------------------------------- */

RULE uint64_t rule_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A rank's bits of an element, from the element's key, which is the same for all ranks. The key is
 * well mixed already, so a cheap step is enough. */
RULE uint64_t rule_rank_bits(uint64_t key, uint64_t rank_key)
{
    const uint64_t x = (key + rank_key) * 0x9e3779b97f4a7c15u;
    return (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
}

/* A rank's place in the cyclic order of ranks that begins where the element's key says. */
RULE int32_t rule_place(const struct perf_rules *rules, uint64_t key, int32_t rank)
{
    const int32_t start = (int32_t)(((key >> 32) * (uint64_t)rules->nranks) >> 32);
    return rank >= start ? rank - start : rank - start + rules->nranks;
}

/* The value of these bits in an integer type. */
RULE int64_t rule_wrap(const struct perf_rules *rules, uint64_t bits)
{
    const uint64_t moved = bits << (64 - rules->bits);
    return rules->is_signed ? (int64_t)moved >> (64 - rules->bits)
                            : (int64_t)(moved >> (64 - rules->bits));
}

RULE int64_t rule_factor(const struct perf_rules *rules, uint64_t key, uint64_t bits, int32_t rank)
{
    const int32_t place = rule_place(rules, key, rank);
    const int64_t magnitude = place == 0 ? 3 : place <= 4 ? 2 : 1;
    return (bits >> 63) ? -magnitude : magnitude;
}

/* 1 or -1 for ranks in the window, else 0. */
RULE int64_t rule_one(const struct perf_rules *rules, uint64_t key, uint64_t bits, int32_t rank)
{
    const int64_t one = (bits >> 63) ? -1 : 1;
    return rule_place(rules, key, rank) < rules->window ? one : 0;
}

/* A whole number of `width` bits, sign included. */
RULE int64_t rule_number(const struct perf_rules *rules, uint64_t bits)
{
    return (int64_t)(bits >> (64 - rules->width)) - ((int64_t)1 << (rules->width - 1));
}

#define RULE_VALUES(value)                                                                         \
    for (uint32_t i = 0; i < n; i++) {                                                             \
        const uint64_t bits = rule_rank_bits(keys[i], rank_key);                                   \
        values[i] = (value);                                                                       \
    }

/* The inputs of a rank for the elements with these keys. */
RULE void rule_values(const struct perf_rules *rules, int32_t rank, const uint64_t *keys,
                      uint32_t n, int64_t *values)
{
    const uint64_t rank_key = rule_mix((uint64_t)rank + 1);
    const uint64_t odd = rules->odd;
    const int32_t shift = rules->bits < 64 ? 32 : 0; /* the upper bits are mixed best */
    switch (rules->inputs) {
    case PERF_INPUTS_BITS:
        RULE_VALUES(rule_wrap(rules, bits >> shift | odd))
        break;
    case PERF_INPUTS_FACTORS:
        RULE_VALUES(rule_factor(rules, keys[i], bits, rank))
        break;
    case PERF_INPUTS_WINDOW:
        RULE_VALUES(rule_one(rules, keys[i], bits, rank))
        break;
    default:
        RULE_VALUES(rule_number(rules, bits))
        break;
    }
}
#undef RULE_VALUES

RULE void rule_keys(const struct perf_rules *rules, uint64_t first, uint32_t n, uint64_t *keys)
{
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = rule_mix(rules->base + first + i);
    }
}

/* ---- Elements -------------------------------------------------------------------------------- */

RULE uint64_t rule_bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

RULE uint64_t rule_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* rule_nearest() for types narrower than float. value must be zero or a normal double, and not
 * overflow. */
RULE uint64_t rule_narrow(const struct perf_rules *rules, double value)
{
    const uint64_t one = (uint64_t)1 << 52; /* the bit that a double does not store */
    const uint64_t bits = rule_bits_of_double(value);
    if (value == 0) {
        return 0;
    }
    const int32_t exponent = (int32_t)(bits >> 52 & 0x7ff) - 1023 + rules->bias;
    const uint64_t binade = exponent > 1 ? (uint64_t)(exponent - 1) << rules->mantissa : 0;
    /* subnormal numbers are as far apart as those of the lowest normal binade */
    const int32_t drop = 52 - rules->mantissa + (exponent < 1 ? 1 - exponent : 0);
    const int32_t shift = drop < 63 ? drop : 63;
    const uint64_t significand = (bits & (one - 1)) | one;
    const uint64_t odd = significand >> shift & 1;
    const uint64_t half = (uint64_t)1 << (shift - 1);
    const uint64_t steps = (significand + half - 1 + odd) >> shift;
    return (bits >> 63) << (rules->bits - 1) | (binade + steps);
}

/* The element of a floating-point type that is nearest to value, ties to even. */
RULE uint64_t rule_nearest(const struct perf_rules *rules, double value)
{
    return rules->bits == 64   ? rule_bits_of_double(value)
           : rules->bits == 32 ? rule_bits_of_float((float)value)
                               : rule_narrow(rules, value);
}

/* A whole number as an element; a floating-point type must hold it exactly. */
RULE uint64_t rule_element(const struct perf_rules *rules, int64_t value)
{
    return rules->mantissa > 0 ? rule_nearest(rules, (double)value)
                               : (uint64_t)value & ~(uint64_t)0 >> (64 - rules->bits);
}

/* The n elements of a rank's input from `first` on; n is at most RULE_BLOCK. */
RULE void rule_inputs(const struct perf_rules *rules, int32_t rank, uint64_t first, uint32_t n,
                      uint64_t *ret)
{
    uint64_t keys[RULE_BLOCK];
    int64_t values[RULE_BLOCK];
    rule_keys(rules, first, n, keys);
    rule_values(rules, rank, keys, n, values);
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = rule_element(rules, values[i]);
    }
}

/* ---- Expected results ------------------------------------------------------------------------ */

RULE int64_t rule_mulsum_factor(int32_t rank)
{
    return 1 + rank % 2;
}

/* a < b in the order of the type. Only uint64 needs all 64 bits without a sign. */
RULE bool rule_less(const struct perf_rules *rules, int64_t a, int64_t b)
{
    return rules->is_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

RULE int64_t rule_fold(const struct perf_rules *rules, int64_t total, int64_t value)
{
    switch (rules->op) {
    case HOOP_PROD:
        return (int64_t)((uint64_t)total * (uint64_t)value);
    case HOOP_MIN:
        return rule_less(rules, value, total) ? value : total;
    case HOOP_MAX:
        return rule_less(rules, total, value) ? value : total;
    default:
        return (int64_t)((uint64_t)total + (uint64_t)value);
    }
}

RULE uint64_t rule_result(const struct perf_rules *rules, int64_t total)
{
    if (rules->op != HOOP_AVG) {
        return rule_element(rules, total);
    }
    if (rules->mantissa > 0) {
        return rule_nearest(rules, (double)total / rules->nranks);
    }
    const int64_t sum = rule_wrap(rules, (uint64_t)total);
    return rule_element(rules, rules->is_signed
                                   ? sum / rules->nranks
                                   : (int64_t)((uint64_t)sum / (uint64_t)rules->nranks));
}

/* The n elements from `first` on of the reduction of all ranks' inputs; n is at most RULE_BLOCK. */
RULE void rule_results(const struct perf_rules *rules, uint64_t first, uint32_t n, uint64_t *ret)
{
    uint64_t keys[RULE_BLOCK];
    int64_t values[RULE_BLOCK];
    int64_t totals[RULE_BLOCK];
    int32_t rank = 0; /* do, not for: there is at least one rank */
    rule_keys(rules, first, n, keys);
    do {
        const int64_t factor = rules->op == PERF_MULSUM ? rule_mulsum_factor(rank) : 1;
        rule_values(rules, rank, keys, n, values);
        for (uint32_t i = 0; i < n; i++) {
            const int64_t operand = (int64_t)((uint64_t)values[i] * (uint64_t)factor);
            totals[i] = rank == 0 ? operand : rule_fold(rules, totals[i], operand);
        }
    } while (++rank < rules->nranks);
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = rule_result(rules, totals[i]);
    }
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Maps the bits of floats to a number line, on which neighbours differ by one, and -0 equals +0. */
RULE uint64_t rule_line(const struct perf_rules *rules, uint64_t element)
{
    const uint64_t middle = (uint64_t)1 << 63;
    const uint64_t sign = (uint64_t)1 << (rules->bits - 1);
    return (element & sign) ? middle - (element & ~sign) : middle + element;
}

RULE bool rule_is_wrong(const struct perf_rules *rules, uint64_t got, uint64_t want)
{
    if (got == want || rules->tolerance == 0) {
        return got != want;
    }
    const uint64_t at = rule_line(rules, got);
    const uint64_t goal = rule_line(rules, want);
    return (at > goal ? at - goal : goal - at) > rules->tolerance;
}

#endif
