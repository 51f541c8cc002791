// SPDX-License-Identifier: Apache-2.0
// Logs, line by line: docs/reference/watch-reference.md, "Log". What is no log of a watch
// is read as a curve of gradient norms (src/loss), of one tensor on one rank.
#include <ulpscope/x/watch_log.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/loss.h>

#include "base/number.h"
#include "json/json.h"

struct usc_watch_log {
    usc_watch_log_info info;
    usc_watch_tensor_info *tensors;
    usc_arena texts;
    FILE *file;
    usc_curve *curve;
    usc_watch_site site; /* what a curve is */
    usc_watch_tensor_info column;
    int64_t line; /* from 1 on; of a curve the next point */
    char *text;   /* of the line */
    size_t text_size;
    usc_line room;
    usc_watch_row *rows;
    size_t rows_size;
    char note[160];
};

static const char no_json[] = "this is no JSON";

static usc_status wrong(const usc_watch_log *log, usc_error *err, const char *how)
{
    return usc_error_set(err, USC_E_CORRUPT, log->line, "%s, line %lld: %s",
                         log->info.name, (long long)log->line, how);
}

/* The next line that is not empty, without its end; -1 at the end. */
static ssize_t next_line(usc_watch_log *log)
{
    ssize_t n;
    while ((n = getline(&log->text, &log->text_size, log->file)) >= 0) {
        log->line++;
        while (n > 0 && strchr("\r\n", log->text[n - 1]) != NULL)
            n--;
        if (n > 0) return n;
    }
    return -1;
}

/* ---- the head ---- */

static usc_status take_tensor(usc_watch_log *log, const usc_json *entry,
                              usc_watch_tensor_info *out, usc_error *err)
{
    const char *name = usc_json_as_text(usc_json_item(entry, 0));
    const char *dtype = usc_json_as_text(usc_json_item(entry, 1));
    const usc_json *more = usc_json_item(entry, 2);
    int64_t ndim = 0;
    if (name == NULL || name[0] == '\0' || dtype == NULL)
        return wrong(log, err, "\"tensors\" is a list of [name, dtype]");
    (void)usc_json_as_integer(usc_json_get(more, "ndim"), &ndim);
    const char *kept = usc_arena_text(&log->texts, name);
    if (kept == NULL) return usc_no_memory(log->info.name, err);
    *out = (usc_watch_tensor_info){.name = kept,
                                   .dtype = usc_dtype_by_name(dtype),
                                   .ndim = ndim > 0 && ndim < 64 ? (int)ndim : 0,
                                   .sharded =
                                       usc_json_is_true(usc_json_get(more, "sharded"))};
    return USC_OK;
}

static usc_status take_head(usc_watch_log *log, const usc_json *head, usc_error *err)
{
    int64_t version, world;
    const usc_json *list = usc_json_get(head, "tensors");
    if (!usc_json_as_integer(usc_json_get(head, "ulpscope_watch"), &version))
        return wrong(log, err, "\"ulpscope_watch\" is a version, e.g. 1");
    if (version != USC_WATCH_LOG_VERSION)
        return usc_error_set(
            err, USC_E_VERSION, log->line,
            "%s: a log in version %lld, and version %d is known; a newer "
            "ulpscope is needed",
            log->info.name, (long long)version, USC_WATCH_LOG_VERSION);
    if (!usc_json_as_integer(usc_json_get(head, "world"), &world) || world < 1 ||
        world > USC_WATCH_MOST_RANKS)
        return wrong(log, err, "\"world\" is the number of ranks, from 1 on");
    if (!usc_json_is_list(list))
        return wrong(log, err, "\"tensors\" is a list of [name, dtype]");
    const size_t n = usc_json_size(list);
    log->tensors = calloc(n + 1, sizeof *log->tensors);
    if (log->tensors == NULL) return usc_no_memory(log->info.name, err);
    log->info.world = (int32_t)world;
    log->info.n_tensors = (int64_t)n;
    log->info.tensors = log->tensors;
    for (size_t i = 0; i < n; i++) {
        const usc_status st =
            take_tensor(log, usc_json_item(list, i), &log->tensors[i], err);
        if (st != USC_OK) return st;
    }
    return USC_OK;
}

/* *is: whether the file is a log of a watch, whose head is read then. */
static usc_status open_log(usc_watch_log *log, const char *path, bool *is, usc_error *err)
{
    static const char mark[] = "{\"ulpscope_watch\"";
    usc_json *head = NULL;
    *is = false;
    log->file = fopen(path, "rb");
    if (log->file == NULL)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", path, strerror(errno));
    char first[sizeof mark] = "";
    const size_t n_first = fread(first, 1, sizeof mark - 1, log->file);
    if (n_first == 0 && feof(log->file))
        return usc_error_set(err, USC_E_RANGE, -1, "%s is empty", path);
    if (n_first != sizeof mark - 1 || strcmp(first, mark) != 0)
        return USC_OK; /* a folder, too */
    *is = true;
    rewind(log->file);
    const ssize_t n = next_line(log);
    usc_status st =
        n < 0 ? usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno))
              : usc_json_parse_python(&log->room, log->text, (size_t)n, path, no_json,
                                      &head, err);
    if (st == USC_OK) st = take_head(log, head, err);
    usc_json_free(head);
    return st;
}

