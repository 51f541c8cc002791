// SPDX-License-Identifier: Apache-2.0
// How far the loss of a trial lies from the one that it should give.
#include "bisect/bisect.h"

#include <math.h>

bool bisect_weigh(const bisect_run *r, bisect_trial *t)
{
    usc_loss_result *result;
    usc_error err;
    t->distance = (double)INFINITY;
    t->good = false;
    if (t->curve == NULL || r->reference == NULL) return true;
    const usc_loss_options options = {.repeats = (const usc_curve *const *)r->noise,
                                      .n_repeats = (size_t)r->options->n_noise};
    const usc_status st =
        usc_loss_compare(r->reference, t->curve, &options, &result, &err);
    if (st != USC_OK) return cli_fail("%s: %s", t->folder, err.text) == 0;
    if (result->bad_step < 0 && result->n_only_a == 0) t->distance = result->mean;
    t->good = r->options->n_noise > 0 ? isfinite(t->distance) && !result->differ
                                      : t->distance <= r->limit;
    usc_loss_free(result);
    return true;
}
