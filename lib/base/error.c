/*
 * Texts of results, and the two places that hold an error's sentence: a struct hoop_failure and the
 * calling thread. Nothing here logs: the code that reports a failure to the user does.
 */
#include "base/error.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A thread's texts: allocated at first use, freed when the thread ends. Not _Thread_local, because
 * all libraries that a program loads with dlopen() share less than 2 KiB of that.
 */
struct error_texts {
    char sentence[HOOP_FAILURE_TEXT_BYTES];
    char copy[HOOP_FAILURE_TEXT_BYTES]; /* what hoop_failure_copy() returned */
};

static pthread_once_t error_once = PTHREAD_ONCE_INIT;
static pthread_key_t error_key;
static bool error_has_key;
/* The thread's last failure if there was no memory for its sentence; otherwise HOOP_OK. */
static _Thread_local hoop_result_t error_unsaid;

static void error_make_key(void)
{
    error_has_key = pthread_key_create(&error_key, free) == 0;
}

/* The calling thread's texts, made if `make` says so; NULL if there are none. */
static struct error_texts *error_texts(bool make)
{
    pthread_once(&error_once, error_make_key);
    struct error_texts *texts = error_has_key ? pthread_getspecific(error_key) : NULL;
    if (texts == NULL && error_has_key && make) {
        texts = calloc(1, sizeof(*texts));
        if (texts != NULL && pthread_setspecific(error_key, texts) != 0) {
            free(texts);
            texts = NULL;
        }
    }
    return texts;
}

const char *hoop_get_error_string(hoop_result_t result)
{
    switch ((int)result) {
#define ERROR_TEXT(name, value, text)                                                              \
    case value:                                                                                    \
        return text;
        HOOP_RESULTS(ERROR_TEXT)
#undef ERROR_TEXT
    default:
        return "unknown result";
    }
}

const char *hoop_get_error_name(hoop_result_t result)
{
    switch ((int)result) {
#define ERROR_NAME(name, value, text)                                                              \
    case value:                                                                                    \
        return #name;
        HOOP_RESULTS(ERROR_NAME)
#undef ERROR_NAME
    default:
        return "unknown result";
    }
}

bool hoop_is_failure(int32_t code)
{
    switch (code) {
#define ERROR_CODE(name, value, text) case value:
        HOOP_RESULTS(ERROR_CODE)
#undef ERROR_CODE
        return code != HOOP_OK && code != HOOP_IN_PROGRESS;
    default:
        return false;
    }
}

