// SPDX-License-Identifier: Apache-2.0
// Local noise of a curve: from windows around at most 65 places, straight lines between.
// A window holds a fifth of the curve, at least 31 steps, of which 2,048 are looked at.
#include "loss/loss_noise.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"

enum { MOST_PLACES = 64, LEAST_REACH = 15, MOST_LOOKED = 2048 };

#define UNSURE 1.65

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double usc_loss_median(double *values, size_t n)
{
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, ascending);
    return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double usc_loss_mean(const double *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    return n > 0 ? sum / (double)n : 0;
}

/* Of magnitudes of a normal variable the median is 0.6745 of the deviation, and one in
 * twenty is above 1.96 of it: where tails are heavier the latter counts. Of n magnitudes,
 * neighbours of which have numbers in common, the median is known to 1.65 / sqrt(n) of
 * itself: it is taken that much larger, or a window that looks calm by chance accuses. */
static double deviation(double *magnitudes, size_t n, bool short_too)
{
    const double middle = usc_loss_median(magnitudes, n) * 1.4826;
    const bool tenth = short_too && n < 62;
    const double tail = tenth ? magnitudes[(n - 1) * 9 / 10] / 1.645
                              : magnitudes[(n - 1) * 19 / 20] / 1.96;
    return (tail > middle ? tail : middle) * (1 + UNSURE / sqrt((double)n));
}

static double deviation_of(double *magnitudes, size_t n)
{
    return deviation(magnitudes, n, false);
}

/* One spike makes three magnitudes large: in a short window a tenth is left out above,
 * not a twentieth, or the spike would hide itself. */
static double deviation_of_difference(double *magnitudes, size_t n)
{
    return deviation(magnitudes, n, true);
}

static double root_mean(double *squares, size_t n)
{
    return sqrt(usc_loss_mean(squares, (int64_t)n));
}

static usc_status by_windows(const double *values, int64_t n, double *out,
                             double (*measure)(double *, size_t), usc_error *err)
{
    double *window = malloc(MOST_LOOKED * sizeof *window);
    double at_place[MOST_PLACES + 1];
    if (window == NULL) return usc_no_memory("loss", err);
    const int64_t reach = n / 10 > LEAST_REACH ? n / 10 : LEAST_REACH;
    const int64_t n_places = n - 1 < MOST_PLACES ? n - 1 : MOST_PLACES;
    for (int64_t p = 0; p <= n_places; p++) {
        const int64_t middle = p * (n - 1) / n_places;
        const int64_t first = middle > reach ? middle - reach : 0;
        const int64_t end = middle + reach + 1 < n ? middle + reach + 1 : n;
        const int64_t stride = (end - first + MOST_LOOKED - 1) / MOST_LOOKED;
        size_t size = 0;
        for (int64_t i = first; i < end; i += stride)
            window[size++] = values[i];
        at_place[p] = measure(window, size);
    }
    for (int64_t i = 0; i < n; i++) {
        const double place = (double)(i * n_places) / (double)(n - 1);
        const int64_t low = (int64_t)place < n_places ? (int64_t)place : n_places - 1;
        const double share = place - (double)low;
        out[i] = at_place[low] * (1 - share) + at_place[low + 1] * share;
    }
    free(window);
    return USC_OK;
}

void usc_loss_off_line(const double *values, int64_t n, double *out)
{
    for (int64_t i = 1; i + 1 < n; i++)
        out[i] = fabs(values[i] - (values[i - 1] + values[i + 1]) / 2) / sqrt(1.5);
    if (n > 0) out[0] = n > 2 ? out[1] : 0;
    if (n > 1) out[n - 1] = n > 2 ? out[n - 2] : 0;
}

double usc_loss_waver(const double *values, int64_t n, double *work)
{
    usc_loss_off_line(values, n, work);
    return 1.4826 * usc_loss_median(work, (size_t)n);
}

usc_status usc_loss_roughness(const double *values, int64_t n, bool difference,
                              double *out, usc_error *err)
{
    double *magnitudes = malloc((size_t)n * sizeof *magnitudes);
    if (magnitudes == NULL) return usc_no_memory("loss", err);
    usc_loss_off_line(values, n, magnitudes);
    const usc_status st = by_windows(
        magnitudes, n, out, difference ? deviation_of_difference : deviation_of, err);
    free(magnitudes);
    return st;
}

usc_status usc_loss_spread(const double *squares, int64_t n, double *out, usc_error *err)
{
    return by_windows(squares, n, out, root_mean, err);
}

const char *usc_loss_noise_text(usc_loss_noise noise)
{
    static const char *const texts[] = {
#define USC_LOSS_NOISE_ROW(id, text) text,
        USC_LOSS_NOISE_LIST(USC_LOSS_NOISE_ROW)
#undef USC_LOSS_NOISE_ROW
    };
    return noise >= 0 && noise < USC_N_LOSS_NOISES ? texts[noise] : "unknown";
}
