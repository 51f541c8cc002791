// SPDX-License-Identifier: Apache-2.0
// Loss curves out of any bytes: refused with a sentence, or steps that ascend.
#include "fuzz.h"

#include <ulpscope/x/loss.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_curve *c;
    usc_loss_result *r;
    usc_error err;
    const usc_status st = usc_curve_parse("x", data, size, NULL, &c, &err);
    fuzz_said(st, &err);
    if (st != USC_OK) return 0;
    FUZZ_REQUIRE(c->n > 0 && c->notes != NULL && c->key != NULL);
    for (int64_t i = 1; i < c->n; i++)
        FUZZ_REQUIRE(c->steps[i] > c->steps[i - 1]);
    FUZZ_REQUIRE(usc_loss_compare(c, c, NULL, &r, &err) == USC_OK && !r->differ);
    usc_loss_free(r);
    usc_curve_free(c);
    return 0;
}
