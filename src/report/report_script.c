// SPDX-License-Identifier: Apache-2.0
// The script that hands a call on: report_script.py.in beside it (embedded at build time
// by cmake/embed.cmake) with the parts that are about the call, and its tensors.
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "report/report_out.h"

/* Made by cmake/embed.cmake. */
extern const char usc_page_script_py_in[];

enum { MOST_TENSORS = 3, MOST_ELEMENTS = 64, LINE = 240 };

/* ---- tensors by value ---- */

/* A number that torch.tensor reads back as the same one of the dtype; a float has few
 * digits. */
static void put_value(usc_out *o, usc_dtype dtype, double v)
{
    char text[40];
    if (!isfinite(v)) {
        usc_out_format(o, "float(\"%s\")", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    } else if (!(v < 0) && !(v > 0)) {
        usc_out_text(o, signbit(v) ? "-0.0" : "0");
    } else if (dtype == USC_F32) {
        for (int digits = 1; digits <= 9; digits++) {
            (void)usc_format(text, sizeof text, "%.*g", digits, v);
            const float back = (float)usc_parse_number(text, NULL);
            if (memcmp(&back, &(float){(float)v}, sizeof back) == 0) break;
        }
        usc_out_text(o, text);
    } else {
        usc_out_number(o, v);
    }
}

static void put_sizes(usc_out *o, const usc_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        usc_out_format(o, "%s%lld", d > 0 ? ", " : "", (long long)t->sizes[d]);
}

static void put_tensor(usc_out *o, const usc_tensor *t, const double *values, int64_t n)
{
    bool equal = n > 1;
    for (int64_t i = 1; i < n; i++)
        equal = equal && memcmp(&values[i], &values[0], sizeof values[0]) == 0;
    usc_out_text(o, equal ? "torch.full([" : "torch.tensor(");
    if (equal) put_sizes(o, t);
    usc_out_text(o, equal ? "], " : t->ndim > 0 ? "[" : "");
    for (int64_t i = 0; i < (equal ? 1 : n); i++) {
        if (i > 0) usc_out_text(o, ", ");
        put_value(o, t->dtype, values[i]);
    }
    usc_out_text(o, !equal && t->ndim > 0 ? "], " : ", ");
    usc_out_format(o, "dtype=torch.%s)", usc_dtype_info_of(t->dtype)->name);
    if (equal || t->ndim < 2) return;
    usc_out_text(o, ".reshape(");
    put_sizes(o, t);
    usc_out_text(o, ")");
}

/* A line of STORED; false where the tensor is long or is none that can be written so. */
static bool row_of(const usc_named_tensor *t, usc_text *row)
{
    double values[MOST_ELEMENTS];
    int64_t n = 0;
    usc_error ignored;
    const usc_kind kind = usc_dtype_info_of(t->tensor.dtype)->kind;
    if (kind != USC_KIND_FLOAT && kind != USC_KIND_INT && kind != USC_KIND_UINT &&
        kind != USC_KIND_BOOL)
        return false;
    if (usc_tensor_numel(&t->tensor, &n, &ignored) != USC_OK || n > MOST_ELEMENTS)
        return false;
    usc_dtype_widen(t->tensor.dtype, t->tensor.data, values, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        if (kind != USC_KIND_FLOAT && fabs(values[i]) > 0x1p53) return false;
    const usc_sink sink = usc_text_sink(row);
    usc_out o;
    usc_out_begin(&o, &sink, NULL);
    usc_out_format(&o, "    \"%s\": ", t->name);
    put_tensor(&o, &t->tensor, values, n);
    usc_out_text(&o, ",\n");
    return usc_out_end(&o) == USC_OK && row->n <= LINE;
}

/* ---- tensors of a file ---- */

static void put_loader(usc_out *o, const usc_named_tensor *tensors, size_t n)
{
    usc_out_text(
        o, "RAW = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "
           "\"inputs.safetensors\"), \"rb\").read()\n"
           "SIZE = 8 + int.from_bytes(RAW[:8], \"little\")  # of the header\n"
           "make = lambda dtype, shape, data_offsets: torch.frombuffer(bytearray("
           "RAW[SIZE + data_offsets[0] : SIZE + data_offsets[1]]) or bytearray(16), "
           "dtype={");
    for (size_t i = 0; i < n; i++) {
        const usc_dtype dtype = tensors[i].tensor.dtype;
        size_t before = 0;
        while (before < i && tensors[before].tensor.dtype != dtype)
            before++;
        const usc_dtype_info *info = usc_dtype_info_of(dtype);
        if (before == i)
            usc_out_format(o, "%s\"%s\": torch.%s", i > 0 ? ", " : "", info->file_name,
                           info->name);
    }
    usc_out_text(o, "}[dtype])[: torch.Size(shape).numel()].reshape(shape)\n"
                    "STORED = {name: make(**entry) for name, entry in "
                    "json.loads(RAW[8:SIZE]).items()}");
}

static void put_stored(usc_out *o, const usc_named_tensor *tensors, size_t n)
{
    usc_text rows[MOST_TENSORS] = {0};
    bool small = n <= MOST_TENSORS;
    for (size_t i = 0; i < n && small; i++)
        small = row_of(&tensors[i], &rows[i]);
    if (!small) {
        put_loader(o, tensors, n);
        return;
    }
    usc_out_text(o, "STORED = {\n");
    for (size_t i = 0; i < n; i++)
        usc_out_text(o, rows[i].bytes);
    usc_out_text(o, "}");
}

/* ---- the script ---- */

static const char *part_of(const usc_script_part *parts, size_t n, const char *name,
                           size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(parts[i].name) == size && memcmp(parts[i].name, name, size) == 0)
            return parts[i].text;
    return NULL;
}

usc_status usc_report_script(const usc_script_part *parts, size_t n,
                             const usc_named_tensor *tensors, size_t n_tensors,
                             const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    const char *rest = usc_page_script_py_in;
    for (const char *at; (at = strchr(rest, '@')) != NULL;) {
        const char *name = at + 1;
        const size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        const bool stored = size == 6 && memcmp(name, "stored", size) == 0;
        const char *text = stored ? "" : part_of(parts, n, name, size);
        if (text == NULL)
            return usc_error_set(err, USC_E_ARG, -1, "a script without its part %.*s",
                                 (int)size, name);
        usc_out_bytes(&o, rest, (size_t)(at - rest));
        usc_out_text(&o, text);
        if (stored) put_stored(&o, tensors, n_tensors);
        rest = name + size;
    }
    usc_out_text(&o, rest);
    return usc_out_end(&o);
}
