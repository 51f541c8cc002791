// SPDX-License-Identifier: Apache-2.0
// Which elements are off, and what they hold. Neighbours: cause_state.h.
#include "cause/cause_state.h"

#include <string.h>

/* ---- numbers ---- */

static bool below(double a, double b)
{
    return a < b || (isnan(b) && !isnan(a));
}

double usc_cause_nth(double *x, int64_t n, int64_t k)
{
    uint64_t dice = 88172645463325252u; /* no order of the elements is a slow one */
    int64_t low = 0, high = n - 1;
    while (low < high) {
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        const double pivot = x[low + (int64_t)(dice % (uint64_t)(high - low + 1))];
        int64_t i = low, j = high;
        while (i <= j) {
            while (below(x[i], pivot))
                i++;
            while (below(pivot, x[j]))
                j--;
            if (i > j) break;
            const double kept = x[i];
            x[i++] = x[j];
            x[j--] = kept;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return x[k];
}

double usc_cause_middle(double *x, int64_t n)
{
    return n > 0 ? usc_cause_nth(x, n, (n - 1) / 2) : 0;
}

int64_t usc_cause_step(int64_t n, int64_t most)
{
    return n > most ? ((n + most - 1) / most) | 1 : 1;
}

int64_t usc_cause_inner(const usc_cause *c, int axis)
{
    int64_t inner = 1;
    for (int a = axis + 1; a < c->d.ndim; a++)
        inner *= c->d.sizes[a];
    return inner;
}

groups usc_cause_groups(const usc_cause *c, uint32_t within)
{
    groups g = {.c = c, .n = 1};
    for (int a = c->d.ndim - 1; a >= 0; a--) {
        if ((within >> a & 1) != 0) continue;
        g.step[a] = g.n;
        g.n *= c->d.sizes[a];
    }
    return g;
}

void usc_cause_advance(groups *g)
{
    for (int a = g->c->d.ndim - 1; a >= 0; a--) {
        g->row += g->step[a];
        if (++g->at[a] < g->c->d.sizes[a]) return;
        g->row -= g->step[a] * g->at[a];
        g->at[a] = 0;
    }
}

/* ---- far off ---- */

static double of_truth(const void *ctx, int64_t i)
{
    return value_at(&((const usc_cause *)ctx)->t, i);
}

static double of_yardstick(const void *ctx, int64_t i)
{
    return value_at(&((const usc_cause *)ctx)->y, i);
}

typedef struct target {
    candidate *t, *y;
    const void *ctx;
    double share, least; /* of the size of a number, that is near it */
} target;

/* What float32 gives; where that is no number, what the dtype makes of the truth. */
static double wanted(const usc_cause *c, const target *to, int64_t i, double right)
{
    (void)c;
    const double y = to->y(to->ctx, i);
    return isfinite(y) ? y : right;
}

static target make_target(const usc_cause *c, candidate *t, candidate *y, const void *ctx)
{
    target to = {.t = t, .y = y, .ctx = ctx};
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        double want = y(ctx, i);
        if (!isfinite(want)) want = rounded(c, t(ctx, i));
        if (!isfinite(want)) continue;
        sum += want * want;
        n++;
    }
    const int spare = c->bits > 11 ? 6 : c->bits > 4 ? 3 : 1;
    to.share = ldexp(1, spare - c->bits);
    to.least = n > 0 ? sqrt(sum / (double)n) * 0x1p-4 : 0;
    return to;
}

static bool is_far(const usc_cause *c, const target *to, int64_t i)
{
    const double d = value_at(&c->d, i), t = to->t(to->ctx, i);
    const double right = rounded(c, t), want = wanted(c, to, i, right);
    const double slack = to->share * fmax(fabs(want), to->least);
    return !(fabs(d - want) <= slack || fabs(d - t) <= slack || same(d, want) ||
             same(d, right));
}

double usc_cause_far_share(usc_cause *c, candidate *t, candidate *y, const void *ctx,
                           bool *any)
{
    const marks *m = usc_cause_far(c);
    if (m == NULL) return 1;
    const target to = make_target(c, t, y, ctx);
    int64_t n = 0;
    *any = false;
    for (int64_t i = 0; i < c->d.n; i++) {
        const bool far =
            c->floats ? is_far(c, &to, i) : value_at(&c->d, i) != rounded(c, t(ctx, i));
        n += far;
        *any |= m->at[i] && !far;
    }
    return (double)n / (double)c->d.n;
}

static bool equal_elements(const usc_cause *c, int64_t i)
{
    if (c->d.dtype != c->t.dtype) return value_at(&c->d, i) == value_at(&c->t, i);
    const size_t at = (size_t)i * c->d.size;
    return memcmp(c->d.data + at, c->t.data + at, c->d.size) == 0;
}

const marks *usc_cause_far(usc_cause *c)
{
    marks *m = &c->far;
    if (m->at != NULL) return m;
    m->at = usc_arena_take(&c->kept, (size_t)c->d.n);
    if (m->at == NULL) return NULL;
    const target to = c->floats ? make_target(c, of_truth, of_yardstick, c) : (target){0};
    for (int64_t i = 0; i < c->d.n; i++) {
        m->at[i] = c->floats ? is_far(c, &to, i) : !equal_elements(c, i);
        m->n += m->at[i];
    }
    return m;
}

static double noise_at(const usc_cause *c, int64_t i, double t)
{
    const double noise = fabs(value_at(&c->y, i) - t);
    return isfinite(noise) ? noise : 0;
}

const marks *usc_cause_fine(usc_cause *c)
{
    marks *m = &c->fine;
    if (!c->floats) return usc_cause_far(c);
    if (m->at != NULL) return m;
    const int64_t n = c->d.n, step = usc_cause_step(n, MOST_MIDDLED);
    double *noise = usc_cause_room(c, MOST_MIDDLED + 1, sizeof *noise);
    uint8_t *at = noise != NULL ? usc_arena_take(&c->kept, (size_t)n) : NULL;
    if (at == NULL) return NULL;
    int64_t k = 0;
    for (int64_t i = 0; i < n; i += step)
        noise[k++] = noise_at(c, i, value_at(&c->t, i));
    const double common = 4 * usc_cause_middle(noise, k);
    const double unit = exp2(1.1 - c->bits);
    for (int64_t i = 0; i < n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        const double room =
            unit * fmax(fabs(t), fabs(d)) + 8 * noise_at(c, i, t) + common;
        const bool near = fabs(d - t) <= room && isfinite(d);
        at[i] = !(near || same(d, value_at(&c->y, i)) || same(d, rounded(c, t)));
        m->n += at[i];
    }
    m->at = at;
    return m;
}

/* ---- what is there ---- */

bool usc_cause_stands_out(const usc_cause *c, const uint8_t *mask)
{
    int64_t n = 0, far = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        if (!mask[i]) continue;
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        n++;
        far += !(fabs(d - t) <= (c->floats ? 0x1p-4 * fabs(t) : 1));
    }
    return 4 * far >= 3 * n;
}

