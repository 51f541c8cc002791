// SPDX-License-Identifier: Apache-2.0
// How far rounding may have moved each element. Neighbours: cause_size.c, which holds
// factors to it.
#include "cause/cause_state.h"

#include <string.h>

static double typical(const double *t, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += t[i] * t[i];
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

/* How many times larger the results are: a factor takes float32's own errors with it. */
static double growth(const rooms *r, double *work)
{
    for (int64_t i = 0; i < r->n; i++)
        work[i] = fabs(r->t[i]);
    const double size = usc_cause_middle(work, r->n);
    for (int64_t i = 0; i < r->n; i++)
        work[i] = fabs(r->d[i]);
    return size > 0 ? fmin(usc_cause_middle(work, r->n) / size, 0x1p20) : 1;
}

bool usc_cause_rooms(usc_cause *c, bool shrunk, rooms *out)
{
    const int64_t n = c->d.n, step = usc_cause_step(n, MOST_MIDDLED);
    const int64_t most = n < MOST_MIDDLED ? n : MOST_MIDDLED;
    double *all = usc_cause_room(c, 4 * most, sizeof *all);
    if (all == NULL) return false;
    *out = (rooms){.d = all, .t = all + most, .room = all + 2 * most};
    double *work = all + 3 * most;
    for (int64_t i = 0; i < n; i += step) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        const double y = value_at(&c->y, i);
        if (!isfinite(d) || !isfinite(t) || !isfinite(y)) continue;
        out->d[out->n] = d;
        out->t[out->n] = t;
        out->room[out->n++] = fabs(y - t);
    }
    const double times = growth(out, work), more = fmax(times, 1);
    memcpy(work, out->room, (size_t)out->n * sizeof *work);
    const double common = more * usc_cause_middle(work, out->n);
    const double least = ldexp(1, c->emin - c->bits + 1) +
                         3 * fmin(common, 0x1p-20 * typical(out->t, out->n));
    for (int64_t i = 0; i < out->n; i++) /* rounded twice */
        out->room[i] = 1.03 * ldexp(fabs(out->d[i]) +
                                        fabs(out->t[i]) * (shrunk ? fmin(times, 1) : 1),
                                    -c->bits) +
                       least + 6 * more * out->room[i];
    return true;
}

bool usc_cause_few_values(usc_cause *c)
{
    enum { MOST = 4 };
    double seen[MOST];
    int n = 0;
    rooms r;
    if (!c->floats || c->d.n < 8 || !usc_cause_rooms(c, true, &r)) return false;
    double *away = usc_cause_room(c, r.n, sizeof *away);
    int64_t k = 0;
    for (int64_t i = 0; i < r.n && away != NULL; i++)
        if (r.t[i] != 0) away[k++] = fabs(fabs(r.d[i] / r.t[i]) - 1);
    if (k == 0) return false;
    const double apart = 8 * usc_cause_middle(away, k) + 1e-9;
    const double finely = fmin(fmax(1 / apart, 4), 0x1p18);
    for (int64_t i = 0; i < r.n; i++) {
        if (r.t[i] == 0) continue;
        const double at = rint(log2(fabs(r.t[i])) * finely);
        int j = 0;
        while (j < n && seen[j] != at)
            j++;
        if (j == MOST) return false;
        if (j == n) seen[n++] = at;
    }
    return true;
}
