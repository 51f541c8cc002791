// SPDX-License-Identifier: Apache-2.0
// The float modes of the calling thread. Training code may have set flush-to-zero
// (torch.set_flush_denormal) or another rounding: results here must not depend on it.
#ifndef USC_BASE_FLOAT_ENV_H
#define USC_BASE_FLOAT_ENV_H

#if defined(__SSE2__)
typedef struct usc_float_env {
    unsigned int
        saved; /* MXCSR: what C's fenv saves besides it costs 100 times as much */
} usc_float_env;
#else
#include <fenv.h>
typedef struct usc_float_env {
    fenv_t saved;
} usc_float_env;
#endif

/**
 * Sets the modes that every formula here assumes (nearest even, subnormals kept) and
 * returns what was set before. Code between enter and leave that computes with floats
 * must be a call that the compiler cannot inline or move.
 */
usc_float_env usc_float_env_enter(void);

/** Puts back what usc_float_env_enter() found. */
void usc_float_env_leave(usc_float_env env);

#endif
