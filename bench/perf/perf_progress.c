/* See perf_progress.h. */
#include "perf/perf_progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Escape sequences that every terminal knows, except a "dumb" one. */
#define SAVE_CURSOR "\0337"
#define RESTORE_CURSOR "\0338"
#define ERASE_BEHIND "\033[J"

void perf_progress_init(struct perf_progress *progress, FILE *table, FILE *err, size_t rows)
{
    const char *terminal = getenv("TERM");
    const bool dumb = !terminal || strcmp(terminal, "dumb") == 0;
    *progress = (struct perf_progress){.rows = rows};
    if (!dumb && isatty(fileno(err))) {
        progress->behind_row = isatty(fileno(table));
        progress->out = progress->behind_row ? table : err;
    }
}

void perf_progress_show(const struct perf_progress *progress, const char *phase)
{
    char of[32] = "";
    if (!progress->out) {
        return;
    }
    if (progress->rows > 0) {
        snprintf(of, sizeof of, " of %zu", progress->rows);
    }
    fprintf(progress->out, "%s" ERASE_BEHIND "  row %zu%s: %s%s",
            progress->behind_row ? SAVE_CURSOR : "\r", progress->row, of, phase,
            progress->behind_row ? RESTORE_CURSOR : "");
    fflush(progress->out);
}

void perf_progress_clear(const struct perf_progress *progress)
{
    if (progress->out) {
        fprintf(progress->out, "%s" ERASE_BEHIND, progress->behind_row ? "" : "\r");
        fflush(progress->out);
    }
}
