/*
 * hoop: collective operations for processes that train models together.
 *
 * This header is the whole public API and its manual. It needs no CUDA header and compiles as C11
 * and as C++. The API is NCCL's in snake case, with the same argument order and meaning, so that
 * porting is mechanical: ncclAllReduce is hoop_all_reduce. docs/nccl.md compares the two function
 * by function. Results 0-7, datatypes and operations have NCCL's numeric values. What NCCL does not
 * have is marked "Not in NCCL".
 *
 * The loop that every program has (examples/hello_allreduce.c is a whole program):
 *
 *     hoop_comm_t comm;
 *     hoop_comm_init_env(&comm, NULL);                    // RANK, WORLD_SIZE, ... from hooprun
 *     float *grad;
 *     hoop_mem_alloc((void **)&grad, bytes, HOOP_MEM_HOST);   // memory that peers may map
 *     for (each step) {
 *         ...
 *         hoop_all_reduce(grad, grad, count, HOOP_FLOAT32, HOOP_SUM, comm, NULL);
 *     }
 *     hoop_mem_free(grad);
 *     hoop_comm_destroy(comm);
 *
 * Words. A *comm* is a communicator: n *ranks* that agreed on each other. A rank is a process, or a
 * thread where one process holds several. Counts are elements, never bytes, unless the name says
 * bytes.
 *
 * Buffers and streams.
 *
 *     buffers  stream         meaning
 *     host     NULL           returns when the result is there (in a group: at group end)
 *     host     host stream    queued; operations of one stream run in order
 *     host     CUDA stream    ordered on it
 *     device   NULL or CUDA   ordered on it (NULL: the legacy default stream)
 *     device   host stream    HOOP_INVALID_USAGE
 *
 * Ordered on a stream: the operation runs after everything that is on the stream already, and
 * before everything that is put there later. With NULL, or with host buffers, the call returns when
 * the result is there. Otherwise it may return as soon as it is queued, as NCCL's calls do: work on
 * that stream may use the buffers at once, everything else has to wait for the stream. docs/gpu.md
 * says when a call returns early. With HOOP_CUDA_AHEAD=1 every call does, also with NULL, and a
 * program must then refrain from some CUDA calls (docs/gpu.md lists them). A group is queued at its
 * end, as one piece: none of its streams goes on before all of it is complete. Calls with host
 * buffers on the same comm run after what is queued. A failure after the call has returned is
 * reported by hoop_comm_get_async_error() and by every later call; the streams go on nevertheless,
 * and the contents of the buffers are undefined.
 *
 * Even with HOOP_CUDA_AHEAD=1 these calls return only when their result is there: the first of a
 * comm on a stream; the first that needs more staging memory than any before; where a process has
 * several ranks of the comm, all but groups with calls of all of them; groups that also contain
 * calls with host buffers; all calls with a CUDA driver before 12.0, and on a stream that shares a
 * hardware queue with hoop's own (CUDA_DEVICE_MAX_CONNECTIONS=1).
 *
 * Calls on a stream that captures a CUDA graph become part of the graph, and run each time that it
 * does, on all ranks in the same order. All calls of a group must be on that stream.
 * HOOP_UNSUPPORTED if the process has several ranks of the comm, if the driver is older than 12.0,
 * and for calls on NULL while a stream captures. See docs/gpu.md.
 *
 * Not supported. Functions and combinations that this version does not implement return
 * HOOP_UNSUPPORTED, leave a sentence in hoop_get_last_error() and change nothing. Each such
 * function says so below.
 *
 * Errors. Every function that can fail returns hoop_result_t. Outputs are written only on success.
 * HOOP_INVALID_ARGUMENT, HOOP_INVALID_USAGE and HOOP_UNSUPPORTED are the caller's mistakes: nothing
 * happened, and the comm is as it was. A NULL where an object or an output is needed is
 * HOOP_INVALID_ARGUMENT. Any other failure of an operation is final for its comm: the first error
 * wins, it reaches every rank, and all pending and future work on the comm returns it. What still
 * works then are functions that only look at the comm, such as hoop_get_last_error(), and
 * hoop_comm_shrink() (with HOOP_SHRINK_ABORT), hoop_comm_abort() and hoop_comm_destroy(). After a
 * failed operation no other rank writes to its buffers any more. Where another rank cannot be kept
 * out (a stopped thread of this process; no memory for replacement pages), the call waits for it
 * for as long as an operation may take, and then names it. Nothing hangs: every wait has a
 * deadline.
 *
 * Threads. Functions may be called from any thread. Calls on one comm from several threads are
 * served one at a time, first come, first served; the caller must make sure that their order is the
 * same on all ranks. A call that waits for its turn sleeps, and returns HOOP_TIMEOUT if the call
 * before it is still inside one minute after its own deadline. hoop_comm_abort() and
 * hoop_comm_revoke() may be called by any thread at any time before hoop_comm_destroy(), whatever
 * other threads do with the comm. While hoop_comm_destroy() runs no other call on the comm may run
 * or begin. 16 KiB of stack are enough.
 *
 * Cancellation. No function is a cancellation point: a thread that is cancelled inside leaves when
 * the call returns. To get it out sooner, abort the comm first. Asynchronous cancellation
 * (PTHREAD_CANCEL_ASYNCHRONOUS) must be off.
 *
 * fork. A child that was forked while hoop was in use cannot use it; it may exec or exit. It may
 * let go of what it inherited: hoop_comm_destroy(), hoop_comm_abort(), hoop_comm_deregister(),
 * hoop_red_op_destroy(), hoop_stream_destroy(), hoop_mem_free() and hoop_linger() do nothing there
 * and return HOOP_OK, so destructors may run. Everything else that would do something returns
 * HOOP_INVALID_USAGE. A child that was forked before the first use of hoop is a process like any
 * other.
 *
 * exit. A process may call exit() while other threads of it are inside hoop or work is queued;
 * exit() does not wait for either. Handlers of atexit() and destructors of static objects may end
 * comms. The library cannot be unloaded: dlclose() leaves it, and its threads, where they are.
 */
