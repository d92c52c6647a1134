/*
 * Errors: one result type from the public API down to the last static function, and one sentence
 * that explains it.
 *
 * The first function that knows the error records the sentence, either in the struct hoop_failure
 * of the object that failed (a comm, a job) or for the calling thread. Its callers only pass the
 * code on. A struct keeps the first failure; later ones are dropped.
 */
#ifndef HOOP_BASE_ERROR_H
#define HOOP_BASE_ERROR_H

#include "hoop.h"
#include <stdarg.h>
#include <stdbool.h>

/* Internal: "not now". The call that returned it changed nothing. It never leaves the library. */
#define HOOP_AGAIN ((hoop_result_t)1000)

#define HOOP_FAILURE_TEXT_BYTES 368

/* What failed, and at which rank. Plain data of fixed size: it also lives in shared memory. */
struct hoop_failure {
    hoop_result_t code; /* HOOP_OK: nothing failed yet */
    int32_t rank;       /* the rank at fault; -1 if none is, or it is unknown */
    char text[HOOP_FAILURE_TEXT_BYTES];
};

/* Is it a failure of the public list? HOOP_AGAIN is not. For codes that another process wrote. */
bool hoop_is_failure(int32_t code);

#define HOOP_PRINTF(string, first) __attribute__((format(printf, string, first)))

/*
 * Records code and sentence in f unless f already holds a failure. Returns the code that f holds
 * afterwards. Not synchronised: f has one writer. If f is NULL this is hoop_error(). A sentence
 * that is too long is cut between characters and ends in "...". HOOP_OK as code leaves f as it is.
 */
hoop_result_t hoop_failure_set(struct hoop_failure *f, hoop_result_t code, int rank,
                               const char *format, ...) HOOP_PRINTF(4, 5);

/*
 * Records the sentence for the calling thread (hoop_get_last_error(NULL)) and returns code. The
 * arguments may include hoop_thread_error(). HOOP_OK clears the sentence.
 */
hoop_result_t hoop_error(hoop_result_t code, const char *format, ...) HOOP_PRINTF(2, 3);

/*
 * The calling thread's sentence: "" if there is none, the result's generic text if there was no
 * memory for it. Valid until the thread's next hoop_error().
 */
const char *hoop_thread_error(void);

/* Copies f's sentence for the calling thread; valid until the thread's next hoop_failure_copy(). */
const char *hoop_failure_copy(const struct hoop_failure *f);

/*
 * Moves the calling thread's sentence, which came with code, into f, as hoop_failure_set() does.
 * Since other ranks read it too, it is prefixed with the rank, unless that is -1. Returns the code
 * that f holds afterwards.
 */
hoop_result_t hoop_failure_take(struct hoop_failure *f, hoop_result_t code, int rank);

/* Is it for want of memory or descriptors, or by a system call that failed: a fault of whoever says
 * it, and of nobody at the other end? */
static inline bool hoop_result_is_own(hoop_result_t code)
{
    return code == HOOP_SYSTEM_ERROR || code == HOOP_OUT_OF_MEMORY;
}

/* HOOP_OUT_OF_MEMORY for ENOMEM and ENOBUFS, HOOP_TIMEOUT for ETIMEDOUT, else HOOP_SYSTEM_ERROR. */
hoop_result_t hoop_from_errno(int err);

/* The same, and records a sentence that begins with what format says failed: "cannot make a socket:
 * EMFILE (raise ulimit -n)". */
hoop_result_t hoop_errno_error(int err, const char *format, ...) HOOP_PRINTF(2, 3);

/* HOOP_INVALID_ARGUMENT: "function: what is NULL". */
hoop_result_t hoop_null_error(const char *function, const char *what);

/* The symbolic name of an errno ("ECONNREFUSED"), for sentences. Static. */
const char *hoop_errno_name(int err);

/* Does the text contain control characters (C0, DEL, C1, also as UTF-8)? */
bool hoop_text_has_control(const char *text);
/* Replaces them by spaces. */
void hoop_text_clean(char *text);

/*
 * vsnprintf() that never cuts inside a UTF-8 character; a text that was cut ends in "...". Control
 * characters become spaces, since quoted text may come from anywhere. Returns the length of the
 * text in buf. bytes is at least 4.
 */
size_t hoop_text_format(char *buf, size_t bytes, const char *format, va_list args)
    HOOP_PRINTF(3, 0);
/* Appends to the text in buf[bytes], of length *at, which is advanced. Cuts as above. */
void hoop_text_append(char *buf, size_t bytes, size_t *at, const char *format, ...)
    HOOP_PRINTF(4, 5);

#endif
