/* The fake driver: words that streams wait for and write, and host functions. */
#include "fakes/fake_cuda_inside.h"

static int push_word(hoop_stream_t stream, hoop_cu_address_t at, const struct fake_task *what)
{
    pthread_mutex_lock(&fake_lock);
    struct fake_task task = *what;
    task.word = fake_host_of(at, sizeof(uint32_t));
    const int result = !fake_is_current(stream) ? HOOP_CU_INVALID_HANDLE
                       : task.word != NULL      ? fake_push(stream, &task)
                                                : HOOP_CU_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return result;
}

int fake_stream_wait_value(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value,
                           unsigned flags)
{
    const struct fake_task task = {.kind = FAKE_VALUE, .number = value};
    return flags == HOOP_CU_WAIT_VALUE_GEQ ? push_word(stream, at, &task) : HOOP_CU_INVALID_VALUE;
}

int fake_stream_write_value(hoop_stream_t stream, hoop_cu_address_t at, uint32_t value,
                            unsigned flags)
{
    const struct fake_task task = {.kind = FAKE_WRITE, .number = value};
    return flags == 0 ? push_word(stream, at, &task) : HOOP_CU_INVALID_VALUE;
}

int fake_host_function(hoop_stream_t stream, hoop_cu_host_fn_t *fn, void *arg)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_task task = {.kind = FAKE_HOST, .fn = fn, .arg = arg};
    const int result = fake_is_current(stream) ? fake_push(stream, &task) : HOOP_CU_INVALID_HANDLE;
    pthread_mutex_unlock(&fake_lock);
    return result == FAKE_ILLEGAL_ADDRESS ? HOOP_CU_SUCCESS : result;
}
