// SPDX-License-Identifier: Apache-2.0
// Notebooks: the code of all cells is one text, since a later cell uses what an earlier
// one imports. Each byte of it knows where it stands in the file, so that an edit of the
// code is an edit of the file, and all else of the file stays byte for byte.
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "port/port_job.h"

typedef struct notebook {
    usc_port_job *job;
    size_t at; /* in the file */
    char *code;
    uint32_t *place; /* of each byte of the code in the file */
    size_t n, size;
    bool bad; /* no notebook */
} notebook;

static char here(const notebook *b)
{
    return b->at < b->job->n ? b->job->text[b->at] : '\0';
}

static void skip_blanks(notebook *b)
{
    while (b->at < b->job->n && strchr(" \t\r\n", here(b)) != NULL)
        b->at++;
}

static void skip_string(notebook *b)
{
    for (b->at++; b->at < b->job->n && here(b) != '"'; b->at++)
        b->at += here(b) == '\\';
    b->bad |= b->at >= b->job->n;
    b->at++;
}

/* Whether the next thing is this sign, which is then taken. */
static bool take(notebook *b, char sign)
{
    skip_blanks(b);
    if (here(b) != sign) return false;
    b->at++;
    return true;
}

static void skip_value(notebook *b)
{
    size_t depth = 0;
    skip_blanks(b);
    do {
        const char c = here(b);
        if (b->at >= b->job->n) {
            b->bad = true;
            return;
        }
        if (c == '"') {
            skip_string(b);
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') {
            if (depth == 0) return; /* of what is around */
            depth--;
        }
        if (c == ',' && depth == 0) return;
        b->at++;
    } while (depth > 0 || strchr(",}]", here(b)) == NULL);
}

/* Takes a key and its colon: whether it is this one is in is[k]. */
static bool take_key(notebook *b, const char *const *names, size_t n, bool *is)
{
    skip_blanks(b);
    const size_t start = b->at;
    if (here(b) != '"') return false;
    skip_string(b);
    for (size_t k = 0; k < n; k++)
        is[k] = strlen(names[k]) == b->at - start - 2 &&
                strncmp(b->job->text + start + 1, names[k], strlen(names[k])) == 0;
    b->bad |= !take(b, ':');
    return !b->bad;
}

static void add(notebook *b, char c, size_t place)
{
    if (b->n + 1 >= b->size) {
        const size_t size = b->size > 0 ? 2 * b->size : 4096;
        char *code = realloc(b->code, size);
        if (code != NULL) b->code = code;
        uint32_t *places = realloc(b->place, size * sizeof *places);
        if (places != NULL) b->place = places;
        if (code == NULL || places == NULL) {
            b->job->failed = true;
            return;
        }
        b->size = size;
    }
    b->code[b->n] = c;
    b->place[b->n++] = (uint32_t)place;
    b->code[b->n] = '\0';
}

static unsigned hex_at(const notebook *b, size_t at)
{
    char digits[5] = "";
    if (at + 4 <= b->job->n) memcpy(digits, b->job->text + at, 4);
    return (unsigned)strtoul(digits, NULL, 16);
}

static void add_utf8(notebook *b, unsigned c, size_t place)
{
    char bytes[4];
    if (c == 0 || (c >= 0xd800 && c < 0xe000)) c = '?'; /* half of a pair, a zero */
    const size_t n = usc_utf8_put(c, bytes);
    for (size_t i = 0; i < n; i++)
        add(b, bytes[i], place);
}

/* Bytes of what a byte of the code stands for in the file. */
static size_t width_at(const usc_port_job *job, size_t at)
{
    if (job->text[at] != '\\') return 1;
    return at + 1 < job->n && job->text[at + 1] == 'u' ? 6 : 2;
}