#ifndef HOOP_H
#define HOOP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOOP_MAJOR 0
#define HOOP_MINOR 1
#define HOOP_PATCH 0
#define HOOP_VERSION(x, y, z) ((x)*10000 + (y)*100 + (z))
#define HOOP_VERSION_CODE HOOP_VERSION(HOOP_MAJOR, HOOP_MINOR, HOOP_PATCH)

#if defined(__GNUC__)
#define HOOP_API __attribute__((visibility("default")))
#else
#define HOOP_API
#endif

/* ---- Results ------------------------------------------------------------------------------ */

/*
 * X(name, value, text). 0-7 are NCCL's; hoop's own start at 64.
 */
#define HOOP_RESULTS(X)                                                                            \
    X(HOOP_OK, 0, "no error")                                                                      \
    X(HOOP_CUDA_ERROR, 1, "a CUDA call failed")                                                    \
    X(HOOP_SYSTEM_ERROR, 2, "a system call failed")                                                \
    X(HOOP_INTERNAL_ERROR, 3, "internal error: a bug in hoop")                                     \
    X(HOOP_INVALID_ARGUMENT, 4, "invalid argument")                                                \
    X(HOOP_INVALID_USAGE, 5, "invalid usage")                                                      \
    X(HOOP_REMOTE_ERROR, 6, "another rank failed or left")                                         \
    X(HOOP_IN_PROGRESS, 7, "in progress")                                                          \
    X(HOOP_TIMEOUT, 64, "a deadline passed")                                                       \
    X(HOOP_UNSUPPORTED, 65, "not supported by this version or build")                              \
    X(HOOP_MISMATCH, 66, "ranks called different operations")                                      \
    X(HOOP_ABORTED, 67, "the communicator was aborted")                                            \
    X(HOOP_NOT_AUTHENTICATED, 68, "a peer could not prove that it belongs to the job")             \
    X(HOOP_OUT_OF_MEMORY, 69, "out of memory")

typedef enum {
#define HOOP_RESULT_ENUM(name, value, text) name = (value),
    HOOP_RESULTS(HOOP_RESULT_ENUM)
#undef HOOP_RESULT_ENUM
} hoop_result_t;

/* ---- Types -------------------------------------------------------------------------------- */

typedef struct hoop_comm *hoop_comm_t;
#define HOOP_COMM_NULL ((hoop_comm_t)0)

/*
 * The same C type as cudaStream_t, declared here so that no CUDA header is needed. NULL and CUDA's
 * own handles are passed through; host streams come from hoop_stream_create().
 */
struct CUstream_st;
typedef struct CUstream_st *hoop_stream_t;

/*
 * What the ranks of a new comm need to find and to trust each other: an address and a secret. Plain
 * bytes, to be sent to the ranks over any private channel. Whoever holds it can join the job: do
 * not print it and do not put it on a command line.
 */
#define HOOP_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[HOOP_UNIQUE_ID_BYTES];
} hoop_unique_id_t;

/* X(name, value, bytes per element, nccl-tests' name) */
#define HOOP_DATATYPES(X)                                                                          \
    X(HOOP_INT8, 0, 1, "int8")                                                                     \
    X(HOOP_UINT8, 1, 1, "uint8")                                                                   \
    X(HOOP_INT32, 2, 4, "int32")                                                                   \
    X(HOOP_UINT32, 3, 4, "uint32")                                                                 \
    X(HOOP_INT64, 4, 8, "int64")                                                                   \
    X(HOOP_UINT64, 5, 8, "uint64")                                                                 \
    X(HOOP_FLOAT16, 6, 2, "half")                                                                  \
    X(HOOP_FLOAT32, 7, 4, "float")                                                                 \
    X(HOOP_FLOAT64, 8, 8, "double")                                                                \
    X(HOOP_BFLOAT16, 9, 2, "bfloat16")                                                             \
    X(HOOP_FLOAT8E4M3, 10, 1, "f8e4m3")                                                            \
    X(HOOP_FLOAT8E5M2, 11, 1, "f8e5m2")

typedef enum {
#define HOOP_DATATYPE_ENUM(name, value, bytes, text) name = (value),
    HOOP_DATATYPES(HOOP_DATATYPE_ENUM)
#undef HOOP_DATATYPE_ENUM
        HOOP_CHAR = HOOP_INT8,
    HOOP_INT = HOOP_INT32,
    HOOP_HALF = HOOP_FLOAT16,
    HOOP_FLOAT = HOOP_FLOAT32,
    HOOP_DOUBLE = HOOP_FLOAT64
} hoop_datatype_t;
#define HOOP_NUM_DATATYPES 12

/*
 * Numbers. fp16, bf16 and fp8 are added, multiplied and averaged in fp32 and rounded once (to
 * nearest, ties to even) per reduction that a rank performs. Integers wrap. avg is the sum in fp32
 * (fp64 for double) times 1/n, then rounded; for integers the wrapped sum divided by n, truncated.
 * min and max are IEEE 754-2019 minimum and maximum: a NaN operand gives NaN, and -0 < +0. A NaN
 * result is one canonical quiet NaN. All ranks always end with the same bits. The order of
 * additions of every algorithm, and the overflow of fp8, are in docs/numbers.md.
 */
