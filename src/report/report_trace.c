// SPDX-License-Identifier: Apache-2.0
// The page of a trace, or of those of all ranks: report.html with calls that nobody has
// judged (report_trace.js). Neighbour: report_html.c, which has the page and its marks.
#include "report/report_trace.h"

#include <math.h>
#include <string.h>

#include <ulpscope/version.h>

#include "base/keys.h"
#include "base/line.h"
#include "report/report_out.h"
#include "json/json.h"

/* Calls with numbers of their own, in all ranks together. */
enum { MOST_DETAILED = 8000 };

typedef struct trace_page {
    usc_out *o;
    usc_trace *trace;
    usc_keys ids;   /* text -> its place in the list */
    usc_line texts; /* as JSON, in that order */
    int64_t most;   /* calls with an element that are left to this rank */
} trace_page;

static double stat_of(const usc_call_arg *arg, const char *name)
{
    double v;
    return usc_call_arg_stat(arg, name, &v) ? v : 0;
}

usc_trace_side usc_trace_side_of(const usc_call *call, bool results)
{
    usc_trace_side s = {0};
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *arg = &call->arg[i];
        double low, high;
        if ((arg->role != USC_ROLE_IN) != results) continue;
        s.n_nan += stat_of(arg, "n_nan");
        s.n_inf += stat_of(arg, "n_pos_inf") + stat_of(arg, "n_neg_inf");
        if (!usc_call_arg_stat(arg, "min", &low) || !usc_call_arg_stat(arg, "max", &high))
            continue;
        s.min = s.any ? fmin(s.min, low) : low;
        s.max = s.any ? fmax(s.max, high) : high;
        s.any = true;
    }
    return s;
}

const char *usc_trace_look(const usc_call *call)
{
    const usc_trace_side in = usc_trace_side_of(call, false),
                         out = usc_trace_side_of(call, true);
    if (call->status != NULL && strcmp(call->status, "ok") != 0) return call->status;
    if (out.n_nan + out.n_inf > 0) return in.n_nan + in.n_inf > 0 ? "carried" : "born";
    return "captured";
}

static void put_text(trace_page *p, const char *text)
{
    if (text == NULL) text = "";
    const int64_t n = (int64_t)p->ids.n;
    const int64_t id = usc_keys_put(&p->ids, usc_key_of(text), n);
    if (id == n) {
        usc_line_text(&p->texts, n > 0 ? ",\n" : "\n");
        usc_line_json(&p->texts, text);
    }
    usc_out_format(p->o, ",%lld", (long long)id);
}

void usc_trace_results(const usc_call *call, usc_line *to)
{
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *arg = &call->arg[i];
        if (arg->role == USC_ROLE_IN) continue;
        usc_line_add(to, "%s%s[", to->n > 0 ? ", " : "",
                     arg->dtype_name != NULL ? arg->dtype_name : "");
        for (int k = 0; k < arg->ndim; k++)
            usc_line_add(to, "%s%lld", k > 0 ? ", " : "", (long long)arg->sizes[k]);
        usc_line_text(to, "]");
    }
}

/* One list per call, in the order of TRACE_TEXTS and TRACE_NUMBERS. */
static usc_status put_call(trace_page *p, const usc_call *call, bool first, bool detailed,
                           usc_error *err)
{
    char given[512];
    usc_line results = {0};
    usc_status st = usc_call_summary(call, given, sizeof given, err);
    if (st != USC_OK) return st;
    usc_trace_results(call, &results);
    const usc_trace_side out = usc_trace_side_of(call, true);
    usc_out_format(p->o, "%s[%lld,%lld", first ? "\n" : ",\n", (long long)call->sequence,
                   (long long)call->step);
    const char *const texts[] = {
        call->phase,          call->op, call->module_path, call->module_class,
        usc_trace_look(call), given,    results.text,      call->status};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        put_text(p, texts[i]);
    usc_out_format(p->o, ",%lld,%d", (long long)call->parent, detailed);
    const double numbers[] = {out.n_nan, out.n_inf, out.any ? out.min : (double)NAN,
                              out.any ? out.max : (double)NAN};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        usc_out_text(p->o, ",");
        usc_out_json_number(p->o, numbers[i]);
    }
    usc_out_text(p->o, "]");
    st = results.failed ? usc_error_set(err, USC_E_NOMEM, -1, "report: no memory")
                        : p->o->status;
    usc_line_free(&results);
    return st;
}

static void put_list(usc_out *o, const char *name, const int64_t *values, int n)
{
    usc_out_format(o, ", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        usc_out_format(o, "%s%lld", i > 0 ? ", " : "", (long long)values[i]);
    usc_out_text(o, "]");
}

/* Statistics by the names that the page reads. */
static void put_stats(usc_out *o, const usc_call_arg *arg)
{
    static const char *const names[] = {"min",         "max",       "mean",      "l2",
                                        "n_nan",       "n_pos_inf", "n_neg_inf", "n_zero",
                                        "n_subnormal", "int_min",   "int_max"};
    bool any = false;
    double v;
    usc_out_text(o, ", \"stats\": {");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!usc_call_arg_stat(arg, names[i], &v)) continue;
        usc_out_format(o, "%s\"%s\": ", any ? ", " : "", names[i]);
        usc_out_json_number(o, v);
        any = true;
    }
    usc_out_text(o, "}");
}