/* Appends the text of a string of JSON. */
static void take_text(notebook *b)
{
    static const char named[] = "n\nt\tr\rb\bf\f";
    size_t at = b->at + 1;
    skip_string(b);
    const size_t end = b->at - 1;
    while (at < end && !b->bad) {
        const char c = b->job->text[at], next = b->job->text[at + 1];
        if (c != '\\') {
            add(b, c, at);
        } else if (next == 'u') {
            add_utf8(b, hex_at(b, at + 2), at);
        } else {
            const char *found = strchr(named, next);
            add(b, found != NULL && (found - named) % 2 == 0 ? found[1] : next, at);
        }
        at += width_at(b->job, at);
    }
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Lines for the notebook itself (%matplotlib, !pip) are comments to Python; a cell in
 * another language is none of its code. */
static void hide_magic(notebook *b, size_t from)
{
    static const char *const python[] = {"%%time", "%%capture", "%%prun"};
    if (b->code != NULL && begins(b->code + from, "%%")) {
        bool known = false;
        for (int i = 0; i < 3; i++)
            known |= begins(b->code + from, python[i]);
        if (!known) {
            b->n = from;
            b->code[from] = '\0';
            return;
        }
    }
    for (size_t at = from; at < b->n;) {
        const size_t first = at + strspn(b->code + at, " \t");
        const char next = first + 1 < b->n ? b->code[first + 1] : '\0';
        if (b->code[first] == '!' ||
            (b->code[first] == '%' && (next == '%' || usc_port_in_name(next))))
            b->code[first] = '#';
        at = first + strcspn(b->code + first, "\n") + 1;
    }
}

static void take_source(notebook *b)
{
    const size_t from = b->n;
    skip_blanks(b);
    if (here(b) == '"') {
        take_text(b);
    } else if (take(b, '[')) {
        do {
            skip_blanks(b);
            if (here(b) != '"') break;
            take_text(b);
        } while (take(b, ','));
    }
    if (b->n == from) return;
    add(b, '\n', b->at - 1);
    if (!b->job->failed) hide_magic(b, from);
}

static void take_cell(notebook *b)
{
    static const char *const names[] = {"cell_type", "source"};
    bool is[2], code = false;
    size_t source = 0;
    if (!take(b, '{')) {
        b->bad = true;
        return;
    }
    while (!b->bad && take_key(b, names, 2, is)) {
        skip_blanks(b);
        if (is[0]) code = begins(b->job->text + b->at, "\"code\"");
        if (is[1]) source = b->at;
        skip_value(b);
        if (!take(b, ',')) break;
    }
    b->bad |= !take(b, '}');
    if (!code || source == 0 || b->bad) return;
    const size_t end = b->at;
    b->at = source;
    take_source(b);
    b->at = end;
}

static void take_cells(notebook *b)
{
    static const char *const names[] = {"cells"};
    bool is;
    b->bad |= !take(b, '{');
    while (!b->bad && take_key(b, names, 1, &is)) {
        if (!is) {
            skip_value(b);
        } else if (take(b, '[')) {
            skip_blanks(b);
            while (!b->bad && here(b) == '{') {
                take_cell(b);
                if (!take(b, ',')) break;
                skip_blanks(b);
            }
            b->bad |= !take(b, ']');
        }
        if (!take(b, ',')) break;
    }
    b->bad |= !take(b, '}');
}

/* A line of its own is an item of its own where the cell has one for each line. */
static const char *as_item(usc_port_job *job, const char *text, size_t at)
{
    const size_t n = strlen(text);
    if (at == 0 || job->text[at - 1] != '"' || n < 2 || strcmp(text + n - 2, "\\n") != 0)
        return text;
    size_t blank = at - 1;
    while (blank > 0 && strchr(" \t\r\n", job->text[blank - 1]) != NULL)
        blank--;
    if (blank == 0 || strchr("[,", job->text[blank - 1]) == NULL) return text;
    return usc_port_format(job, "%s\",%.*s\"", text, (int)(at - 1 - blank),
                           job->text + blank);
}

/* What stands behind the backslash for a byte in a string of JSON; zero: no backslash. */
static char escape_of(char c)
{
    switch (c) {
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    case '"':
    case '\\':
        return c;
    default:
        return '\0';
    }
}

/* A text as it stands within a string of JSON. */
static const char *quoted(usc_port_job *job, const char *text)
{
    char *out = usc_arena_take(job->arena, 2 * strlen(text) + 1);
    if (out == NULL) {
        job->failed = true;
        return "";
    }
    size_t n = 0;
    for (; *text != '\0'; text++) {
        const char escape = escape_of(*text);
        if (escape != '\0') out[n++] = '\\';
        out[n++] = escape != '\0' ? escape : *text;
    }
    out[n] = '\0';
    return out;
}

static void give_edits(usc_port_job *job, const notebook *b, const usc_port_job *code)
{
    for (size_t i = 0; i < code->n_edits; i++) {
        const usc_port_edit *e = &code->edit[i];
        if (e->start >= b->n) continue;
        const char *text = quoted(job, e->text);
        const size_t start = b->place[e->start];
        if (e->end == e->start) {
            usc_port_edit_put(job, start, start, as_item(job, text, start));
            continue;
        }
        const size_t last = b->place[e->end - 1];
        usc_port_edit_put(job, start, last + width_at(job, last), text);
    }
}

static void give_left(usc_port_job *job, const notebook *b, const usc_port_job *code)
{
    for (size_t i = 0; i < code->n_left; i++) {
        const usc_port_left *left = &code->left[i];
        size_t at = 0;
        for (int64_t line = 1; line < left->line && at < b->n; at++)
            line += b->code[at] == '\n';
        usc_port_leave_at(job, at < b->n ? b->place[at] : 0, left->construct,
                          left->excerpt, left->advice);
    }
}

bool usc_port_is_notebook(const char *path)
{
    const size_t n = strlen(path);
    return n >= 6 && strcmp(path + n - 6, ".ipynb") == 0;
}

void usc_port_notebook(usc_port_job *job)
{
    notebook b = {.job = job};
    take_cells(&b);
    if (b.bad) {
        usc_port_leave_at(job, b.at < job->n ? b.at : 0, "notebook", "",
                          "is left as it is: no notebook of version 4 or newer");
    } else if (b.n > 0 && !job->failed) {
        usc_port_job code = {.options = job->options,
                             .names = job->names,
                             .renames = job->renames,
                             .terms = job->terms,
                             .own_names = job->own_names,
                             .learns = job->learns,
                             .path = job->path,
                             .root = job->root,
                             .arena = job->arena,
                             .text = b.code,
                             .n = b.n};
        if (usc_port_ask(&code, true)) give_edits(job, &b, &code);
        give_left(job, &b, &code);
        job->failed |= code.failed;
        usc_port_job_close(&code);
    }
    free(b.code);
    free(b.place);
}
