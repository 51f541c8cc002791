// SPDX-License-Identifier: Apache-2.0
// What the simulated accelerator is, as data: how many devices, of what size, and which
// dtypes they lack.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_PROFILE_H
#define ULPSCOPE_SIM_PROFILE_H

#include <ulpscope/status.h>
#include <ulpscope_sim/sim.h>

USC_BEGIN_DECLS

#define USC_SIM_PROFILE_TEXT 128

/* name, dtypes that it lacks (a pattern), devices, bytes of memory (0: as much as the
 * machine), threads that run in step, bytes of memory that a block of them shares, doc */
#define USC_SIM_PROFILE_LIST(X)                                                          \
    X("full", "", 2, 0, 32, 49152, "everything that the CPU has; as at the start")       \
    X("no-fp64", "float64,complex128", 2, 0, 32, 49152, "no float64")                    \
    X("no-bf16", "bfloat16", 2, 0, 32, 49152, "no bfloat16")                             \
    X("no-fp8", "float8*", 2, 0, 32, 49152, "no float8")                                 \
    X("fp32", "float64,float16,bfloat16,float8*,complex*", 2, 0, 32, 49152,              \
      "float32 alone of floats")                                                         \
    X("wide", "", 2, 0, 128, 73728, "128 threads run in step")                           \
    X("small", "float64,complex128,float8*", 1, (size_t)256 << 20, 32, 16384,            \
      "one device of 256 MiB, without float64 and float8")

typedef struct usc_sim_profile {
    char text[USC_SIM_PROFILE_TEXT]; /* as given */
    char lacks[USC_SIM_PROFILE_TEXT];
    int64_t n_devices, memory_size, warp_size, shared_size;
    const char *doc;
} usc_sim_profile;

/** The `i`-th profile by name; false beyond the last. */
USC_API bool usc_sim_profile_row(size_t i, usc_sim_profile *out);

/**
 * Makes the devices what `text` says, `NAME[:key=value]...`: a row of the list above with
 * `devices`, `memory` and `shared` (bytes, or with K, M or G behind the number), `warp` or
 * `lacks` of its own. What there is in memory stays.
 *
 * Errors:  USC_E_ARG naming what is wrong, and where the number of devices would change
 *          although one has been used; nothing is changed then.
 */
USC_API USC_NODISCARD usc_status usc_sim_profile_set(const char *text, usc_error *err);

/** What the devices are now. */
USC_API void usc_sim_profile_get(usc_sim_profile *out);

/** How many devices there are. */
USC_API int usc_sim_device_count(void);

/** Whether the devices lack a dtype, by torch's name; NULL: whether they lack any. Costs
 * one atomic load where they lack none. */
USC_API bool usc_sim_lacks(const char *dtype);

USC_END_DECLS
#endif