typedef enum {
    HOOP_SUM = 0,
    HOOP_PROD = 1,
    HOOP_MAX = 2,
    HOOP_MIN = 3,
    HOOP_AVG = 4,
    HOOP_RED_OP_LIMIT = 0x7fffffff /* values from 5 up are made by hoop_red_op_create_* */
} hoop_red_op_t;
#define HOOP_NUM_OPS 5

typedef enum { HOOP_SCALAR_DEVICE = 0, HOOP_SCALAR_HOST_IMMEDIATE = 1 } hoop_scalar_residence_t;

typedef enum {
    HOOP_MEM_HOST = 0,  /* pages that ranks on this machine can map */
    HOOP_MEM_DEVICE = 1 /* memory of the current CUDA device that ranks can map */
} hoop_mem_kind_t;

typedef enum {
    HOOP_LOG_NONE = 0,
    HOOP_LOG_ERROR = 1,
    HOOP_LOG_WARN = 2,
    HOOP_LOG_INFO = 3,
    HOOP_LOG_TRACE = 4
} hoop_log_level_t;

/* ---- Version, errors, log ----------------------------------------------------------------- */

/* *version: HOOP_VERSION_CODE of the library in use. That of the header is the macro. */
HOOP_API hoop_result_t hoop_get_version(int *version);

/* The fixed text of a result; "unknown result" for any other number. Static, never NULL. */
HOOP_API const char *hoop_get_error_string(hoop_result_t result);

/* The result's name, such as "HOOP_TIMEOUT". Static, never NULL. Not in NCCL. */
HOOP_API const char *hoop_get_error_name(hoop_result_t result);

/*
 * The sentence about a failure, naming rank, host, phase and bytes where they are known. For a comm
 * that has failed: about the failure that ended it. For NULL, or a comm that has not failed: about
 * the calling thread's last failing call. "" if there was none; never NULL. Owned by hoop; valid
 * until the calling thread's next call of hoop or the comm's destruction.
 */
HOOP_API const char *hoop_get_last_error(hoop_comm_t comm);

/*
 * *async_error: HOOP_OK; HOOP_IN_PROGRESS while a non-blocking call on the comm goes on (see
 * hoop_config_t); or the failure that ended the comm. Does not block: a failure that another thread
 * is recording at this moment may be reported by the next call only.
 */
HOOP_API hoop_result_t hoop_comm_get_async_error(hoop_comm_t comm, hoop_result_t *async_error);

/*
 * Sends log lines to fn from now on, one line without newline for each call, in the thread that
 * logs. fn must not call hoop; line is valid until fn returns. NULL: to stderr again. HOOP_DEBUG
 * sets what is logged. Not in NCCL.
 */
typedef void (*hoop_log_fn_t)(void *arg, hoop_log_level_t level, const char *subsystem,
                              const char *line);
HOOP_API hoop_result_t hoop_set_log_callback(hoop_log_fn_t fn, void *arg);

/* ---- Birth and death of a comm ------------------------------------------------------------ */

/*
 * Options of a comm. Begin with HOOP_CONFIG_INITIALIZER; a field that keeps its undefined value
 * takes the HOOP_* variable or the default (`hoopinfo --settings` lists both). The first three
 * fields let an older program pass a shorter struct, and a newer one a longer one, of which this
 * library reads the fields that it knows.
 *
 * blocking 0: a call that makes comms checks its arguments, writes the new handle and returns
 * HOOP_IN_PROGRESS, as does hoop_comm_finalize() on a comm that was made so. (Before that it finds
 * out where the ranks meet: it waits while a name is looked up or a file is awaited.) The new comm,
 * and the comm that it is made from, are pending as long as hoop_comm_get_async_error() says
 * HOOP_IN_PROGRESS: they may be revoked, aborted and destroyed, which ends the birth; every other
 * call that needs them is HOOP_INVALID_USAGE. While split or grow waits for other ranks of the
 * comm, only the failure of that comm ends it: abort or revoke it first. In a group all births are
 * waited for if one of them is.
 */
typedef struct {
    size_t size;           /* set by the initializer */
    uint32_t magic;        /* set by the initializer */
    uint32_t version;      /* set by the initializer */
    int blocking;          /* 1 (default). 0: births and finalize are not waited for */
    int init_timeout_ms;   /* all ranks must have arrived by then; default 60000 */
    int op_timeout_ms;     /* an operation fails after this; 0 = never; default 600000 */
    int dead_after_ms;     /* a stopped process counts as dead after this; default 5000 */
    const char *algo;      /* as HOOP_ALGO: "auto", "direct", "ring", ...; all ranks the same */
    const char *comm_name; /* appears in messages; copied; up to 127 bytes */
} hoop_config_t;

#define HOOP_CONFIG_MAGIC 0x686f6f70u /* "hoop" */
#define HOOP_CONFIG_UNDEF_INT (-2147483647 - 1)
#define HOOP_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(hoop_config_t), HOOP_CONFIG_MAGIC, HOOP_VERSION_CODE, HOOP_CONFIG_UNDEF_INT,        \
            HOOP_CONFIG_UNDEF_INT, HOOP_CONFIG_UNDEF_INT, HOOP_CONFIG_UNDEF_INT, NULL, NULL        \
    }

/*
 * Makes the token that the ranks of one new comm share, and a leader that this process serves until
 * the comm exists or the process ends. The token holds a secret: send it to the ranks over a
 * channel that nobody else reads. Unless the launcher says that all ranks are on this machine, a
 * TCP port is open at one interface (HOOP_SOCKET_IFNAME, HOOP_PORT_RANGE) until the comm exists.
 * Every comm needs a token of its own. Does not wait for other ranks.
 */
HOOP_API hoop_result_t hoop_get_unique_id(hoop_unique_id_t *id);

