// SPDX-License-Identifier: Apache-2.0
// Saves and restores the control word of the float unit; a no-op where it already is at
// its default, which is the usual case.
#include "base/float_env.h"

#if defined(__SSE2__)
#include <xmmintrin.h>

enum { MXCSR_DEFAULT = 0x1f80, MXCSR_FLAGS = 0x3f };

usc_float_env usc_float_env_enter(void)
{
    const unsigned int found = _mm_getcsr();
    if ((found & ~(unsigned int)MXCSR_FLAGS) != MXCSR_DEFAULT) _mm_setcsr(MXCSR_DEFAULT);
    return (usc_float_env){found};
}

void usc_float_env_leave(usc_float_env env)
{
    if ((env.saved & ~(unsigned int)MXCSR_FLAGS) != MXCSR_DEFAULT) _mm_setcsr(env.saved);
}

#else

usc_float_env usc_float_env_enter(void)
{
    usc_float_env env;
    fegetenv(&env.saved);
    fesetenv(FE_DFL_ENV);
    return env;
}

void usc_float_env_leave(usc_float_env env)
{
    fesetenv(&env.saved);
}

#endif
