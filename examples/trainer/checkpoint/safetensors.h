/*
 * Files of named tensors in the safetensors format, which Python reads with
 * safetensors.torch.load_file(): eight bytes with the length of a JSON header, the header, and the
 * data. For little-endian machines.
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

/* An entry of the file's metadata. */
struct safetensors_note {
    char key[32], value[64]; /* without quotes and backslashes */
};

/*
 * Writes a new file beside path, syncs it to disk, and only then renames it: whenever this is
 * interrupted, path is the old file or the new one. False: nothing changed.
 */
bool safetensors_write(const char *path, const struct safetensor *tensors, int tensor_count,
                       const struct safetensors_note *notes, int note_count,
                       struct problem *problem);

/* Could a file be written there now? To be asked before the work that is to be saved. */
bool safetensors_writable(const char *path, struct problem *problem);

/* A file in memory. */
struct safetensors {
    const char *path;    /* borrowed */
    char *header;        /* JSON, ended by NUL; owned */
    unsigned char *data; /* owned */
    size_t data_bytes;
};

/* False: the file is missing or damaged. Call free in any case. */
bool safetensors_read(struct safetensors *file, const char *path, struct problem *problem);
void safetensors_free(struct safetensors *file);

/* The data of a tensor, which must have this type and count of elements. NULL: the problem. */
const void *safetensors_find(const struct safetensors *file, const char *name, const char *type,
                             size_t count, struct problem *problem);

/* Does the header give the tensor this shape? */
bool safetensors_has_shape(const struct safetensors *file, const char *name, int dims,
                           const int *shape);

/* False: there is no such note. */
bool safetensors_note(const struct safetensors *file, const char *key, char *ret, size_t bytes);

#endif