/*
 * Joins a new comm as rank (0 to nranks - 1) of nranks (1 to 4096). Collective: returns when all
 * ranks have joined. HOOP_TIMEOUT after init_timeout_ms; the error names the ranks that never
 * arrived. One process may hold several ranks, each joined by a thread of its own or all in a
 * group.
 */
HOOP_API hoop_result_t hoop_comm_init_rank(hoop_comm_t *comm, int nranks, hoop_unique_id_t id,
                                           int rank);

/* The same, with options. config is read before the call returns; NULL: all defaults. */
HOOP_API hoop_result_t hoop_comm_init_rank_config(hoop_comm_t *comm, int nranks,
                                                  hoop_unique_id_t id, int rank,
                                                  const hoop_config_t *config);

/*
 * Joins the job that the launcher describes: hooprun, torchrun (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), Open MPI's mpirun, Slurm's srun, or PMI; docs/launchers.md has the variables.
 * Without a launcher: a comm of one rank. Ranks of one user on one machine need nothing else: the
 * kernel vouches for the user. Ranks on several machines need a secret, which hooprun or the user
 * puts into HOOP_SECRET_FILE or HOOP_SECRET. HOOP_INIT may name another place to meet (see below).
 * May be called repeatedly: the k-th calls of all ranks meet in one comm. config may be NULL. Not
 * in NCCL.
 */
HOOP_API hoop_result_t hoop_comm_init_env(hoop_comm_t *comm, const hoop_config_t *config);

/*
 * Joins as rank of nranks at a place that all ranks name alike:
 *      tcp://host:port     where rank 0 will listen; the secret as above
 *      file:///path        a path that all ranks can reach, where they may make the directory
 *                          path.hoop: that holds the secret for its owner alone, and is removed
 *                          when all are in. The path may be used again and again
 *      env://              as hoop_comm_init_env(), but with these nranks and rank
 * The k-th calls of all ranks with one url meet in one comm. config may be NULL. Not in NCCL.
 */
HOOP_API hoop_result_t hoop_comm_init_url(hoop_comm_t *comm, const char *url, int nranks, int rank,
                                          const hoop_config_t *config);

/*
 * Makes one comm of ndev ranks (1 to 4096) inside this process: comms[i] is rank i's handle, to be
 * used by a thread each, or by one thread inside a group. comms is an array of ndev. devlist: the
 * rank's CUDA devices, as hoop_comm_cu_device() returns them; calls use that of each buffer. NULL:
 * 0 to ndev - 1, as far as there are so many; without CUDA anything else is HOOP_UNSUPPORTED. Other
 * than in NCCL several ranks may have one device.
 */
HOOP_API hoop_result_t hoop_comm_init_all(hoop_comm_t *comms, int ndev, const int *devlist);

/* hoop_comm_init_rank_config() with n_id tokens, at most nranks, the same on all ranks. They join
 * by the first: ranks of one machine come as one, so that several would be no faster. */
HOOP_API hoop_result_t hoop_comm_init_rank_scalable(hoop_comm_t *comm, int nranks, int rank,
                                                    int n_id, hoop_unique_id_t *ids,
                                                    const hoop_config_t *config);

/*
 * Says goodbye: waits for what is queued on the comm, and sends what this rank still owes the
 * others. After it no operation may be called; hoop_comm_destroy() remains to be called. Does not
 * wait for other ranks, except where queued work needs them. HOOP_MISMATCH: another rank's last
 * operations differ from the ones called here, and the comm has failed on all ranks; if a rank did
 * not call an operation at all, only ranks that wait for it notice that. A comm that failed before
 * returns that failure; one that was finalized before, HOOP_INVALID_USAGE.
 */
HOOP_API hoop_result_t hoop_comm_finalize(hoop_comm_t comm);

/*
 * Finalizes, if that was not done, then frees the comm, also one that has failed or was aborted.
 * HOOP_OK: the handle is dead, which finalize, destroy, revoke and abort recognise
 * (HOOP_INVALID_ARGUMENT). A mismatch that hoop_comm_finalize() would have returned is logged.
 * No call of this rank on comm may be running, or begin; what is queued is waited for, or ended if
 * the comm has failed. NULL is allowed. The other ranks need not call it at the same time.
 * HOOP_INVALID_USAGE, and nothing happened: the calling thread has calls on comm in an open group.
 * HOOP_TIMEOUT, and nothing was freed: a call on comm is still inside a minute after its deadline.
 * A process through which other machines reach the ranks here may wait at exit(), for up to 5 s,
 * until they no longer need it: see hoop_linger().
 */
HOOP_API hoop_result_t hoop_comm_destroy(hoop_comm_t comm);

/*
 * For a process that has destroyed its last comm and will end by _exit(), quick_exit() or a signal:
 * waits, as exit() does, until no other machine needs this process any more to reach the ranks that
 * are still there, or to hear why a join failed. Returns at once where there is nothing to wait
 * for, or a comm is left. HOOP_TIMEOUT: 5 s have passed. Not in NCCL.
 */
HOOP_API hoop_result_t hoop_linger(void);

/*
 * Ends the comm at once: running and future operations fail on all ranks, with an error that says
 * which rank aborted. This rank's operations that are queued, or that other threads are inside of,
 * return HOOP_ABORTED. When the last of them has left, everything that the comm holds is given back
 * except the handle (less than 4 KiB), which still answers: calls return HOOP_ABORTED (or the
 * failure that the comm had before), and hoop_comm_get_async_error() and hoop_get_last_error() say
 * why. hoop_comm_destroy() frees it; a program need not call that. May be repeated. Needs no
 * cooperation from other ranks. NULL is allowed. HOOP_TIMEOUT, and nothing was given back: a thread
 * inside did not leave within a minute (stopped in a debugger, or in a log callback). After
 * hoop_comm_finalize() the other ranks are not disturbed: then it does what hoop_comm_destroy()
 * does, for a process with threads that may still call, and leaves the same handle.
 */
