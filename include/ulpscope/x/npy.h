// SPDX-License-Identifier: Apache-2.0
// One array in a file of NumPy's format (.npy). Files may come from anywhere: nothing in
// them is believed before it was checked, and no object in them is ever made.
//
// Threads: safe; a file that is open is closed once.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_NPY_H
#define ULPSCOPE_X_NPY_H

#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

/** What the header of a file says. */
typedef struct usc_npy_header {
    char dtype_name[16]; /* as torch calls it: "float32", "complex64" */
    int64_t item_size;   /* bytes of one element */
    usc_tensor tensor;   /* shape and strides, without data; dtype USC_DTYPE_NONE where
                            the table has no such row */
    int64_t n;           /* elements */
    int64_t first;       /* byte of the file at which the data begin */
} usc_npy_header;

/**
 * Reads the header of a file of `file_size` bytes, of which the first `size` are at
 * `bytes`. `name` begins the text of an error.
 *
 * Memory:  allocates nothing.
 * Errors:  USC_E_CORRUPT (no such header, header beyond the end, fewer data than shape
 * and dtype ask for), USC_E_UNSUPPORTED (objects, records, texts, big-endian or other
 *          dtypes: the text says which), USC_E_SHAPE (over USC_MAX_DIMS axes),
 * USC_E_RANGE.
 */
USC_API USC_NODISCARD usc_status usc_npy_read(const void *bytes, int64_t size,
                                              int64_t file_size, const char *name,
                                              usc_npy_header *out, usc_error *err);

typedef struct usc_npy {
    usc_npy_header header; /* with data */
    void *map;             /* of usc_npy_close */
    int64_t size;
} usc_npy;

/**
 * Opens a file and maps it; it must not be cut while it is open.
 *
 * Memory:  *out is closed by usc_npy_close, also after a failure.
 * Errors:  those of usc_npy_read, USC_E_NOT_FOUND, USC_E_IO.
 */
USC_API USC_NODISCARD usc_status usc_npy_open(const char *path, usc_npy *out,
                                              usc_error *err);

/** Unmaps; a zeroed one is allowed. */
USC_API void usc_npy_close(usc_npy *npy);

USC_END_DECLS
#endif
