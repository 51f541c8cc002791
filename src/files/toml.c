// SPDX-License-Identifier: Apache-2.0
// TOML 1.0 by recursive descent; the hearer is told of each value as it ends.
#include <ulpscope/x/toml.h>

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/line.h"
#include "base/utf8.h"

typedef struct reader {
    const char *at, *end;
    usc_toml_value value; /* its keys are those of the table and of what is read now */
    usc_line text;        /* while it is made */
    int line, n_table;    /* keys of the table */
    int depth;
    usc_toml_hear *hear;
    void *ctx;
    char *why;
    bool failed;
} reader;

static bool fail(reader *r, const char *format, ...) USC_PRINTF(2, 3);

static bool fail(reader *r, const char *format, ...)
{
    if (r->failed) return false; /* the first reason stays */
    r->failed = true;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->why, 128, format, args);
    va_end(args);
    return false;
}

/* ---- characters ---- */

static int peek(const reader *r)
{
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

static bool starts(const reader *r, const char *with)
{
    const size_t n = strlen(with);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, with, n) == 0;
}

static void past_blanks(reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t')
        r->at++;
}

/* Behind blanks and a comment. */
static void past_comment(reader *r)
{
    past_blanks(r);
    if (peek(r) != '#') return;
    while (r->at < r->end && *r->at != '\n')
        r->at++;
}

static bool past_newline(reader *r)
{
    if (starts(r, "\r\n")) r->at++;
    if (peek(r) != '\n') return false;
    r->at++;
    r->line++;
    return true;
}

/* Behind all that stands between two values of an array. */
static void past_lines(reader *r)
{
    do
        past_comment(r);
    while (past_newline(r));
}

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
}

/* ---- texts ---- */

static bool put(reader *r, const char *bytes, size_t n)
{
    usc_line_put(&r->text, bytes, n);
    return !r->text.failed || fail(r, "no memory");
}

static bool begin_text(reader *r)
{
    usc_line_clear(&r->text);
    return put(r, "", 0);
}

/* \uXXXX, \UXXXXXXXX: `n` digits behind the letter. */
static bool take_code(reader *r, int n)
{
    uint32_t code = 0;
    for (int i = 0; i < n; i++, r->at++) {
        static const char digits[] = "0123456789abcdef";
        const int c = peek(r) | 0x20;
        const char *digit = peek(r) > 0 ? memchr(digits, c, 16) : NULL;
        if (digit == NULL)
            return fail(r, "\\%c needs %d hexadecimal digits", "uU"[n > 4], n);
        code = code << 4 | (uint32_t)(digit - digits);
    }
    if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        return fail(r, "there is no character U+%04X", (unsigned)code);
    char bytes[4];
    return put(r, bytes, usc_utf8_put(code, bytes));
}

/* Behind a backslash. */
static bool take_escape(reader *r, bool many)
{
    static const char letters[] = "btnfr\"\\e", meant[] = "\b\t\n\f\r\"\\\033";
    const int c = peek(r);
    if (c == 'u' || c == 'U') {
        r->at++;
        return take_code(r, c == 'u' ? 4 : 8);
    }
    const char *letter = c > 0 ? memchr(letters, c, sizeof letters - 1) : NULL;
    if (letter != NULL) {
        r->at++;
        return put(r, &meant[letter - letters], 1);
    }
    const char *back = r->at;
    past_blanks(r);
    if (many && (peek(r) == '\n' || starts(r, "\r\n"))) { /* the line goes on */
        do
            past_blanks(r);
        while (past_newline(r));
        return true;
    }
    r->at = back;
    return fail(r, "'\\%c' is no escape; a path is best written in 'single quotes'",
                c > 32 && c < 127 ? c : '?');
}

/* A text, whose opening quotes come next, into r->text. */
static bool take_text(reader *r)
{
    const char quote = *r->at;
    const char three[4] = {quote, quote, quote, '\0'};
    const bool many = starts(r, three);
    const int began = r->line;
    r->at += many ? 3 : 1;
    if (!begin_text(r)) return false;
    if (many) (void)past_newline(r);
    for (;;) {
        const int c = peek(r);
        if (c < 0 || (!many && (c == '\n' || starts(r, "\r\n")))) {
            r->line = began;
            return fail(r, "a text has no closing %c", quote);
        }
        if (many ? starts(r, three) : c == quote) {
            r->at += many ? 3 : 1;
            for (int i = 0; many && i < 2 && peek(r) == quote; i++, r->at++)
                if (!put(r, &quote, 1)) return false; /* quotes before the closing ones */
            return true;
        }
        if (c == '\\' && quote == '"') {
            r->at++;
            if (!take_escape(r, many)) return false;
        } else if (many && past_newline(r)) {
            if (!put(r, "\n", 1)) return false;
        } else if ((c < 32 && c != '\t') || c == 127) {
            return fail(r, "a text holds the control character %d", c);
        } else if (!put(r, r->at++, 1)) {
            return false;
        }
    }
}

/* ---- keys ---- */

static void push_key(reader *r, const char *text, size_t n)
{
    if (r->value.n_keys < USC_TOML_MOST_KEYS)
        (void)snprintf(r->value.keys[r->value.n_keys], USC_TOML_LONGEST_KEY, "%.*s",
                       (int)n, text);
    r->value.n_keys++;
}

