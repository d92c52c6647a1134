/*
 * hoop: collective operations for processes that train models together.
 *
 * This header is the whole public API and its manual. It needs no CUDA header and compiles as C11
 * and as C++. The API is NCCL's in snake case, with the same argument order and meaning, so that
 * a port is mechanical (ncclAllReduce -> hoop_all_reduce; docs/nccl.md has them side by side, and
 * what NCCL has not). Results 0-7, datatypes and operations have NCCL's numeric values.
 *
 * The loop every program writes (examples/hello_allreduce.c is this, compiled):
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
 * Words. A *comm* is a communicator: n *ranks* that agreed on each other. A rank is a process, or
 * a thread where one process holds several. Counts are elements, never bytes, unless the name
 * says bytes.
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
 * Ordered: the call comes behind all that is on the stream, and what is put there afterwards comes
 * behind its result. With NULL, or memory of the host, it returns when the result is there. Else it
 * may return when it is queued, as NCCL's do: work on that stream may use the buffers at once,
 * everything else has to wait for the stream. HOOP_CUDA_AHEAD and docs/gpu.md say when it does;
 * with HOOP_CUDA_AHEAD=1 all calls do, also with NULL, and docs/gpu.md says what a program must not
 * do meanwhile. A group is queued at its end, as one piece: none of its streams goes on before all
 * of it is over. Calls of the host on the same comm come behind what is queued. A later failure is
 * told by hoop_comm_get_async_error() and by every call after it; the streams go on nevertheless,
 * and what is in the buffers is worth nothing.
 *
 * Even so these return when the result is there: the first call of a comm on a stream, and the
 * first that needs more staging memory than any before; where a process has several ranks of the
 * comm, all but groups with calls of all of them; groups that also have calls of the host; all with
 * a CUDA driver before 12.0, and on a stream that shares a queue of its device with hoop's own
 * (CUDA_DEVICE_MAX_CONNECTIONS=1). While a stream captures a graph, calls on NULL are
 * HOOP_UNSUPPORTED.
 *
 * Calls on a stream that captures a graph become part of it, and run each time that it does, on all
 * ranks in the same order. HOOP_UNSUPPORTED: a process with several ranks of the comm, or a driver
 * before 12.0. All calls of a group are on that stream. docs/gpu.md says more.
 *
 * Every function and combination that this version does not do returns HOOP_UNSUPPORTED, leaves a
 * sentence in hoop_get_last_error() and changes nothing; each such function says so below.
 *
 * Errors. Every function that can fail returns hoop_result_t. Outputs are written only on
 * success. HOOP_INVALID_ARGUMENT, HOOP_INVALID_USAGE and HOOP_UNSUPPORTED are the caller's
 * mistakes: nothing happened, the comm is as it was. Any other failure of an operation is final
 * for its comm: the first error wins, it reaches every rank, all pending and future work on the
 * comm returns it, and there remain what only looks at it, such as hoop_get_last_error(), and
 * hoop_comm_shrink() (with HOOP_SHRINK_ABORT), hoop_comm_abort() and hoop_comm_destroy(). After a
 * failed operation no other rank writes to its buffers any more; where one cannot be kept out (a
 * stopped thread of this process, no memory for other pages) it is waited for, for as long as an
 * operation may take, and then named. Nothing hangs: every wait has a deadline.
 *
 * Threads. Functions may be called from any thread. Calls on one comm from several threads are
 * served one at a time, first come, first served, in an order that the caller must make the same
 * on all ranks. Who waits for its turn sleeps, and gets HOOP_TIMEOUT when a call before it is still
 * inside a minute after its own deadline. hoop_comm_abort() and hoop_comm_revoke() may be called by
 * any thread at any time before hoop_comm_destroy(), whatever other threads do with the comm; only
 * for hoop_comm_destroy() the caller must see to it that no other call on the comm runs or begins.
 * A stack of 16 KiB is enough to call from.
 *
 * Cancellation. No function is a cancellation point: a thread that is cancelled inside leaves when
 * the call returns. To get it out sooner, abort the comm first. Asynchronous cancellation
 * (PTHREAD_CANCEL_ASYNCHRONOUS) must be off.
 *
 * fork. A child that was forked while hoop was in use can't use it; it may exec, or exit. What it
 * inherited can be let go: hoop_comm_destroy(), hoop_comm_abort(), hoop_comm_deregister(),
 * hoop_red_op_destroy(), hoop_stream_destroy(), hoop_mem_free() and hoop_linger() do nothing and
 * return HOOP_OK, so destructors may run. Everything else that would do something returns
 * HOOP_INVALID_USAGE. A child that was forked before the first use of hoop is a process like any
 * other.
 *
 * exit. A process may call exit() while other threads of it are inside hoop or work is queued, for
 * which it does not wait; handlers of atexit() and destructors of static objects may end comms. The
 * library can't be unloaded: dlclose() leaves it where it is, with its threads.
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
 * The same C type as cudaStream_t, declared and not included. NULL and CUDA's own handles are
 * passed through; host streams come from hoop_stream_create().
 */
