/*
 * The one table of settings. Name, default, range and text of every HOOP_* variable are defined
 * here once; the parser, hoop_setting_next(), `hoopinfo --settings` and the table of
 * docs/settings.md derive from it.
 *
 * The environment is read once, at the first call of hoop_settings(). A value that does not parse
 * or is out of range is reported (HOOP_LOG_WARN, with variable, value and what was expected) and
 * the default is used. An unknown HOOP_* variable is reported with the nearest known name.
 * HOOP_TEST_* belongs to the tests and is not reported. An empty STRING counts as unset. The value
 * of a SECRET, or of an unknown variable, is never written anywhere.
 */
#ifndef HOOP_BASE_SETTINGS_H
#define HOOP_BASE_SETTINGS_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

/* The algorithms and their names, which are the same everywhere. */
#define HOOP_ALGOS(ALGO)                                                                           \
    ALGO(HOOP_ALGO_ONESHOT, "oneshot")                                                             \
    ALGO(HOOP_ALGO_DIRECT, "direct")                                                               \
    ALGO(HOOP_ALGO_SLAB, "slab")                                                                   \
    ALGO(HOOP_ALGO_CMA, "cma")                                                                     \
    ALGO(HOOP_ALGO_RING, "ring")                                                                   \
    ALGO(HOOP_ALGO_BRUCK, "bruck")                                                                 \
    ALGO(HOOP_ALGO_PAIRWISE, "pairwise")                                                           \
    ALGO(HOOP_ALGO_CHAIN, "chain")                                                                 \
    ALGO(HOOP_ALGO_BINOMIAL, "binomial")                                                           \
    ALGO(HOOP_ALGO_TORUS, "torus")                                                                 \
    ALGO(HOOP_ALGO_HIERARCHICAL, "hierarchical")

#define HOOP_ALGO_VALUE(value, name) value,
enum hoop_algo { HOOP_ALGO_AUTO, HOOP_ALGOS(HOOP_ALGO_VALUE) HOOP_ALGO_COUNT };
#define HOOP_ALGO_WORD(value, name) " " name
#define HOOP_ALGO_WORDS "auto" HOOP_ALGOS(HOOP_ALGO_WORD)
enum hoop_order { HOOP_ORDER_ANY, HOOP_ORDER_RANK };
enum hoop_transport_choice { HOOP_TRANSPORT_AUTO, HOOP_TRANSPORT_TCP, HOOP_TRANSPORT_RDMA };
/* Which calls on CUDA streams do not wait: only launched ones (device/launch.h), none, or all. */
enum hoop_ahead_choice { HOOP_AHEAD_AUTO, HOOP_AHEAD_NEVER, HOOP_AHEAD_ALL };
enum hoop_check { HOOP_CHECK_SUM, HOOP_CHECK_CRC32C, HOOP_CHECK_OFF, HOOP_CHECK_AEAD };

/*
 * NUMBER(field, variable, default, least, most, text)           uint64_t; suffixes K M G for _bytes
 * CHOICE(field, variable, default index, "a b c", text)         int: the index
 * STRING(field, variable, text)                                 const char *, NULL when unset
 * SECRET(field, variable, text)                                 the same, shown as "(set)"
 *
 * HOOP_SETTINGS_AGREED: the lines that must have the same value on all ranks. They are what struct
 * hoop_agreement consists of.
 */
