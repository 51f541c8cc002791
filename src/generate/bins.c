// SPDX-License-Identifier: Apache-2.0
// Bins of statistics; see bins.h. Statistics may come from anywhere: every number is
// held against the others before it is used.
#include "generate/bins.h"

#include <math.h>
#include <string.h>

/* Counts of what is made: statistics count broadcast elements as often as they appear. */
typedef struct counts {
    int64_t n_nan, n_pos_inf, n_neg_inf, n_zero, n_subnormal, n_number;
} counts;

static usc_status corrupt(usc_error *err, const char *what, int64_t a, const char *than,
                          int64_t b)
{
    return usc_error_set(err, USC_E_CORRUPT, -1, "statistics: %s %lld %s %lld", what,
                         (long long)a, than, (long long)b);
}

static usc_status check_counts(const usc_stats *s, const usc_shape *shape, usc_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } all[] = {{"n_nan", s->n_nan},
               {"n_pos_inf", s->n_pos_inf},
               {"n_neg_inf", s->n_neg_inf},
               {"n_zero", s->n_zero},
               {"n_subnormal", s->n_subnormal},
               {"n_histogram", s->n_histogram}};
    int64_t left = s->n;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].value < 0 || all[i].value > left)
            return corrupt(err, all[i].name, all[i].value, "does not fit the rest of n,",
                           left);
        if (i < 4) left -= all[i].value;
    }
    if (s->n < shape->n || s->n % shape->n != 0)
        return corrupt(err, "n", s->n, "against elements of the tensor,", shape->n);
    const usc_dtype_info *info = usc_dtype_info_of(shape->dtype);
    const bool no_inf = !shape->is_float || info->top != USC_TOP_INF;
    if (no_inf && s->n_pos_inf + s->n_neg_inf > 0)
        return corrupt(err, "Inf of a dtype without:", s->n_pos_inf + s->n_neg_inf, "of",
                       s->n);
    if (!shape->is_float && s->n_nan + s->n_subnormal > 0)
        return corrupt(err, "NaN or subnormal integers:", s->n_nan + s->n_subnormal, "of",
                       s->n);
    return USC_OK;
}

static usc_status check_range(const usc_stats *s, const usc_shape *shape, usc_error *err)
{
    const int64_t finite = s->n - s->n_nan - s->n_pos_inf - s->n_neg_inf;
    const bool is_unsigned = usc_dtype_info_of(shape->dtype)->kind == USC_KIND_UINT;
    if (!shape->is_float) {
        const bool ordered = is_unsigned ? (uint64_t)s->int_min <= (uint64_t)s->int_max
                                         : s->int_min <= s->int_max;
        return ordered ? USC_OK
                       : corrupt(err, "int_min", s->int_min, "above int_max", s->int_max);
    }
    if (finite == 0 || (isfinite(s->min) && isfinite(s->max) && s->min <= s->max))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "statistics: from %g to %g with %lld "
                         "finite elements",
                         s->min, s->max, (long long)finite);
}

static counts counts_of(const usc_stats *s, const usc_shape *shape)
{
    const int64_t repeat = s->n / shape->n;
    counts c = {.n_nan = s->n_nan / repeat,
                .n_pos_inf = s->n_pos_inf / repeat,
                .n_neg_inf = s->n_neg_inf / repeat,
                .n_zero = s->n_zero / repeat,
                .n_subnormal = s->n_subnormal / repeat};
    c.n_number = shape->n - c.n_nan - c.n_pos_inf - c.n_neg_inf - c.n_zero;
    if (c.n_subnormal > c.n_number) c.n_subnormal = c.n_number;
    return c;
}

/* ---- how many in which binade ---- */

/* counts[sign][binade], as the elements that are made have them. */
typedef struct binades {
    int64_t n[2][USC_N_BINADES];
    int64_t n_tiny[2]; /* float64: subnormals, which have no bins of their own */
} binades;

