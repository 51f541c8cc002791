// SPDX-License-Identifier: Apache-2.0
// Rules of the simulated accelerator about operators, as data: which arguments may lie on
// the host, and which products are computed from rounded factors. Names of operators are
// torch's, "ns::name" or "ns::name.overload"; a name that ends in _ has the rule of the one
// without.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_RULES_H
#define ULPSCOPE_SIM_RULES_H

#include <ulpscope/status.h>
#include <ulpscope_sim/fault.h>

USC_BEGIN_DECLS

/** Whether an operator takes a tensor of the host beside tensors of the device, as CUDA's
 * kernel of it does. `number`: of no dimension. */
USC_API bool usc_sim_takes_host(const char *op, const char *argument, bool number);

typedef enum usc_sim_product {
    USC_SIM_NO_PRODUCT,
    USC_SIM_MATMUL,
    USC_SIM_CONV,
    USC_SIM_N_PRODUCTS
} usc_sim_product;

/** Which kind of product an operator computes. */
USC_API usc_sim_product usc_sim_product_of(const char *op);

/** On: the factors of float32 products of this kind are rounded to 10 explicit bits of the
 * significand, as TF32 units do. Off at the start. */
USC_API void usc_sim_set_tf32(usc_sim_product kind, bool on);

/** Whether it is on for a kind. */
USC_API bool usc_sim_tf32(usc_sim_product kind);

/** The operator of the same signature that a kind of fault runs in place of another, both
 * ns::name.overload; NULL: it runs that one. Memory: static. */
USC_API const char *usc_sim_instead(usc_sim_fault_kind kind, const char *op);

USC_END_DECLS
#endif
