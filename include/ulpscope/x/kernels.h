// SPDX-License-Identifier: Apache-2.0
// Which instruction set the inner loops use. Results do not depend on it; speed does.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_KERNELS_H
#define ULPSCOPE_X_KERNELS_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/**
 * Chooses the instruction set of every later call: "scalar", "avx2", "avx512" (F, BW, DQ
 * and VL; statistics are those of AVX2 there), or NULL, "" or "auto" for the best that
 * this processor has, which is also what is used where nobody chooses. The library does
 * not read the environment: its callers pass ULPSCOPE_ISA on.
 *
 * Threads: safe; calls already running finish with what they began with.
 * Errors:  USC_E_ARG for an unknown name, USC_E_UNSUPPORTED where the processor lacks
 *          it; the choice is unchanged then.
 */
USC_API USC_NODISCARD usc_status usc_kernels_select(const char *isa, usc_error *err);

/**
 * Name of the instruction set in use: "scalar", "avx2" or "avx512".
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const char *usc_kernels_isa(void);

USC_END_DECLS
#endif
