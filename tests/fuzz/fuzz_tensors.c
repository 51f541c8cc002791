// SPDX-License-Identifier: Apache-2.0
// A file of tensors of any kind (.npy, .npz, JSON of polygraphy, .pb of ONNX,
// safetensors): what is taken is contiguous, and every byte of it is there.
#include "fuzz.h"

#include "files/tensor_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_tensor_set set;
    usc_error err;
    const char *path = fuzz_file("tensors", data, size);
    const usc_status st = usc_tensor_set_open(path, NULL, &set, &err);
    fuzz_said(st, &err);
    unsigned sum = 0;
    for (int64_t i = 0; i < set.n; i++) {
        const usc_safetensor *t = &set.items[i];
        FUZZ_REQUIRE(t->name[0] != '\0' || st == USC_OK);
        FUZZ_REQUIRE(usc_tensor_contiguous(&t->tensor) || t->bytes == 0);
        for (int64_t k = 0; k < t->bytes; k++)
            sum += ((const uint8_t *)t->tensor.data)[k];
    }
    FUZZ_REQUIRE(sum + 1 != 0 || set.n > 0);
    usc_tensor_set_close(&set);
    return 0;
}
