/*
 * hooprun's standard output and standard error: the tagged lines of the ranks, and its own
 * messages, in whole lines.
 *
 *     rank's stdout -> source -+
 *     rank's stdout -> source -+-> sink 0 -> standard output
 *     rank's stderr -> source ---> sink 1 -> standard error
 *
 * A source keeps the bytes of a line until the line ends; a sink keeps what its file does not
 * take yet, and while it keeps much its sources are not read, so that a slow reader slows the
 * ranks and not hooprun. When both outputs are the same file they share a sink, or half-written
 * lines would mix. When the reader of a sink is gone its sources are closed: the ranks then meet
 * the broken pipe themselves.
 *
 * Nothing here blocks on a pipe or terminal: sinks are written when poll says so, and then at
 * most what a pipe promises to take.
 */
#ifndef HOOPRUN_OUTPUT_H
#define HOOPRUN_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/* A longer line is written as several, each with its tag. */
#define HOOPRUN_LINE_MOST ((size_t)1 << 20)

struct hooprun_output;

/*
 * NULL when out of memory. tagged false: there are no sources, the ranks inherit. Ranks are given
 * by their number on this machine; tags begin with first_rank.
 */
struct hooprun_output *hooprun_output_create(int rank_count, int first_rank, bool tagged);
void hooprun_output_destroy(struct hooprun_output *output);

/*
 * Makes the pipes of a rank; ret_streams gets the ends for its stdout and stderr, to be closed
 * with hooprun_output_close() once it is started, or {-1, -1} when not tagged. False with errno.
 * Again for the next attempt, after hooprun_output_finish().
 */
bool hooprun_output_open(struct hooprun_output *output, int local_rank, int ret_streams[2]);
void hooprun_output_close(int streams[2]);

/* Queues one line for standard error; format has no newline. */
void hooprun_output_say(struct hooprun_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What an errno means, and which limit to raise. */
const char *hooprun_reason(int err);

/* How many entries prepare() writes at most. */
size_t hooprun_output_poll_most(const struct hooprun_output *output);

/* Writes what to wait for to fds and returns how many; after poll, handle() acts on them. */
size_t hooprun_output_prepare(struct hooprun_output *output, struct pollfd *fds);
void hooprun_output_handle(struct hooprun_output *output, const struct pollfd *fds);

/* When all writers are dead: takes what is left in the pipes, and last lines without an end. */
void hooprun_output_finish(struct hooprun_output *output);

/* True when everything taken so far was written. */
bool hooprun_output_flushed(const struct hooprun_output *output);

/* True when something could not be written although its reader was there: a full disk. */
bool hooprun_output_lost(const struct hooprun_output *output);

#endif