#define HOOP_SETTINGS_AGREED(NUMBER, CHOICE)                                                       \
    CHOICE(algo, "HOOP_ALGO", HOOP_ALGO_AUTO, HOOP_ALGO_WORDS,                                     \
           "algorithm of the collectives that have it; the same on all ranks")                     \
    CHOICE(order, "HOOP_ORDER", HOOP_ORDER_ANY, "any rank",                                        \
           "rank: only algorithms that fold in rank order, which all give the same bits; the "     \
           "same on all ranks")                                                                    \
    NUMBER(lanes, "HOOP_LANES", 2, 1, 16,                                                          \
           "lanes of ring, torus, pairwise and chain; the same on all ranks")                      \
    NUMBER(chunk_bytes, "HOOP_CHUNK_BYTES", 131072, 4096, 67108864,                                \
           "largest chunk over links; the same on all ranks")                                      \
    NUMBER(oneshot_bytes, "HOOP_ONESHOT_BYTES", 262144, 0, 262144,                                 \
           "on one machine, the most bytes of a rank for which oneshot may be chosen, where the "  \
           "cost model finds it cheaper; the same on all ranks")                                   \
    NUMBER(bruck_bytes, "HOOP_BRUCK_BYTES", 65536, 0, 1048576,                                     \
           "over links, the largest vector for which bruck and binomial may be chosen; the same "  \
           "on all ranks")                                                                         \
    CHOICE(bruck_radix, "HOOP_BRUCK_RADIX", 0, "auto 2 3 4 5 6 7 8",                               \
           "over links, the factor by which each round of bruck multiplies the vectors that a "    \
           "rank has, with one message fewer at once; auto: as the cost model finds cheapest; "    \
           "the same on all ranks")                                                                \
    CHOICE(transport, "HOOP_TRANSPORT", HOOP_TRANSPORT_AUTO, "auto tcp rdma",                      \
           "tcp, rdma: all data go that way, also between ranks of one machine; the same on all "  \
           "ranks")                                                                                \
    CHOICE(check, "HOOP_CHECK", HOOP_CHECK_SUM, "sum crc32c off aead",                             \
           "how the receiver checks what came over a network: sum and crc32c find accidents; "     \
           "aead: data and control messages between machines are encrypted (AES-256-GCM), and "    \
           "forgeries are found, over TCP only; the same on all ranks")

