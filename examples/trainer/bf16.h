/* bf16 is the upper half of a float, here rounded to nearest, ties to even. */
#ifndef TRAINER_BF16_H
#define TRAINER_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void bf16_compress(const float *from, uint16_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof(bits));
        const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
        to[i] = (uint16_t)(nan ? bits >> 16 | 0x40U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
    }
}

static inline void bf16_expand(const uint16_t *from, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof(bits));
    }
}

#endif