/* ---- curves ---- */

/* Under a name that is usual, unless one is given; for want of them the loss. */
static usc_status read_curve(usc_watch_log *log, const char *path, const char *key,
                             usc_error *err)
{
    static const char *const usual[] = {
        "grad_norm",  "train/grad_norm", "grad norm", "gradient_norm", "global_norm",
        "total_norm", "gnorm",           "norm",      "Value",         NULL};
    usc_status st = USC_E_RANGE;
    for (size_t i = 0; st == USC_E_RANGE && i < sizeof usual / sizeof usual[0]; i++) {
        const usc_curve_options options = {
            .key = key != NULL ? key : usual[i]}; /* NULL: loss */
        st = usc_curve_read(path, &options, &log->curve, err);
        if (key != NULL) break;
    }
    if (st == USC_E_RANGE && key == NULL)
        return usc_error_set(
            err, USC_E_RANGE, -1,
            "%s is no log of a watch, and has nothing called grad_norm or "
            "loss; say with --key what its gradient norms are called",
            path);
    return st;
}

/* A column called loss is one, whatever it is asked for as. */
static usc_status open_curve(usc_watch_log *log, const char *path, const char *key,
                             usc_error *err)
{
    const usc_status st = read_curve(log, path, key, err);
    if (st != USC_OK) return st;
    const bool is_loss = strcasestr(log->curve->key, "loss") != NULL;
    log->site = is_loss ? USC_WATCH_LOSS : USC_WATCH_GRAD;
    log->column = (usc_watch_tensor_info){.name = log->curve->key, .dtype = USC_F32};
    log->info.form = log->curve->form;
    log->info.column = log->curve->key;
    log->info.world = 1;
    log->info.n_tensors = 1;
    log->info.tensors = &log->column;
    (void)usc_format(log->note, sizeof log->note, "%s", log->curve->notes);
    return USC_OK;
}

usc_status usc_watch_log_open(const char *path, const char *key, usc_watch_log **out,
                              usc_error *err)
{
    bool is = false;
    *out = NULL;
    usc_watch_log *log = calloc(1, sizeof *log);
    if (log == NULL) return usc_no_memory(path, err);
    log->texts.alloc = usc_libc_alloc;
    char *name = usc_arena_take(&log->texts, strlen(path) + 1);
    usc_status st = USC_OK;
    if (name == NULL)
        st = usc_no_memory(path, err);
    else
        memcpy(name, path, strlen(path) + 1);
    log->info = (usc_watch_log_info){.name = name, .form = "watch log"};
    if (st == USC_OK) st = open_log(log, path, &is, err);
    if (st == USC_OK && !is) st = open_curve(log, path, key, err);
    if (st == USC_OK)
        *out = log;
    else
        usc_watch_log_close(log);
    return st;
}

void usc_watch_log_close(usc_watch_log *log)
{
    if (log == NULL) return;
    if (log->file != NULL) (void)fclose(log->file);
    usc_curve_free(log->curve);
    usc_line_free(&log->room);
    usc_arena_free(&log->texts);
    free(log->tensors);
    free(log->text);
    free(log->rows);
    free(log);
}

const usc_watch_log_info *usc_watch_log_about(const usc_watch_log *log)
{
    return &log->info;
}

const char *usc_watch_log_note(const usc_watch_log *log)
{
    return log->note;
}

/* ---- rows ---- */

/* A number, or a text "nan" of Python's NaN. */
static bool take_number(const usc_json *value, double *out)
{
    int64_t whole;
    const char *text = usc_json_as_text(value);
    *out = usc_json_as_integer(value, &whole) ? (double)whole : usc_json_as_number(value);
    return !isnan(*out) || (text != NULL && strcmp(text, "nan") == 0);
}

static bool take_count(const usc_json *value, int64_t *out)
{
    return usc_json_as_integer(value, out) && *out >= 0;
}