#define HOOP_SETTINGS(NUMBER, CHOICE, STRING, SECRET)                                              \
    CHOICE(debug, "HOOP_DEBUG", HOOP_LOG_WARN, "none error warn info trace", "what is logged")     \
    STRING(debug_subsys, "HOOP_DEBUG_SUBSYS",                                                      \
           "comma list of the subsystems that log below warn: init comm net mem plan env; "        \
           "unset: all")                                                                           \
    STRING(debug_file, "HOOP_DEBUG_FILE", "log file; %h is the host name, %p the process id")      \
    HOOP_SETTINGS_AGREED(NUMBER, CHOICE)                                                           \
    NUMBER(init_timeout_ms, "HOOP_INIT_TIMEOUT_MS", 60000, 1, 86400000,                            \
           "all ranks must have joined by then")                                                   \
    NUMBER(op_timeout_ms, "HOOP_OP_TIMEOUT_MS", 600000, 0, 86400000,                               \
           "an operation fails after this; 0: never")                                              \
    NUMBER(dead_after_ms, "HOOP_DEAD_AFTER_MS", 5000, 100, 86400000,                               \
           "a process that gives no sign of life for this long counts as dead")                    \
    NUMBER(spin_us, "HOOP_SPIN_US", 50, 0, 1000000,                                                \
           "how long a wait spins before it yields, where the ranks fit the CPUs")                 \
    NUMBER(sleep_after_us, "HOOP_SLEEP_AFTER_US", 1000, 0, 1000000000,                             \
           "how long a wait spins and yields before it sleeps in the kernel")                      \
    STRING(init, "HOOP_INIT",                                                                      \
           "where hoop_comm_init_env() meets: env://, tcp://host:port or file:///path; unset: "    \
           "env://")                                                                               \
    SECRET(secret, "HOOP_SECRET",                                                                  \
           "the job's secret, 64 hexadecimal digits; hooprun sets it on one machine")              \
    STRING(secret_file, "HOOP_SECRET_FILE",                                                        \
           "a file that holds the job's secret and that only its owner can read (mode 0600)")      \
    CHOICE(insecure, "HOOP_INSECURE", 0, "0 1",                                                    \
           "1: ranks of several machines join without a secret: whoever reaches a port and "       \
           "guesses the job's name is let in")                                                     \
    CHOICE(nat, "HOOP_NAT", 0, "0 1",                                                              \
           "1: connections that were dialled at another address are accepted, for machines "       \
           "between which addresses are translated")                                               \
    STRING(socket_ifname, "HOOP_SOCKET_IFNAME",                                                    \
           "network interfaces that may be used: comma list of prefixes; ^ before the list: all "  \
           "but these; = : whole names")                                                           \
    CHOICE(socket_family, "HOOP_SOCKET_FAMILY", 0, "any AF_INET AF_INET6",                         \
           "the kind of addresses that may be used")                                               \
    STRING(port_range, "HOOP_PORT_RANGE",                                                          \
           "first-last, or one port: hoop listens at no others, except that of a tcp:// url; "     \
           "unset: MASTER_PORT for the root, else any free port")                                  \
    NUMBER(socket_buffer_bytes, "HOOP_SOCKET_BUFFER_BYTES", 0, 0, 268435456,                       \
           "send and receive buffer of a data connection; 0: as the kernel sees fit")              \
    STRING(ib_hca, "HOOP_IB_HCA",                                                                  \
           "RDMA devices that may be used: comma list of prefixes, each with or without :port; "   \
           "^ before the list: all but these; = : whole names")                                    \
    STRING(ib_gid_index, "HOOP_IB_GID_INDEX",                                                      \
           "the GID of the RDMA port, by its index; unset or -1: RoCE v2 with IPv4, if there is "  \
           "one")                                                                                  \
    NUMBER(ib_tc, "HOOP_IB_TC", 0, 0, 255, "traffic class of packets over RDMA")                   \
    NUMBER(ib_sl, "HOOP_IB_SL", 0, 0, 15,                                                          \
           "service level of packets over InfiniBand; on RoCE their priority in a VLAN")           \
    NUMBER(ib_pkey, "HOOP_IB_PKEY", 0, 0, 65535,                                                   \
           "the InfiniBand partition, by its index among those of the port")                       \
    NUMBER(ib_timeout, "HOOP_IB_TIMEOUT", 17, 1, 31,                                               \
           "an RDMA packet that is not acknowledged is sent again after 4.096 us times 2 to the "  \
           "power of this")                                                                        \
    NUMBER(ib_retry_cnt, "HOOP_IB_RETRY_CNT", 6, 0, 7,                                             \
           "how often that is done before the peer counts as out of reach; for some devices 7 is " \
           "for ever")                                                                             \
    STRING(profile, "HOOP_PROFILE",                                                                \
           "a file of hoopinfo --calibrate with the constants of memory in the cost model; the "   \
           "same numbers on all ranks; unset: the built-in ones")                                  \
    CHOICE(cma, "HOOP_CMA", 1, "0 1",                                                              \
           "0 on any rank: plain memory is never read straight from another process, but copied "  \
           "through shared memory")                                                                \
    CHOICE(learn, "HOOP_LEARN", 1, "0 1",                                                          \
           "0 on rank 0, or on a sender: whether plain memory is read or copied follows from the " \
           "cost model and is not learned")                                                        \
    CHOICE(nontemporal, "HOOP_NONTEMPORAL", 0, "auto 0 1",                                         \
           "non-temporal stores, past the caches, for copies to shared memory of 8 KiB and more "  \
           "(in collectives with a root 512 bytes, or 64 KiB on Intel CPUs since Ice Lake): as "   \
           "measured, never, always")                                                              \
    STRING(host_id, "HOOP_HOSTID",                                                                 \
           "ranks with different values count as on different machines; unset: where they are")    \
    STRING(cuda, "HOOP_CUDA",                                                                      \
           "library of the CUDA driver; off: GPUs are not used; unset: libcuda.so.1")              \
    CHOICE(cuda_ahead, "HOOP_CUDA_AHEAD", HOOP_AHEAD_AUTO, "auto 0 1",                             \
           "which calls on CUDA streams return before their result is there: auto: those that "    \
           "are sure to go through the host, and sums on a device that all ranks share; 0: none; " \
           "1: all (docs/gpu.md says what a program must not do then)")                            \
    CHOICE(cuda_peers, "HOOP_CUDA_PEERS", 1, "0 1",                                                \
           "0 on any rank: GPUs do not read and write each other's memory, but meet in host "      \
           "memory")                                                                               \
    CHOICE(cuda_ipc, "HOOP_CUDA_IPC", 1, "0 1",                                                    \
           "0 on any rank: processes do not map each other's memory of cudaMalloc(), which goes "  \
           "through the host then")                                                                \
    NUMBER(cuda_piece_bytes, "HOOP_CUDA_PIECE_BYTES", 4194304, 0, 1073741824,                      \
           "device memory that goes over links through the host is copied in pieces of this "      \
           "size, while the operation runs; 0: all of it before and after")                        \
    NUMBER(cuda_room_bytes, "HOOP_CUDA_ROOM_BYTES", 1073741824, 0, 1099511627776,                  \
           "the most memory of the process that calls launched on CUDA streams may pin; a call "   \
           "that finds no room waits for its result; 0: all do")                                   \
    NUMBER(local_size, "HOOP_LOCAL_SIZE", 0, 0, 4096,                                              \
           "ranks on this machine, also those of other comms; 0: as the launcher says; set by "    \
           "hooprun")                                                                              \
    NUMBER(restart_count, "HOOP_RESTART_COUNT", 0, 0, 1000000,                                     \
           "how often the job was restarted; set by hooprun")

