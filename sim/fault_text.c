// SPDX-License-Identifier: Apache-2.0
// One planted fault as text: `PATTERN:KIND[:key=value]...`. What lines of JSON say goes
// through the same keys (fault_lines.c).
#include "fault_parts.h"

#include "base/number.h"
#include "nearest.h"

#include <ulpscope/x/pattern.h>

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- parts ---------------------------------------------------------------------------- */

static span trim(span s)
{
    while (s.n > 0 && isspace((unsigned char)s.at[0]))
        s.at++, s.n--;
    while (s.n > 0 && isspace((unsigned char)s.at[s.n - 1]))
        s.n--;
    return s;
}

/* Cuts what stands before the next single colon off `*rest`; `::` belongs to a name. */
static span next_part(span *rest)
{
    size_t i = 0;
    while (i < rest->n) {
        const bool colon = rest->at[i] == ':';
        const bool twice = colon && i + 1 < rest->n && rest->at[i + 1] == ':';
        if (colon && !twice) break;
        i += twice ? 2 : 1;
    }
    const span part = {rest->at, i};
    if (i < rest->n) i++;
    *rest = (span){rest->at + i, rest->n - i};
    return trim(part);
}

static bool span_is(span s, const char *text)
{
    return strlen(text) == s.n && memcmp(s.at, text, s.n) == 0;
}

static void copy_span(char *to, span from)
{
    memcpy(to, from.at, from.n);
    to[from.n] = '\0';
}

static int shown(span s)
{
    return (int)(s.n < 40 ? s.n : 40);
}

/* ---- kinds and keys ---------------------------------------------------------------------- */

static const char *kind_name(const void *ctx, size_t i)
{
    (void)ctx;
    const usc_sim_fault_info *info = usc_sim_fault_info_of((usc_sim_fault_kind)i);
    return info != NULL ? info->name : NULL;
}

typedef enum key_form { WHOLE, NUMBER, WORD, LAYOUT } key_form;

static const struct {
    const char *name;
    fault_section section;
    key_form form;
    size_t at;
    double least, most;
} keys[] = {
#define AT(field) offsetof(usc_sim_fault, field)
    {"output", FAULT_TOP, WHOLE, AT(output), 0, 0x1p53},
    {"nth", FAULT_WHEN, WHOLE, AT(nth), 1, 0x1p53},
    {"every", FAULT_WHEN, WHOLE, AT(every), 1, 0x1p53},
    {"p", FAULT_WHEN, NUMBER, AT(p), 0, 1},
    {"seed", FAULT_WHEN, WHOLE, AT(seed), 0, 0x1p53},
    {"step", FAULT_WHEN, WHOLE, AT(step), 0, 0x1p53},
    {"rank", FAULT_WHEN, WHOLE, AT(rank), 0, 0x1p53},
    {"stream", FAULT_WHEN, WHOLE, AT(stream), 0, 0x1p53},
    {"dtype", FAULT_WHEN, WORD, AT(dtype), 0, 0},
    {"layout", FAULT_WHEN, LAYOUT, AT(layout), 0, 0},
    {"remainder", FAULT_WHEN, WHOLE, AT(remainder), 1, 0x1p53},
    {"more", FAULT_WHEN, WHOLE, AT(more), 0, 0x1p53},
    {"argument", FAULT_WHEN, WORD, AT(argument), 0, 0},
    {"index", FAULT_WHERE, WHOLE, AT(index), -0x1p53, 0x1p53},
    {"tile", FAULT_WHERE, WHOLE, AT(tile), 0, 0x1p53},
    {"tile_size", FAULT_WHERE, WHOLE, AT(tile_size), 1, 0x1p53},
    {"lane", FAULT_WHERE, WHOLE, AT(lane), 0, 0x1p53},
    {"lanes", FAULT_WHERE, WHOLE, AT(lanes), 1, 0x1p53},
#undef AT
};
#define N_KEYS (sizeof keys / sizeof keys[0])

typedef struct key_names {
    const usc_sim_fault *f;
    fault_section section;
} key_names;

static bool is_of(size_t i_key, fault_section section)
{
    return section == FAULT_ANY || keys[i_key].section == section;
}

/* The kind's parameters, then the keys of the section. */
static const char *key_name(const void *ctx, size_t i)
{
    const key_names *of = ctx;
    const usc_sim_fault_info *info = usc_sim_fault_info_of(of->f->kind);
    const bool params = of->section == FAULT_ANY || of->section == FAULT_PARAMS;
    for (size_t k = 0; params && k < USC_SIM_N_PARAMS; k++)
        if (info->params[k][0] != '\0' && i-- == 0) return info->params[k];
    for (size_t k = 0; k < N_KEYS; k++)
        if (is_of(k, of->section) && i-- == 0) return keys[k].name;
    return NULL;
}

