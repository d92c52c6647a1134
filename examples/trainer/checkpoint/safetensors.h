/*
 * Files of named tensors in the safetensors format, which Python reads by
 * safetensors.torch.load_file(): eight bytes with the length of a JSON header, the header, and the
 * data. Little-endian machines.
 */
#ifndef TRAINER_SAFETENSORS_H
#define TRAINER_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "problem.h"

/* One tensor to be written; type: "F32", "I64", "U8". data is borrowed until it is written. */
struct safetensor {
    char name[80];
    const char *type;
    int dims, shape[4];
    const void *data;
};

/* A line of what a file says about itself. */
struct safetensors_note {
    char key[32], value[64]; /* without quotes and backslashes */
};

/*
 * Writes all of it beside path, makes it last, and only then gives it the name: whenever that is
 * cut off, path is what it was before, or the new one. False: nothing changed.
 */
bool safetensors_write(const char *path, const struct safetensor *tensors, int tensor_count,
                       const struct safetensors_note *notes, int note_count,
                       struct problem *problem);

/* Whether a file could be written there now, before what is to be kept has been worked for. */
bool safetensors_writable(const char *path, struct problem *problem);

/* A file in memory. */
struct safetensors {
    const char *path;    /* borrowed */
    char *header;        /* JSON, ended by NUL; owned */
    unsigned char *data; /* owned */
    size_t data_bytes;
};

/* False: it is not there, or damaged. Free in any case. */
bool safetensors_read(struct safetensors *file, const char *path, struct problem *problem);
void safetensors_free(struct safetensors *file);

/* The data of a tensor, which must have this type and so many elements. NULL: the file has it not.
 */
const void *safetensors_find(const struct safetensors *file, const char *name, const char *type,
                             size_t count, struct problem *problem);

/* False: there is no such note. */
bool safetensors_note(const struct safetensors *file, const char *key, char *ret, size_t bytes);

#endif