static void put_argument(usc_out *o, const usc_call_arg *arg)
{
    usc_out_format(o, "{\"role\": \"%s\", \"path\": ", usc_role_text(arg->role));
    usc_out_json(o, arg->path != NULL ? arg->path : "");
    usc_out_text(o, ", \"dtype\": ");
    usc_out_json(o, arg->dtype_name != NULL ? arg->dtype_name : "");
    put_list(o, "sizes", arg->sizes, arg->ndim);
    put_list(o, "strides", arg->strides, arg->ndim);
    usc_out_format(o, ", \"offset\": %lld, \"writer\": %lld", (long long)arg->offset,
                   (long long)arg->writer);
    put_stats(o, arg);
    usc_out_text(o, "}");
}

/* Frames are JSON in the trace already; what is none is left out. */
static void put_frames(usc_out *o, const char *frames)
{
    usc_json *json = NULL;
    const bool good =
        frames != NULL && usc_json_parse(frames, strlen(frames), "frames", "are no JSON",
                                         &json, NULL) == USC_OK;
    usc_json_free(json);
    usc_out_text(o, good ? frames : "[]");
}

static void put_details(trace_page *p, int rank, const usc_call *call)
{
    usc_out_format(p->o, "<script type=\"application/json\" id=\"data-%d-%lld\">", rank,
                   (long long)call->sequence);
    p->o->in_script = true;
    usc_out_text(p->o, "{\"examples\": [], \"metrics\": [{\"output\": -1, \"name\": "
                       "\"arguments\", \"value\": [");
    for (int i = 0; i < call->n_args; i++) {
        if (i > 0) usc_out_text(p->o, ", ");
        put_argument(p->o, &call->arg[i]);
    }
    usc_out_text(p->o, "]}], \"stack\": ");
    put_frames(p->o, call->frames);
    usc_out_text(p->o, "}");
    p->o->in_script = false;
    usc_out_text(p->o, "</script>\n");
}

static void put_meta(trace_page *p)
{
    static const char *const keys[] = {"id",      "created", "complete",   "data",
                                       "devices", "argv",    "ops",        "level",
                                       "torch",   "python",  "platform",   "seed",
                                       "rank",    "stopped", "world_size", "environment"};
    bool any = false;
    usc_out_text(p->o, "\"meta\": {");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *value = usc_trace_meta(p->trace, keys[i]);
        if (value == NULL || value[0] == '\0') continue;
        usc_out_format(p->o, "%s\"%s\": ", any ? ", " : "", keys[i]);
        usc_out_json(p->o, value);
        any = true;
    }
    usc_out_text(p->o, "}");
}

/* Whether a call has an element of its own: as many as there is room for. */
static bool is_detailed(trace_page *p, const usc_call *call)
{
    if (p->most <= 0) return false;
    p->most--;
    return call->n_args > 0 || call->frames != NULL;
}

static usc_status walk(trace_page *p, int rank, const usc_trace_page *page, bool details,
                       usc_error *err)
{
    const int64_t *calls;
    int64_t n;
    usc_status st = usc_trace_select(p->trace, NULL, &calls, &n, err);
    p->most = MOST_DETAILED / (page->n > 0 ? page->n : 1);
    for (int64_t i = 0; st == USC_OK && i < n; i++) {
        usc_call call;
        st = usc_trace_read_call(p->trace, calls[i], &call, err);
        if (st != USC_OK) break;
        const bool detailed = is_detailed(p, &call);
        if (!details)
            st = put_call(p, &call, i == 0, detailed, err);
        else if (detailed)
            put_details(p, rank, &call);
        else
            break;
    }
    return st == USC_OK ? p->o->status : st;
}

static usc_status put_rank(usc_out *o, const usc_trace_page *page, int i, usc_error *err)
{
    trace_page p = {.o = o, .trace = page->rank[i].trace};
    usc_out_format(o, "<script type=\"application/json\" id=\"data%s",
                   i > 0 ? "-rank-" : "");
    usc_out_format(o, i > 0 ? "%d\">" : "\">", i);
    o->in_script = true;
    usc_out_text(o, "{\"trace\": true, \"rank\": ");
    usc_out_format(o, "%d, \"path\": ", i);
    usc_out_json(o, page->rank[i].path);
    usc_out_text(o, ", \"ranks\": [");
    for (int k = 0; k < page->n; k++) {
        usc_out_text(o, k > 0 ? ", " : "");
        usc_out_json(o, page->rank[k].name);
    }
    usc_out_text(o, "], \"version\": ");
    usc_out_json(o, usc_version());
    usc_out_text(o, ", ");
    put_meta(&p);
    usc_out_text(o, ",\n\"calls\": [");
    usc_status st = walk(&p, i, page, false, err);
    usc_out_text(o, "],\n\"texts\": [");
    if (p.texts.text != NULL) usc_out_text(o, p.texts.text);
    usc_out_text(o, "]}");
    o->in_script = false;
    usc_out_text(o, "</script>\n");
    if (st == USC_OK && (p.texts.failed || p.ids.failed))
        st = usc_error_set(err, USC_E_NOMEM, -1, "report: no memory");
    if (st == USC_OK) st = walk(&p, i, page, true, err);
    usc_line_free(&p.texts);
    usc_keys_free(&p.ids);
    return st;
}

usc_status usc_trace_page_data(usc_out *o, const usc_trace_page *page)
{
    usc_status st = USC_OK;
    for (int i = 0; st == USC_OK && i < page->n; i++)
        st = put_rank(o, page, i, o->err);
    return st;
}
