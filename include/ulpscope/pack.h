// SPDX-License-Identifier: Apache-2.0
// Verdicts on outputs that lie in files, without torch, device or trace: against a pack
// that `ulpscope pack` wrote, or against a file of references. Formats:
// docs/reference/pack-format.md. What is found goes to OUT/result.db, as from a check.
//
// Threads: safe; two calls at a time need two folders of results.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_PACK_H
#define ULPSCOPE_PACK_H

#include <ulpscope/alloc.h>
#include <ulpscope/status.h>
#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

/** The zero value judges by our own rule into ulpscope-out. */
typedef struct usc_pack_options {
    const char *out;      /* folder of the results; NULL: "ulpscope-out" */
    const char *standard; /* NULL: "ulpscope" */
    const char *scale;    /* usc_pair_judge: a file of scales, or NULL */
    bool force;           /* replace what OUT holds of another run */
    int n_threads;        /* 0 and 1: the caller's only */
    const usc_alloc *alloc;
    /* usc_pair_judge alone: what raw bytes are, of the device and of the reference (NONE:
     * raw bytes are none), and what the two are called in the report where that is not
     * where they lie (NULL) */
    usc_dtype raw_dtype[2];
    int raw_ndim;
    int64_t raw_sizes[USC_MAX_DIMS];
    const char *device_name, *reference_name;
} usc_pack_options;

/**
 * Judges what some device gave for the calls of a pack.
 *
 * outputs: a safetensors file or a folder of them, tensors named as the pack says
 *          ("12/out[0]"). A call without any is `unsupported`; one with too few or too
 *          many, or of another shape or dtype, is `wrong`. Names that the pack does not
 *          know are remarked on in the report.
 * options: NULL: their zero value.
 * Memory:  maps the files; holds the operands of one call at a time.
 * Errors:  those of usc_safetensors_open and usc_result_create; USC_E_CORRUPT and
 *          USC_E_VERSION (the pack), USC_E_ARG (no such standard).
 */
USC_API USC_NODISCARD usc_status usc_pack_judge(const char *pack, const char *outputs,
                                                const usc_pack_options *options,
                                                usc_error *err);

/**
 * Judges tensors against references of the same names, float64 (or float32, which is
 * remarked on), integers and bool for equality. Either is a file or a folder of files:
 * safetensors, .npy, .npz, JSON of polygraphy, .pb tensors of ONNX, raw bytes. Where no
 * name is in both, and both have as many tensors, the i-th stands for the i-th. Calls are
 * in the order of the references: of the file, else of names with their numbers as such.
 *
 * Without a pack nobody knows how strongly a result reacts to its inputs: the scale of an
 * error is |reference|, or the tensor of the same name in options->scale where that is
 * larger. Without that what is right by |reference| passes, what is far off beside the mean
 * size of the tensor is accused, and what lies between is `unjudged`. A name that only the references have is `wrong`, one that only the device's
 * file has `unjudged`, and so is a tensor of which nothing is compared: without elements,
 * or of NaN alone on both sides. `options` NULL: their zero value.
 *
 * Memory, Errors: as usc_pack_judge; USC_E_UNSUPPORTED (no file of tensors: the text says
 *          what it is), USC_E_SHAPE (raw bytes of another size).
 */
USC_API USC_NODISCARD usc_status usc_pair_judge(const char *device, const char *reference,
                                                const usc_pack_options *options,
                                                usc_error *err);

/**
 * Whether usc_pair_judge may write where the options say, for who has to make files first
 * that take long. Leaves OUT as it was. Errors: those of usc_result_create, above all
 * USC_E_EXISTS; USC_E_ARG (no such standard).
 */
USC_API USC_NODISCARD usc_status usc_pair_may_write(const char *device,
                                                    const char *reference,
                                                    const usc_pack_options *options,
                                                    usc_error *err);

USC_END_DECLS
#endif
