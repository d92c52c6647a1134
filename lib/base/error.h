/*
 * Errors: one result type from the public API to the last static function, and one sentence.
 *
 * The first function that knows which error it is records the sentence, in a struct hoop_failure
 * of the object that failed (a comm, a job), or for the calling thread. Everybody above only
 * passes the code on. The first failure recorded in a struct stays: later ones are dropped.
 */
#ifndef HOOP_BASE_ERROR_H
#define HOOP_BASE_ERROR_H

#include "hoop.h"
#include <stdarg.h>
#include <stdbool.h>

/*
 * Internal: "not now". A call that returned it changed nothing; it never leaves the library.
 */
#define HOOP_AGAIN ((hoop_result_t)1000)

#define HOOP_FAILURE_TEXT_BYTES 368

/* What failed, and whose doing it was. Plain data of fixed size: it also lives in shared memory. */
struct hoop_failure {
    hoop_result_t code; /* HOOP_OK: nothing failed yet */
    int32_t rank;       /* the rank at fault, -1 when it is nobody's or unknown */
    char text[HOOP_FAILURE_TEXT_BYTES];
};

#define HOOP_PRINTF(string, first) __attribute__((format(printf, string, first)))

/*
 * Records code and the sentence in f unless f holds a failure already, and returns the code that
 * f holds now. Not synchronised: f has one writer. f NULL: hoop_error(). A sentence that is too
 * long is cut between characters and ends in "...". code is a failure, or HOOP_OK: then f stays
 * as it is.
 */
hoop_result_t hoop_failure_set(struct hoop_failure *f, hoop_result_t code, int rank,
                               const char *format, ...) HOOP_PRINTF(4, 5);

/*
 * Records the sentence for the calling thread (hoop_get_last_error(NULL)) and returns code. The
 * arguments may include hoop_thread_error(). HOOP_OK: forgets the sentence.
 */
hoop_result_t hoop_error(hoop_result_t code, const char *format, ...) HOOP_PRINTF(2, 3);

/*
 * The calling thread's sentence; "" when there is none, the text of the result where no memory was
 * left for it. Valid until its next hoop_error().
 */
const char *hoop_thread_error(void);

/* A failure's sentence, copied for the calling thread; valid until its next hoop_failure_copy(). */
const char *hoop_failure_copy(const struct hoop_failure *f);

/*
 * The calling thread's sentence, which came with code, into a failure: as hoop_failure_set(). Other
 * ranks read it, too: it begins with the rank, unless that is -1. Returns the code that *f holds
 * now.
 */
hoop_result_t hoop_failure_take(struct hoop_failure *f, hoop_result_t code, int rank);

/* ENOMEM and friends to HOOP_OUT_OF_MEMORY, ETIMEDOUT to HOOP_TIMEOUT, else HOOP_SYSTEM_ERROR. */
hoop_result_t hoop_from_errno(int err);

/* The same with a sentence, of what could not be done: "cannot make a socket: EMFILE (raise ulimit
 * -n)". */
hoop_result_t hoop_errno_error(int err, const char *format, ...) HOOP_PRINTF(2, 3);

/* The symbolic name of an errno ("ECONNREFUSED"), for sentences. Static. */
const char *hoop_errno_name(int err);

/* Does a text hold what could disturb a log or a terminal: C0, DEL, C1, also in UTF-8? */
bool hoop_text_has_control(const char *text);
/* Puts a space in its place. */
void hoop_text_clean(char *text);

/*
 * vsnprintf() that never cuts inside a UTF-8 character; a text that was cut ends in "...". In the
 * place of what could disturb a terminal is a space: what is quoted may come from anywhere. Returns
 * the length of what is in buf. bytes is at least 4.
 */
size_t hoop_text_format(char *buf, size_t bytes, const char *format, va_list args)
    HOOP_PRINTF(3, 0);
/* Adds to a text that ends at *at, 0 at first, and fits into so many bytes; else it is cut. */
void hoop_text_append(char *buf, size_t bytes, size_t *at, const char *format, ...)
    HOOP_PRINTF(4, 5);

#endif
