// SPDX-License-Identifier: Apache-2.0
// What a file is by its first bytes, for the sentence on one that holds no tensors.
#include <string.h>

#include "files/tensor_set.h"

static const struct {
    size_t at, n;
    const char *bytes, *words;
} kinds[] = {
    {0, 8, "\x89PNG\r\n\x1a\n", "a PNG picture"},
    {0, 3, "\xff\xd8\xff", "a JPEG picture"},
    {0, 4, "GIF8", "a GIF picture"},
    {0, 2, "\x1f\x8b", "packed by gzip: unpack it first"},
    {0, 4, "\x28\xb5\x2f\xfd", "packed by zstd: unpack it first"},
    {0, 6,
     "\xfd"
     "7zXZ\0",
     "packed by xz: unpack it first"},
    {0, 3, "BZh", "packed by bzip2: unpack it first"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"},
    {0, 4, "\x04\x22\x4d\x18", "packed by lz4: unpack it first"},
    {257, 5, "ustar", "a tar archive: unpack it first"},
    {0, 4, "PK\5\6", "an empty zip archive"},
    {0, 8, "\x89HDF\r\n\x1a\n", "HDF5: save its arrays with numpy.savez"},
    {0, 4, "%PDF", "a PDF document"},
    {0, 4,
     "\x7f"
     "ELF",
     "a program or library"},
    {0, 16, "SQLite format 3", "a database of SQLite"},
    {0, 4, "GGUF", "GGUF: weights of a model, no outputs"},
    {0, 4, "ftrt", "an engine of TensorRT: run it and save its outputs"},
    {4, 4, "TFL3", "a model of TensorFlow Lite: run it and save its outputs"},
    {0, 6, "MATLAB", "a file of MATLAB: save its arrays with numpy.savez"},
    {0, 4, "ARRO", "a table of Arrow"},
    {0, 4, "PAR1", "a table of Parquet"},
    {0, 4, ":W&B",
     "the binary log of a W&B run: export its history as CSV from its page, or by "
     "wandb.Api().run(...).history().to_csv(...)"},
    {0, 2, "\x80\2",
     "a pickle, which runs code when it is opened, and never is: torch.save "
     "tensors, or numpy.savez arrays"},
    {0, 2, "\x80\3", "a pickle, which runs code when it is opened, and never is"},
    {0, 2, "\x80\4", "a pickle, which runs code when it is opened, and never is"},
    {0, 2, "\x80\5", "a pickle, which runs code when it is opened, and never is"},
};

static bool is_text(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n && i < 512; i++)
        if (bytes[i] < 9 || (bytes[i] > 13 && bytes[i] < 32)) return false;
    return n > 0;
}

const char *usc_file_words(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (n >= kinds[i].at + kinds[i].n &&
            memcmp(bytes + kinds[i].at, kinds[i].bytes, kinds[i].n) == 0)
            return kinds[i].words;
    return is_text(bytes, n) ? "a text" : NULL;
}
