// SPDX-License-Identifier: Apache-2.0
// The manifest of a pack, judged against the outputs and operands of one call that are
// sound: out[0] and its reference, float32 and float64, and some of the other operands.
#include "fuzz.h"

#include <sys/stat.h>

static void write_tensors(const char *path)
{
    static const float low[4] = {1, 2, 3, 4};
    static const double wide[4] = {1, 2, 3, 4};
    static const int64_t whole[4] = {0, 1, 2, 3}, sizes[] = {2, 2};
    static const uint8_t marks[4] = {0, 1, 0, 1};
    static const double other[4] = {2, 4, 6, 8};
    usc_named_tensor all[] = {
        {.name = "1/out[0]"}, {.name = "r"}, {.name = "i"}, {.name = "u"}, {.name = "t"}};
    FUZZ_REQUIRE(usc_tensor_make(&all[0].tensor, low, USC_F32, 2, sizes, NULL) == USC_OK);
    FUZZ_REQUIRE(usc_tensor_make(&all[1].tensor, wide, USC_F64, 2, sizes, NULL) ==
                 USC_OK);
    FUZZ_REQUIRE(usc_tensor_make(&all[2].tensor, whole, USC_I64, 2, sizes, NULL) ==
                 USC_OK);
    FUZZ_REQUIRE(usc_tensor_make(&all[3].tensor, marks, USC_U8, 2, sizes, NULL) ==
                 USC_OK);
    FUZZ_REQUIRE(usc_tensor_make(&all[4].tensor, other, USC_F64, 2, sizes, NULL) ==
                 USC_OK);
    FUZZ_REQUIRE(usc_safetensors_write(path, all, 5, NULL, NULL) == USC_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char outputs[600], out[600];
    usc_error err;
    snprintf(outputs, sizeof outputs, "%s/1.safetensors", fuzz_folder());
    snprintf(out, sizeof out, "%s/out", fuzz_folder());
    if (access(outputs, F_OK) != 0) write_tensors(outputs);
    (void)fuzz_file("pack.json", data, size);
    const usc_pack_options options = {.out = out, .force = true};
    fuzz_said(usc_pack_judge(fuzz_folder(), outputs, &options, &err), &err);
    return 0;
}