HOOP_API hoop_result_t hoop_comm_abort(hoop_comm_t comm);

/*
 * For the end of a process whose threads may be inside of comm, or about to call:
 * hoop_comm_finalize(), if no thread is inside and nothing is queued, and then hoop_comm_abort(),
 * which leaves the handle. Does not wait for operations: one that is inside is aborted, which the
 * other ranks hear of. Not in NCCL.
 */
HOOP_API hoop_result_t hoop_comm_leave(hoop_comm_t comm);

/*
 * The first half of hoop_comm_abort(): ends the comm in the same way and returns at once. Nothing
 * is given back before hoop_comm_abort() or hoop_comm_destroy(). flags: HOOP_REVOKE_DEFAULT.
 */
#define HOOP_REVOKE_DEFAULT 0x00
HOOP_API hoop_result_t hoop_comm_revoke(hoop_comm_t comm, int flags);

/*
 * New comms from old ones. Collective: all members of comm call, also those that get no new comm,
 * except those that a shrink leaves out. What was queued on comm before is completed first (not
 * with HOOP_SHRINK_ABORT). The new comm, once it is made, fails and ends independently of comm;
 * until then what ends comm ends the split or growth, too. config is as for
 * hoop_comm_init_rank_config(); NULL, or an undefined field: comm's value. No stranger can join:
 * the members already trust each other.
 *
 * split: one comm for each color >= 0, of the ranks that gave it, ordered by key, then by rank.
 * HOOP_SPLIT_NOCOLOR: this rank gets HOOP_COMM_NULL. If a member lacks a resource (a descriptor),
 * the new comm of its color fails on all ranks of it, and comm is as it was.
 *
 * shrink: without exclude_ranks, of which all remaining ranks pass the same list (the excluded
 * ranks do not call, and may be in the next shrink already); the others keep their order. With
 * HOOP_SHRINK_ABORT also without every rank that is lost:
 *
 *     - comm may have failed, but must not have been aborted by this rank (HOOP_INVALID_USAGE).
 *       What runs on it is ended first.
 *     - The ranks that call agree on who is left, whatever each of them has heard. A rank that dies
 *       meanwhile is left out too, as is one that gives up or that any of them excludes.
 *     - Every living rank must call within init_timeout_ms. A living rank that the others took for
 *       lost gets HOOP_REMOTE_ERROR. Where a network falls apart, each part goes on by itself.
 *     - The new comm may have failed already when the call returns, because another rank has just
 *       died: shrink it in turn.
 *     - An operation that failed on one rank may have succeeded on another: agree on where to go on
 *       (examples/survive.c). The operation may be repeated on the new comm: out of place its input
 *       is as it was. In place a buffer of reduce_scatter, all_reduce, reduce and of a rank that
 *       receives may hold partial results; blocks that an operation only reads there (all_gather's
 *       own) are as they were.
 *
 * get_unique_id, grow: one member of comm makes a token, which is as secret as any. Then the
 * members call grow with nranks, the size of the new comm, rank -1 (they keep theirs) and id NULL,
 * except the rank that made it, which passes it. New ranks call grow with comm HOOP_COMM_NULL, the
 * token, and their rank, from comm's size on. A token is for one growth, and served until then by
 * the process that made it.
 */
#define HOOP_SPLIT_NOCOLOR (-1)
#define HOOP_SHRINK_DEFAULT 0x00
#define HOOP_SHRINK_ABORT 0x01
HOOP_API hoop_result_t hoop_comm_split(hoop_comm_t comm, int color, int key, hoop_comm_t *newcomm,
                                       const hoop_config_t *config);
HOOP_API hoop_result_t hoop_comm_shrink(hoop_comm_t comm, int *exclude_ranks, int exclude_count,
                                        hoop_comm_t *newcomm, const hoop_config_t *config,
                                        int flags);
HOOP_API hoop_result_t hoop_comm_get_unique_id(hoop_comm_t comm, hoop_unique_id_t *id);
HOOP_API hoop_result_t hoop_comm_grow(hoop_comm_t comm, int nranks, const hoop_unique_id_t *id,
                                      int rank, hoop_comm_t *newcomm, const hoop_config_t *config);

/* *count: how many ranks comm has. */
HOOP_API hoop_result_t hoop_comm_count(hoop_comm_t comm, int *count);
/* *rank: which of them this one is, 0 to count - 1. */
HOOP_API hoop_result_t hoop_comm_user_rank(hoop_comm_t comm, int *rank);
/* *device: the CUDA device of hoop_comm_init_all(), or else that was current when comm was made;
 * -1: none. */
HOOP_API hoop_result_t hoop_comm_cu_device(hoop_comm_t comm, int *device);

/* ---- Collective operations ---------------------------------------------------------------- */

/*
 * Every rank calls the same operation with the same count, datatype, op and root. If they differ,
 * every rank gets HOOP_MISMATCH and a sentence with both calls and, for ranks that run on this
 * machine, the places where they were made (function and file, as addr2line takes it). Buffers are
 * borrowed until the operation is complete. Any count is allowed: 0, fewer than ranks, more than
 * 2^32. Buffers may have any alignment; the datatype's own is faster. NULL is allowed when count is
 * 0, and for a buffer that the rank does not use.
 *
 *     n ranks, rank r     sendbuff           recvbuff           in place
 *     all_reduce          count              count              sendbuff == recvbuff
 *     reduce              count              count, root only   sendbuff == recvbuff
 *     reduce_scatter      n * count          count              recvbuff == sendbuff + r * count
 *     all_gather          count              n * count          sendbuff == recvbuff + r * count
 *     broadcast           count, root only   count              sendbuff == recvbuff
 *     gather              count              n * count, root    sendbuff == recvbuff + root * count
 *     scatter             n * count, root    count              recvbuff == sendbuff + root * count
 *     alltoall            n * count          n * count          not possible
 *
 * Buffers that overlap in any other way are HOOP_INVALID_ARGUMENT. A rank may return from an
 * operation with a root when its own part is done, several such operations ahead of the others. A
 * mismatch or failure there is then reported by one of its next calls, at the latest by
 * hoop_barrier(), which waits for all ranks.
 */

