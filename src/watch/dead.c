// SPDX-License-Identifier: Apache-2.0
// A gradient that was not zero and is, everywhere, `dead_steps` times in a row; an update
// of zero while the gradient is not. What was zero for a while before (an expert that got
// no tokens) may be so again for four times as long. Score: steps in a row.
#include "watch/watch_state.h"

#include <math.h>

enum { PATIENCE = 4 };

/* Of one (site, tensor, rank). */
typedef struct quiet {
    int64_t run, longest; /* steps of zeros in a row; the longest that ended by itself */
    bool alive;           /* it was not zero once */
    bool told;
} quiet;

bool usc_dead_sound(const void *series)
{
    const quiet *q = series;
    const unsigned char *alive = (const unsigned char *)&q->alive,
                        *told = (const unsigned char *)&q->told;
    return q->run >= 0 && q->longest >= 0 && q->longest < INT64_MAX / PATIENCE &&
           *alive <= 1 && *told <= 1;
}

static bool is_zero(const usc_watch_row *r)
{
    return r->numel > 0 ? r->n_zero == r->numel : false;
}

/* Whether that is told now: `zero` so many times in a row. */
static bool take(usc_watch_view *v, quiet *q, bool zero, int64_t *limit)
{
    *limit = v->w->config.dead_steps;
    if (q->longest > 0 && PATIENCE * q->longest > *limit) *limit = PATIENCE * q->longest;
    if (!zero) {
        /* the end of a fault is no habit */
        if (q->alive && !q->told && q->run > q->longest) q->longest = q->run;
        *q = (quiet){.longest = q->longest, .alive = true};
        return false;
    }
    if (!q->alive) return false; /* frozen, or not used yet */
    q->run++;
    usc_watch_note(v, (double)q->run, (double)*limit - 0.5);
    if (q->run < *limit || q->told) return false;
    q->told = true;
    return true;
}

static usc_watch_finding finding(const usc_watch_row *r, usc_watch_kind kind,
                                 const quiet *q, int64_t limit)
{
    return (usc_watch_finding){.kind = kind,
                               .tensor = r->tensor,
                               .rank = r->rank,
                               .score = (double)q->run,
                               .threshold = (double)limit - 0.5,
                               .action = USC_WATCH_CHECK};
}

static void look_at_gradients(usc_watch_view *v, usc_watch_site site)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, site, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        const usc_watch_row *r = &rows[i];
        int64_t limit;
        quiet *q = r->numel > 0 ? usc_watch_series(v, site, r->tensor, r->rank) : NULL;
        if (q == NULL || !take(v, q, is_zero(r), &limit)) continue;
        const usc_watch_finding f = finding(r, USC_WATCH_ZERO, q, limit);
        usc_watch_say(v, &f,
                      "the %sgradient of '%s' on rank %ld is zero everywhere since %lld "
                      "steps, at step %lld; before it was not",
                      site == USC_WATCH_REDUCED ? "reduced " : "",
                      usc_watch_name(v, r->tensor), (long)r->rank, (long long)q->run,
                      (long long)v->step);
    }
}

/* Whether the gradient of a tensor is known and not zero at this step. */
static bool has_gradient(const usc_watch_view *v, const usc_watch_row *update)
{
    static const usc_watch_site sites[] = {USC_WATCH_REDUCED, USC_WATCH_GRAD};
    for (size_t s = 0; s < 2; s++) {
        const usc_watch_row *rows;
        const size_t n = usc_watch_rows_of(v, sites[s], &rows);
        size_t low = 0, high = n;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (rows[middle].tensor < update->tensor)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < n && rows[low].tensor == update->tensor; low++)
            if (rows[low].rank == update->rank)
                return rows[low].numel > 0 && !is_zero(&rows[low]);
    }
    return false;
}

/* Whether elements have so few bits that updates of a usual size may be below half an ulp
 * of each. */
static bool is_narrow(const usc_watch_view *v, const usc_watch_row *r)
{
    enum { WIDE = 12 }; /* bits of a significand: more than float16 and bfloat16 have */
    if (r->tensor < 0) return false;
    const usc_dtype_info *info = usc_dtype_info_of(v->w->tensors[r->tensor].dtype);
    return info->kind == USC_KIND_FLOAT && info->sig_bits < WIDE;
}

/* Whether that is nothing to speak of: a vector of norms or biases. */
static bool may_round_away(const usc_watch_view *v, const usc_watch_row *r)
{
    return is_narrow(v, r) && (v->w->tensors[r->tensor].ndim < 2 || r->numel == 1);
}

/* Once in a run: all that stand still at that step, as what they most likely are. */
static void tell_rounded_away(usc_watch_view *v, const usc_watch_row *r,
                              const usc_watch_finding *f, const quiet *q)
{
    if (v->w->rounded_away_told && v->w->rounded_away_step != v->step) return;
    v->w->rounded_away_told = true;
    v->w->rounded_away_step = v->step;
    const char *dtype = usc_dtype_info_of(v->w->tensors[r->tensor].dtype)->name;
    usc_watch_say(v, f,
                  "the weight '%s' on rank %ld stands still since %lld steps, at step "
                  "%lld, although its gradient is not zero: it is %s, which rounds away "
                  "an update below half a unit of its last place (keep float32 copies of "
                  "the weights), or the optimizer does not know it. Of such weights that "
                  "is told once",
                  usc_watch_name(v, r->tensor), (long)r->rank, (long long)q->run,
                  (long long)v->step, dtype);
}

static void look_at_updates(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_UPDATE, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        const usc_watch_row *r = &rows[i];
        int64_t limit;
        if (may_round_away(v, r)) continue;
        quiet *q = usc_watch_series(v, USC_WATCH_UPDATE, r->tensor, r->rank);
        if (q == NULL) return;
        const bool still = is_zero(r) && has_gradient(v, r);
        if (still) q->alive = true; /* also where it never moved */
        if (!take(v, q, still, &limit)) continue;
        const usc_watch_finding f = finding(r, USC_WATCH_STILL, q, limit);
        if (is_narrow(v, r)) {
            tell_rounded_away(v, r, &f, q);
            continue;
        }
        usc_watch_say(v, &f,
                      "the weight '%s' on rank %ld does not move since %lld steps, at "
                      "step %lld, although its gradient is not zero: does the optimizer "
                      "know it?",
                      usc_watch_name(v, r->tensor), (long)r->rank, (long long)q->run,
                      (long long)v->step);
    }
}

void usc_watch_dead(usc_watch_view *v)
{
    look_at_gradients(v, USC_WATCH_GRAD);
    look_at_gradients(v, USC_WATCH_REDUCED);
    look_at_updates(v);
}
