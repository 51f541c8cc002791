// SPDX-License-Identifier: Apache-2.0
// A whole plain file as bytes. Serves npy.c and tensor_set.c; safetensors.c has sentences
// of its own.
#ifndef USC_FILES_MAP_FILE_H
#define USC_FILES_MAP_FILE_H

#include <stdint.h>

#include <ulpscope/status.h>

/**
 * Maps the file at `path` to be read, in a map of its own: `*bytes`, `*size` of them,
 * until munmap.
 *
 * Errors: USC_E_NOT_FOUND, USC_E_IO (no plain file, no permission), USC_E_CORRUPT
 * (empty); *bytes is NULL then.
 */
USC_NODISCARD usc_status usc_map_file(const char *path, void **bytes, int64_t *size,
                                      usc_error *err);

#endif
