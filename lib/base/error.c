/*
 * Texts of results, sentences of failures, and the two homes of a sentence: a struct hoop_failure
 * and the calling thread. Nothing here logs: the code that reports a failure to the user does.
 */
#include "base/error.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_sentence[HOOP_FAILURE_TEXT_BYTES];

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

size_t hoop_text_format(char *buf, size_t bytes, const char *format, va_list args)
{
    static const char ellipsis[] = "...";
    assert(bytes >= sizeof(ellipsis));
    const int length = vsnprintf(buf, bytes, format, args);
    if (length < 0) {
        buf[0] = '\0';
        return 0;
    }
    if ((size_t)length < bytes) {
        return (size_t)length;
    }
    size_t end = bytes - sizeof(ellipsis);
    while (end > 0 && ((unsigned char)buf[end] & 0xc0) == 0x80) {
        end--;
    }
    memcpy(buf + end, ellipsis, sizeof(ellipsis));
    return end + sizeof(ellipsis) - 1;
}

/* By way of a buffer of its own: an argument may be the sentence that is being replaced. */
static void error_record(char *text, const char *format, va_list args) HOOP_PRINTF(2, 0);
static void error_record(char *text, const char *format, va_list args)
{
    char fresh[HOOP_FAILURE_TEXT_BYTES];
    const size_t length = hoop_text_format(fresh, sizeof(fresh), format, args);
    memcpy(text, fresh, length + 1);
}

static hoop_result_t error_set_thread(hoop_result_t code, const char *format, va_list args)
    HOOP_PRINTF(2, 0);
static hoop_result_t error_set_thread(hoop_result_t code, const char *format, va_list args)
{
    if (code == HOOP_OK) {
        error_sentence[0] = '\0';
    } else {
        error_record(error_sentence, format, args);
    }
    return code;
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
    return error_sentence;
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
