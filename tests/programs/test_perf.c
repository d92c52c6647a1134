/*
 * The pure parts of the benchmarks: options, numbers, the table, JSON. Inputs and their check are
 * tested in test_perf_data.c; what a whole run prints and returns, by test_perf_run.sh.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "perf/perf_ranks.h"

/* ---- Options ------------------------------------------------------------------------------ */

#define MOST_ARGS 16

/* Parses a command line given as one string. */
static bool parse(const char *line, struct perf_options *options, int *code, FILE *out)
{
    static char copy[512];
    static char name[] = "perf";
    char *argv[MOST_ARGS + 1] = {name};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < MOST_ARGS; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return perf_options_parse(argc, argv, out, NULL, options, code);
}

static struct perf_options parsed(const char *line)
{
    struct perf_options options;
    int code = -1;
    assert_true(parse(line, &options, &code, NULL));
    assert_int_equal(code, PERF_SUCCESS);
    return options;
}

static int refused(const char *line)
{
    struct perf_options options;
    int code = -1;
    assert_false(parse(line, &options, &code, NULL));
    return code;
}

static void test_defaults(void **state)
{
    (void)state;
    struct perf_options options = parsed("");
    assert_int_equal(options.threads, 1);
    assert_int_equal(options.gpus, 1);
    assert_int_equal(options.min_bytes, 32 << 20);
    assert_int_equal(options.max_bytes, 32 << 20);
    assert_int_equal(options.step_bytes, 1 << 20);
    assert_int_equal(options.step_factor, 1);
    assert_int_equal(options.iters, 20);
    assert_int_equal(options.agg_iters, 1);
    assert_int_equal(options.warmup_iters, 1);
    assert_int_equal(options.cycles, 1);
    assert_int_equal(options.checks, 1);
    assert_int_equal(options.op, HOOP_SUM);
    assert_int_equal(options.type, HOOP_FLOAT32);
    assert_int_equal(options.root, 0);
    assert_int_equal(options.average, PERF_AVERAGE_MEAN);
    assert_int_equal(options.memory, PERF_MEMORY_PLAIN);
    assert_int_equal(options.timeout_s, 0);
    assert_null(options.json_path);
    assert_int_equal(options.bound, 1);
}

static void test_short_and_long(void **state)
{
    (void)state;
    struct perf_options options = parsed("-b 8 -e4M -f 2 -d double -o max -t 3 -R 2 -J x.json");
    assert_int_equal(options.min_bytes, 8);
    assert_int_equal(options.max_bytes, 4 << 20);
    assert_int_equal(options.step_factor, 2);
    assert_int_equal(options.type, HOOP_FLOAT64);
    assert_int_equal(options.op, HOOP_MAX);
    assert_int_equal(options.threads, 3);
    assert_int_equal(options.memory, PERF_MEMORY_HOOP);
    assert_string_equal(options.json_path, "x.json");
    options = parsed("--minbytes=1k --maxbytes 3g --datatype=all --op=all --iters=7 --no-bound");
    assert_int_equal(options.min_bytes, 1024);
    assert_true(options.max_bytes == (size_t)3 << 30);
    assert_int_equal(options.type, PERF_ALL);
    assert_int_equal(options.op, PERF_ALL);
    assert_int_equal(options.iters, 7);
    assert_int_equal(options.bound, 0);
    assert_int_equal(parsed("-r -1").root, PERF_ALL);
    assert_int_equal(parsed("-r all").root, 0);
}

