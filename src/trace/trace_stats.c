// SPDX-License-Identifier: Apache-2.0
// Statistics as JSON text, the form in which a trace keeps them.
#include <ulpscope/trace.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "trace/trace_stats.h"

const usc_structure_name usc_structure_names[] = {
#define STRUCTURE_NAME(id, bit, text) {USC_##id, text},
    USC_STRUCTURE_LIST(STRUCTURE_NAME)
#undef STRUCTURE_NAME
        {0, NULL}};

/* Counts what does not fit any more, as snprintf does. */
typedef struct writer {
    char *buffer;
    size_t size, used;
} writer;

static void put(writer *w, const char *text)
{
    for (; *text != '\0'; text++, w->used++)
        if (w->used + 1 < w->size) w->buffer[w->used] = *text;
}

static void put_name(writer *w, const char *name)
{
    put(w, "\"");
    put(w, name);
    put(w, "\":");
}

/* Decimal digits. There are some fifty numbers in each text: snprintf would take longer
 * over them than the statistics themselves took. */
static void put_digits(writer *w, int64_t value)
{
    char text[24], *at = text + sizeof text - 1;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    *at = '\0';
    do
        *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0) *--at = '-';
    put(w, at);
}

static void put_int(writer *w, const char *name, int64_t value)
{
    put_name(w, name);
    put_digits(w, value);
    put(w, ",");
}

static void put_bool(writer *w, const char *name, bool value)
{
    put_name(w, name);
    put(w, value ? "true," : "false,");
}

/* 17 digits bring the same double back; JSON has no NaN and no Inf. */
static void put_double(writer *w, const char *name, double value)
{
    char digits[40] = "null";
    if (isfinite(value)) (void)usc_format(digits, sizeof digits, "%.17g", value);
    put_name(w, name);
    put(w, digits);
    put(w, ",");
}

static void put_bins(writer *w, const char *name, const int32_t bins[USC_N_BINADES])
{
    put_name(w, name);
    put(w, "{");
    const char *comma = "";
    for (int i = 0; i < USC_N_BINADES; i++) {
        if (bins[i] == 0) continue;
        put(w, comma);
        put(w, "\"");
        put_digits(w, i + USC_BINADE_MIN);
        put(w, "\":");
        put_digits(w, bins[i]);
        comma = ",";
    }
    put(w, "}");
}

/* Names of what the rows and matrices are like. */
static void put_structure(writer *w, unsigned structure)
{
    const char *comma = "";
    put_name(w, "structure");
    put(w, "[");
    for (const usc_structure_name *name = usc_structure_names; name->text; name++) {
        if ((structure & name->bit) == 0) continue;
        put(w, comma);
        put(w, "\"");
        put(w, name->text);
        put(w, "\"");
        comma = ",";
    }
    put(w, "],");
}

/* May be an infinity, for which JSON has no number: a text. */
static void put_fill(writer *w, double fill)
{
    if (isfinite(fill)) {
        put_double(w, "fill", fill);
        return;
    }
    put_name(w, "fill");
    put(w, fill > 0 ? "\"inf\"," : "\"-inf\",");
}

/* 16 hexadecimal digits: not every reader keeps 64 bits of an integer. */
static void put_fingerprint(writer *w, uint64_t value)
{
    char digits[] = "\"0123456789abcdef\",";
    for (int i = 16; i >= 1; i--, value >>= 4)
        digits[i] = "0123456789abcdef"[value & 15];
    put_name(w, "fingerprint");
    put(w, digits);
}

/* Members that say nothing are left out: there is a row for each tensor of a trace. */
static void put_form(writer *w, const usc_stats *s)
{
    if (s->int_above_min != s->int_min) put_int(w, "int_above_min", s->int_above_min);
    if (s->int_below_max != s->int_max) put_int(w, "int_below_max", s->int_below_max);
    if (s->structure != 0) put_structure(w, s->structure);
    if ((s->structure & (USC_LOWER | USC_UPPER)) != 0) put_fill(w, s->fill);
    if (s->fingerprint != 0) put_fingerprint(w, s->fingerprint);
}

size_t usc_stats_to_json(const usc_stats *stats, char *buffer, size_t size)
{
    writer w = {.buffer = buffer, .size = size};
    put(&w, "{");
    put_int(&w, "n", stats->n);
    put_int(&w, "n_nan", stats->n_nan);
    put_int(&w, "n_pos_inf", stats->n_pos_inf);
    put_int(&w, "n_neg_inf", stats->n_neg_inf);
    put_int(&w, "n_zero", stats->n_zero);
    put_int(&w, "n_subnormal", stats->n_subnormal);
    put_double(&w, "min", stats->min);
    put_double(&w, "max", stats->max);
    put_double(&w, "mean", stats->mean);
    put_double(&w, "l2", stats->l2);
    put_int(&w, "int_min", stats->int_min);
    put_int(&w, "int_max", stats->int_max);
    put_bool(&w, "sorted", stats->sorted);
    put_bool(&w, "unique", stats->unique);
    put_form(&w, stats);
    put_int(&w, "n_histogram", stats->n_histogram);
    put(&w, "\"histogram\":{");
    put_bins(&w, "pos", stats->histogram[0]);
    put(&w, ",");
    put_bins(&w, "neg", stats->histogram[1]);
    put(&w, "}}");
    if (size > 0) buffer[w.used < size ? w.used : size - 1] = '\0';
    return w.used;
}