static bool parse_number(span text, double *out)
{
    char copy[64];
    if (text.n == 0 || text.n >= sizeof copy) return false;
    copy_span(copy, text);
    char *end;
    *out = usc_parse_number(copy, &end);
    return *end == '\0' && isfinite(*out);
}

static usc_status refuse_value(const usc_sim_fault *f, span key, span value,
                               const char *wanted, usc_error *err)
{
    return usc_error_set(err, USC_E_ARG, -1, "fault '%.100s': %.*s='%.*s' is not %s",
                         f->text, shown(key), key.at, shown(value), value.at, wanted);
}

static usc_status set_layout(usc_sim_fault *f, span key, span value, usc_error *err)
{
    if (span_is(value, "strided"))
        f->layout = USC_SIM_STRIDED;
    else if (span_is(value, "channels_last"))
        f->layout = USC_SIM_CHANNELS_LAST;
    else
        return refuse_value(f, key, value, "strided or channels_last", err);
    return USC_OK;
}

static usc_status set_word(usc_sim_fault *f, size_t i_key, span value, usc_error *err)
{
    const span key = {keys[i_key].name, strlen(keys[i_key].name)};
    if (keys[i_key].form == LAYOUT) return set_layout(f, key, value, err);
    if (value.n == 0 || value.n >= USC_SIM_FAULT_WORD)
        return refuse_value(f, key, value, "a word of at most 39 letters", err);
    copy_span((char *)f + keys[i_key].at, value);
    return keys[i_key].at == offsetof(usc_sim_fault, dtype)
               ? usc_pattern_check(f->dtype, err)
               : USC_OK;
}

static usc_status set_key(usc_sim_fault *f, size_t i_key, span value, usc_error *err)
{
    double x;
    if (keys[i_key].form >= WORD) return set_word(f, i_key, value, err);
    const span key = {keys[i_key].name, strlen(keys[i_key].name)};
    if (!parse_number(value, &x)) return refuse_value(f, key, value, "a number", err);
    const bool whole = keys[i_key].form == WHOLE;
    if (x < keys[i_key].least || x > keys[i_key].most || (whole && x > floor(x)))
        return refuse_value(f, key, value,
                            whole ? "a whole number in its range" : "in 0 to 1", err);
    char *at = (char *)f + keys[i_key].at;
    if (whole)
        *(int64_t *)(void *)at = (int64_t)x; /* seed is one of these bits, too */
    else
        *(double *)(void *)at = x;
    if (keys[i_key].at == offsetof(usc_sim_fault, index)) f->has_index = true;
    return USC_OK;
}

static usc_status set_param(usc_sim_fault *f, size_t i, span key, span value,
                            usc_error *err)
{
    return parse_number(value, &f->params[i])
               ? USC_OK
               : refuse_value(f, key, value, "a number", err);
}

usc_status fault_set(usc_sim_fault *f, fault_section section, span key, span value,
                     usc_error *err)
{
    const usc_sim_fault_info *info = usc_sim_fault_info_of(f->kind);
    const bool params = section == FAULT_ANY || section == FAULT_PARAMS;
    for (size_t i = 0; params && i < USC_SIM_N_PARAMS; i++)
        if (info->params[i][0] != '\0' && span_is(key, info->params[i]))
            return set_param(f, i, key, value, err);
    for (size_t i = 0; i < N_KEYS; i++)
        if (is_of(i, section) && span_is(key, keys[i].name))
            return set_key(f, i, value, err);
    const key_names names = {f, section};
    const char *meant = sim_nearest(key.at, key.n, key_name, &names);
    if (meant == NULL)
        return usc_error_set(err, USC_E_ARG, -1, "fault '%.100s': %s has no parameters",
                             f->text, info->name);
    return usc_error_set(err, USC_E_ARG, -1,
                         "fault '%.100s': '%.*s' is no key of %s; the nearest is '%s'",
                         f->text, shown(key), key.at, info->name, meant);
}

/* ---- a fault -------------------------------------------------------------------------------- */

usc_status fault_begin(usc_sim_fault *f, span text, usc_error *err)
{
    *f = (usc_sim_fault){.every = 1,
                         .p = 1.0,
                         .output = -1,
                         .step = -1,
                         .rank = -1,
                         .stream = -1,
                         .more = -1,
                         .tile = -1,
                         .tile_size = 256,
                         .lane = -1,
                         .lanes = 32};
    if (text.n >= sizeof f->text)
        return usc_error_set(err, USC_E_ARG, -1, "fault of %zu characters, %zu at most",
                             text.n, sizeof f->text - 1);
    copy_span(f->text, text);
    return USC_OK;
}

