// SPDX-License-Identifier: Apache-2.0
// Tensors of whatever file they lie in, in the order in which it has them: safetensors,
// .npy, .npz, polygraphy's JSON, tensors of ONNX (.pb), raw bytes, and folders of these.
// Files may come from anywhere: nothing in them is believed before it was checked, and no
// object in them is made.
#ifndef USC_FILES_TENSOR_SET_H
#define USC_FILES_TENSOR_SET_H

#include <ulpscope/safetensors.h>

#include "base/arena.h"

typedef struct usc_tensor_set_options {
    usc_dtype dtype; /* of raw bytes; NONE: none are read */
    int ndim;        /* their shape */
    int64_t sizes[USC_MAX_DIMS];
} usc_tensor_set_options;

enum { USC_TENSOR_SET_BELOW = 1024 };

typedef struct usc_tensor_set {
    usc_safetensor *items; /* in order */
    int64_t n, room;
    bool ordered; /* the file has an order of its own; else by name, numbers as such */
    bool unnamed; /* the names are those of files */
    int64_t n_skipped;                /* files of a folder that hold no tensors */
    char skipped[1024];               /* the last one, and what it is */
    char below[USC_TENSOR_SET_BELOW]; /* while a folder is read: folders in it, "a/b/" */
    int depth;
    usc_arena arena;
    usc_safetensors **opened; /* whose maps items show */
    int n_opened;
} usc_tensor_set;

/**
 * Opens a file, or all files of a folder and of those in it, whose names are before theirs.
 *
 * Memory:  *out is closed by usc_tensor_set_close, also after a failure.
 * Errors:  USC_E_NOT_FOUND, USC_E_IO, USC_E_NOMEM, USC_E_CORRUPT, USC_E_SHAPE,
 *          USC_E_UNSUPPORTED (another kind of file: the text says which).
 */
USC_NODISCARD usc_status usc_tensor_set_open(const char *path,
                                             const usc_tensor_set_options *options,
                                             usc_tensor_set *out, usc_error *err);

void usc_tensor_set_close(usc_tensor_set *set);

/** The tensor of that name; NULL: none. */
const usc_safetensor *usc_tensor_set_find(const usc_tensor_set *set, const char *name);

/** What a file is, by its first bytes: "a PNG picture"; NULL: nothing that is known. */
const char *usc_file_words(const uint8_t *bytes, size_t n);

/* ---- for the readers ---- */

/** Adds a tensor whose bytes stay where they are. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_tensor_set_put(usc_tensor_set *set, const char *path,
                                            const usc_safetensor *t, usc_error *err);

/** Adds a tensor of `n` elements, whose bytes are copied; `name` too. `strides` NULL:
 * contiguous. Errors: USC_E_NOMEM, USC_E_CORRUPT (a name twice). */
USC_NODISCARD usc_status usc_tensor_set_add(usc_tensor_set *set, const char *path,
                                            const char *name, const char *dtype_name,
                                            const usc_tensor *like, int64_t item_size,
                                            const void *bytes, usc_error *err);

/** Readers of the bytes of a file. `path` is for errors, `prefix` stands before names
 * (""), `stem` is the name where the file gives none. */
USC_NODISCARD usc_status usc_take_npy(usc_tensor_set *set, const char *path,
                                      const char *name, const uint8_t *bytes, size_t n,
                                      usc_error *err);
USC_NODISCARD usc_status usc_take_npz(usc_tensor_set *set, const char *path,
                                      const char *prefix, const uint8_t *bytes, size_t n,
                                      usc_error *err);
USC_NODISCARD usc_status usc_take_onnx(usc_tensor_set *set, const char *path,
                                       const char *stem, const uint8_t *bytes, size_t n,
                                       usc_error *err);
USC_NODISCARD usc_status usc_take_polygraphy(usc_tensor_set *set, const char *path,
                                             const char *prefix, const uint8_t *bytes,
                                             size_t n, usc_error *err);

/** Whether bytes are a tensor of ONNX. */
bool usc_is_onnx_tensor(const uint8_t *bytes, size_t n);

#endif