struct CUstream_st;
typedef struct CUstream_st *hoop_stream_t;

/*
 * What the ranks of a new comm need to find and to trust each other: an address and a secret.
 * Plain bytes, to be carried by any private means. Whoever holds it can join the job: do not
 * print it and do not put it on a command line.
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
 * nearest, ties to even) per reduction that a rank performs. Integers wrap. avg is the sum in
 * fp32 (fp64 for double) times 1/n, then rounded; for integers the wrapped sum divided by n,
 * truncated. min and max are IEEE 754-2019 minimum and maximum: a NaN operand gives NaN, and
 * -0 < +0. A NaN result is one canonical quiet NaN. fp8 overflow: see docs/numbers.md. In every
 * addition the lower rank is the left operand where the order is the rank order; the order of
 * every algorithm is in docs/numbers.md. All ranks always end with the same bits.
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

/* Writes HOOP_VERSION_CODE of the library (of the header: the macro). */
HOOP_API hoop_result_t hoop_get_version(int *version);

/* The fixed text of a result; "unknown result" for a number that is none. Static, never NULL. */
HOOP_API const char *hoop_get_error_string(hoop_result_t result);

/* The result's name, such as "HOOP_TIMEOUT". Static, never NULL. */
HOOP_API const char *hoop_get_error_name(hoop_result_t result);

/*
 * The sentence about a failure, naming rank, host, phase and bytes where they are known. Of comm:
 * the failure that ended it. comm NULL, or a comm that did not fail: the calling thread's last
 * failing call. "" when there was none. Owned by hoop; valid until the calling thread's next call
 * of hoop or the comm's destruction. Never NULL.
 */
HOOP_API const char *hoop_get_last_error(hoop_comm_t comm);

/*
 * *async_error: HOOP_OK; HOOP_IN_PROGRESS while a non-blocking call on the comm goes on (see
 * hoop_config_t); or the failure that ended the comm. Does not block: a failure that a rank is
 * writing down at this moment counts from the next call on.
 */
HOOP_API hoop_result_t hoop_comm_get_async_error(hoop_comm_t comm, hoop_result_t *async_error);

/*
 * Where log lines go from now on: to fn, in the thread that logs, one line without newline each.
 * fn must not call hoop. NULL: to stderr again. What is logged is set by HOOP_DEBUG.
 */
typedef void (*hoop_log_fn_t)(void *arg, hoop_log_level_t level, const char *subsystem,
                              const char *line);
HOOP_API hoop_result_t hoop_set_log_callback(hoop_log_fn_t fn, void *arg);

/* ---- Birth and death of a comm ------------------------------------------------------------ */

/*
 * Options of a comm. Begin with HOOP_CONFIG_INITIALIZER; a field left at its undefined value
 * takes the HOOP_* variable or the default (`hoopinfo --settings` lists both). The first three
 * fields let an older program pass a shorter struct, and a newer one a longer one, of which this
 * library looks at what it knows.
 *
 * blocking 0: a call that makes comms, once its arguments are right, writes the new handle and
 * returns HOOP_IN_PROGRESS; so does hoop_comm_finalize() on a comm that was made so. (Where to meet
 * is found out before: a name that must be looked up, or a file awaited, is waited for.) As long as
 * hoop_comm_get_async_error() says HOOP_IN_PROGRESS, of the new comm and of the one that it is made
 * of, both may be revoked, aborted and destroyed, which ends a birth; every other call that needs
 * them is HOOP_INVALID_USAGE. In a group all births are waited for if one of them is.
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
 * Makes the token that the ranks of one new comm share, and a leader that this process serves
 * until the comm exists or the process ends. The token holds a secret: hand it to the ranks on a
 * way that nobody else reads. Unless the launcher says that all ranks are on this machine, a TCP
 * port is open at one interface (HOOP_SOCKET_IFNAME, HOOP_PORT_RANGE) until the comm exists. Every
 * comm needs a token of its own.
 */