/* `total` shared out over bins [from, to) as the histogram has them: exactly, where it
 * counted as many. Running sums are rounded, so that the parts add up. */
static void share_out(const usc_stats *s, int from, int to, int64_t total, binades *out)
{
    int64_t counted = 0, before = 0, given = 0;
    for (int sign = 0; sign < 2; sign++)
        for (int b = from; b < to; b++)
            counted += s->histogram[sign][b];
    for (int sign = 0; counted > 0 && sign < 2; sign++)
        for (int b = from; b < to; b++) {
            before += s->histogram[sign][b];
            const int64_t upto =
                total / counted * before + total % counted * before / counted;
            out->n[sign][b] += upto - given;
            given = upto;
        }
}

static int64_t counted_in(const usc_stats *s, int from, int to)
{
    int64_t n = 0;
    for (int b = from; b < to; b++)
        n += s->histogram[0][b] + s->histogram[1][b];
    return n;
}

/* The bin of a number; -1 for zero and what is not finite. */
static int bin_of(double x)
{
    if (!isfinite(x) || !(fabs(x) > 0)) return -1;
    const int b = ilogb(x) - USC_BINADE_MIN;
    return b < 0 ? 0 : b >= USC_N_BINADES ? USC_N_BINADES - 1 : b;
}

/* Puts one element where an extreme lies, of which a sampled histogram may not know. */
static void have_extreme(double x, int64_t n_number, binades *out)
{
    const int b = bin_of(x), sign = x < 0;
    if (b < 0 || out->n[sign][b] > 0 || n_number < 2) return;
    int most_sign = 0, most = 0;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < USC_N_BINADES; k++)
            if (out->n[i][k] > out->n[most_sign][most]) most_sign = i, most = k;
    if (out->n[most_sign][most] < 2) return;
    out->n[most_sign][most]--;
    out->n[sign][b]++;
}

/* Takes as many of the first bins as subnormals of float64; an extreme that is none
 * stays.
 */
static void take_tiny(const usc_stats *s, int64_t n, binades *out)
{
    for (int sign = 0; sign < 2; sign++) {
        const double extreme = sign ? -s->min : s->max;
        const bool stays = extreme >= 0x1p-1022 && bin_of(extreme) == 0;
        const int64_t room = out->n[sign][0] - stays;
        out->n_tiny[sign] = n < room ? n : room > 0 ? room : 0;
        out->n[sign][0] -= out->n_tiny[sign];
        n -= out->n_tiny[sign];
    }
}

static void count_binades(const usc_stats *s, const usc_shape *shape, const counts *c,
                          binades *out)
{
    const usc_dtype_info *info = usc_dtype_info_of(shape->dtype);
    int normal = shape->is_float ? info->emin - USC_BINADE_MIN : 0;
    if (normal < 0) normal = 0;
    const int64_t n_tiny = normal > 0 ? c->n_subnormal : 0;
    const int64_t n_normal = c->n_number - n_tiny;
    memset(out, 0, sizeof *out);
    if (counted_in(s, 0, normal) > 0)
        share_out(s, 0, normal, n_tiny, out);
    else if (normal > 0)
        out->n[0][normal - 1] += n_tiny;
    if (counted_in(s, normal, USC_N_BINADES) > 0)
        share_out(s, normal, USC_N_BINADES, n_normal, out);
    else if (n_normal > 0)
        out->n[s->max <= 0][bin_of(s->max > 0 ? s->max : s->min)] += n_normal;
    if (normal == 0) take_tiny(s, c->n_subnormal, out);
    if (s->n_histogram < c->n_number) {
        have_extreme(s->min, c->n_number, out);
        have_extreme(s->max, c->n_number, out);
    }
}

/* ---- bins ---- */