/* The reduction of all ranks' sendbuffs, to all ranks. */
HOOP_API hoop_result_t hoop_all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                                       hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                                       hoop_stream_t stream);

/* Returns when every rank has called it. Not in NCCL. */
HOOP_API hoop_result_t hoop_barrier(hoop_comm_t comm, hoop_stream_t stream);

/* The reduction of all ranks' sendbuffs, to the root only. */
HOOP_API hoop_result_t hoop_reduce(const void *sendbuff, void *recvbuff, size_t count,
                                   hoop_datatype_t datatype, hoop_red_op_t op, int root,
                                   hoop_comm_t comm, hoop_stream_t stream);

/* Block r of the reduction of all ranks' sendbuffs, to rank r; blocks have recvcount elements. */
HOOP_API hoop_result_t hoop_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                           hoop_datatype_t datatype, hoop_red_op_t op,
                                           hoop_comm_t comm, hoop_stream_t stream);

/* All ranks' blocks of sendcount elements, one behind the other in rank order, to all ranks. */
HOOP_API hoop_result_t hoop_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                       hoop_datatype_t datatype, hoop_comm_t comm,
                                       hoop_stream_t stream);

/* The root's vector, to all ranks. hoop_bcast() is the same in place. */
HOOP_API hoop_result_t hoop_broadcast(const void *sendbuff, void *recvbuff, size_t count,
                                      hoop_datatype_t datatype, int root, hoop_comm_t comm,
                                      hoop_stream_t stream);
HOOP_API hoop_result_t hoop_bcast(void *buff, size_t count, hoop_datatype_t datatype, int root,
                                  hoop_comm_t comm, hoop_stream_t stream);

/* Block q of rank r's sendbuff becomes block r of rank q's recvbuff; blocks have count elements. */
HOOP_API hoop_result_t hoop_alltoall(const void *sendbuff, void *recvbuff, size_t count,
                                     hoop_datatype_t datatype, hoop_comm_t comm,
                                     hoop_stream_t stream);

/*
 * The same with a size for each pair: sendcounts[q] elements at sendbuff + sdispls[q] go to rank q,
 * whose recvcounts[r] must be equal (else HOOP_MISMATCH). The four arrays have n numbers, of
 * elements, and are read before the call returns. Blocks may be empty; a block that is received
 * must not overlap any other block. Not in NCCL, but in RCCL.
 */
HOOP_API hoop_result_t hoop_alltoallv(const void *sendbuff, const size_t *sendcounts,
                                      const size_t *sdispls, void *recvbuff,
                                      const size_t *recvcounts, const size_t *rdispls,
                                      hoop_datatype_t datatype, hoop_comm_t comm,
                                      hoop_stream_t stream);

/* All ranks' blocks of count elements, one behind the other in rank order, to the root. */
HOOP_API hoop_result_t hoop_gather(const void *sendbuff, void *recvbuff, size_t count,
                                   hoop_datatype_t datatype, int root, hoop_comm_t comm,
                                   hoop_stream_t stream);

/* Block r of the root's sendbuff, of count elements, to rank r. */
HOOP_API hoop_result_t hoop_scatter(const void *sendbuff, void *recvbuff, size_t count,
                                    hoop_datatype_t datatype, int root, hoop_comm_t comm,
                                    hoop_stream_t stream);

/*
 * From one rank to another: the k-th send of a rank to a peer meets that peer's k-th receive from
 * it, with the same count and datatype, else HOOP_MISMATCH. A send returns when its buffer may be
 * used again; that may be before the receive is called, or only after, so ranks that send to each
 * other must do it in a group. There all sends and receives of a comm run at the same time, before
 * the group's collectives. A rank can exchange with itself in a group only. What one of them
 * receives must not overlap the buffers of the others; that is not checked.
 */
HOOP_API hoop_result_t hoop_send(const void *sendbuff, size_t count, hoop_datatype_t datatype,
                                 int peer, hoop_comm_t comm, hoop_stream_t stream);
HOOP_API hoop_result_t hoop_recv(void *recvbuff, size_t count, hoop_datatype_t datatype, int peer,
                                 hoop_comm_t comm, hoop_stream_t stream);

/*
 * Makes an operation for one comm and one datatype: the sum of every rank's input times a factor of
 * its own, the element of datatype at scalar. residence says whether that is in host or in device
 * memory; in either case it is read before the call returns. The product is rounded to the datatype
 * before the sum. hoop_red_op_destroy() may be called as soon as the calls that use the operation
 * have been made.
 */
HOOP_API hoop_result_t hoop_red_op_create_pre_mul_sum(hoop_red_op_t *op, void *scalar,
                                                      hoop_datatype_t datatype,
                                                      hoop_scalar_residence_t residence,
                                                      hoop_comm_t comm);
HOOP_API hoop_result_t hoop_red_op_destroy(hoop_red_op_t op, hoop_comm_t comm);