/* The length of the UTF-8 character at `at`, 1 if malformed. Is it a control character? */
static size_t error_text_character(const unsigned char *at, bool *ret_control)
{
    const size_t whole = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc0 ? 2 : 1;
    size_t bytes = 1;
    while (bytes < whole && (at[bytes] & 0xc0) == 0x80) {
        bytes++;
    }
    if (bytes < whole || whole == 1) { /* alone, 0x80 to 0x9f is C1 in Latin-1 */
        *ret_control = at[0] < 0x20 || (at[0] >= 0x7f && at[0] < 0xa0);
        return 1;
    }
    /* U+0080 to U+009F, and overlong encodings, in which some decoders find an ESC */
    *ret_control = at[0] < 0xc2 || (at[0] == 0xc2 && at[1] < 0xa0) ||
                   (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    return bytes;
}

bool hoop_text_has_control(const char *text)
{
    bool control = false;
    for (const unsigned char *at = (const unsigned char *)text; *at != 0 && !control;) {
        at += error_text_character(at, &control);
    }
    return control;
}

void hoop_text_clean(char *text)
{
    while (*text != '\0') {
        bool control;
        const size_t bytes = error_text_character((const unsigned char *)text, &control);
        if (control) {
            memset(text, ' ', bytes);
        }
        text += bytes;
    }
}

size_t hoop_text_format(char *buf, size_t bytes, const char *format, va_list args)
{
    static const char ellipsis[] = "...";
    assert(bytes >= sizeof(ellipsis));
    const int length = vsnprintf(buf, bytes, format, args);
    if (length < 0) {
        buf[0] = '\0';
        return 0;
    }
    size_t end = (size_t)length;
    if (end >= bytes) {
        end = bytes - sizeof(ellipsis);
        while (end > 0 && ((unsigned char)buf[end] & 0xc0) == 0x80) {
            end--;
        }
        memcpy(buf + end, ellipsis, sizeof(ellipsis));
        end += sizeof(ellipsis) - 1;
    }
    hoop_text_clean(buf);
    return end;
}

/* Formats into a buffer of its own, because an argument may be the very text that is replaced. */
HOOP_PRINTF(2, 0)
static void error_record(char *text, const char *format, va_list args)
{
    char fresh[HOOP_FAILURE_TEXT_BYTES];
    const size_t length = hoop_text_format(fresh, sizeof(fresh), format, args);
    memcpy(text, fresh, length + 1);
}

HOOP_PRINTF(2, 0)
static hoop_result_t error_set_thread(hoop_result_t code, const char *format, va_list args)
{
    struct error_texts *texts = error_texts(code != HOOP_OK);
    error_unsaid = texts == NULL ? code : HOOP_OK;
    if (texts != NULL && code == HOOP_OK) {
        texts->sentence[0] = '\0';
    } else if (texts != NULL) {
        error_record(texts->sentence, format, args);
    }
    return code;
}

void hoop_text_append(char *buf, size_t bytes, size_t *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (bytes - *at >= sizeof("...")) {
        *at += hoop_text_format(buf + *at, bytes - *at, format, args);
    }
    va_end(args);
}

hoop_result_t hoop_failure_set(struct hoop_failure *f, hoop_result_t code, int rank,
                               const char *format, ...)
{
    assert(code != HOOP_AGAIN && code != HOOP_IN_PROGRESS);
    va_list args;
    va_start(args, format);
    if (f == NULL) {
        error_set_thread(code, format, args);
    } else if (f->code == HOOP_OK && code != HOOP_OK) {
        error_record(f->text, format, args);
        f->rank = rank;
        f->code = code;
    }
    va_end(args);
    return f == NULL ? code : f->code;
}

hoop_result_t hoop_error(hoop_result_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_set_thread(code, format, args);
    va_end(args);
    return code;
}

const char *hoop_thread_error(void)
{
    const struct error_texts *texts = error_texts(false);
    if (error_unsaid != HOOP_OK) {
        return hoop_get_error_string(error_unsaid);
    }
    return texts == NULL ? "" : texts->sentence;
}

const char *hoop_failure_copy(const struct hoop_failure *f)
{
    struct error_texts *texts = error_texts(true);
    if (texts == NULL) {
        return hoop_get_error_string(f->code);
    }
    memcpy(texts->copy, f->text, sizeof(texts->copy));
    return texts->copy;
}

hoop_result_t hoop_failure_take(struct hoop_failure *f, hoop_result_t code, int rank)
{
    return rank < 0 ? hoop_failure_set(f, code, rank, "%s", hoop_thread_error())
                    : hoop_failure_set(f, code, rank, "rank %d: %s", rank, hoop_thread_error());
}

hoop_result_t hoop_from_errno(int err)
{
    switch (err) {
    case ENOMEM:
    case ENOBUFS:
        return HOOP_OUT_OF_MEMORY;
    case ETIMEDOUT:
        return HOOP_TIMEOUT;
    default:
        return HOOP_SYSTEM_ERROR;
    }
}

const char *hoop_errno_name(int err)
{
    const char *name = strerrorname_np(err);
    return name != NULL ? name : "unknown errno";
}

/* Which limit to raise, if the error is about a limit. */
static const char *errno_advice(int err)
{
    return err == EMFILE ? " (raise ulimit -n)" : err == ENFILE ? " (raise fs.file-max)" : "";
}

hoop_result_t hoop_null_error(const char *function, const char *what)
{
    return hoop_error(HOOP_INVALID_ARGUMENT, "%s: %s is NULL", function, what);
}

hoop_result_t hoop_errno_error(int err, const char *format, ...)
{
    const hoop_result_t code = hoop_from_errno(err);
    va_list args;
    va_start(args, format);
    error_set_thread(code, format, args);
    va_end(args);
    /* cut so that errno's name and the advice still fit */
    return hoop_error(code, "%.300s: %s%s", hoop_thread_error(), hoop_errno_name(err),
                      errno_advice(err));
}
