// SPDX-License-Identifier: Apache-2.0
// A safetensors file: its header is the input, data of 64 bytes follow it.
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_safetensors *set;
    usc_error err;
    uint8_t *file = malloc(size + 72);
    FUZZ_REQUIRE(file != NULL);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)size >> (8 * i));
    if (size > 0) memcpy(file + 8, data, size);
    memset(file + 8 + size, 0x3f, 64);
    const char *path = fuzz_file("x.safetensors", file, size + 72);
    free(file);
    const usc_status st = usc_safetensors_open(path, NULL, &set, &err);
    fuzz_said(st, &err);
    volatile unsigned sum = 0;
    for (int64_t i = 0; st == USC_OK && i < usc_safetensors_count(set); i++) {
        const usc_safetensor *t = usc_safetensors_at(set, i);
        const usc_tensor bytes = usc_safetensor_bytes(t);
        FUZZ_REQUIRE(usc_safetensors_find(set, t->name) == t);
        for (int64_t k = 0; k < bytes.sizes[0]; k++)
            sum += ((const uint8_t *)bytes.data)[k];
    }
    (void)sum;
    usc_safetensors_close(set);
    return 0;
}