struct hoop_settings {
#define HOOP_SETTING_NUMBER(field, variable, preset, least, most, text) uint64_t field;
#define HOOP_SETTING_CHOICE(field, variable, preset, choices, text) int field;
#define HOOP_SETTING_STRING(field, variable, text) const char *field;
    HOOP_SETTINGS(HOOP_SETTING_NUMBER, HOOP_SETTING_CHOICE, HOOP_SETTING_STRING,
                  HOOP_SETTING_STRING)
#undef HOOP_SETTING_NUMBER
#undef HOOP_SETTING_CHOICE
#undef HOOP_SETTING_STRING
    uint64_t from_environment; /* bit i: line i has a valid value from there */
    char refused[128];         /* what is wrong with a value that no default may stand for, or "" */
};

/*
 * What must be the same on all ranks of a comm. Every rank sends its own to the join, and a
 * difference fails the join on all ranks. Both the struct and its comparison derive from the table.
 */
#define HOOP_UNUSABLE UINT64_MAX /* what a rank with such a value sends */
struct hoop_agreement {
#define HOOP_AGREED(field, ...) uint64_t field;
    HOOP_SETTINGS_AGREED(HOOP_AGREED, HOOP_AGREED)
#undef HOOP_AGREED
    uint64_t profile; /* digest of the HOOP_PROFILE file's contents (cost/profile.h); 0 if unset */
    /* this and the rest are not compared. Join: this rank has no RDMA; comm: some rank has none */
    uint64_t no_rdma;
    /* 0 in a join. Comm: if on some machine ranks outnumber the CPUs, how many share one there */
    uint64_t oversubscribed;
    /* 0 in a join. Comm: some rank cannot read another's memory */
    uint64_t no_cma;
};

/* The first setting in which two ranks differ, and both values as text. */
struct hoop_difference {
    const char *name;
    char a[24], b[24];
};

struct hoop_agreement hoop_settings_agreement(const struct hoop_settings *settings);
/* Returns false if they agree; *ret is then untouched. */
bool hoop_agreement_differs(const struct hoop_agreement *a, const struct hoop_agreement *b,
                            struct hoop_difference *ret);

/* The settings in force in this process; read-only, valid for ever. Thread-safe. */
const struct hoop_settings *hoop_settings(void);

/* Gets one report, about one variable; line is valid only during the call. */
typedef void (*hoop_settings_report_fn_t)(void *arg, const char *line);

/*
 * Fills *ret_settings from env, an array like environ (NULL at its end; the first of two entries
 * with one name counts), and reports what is wrong in it. Reads and changes nothing else. Strings
 * are copied; hoop_settings_finish() frees them. Thread-safe.
 */
void hoop_settings_parse(char *const *env, struct hoop_settings *ret_settings,
                         hoop_settings_report_fn_t report, void *arg);
void hoop_settings_finish(struct hoop_settings *settings);

/*
 * HOOP_INVALID_ARGUMENT if HOOP_CHECK has a value that does not exist: with the default data would
 * travel in clear that were meant to be encrypted. Other settings have safe defaults.
 */
hoop_result_t hoop_settings_accepted(const struct hoop_settings *settings);

/*
 * Reports what was wrong in this process's environment. Only the first caller, hoop_log_settings(),
 * gets the reports. Thread-safe.
 */
void hoop_settings_take_notes(hoop_settings_report_fn_t report, void *arg);

/* The name of an algorithm ("ring"), and the reverse, in capitals too: HOOP_ALGO_COUNT if none. */
const char *hoop_algo_name(enum hoop_algo algo);
enum hoop_algo hoop_algo_parse(const char *name);

/* Implements hoop_setting_next(), which walks over the table. Neither argument may be NULL. */
hoop_result_t hoop_settings_next(size_t *cursor, hoop_setting_t *ret_setting);

#endif
