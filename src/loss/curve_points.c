// SPDX-License-Identifier: Apache-2.0
// What a reader of a curve puts together: points, remarks, lines and numbers of a text.
// Neighbours: curve.c, which chooses the reader; one file for each kind of file.
#include "loss/curve.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/number.h"
#include "loss/curve_text.h"

/* ---- points ---- */

bool usc_curve_is_key(const usc_curve_maker *m, const char *name, size_t n)
{
    return m->key != NULL && strlen(m->key) == n && memcmp(m->key, name, n) == 0;
}

void usc_curve_axis(usc_curve_maker *m, const char *name, size_t n)
{
    if (m->axis[0] != '\0' || n >= sizeof m->axis) return;
    memcpy(m->axis, name, n);
    m->axis[n] = '\0';
}

void usc_curve_add(usc_curve_maker *m, int64_t step, double value)
{
    usc_curve_add_at(m, (usc_curve_at){.step = step}, value);
}

void usc_curve_add_at(usc_curve_maker *m, usc_curve_at at, double value)
{
    if (m->status != USC_OK) return;
    if (m->n == m->size) {
        const size_t size = m->size > 0 ? 2 * m->size : 256;
        usc_curve_point *points = realloc(m->points, size * sizeof *points);
        if (points == NULL) {
            m->status = usc_no_memory(m->name, m->err);
            return;
        }
        m->points = points;
        m->size = size;
    }
    m->points[m->n] = (usc_curve_point){at.step, (int64_t)m->n, at.epoch, at.of, value};
    m->n++;
}

/* Takes note of the first number with a decimal comma, and with a point. */
static void note_comma(usc_curve_maker *m, const char *text, size_t n, bool comma)
{
    size_t size = 0;
    while (size < n && strchr("+-0123456789.,", text[size]) != NULL)
        size++;
    char *first = comma ? m->comma : m->point;
    if (first[0] != '\0' || size >= USC_CURVE_NUMBER) return;
    if (!comma && memchr(text, '.', size) == NULL) return;
    memcpy(first, text, size);
    first[size] = '\0';
}

void usc_curve_printed(usc_curve_maker *m, const char *text, size_t n)
{
    char plain[USC_CURVE_NUMBER];
    int digits = 0, exponent = 0;
    size_t at = 0;
    note_comma(m, text, n, usc_curve_plain(text, n, plain, sizeof plain));
    text = plain;
    n = strlen(plain);
    while (at < n && strchr("0123456789.eE", text[at]) == NULL)
        at++;
    while (at < n && isdigit((unsigned char)text[at]))
        at++;
    if (at < n && text[at] == '.')
        while (++at < n && isdigit((unsigned char)text[at]))
            digits++;
    if (at < n && (text[at] == 'e' || text[at] == 'E')) {
        const bool negative = ++at < n && text[at] == '-';
        for (at += at < n && strchr("+-", text[at]) != NULL;
             at < n && isdigit((unsigned char)text[at]) && exponent < 1000; at++)
            exponent = exponent * 10 + (text[at] - '0');
        if (negative) exponent = -exponent;
    }
    digits -= exponent;
    if (!m->printed || digits > m->digits) m->digits = digits;
    m->printed = true;
}

void usc_curve_note(usc_curve_maker *m, const char *format, ...)
{
    char text[USC_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    usc_line_add(&m->notes, "%s%s: %s", m->notes.n > 0 ? "\n" : "", m->name, text);
}

/* ---- texts ---- */

bool usc_curve_line(const char **at, const char *end, const char **line, size_t *n)
{
    if (*at >= end) return false;
    const char *p = *at;
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    *line = *at;
    *n = (size_t)(p - *at);
    if (p < end && *p == '\r' && p + 1 < end && p[1] == '\n') p++;
    *at = p < end ? p + 1 : end;
    return true;
}

bool usc_curve_number(const char *text, size_t n, double *out)
{
    char copy[USC_CURVE_NUMBER], *end;
    while (n > 0 && (isspace((unsigned char)*text) || *text == '"' || *text == '\''))
        text++, n--;
    while (n > 0 && strchr(" \t\"'", text[n - 1]) != NULL)
        n--;
    if (n == 0 || n >= sizeof copy || memchr(text, '\0', n) != NULL) return false;
    (void)usc_curve_plain(text, n, copy, sizeof copy);
    *out = usc_parse_number(copy, &end);
    return *end == '\0';
}

bool usc_curve_step(const char *text, size_t n, int64_t *out)
{
    char plain[USC_CURVE_NUMBER];
    double value, of;
    const char *slash = memchr(text, '/', n);
    if (slash != NULL) { /* 5/100 */
        const size_t before = (size_t)(slash - text);
        if (!usc_curve_number(slash + 1, n - before - 1, &of)) return false;
        n = before;
    }
    if (memchr(text, ',', n) != NULL) { /* 1,000: a decimal comma makes no step */
        n = usc_curve_without_thousands(text, n, plain, sizeof plain);
        text = plain;
    }
    if (!usc_curve_number(text, n, &value)) return false;
    if (!(value >= 0 && value < 9e15) || value != floor(value)) return false;
    *out = (int64_t)value;
    return true;
}
