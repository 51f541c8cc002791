// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. Each is one file with LLVMFuzzerTestOneInput: `./run
// fuzz-inputs` links them with libFuzzer; replay.c runs them over tests/fuzz/corpus/NAME
// as plain tests. Bytes from outside may be refused, with a sentence; anything else that
// is not an answer (a crash, a leak, a read outside) is the bug that is looked for.
#ifndef USC_TESTS_FUZZ_H
#define USC_TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/ulpscope.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Ends the run where something that must hold does not. */
#define FUZZ_REQUIRE(what)                                                               \
    do {                                                                                 \
        if (!(what)) abort();                                                            \
    } while (0)

/** Whether the last input was taken, not refused. replay.c requires it of files named
 * "sound": else a changed format would leave a target that refuses all it is given. */
extern bool fuzz_taken;

/** After a call: an error has a sentence, success none is asked for. */
static inline void fuzz_said(usc_status st, const usc_error *err)
{
    FUZZ_REQUIRE(st == USC_OK || (err->status == st && err->text[0] != '\0'));
    fuzz_taken = fuzz_taken && st == USC_OK;
}

/** A folder of this process, made once and removed at its end. */
const char *fuzz_folder(void);

/** Writes a file into that folder; its path, until the next call with another name. */
const char *fuzz_file(const char *name, const void *data, size_t size);

#endif