HOOP_API hoop_result_t hoop_get_unique_id(hoop_unique_id_t *id);

/*
 * Joins a new comm as rank of nranks. Collective: returns when all ranks have joined, at the
 * latest after init_timeout_ms, when the failure names the ranks that never arrived. One process
 * may hold several ranks, each joined by a thread of its own.
 */
HOOP_API hoop_result_t hoop_comm_init_rank(hoop_comm_t *comm, int nranks, hoop_unique_id_t id,
                                           int rank);

/* The same, with options. config is read before the call returns; NULL means all defaults. */
HOOP_API hoop_result_t hoop_comm_init_rank_config(hoop_comm_t *comm, int nranks,
                                                  hoop_unique_id_t id, int rank,
                                                  const hoop_config_t *config);

/*
 * Joins the job that the launcher describes: hooprun, torchrun (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), Open MPI's mpirun, Slurm's srun, or PMI; docs/launchers.md has the variables.
 * Without any: a comm of one rank. Ranks of one user on one machine need nothing else: the kernel
 * vouches for the user. Ranks on several machines need a secret, which hooprun or the user puts
 * into HOOP_SECRET_FILE or HOOP_SECRET. HOOP_INIT may name another place to meet (see below). May
 * be called repeatedly: the k-th call of every rank meets in the k-th comm. config may be NULL.
 */
HOOP_API hoop_result_t hoop_comm_init_env(hoop_comm_t *comm, const hoop_config_t *config);

/*
 * Joins as rank of nranks at a place that all ranks name alike:
 *      tcp://host:port     where rank 0 will listen; the secret as above
 *      file:///path        a path that all ranks can reach, where they may make the directory
 *                          path.hoop; the secret is kept in there, for its owner alone. It may be
 *                          used again and again, and is removed when all are in
 *      env://              as hoop_comm_init_env(), but nranks and rank are these
 * The k-th call with one url meets in the k-th comm. config may be NULL.
 */
HOOP_API hoop_result_t hoop_comm_init_url(hoop_comm_t *comm, const char *url, int nranks, int rank,
                                          const hoop_config_t *config);

/*
 * Makes ndev comms of one clique inside this process: comms[i] is rank i, to be used by a thread
 * each, or by one thread inside a group. devlist: NULL; where data lie each buffer says. Device
 * numbers are HOOP_UNSUPPORTED in this version.
 */
HOOP_API hoop_result_t hoop_comm_init_all(hoop_comm_t *comms, int ndev, const int *devlist);

/* hoop_comm_init_rank_config with several tokens. HOOP_UNSUPPORTED unless n_id is 1. */
HOOP_API hoop_result_t hoop_comm_init_rank_scalable(hoop_comm_t *comm, int nranks, int rank,
                                                    int n_id, hoop_unique_id_t *ids,
                                                    const hoop_config_t *config);

/*
 * Says goodbye: waits for what is queued on the comm, and flushes what this rank still owes the
 * others. After it no operation may be called; hoop_comm_destroy() remains. Does not wait for other
 * ranks, but where queued work needs them. HOOP_MISMATCH: another rank has called other operations
 * than the last ones here, and the comm has failed on all ranks. A comm that failed before returns
 * that failure; one that was finalized before, HOOP_INVALID_USAGE.
 */
HOOP_API hoop_result_t hoop_comm_finalize(hoop_comm_t comm);

