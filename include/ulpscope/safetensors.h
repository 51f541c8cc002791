// SPDX-License-Identifier: Apache-2.0
// Reads tensors from safetensors files. The files may come from anywhere: nothing in them
// is believed before it was checked.
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
 * Memory:  maps the files, which must not be cut while they are open; copies only tensors
 *          that do not lie aligned. `alloc` NULL: the C library's.
 * Errors:  USC_E_NOT_FOUND, USC_E_IO; USC_E_CORRUPT (no header, header beyond the end or
 *          over 100 MB, no JSON, offsets that overlap or leave the file, a size that is
 * not that of shape and dtype, a name twice); USC_E_SHAPE (over USC_MAX_DIMS axes),
 *          USC_E_NOMEM. The text names file and tensor.
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

/** Tensor `i`, ordered by name (bytewise), until the set is closed. */
USC_API const usc_safetensor *usc_safetensors_at(const usc_safetensors *set, int64_t i);

/** The tensor of that name; NULL where there is none. */
USC_API const usc_safetensor *usc_safetensors_find(const usc_safetensors *set,
                                                   const char *name);

USC_END_DECLS
#endif
