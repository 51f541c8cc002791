// SPDX-License-Identifier: Apache-2.0
// Statistics to JSON. Histograms name their non-empty bins only: most are empty.
#include "trace/trace_stats.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct text {
    char *at;
    size_t size, used;
} text;

static void add(text *t, const char *format, ...) USC_PRINTF(2, 3);

static void add(text *t, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int n = vsnprintf(t->at + t->used, t->size - t->used, format, values);
    va_end(values);
    if (n > 0 && (size_t)n < t->size - t->used) t->used += (size_t)n;
}

static void add_number(text *t, const char *key, double value)
{
    if (isnan(value))
        add(t, ",\"%s\":null", key);
    else if (isinf(value))
        add(t, ",\"%s\":\"%s\"", key, value > 0 ? "inf" : "-inf");
    else
        add(t, ",\"%s\":%.17g", key, value);
}

static void add_histogram(text *t, const char *key, const int32_t *bins)
{
    const char *comma = "";
    add(t, ",\"%s\":{", key);
    for (int i = 0; i < USC_N_BINADES; i++) {
        if (bins[i] == 0) continue;
        add(t, "%s\"%d\":%d", comma, i + USC_BINADE_MIN, (int)bins[i]);
        comma = ",";
    }
    add(t, "}");
}

void usc_trace_stats_text(const usc_stats *s, char *out, size_t size)
{
    text t = {out, size, 0};
    add(&t, "{\"n\":%lld,\"n_nan\":%lld,\"n_pos_inf\":%lld,\"n_neg_inf\":%lld",
        (long long)s->n, (long long)s->n_nan, (long long)s->n_pos_inf,
        (long long)s->n_neg_inf);
    add(&t, ",\"n_zero\":%lld,\"n_subnormal\":%lld", (long long)s->n_zero,
        (long long)s->n_subnormal);
    add_number(&t, "min", s->min);
    add_number(&t, "max", s->max);
    add_number(&t, "mean", s->mean);
    add_number(&t, "l2", s->l2);
    add(&t, ",\"int_min\":%lld,\"int_max\":%lld,\"sorted\":%s,\"unique\":%s",
        (long long)s->int_min, (long long)s->int_max, s->sorted ? "true" : "false",
        s->unique ? "true" : "false");
    add(&t, ",\"n_histogram\":%lld", (long long)s->n_histogram);
    add_histogram(&t, "positive", s->histogram[0]);
    add_histogram(&t, "negative", s->histogram[1]);
    add(&t, "}");
}