/*
 * Finalizes if that was not done, then frees; also what has failed, and what hoop_comm_abort()
 * left. HOOP_OK: the handle is dead. A mismatch that hoop_comm_finalize() would have returned is
 * logged. No call of this rank on comm may be running, or begin; what is queued is waited for, or
 * ended where comm has failed. NULL is allowed. The other ranks need not call it at the same time.
 * HOOP_INVALID_USAGE, and nothing happened: the calling thread has calls on comm in an open group.
 * HOOP_TIMEOUT, and nothing was freed: a call on comm is still inside a minute after its deadline.
 * A process that other machines need in order to reach the ranks here may wait at exit(),
 * for up to 5 s, until they do not: see hoop_linger().
 */
HOOP_API hoop_result_t hoop_comm_destroy(hoop_comm_t comm);

/*
 * For a process that will end by _exit(), quick_exit() or a signal, after it has destroyed its last
 * comm: waits, as exit() does, until no other machine needs it any more to reach the ranks that are
 * still there. Returns at once where there is nothing to wait for, or a comm is left. HOOP_TIMEOUT:
 * 5 s have passed.
 */
HOOP_API hoop_result_t hoop_linger(void);

/*
 * Ends the comm at once: on all ranks running and future operations fail, saying which rank
 * aborted. Operations of this rank that are queued, or that other threads are inside of, return
 * HOOP_ABORTED; when the last of them has left, everything that the comm holds is given back, but
 * for the handle (less than 4 KiB). That one answers: a thread that is about to call gets
 * HOOP_ABORTED (or, where the comm had failed before, that failure), hoop_comm_get_async_error()
 * and hoop_get_last_error() say why, until hoop_comm_destroy() frees it, which a program need not
 * call. May be repeated. Needs no co-operation from peers. NULL is allowed. HOOP_TIMEOUT: a thread
 * that is inside did not leave within a minute (stopped in a debugger, or in a log callback), and
 * nothing was given back. After hoop_comm_finalize() the other ranks go on: then it is
 * hoop_comm_destroy() for a process with threads that may still call, and leaves the same handle.
 */
HOOP_API hoop_result_t hoop_comm_abort(hoop_comm_t comm);

/*
 * For the end of a process whose threads may be inside of comm, or about to call:
 * hoop_comm_finalize() where none is inside and nothing is queued, and then hoop_comm_abort(),
 * which leaves the handle. Waits for nobody's operation: one that is inside is aborted, and with it
 * the others hear of it.
 */
HOOP_API hoop_result_t hoop_comm_leave(hoop_comm_t comm);

/*
 * The first half of hoop_comm_abort(): ends the comm as that does, and returns at once. Everything
 * else stays as it is, until hoop_comm_abort() or hoop_comm_destroy(). flags: HOOP_REVOKE_DEFAULT.
 */
#define HOOP_REVOKE_DEFAULT 0x00
HOOP_API hoop_result_t hoop_comm_revoke(hoop_comm_t comm, int flags);

/*
 * New comms from old ones. All members of comm call, also those that get no new one, but not those
 * that a shrink leaves out; what was queued on comm before is complete first, but with
 * HOOP_SHRINK_ABORT. The new comm has its own failures and its own end;
 * config as at birth, NULL or an undefined field: comm's. No stranger can join: the members
 * already trust each other.
 *
 * split: one comm for each color >= 0 of the ranks that gave it, ordered by key, then by rank.
 * HOOP_SPLIT_NOCOLOR: this rank gets HOOP_COMM_NULL. A member that lacks something (a descriptor)
 * fails the comm of its color, on all ranks of it; comm is as it was.
 *
 * shrink: without exclude_ranks, which all that remain name alike (the excluded do not call, and
 * may be in the next one already); ranks keep their order. With HOOP_SHRINK_ABORT also without
 * every rank that is lost: comm may have failed (aborted by this rank it may not:
 * HOOP_INVALID_USAGE), what runs on it is ended first, the ranks that call agree on who is left,
 * whatever each of them has heard, and a rank that dies meanwhile is left out too, as is one that
 * gives up or that any of them excludes. Who lives must call, within init_timeout_ms; who lives and
 * is taken for lost is told so: HOOP_REMOTE_ERROR. Where a network falls apart each part goes on by
 * itself. The new comm may have failed when the call returns, if another rank has just died: it
 * shrinks in turn. One rank may have had the result of an operation that failed on another: agree
 * on where to go on (examples/survive.c). It may be repeated on the new comm: out of place its
 * input is as it was. In place a buffer of reduce_scatter, all_reduce, reduce and of a rank that
 * receives may hold partial results; blocks that an operation only reads there (all_gather's own)
 * are as they were.
 *
 * get_unique_id, grow: one member of comm makes a token, as secret as any; then the members call
 * with nranks, the size of the new comm, id NULL but for the rank that made it, and rank -1 (they
 * keep theirs), and who is new calls with comm HOOP_COMM_NULL, the token and its rank, from comm's
 * size on. A token is for one growth, and served until then by the process that made it.
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

/* How many ranks comm has. */
HOOP_API hoop_result_t hoop_comm_count(hoop_comm_t comm, int *count);
/* Which of them this one is: 0 to count - 1. */
HOOP_API hoop_result_t hoop_comm_user_rank(hoop_comm_t comm, int *rank);
/* The CUDA device that was current at the comm's birth; -1: none. */
HOOP_API hoop_result_t hoop_comm_cu_device(hoop_comm_t comm, int *device);

