/* lib/runtime/site: descriptions of addresses of this process, of another one, and of no
 * function. */
#include "runtime/site.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t __attribute__((noinline)) a_static_function(void)
{
    /* the address at which its caller continues */
    return (uint64_t)(uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
}

static uint64_t __attribute__((noinline)) a_caller(void)
{
    volatile uint64_t site = a_static_function();
    return site;
}

static void check_describes(int pid, uint64_t address, const char *function, const char *file)
{
    char text[HOOP_SITE_TEXT_BYTES], there[64];
    hoop_site_describe(pid, address, text, sizeof(text));
    (void)snprintf(there, sizeof(there), "%s+0x", file);
    if (strncmp(text, function, strlen(function)) != 0 || strstr(text, there) == NULL) {
        fail_msg("%s: expected a place in %s, %s", text, function, file);
    }
}

static void test_here(void **state)
{
    (void)state;
    check_describes(getpid(), a_caller(), "a_caller+0x", "test_site");
    /* an address in a library */
    check_describes(getpid(), (uint64_t)(uintptr_t)&getpid + 1, "", "libc.so.6");
}

static void test_there(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    assert_true(child > 0);
    check_describes(child, a_caller(), "a_caller+0x", "test_site");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    char text[HOOP_SITE_TEXT_BYTES];
    hoop_site_describe(child, 0x1234, text, sizeof(text));
    assert_string_equal(text, "0x1234");
}

static void test_nowhere(void **state)
{
    (void)state;
    char text[HOOP_SITE_TEXT_BYTES], little[8];
    hoop_site_describe(getpid(), 1, text, sizeof(text));
    assert_string_equal(text, "0x1");
    hoop_site_describe(getpid(), (uint64_t)(uintptr_t)text, text, sizeof(text)); /* the stack */
    assert_int_equal(strncmp(text, "0x", 2), 0);
    hoop_site_describe(getpid(), a_caller(), little, sizeof(little));
    assert_string_equal(little, "a_calle");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_here),
        cmocka_unit_test(test_there),
        cmocka_unit_test(test_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
