// SPDX-License-Identifier: Apache-2.0
// What a port came to as one page: what is left first, by what it is, then each file with
// its diff. The page needs nothing beside it.
#include <ulpscope/x/port.h>

#include <string.h>

#include "base/arena.h"
#include "base/keys.h"
#include "base/line.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>ulpscope "
    "port</title>\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem "
    "auto;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;"
    "padding:.2rem .6rem;border-bottom:1px solid #d8dee4}"
    "code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#f6f8fa;padding:.6rem;"
    "overflow-x:auto}summary{cursor:pointer}"
    ".add{color:#116329}.del{color:#a40e26}.at{color:#57606a}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}pre{"
    "background:#161b22}td,th{border-color:#30363d}.add{color:#7ee787}.del{color:#ffa198}"
    "}"
    "</style>\n";

static void put_cell(usc_line *l, const char *tag, const char *text)
{
    usc_line_add(l, "<td><%s>", tag);
    usc_line_html(l, text);
    usc_line_add(l, "</%s></td>", tag);
}

/* Rows of one construct, which begin at left[k] of file i. */
static void put_construct(usc_line *l, const usc_port_result *r, const char *construct,
                          const char *advice)
{
    usc_line_text(l, "<h3>");
    usc_line_html(l, construct);
    usc_line_text(l, "</h3>\n<p>");
    usc_line_html(l, advice);
    usc_line_text(l, "</p>\n<table>\n");
    for (size_t i = 0; i < r->n_files; i++)
        for (size_t k = 0; k < r->file[i].n_left; k++) {
            const usc_port_left *left = &r->file[i].left[k];
            if (strcmp(left->construct, construct) != 0 ||
                strcmp(left->advice, advice) != 0)
                continue;
            usc_line_text(l, "<tr><td><a href=\"#f");
            usc_line_add(l, "%zu\">", i);
            usc_line_html(l, r->file[i].path);
            usc_line_add(l, ":%lld</a></td>", (long long)left->line);
            put_cell(l, "code", left->excerpt);
            usc_line_text(l, "</tr>\n");
        }
    usc_line_text(l, "</table>\n");
}

/* Whether it is the first of its construct and advice. */
static bool is_first(usc_keys *seen, const usc_port_left *left)
{
    const usc_hash128 a = usc_key_of(left->construct), b = usc_key_of(left->advice);
    const int64_t n = (int64_t)seen->n;
    return usc_keys_put(seen, (usc_hash128){a.low ^ b.high, a.high + b.low}, n) == n;
}

static void put_diff(usc_line *l, const char *diff)
{
    usc_line_text(l, "<pre>");
    while (*diff != '\0') {
        const size_t n = strcspn(diff, "\n") + 1;
        const char *kind = diff[0] == '+'   ? "add"
                           : diff[0] == '-' ? "del"
                           : diff[0] == '@' ? "at"
                                            : "";
        usc_line line = {0};
        usc_line_put(&line, diff, diff[n - 1] == '\n' ? n : n - 1);
        usc_line_add(l, "<span class=\"%s\">", kind);
        usc_line_html(l, line.text != NULL ? line.text : "");
        usc_line_text(l, "</span>");
        l->failed |= line.failed;
        usc_line_free(&line);
        diff += diff[n - 1] == '\n' ? n : n - 1;
    }
    usc_line_text(l, "</pre>");
}

static void put_file(usc_line *l, const usc_port_file *f, size_t i)
{
    usc_line_add(l, "<details id=\"f%zu\"><summary><code>", i);
    usc_line_html(l, f->path);
    if (strcmp(f->path, f->to) != 0) {
        usc_line_text(l, " &rarr; ");
        usc_line_html(l, f->to);
    }
    usc_line_add(l, "</code>: %lld changes, %zu left</summary>", (long long)f->n_changes,
                 f->n_left);
    if (f->diff[0] != '\0') put_diff(l, f->diff);
    usc_line_text(l, "</details>\n");
}

static void put_summary(usc_line *l, const usc_port_result *r,
                        const usc_port_options *options)
{
    usc_line_add(l,
                 "<h1>Port to %s</h1>\n<p>%lld files: %lld changed at %lld places, %lld "
                 "renamed; %lld places left for you. ",
                 usc_port_target_text(options->target), (long long)r->n_seen,
                 (long long)r->n_changed, (long long)r->n_changes,
                 (long long)r->n_renamed, (long long)r->n_left);
    if (options->dry_run) {
        usc_line_text(l, "Nothing was written.</p>\n");
        return;
    }
    usc_line_text(l, "Written to <code>");
    usc_line_html(l, r->out);
    usc_line_text(l, "</code>.</p>\n");
}

usc_status usc_port_html(const usc_port_result *r, const usc_port_options *options,
                         FILE *to, usc_error *err)
{
    usc_line l = {0};
    usc_keys seen = {0};
    usc_line_text(&l, head);
    put_summary(&l, r, options);
    usc_line_text(&l, "<h2>Left for you</h2>\n");
    if (r->n_left == 0) usc_line_text(&l, "<p>Nothing.</p>\n");
    for (size_t i = 0; i < r->n_files; i++)
        for (size_t k = 0; k < r->file[i].n_left; k++)
            if (is_first(&seen, &r->file[i].left[k]))
                put_construct(&l, r, r->file[i].left[k].construct,
                              r->file[i].left[k].advice);
    usc_line_text(&l, "<h2>Files</h2>\n");
    for (size_t i = 0; i < r->n_files; i++)
        put_file(&l, &r->file[i], i);
    usc_line_text(&l, "</html>\n");
    l.failed |= seen.failed;
    usc_keys_free(&seen);
    usc_status st = l.failed ? usc_no_memory("a port", err) : USC_OK;
    if (st == USC_OK && fwrite(l.text, 1, l.n, to) != l.n)
        st = usc_error_set(err, USC_E_IO, -1, "cannot be written");
    usc_line_free(&l);
    return st;
}
