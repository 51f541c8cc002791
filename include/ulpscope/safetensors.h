// SPDX-License-Identifier: Apache-2.0
// Reads and writes tensors in safetensors files. Files that are read may come from
// anywhere: nothing in them is believed before it was checked.
//
// Threads: a set does not change once it is open: any number of threads may read it, and
// one
//          closes it when all are done.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_SAFETENSORS_H
#define ULPSCOPE_SAFETENSORS_H

#include <ulpscope/alloc.h>
#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

/** One tensor. */
typedef struct usc_safetensor {
    const char *name;
    const char *dtype_name; /* as the file spells it: "F32" */
    usc_tensor tensor; /* contiguous; dtype USC_DTYPE_NONE where the table has no such
                          row (C64, F4): its shape then says nothing of its bytes, of
                          which there are fewer or more than elements; see
                          usc_safetensor_bytes */
    int64_t bytes;
    const char *path; /* the file that holds it */
} usc_safetensor;

typedef struct usc_safetensors usc_safetensors;

/**
 * Opens a file, or every file *.safetensors of a folder, whose tensors then form one set.
 *
 * Memory: *out is the caller's until usc_safetensors_close, and so is all that it hands
 *         out. Maps the files, which must not be cut while they are open; copies only
 *         tensors that do not lie aligned. `alloc` NULL: the C library's.
 * Errors: USC_E_NOT_FOUND, USC_E_IO; USC_E_CORRUPT (no header, header beyond the end or
 *         over 100 MB, no JSON, offsets that overlap or leave the file, a size that is
 *         not that of shape and dtype, a name twice); USC_E_SHAPE (over USC_MAX_DIMS
 *         axes), USC_E_NOMEM. The text names file and tensor.
 */
USC_API USC_NODISCARD usc_status usc_safetensors_open(const char *path,
                                                      const usc_alloc *alloc,
                                                      usc_safetensors **out,
                                                      usc_error *err);

/** Unmaps and frees; NULL is allowed. */
USC_API void usc_safetensors_close(usc_safetensors *set);

/** The bytes of a tensor, whatever its dtype: uint8, one axis. Borrows like the tensor.
 */
USC_API usc_tensor usc_safetensor_bytes(const usc_safetensor *t);

/** Number of tensors. */
USC_API int64_t usc_safetensors_count(const usc_safetensors *set);

/** Tensor `i`, ordered by name (bytewise); NULL outside of them. Memory: the set's. */
USC_API const usc_safetensor *usc_safetensors_at(const usc_safetensors *set, int64_t i);

/** The tensor of that name; NULL where there is none. Memory: the set's. */
USC_API const usc_safetensor *usc_safetensors_find(const usc_safetensors *set,
                                                   const char *name);

/** A tensor to write, and its name there. */
typedef struct usc_named_tensor {
    const char *name; /* UTF-8; not "__metadata__" */
    usc_tensor tensor;
} usc_named_tensor;

/**
 * Writes `n` tensors as one safetensors file; what `path` held is replaced at once, when
 * all is written (to `path` with ".part" at its end) and flushed.
 *
 * Shapes:  any, any strides; they are written row-major, the widest dtypes first, so that
 *          each lies aligned.
 * Memory:  keeps nothing; takes some 100 bytes a tensor, and a block of 64 KiB. `alloc`
 *          NULL: the C library's.
 * Threads: safe while nobody writes the tensors, and nobody else `path`.
 * Errors:  USC_E_ARG (a name twice, reserved or no UTF-8), USC_E_DTYPE (no dtype of the
 *          table), USC_E_SHAPE, USC_E_RANGE, USC_E_NOMEM, USC_E_IO (file named). Nothing
 *          is left behind then.
 */
USC_API USC_NODISCARD usc_status usc_safetensors_write(const char *path,
                                                       const usc_named_tensor *tensors,
                                                       int64_t n, const usc_alloc *alloc,
                                                       usc_error *err);

/**
 * As usc_safetensors_write, not flushed: for one of many files of a folder that is
 * flushed as a whole before anybody is told of it. After a power loss a file may be there
 * and be torn.
 *
 * Threads: as there.
 * Errors:  as there.
 */
USC_API USC_NODISCARD usc_status usc_safetensors_put(const char *path,
                                                     const usc_named_tensor *tensors,
                                                     int64_t n, const usc_alloc *alloc,
                                                     usc_error *err);

USC_END_DECLS
#endif