/* ---- Collective operations ---------------------------------------------------------------- */

/*
 * Every rank calls the same operation with the same count, datatype, op and root; when they differ,
 * every rank gets HOOP_MISMATCH and a sentence with both sides and, of ranks on this machine, with
 * the places that they were called from (function and file, as addr2line takes it). Buffers are
 * borrowed until the operation is complete. Any count is allowed: 0, fewer than ranks, more than
 * 2^32. Pointers need only the datatype's natural alignment for speed, none for correctness; NULL
 * is allowed when count is 0, and for a buffer that the rank has no use for.
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
 * Buffers that overlap in another way are HOOP_INVALID_ARGUMENT. A rank may return from an
 * operation with a root when its own part is done, and be several such operations ahead of the
 * others: what differs, or fails, there is told by one of its next calls, hoop_barrier() at the
 * latest, which waits for everybody.
 */

/* The reduction of everybody's sendbuff, to everybody. */
HOOP_API hoop_result_t hoop_all_reduce(const void *sendbuff, void *recvbuff, size_t count,
                                       hoop_datatype_t datatype, hoop_red_op_t op, hoop_comm_t comm,
                                       hoop_stream_t stream);

/* Returns when every rank has called it. NCCL has none. */
HOOP_API hoop_result_t hoop_barrier(hoop_comm_t comm, hoop_stream_t stream);

/* The reduction of everybody's sendbuff, to the root only. */
HOOP_API hoop_result_t hoop_reduce(const void *sendbuff, void *recvbuff, size_t count,
                                   hoop_datatype_t datatype, hoop_red_op_t op, int root,
                                   hoop_comm_t comm, hoop_stream_t stream);

/* Block r of the reduction, to rank r. */
HOOP_API hoop_result_t hoop_reduce_scatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                           hoop_datatype_t datatype, hoop_red_op_t op,
                                           hoop_comm_t comm, hoop_stream_t stream);

/* Everybody's block, one behind the other by rank, to everybody. */
HOOP_API hoop_result_t hoop_all_gather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                       hoop_datatype_t datatype, hoop_comm_t comm,
                                       hoop_stream_t stream);

/* The root's block, to everybody. hoop_bcast() is the same in place. */
HOOP_API hoop_result_t hoop_broadcast(const void *sendbuff, void *recvbuff, size_t count,
                                      hoop_datatype_t datatype, int root, hoop_comm_t comm,
                                      hoop_stream_t stream);
HOOP_API hoop_result_t hoop_bcast(void *buff, size_t count, hoop_datatype_t datatype, int root,
                                  hoop_comm_t comm, hoop_stream_t stream);

/* Block q of rank r's sendbuff becomes block r of rank q's recvbuff. */
HOOP_API hoop_result_t hoop_alltoall(const void *sendbuff, void *recvbuff, size_t count,
                                     hoop_datatype_t datatype, hoop_comm_t comm,
                                     hoop_stream_t stream);

/*
 * The same with a size for each pair: sendcounts[q] elements at sendbuff + sdispls[q] go to rank q,
 * whose recvcounts[r] must equal it; arrays of n, in elements, read before the call returns. Blocks
 * may be empty; what is received must not overlap anything. RCCL has it, NCCL has none.
 */
