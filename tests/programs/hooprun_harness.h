/*
 * Runs hooprun for the tests and looks at what it leaves. The ranks are small shell scripts.
 *
 * A run's output is read to its end, which comes only when every process that inherited it is
 * dead; processes are also looked for in /proc by a marker: a number of seconds nobody else
 * sleeps. Every wait has a deadline; a wait that passes it fails the test. Main thread only.
 */
#ifndef HOOPRUN_HARNESS_H
#define HOOPRUN_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/types.h>

#define HOOP_RUN_DEADLINE_MS 20000

struct hoop_text {
    int fd;     /* -1: the end was read */
    char *data; /* with a NUL at its end */
    size_t used, room;
};

struct hoop_run {
    pid_t pid;
    struct hoop_text out, err;
};

/* The launcher under test. */
extern const char *hoop_run_program;

/* Takes the launcher from argv[1]. False, with a message: it does not exist. */
bool hoop_run_setup(int argc, char **argv);

/* A signal that hooprun ignores when it is started; 0: none. */
extern int hoop_run_ignored;

/* Is hooprun started in a process group of its own, as by a shell with job control? */
extern bool hoop_run_grouped;

/* Starts hooprun with words up to NULL; input becomes its standard input. */
void hoop_run_start(struct hoop_run *run, const char *input, const char *const *words);

/* Reads until word was printed `count` times on standard output; word NULL: to the end. */
void hoop_run_read(struct hoop_run *run, const char *word, int count);

/* Reads to the end and reaps. Returns the exit code, or 1000 + signal if a signal killed it. */
int hoop_run_end(struct hoop_run *run);
void hoop_run_finish(struct hoop_run *run);

/* hoop_run_start() and hoop_run_end(). */
int hoop_run_all(struct hoop_run *run, const char *const *words);

#define START(run, ...) hoop_run_start(run, "", (const char *const[]){__VA_ARGS__, NULL})
#define RUN(run, ...) hoop_run_all(run, (const char *const[]){__VA_ARGS__, NULL})

/* Reads once. */
void hoop_text_read(struct hoop_text *text);
int hoop_text_count(const struct hoop_text *text, const char *word);

#define assert_says(text, word) assert_int_equal(hoop_text_count(&(text), word), 1)
#define assert_silent(text) assert_int_equal((text).used, 0)

int64_t hoop_run_now_ms(void);
void hoop_run_pause(void);

/* In a forked child: resets signals that this test was started to ignore. */
void hoop_run_signals_default(void);

/* A number of seconds for sleep that is in no other process's command line. */
const char *hoop_marker_new(void);

/* The script with the marker in place of every %s; valid until the next call. */
const char *hoop_script_with(const char *marker, const char *script);

/* How many processes have this word in their command line. */
int hoop_processes_with(const char *word);

/* Waits until no process has the marker. */
void hoop_assert_gone(const char *marker);

#endif
