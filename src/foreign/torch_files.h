// SPDX-License-Identifier: Apache-2.0
// Files of torch.save, read and written by a worker process, which is started for the
// first of them: `COMMAND 3 SETTINGS` with lines of JSON in and, on descriptor 3, out,
// each with the bytes that it announces behind it. python/ulpscope/calls/torch_files.py
// is that worker.
#ifndef USC_FOREIGN_TORCH_FILES_H
#define USC_FOREIGN_TORCH_FILES_H

#include <ulpscope/tensor.h>
#include <ulpscope/x/run.h>

#include "run/worker.h"
#include "json/json.h"

typedef struct usc_torch_files {
    const usc_run_hooks *hooks;
    usc_worker worker;
    bool runs;
    usc_json *answer; /* to the last request */
    unsigned char *bytes;
    size_t room;
} usc_torch_files;

/** One tensor of a file. */
typedef struct usc_torch_tensor {
    const char *dtype_name; /* as torch calls it */
    usc_tensor view; /* of its storage's bytes, once these are read; without offset */
    int64_t offset;  /* elements */
    int64_t storage; /* among those of the file */
    bool requires_grad;
} usc_torch_tensor;

/**
 * Opens a file of torch.save. *value is what lies in it, as JSON of the kind that
 * arguments of a trace are, where {"tensor": I} stands for tensor I.
 *
 * Memory:  *value until the next request.
 * Errors:  USC_E_UNSUPPORTED (more than tensors and plain values: nothing of it was
 *          unpickled), USC_E_CORRUPT, USC_E_NOT_FOUND, USC_E_IO (the worker).
 */
USC_NODISCARD usc_status usc_torch_files_open(usc_torch_files *f, const char *path,
                                              const usc_json **value, usc_error *err);

/** Number of tensors and storages of the open file. */
int64_t usc_torch_files_tensors(const usc_torch_files *f);
int64_t usc_torch_files_storages(const usc_torch_files *f);

/** Tensor `i` of it. Errors: USC_E_CORRUPT, USC_E_SHAPE. */
USC_NODISCARD usc_status usc_torch_files_tensor(const usc_torch_files *f, int64_t i,
                                                usc_torch_tensor *out, usc_error *err);

/** Reads the next storage; all are to be read, in their order. Memory: *bytes until the
 * next call with `f`. */
USC_NODISCARD usc_status usc_torch_files_storage(usc_torch_files *f, int64_t i,
                                                 const void **bytes, int64_t *size,
                                                 usc_error *err);

/** A tensor to write: dtype by torch's name, of bytes that hold all that it shows. */
typedef struct usc_torch_save {
    const char *dtype_name;
    int ndim;
    const int64_t *sizes, *strides; /* in elements */
    const void *bytes;              /* from its first element on */
    int64_t size;
    bool as_it_lies, requires_grad; /* with its strides; else contiguous */
} usc_torch_save;

/** Writes `value`, JSON of the kind that usc_torch_files_open gives, with its tensors as
 * a file of torch.save. Errors: USC_E_IO. */
USC_NODISCARD usc_status usc_torch_files_save(usc_torch_files *f, const char *path,
                                              const char *value,
                                              const usc_torch_save *tensors, int64_t n,
                                              usc_error *err);

/** Ends the worker, if there is one. */
void usc_torch_files_close(usc_torch_files *f);

#endif