HOOP_API hoop_result_t hoop_alltoallv(const void *sendbuff, const size_t *sendcounts,
                                      const size_t *sdispls, void *recvbuff,
                                      const size_t *recvcounts, const size_t *rdispls,
                                      hoop_datatype_t datatype, hoop_comm_t comm,
                                      hoop_stream_t stream);

/* Everybody's block, one behind the other by rank, to the root. */
HOOP_API hoop_result_t hoop_gather(const void *sendbuff, void *recvbuff, size_t count,
                                   hoop_datatype_t datatype, int root, hoop_comm_t comm,
                                   hoop_stream_t stream);

/* Block r of the root's sendbuff, to rank r. */
HOOP_API hoop_result_t hoop_scatter(const void *sendbuff, void *recvbuff, size_t count,
                                    hoop_datatype_t datatype, int root, hoop_comm_t comm,
                                    hoop_stream_t stream);

/*
 * From one rank to another: the k-th send of a rank to a peer meets the k-th receive of that peer
 * from it, of the same count and datatype; what differs is HOOP_MISMATCH. A send returns when its
 * buffer may be used again, which may be before the receive is called, and may not be until then.
 * So ranks that send to each other do it in a group: there all sends and receives of a comm run at
 * the same time, and before the group's collectives. With itself a rank exchanges in a group only.
 * What one of them receives must not overlap the buffers of the others: nobody checks that.
 */
HOOP_API hoop_result_t hoop_send(const void *sendbuff, size_t count, hoop_datatype_t datatype,
                                 int peer, hoop_comm_t comm, hoop_stream_t stream);
HOOP_API hoop_result_t hoop_recv(void *recvbuff, size_t count, hoop_datatype_t datatype, int peer,
                                 hoop_comm_t comm, hoop_stream_t stream);

/*
 * Makes an operation of comm for one datatype: the sum of every rank's input times a factor of its
 * own, *scalar as it is now, of the host or of a device. The product is rounded to the datatype
 * before the sum. hoop_red_op_destroy() may follow at once on the calls that use it.
 */
HOOP_API hoop_result_t hoop_red_op_create_pre_mul_sum(hoop_red_op_t *op, void *scalar,
                                                      hoop_datatype_t datatype,
                                                      hoop_scalar_residence_t residence,
                                                      hoop_comm_t comm);
HOOP_API hoop_result_t hoop_red_op_destroy(hoop_red_op_t op, hoop_comm_t comm);

/*
 * Between start and end the calling thread's operations are collected and run at the outermost
 * end, each comm's in the order of the calls, different comms at the same time: this is how one
 * thread drives several comms. Groups nest. End returns when all are complete, with the first
 * failure. A comm is free for other threads as soon as its own calls are complete.
 *
 * Calls with a host stream, and those that are asynchronous on streams of CUDA, are queued at the
 * end, as one piece, and end returns then. Where they name several streams the piece begins when
 * all of these have come to it, and none goes on before it is complete, as with NCCL. Where one of
 * the calls has no stream, end waits for the piece.
 *
 * With a caller's mistake inside, end returns that and runs nothing. The other ranks, which may be
 * waiting already, are told at once: the comms that the group has calls on, and the comm of the
 * mistaken call, fail with HOOP_REMOTE_ERROR and a sentence that names the mistake.
 *
 * Only operations and births are collected; births come first. Finalize, destroy, abort and revoke
 * act at once, also inside a group; calls that it holds on a comm that was aborted return
 * HOOP_ABORTED at its end. A thread that leaves a group open, on its way out of an error, collects
 * for ever: its later calls return HOOP_OK and do nothing. End the group, whatever it returns. With
 * the thread its group ends: nothing of it runs, and no rank is told.
 */
HOOP_API hoop_result_t hoop_group_start(void);
HOOP_API hoop_result_t hoop_group_end(void);