/*
 * Between start and end the calling thread's operations are collected; they run at the outermost
 * end, each comm's in the order of the calls, different comms at the same time. This is how one
 * thread drives several comms. Groups nest. End returns when all are complete, with the first
 * failure. A comm is free for other threads as soon as its own calls are complete.
 *
 * If calls are on a host stream, or are asynchronous on CUDA streams, end queues the whole group as
 * one piece and returns. The piece begins when all streams that the calls name have come to it, and
 * none of these goes on before it is complete, as in NCCL. If one of the calls has no stream, end
 * waits for the piece.
 *
 * If one of the calls was a mistake of the caller, end returns that error and runs nothing. The
 * other ranks, which may be waiting already, are told at once: the comms that the group has calls
 * on, and the comm of the mistaken call, fail with HOOP_REMOTE_ERROR and a sentence that names the
 * mistake. A comm that has failed is no mistake: calls on it fail, on a stream as queued work does,
 * and those on other comms run.
 *
 * Only operations and births are collected; births run first: all comms are made, or none, and then
 * the comms that others were to be made from may fail with HOOP_REMOTE_ERROR. Finalize, destroy,
 * abort and revoke act at once, also inside a group; a group's calls on a comm that was aborted
 * return HOOP_ABORTED at its end. Always end a group, also on the way out of an error: otherwise
 * the thread's later calls are collected, too, return HOOP_OK and do nothing. A group that is open
 * when its thread ends is dropped: nothing of it runs, and no rank is told.
 */
HOOP_API hoop_result_t hoop_group_start(void);
HOOP_API hoop_result_t hoop_group_end(void);

/*
 * Ends the group like hoop_group_end(), but runs nothing. sim_info->estimated_time gets the time,
 * in seconds, that the cost model expects (see hoop_explain_json()): each comm's calls one after
 * the other, comms at the same time. Begin with HOOP_SIM_INFO_INITIALIZER. HOOP_INVALID_USAGE, and
 * the group stays open: it is inside another one, or makes comms.
 */
typedef struct {
    size_t size;          /* set by the initializer */
    uint32_t magic;       /* set by the initializer */
    uint32_t version;     /* set by the initializer */
    float estimated_time; /* seconds */
} hoop_sim_info_t;
#define HOOP_SIM_INFO_INITIALIZER                                                                  \
    {                                                                                              \
        sizeof(hoop_sim_info_t), HOOP_CONFIG_MAGIC, HOOP_VERSION_CODE, 0.0f                        \
    }
HOOP_API hoop_result_t hoop_group_simulate_end(hoop_sim_info_t *sim_info);

/* ---- Memory ------------------------------------------------------------------------------- */

/*
 * Memory that ranks on this machine can map, so that an operation reads and writes it in place.
 * RDMA sends and receives large transfers from and to it without a copy. Any other memory is
 * allowed in operations too, but costs copies. *ptr is page-aligned and zeroed; with bytes 0 it is
 * NULL.
 *
 * HOOP_MEM_DEVICE: memory of the current device, in whole units of what CUDA maps (2 MiB, say);
 * HOOP_UNSUPPORTED where there is no CUDA. Host pages are shared with forked children (as
 * MAP_SHARED memory is), not copied on write.
 *
 * A block takes a descriptor until it is freed: a few large blocks are better than many small ones.
 * Pages appear when they are touched, so success reserves nothing. HOOP_OUT_OF_MEMORY: no address
 * space, no descriptor, or more bytes than the machine has.
 */
HOOP_API hoop_result_t hoop_mem_alloc(void **ptr, size_t bytes, hoop_mem_kind_t kind);

/*
 * Frees what hoop_mem_alloc() returned. NULL is allowed; any other pointer is
 * HOOP_INVALID_ARGUMENT. No running operation may use the memory. Queued ones may: the pointer is
 * dead, and the memory is freed when the last of them is over. Device memory: waits for the device
 * first, as cudaFree() does.
 */
HOOP_API hoop_result_t hoop_mem_free(void *ptr);

/*
 * Announces that size bytes at buff will be used often. In this version it changes nothing, since
 * plain memory cannot be mapped by other processes and is never registered with a device; it exists
 * so that programs that register buffers run unchanged. *handle is to be given back to
 * hoop_comm_deregister(), once; HOOP_INVALID_USAGE: comm does not have (or no longer has) that
 * handle. Deregistering NULL is allowed.
 */
HOOP_API hoop_result_t hoop_comm_register(hoop_comm_t comm, void *buff, size_t size, void **handle);
HOOP_API hoop_result_t hoop_comm_deregister(hoop_comm_t comm, void *handle);

/* Windows: HOOP_UNSUPPORTED in this version. */
typedef struct hoop_window *hoop_window_t;
#define HOOP_WIN_DEFAULT 0x00
#define HOOP_WIN_COLL_SYMMETRIC 0x01
HOOP_API hoop_result_t hoop_comm_window_register(hoop_comm_t comm, void *buff, size_t size,
                                                 hoop_window_t *win, int win_flags);
HOOP_API hoop_result_t hoop_comm_window_deregister(hoop_comm_t comm, hoop_window_t win);

/* ---- Host streams and tickets ------------------------------------------------------------- */

/*
 * Host streams and tickets are not in NCCL.
 *
 * A stream is a queue of operations on host buffers. A collective, a send or a receive that is
 * given a stream returns when it is queued; its buffers are borrowed until it is complete, all
 * other arguments are copied. Operations of one stream run one after the other in the order of the
 * calls, those of different streams independently, whatever comms they use; on one comm, blocking
 * calls and queued ones run in the order of the calls. The number of queued operations is limited
 * by memory only: some 300 bytes each, twice that for a message.
 *
 * A call with a bad argument, or on a comm that has failed, fails itself. A later failure is
 * reported by the tickets, by hoop_stream_synchronize() and by hoop_comm_get_async_error(), and
 * does not hold up operations of other comms behind it. The work is done by a thread of hoop's own,
 * which sleeps when there is none, or by a thread that waits for it in a function below.
 *
 * Any thread may use a stream. A child after fork() cannot.
 *
 *     hoop_all_reduce(grad, grad, count, HOOP_FLOAT32, HOOP_AVG, comm, stream);
 *     hoop_stream_record(stream, &ticket);
 *     ...                                                 // compute something else
 *     result = hoop_ticket_wait(ticket, -1);              // now grad may be used
 *
 * All functions: HOOP_INVALID_ARGUMENT: the stream was destroyed; HOOP_UNSUPPORTED: it is another
 * kind of handle. HOOP_OUT_OF_MEMORY from create: there are 4096 streams already.
 */
