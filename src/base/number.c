// SPDX-License-Identifier: Apache-2.0
// The locale is changed for this thread and this one call; the contracts stand in
// number.h.
#include "base/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct swapped {
    locale_t plain, host;
} swapped;

/* Without memory for a locale (the C library's own "C" takes none) the host's is kept. */
static swapped enter(void)
{
    swapped s = {.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (s.plain != (locale_t)0) s.host = uselocale(s.plain);
    return s;
}

static void leave(swapped s)
{
    if (s.plain == (locale_t)0) return;
    (void)uselocale(s.host);
    freelocale(s.plain);
}

int usc_format_list(char *out, size_t size, const char *format, va_list args)
{
    const swapped s = enter();
    const int n = vsnprintf(out, size, format, args);
    leave(s);
    return n;
}

int usc_format(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = usc_format_list(out, size, format, args);
    va_end(args);
    return n;
}

double usc_parse_number(const char *text, char **end)
{
    const swapped s = enter();
    const double value = strtod(text, end);
    leave(s);
    return value;
}

/* ---- numbers as text ---- */

/* d.ddd times 10^exponent. */
typedef struct decimal {
    char digit[24];
    int n, exponent;
} decimal;

static void trim(decimal *d)
{
    while (d->n > 1 && d->digit[d->n - 1] == '0')
        d->n--;
}

static void put_digits(uint64_t whole, decimal *d)
{
    d->n = 1;
    for (uint64_t rest = whole; rest >= 10; rest /= 10)
        d->n++;
    for (int i = d->n; i-- > 0; whole /= 10)
        d->digit[i] = (char)('0' + whole % 10);
}

/* Of what people write. Whole numbers and powers of ten so small are exact, and a
 * quotient of two of them rounds as reading the text does; of 15 digits no two say one
 * number. */
static bool has_few_digits(double v, decimal *d)
{
    double power = 1;
    for (int k = 0; k <= 22; k++, power *= 10) {
        const double whole = rint(v * power);
        if (whole >= 1e15) return false;
        if (whole / power < v || whole / power > v) continue;
        put_digits((uint64_t)whole, d);
        d->exponent = d->n - 1 - k;
        return true;
    }
    return false;
}

/* The rest: of 15 digits, those that are subnormal aside, the fewest were looked for. */
static void find_digits(double v, decimal *d)
{
    char text[40];
    for (d->n = v < DBL_MIN ? 1 : 15; d->n <= 17; d->n++) {
        (void)usc_format(text, sizeof text, "%.*e", d->n - 1, v);
        const double back = usc_parse_number(text, NULL);
        if (d->n == 17 || (!(back < v) && !(back > v))) break;
    }
    d->digit[0] = text[0];
    memcpy(d->digit + 1, text + 2, (size_t)d->n - 1);
    d->exponent = atoi(strchr(text, 'e') + 1);
}

static char *put(char *out, const char *bytes, int n)
{
    memcpy(out, bytes, (size_t)n);
    return out + n;
}

static void lay_out(const decimal *d, char *out, size_t size)
{
    static const char zeros[] = "0.0000000000000000"; /* 16 behind the point */
    const int whole = d->exponent + 1;                /* digits before the point */
    if (d->exponent < -4 || d->exponent >= 16) {
        (void)snprintf(out, size, "%c%s%.*se%c%02d", d->digit[0], d->n > 1 ? "." : "",
                       d->n - 1, d->digit + 1, d->exponent < 0 ? '-' : '+',
                       abs(d->exponent));
        return;
    }
    if (whole <= 0) {
        out = put(put(out, zeros, 2 - whole), d->digit, d->n);
    } else if (d->n <= whole) {
        out = put(put(out, d->digit, d->n), zeros + 2, whole - d->n);
        out = put(out, ".0", 2);
    } else {
        out = put(put(out, d->digit, whole), ".", 1);
        out = put(out, d->digit + whole, d->n - whole);
    }
    *out = '\0';
}

void usc_number_text(double v, char out[static USC_NUMBER_SIZE])
{
    decimal d;
    size_t n = 0;
    if (signbit(v) && !isnan(v)) out[n++] = '-';
    v = fabs(v);
    if (!isfinite(v)) {
        (void)snprintf(out + n, USC_NUMBER_SIZE - n, isnan(v) ? "nan" : "inf");
        return;
    }
    if (!has_few_digits(v, &d)) find_digits(v, &d);
    trim(&d);
    lay_out(&d, out + n, USC_NUMBER_SIZE - n);
}