/*
 * Ends the group like hoop_group_end(), but runs nothing: says how long it would take by the cost
 * model (hoop_explain_json()), each comm's calls one after the other, comms at the same time.
 * Begin with HOOP_SIM_INFO_INITIALIZER. HOOP_INVALID_USAGE, and the group stays open: it is inside
 * another one, or makes comms.
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
 * Memory that ranks on this machine can map: an operation on it moves no byte twice. RDMA takes
 * large transfers from there, and puts them there, without a copy on either side. bytes may be
 * 0 (then *ptr is NULL). Page aligned, zeroed. Any other memory is allowed in operations too; it
 * goes through staging. HOOP_MEM_DEVICE is memory of the current device, in whole units of what
 * CUDA maps (2 MiB, say); HOOP_UNSUPPORTED where there is no CUDA. Pages of the host are shared
 * with forked children (as MAP_SHARED memory is), not copied on write.
 *
 * A block takes a descriptor until it is freed: a few large blocks are better than many. Its pages
 * appear when they are touched, so success reserves nothing; HOOP_OUT_OF_MEMORY: no address space,
 * no descriptor, or more bytes than the machine has.
 */
HOOP_API hoop_result_t hoop_mem_alloc(void **ptr, size_t bytes, hoop_mem_kind_t kind);

/*
 * Frees what hoop_mem_alloc gave. NULL is allowed; any other pointer is HOOP_INVALID_ARGUMENT. No
 * operation may be using it but what is queued: that goes on, the pointer is dead, and the memory
 * goes when the last that uses it is over. Of a device: waits for it first, as cudaFree() does.
 */
HOOP_API hoop_result_t hoop_mem_free(void *ptr);

/*
 * Announces that buff will be used often. In this version it changes nothing: plain memory cannot
 * be mapped by others, and is never registered with a device. It is there so that programs that
 * register run unchanged. *handle is to be given back to hoop_comm_deregister(), once;
 * HOOP_INVALID_USAGE: comm has no such handle (any more). NULL is allowed.
 */
HOOP_API hoop_result_t hoop_comm_register(hoop_comm_t comm, void *buff, size_t size, void **handle);
HOOP_API hoop_result_t hoop_comm_deregister(hoop_comm_t comm, void *handle);

/* HOOP_UNSUPPORTED in this version: windows. */
typedef struct hoop_window *hoop_window_t;
#define HOOP_WIN_DEFAULT 0x00
#define HOOP_WIN_COLL_SYMMETRIC 0x01
HOOP_API hoop_result_t hoop_comm_window_register(hoop_comm_t comm, void *buff, size_t size,
                                                 hoop_window_t *win, int win_flags);
HOOP_API hoop_result_t hoop_comm_window_deregister(hoop_comm_t comm, hoop_window_t win);

/* ---- Host streams and tickets ------------------------------------------------------------- */

/*
 * A queue of operations on host buffers. A collective, a send or a receive that is given a stream
 * returns when it is queued; its buffers are borrowed until it is complete, everything else is
 * copied. Operations of one stream run one after the other in the order of the calls, those of
 * different streams independently, whatever comms they use; on one comm, blocking calls and queued
 * ones run in the order of the calls. As many may be queued as there is memory for: some 300 bytes
 * each, twice that for a message.
 *
 * A bad argument, and a comm that has failed, are refused by the call itself; a later failure is
 * told by the tickets, by hoop_stream_synchronize() and by hoop_comm_get_async_error(), and does
 * not hold up operations of other comms behind it. The work is done by a thread of hoop's own,
 * which sleeps while there is none, or by a thread that waits for it in a function below.
 *
 * Any thread may use a stream. In a child after fork() it is not usable.
 *
 *     hoop_all_reduce(grad, grad, count, HOOP_FLOAT32, HOOP_AVG, comm, stream);
 *     hoop_stream_record(stream, &ticket);
 *     ...                                                 // compute something else
 *     result = hoop_ticket_wait(ticket, -1);              // now grad may be used
 *
 * HOOP_INVALID_ARGUMENT: the stream was destroyed. HOOP_UNSUPPORTED: it is another kind of handle.
 * At most 4096 at the same time: HOOP_OUT_OF_MEMORY.
 */
HOOP_API hoop_result_t hoop_stream_create(hoop_stream_t *stream);

/*
 * Waits for what is queued, then frees the stream, whatever it returns: as
 * hoop_stream_synchronize(). Tickets stay valid; of the last 64 streams that were destroyed the
 * results stay too, then they are HOOP_OK. NULL is allowed.
 */