static void test_unknown_names_go_on(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    struct perf_options options;
    int code = -1;
    assert_non_null(out);
    assert_true(parse("-d fish -o eel", &options, &code, out));
    fclose(out);
    assert_string_equal(text, "invalid type fish, defaulting to float .. \n"
                              "invalid op eel, defaulting to sum .. \n");
    free(text);
    assert_int_equal(options.type, HOOP_FLOAT32);
    assert_int_equal(options.op, HOOP_SUM);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(refused("-h"), PERF_SUCCESS);
    assert_int_equal(refused("--help"), PERF_SUCCESS);
    assert_int_equal(refused("--unheard-of"), PERF_SUCCESS);
    assert_int_equal(refused("-b"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b 8 --maxbytes"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b x"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b 8Q"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b 8MM"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b -8"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-e 99999999999999999999"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-e 18446744073709551615K"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b 8 -e 4"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-b 8 M -e 64M"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-t 0"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-t 1x"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-m 0"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-a 4"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-R 3"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-z 4"), PERF_BAD_ARGUMENT);
    assert_int_equal(refused("-G 1"), PERF_NOT_IMPLEMENTED);
    assert_int_equal(refused("-D 1"), PERF_NOT_IMPLEMENTED);
}

/* The sizes of a sweep, as one string. */
static const char *sizes_of(const char *line)
{
    static char text[256];
    struct perf_options options = parsed(line);
    size_t bytes = options.min_bytes;
    size_t at = 0;
    do {
        at += (size_t)snprintf(text + at, sizeof text - at, "%zu ", bytes);
    } while (at < sizeof text - 32 && perf_options_next_size(&options, bytes, &bytes));
    return text;
}

static void test_sizes(void **state)
{
    (void)state;
    assert_string_equal(sizes_of("-b 4 -e 64 -f 4"), "4 16 64 ");
    assert_string_equal(sizes_of("-b 4 -e 65 -f 4"), "4 16 64 ");
    assert_string_equal(sizes_of("-b 8 -e 24 -i 8"), "8 16 24 ");
    assert_string_equal(sizes_of("-b 8 -e 24 -i 8 -f 2"), "8 16 ");
    assert_string_equal(sizes_of("-b 0 -e 4 -f 2"), "0 1 2 4 ");
    assert_string_equal(sizes_of("-b 8 -e 24 -i 0"), "8 ");
    assert_string_equal(sizes_of("-b 3G -e 1048576G -f 18446744073709551615"), "3221225472 ");
}

/* ---- Numbers and the table ---------------------------------------------------------------- */

static void assert_number(double value, int width, const char *want)
{
    char text[PERF_NUMBER_BYTES];
    perf_report_number(value, width, text);
    assert_string_equal(text, want);
}

static void test_numbers(void **state)
{
    (void)state;
    assert_number(0, 7, "   0.00");
    assert_number(16.04, 7, "  16.04");
    assert_number(9999.99, 7, "9999.99");
    assert_number(9999.996, 7, "10000.0");
    assert_number(99999.96, 7, " 100000");
    assert_number(9999999, 7, "9999999");
    assert_number(12345678, 7, "1.2e+07");
    assert_number(999.99, 6, "999.99");
    assert_number(1234.56, 6, "1234.6");
    assert_number(123456, 6, "123456");
    assert_number(12345678, 6, " 1e+07");
}

static void test_stats(void **state)
{
    (void)state;
    double values[200];
    struct perf_stats stats;
    for (int i = 0; i < 200; i++) {
        values[i] = 200 - i;
    }
    perf_report_stats(values, 200, &stats);
    assert_true(stats.min == 1 && stats.max == 200 && stats.mean == 100.5);
    assert_true(stats.p50 == 100 && stats.p95 == 190 && stats.p99 == 198);
    double one = 5;
    perf_report_stats(&one, 1, &stats);
    assert_true(stats.min == 5 && stats.p99 == 5 && stats.deviation == 0);
    double four[] = {1, 3, 1, 3};
    perf_report_stats(four, 4, &stats);
    assert_true(stats.deviation == 1 && stats.p99 == 3);
}

static const struct perf_collective fake_collective = {.program = "all_reduce_perf"};

/* A report that is written to memory. */
struct sheet {
    char *text;
    size_t length;
    struct perf_options options;
    struct perf_report report;
};

static void sheet_open(struct sheet *sheet, const char *options)
{
    *sheet = (struct sheet){.options = parsed(options)};
    sheet->report.options = &sheet->options;
    sheet->report.out = open_memstream(&sheet->text, &sheet->length);
    assert_non_null(sheet->report.out);
}

static void sheet_close(struct sheet *sheet, const char *want)
{
    fclose(sheet->report.out);
    assert_string_equal(sheet->text, want);
    free(sheet->text);
}

static void test_table(void **state)
{
    (void)state;
    struct sheet sheet;
    struct perf_row row = {
        .bytes = 1048576, .count = 262144, .type = "float", .op = "sum", .root = -1};
    row.half[0] =
        (struct perf_half){.seconds = 16.04e-6, .alg = 65.372, .bus = 65.372, .checked = true};
    row.half[1] = (struct perf_half){
        .seconds = 15.92e-6, .alg = 65.865, .bus = 65.865, .checked = true, .wrong = 3};
    struct perf_tally tally = {65.372 + 65.865, 2, 1};
    sheet_open(&sheet, "");
    perf_report_head(&sheet.report);
    perf_report_row_begin(&sheet.report, &row);
    perf_report_half(&sheet.report, &row, 0);
    perf_report_half(&sheet.report, &row, 1);
    perf_report_row_end(&sheet.report, &row);
    perf_report_close(&sheet.report, &fake_collective, &tally, -1, NULL);
    sheet_close(
        &sheet,
        "#\n"
        "#                                                              out-of-place              "
        "         in-place          \n"
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong    "
        " time   algbw   busbw  #wrong \n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            "
        " (us)  (GB/s)  (GB/s)         \n"
        "     1048576        262144     float     sum      -1    16.04   65.37   65.37       0    "
        "15.92   65.86   65.86       3\n"
        "# Out of bounds values : 1 FAILED\n"
        "# Avg bus bandwidth    : 65.6185 \n"
        "#\n"
        "# Collective test concluded: all_reduce_perf\n"
        "#\n");
}

static void test_unchecked_row_and_demand(void **state)
{
    (void)state;
    struct sheet sheet;
    struct perf_row row = {.bytes = 8, .count = 2, .type = "float", .op = "none", .root = 0};
    struct perf_tally tally = {10, 2, 0};
    row.half[0].seconds = 2e-6;
    row.half[0].damage = 4;
    sheet_open(&sheet, "");
    perf_report_row_begin(&sheet.report, &row);
    perf_report_half(&sheet.report, &row, 0);
    perf_report_half(&sheet.report, &row, 1);
    perf_report_row_end(&sheet.report, &row);
    perf_report_close(&sheet.report, &fake_collective, &tally, 5.5, NULL);
    sheet_close(&sheet,
                "           8             2     float    none       0     2.00    0.00    0.00    "
                "N/A     0.00    0.00    0.00    N/A\n"
                "# 4 bytes outside the receive buffers were written\n"
                "# Out of bounds values : 0 OK\n"
                "# Avg bus bandwidth    : 5 OK\n"
                "#\n"
                "# Collective test concluded: all_reduce_perf\n"
                "#\n");
    assert_true(perf_report_fast_enough(&tally, -1));
    assert_true(perf_report_fast_enough(&tally, 5.5));
    assert_false(perf_report_fast_enough(&tally, 5.6));
}

static void test_more_columns(void **state)
{
    (void)state;
    struct sheet sheet;
    struct perf_row row = {.bytes = 8, .count = 2, .type = "float", .op = "sum", .root = -1};
    sheet_open(&sheet, "-I 1 -C 1");
    row.half[0].cpu_seconds = 7e-6;
    row.half[0].stats =
        (struct perf_stats){.min = 1e-6, .max = 4e-6, .mean = 2e-6, .p99 = 3e-6, .deviation = 1e-6};
    perf_report_head(&sheet.report);
    perf_report_row_begin(&sheet.report, &row);
    perf_report_half(&sheet.report, &row, 0);
    fflush(sheet.report.out);
    assert_non_null(strstr(sheet.text, "root  cputime   algbw   busbw  #wrong    i_min    i_max    "
                                       "i_p99    i_cv%  cputime   algbw"));
    assert_non_null(strstr(sheet.text, "     7.00    0.00    0.00    N/A     1.00     4.00     "
                                       "3.00    50.00"));
    fclose(sheet.report.out);
    free(sheet.text);
}

/* ---- Progress ----------------------------------------------------------------------------- */

static const char *shown(bool behind_row, size_t rows)
{
    static char text[200];
    char *written = NULL;
    size_t length = 0;
    struct perf_progress progress = {open_memstream(&written, &length), behind_row, 3, rows};
    assert_non_null(progress.out);
    perf_progress_show(&progress, "timing");
    perf_progress_clear(&progress);
    fclose(progress.out);
    snprintf(text, sizeof text, "%s", written);
    free(written);
    return text;
}

static void test_progress(void **state)
{
    (void)state;
    assert_string_equal(shown(true, 24), "\0337\033[J  row 3 of 24: timing\0338\033[J");
    assert_string_equal(shown(false, 0), "\r\033[J  row 3: timing\r\033[J");
    struct perf_progress progress;
    FILE *file = tmpfile();
    assert_non_null(file);
    perf_progress_init(&progress, file, file, 7); /* not a terminal */
    assert_null(progress.out);
    perf_progress_show(&progress, "timing");
    perf_progress_clear(&progress);
    fclose(file);
    struct perf_options options = parsed("-b 8 -e 64 -f 2");
    assert_int_equal(perf_options_sizes(&options), 4);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void write_sample(struct perf_json *json)
{
    perf_json_begin(json, NULL, '{');
    perf_json_string(json, "text", "a\"b\\c\n\x01");
    perf_json_begin(json, "list", '[');
    perf_json_integer(json, NULL, -3);
    perf_json_size(json, NULL, 3);
    perf_json_end(json);
    perf_json_begin(json, "empty", '[');
    perf_json_end(json);
    perf_json_double(json, "nan", NAN);
    perf_json_begin(json, "open", '{');
    perf_json_bool(json, "yes", true);
    perf_json_double(json, "half", 0.5);
}

static void test_json(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    struct perf_json json;
    perf_json_attach(&json, open_memstream(&text, &length));
    write_sample(&json);
    assert_true(perf_json_close(&json)); /* closes the two objects that are still open */
    assert_string_equal(text, "{\n"
                              "  \"text\": \"a\\\"b\\\\c\\u000a\\u0001\",\n"
                              "  \"list\": [\n"
                              "    -3,\n"
                              "    3\n"
                              "  ],\n"
                              "  \"empty\": [],\n"
                              "  \"nan\": null,\n"
                              "  \"open\": {\n"
                              "    \"yes\": \"true\",\n"
                              "    \"half\": 0.5\n"
                              "  }\n"
                              "}\n");
    free(text);
    write_sample(&json); /* a closed writer ignores everything */
    assert_true(perf_json_close(&json));
}

static void test_json_overwrites_nothing(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_perf.XXXXXX";
    char path[64];
    char second[80];
    char third[80];
    char *text = NULL;
    size_t length = 0;
    struct perf_json json;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/o.json", folder);
    snprintf(second, sizeof second, "%s.1", path);
    snprintf(third, sizeof third, "%s.2", path);
    FILE *out = open_memstream(&text, &length);
    for (int i = 0; i < 3; i++) {
        perf_json_open(&json, path, out);
        assert_non_null(json.file);
        assert_true(perf_json_close(&json));
    }
    perf_json_open(&json, "/nowhere/o.json", out);
    assert_null(json.file);
    assert_false(perf_json_close(&json));
    fclose(out);
    assert_non_null(strstr(text, "o.json\n# Writing JSON output to "));
    assert_non_null(strstr(text, "o.json.1\n"));
    assert_non_null(strstr(text, "o.json.2\n# skipping JSON output: /nowhere/o.json: "));
    free(text);
    assert_int_equal(unlink(path) + unlink(second) + unlink(third) + rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_short_and_long),
        cmocka_unit_test(test_unknown_names_go_on),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_unchecked_row_and_demand),
        cmocka_unit_test(test_more_columns),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_overwrites_nothing),
    };
    return cmocka_run_group_tests_name("perf", tests, NULL, NULL);
}
