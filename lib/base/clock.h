/* The monotonic clock, deadlines, and the CPU hint for spin loops. */
#ifndef HOOP_BASE_CLOCK_H
#define HOOP_BASE_CLOCK_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

#define HOOP_NS_PER_MS 1000000ull
#define HOOP_NS_PER_S 1000000000ull

/* A deadline is a point in time of this clock, in ns. HOOP_NEVER means none. */
#define HOOP_NEVER UINT64_MAX

static inline uint64_t hoop_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * HOOP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* The deadline timeout_ms from now. A timeout of 0 means no deadline. */
static inline uint64_t hoop_deadline_ns(uint64_t timeout_ms)
{
    return timeout_ms == 0 ? HOOP_NEVER : hoop_now_ns() + timeout_ms * HOOP_NS_PER_MS;
}

/* Milliseconds until the deadline, rounded up; 0 if it has passed. */
static inline uint64_t hoop_left_ms(uint64_t deadline_ns)
{
    const uint64_t now = hoop_now_ns();
    return now < deadline_ns ? (deadline_ns - now - 1) / HOOP_NS_PER_MS + 1 : 0;
}

/* Tells the core that it is in a spin loop. */
static inline void hoop_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