HOOP_API hoop_result_t hoop_stream_destroy(hoop_stream_t stream);

/*
 * Waits until everything queued so far is complete; returns the first failure among what was
 * complete since the last call of this function on stream.
 */
HOOP_API hoop_result_t hoop_stream_synchronize(hoop_stream_t stream);

/*
 * HOOP_OK: nothing is queued or running. HOOP_IN_PROGRESS: something is, or was a moment ago: a
 * blocking call that was made after all that is queued may have returned already. Does not block.
 * What is queued is left for less than 0.5 ms to a thread that may come to wait for it; this call
 * has it begun at once.
 */
HOOP_API hoop_result_t hoop_stream_query(hoop_stream_t stream);

/*
 * A descriptor for event loops: readable when a recorded ticket was completed since it was last
 * read (an eventfd, non-blocking: read 8 bytes). Owned by the stream; *fd is the same every time.
 */
HOOP_API hoop_result_t hoop_stream_get_fd(hoop_stream_t stream, int *fd);

/*
 * A ticket is the point that a stream has reached: complete when all work queued before it is.
 * Its result is the first failure among the operations queued between the ticket before it and
 * itself. A plain value: to be copied, kept, forgotten; nothing is to be freed.
 */
typedef struct {
    uint64_t opaque[2];
} hoop_ticket_t;
HOOP_API hoop_result_t hoop_stream_record(hoop_stream_t stream, hoop_ticket_t *ticket);

/*
 * Waits for a ticket, and returns its result; timeout_ms < 0: for as long as the operations may
 * take. HOOP_TIMEOUT before that: it is not complete yet, and nothing else happened;
 * hoop_ticket_query() tells this from an operation whose own deadline has passed. 0 does not wait,
 * but moves what is queued as far as it comes at once, so that it has begun. The results of
 * the last 65536 tickets of a stream are remembered; an older one has the last failure that was
 * forgotten, or HOOP_OK.
 */
HOOP_API hoop_result_t hoop_ticket_wait(hoop_ticket_t ticket, int timeout_ms);

/*
 * The same without waiting: HOOP_IN_PROGRESS while it is not complete. Threads that are ready to
 * run get the CPU before it returns that, as with hoop_stream_query() and
 * hoop_comm_get_async_error(): who asks in a loop keeps nobody from doing the work.
 */
HOOP_API hoop_result_t hoop_ticket_query(hoop_ticket_t ticket);

/* What is queued on stream from now on begins after ticket, of any stream, is complete. */
HOOP_API hoop_result_t hoop_stream_wait_ticket(hoop_stream_t stream, hoop_ticket_t ticket);

/* ---- Looking inside ------------------------------------------------------------------------ */

/*
 * State of a comm (comm NULL: of the process, with its streams) as one JSON object, written to buf
 * with a NUL if it fits in bytes. Of a comm: its ranks and last operations, and under "waiting" the
 * operation that waits now, for what of which rank, and for how many ms: from another thread, this
 * says why a call does not return. *needed gets the bytes it takes, NUL included;
 * HOOP_INVALID_ARGUMENT when that is more than bytes. buf may be NULL with bytes 0, to ask. Does
 * not block.
 */
HOOP_API hoop_result_t hoop_info_json(hoop_comm_t comm, char *buf, size_t bytes, size_t *needed);

/*
 * The plan of a collective ("all_reduce", "broadcast", ... as in the functions' names; not
 * alltoallv, which has one way only) with these arguments, on memory from hoop_mem_alloc(): the
 * algorithm, the alternatives with the time that the cost model gives each, and the HOOP_PROFILE in
 * use. One JSON object, written to buf as hoop_info_json() does. HOOP_INVALID_USAGE: comm was
 * aborted.
 */
HOOP_API hoop_result_t hoop_explain_json(hoop_comm_t comm, const char *collective, size_t count,
                                         hoop_datatype_t datatype, hoop_red_op_t op, char *buf,
                                         size_t bytes, size_t *needed);

/*
 * Walks the table of settings: begin with *cursor 0, repeat while it returns HOOP_OK;
 * HOOP_INVALID_ARGUMENT past the last. The strings are owned by hoop and static but for value,
 * which is valid until the calling thread's next call.
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