/* Whether the rest rightly holds that number often: then it is no constant that was put
 * there, but a result as others are. */
static bool is_usual(const usc_cause *c, const uint8_t *mask, double value)
{
    int64_t rest = 0, equal = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        if (mask[i]) continue;
        rest++;
        equal += same(rounded(c, value_at(&c->t, i)), value);
    }
    return equal > 1 && 8 * equal > rest;
}

content usc_cause_holds(usc_cause *c, const uint8_t *mask, double *value)
{
    bool zero = true, stale = c->has_before, nan = c->floats, one = true;
    int64_t n = 0;
    *value = 0;
    for (int64_t i = 0; i < c->d.n && (zero || stale || nan || one); i++) {
        if (!mask[i]) continue;
        const double d = value_at(&c->d, i);
        if (n++ == 0) *value = d;
        zero &= d == 0;
        one &= d == *value;
        if (stale) stale = same(d, value_at(&c->before, i));
        if (nan) nan = isnan(d) && !isnan(value_at(&c->t, i));
    }
    one &= n > 1 && c->d.kind != USC_KIND_BOOL &&
           (zero || (usc_cause_stands_out(c, mask) && !is_usual(c, mask, *value)));
    stale &= (int)n * c->bits >= 20 || !c->floats;
    c->held = n == 0  ? HOLDS_OTHER
              : zero  ? HOLDS_ZERO
              : stale ? HOLDS_STALE
              : nan   ? HOLDS_NAN
              : one   ? HOLDS_ONE
                      : HOLDS_OTHER;
    return c->held;
}

bool usc_cause_gross(usc_cause *c, const marks *m)
{
    double *error = usc_cause_room(c, 2 * (MOST_MIDDLED + 1), sizeof *error);
    if (error == NULL || m->n < 4) return false;
    double *size = error + MOST_MIDDLED + 1;
    const int64_t step = usc_cause_step(m->n, MOST_MIDDLED);
    int64_t k = 0, seen = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        if (!m->at[i] || seen++ % step != 0) continue;
        const double t = value_at(&c->t, i);
        error[k] = fabs(value_at(&c->d, i) - t);
        size[k++] = fabs(t);
    }
    const double e = usc_cause_middle(error, k);
    return isnan(e) || e > 0x1p-4 * usc_cause_middle(size, k);
}

/* In the narrow dtypes, whatever is not the truth rounded. */
static bool noisy_low(const usc_cause *c, const marks *m)
{
    int64_t rest = 0, wrong = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        if (m->at[i] || !isfinite(d) || !isfinite(t)) continue;
        rest++;
        wrong += d != rounded(c, t);
    }
    return (double)wrong > 0.06 * (double)(rest > 0 ? rest : 1);
}

bool usc_cause_noisy(usc_cause *c, const marks *m)
{
    if (!c->floats) return false;
    if (c->bits < 24) return noisy_low(c, m);
    const int64_t step = usc_cause_step(c->d.n, MOST_MIDDLED);
    double *room = usc_cause_room(c, 3 * (MOST_MIDDLED + 1), sizeof *room);
    if (room == NULL) return false;
    double *kept = room + MOST_MIDDLED + 1, *error = kept + MOST_MIDDLED + 1;
    int64_t k = 0, over = 0;
    for (int64_t i = 0; i < c->d.n; i += step) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        if (m->at[i] || !isfinite(d) || !isfinite(t)) continue;
        kept[k] = room[k] =
            ldexp(fabs(t), 1 - c->bits) + 8 * fabs(value_at(&c->y, i) - t);
        error[k++] = fabs(d - t);
    }
    const double common = usc_cause_middle(room, k);
    for (int64_t i = 0; i < k; i++)
        over += error[i] > kept[i] + common;
    return (double)over > 0.02 * (double)(k > 0 ? k : 1);
}
