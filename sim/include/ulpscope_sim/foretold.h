// SPDX-License-Identifier: Apache-2.0
// Which results can be foretold of a kernel that runs later, where torch's meta function
// alone does not say so. Names of operators as in rules.h.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_FORETOLD_H
#define ULPSCOPE_SIM_FORETOLD_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/** Whether torch's meta function gives what the CPU's kernel is going to give. `narrow`:
 * an argument is a float of fewer bits than float32. */
USC_API bool usc_sim_foretells(const char *op, bool narrow);

/** Whether only a mask among an operator's indices lets the shape of its result depend on
 * values. */
USC_API bool usc_sim_shape_by_mask(const char *op);

USC_END_DECLS
#endif
