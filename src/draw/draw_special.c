// SPDX-License-Identifier: Apache-2.0
// Functions of statistics. DLMF is the Digital Library of Mathematical Functions of NIST,
// https://dlmf.nist.gov.
#include "draw/draw_special.h"

#include <math.h>
#include <stdlib.h>

#include "base/mix.h"

static const double PI = 3.14159265358979323846;

double usc_normal_below(double z)
{
    return 0.5 * erfc(-z * sqrt(0.5)); /* DLMF 7.17.2 turned around */
}

double usc_normal_bound(double chance)
{
    double low = 0, high = 40; /* erfc falls all the way: halve until nothing is left */
    for (int i = 0; i < 64; i++) {
        const double z = 0.5 * (low + high);
        if (erfc(z * sqrt(0.5)) > chance)
            low = z;
        else
            high = z;
    }
    return high;
}

double usc_log_gamma(double x)
{
    int sign; /* lgamma() keeps it where all threads write */
    return lgamma_r(x, &sign);
}

/* x^a e^-x / Gamma(a + 1) */
static double gamma_term(double a, double x)
{
    return exp(a * log(x) - x - usc_log_gamma(a + 1));
}

/* P(a, x) by its series, DLMF 8.11.4. */
static double gamma_series(double a, double x)
{
    double term = 1, sum = 1;
    for (double k = 1; k < 1e5 && term > 1e-17 * sum; k++) {
        term *= x / (a + k);
        sum += term;
    }
    return sum * gamma_term(a, x);
}

/* Q(a, x) by the even part of the continued fraction DLMF 8.9.2, from the front on as of
 * Lentz (W. J. Lentz, Applied Optics 15, 1976). */
static double gamma_fraction(double a, double x)
{
    const double tiny = 1e-300;
    double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
    for (double k = 1; k < 1e5; k++) {
        const double over = -k * (k - a);
        b += 2;
        d = over * d + b;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = b + over / c;
        if (fabs(c) < tiny) c = tiny;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-16) break;
    }
    return h * a * gamma_term(a, x);
}

/* Q(a, x) for large a: the first term of DLMF 8.12.4, next to which others are below
 * 1e-9. */
static double gamma_large(double a, double x)
{
    const double mu = x / a - 1;
    const double half =
        fabs(mu) > 1e-2
            ? mu - log1p(mu)
            : mu * mu * (1 / 2. - mu * (1 / 3. - mu * (1 / 4. - mu * (1 / 5. - mu / 6))));
    const double eta = copysign(sqrt(2 * half), mu);
    const double c0 =
        fabs(eta) > 0.05
            ? 1 / mu - 1 / eta
            : -1 / 3. +
                  eta * (1 / 12. - eta * (2 / 135. - eta * (1 / 864. + eta / 2835)));
    return 0.5 * erfc(eta * sqrt(a / 2)) + exp(-a * half) / sqrt(2 * PI * a) * c0;
}

double usc_gamma_above(double a, double x)
{
    if (!(x > 0)) return 1;
    if (isinf(x)) return 0;
    if (isinf(a)) return 1;
    if (a > 1e4) return gamma_large(a, x);
    return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

double usc_even_number(uint64_t seed, uint64_t i)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    return (double)(usc_mixed(usc_mixed(seed * odd) + (i + 1) * odd) >> 11) * 0x1p-53;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void usc_sort_doubles(double *x, size_t n)
{
    if (n > 1) qsort(x, n, sizeof *x, compare);
}

/* ---- correlations at all lags, by Fourier's transform ---- */

typedef struct complex_number {
    double re, im;
} complex_number;

/* Half the length of the transform: a power of two that keeps the ends apart. */
static size_t half_length(int64_t n)
{
    size_t m = 1;
    while (m < (size_t)n)
        m *= 2;
    return m;
}

size_t usc_lags_room(int64_t n)
{
    return 4 * half_length(n);
}

static void reverse_bits(complex_number *z, size_t m)
{
    for (size_t i = 1, j = 0; i < m; i++) {
        size_t bit = m >> 1;
        for (; (j & bit) != 0; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i >= j) continue;
        const complex_number t = z[i];
        z[i] = z[j];
        z[j] = t;
    }
}

/* Cooley and Tukey's transform of m numbers in place; `roots` are the first half of those
 * of order 2m. */
static void transform(complex_number *z, size_t m, const complex_number *roots)
{
    reverse_bits(z, m);
    for (size_t length = 2; length <= m; length *= 2) {
        const size_t half = length / 2, step = 2 * m / length;
        for (size_t i = 0; i < m; i += length)
            for (size_t k = 0; k < half; k++) {
                const complex_number w = roots[k * step], a = z[i + k],
                                     b = z[i + k + half];
                const double re = w.re * b.re - w.im * b.im;
                const double im = w.re * b.im + w.im * b.re;
                z[i + k] = (complex_number){a.re + re, a.im + im};
                z[i + k + half] = (complex_number){a.re - re, a.im - im};
            }
    }
}

/* |X_k|^2 of the transform X of 2m real numbers, of which those of even places are the
 * real parts of what Z is the transform of, those of odd places the imaginary ones. */
static double power_at(complex_number zk, complex_number zm, complex_number w)
{
    const complex_number even = {(zk.re + zm.re) / 2, (zk.im - zm.im) / 2};
    const complex_number odd = {(zk.im + zm.im) / 2, (zm.re - zk.re) / 2};
    const double re = even.re + w.re * odd.re - w.im * odd.im;
    const double im = even.im + w.re * odd.im + w.im * odd.re;
    return re * re + im * im;
}

/* Conjugate of what transforms back to the even places as real, the odd ones as
 * imaginary parts; conjugated, since it is transformed forwards again. */
static complex_number back_at(double p, double p_m, complex_number w)
{
    const double even = (p + p_m) / 2, odd = (p - p_m) / 2;
    return (complex_number){even + odd * w.im, -odd * w.re};
}

static void power_and_back(complex_number *z, size_t m, const complex_number *roots)
{
    for (size_t k = 0; k <= m / 2; k++) {
        const size_t j = (m - k) % m;
        const complex_number wk = roots[k];
        const complex_number wj =
            k == 0 ? (complex_number){-1, 0} : (complex_number){-wk.re, wk.im};
        const complex_number zk = z[k], zj = z[j];
        const double pk = power_at(zk, zj, wk), pj = power_at(zj, zk, wj);
        z[k] = back_at(pk, pj, wk);
        if (j != k) z[j] = back_at(pj, pk, wj);
    }
}

void usc_lags(const double *x, int64_t n, double *room, double *out)
{
    const size_t m = half_length(n);
    complex_number *z = (complex_number *)(void *)room, *roots = z + m;
    for (size_t k = 0; k < m; k++) {
        const double angle = -PI * (double)k / (double)m;
        roots[k] = (complex_number){cos(angle), sin(angle)};
    }
    for (size_t k = 0; k < m; k++) {
        const size_t i = 2 * k;
        z[k].re = i < (size_t)n ? x[i] : 0;
        z[k].im = i + 1 < (size_t)n ? x[i + 1] : 0;
    }
    transform(z, m, roots);
    power_and_back(z, m, roots);
    transform(z, m, roots);
    for (int64_t k = 0; k < n; k++)
        out[k] = k % 2 == 0 ? z[k / 2].re : -z[k / 2].im;
}