static usc_bin float_bin(const usc_stats *s, const usc_dtype_info *info, int sign, int b)
{
    const int e = b + USC_BINADE_MIN, lowest = info->emin - (info->sig_bits - 1);
    const int last = e - (info->sig_bits - 1);
    const double top = sign ? -s->min : s->max, bottom = sign ? -s->max : s->min;
    usc_bin bin = {.negative = sign != 0,
                   .quantum = ldexp(1, last > lowest ? last : lowest)};
    bin.lo = ldexp(1, e);
    bin.hi = ldexp(1, e + 1) - bin.quantum;
    if (b == 0 && info->emin < USC_BINADE_MIN) { /* float64: all that is smaller */
        bin.lo = ldexp(1, info->emin);
        bin.quantum = ldexp(1, lowest);
    }
    if (b == USC_N_BINADES - 1) bin.hi = top; /* float64: all that is larger */
    if (top < bin.hi) bin.hi = top;
    if (bottom > bin.lo) bin.lo = bottom;
    return bin;
}

/* The smallest and the largest of all integers stand for themselves, one element each:
 * the others of their bins keep to what lies between the second ones. */
static void keep_between(uint64_t first, uint64_t second, bool at_lo, usc_bin *bin)
{
    if (first == second || first != (at_lo ? bin->int_lo : bin->int_hi)) return;
    const bool inside = second >= bin->int_lo && second <= bin->int_hi;
    if (at_lo)
        bin->int_lo = inside ? second : first;
    else
        bin->int_hi = inside ? second : first;
    if (!inside) bin->int_lo = bin->int_hi = first;
    if (bin->int_lo > bin->int_hi) bin->int_lo = bin->int_hi;
}

static usc_bin int_bin(const usc_stats *s, bool is_unsigned, int sign, int b)
{
    const int e = b + USC_BINADE_MIN;
    const uint64_t low = (uint64_t)s->int_min, high = (uint64_t)s->int_max;
    const uint64_t above = (uint64_t)s->int_above_min, below = (uint64_t)s->int_below_max;
    if (e < 0 || e > 63) return (usc_bin){.lo = 1}; /* ends above hi: no integers there */
    usc_bin bin = {.negative = sign != 0, .int_lo = UINT64_C(1) << e};
    bin.int_hi = bin.int_lo * 2 - 1;
    /* magnitudes: of negative numbers the smallest one has the largest */
    const bool low_here = sign != 0 || is_unsigned || s->int_min > 0;
    const bool high_here = sign == 0 || s->int_max < 0;
    const uint64_t top = sign != 0 ? 0 - low : high;
    const uint64_t bottom = sign != 0 ? 0 - high : low;
    if (top < bin.int_hi) bin.int_hi = top;
    if (low_here && high_here && bottom > bin.int_lo) bin.int_lo = bottom;
    if (bin.int_lo <= bin.int_hi && sign == 0) {
        if (low_here) keep_between(low, above, true, &bin);
        keep_between(high, below, false, &bin);
    } else if (bin.int_lo <= bin.int_hi) {
        keep_between(0 - low, 0 - above, false, &bin);
        if (high_here) keep_between(0 - high, 0 - below, true, &bin);
    }
    bin.lo = (double)bin.int_lo;
    bin.hi = (double)bin.int_hi;
    return bin;
}

static void append(usc_bins *b, usc_bin bin, int64_t count)
{
    if (count <= 0) return;
    bin.first = b->n_elements;
    bin.count = count;
    b->n_elements += count;
    b->bin[b->n++] = bin;
}

static void append_special(usc_bins *b, double value, int64_t count)
{
    append(b, (usc_bin){.kind = USC_BIN_SPECIAL, .lo = value, .hi = value}, count);
}

/* Subnormals of float64. */
static void append_tiny(const usc_stats *s, int64_t count, int sign, usc_bins *out)
{
    const double quantum = 0x1p-1074;
    const double top = sign ? -s->min : s->max, bottom = sign ? -s->max : s->min;
    usc_bin bin = {.negative = sign != 0, .lo = quantum, .quantum = quantum};
    bin.hi = fmax(fmin(0x1p-1022 - quantum, top), quantum);
    if (bottom > bin.lo) bin.lo = fmin(bottom, bin.hi);
    append(out, bin, count);
}

