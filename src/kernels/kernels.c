// SPDX-License-Identifier: Apache-2.0
// Builds the kernel tables once and holds the choice among them: the only global state
// of the library.
#include "kernels/kernels.h"

#include "base/cpu_probe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* From the narrowest on. The statistics of AVX-512 are those of AVX2; what it has of its
 * own are the sums of a watch, and the judge's table (judge_isa.c). */
enum { SCALAR, AVX2, AVX512, N_LEVELS };

typedef struct level {
    usc_kernels table;
    bool here;        /* whether this processor has it */
    const char *lack; /* what it lacks where not */
} level;

static level levels[N_LEVELS] = {
    [SCALAR] = {.table.isa = "scalar", .here = true},
    [AVX2] = {.table.isa = "avx2", .lack = "AVX2, FMA or F16C"},
    [AVX512] = {.table.isa = "avx512", .lack = "AVX-512 F, BW, DQ or VL"},
};
static pthread_once_t built = PTHREAD_ONCE_INIT;
static _Atomic(const usc_kernels *) chosen;

static const usc_kernels *best(void)
{
    int k = N_LEVELS - 1;
    while (!levels[k].here)
        k--;
    return &levels[k].table;
}

static void build_tables(void)
{
    for (int k = 0; k < N_LEVELS; k++) {
        usc_kernels_fill_scalar(&levels[k].table);
        usc_kernels_fill_histogram(&levels[k].table);
        usc_kernels_fill_sums(&levels[k].table);
        if (k >= AVX2) usc_kernels_fill_sums_avx2(&levels[k].table);
        if (k >= AVX512) usc_kernels_fill_sums_avx512(&levels[k].table);
        if (k >= AVX2) levels[k].here = usc_kernels_fill_avx2(&levels[k].table);
    }
    levels[AVX2].here = levels[AVX2].here && usc_cpu_has_avx2();
    levels[AVX512].here = levels[AVX512].here && usc_cpu_has_avx512();
    atomic_store(&chosen, best());
}

const usc_kernels *usc_kernels_get(void)
{
    pthread_once(&built, build_tables);
    return atomic_load(&chosen);
}

usc_status usc_kernels_select(const char *isa, usc_error *err)
{
    (void)usc_kernels_get();
    if (isa == NULL || isa[0] == '\0' || strcmp(isa, "auto") == 0) {
        atomic_store(&chosen, best());
        return USC_OK;
    }
    int k = 0;
    while (k < N_LEVELS && strcmp(isa, levels[k].table.isa) != 0)
        k++;
    if (k == N_LEVELS)
        return usc_error_set(err, USC_E_ARG, -1,
                             "instruction set \"%s\": scalar, avx2, avx512 and auto are "
                             "known",
                             isa);
    if (!levels[k].here)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "instruction set %s: this processor lacks %s; take auto",
                             isa, levels[k].lack);
    atomic_store(&chosen, &levels[k].table);
    return USC_OK;
}

const char *usc_kernels_isa(void)
{
    return usc_kernels_get()->isa;
}
