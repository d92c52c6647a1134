/*
 * hoopinfo: what this installation of hoop is and how it is set. A client of the public header
 * alone.
 */
#include "hoop.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_text[] = "usage: hoopinfo --settings | --version | --json\n"
                                 "\n"
                                 "  --settings  every HOOP_* variable: what is in force, and why\n"
                                 "  --version   the version of the library in use\n"
                                 "  --json      the state of hoop in a fresh process, as JSON\n";

static int failed(const char *what, hoop_result_t result)
{
    fprintf(stderr, "hoopinfo: %s: %s: %s\n", what, hoop_get_error_string(result),
            hoop_get_last_error(NULL));
    return 1;
}

static int settings_print(void)
{
    int width = 0;
    hoop_setting_t setting;
    for (size_t at = 0; hoop_setting_next(&at, &setting) == HOOP_OK;) {
        const int length = (int)strlen(setting.name);
        width = length > width ? length : width;
    }
    for (size_t at = 0; hoop_setting_next(&at, &setting) == HOOP_OK;) {
        const char *value = setting.value != NULL && *setting.value != '\0' ? setting.value : "-";
        const char *preset =
            setting.preset != NULL && *setting.preset != '\0' ? setting.preset : "-";
        printf("%-*s  %s  (%s; default %s; %s)\n", width, setting.name, value, setting.origin,
               preset, setting.range);
        printf("%-*s  %s\n", width, "", setting.text);
    }
    return 0;
}

static int version_print(void)
{
    int version = 0;
    const hoop_result_t result = hoop_get_version(&version);
    if (result != HOOP_OK) {
        return failed("version", result);
    }
    printf("hoop %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return 0;
}

/* The size may grow between asking for it and using it. */
static int json_print(void)
{
    char *text = NULL;
    size_t bytes = 0;
    size_t needed = 0;
    hoop_result_t result = hoop_info_json(NULL, NULL, 0, &needed);
    while (result != HOOP_OK && needed > bytes) {
        bytes = needed;
        char *grown = realloc(text, bytes);
        if (grown == NULL) {
            free(text);
            return failed("json", HOOP_OUT_OF_MEMORY);
        }
        text = grown;
        result = hoop_info_json(NULL, text, bytes, &needed);
    }
    const int code = result == HOOP_OK && text != NULL ? puts(text) < 0 : failed("json", result);
    free(text);
    return code;
}

static int request_run(const char *request)
{
    if (strcmp(request, "--settings") == 0) {
        return settings_print();
    }
    if (strcmp(request, "--version") == 0) {
        return version_print();
    }
    if (strcmp(request, "--json") == 0) {
        return json_print();
    }
    if (strcmp(request, "--help") == 0 || strcmp(request, "-h") == 0) {
        return fputs(usage_text, stdout) < 0;
    }
    fprintf(stderr, "hoopinfo: '%s': expected --settings, --version or --json\n", request);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs(usage_text, stderr);
        return 2;
    }
    const int code = request_run(argv[1]);
    if (fflush(stdout) != 0) {
        fputs("hoopinfo: cannot write to standard output\n", stderr);
        return 1;
    }
    return code;
}
