// SPDX-License-Identifier: Apache-2.0
// Statistics read back from the JSON text of a trace. It may come from anywhere: members
// of a wrong kind are an error, whether they fit a tensor is asked by who uses them.
#include <ulpscope/trace.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace_stats.h"
#include "json/json.h"

/* A number that may be null: there was nothing to compute it from. */
static double number_or_nan(usc_json_taker *t, const usc_json *root, const char *key)
{
    return usc_json_number(t, root, key, (double)NAN);
}

static void read_bins(usc_json_taker *t, const usc_json *bins, int32_t *out)
{
    const char *key;
    const usc_json *value;
    for (void *at = NULL; usc_json_next(bins, &at, &key, &value);) {
        char *end;
        const long binade = strtol(key, &end, 10);
        const long bin = binade - USC_BINADE_MIN;
        int64_t count;
        if (*end != '\0' || end == key || bin < 0 || bin >= USC_N_BINADES ||
            !usc_json_as_integer(value, &count) || count < 0 || count > INT32_MAX)
            usc_json_wrong(t, "histogram", "has a bin that cannot be");
        else
            out[bin] = (int32_t)count;
    }
}

static void read_histogram(usc_json_taker *t, const usc_json *root, usc_stats *out)
{
    static const char *const signs[] = {"pos", "neg"};
    const usc_json *histogram = usc_json_object(t, root, "histogram");
    out->n_histogram = 0;
    for (int sign = 0; sign < 2; sign++) {
        read_bins(t, usc_json_object(t, histogram, signs[sign]), out->histogram[sign]);
        for (int b = 0; b < USC_N_BINADES; b++)
            out->n_histogram += out->histogram[sign][b];
    }
}

static void read_structure(usc_json_taker *t, const usc_json *root, usc_stats *out)
{
    const usc_json *names = usc_json_list(t, root, "structure");
    for (size_t i = 0; i < usc_json_size(names); i++) {
        const char *text = usc_json_as_text(usc_json_item(names, i));
        const usc_structure_name *name = usc_structure_names;
        while (text != NULL && name->text != NULL && strcmp(name->text, text) != 0)
            name++;
        if (text != NULL)
            out->structure |= name->bit; /* one of a later version says nothing here: 0 */
    }
    const usc_json *fill = usc_json_get(root, "fill");
    out->fill = fill != NULL ? usc_json_as_number(fill) : 0;
}

static void read_fingerprint(usc_json_taker *t, const usc_json *root, usc_stats *out)
{
    const char *text = usc_json_text(t, root, "fingerprint", "0");
    char *end;
    if (text == NULL) return;
    out->fingerprint = strtoull(text, &end, 16);
    if (*end != '\0') usc_json_wrong(t, "fingerprint", "is no hexadecimal number");
}

static void read_members(usc_json_taker *t, const usc_json *root, usc_stats *out)
{
    out->n = usc_json_integer(t, root, "n", 0);
    out->n_nan = usc_json_integer(t, root, "n_nan", 0);
    out->n_pos_inf = usc_json_integer(t, root, "n_pos_inf", 0);
    out->n_neg_inf = usc_json_integer(t, root, "n_neg_inf", 0);
    out->n_zero = usc_json_integer(t, root, "n_zero", 0);
    out->n_subnormal = usc_json_integer(t, root, "n_subnormal", 0);
    out->min = number_or_nan(t, root, "min");
    out->max = number_or_nan(t, root, "max");
    out->mean = number_or_nan(t, root, "mean");
    out->l2 = number_or_nan(t, root, "l2");
    out->int_min = usc_json_integer(t, root, "int_min", 0);
    out->int_max = usc_json_integer(t, root, "int_max", 0);
    out->int_above_min = usc_json_integer(t, root, "int_above_min", out->int_min);
    out->int_below_max = usc_json_integer(t, root, "int_below_max", out->int_max);
    out->sorted = usc_json_flag(t, root, "sorted");
    out->unique = usc_json_flag(t, root, "unique");
    read_structure(t, root, out);
    read_fingerprint(t, root, out);
    read_histogram(t, root, out);
}

usc_status usc_stats_from_json(const char *text, usc_stats *out, usc_error *err)
{
    usc_json *root = NULL;
    memset(out, 0, sizeof *out);
    usc_status st = usc_json_parse(text, strlen(text), "statistics",
                                   "not what a trace keeps", &root, err);
    if (st != USC_OK) return st;
    usc_json_taker t = {.name = "statistics", .err = err};
    if (!usc_json_is_object(root))
        usc_json_wrong(&t, NULL, "is no object");
    else
        read_members(&t, root, out);
    usc_json_free(root);
    if (t.status != USC_OK) memset(out, 0, sizeof *out);
    return t.status;
}