static bool take_hash(const usc_json *value, uint64_t *out)
{
    const char *text = usc_json_as_text(value);
    *out = 0;
    if (text == NULL) return value == NULL || usc_json_is_null(value);
    const size_t n = strspn(text, "0123456789abcdefABCDEF");
    if (n == 0 || n > 16 || text[n] != '\0') return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

/* [tensor, value], [tensor, value, hash], or [tensor, max_abs, sum_abs, sum_sq, numel,
 * nonfinite, zeros, hash]. */
static bool take_row(const usc_watch_log *log, const usc_json *list, usc_watch_row *r)
{
    const size_t n = usc_json_size(list);
    const usc_json *tensor = usc_json_item(list, 0);
    r->tensor = -1;
    if (!usc_json_is_null(tensor) && (!usc_json_as_integer(tensor, &r->tensor) ||
                                      r->tensor < -1 || r->tensor >= log->info.n_tensors))
        return false;
    if (n == 2 || n == 3)
        return take_number(usc_json_item(list, 1), &r->value) &&
               take_hash(usc_json_item(list, 2), &r->hash64);
    return n >= 7 && n <= 8 && take_number(usc_json_item(list, 1), &r->max_abs) &&
           take_number(usc_json_item(list, 2), &r->sum_abs) &&
           take_number(usc_json_item(list, 3), &r->sum_sq) &&
           take_count(usc_json_item(list, 4), &r->numel) &&
           take_count(usc_json_item(list, 5), &r->n_nonfinite) &&
           take_count(usc_json_item(list, 6), &r->n_zero) &&
           take_hash(usc_json_item(list, 7), &r->hash64);
}

static bool make_room(usc_watch_log *log, size_t n)
{
    if (n <= log->rows_size) return true;
    usc_watch_row *larger = realloc(log->rows, n * sizeof *larger);
    if (larger == NULL) return false;
    log->rows = larger;
    log->rows_size = n;
    return true;
}

static usc_status take_line(usc_watch_log *log, const usc_json *line, size_t *n,
                            double *seconds, usc_error *err)
{
    usc_watch_row like = {0};
    int64_t rank;
    const char *site = usc_json_as_text(usc_json_get(line, "site"));
    const usc_json *list = usc_json_get(line, "rows");
    if (!usc_json_as_integer(usc_json_get(line, "step"), &like.step) || like.step < 0)
        return wrong(log, err, "\"step\" is a number from 0 on");
    if (!usc_json_as_integer(usc_json_get(line, "rank"), &rank) || rank < 0 ||
        rank >= log->info.world)
        return wrong(log, err, "\"rank\" is a number below \"world\" of the first line");
    if (site == NULL || !usc_watch_site_by_name(site, &like.site))
        return wrong(log, err, "\"site\" is none that is known");
    if (!take_number(usc_json_get(line, "t"), seconds))
        return wrong(log, err, "\"t\" is a number of seconds");
    if (!usc_json_is_list(list)) return wrong(log, err, "\"rows\" is a list of lists");
    like.rank = (int32_t)rank;
    *n = usc_json_size(list);
    if (!make_room(log, *n + 1)) return usc_no_memory(log->info.name, err);
    for (size_t i = 0; i < *n; i++) {
        log->rows[i] = like;
        if (!take_row(log, usc_json_item(list, i), &log->rows[i]))
            return wrong(log, err,
                         "a row is [tensor, max_abs, sum_abs, sum_sq, numel, nonfinite, "
                         "zeros, \"hash\"] or [tensor, value]");
    }
    return USC_OK;
}

static usc_status next_of_log(usc_watch_log *log, size_t *n, double *seconds,
                              usc_error *err)
{
    while (*n == 0) {
        usc_json *line = NULL;
        const ssize_t size = next_line(log);
        if (size < 0 && ferror(log->file))
            return usc_error_set(err, USC_E_IO, log->line, "%s: %s", log->info.name,
                                 strerror(errno));
        if (size < 0) return USC_OK;
        const bool ends = log->text[size] != '\0'; /* with a newline */
        usc_status st = usc_json_parse_python(&log->room, log->text, (size_t)size,
                                              log->info.name, no_json, &line, err);
        if (st == USC_E_CORRUPT && !ends) {
            (void)usc_format(log->note, sizeof log->note,
                             "line %lld, the last one, was cut off: left out",
                             (long long)log->line);
            return USC_OK;
        }
        if (st == USC_E_CORRUPT) return wrong(log, err, no_json);
        if (st == USC_OK) st = take_line(log, line, n, seconds, err);
        usc_json_free(line);
        if (st != USC_OK) return st;
    }
    return USC_OK;
}

usc_status usc_watch_log_next(usc_watch_log *log, const usc_watch_row **rows, size_t *n,
                              double *seconds, usc_error *err)
{
    *n = 0;
    *rows = NULL;
    *seconds = 0;
    if (log->curve == NULL) {
        const usc_status st = next_of_log(log, n, seconds, err);
        if (st != USC_OK) *n = 0;
        *rows = log->rows;
        return st;
    }
    if (!make_room(log, 1)) return usc_no_memory(log->info.name, err);
    if (log->line >= log->curve->n) return USC_OK;
    *seconds = (double)log->line;
    log->rows[0] = (usc_watch_row){.step = log->curve->steps[log->line],
                                   .site = log->site,
                                   .value = log->curve->values[log->line]};
    log->line++;
    *rows = log->rows;
    *n = 1;
    return USC_OK;
}