static usc_status append_numbers(const usc_stats *s, const usc_shape *shape,
                                 const binades *counted, int sign, usc_bins *out,
                                 usc_error *err)
{
    const usc_dtype_info *info = usc_dtype_info_of(shape->dtype);
    if (sign == 0) append_tiny(s, counted->n_tiny[0], 0, out);
    for (int k = 0; k < USC_N_BINADES; k++) {
        const int b = sign ? USC_N_BINADES - 1 - k : k; /* ascending values */
        if (counted->n[sign][b] == 0) continue;
        const usc_bin bin = shape->is_float
                                ? float_bin(s, info, sign, b)
                                : int_bin(s, info->kind == USC_KIND_UINT, sign, b);
        if (bin.lo > bin.hi || bin.int_lo > bin.int_hi)
            return usc_error_set(
                err, USC_E_CORRUPT, b + USC_BINADE_MIN,
                "statistics: binade %d of %s numbers lies outside of %g to %g",
                b + USC_BINADE_MIN, sign ? "negative" : "positive", s->min, s->max);
        append(out, bin, counted->n[sign][b]);
    }
    if (sign != 0) append_tiny(s, counted->n_tiny[1], 1, out);
    return USC_OK;
}

/* ---- what stands beyond a diagonal ---- */

/* Takes `n` elements of the value `fill` off the counts; false: there are not as many. */
static bool take_fill(double fill, int64_t n, counts *c, binades *b)
{
    int64_t *from = NULL;
    const int i = bin_of(fill);
    if (isnan(fill)) from = &c->n_nan;
    if (isinf(fill)) from = fill > 0 ? &c->n_pos_inf : &c->n_neg_inf;
    if (i < 0 && isfinite(fill)) from = &c->n_zero;
    if (i >= 0) from = &b->n[fill < 0][i];
    if (from == NULL || *from < n) return false;
    *from -= n;
    if (i >= 0) c->n_number -= n;
    return true;
}

static int64_t n_beyond(const usc_shape *s)
{
    const int64_t r = s->rows, c = s->columns, m = r < c ? r : c;
    const int64_t on_and_right = r * c - m * (m - 1) / 2 - (r > c ? (r - c) * c : 0);
    const int64_t upper = r * c - on_and_right; /* strictly below the diagonal */
    const int64_t lower = on_and_right - m;     /* strictly above */
    const int64_t one = ((s->structure & USC_UPPER) != 0 ? upper : 0) +
                        ((s->structure & USC_LOWER) != 0 ? lower : 0);
    return s->n / (r * c) * one;
}

/* ---- the mean ---- */

static void lean_to_sum(double wanted, usc_bins *b)
{
    double sum = 0, room = 0;
    for (int i = 0; i < b->n; i++) {
        const usc_bin *bin = &b->bin[i];
        if (bin->kind == USC_BIN_SPECIAL) continue;
        sum += (double)bin->count * (bin->negative ? -0.5 : 0.5) * (bin->lo + bin->hi);
        room += (double)bin->count * 0.5 * (bin->hi - bin->lo);
    }
    const double tilt = (wanted - sum) / room;
    b->tilt = 0;
    if (room > 0 && isfinite(tilt)) b->tilt = tilt > 1 ? 1 : tilt < -1 ? -1 : tilt;
}

static bool holds(const usc_bin *bin, double x)
{
    const double magnitude = fabs(x);
    if (bin->kind == USC_BIN_ANY) return true;
    /* a bin of integers begins behind the smallest one */
    return bin->negative == (x < 0) && bin_of(bin->hi) == bin_of(magnitude);
}

