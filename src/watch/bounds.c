// SPDX-License-Identifier: Apache-2.0
// Checks that come with a bound of their own: a checksum over a matmul's rows (Huang and
// Abraham, "Algorithm-based fault tolerance for matrix operations", 1984), and of what
// went into a reduction against what came out. Whoever checks feeds error / bound (that
// of a matmul: products.c); above 1, or NaN, is wrong. Where the bound is z standard
// deviations of the sum of roundings, a normal variable exceeds it with 2e-9 at z = 6 and
// 1e-15 at z = 8, for each row that is checked. Each is told again at each step, since it
// is a computation of its own.
#include "watch/watch_state.h"

#include <math.h>

/* The hash of a reduction of which all ranks have the same result; of a weight that was
 * gathered from all ranks and has other bits than they have. */
enum { ALIKE = 3, GATHERED = 4 };

/* What computing a product again has shown. */
static const char *again(const usc_watch_row *r)
{
    if (r->hash64 == 1) return "; computed again it is right: a passing fault";
    if (r->hash64 == 2) return "; computed again it is wrong again: a lasting fault";
    return "";
}

static void hold(usc_watch_view *v, usc_watch_site site, usc_watch_kind kind,
                 const char *what)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, site, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        const usc_watch_row *r = &rows[i];
        usc_watch_note(v, r->value, 1);
        if (r->value <= 1) continue;
        const usc_watch_finding f = {.kind = kind,
                                     .tensor = r->tensor,
                                     .rank = r->hash64 == ALIKE ? -1 : r->rank,
                                     .score = isnan(r->value) ? HUGE_VAL : r->value,
                                     .threshold = 1,
                                     .action = USC_WATCH_CHECK};
        if (r->hash64 == ALIKE)
            usc_watch_say(
                v, &f,
                "what all ranks alike got out of the %s of '%s' at step %lld is "
                "%.3g times as far from what they put in as roundings explain",
                what, usc_watch_name(v, r->tensor), (long long)v->step, r->value);
        else if (r->hash64 == GATHERED)
            usc_watch_say(v, &f,
                          "the weight '%s' as ranks had it together at step %lld is not "
                          "what they hold of it one by one: rank %ld sent or got other "
                          "bits",
                          usc_watch_name(v, r->tensor), (long long)v->step,
                          (long)r->rank);
        else if (isfinite(r->value))
            usc_watch_say(v, &f,
                          "the %s '%s' on rank %ld is %.3g times as far off at step %lld "
                          "as roundings explain%s",
                          what, usc_watch_name(v, r->tensor), (long)r->rank, r->value,
                          (long long)v->step, again(r));
        else
            usc_watch_say(v, &f,
                          "the %s '%s' on rank %ld gave NaN or Inf of finite operands at "
                          "step %lld%s",
                          what, usc_watch_name(v, r->tensor), (long)r->rank,
                          (long long)v->step, again(r));
    }
}

void usc_watch_matmuls(usc_watch_view *v)
{
    hold(v, USC_WATCH_MATMUL, USC_WATCH_MATMUL_WRONG, "matmul");
    hold(v, USC_WATCH_MATMUL_INPUT, USC_WATCH_MATMUL_WRONG,
         "gradient of the input of the matmul");
    hold(v, USC_WATCH_MATMUL_WEIGHT, USC_WATCH_MATMUL_WRONG,
         "gradient of the weight of the matmul");
}

void usc_watch_collectives(usc_watch_view *v)
{
    hold(v, USC_WATCH_COLLECTIVE, USC_WATCH_COLLECTIVE_WRONG, "collective");
}
