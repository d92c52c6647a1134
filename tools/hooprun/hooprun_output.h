/*
 * hooprun's standard output and standard error: the ranks' tagged lines and its own messages, in
 * whole lines.
 *
 *     rank's stdout -> source -+
 *     rank's stdout -> source -+-> sink 0 -> standard output
 *     rank's stderr -> source ---> sink 1 -> standard error
 *
 * A source keeps the bytes of an unfinished line. A sink keeps what its file does not take yet;
 * while it keeps much its sources are not read, so a slow reader slows the ranks down and not
 * hooprun. If both outputs are the same file they share a sink, because unfinished writes would
 * mix. When a sink's reader is gone its sources are closed, so that the ranks get the broken pipe
 * themselves.
 *
 * Nothing here blocks on a pipe or terminal: these are opened again, without blocking. Where that
 * is not allowed they are written only if poll() allows it, and then at most PIPE_BUF bytes at a
 * time.
 */
#ifndef HOOPRUN_OUTPUT_H
#define HOOPRUN_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/* Longer lines are written as several, each with its tag. */
#define HOOPRUN_LINE_MOST ((size_t)1 << 20)

struct hooprun_output;

/*
 * Returns NULL if there is no memory. If tagged is false there are no sources, and ranks inherit
 * the outputs. Ranks are given by their number on this machine; tags count from first_rank.
 */
struct hooprun_output *hooprun_output_create(int rank_count, int first_rank, bool tagged);
void hooprun_output_destroy(struct hooprun_output *output);

/*
 * Makes a rank's pipes. ret_streams gets the ends for its stdout and stderr, to be closed by
 * hooprun_output_close() once it is started; {-1, -1} if not tagged. False with errno. May be
 * called again for the next attempt, after hooprun_output_finish().
 */
bool hooprun_output_open(struct hooprun_output *output, int local_rank, int ret_streams[2]);
void hooprun_output_close(int streams[2]);

/* Queues one line for standard error; format has no newline. */
void hooprun_output_say(struct hooprun_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The meaning of an errno, and which limit to raise. */
const char *hooprun_reason(int err);

/* The most entries that prepare() writes. */
size_t hooprun_output_poll_most(const struct hooprun_output *output);

/* Writes to fds what to wait for, and returns the number; after poll(), handle() acts on it. */
size_t hooprun_output_prepare(struct hooprun_output *output, struct pollfd *fds);
void hooprun_output_handle(struct hooprun_output *output, const struct pollfd *fds);

/* When all writers are dead: reads what is left in the pipes, and ends unfinished lines. */
void hooprun_output_finish(struct hooprun_output *output);

/* Has everything that was read so far been written? */
bool hooprun_output_flushed(const struct hooprun_output *output);

/* Could something not be written although its reader was there, as on a full disk? */
bool hooprun_output_lost(const struct hooprun_output *output);

#endif
