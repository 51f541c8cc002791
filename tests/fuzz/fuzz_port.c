// SPDX-License-Identifier: Apache-2.0
// Sources out of any bytes: tokens tile them, and what is ported is ported once. The
// first byte chooses the language, the target and whether comments and own names are ported.
#include "fuzz.h"

#include "port/port_token.h"
#include <ulpscope/x/port.h>

static void tile(void (*cut)(const char *, size_t, usc_port_tokens *), const char *text,
                 size_t n)
{
    usc_port_tokens tokens = {0};
    size_t at = 0;
    cut(text, n, &tokens);
    for (size_t i = 0; i < tokens.n; i++) {
        FUZZ_REQUIRE(tokens.token[i].start == at && tokens.token[i].end > at);
        at = tokens.token[i].end;
    }
    FUZZ_REQUIRE(tokens.failed || at == n);
    usc_port_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_port_result *first, *second;
    usc_error err;
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    const size_t n = size - 1;
    tile(usc_port_cut_cxx, text, n);
    tile(usc_port_cut_python, text, n);
    const char *name = (data[0] & 1) == 0      ? "x.cu"
                       : (data[0] & 0x80) != 0 ? "x.ipynb"
                                               : "x.py";
    const usc_port_options o = {.target =
                                    (usc_port_target)(data[0] / 2 % USC_N_PORT_TARGETS),
                                .diff = true,
                                .comments = (data[0] & 0x40) != 0,
                                .rename_own = (data[0] & 0x20) != 0};
    usc_status st = usc_port_bytes(name, text, n, &o, &first, &err);
    fuzz_said(st, &err);
    if (st != USC_OK) return 0;
    st = usc_port_bytes(name, first->file[0].after, first->file[0].after_size, &o,
                        &second, &err);
    FUZZ_REQUIRE(st != USC_OK || second->n_changes == 0);
    usc_port_free(second);
    usc_port_free(first);
    return 0;
}
