// SPDX-License-Identifier: Apache-2.0
// Which operator and which of its examples a case is of: by its draw, whatever its steps.
#include <ulpscope/x/fuzz.h>

static uint64_t draw_number(uint64_t number)
{
    return number & ((UINT64_C(1) << USC_FUZZ_STEP_BIT) - 1);
}

int64_t usc_fuzz_operator(uint64_t seed, uint64_t number, int64_t n)
{
    number = draw_number(number);
    const usc_stream d = {.seed = seed, .number = ~(number / (uint64_t)n)};
    return (int64_t)usc_stream_place(d, number % (uint64_t)n, (uint64_t)n);
}

int64_t usc_fuzz_example(uint64_t seed, uint64_t number, int64_t n)
{
    uint32_t w[4];
    usc_stream_words((usc_stream){.seed = seed, .number = draw_number(number)}, 0, w);
    return (int64_t)(((uint64_t)w[1] << 32 | w[0]) % (uint64_t)n);
}