/* a.b."c d" behind those that stand. */
static bool take_keys(reader *r)
{
    do {
        past_blanks(r);
        if (peek(r) == '"' || peek(r) == '\'') {
            if (starts(r, "\"\"\"") || starts(r, "'''"))
                return fail(r, "a key does not go over several lines");
            if (!take_text(r)) return false;
            push_key(r, r->text.text, r->text.n);
        } else {
            const char *begin = r->at;
            while (is_bare(peek(r)))
                r->at++;
            if (r->at == begin) return fail(r, "a key is missing, as in key = value");
            push_key(r, begin, (size_t)(r->at - begin));
        }
        past_blanks(r);
    } while (peek(r) == '.' && r->at++ != NULL);
    return true;
}

/* ---- values ---- */

static bool tell(reader *r, usc_toml_kind kind, const char *text, int line)
{
    r->value.line = line;
    r->value.kind = kind;
    r->value.text = text;
    if (r->hear(&r->value, r->ctx)) return true;
    r->failed = true;
    return false;
}

static bool take_value(reader *r);

static bool take_pair(reader *r)
{
    if (!take_keys(r)) return false;
    if (peek(r) != '=') return fail(r, "'=' is missing behind a key");
    r->at++;
    past_blanks(r);
    return take_value(r);
}

static bool take_array(reader *r)
{
    const bool within = r->value.in_array;
    r->at++;
    if (!tell(r, USC_TOML_ARRAY, "", r->line)) return false;
    r->value.in_array = true;
    for (past_lines(r); peek(r) != ']'; past_lines(r)) {
        if (peek(r) < 0) return fail(r, "an array has no closing ]");
        if (!take_value(r)) return false;
        past_lines(r);
        if (peek(r) == ',')
            r->at++;
        else if (peek(r) != ']' && peek(r) >= 0)
            return fail(r, "',' or ']' is missing in an array");
    }
    r->at++;
    r->value.in_array = within;
    return true;
}

static bool take_inline_table(reader *r)
{
    const int n = r->value.n_keys;
    const bool within = r->value.in_array;
    r->at++;
    if (!tell(r, USC_TOML_TABLE, "", r->line)) return false;
    r->value.in_array = false;
    for (past_lines(r); peek(r) != '}'; past_lines(r)) {
        if (peek(r) < 0) return fail(r, "an inline table has no closing }");
        if (!take_pair(r)) return false;
        r->value.n_keys = n;
        past_lines(r);
        if (peek(r) == ',')
            r->at++;
        else if (peek(r) != '}' && peek(r) >= 0)
            return fail(r, "',' or '}' is missing in an inline table");
    }
    r->at++;
    r->value.in_array = within;
    return true;
}

static bool is_plain(int c)
{
    return is_bare(c) || c == '+' || c == '.' || c == ':';
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* true, a number, a date: a space may stand between a date and its time. */
static bool take_plain(reader *r)
{
    const char *begin = r->at;
    while (is_plain(peek(r)))
        r->at++;
    if (r->at - begin == 10 && begin[4] == '-' && begin[7] == '-' && peek(r) == ' ' &&
        r->end - r->at > 1 && is_digit((unsigned char)r->at[1]))
        for (r->at++; is_plain(peek(r));)
            r->at++;
    const size_t n = (size_t)(r->at - begin);
    if (n == 0) return fail(r, "a value is missing");
    if (!begin_text(r) || !put(r, begin, n)) return false;
    const char *text = r->text.text;
    const bool is_bool = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    const char *number = text + (*text == '+' || *text == '-');
    if (!is_bool && !is_digit((unsigned char)*number) && strcmp(number, "inf") != 0 &&
        strcmp(number, "nan") != 0)
        return fail(r, "'%.40s' is no value; a text stands in \"quotes\"", text);
    return tell(r, is_bool ? USC_TOML_BOOL : USC_TOML_PLAIN, text, r->line);
}

static bool take_value(reader *r)
{
    if (r->depth == USC_TOML_DEEPEST) return fail(r, "values lie too deep in each other");
    r->depth++;
    const int c = peek(r), line = r->line;
    const bool taken = c == '['   ? take_array(r)
                       : c == '{' ? take_inline_table(r)
                       : c == '"' || c == '\''
                           ? take_text(r) && tell(r, USC_TOML_TEXT, r->text.text, line)
                           : take_plain(r);
    r->depth--;
    return taken;
}

/* ---- the file ---- */

/* [a.b] or [[a.b]] */
static bool take_header(reader *r)
{
    const bool many = starts(r, "[[");
    r->at += many ? 2 : 1;
    r->value.n_keys = 0;
    if (!take_keys(r)) return false;
    if (!starts(r, many ? "]]" : "]"))
        return fail(r, "'%s' is missing behind the name of a table", many ? "]]" : "]");
    r->at += many ? 2 : 1;
    r->n_table = r->value.n_keys;
    return tell(r, USC_TOML_TABLE, "", r->line);
}

static bool take_line(reader *r)
{
    r->value.n_keys = r->n_table;
    past_comment(r);
    if (r->at < r->end && peek(r) != '\n' && !starts(r, "\r\n")) {
        if (!(peek(r) == '[' ? take_header(r) : take_pair(r))) return false;
        past_comment(r);
    }
    return r->at == r->end || past_newline(r) ||
           fail(r, "more than one value stands in a line");
}

bool usc_toml_read(const char *bytes, size_t size, usc_toml_hear *hear, void *ctx,
                   int *line, char why[static 128])
{
    assert((bytes != NULL || size == 0) && hear != NULL && line != NULL && why != NULL);
    reader r = {.at = bytes, .end = bytes + size, .hear = hear, .ctx = ctx, .why = why};
    r.line = 1;
    why[0] = '\0';
    if (starts(&r, "\xEF\xBB\xBF")) r.at += 3;
    while (r.at < r.end && take_line(&r)) {
    }
    *line = r.line;
    usc_line_free(&r.text);
    return !r.failed;
}
