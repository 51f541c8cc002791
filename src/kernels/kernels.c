// SPDX-License-Identifier: Apache-2.0
// Builds the kernel tables once and holds the choice among them: the only global state
// of the library.
#include "kernels/kernels.h"

#include "kernels/cpu_probe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static usc_kernels scalar_table, avx2_table;
static bool has_avx2;
static pthread_once_t built = PTHREAD_ONCE_INIT;
static _Atomic(const usc_kernels *) chosen;

static void fill_common(usc_kernels *kernels, const char *isa)
{
    kernels->isa = isa;
    usc_kernels_fill_scalar(kernels);
    usc_kernels_fill_histogram(kernels);
}

static void build_tables(void)
{
    fill_common(&scalar_table, "scalar");
    fill_common(&avx2_table, "avx2");
    has_avx2 = usc_kernels_fill_avx2(&avx2_table) && usc_cpu_has_avx2();
    atomic_store(&chosen, has_avx2 ? &avx2_table : &scalar_table);
}

const usc_kernels *usc_kernels_get(void)
{
    pthread_once(&built, build_tables);
    return atomic_load(&chosen);
}

usc_status usc_kernels_select(const char *isa, usc_error *err)
{
    (void)usc_kernels_get();
    const usc_kernels *table = has_avx2 ? &avx2_table : &scalar_table;
    if (isa == NULL || isa[0] == '\0' || strcmp(isa, "auto") == 0)
        ;
    else if (strcmp(isa, "scalar") == 0)
        table = &scalar_table;
    else if (strcmp(isa, "avx2") != 0)
        return usc_error_set(err, USC_E_ARG, -1,
                             "instruction set \"%s\": scalar, avx2 and auto are known",
                             isa);
    else if (!has_avx2)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "instruction set avx2: this processor lacks AVX2, FMA or "
                             "F16C");
    atomic_store(&chosen, table);
    return USC_OK;
}

const char *usc_kernels_isa(void)
{
    return usc_kernels_get()->isa;
}
