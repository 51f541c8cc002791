// SPDX-License-Identifier: Apache-2.0
// Processor detection by the processor's own words: the compilers' built-ins ask a runtime of
// theirs, which is not whole everywhere (zig's, which links the wheel, knows no instruction
// set on any machine).
#include "base/cpu_probe.h"

#include "base/compiler.h"

enum { KNOWN = 1, AVX2 = 2, AVX512 = 4 };

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <stdatomic.h>

static bool all(unsigned of, unsigned wanted)
{
    return (of & wanted) == wanted;
}

static unsigned asked(void)
{
    const unsigned saves_avx = 0x06, saves_avx512 = 0xe6; /* parts of XCR0 */
    unsigned a, b, c, d, saved = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 ||
        !all(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C | bit_POPCNT))
        return KNOWN;
    USC_XGETBV(saved);
    if (!all(saved, saves_avx) || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 ||
        !all(b, bit_AVX2))
        return KNOWN;
    const bool wide = all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) &&
                      all(saved, saves_avx512);
    return KNOWN | AVX2 | (wide ? AVX512 : 0U);
}

/* Asked once: a virtual machine takes its time to answer. */
static unsigned has(void)
{
    static _Atomic unsigned kept;
    unsigned found = atomic_load_explicit(&kept, memory_order_relaxed);
    if (found == 0) {
        found = asked();
        atomic_store_explicit(&kept, found, memory_order_relaxed);
    }
    return found;
}
#else
static unsigned has(void)
{
    return KNOWN;
}
#endif

bool usc_cpu_has_avx2(void)
{
    return (has() & AVX2) != 0;
}

bool usc_cpu_has_avx512(void)
{
    return (has() & AVX512) != 0;
}