static void find_extremes(const usc_stats *s, usc_bins *b)
{
    int first = -1, last = -1;
    for (int i = 0; i < b->n; i++) {
        if (b->bin[i].kind == USC_BIN_SPECIAL) continue;
        if (first < 0) first = i;
        last = i;
    }
    const bool low = first >= 0 && bin_of(s->min) >= 0 && holds(&b->bin[first], s->min);
    const bool high = last >= 0 && bin_of(s->max) >= 0 && holds(&b->bin[last], s->max);
    b->i_min = low ? first : -1;
    b->i_max = high ? last : -1;
}

/* Without a histogram: all numbers from the whole range; of integers zeros with them. */
static void append_any(const usc_stats *s, const usc_shape *shape, counts *c,
                       usc_bins *out)
{
    const usc_dtype_info *info = usc_dtype_info_of(shape->dtype);
    const int e = bin_of(fmax(fabs(s->min), fabs(s->max))) + USC_BINADE_MIN;
    if (!shape->is_float && s->min < 0) c->n_number += c->n_zero, c->n_zero = 0;
    const usc_bin bin = {.kind = USC_BIN_ANY,
                         .lo = s->min,
                         .hi = s->max,
                         .quantum = ldexp(1, e - (info->sig_bits - 1)),
                         .int_lo = (uint64_t)s->int_min,
                         .int_hi = (uint64_t)s->int_max};
    append_special(out, 0.0, c->n_zero);
    append(out, bin, c->n_number);
}

/* The bins of what is drawn, by ascending value. */
static usc_status append_all(const usc_stats *s, const usc_shape *shape, counts *c,
                             const binades *counted, usc_bins *out, usc_error *err)
{
    usc_status st = USC_OK;
    append_special(out, (double)NAN, c->n_nan);
    append_special(out, -(double)INFINITY, c->n_neg_inf);
    if (s->n_histogram == 0 && c->n_number > 0) {
        append_any(s, shape, c, out);
    } else {
        st = append_numbers(s, shape, counted, 1, out, err);
        append_special(out, 0.0, c->n_zero);
        if (st == USC_OK) st = append_numbers(s, shape, counted, 0, out, err);
    }
    append_special(out, (double)INFINITY, c->n_pos_inf);
    return st;
}

usc_status usc_bins_make(const usc_stats *s, usc_shape *shape, usc_bins *out,
                         usc_error *err)
{
    binades counted;
    out->n = 0;
    out->n_elements = 0;
    usc_status st = check_counts(s, shape, err);
    if (st == USC_OK) st = check_range(s, shape, err);
    if (st != USC_OK) return st;

    counts c = counts_of(s, shape);
    if (c.n_number > 0 && bin_of(s->min) < 0 && bin_of(s->max) < 0)
        return corrupt(err, "zero to zero with numbers:", c.n_number, "of", s->n);
    if (s->n_histogram > c.n_number)
        return corrupt(err, "n_histogram", s->n_histogram, "above the numbers,",
                       c.n_number);
    count_binades(s, shape, &c, &counted);

    double wanted = s->mean * (double)(c.n_number + c.n_zero);
    const int64_t n_fill = n_beyond(shape);
    if (n_fill > 0 && !take_fill(s->fill, n_fill, &c, &counted))
        shape->structure &= ~(unsigned)(USC_LOWER | USC_UPPER);
    else if (isfinite(s->fill))
        wanted -= s->fill * (double)n_fill;
    shape->n_drawn = shape->n - n_beyond(shape);
    st = append_all(s, shape, &c, &counted, out, err);
    lean_to_sum(wanted, out);
    find_extremes(s, out);
    return st;
}

const usc_bin *usc_bins_find(const usc_bins *b, int64_t rank)
{
    int low = 0, high = b->n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (b->bin[middle].first <= rank)
            low = middle;
        else
            high = middle - 1;
    }
    return &b->bin[low];
}
