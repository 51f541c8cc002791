// SPDX-License-Identifier: Apache-2.0
// Operators of a device, written down in YAML, as C++ that registers them: wrappers,
// shapes, guards. The schemas are those of the torch at hand, in the file that it brings
// along (torchgen/packaged/ATen/native/native_functions.yaml). The format, and what an
// author writes for each kind: docs/how-to/operators-from-yaml.md.
//
// Threads: safe.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_OPS_H
#define ULPSCOPE_X_OPS_H

#include <stdio.h>

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/* id, name, what the author writes */
#define USC_OPS_KIND_LIST(X)                                                             \
    X(NONE, "none", "")                                                                  \
    X(LEGACY, "structured, legacy", "the kernel behind torch's dispatch stub")           \
    X(LEGACY_META, "structured, own kernel", "TORCH_IMPL_FUNC")                          \
    X(CUSTOMIZED, "structured, own shapes and kernel",                                   \
      "TORCH_META_FUNC, TORCH_IMPL_FUNC")                                                \
    X(UNSTRUCTURED, "made unstructured", "a function for each variant")                  \
    X(FUNCTION_LEGACY, "torch's function", "nothing")                                    \
    X(FUNCTION, "own function", "a function")                                            \
    X(NEW, "new operator", "a function")

typedef enum usc_ops_kind {
#define USC_OPS_KIND_ENUM(id, name, writes) USC_OPS_##id,
    USC_OPS_KIND_LIST(USC_OPS_KIND_ENUM)
#undef USC_OPS_KIND_ENUM
        USC_N_OPS_KINDS
} usc_ops_kind;

typedef struct usc_ops_options {
    const char *native;         /* torch's native_functions.yaml */
    const char *cxx_space;      /* of the kernels; NULL: the file's, else at::sim */
    const char *const *include; /* headers that the generated one includes first */
    size_t n_include;
    const char *const *source; /* where the kernels are defined; none: not looked for */
    size_t n_source;
    bool lenient; /* what torch does not have is listed, and no problem */
} usc_ops_options;

/** A problem of a file of operators, or what is left out of it. */
typedef struct usc_ops_problem {
    int64_t line, column;
    const char *text;
} usc_ops_problem;

typedef struct usc_ops_operator {
    const char *name; /* "aten::tril.out" */
    usc_ops_kind kind;
    int64_t line;
} usc_ops_operator;

/** What a file of operators came to. */
typedef struct usc_ops_result {
    const usc_ops_operator *op; /* in the order of the file */
    size_t n;
    const usc_ops_problem *problem; /* in the order of their lines */
    size_t n_problems;
    const usc_ops_problem *left_out; /* with `lenient` */
    size_t n_left_out;
} usc_ops_result;

/** "structured, legacy"; "none" for other values. Memory: static. */
USC_API const char *usc_ops_kind_text(usc_ops_kind kind);

/**
 * Reads a file of operators and looks for what is wrong in it.
 *
 * Memory:  *out is freed by usc_ops_free; NULL after an error.
 * Errors:  USC_E_NOT_FOUND, USC_E_IO; USC_E_CORRUPT (no YAML: path, line and column),
 *          USC_E_RANGE (more than 8 MiB), USC_E_NOMEM. Problems are no errors.
 */
USC_API USC_NODISCARD usc_status usc_ops_check(const char *path,
                                               const usc_ops_options *options,
                                               usc_ops_result **out, usc_error *err);

/**
 * The same; where there are no problems it writes sim_ops.h, sim_ops.cpp and sources.txt,
 * and sim_ops_c.h where a kernel is in C, into a folder, which is made. The same input gives the same bytes; a file whose bytes
 * stay is not touched.
 *
 * Memory:  as usc_ops_check.
 * Errors:  as usc_ops_check.
 */
USC_API USC_NODISCARD usc_status usc_ops_generate(const char *path, const char *folder,
                                                  const usc_ops_options *options,
                                                  usc_ops_result **out, usc_error *err);

/** Says what an operator is in torch and what to write for it.
 *
 * Errors:  USC_E_NOT_FOUND (with the nearest name), as usc_ops_check. */
USC_API USC_NODISCARD usc_status usc_ops_why(const char *op, const char *native, FILE *to,
                                             usc_error *err);

/** Writes the entries of operators, with the other members of their groups, and what their
 * author writes: functions of C++, or of C (`kernel: c`).
 *
 * Errors:  as usc_ops_why. */
USC_API USC_NODISCARD usc_status usc_ops_skeleton(const char *const *op, size_t n,
                                                  const char *native, bool in_c,
                                                  FILE *yaml, FILE *code, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_ops_free(usc_ops_result *result);

USC_END_DECLS
#endif