usc_status fault_set_pattern(usc_sim_fault *f, span pattern, usc_error *err)
{
    if (pattern.n >= sizeof f->pattern)
        return usc_error_set(err, USC_E_ARG, -1,
                             "a pattern of %zu characters, %zu at most", pattern.n,
                             sizeof f->pattern - 1);
    copy_span(f->pattern, pattern);
    return usc_pattern_check(f->pattern, err);
}

usc_status fault_set_kind(usc_sim_fault *f, span name, usc_error *err)
{
    for (int k = 0; k < USC_SIM_N_FAULT_KINDS; k++) {
        const usc_sim_fault_info *info = usc_sim_fault_info_of((usc_sim_fault_kind)k);
        if (!span_is(name, info->name)) continue;
        f->kind = (usc_sim_fault_kind)k;
        memcpy(f->params, info->defaults, sizeof f->params);
        return USC_OK;
    }
    return usc_error_set(
        err, USC_E_ARG, -1,
        "fault '%.100s': there is no kind '%.*s'; the nearest is '%s', and "
        "docs/reference/faults.md has them all",
        f->text, shown(name), name.at, sim_nearest(name.at, name.n, kind_name, NULL));
}

usc_status fault_finish(const usc_sim_fault *f, usc_error *err)
{
    if (f->kind == USC_SIM_FAULT_IGNORED && f->argument[0] == '\0')
        return usc_error_set(
            err, USC_E_ARG, -1,
            "fault '%.100s': which argument? as in ignored:argument=bias", f->text);
    if (f->lane >= f->lanes)
        return usc_error_set(err, USC_E_ARG, -1,
                             "fault '%.100s': lane %lld of %lld lanes", f->text,
                             (long long)f->lane, (long long)f->lanes);
    return USC_OK;
}

static usc_status read_setting(usc_sim_fault *f, span part, usc_error *err)
{
    const char *equals = part.n > 0 ? memchr(part.at, '=', part.n) : NULL;
    if (equals == NULL)
        return usc_error_set(err, USC_E_ARG, -1,
                             "fault '%.100s': '%.*s' is not key=value", f->text,
                             shown(part), part.at);
    const size_t n_key = (size_t)(equals - part.at);
    return fault_set(f, FAULT_ANY, trim((span){part.at, n_key}),
                     trim((span){equals + 1, part.n - n_key - 1}), err);
}

static usc_status read_fault(span text, fault_taker *taker, usc_error *err)
{
    usc_sim_fault f;
    usc_status st = fault_begin(&f, text, err);
    if (st != USC_OK) return st;
    span rest = text;
    const span pattern = next_part(&rest);
    const span kind = next_part(&rest);
    if (pattern.n == 0 || kind.n == 0)
        return usc_error_set(err, USC_E_ARG, -1,
                             "fault '%.100s': not PATTERN:KIND, as in mm:tf32", f.text);
    if (span_is(pattern, "bug")) return fault_read_bug(kind, taker, err);
    st = fault_set_pattern(&f, pattern, err);
    if (st == USC_OK) st = fault_set_kind(&f, kind, err);
    while (st == USC_OK && rest.n > 0)
        st = read_setting(&f, next_part(&rest), err);
    if (st == USC_OK) st = fault_finish(&f, err);
    return st == USC_OK ? taker->take(taker, &f, err) : st;
}

static usc_status read_item(span item, fault_taker *taker, usc_error *err)
{
    char path[USC_SIM_FAULT_TEXT];
    if (item.n == 0) return USC_OK;
    if (item.at[0] != '@') return read_fault(item, taker, err);
    const span name = trim((span){item.at + 1, item.n - 1});
    if (name.n == 0 || name.n >= sizeof path)
        return usc_error_set(
            err, USC_E_ARG, -1,
            "faults '%.*s': the file's name behind @ is empty or too long", shown(item),
            item.at);
    copy_span(path, name);
    return fault_read_file(path, taker, err);
}

usc_status fault_read_text(const char *text, fault_taker *taker, usc_error *err)
{
    usc_status st = USC_OK;
    for (const char *rest = text; rest != NULL && st == USC_OK;) {
        const char *end = strchr(rest, ';');
        const size_t n = end != NULL ? (size_t)(end - rest) : strlen(rest);
        st = read_item(trim((span){rest, n}), taker, err);
        rest = end != NULL ? end + 1 : NULL;
    }
    return st;
}
