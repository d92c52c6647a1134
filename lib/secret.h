/* Files that hold the job's secret (HOOP_SECRET_FILE). */
#ifndef HOOP_SECRET_H
#define HOOP_SECRET_H

#include "base/auth.h"

/*
 * Reads a secret: 64 hexadecimal digits, a newline may follow. The file must be a regular one of
 * this process's user that nobody else may read or write. HOOP_INVALID_USAGE names the path and
 * what is wrong, never the contents. The caller wipes the secret.
 */
hoop_result_t hoop_secret_read(const char *path, struct hoop_secret *ret_secret);

#endif