HOOP_API hoop_result_t hoop_stream_create(hoop_stream_t *stream);

/*
 * Waits for what is queued, frees the stream, and returns what hoop_stream_synchronize() would; the
 * stream is freed whatever that is. Tickets stay valid, and keep their results as long as the
 * stream is one of the last 64 that were destroyed; after that they are HOOP_OK. NULL is allowed.
 */
HOOP_API hoop_result_t hoop_stream_destroy(hoop_stream_t stream);

/*
 * Waits until everything queued so far is complete. Returns the first failure among what was
 * completed since the last call of this function on stream.
 */
HOOP_API hoop_result_t hoop_stream_synchronize(hoop_stream_t stream);

/*
 * HOOP_OK: nothing is queued or running. HOOP_IN_PROGRESS: something is, or was a moment ago (a
 * blocking call made after everything queued may have returned already). Does not block. Queued
 * work is normally left for up to 0.5 ms to a thread that may come to wait for it; this call has it
 * begun at once.
 */
HOOP_API hoop_result_t hoop_stream_query(hoop_stream_t stream);

/*
 * A descriptor for event loops: readable when a recorded ticket has completed since it was last
 * read (an eventfd, non-blocking: read 8 bytes). Owned by the stream; *fd is the same every time.
 */
HOOP_API hoop_result_t hoop_stream_get_fd(hoop_stream_t stream, int *fd);

/*
 * A ticket is the point that a stream has reached: complete when all work queued before it is. Its
 * result is the first failure among the operations queued between the previous ticket and this one.
 * A plain value: it may be copied, kept or forgotten; nothing has to be freed.
 */
typedef struct {
    uint64_t opaque[2];
} hoop_ticket_t;
HOOP_API hoop_result_t hoop_stream_record(hoop_stream_t stream, hoop_ticket_t *ticket);

/*
 * Waits for a ticket and returns its result. timeout_ms < 0: waits as long as the operations may
 * take; 0: does not wait, but moves queued work as far as it gets at once, so that it has begun.
 * HOOP_TIMEOUT when timeout_ms have passed: the ticket is not complete yet, and nothing else
 * happened (hoop_ticket_query() tells this from an operation whose own deadline has passed). The
 * results of the last 65536 tickets of a stream are remembered; an older one returns the last
 * failure that was forgotten, or HOOP_OK.
 */
HOOP_API hoop_result_t hoop_ticket_wait(hoop_ticket_t ticket, int timeout_ms);

/*
 * The same without waiting: HOOP_IN_PROGRESS while it is not complete. Before it returns that, this
 * function yields the CPU, as do hoop_stream_query() and hoop_comm_get_async_error(): asking in a
 * loop does not keep other threads from doing the work.
 */
HOOP_API hoop_result_t hoop_ticket_query(hoop_ticket_t ticket);

/* What is queued on stream from now on begins after ticket, of any stream, is complete. */
HOOP_API hoop_result_t hoop_stream_wait_ticket(hoop_stream_t stream, hoop_ticket_t ticket);

/* ---- Looking inside ------------------------------------------------------------------------ */

/*
 * State of a comm (comm NULL: of the process, with its streams) as one JSON object, written to buf
 * with a NUL if it fits into bytes. For a comm: its ranks, its last operations, and under "waiting"
 * the operation that waits now, for what of which rank, and for how many ms; called from another
 * thread, this says why a call does not return. *needed gets the size in bytes, NUL included;
 * HOOP_INVALID_ARGUMENT if that is more than bytes. To ask for the size, pass buf NULL and bytes 0.
 * Does not block. Not in NCCL.
 */
HOOP_API hoop_result_t hoop_info_json(hoop_comm_t comm, char *buf, size_t bytes, size_t *needed);

/*
 * The plan of a collective for these arguments, on memory from hoop_mem_alloc(): the algorithm, the
 * alternatives with the time that the cost model gives each, and the HOOP_PROFILE in use. One JSON
 * object, written to buf as by hoop_info_json(). collective is "all_reduce", "broadcast", ..., as
 * in the functions' names, but not alltoallv, for which there is no choice. HOOP_INVALID_USAGE:
 * comm was aborted. Does not involve other ranks. Not in NCCL.
 */
HOOP_API hoop_result_t hoop_explain_json(hoop_comm_t comm, const char *collective, size_t count,
                                         hoop_datatype_t datatype, hoop_red_op_t op, char *buf,
                                         size_t bytes, size_t *needed);

/*
 * Walks the table of settings: begin with *cursor 0 and repeat while it returns HOOP_OK;
 * HOOP_INVALID_ARGUMENT past the last. The strings are owned by hoop and static, except value,
 * which is valid until the calling thread's next call. Not in NCCL, whose ncclParam* are similar.
 */
typedef struct {
    const char *name;   /* HOOP_... */
    const char *text;   /* what it does, a sentence */
    const char *range;  /* allowed values, as text */
    const char *preset; /* the default, as text */
    const char *value;  /* what is in force in this process */
    const char *origin; /* "default" or "environment" */
} hoop_setting_t;
HOOP_API hoop_result_t hoop_setting_next(size_t *cursor, hoop_setting_t *setting);

#ifdef __cplusplus
}
#endif
#endif
