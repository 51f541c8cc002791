// SPDX-License-Identifier: Apache-2.0
// Arguments and tensors of a trace as dumps describe them; the tensors' files.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "foreign/exporting.h"

const usc_call_arg *usc_export_arg(const usc_exporting *ex, usc_role role,
                                   const char *path)
{
    for (int i = 0; i < ex->call.n_args; i++)
        if (ex->call.arg[i].role == role && strcmp(ex->call.arg[i].path, path) == 0)
            return &ex->call.arg[i];
    return NULL;
}

/* As Python writes numbers: with a point, and NaN and Infinity bare. */
static void put_number(usc_line *to, double number)
{
    const size_t start = to->n;
    if (!isfinite(number)) {
        usc_line_text(to, isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
        return;
    }
    usc_line_add(to, "%.17g", number);
    if (to->text != NULL && strpbrk(to->text + start, ".e") == NULL)
        usc_line_text(to, ".0");
}

/* ---- tensors ---- */

static void put_ends(const usc_json *stats, usc_kind kind, usc_line *to)
{
    int64_t low = 0, high = 0, n_nan = 0, n_high = 0, n_low = 0;
    (void)usc_json_as_integer(usc_json_get(stats, "int_min"), &low);
    (void)usc_json_as_integer(usc_json_get(stats, "int_max"), &high);
    if (kind == USC_KIND_BOOL) {
        usc_line_add(to, ", \"Max\": %s, \"Min\": %s", high != 0 ? "true" : "false",
                     low != 0 ? "true" : "false");
        return;
    }
    if (kind != USC_KIND_FLOAT) {
        usc_line_add(to, ", \"Max\": %lld, \"Min\": %lld", (long long)high,
                     (long long)low);
        return;
    }
    (void)usc_json_as_integer(usc_json_get(stats, "n_nan"), &n_nan);
    (void)usc_json_as_integer(usc_json_get(stats, "n_pos_inf"), &n_high);
    (void)usc_json_as_integer(usc_json_get(stats, "n_neg_inf"), &n_low);
    const double max = usc_json_as_number(usc_json_get(stats, "max"));
    const double min = usc_json_as_number(usc_json_get(stats, "min"));
    const double inf = (double)INFINITY, nan = (double)NAN;
    usc_line_text(to, ", \"Max\": ");
    put_number(to, n_nan > 0 ? nan : n_high > 0 ? inf : isnan(max) ? -inf : max);
    usc_line_text(to, ", \"Min\": ");
    put_number(to, n_nan > 0 ? nan : n_low > 0 ? -inf : isnan(min) ? inf : min);
}

static usc_status put_stats(usc_exporting *ex, const usc_call_arg *arg, usc_line *to,
                            usc_error *err)
{
    int64_t n = 0;
    usc_json *stats = NULL;
    const usc_kind kind = usc_dtype_info_of(usc_dtype_by_name(arg->dtype_name))->kind;
    usc_status st = USC_OK;
    if (arg->stats != NULL)
        st = usc_json_parse(arg->stats, strlen(arg->stats), ex->options->trace,
                            "statistics that are no JSON", &stats, err);
    if (st != USC_OK) return st;
    (void)usc_json_as_integer(usc_json_get(stats, "n"), &n);
    if (n > 0 && kind != USC_KIND_NONE)
        put_ends(stats, kind, to);
    else
        usc_line_text(to, ", \"Max\": null, \"Min\": null");
    const char *const names[][2] = {{"Mean", "mean"}, {"Norm", "l2"}};
    const bool known = !isnan(usc_json_as_number(usc_json_get(stats, "mean")));
    for (int i = 0; i < 2; i++) {
        const double number = usc_json_as_number(usc_json_get(stats, names[i][1]));
        usc_line_add(to, ", \"%s\": ", names[i][0]);
        if (kind == USC_KIND_FLOAT && n > 0 && known)
            put_number(to, number);
        else
            usc_line_text(to, "null");
    }
    usc_json_free(stats);
    return USC_OK;
}

usc_status usc_export_bytes(usc_exporting *ex, const usc_call_arg *arg,
                            const unsigned char **bytes, int64_t *size, usc_error *err)
{
    const void *blob;
    int64_t there, below;
    const usc_dtype dtype = usc_dtype_by_name(arg->dtype_name);
    usc_tensor t = {.dtype = dtype, .ndim = arg->ndim};
    *bytes = NULL;
    if (arg->blob == 0 || dtype == USC_DTYPE_NONE || arg->form != NULL) return USC_OK;
    for (int i = 0; i < arg->ndim; i++) {
        t.sizes[i] = arg->sizes[i];
        t.strides[i] = arg->strides[i];
    }
    usc_status st = usc_trace_blob(ex->trace, arg->blob, &blob, &there, err);
    if (st == USC_OK) st = usc_tensor_extent(&t, size, &below, err);
    if (st != USC_OK) return st;
    const int64_t first =
        arg->offset * (int64_t)usc_dtype_info_of(dtype)->size - arg->first;
    if (below != 0 || first < 0 || first > there || *size > there - first)
        return usc_error_set(err, USC_E_CORRUPT, ex->call.sequence,
                             "%s: call %lld: %s reaches out of its content",
                             ex->options->trace, (long long)ex->call.sequence, arg->path);
    *bytes = (const unsigned char *)blob + first;
    return USC_OK;
}

/* args[0][1] of an input as input.0.1, kwargs.out as kwargs.out, out[0] as output.0. */
static void file_name(const usc_exporting *ex, const usc_call_arg *arg, char *out,
                      size_t size)
{
    const char *kind = arg->role == USC_ROLE_OUT ? "output" : "input";
    const char *path = strchr(arg->path, '[');
    if (strncmp(arg->path, "kwargs.", 7) == 0) {
        kind = "kwargs";
        path = arg->path + 6;
    }
    int n = usc_format(out, size, "%s.%s.%s", ex->name,
                       ex->backward ? "backward" : "forward", kind);
    for (; path != NULL && *path != '\0' && n > 0 && (size_t)n + 5 < size; path++)
        if (*path != ']') out[n++] = *path == '[' || *path == '/' ? '.' : *path;
    (void)usc_format(out + n, size - (size_t)n, ".pt");
}

static usc_status put_file(usc_exporting *ex, const usc_call_arg *arg, usc_line *to,
                           usc_error *err)
{
    char name[USC_API_NAME + 256], path[USC_PATH_SIZE];
    const unsigned char *bytes;
    usc_torch_save t = {.dtype_name = arg->dtype_name,
                        .ndim = arg->ndim,
                        .sizes = arg->sizes,
                        .strides = arg->strides};
    usc_status st = usc_export_bytes(ex, arg, &bytes, &t.size, err);
    if (st != USC_OK || bytes == NULL) return st;
    t.bytes = bytes;
    file_name(ex, arg, name, sizeof name);
    char folder[sizeof ex->data];
    const bool old = ex->kind->by_path, back = old && ex->backward;
    (void)usc_format(folder, sizeof folder, "%s%s", back ? "back" : "",
                     ex->data + (back ? 3 : 0)); /* forward_... */
    if (usc_format(path, sizeof path, "%s/%s/%s", ex->folder, folder, name) >=
        (int)sizeof path)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", ex->folder);
    st = usc_torch_files_save(&ex->files, path, "{\"tensor\": 0}", &t, 1, err);
    if (st != USC_OK) return st;
    ex->counts->with_content++;
    usc_line_text(to, old ? ", \"datapath\": " : ", \"data_name\": ");
    if (old) /* as seen from where the folder of the steps will be */
        (void)usc_format(path, sizeof path, "./step%lld/%s/%s", (long long)ex->call.step,
                         folder, name);
    usc_line_json(to, old ? path : name);
    return USC_OK;
}

static void put_shape(const usc_call_arg *arg, usc_line *to)
{
    usc_line_text(to, ", \"shape\": [");
    for (int i = 0; i < arg->ndim; i++)
        usc_line_add(to, "%s%lld", i > 0 ? ", " : "", (long long)arg->sizes[i]);
    usc_line_text(to, "]");
}

static usc_status put_tensor(usc_exporting *ex, const usc_call_arg *arg, usc_line *to,
                             usc_error *err)
{
    usc_line_add(to, "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.%s\"",
                 arg->dtype_name);
    put_shape(arg, to);
    usc_status st = put_stats(ex, arg, to, err);
    usc_line_add(to, ", \"requires_grad\": %s", arg->requires_grad ? "true" : "false");
    if (st == USC_OK) st = put_file(ex, arg, to, err);
    usc_line_text(to, "}");
    ex->counts->tensors++;
    return st;
}

/* ---- values ---- */

static void put_typed(usc_line *to, const char *type, const char *text)
{
    usc_line_add(to, "{\"type\": \"%s\", \"value\": ", type);
    usc_line_json(to, text);
    usc_line_text(to, "}");
}

static void put_dtype(usc_line *to, const char *name)
{
    usc_line torch = {0};
    usc_line_text(&torch, "torch.");
    usc_line_text(&torch, name);
    to->failed |= torch.failed;
    if (!torch.failed) put_typed(to, "torch.dtype", torch.text);
    usc_line_free(&torch);
}

static usc_status put_items(usc_exporting *ex, const usc_value *list, usc_line *to,
                            usc_error *err)
{
    usc_status st = USC_OK;
    usc_line_text(to, "[");
    for (int64_t i = 0; st == USC_OK && i < list->n; i++) {
        if (i > 0) usc_line_text(to, ", ");
        st = usc_export_value(ex, &list->item[i], to, err);
    }
    usc_line_text(to, "]");
    return st;
}

static usc_status put_slice(const usc_value *slice, usc_line *to, usc_error *err)
{
    usc_writing text = {0};
    const usc_value ends = {.kind = USC_VALUE_LIST, .item = slice->item, .n = slice->n};
    usc_writing_value(&text, &ends);
    if (!text.failed) usc_line_add(to, "{\"type\": \"slice\", \"value\": %s}", text.text);
    const bool failed = text.failed;
    usc_writing_free(&text);
    return failed ? usc_no_memory("export", err) : USC_OK;
}

usc_status usc_export_value(usc_exporting *ex, const usc_value *value, usc_line *to,
                            usc_error *err)
{
    const usc_call_arg *arg;
    switch (value->kind) {
    case USC_VALUE_TENSOR:
        arg = usc_export_arg(ex, USC_ROLE_IN, value->place);
        if (arg != NULL) return put_tensor(ex, arg, to, err);
        usc_line_text(to, "null");
        break;
    case USC_VALUE_LIST:
    case USC_VALUE_TUPLE:
        return put_items(ex, value, to, err);
    case USC_VALUE_SLICE:
        return put_slice(value, to, err);
    case USC_VALUE_NONE:
        usc_line_text(to, "null");
        break;
    case USC_VALUE_BOOL:
        usc_line_add(to, "{\"type\": \"bool\", \"value\": %s}",
                     value->truth ? "true" : "false");
        break;
    case USC_VALUE_INT:
        usc_line_add(to, "{\"type\": \"int\", \"value\": %lld}",
                     (long long)value->integer);
        break;
    case USC_VALUE_FLOAT:
        usc_line_text(to, "{\"type\": \"float\", \"value\": ");
        put_number(to, value->number[0]);
        usc_line_text(to, "}");
        break;
    case USC_VALUE_TEXT:
        put_typed(to, "str", value->text);
        break;
    case USC_VALUE_ELLIPSIS:
        put_typed(to, "ellipsis", "...");
        break;
    case USC_VALUE_DEVICE:
        put_typed(to, "torch.device", value->text);
        break;
    case USC_VALUE_DTYPE:
        put_dtype(to, value->text);
        break;
    case USC_VALUE_MEMORY_FORMAT:
        usc_line_text(to, "{\"type\": \"torch.memory_format\", \"format\": ");
        usc_line_json(to, value->text);
        usc_line_text(to, "}");
        break;
    case USC_VALUE_COMPLEX:
    case USC_VALUE_LAYOUT:
    case USC_VALUE_GENERATOR:
    case USC_VALUE_MAP:
    case USC_VALUE_OTHER:
        usc_line_text(to, "{}"); /* as msprobe writes what it cannot describe */
        break;
    }
    return USC_OK;
}

int usc_export_count_results(const usc_exporting *ex)
{
    int n = 0, at;
    for (int i = 0; i < ex->call.n_args; i++)
        if (ex->call.arg[i].role == USC_ROLE_OUT &&
            sscanf(ex->call.arg[i].path, "out[%d]", &at) == 1 && at >= n && at < 1 << 16)
            n = at + 1;
    return n;
}

static usc_status put_inner_results(usc_exporting *ex, int i, usc_line *to,
                                    usc_error *err)
{
    char path[64];
    usc_status st = USC_OK;
    usc_line_text(to, "[");
    for (int k = 0; st == USC_OK; k++) {
        (void)usc_format(path, sizeof path, "out[%d][%d]", i, k);
        const usc_call_arg *inner = usc_export_arg(ex, USC_ROLE_OUT, path);
        if (inner == NULL) break;
        if (k > 0) usc_line_text(to, ", ");
        st = put_tensor(ex, inner, to, err);
    }
    usc_line_text(to, "]");
    return st;
}

usc_status usc_export_results(usc_exporting *ex, usc_line *to, usc_error *err)
{
    usc_status st = USC_OK;
    char path[64];
    const int n = usc_export_count_results(ex);
    usc_line_text(to, "[");
    for (int i = 0; st == USC_OK && i < n; i++) {
        (void)usc_format(path, sizeof path, "out[%d]", i);
        const usc_call_arg *arg = usc_export_arg(ex, USC_ROLE_OUT, path);
        (void)usc_format(path, sizeof path, "out[%d][0]", i);
        const bool is_list = usc_export_arg(ex, USC_ROLE_OUT, path) != NULL;
        if (i > 0) usc_line_text(to, ", ");
        if (arg != NULL)
            st = put_tensor(ex, arg, to, err);
        else if (is_list)
            st = put_inner_results(ex, i, to, err);
        else
            usc_line_text(to, "null");
    }
    usc_line_text(to, "]");
    return st;
}
