// SPDX-License-Identifier: Apache-2.0
// Python: strings with every prefix, f-strings with the tokens of their fields (also
// those that use the same quotes once more, as Python 3.12 has it), comments, joined
// lines.
#include "port/port_token.h"

#include <string.h>

enum { MOST_NESTED = 64 };

/* Where the tokenizer stands within f-strings: a literal part, a field in braces, or what
 * follows the colon of a field. */
typedef enum place { LITERAL, FIELD, SPEC } place;

typedef struct level {
    place place;
    char quote;
    bool triple, raw;
    uint32_t depth; /* brackets open in the field */
    size_t start;
} level;

typedef struct scan {
    const char *text;
    size_t n, at;
    usc_port_tokens *out;
    level level[MOST_NESTED];
    int n_levels;
} scan;

static char byte_at(const scan *s, size_t at)
{
    return at < s->n ? s->text[at] : '\0';
}

static void push(scan *s, usc_port_kind kind, size_t end)
{
    usc_port_push(s->out, kind, end, false);
    s->at = end;
}

static size_t newline_at(const scan *s, size_t at)
{
    if (byte_at(s, at) == '\n') return 1;
    if (at >= s->n || s->text[at] != '\r') return 0;
    return byte_at(s, at + 1) == '\n' ? 2 : 1;
}

static bool closes(const scan *s, size_t at, char quote, bool triple)
{
    if (byte_at(s, at) != quote) return false;
    return !triple || (byte_at(s, at + 1) == quote && byte_at(s, at + 2) == quote);
}

/* Whether a byte may end a string or a line: most do not. */
static bool stops(char c)
{
    return c == '"' || c == '\'' || c == '\\' || c == '\n' || c == '\r';
}

/* Bytes of a backslash and what it escapes. */
static size_t escape_at(const scan *s, size_t at)
{
    const size_t newline = newline_at(s, at + 1);
    return newline > 0 ? 1 + newline : at + 1 < s->n ? 2 : 1;
}

/* Behind a plain string whose quote stands at `at`. */
static size_t skip_string(const scan *s, size_t at)
{
    const char quote = s->text[at];
    const bool triple =
        at + 2 < s->n && s->text[at + 1] == quote && s->text[at + 2] == quote;
    size_t i = at + (triple ? 3 : 1);
    while (i < s->n) {
        if (!stops(s->text[i])) {
            i++;
        } else if (s->text[i] == '\\') {
            i += escape_at(s, i);
        } else if (closes(s, i, quote, triple)) {
            return i + (triple ? 3 : 1);
        } else if (!triple && newline_at(s, i) > 0) {
            break;
        } else {
            i++;
        }
    }
    usc_port_unended(s->out, "a text in quotes", at);
    return i < s->n ? i : s->n;
}

static void enter(scan *s, level l)
{
    if (s->n_levels < MOST_NESTED) {
        s->level[s->n_levels++] = l;
        return;
    }
    usc_port_unended(s->out, "an f-string within f-strings 60 times", s->at);
    s->n_levels = 0;
}

/* Opens an f-string; `at` is at its quote. */
static void open_fstring(scan *s, size_t at, bool raw)
{
    const char quote = s->text[at];
    const bool triple =
        at + 2 < s->n && s->text[at + 1] == quote && s->text[at + 2] == quote;
    const level l = {LITERAL, quote, triple, raw, 0, s->at};
    push(s, USC_PORT_OPEN, at + (triple ? 3 : 1));
    enter(s, l);
}

/* The string around the place at hand. */
static const level *around(const scan *s)
{
    int i = s->n_levels - 1;
    while (i > 0 && s->level[i].place != LITERAL)
        i--;
    return &s->level[i];
}

/* A literal part, or what follows a field's colon, up to what ends it. */
static void take_literal(scan *s)
{
    const level here = s->level[s->n_levels - 1], string = *around(s);
    const bool spec = here.place == SPEC;
    size_t i = s->at;
    while (i < s->n) {
        const char c = s->text[i];
        if (c == '\\' && !string.raw && s->text[i + 1 < s->n ? i + 1 : i] == 'N' &&
            byte_at(s, i + 2) == '{') {
            i += 3; /* a character by its name: no field */
        } else if (c == '\\' && byte_at(s, i + 1) != '{' && byte_at(s, i + 1) != '}') {
            i += escape_at(s, i);
        } else if ((c == '{' || c == '}') && !spec && byte_at(s, i + 1) == c) {
            i += 2;
        } else if (c == '{' || (c == '}' && spec) ||
                   closes(s, i, string.quote, string.triple) ||
                   (!string.triple && newline_at(s, i) > 0)) {
            break;
        } else {
            i++;
        }
    }
    if (i > s->n) i = s->n;
    push(s, USC_PORT_MIDDLE, i);
    if (i >= s->n) return;
    if (s->text[i] == '{') {
        push(s, USC_PORT_PUNCT, i + 1);
        enter(s, (level){.place = FIELD, .start = i});
    } else if (s->text[i] == '}') {
        push(s, USC_PORT_PUNCT, i + 1);
        s->n_levels -= 2; /* the colon's part and its field */
    } else if (!spec && closes(s, i, string.quote, string.triple)) {
        push(s, USC_PORT_CLOSE, i + (string.triple ? 3 : 1));
        s->n_levels--;
    } else { /* the line ends, or the string in the middle of a field */
        usc_port_unended(s->out, "an f-string", string.start);
        s->n_levels = 0;
    }
}

/* In the field of an f-string: whether the character ends it, and was taken. */
static bool leaves_field(scan *s, char c)
{
    if (s->n_levels == 0) return false;
    level *l = &s->level[s->n_levels - 1];
    if (c == '(' || c == '[' || c == '{') l->depth++;
    if (l->depth > 0) {
        if (c == ')' || c == ']' || c == '}') l->depth--;
        return false;
    }
    if (c != '}' && c != ':') return false;
    push(s, USC_PORT_PUNCT, s->at + 1);
    if (c == '}')
        s->n_levels--;
    else
        enter(s, (level){.place = SPEC, .start = s->at});
    return true;
}

/* Letters before a quote; 0 where they are none. */
static size_t prefix_at(const scan *s, size_t at, bool *format, bool *raw)
{
    static const char *const known[] = {"r",  "u",  "b",  "f",  "t", "br",
                                        "rb", "fr", "rf", "tr", "rt"};
    size_t n = 0;
    char low[3] = "";
    if (strchr("rubftRUBFT", s->text[at]) == NULL) return 0; /* most words */
    while (n < 2 &&
           ((byte_at(s, at + n) | 0x20) >= 'a' && (byte_at(s, at + n) | 0x20) <= 'z')) {
        low[n] = (char)(byte_at(s, at + n) | 0x20);
        n++;
    }
    const char quote = byte_at(s, at + n);
    if (n == 0 || (quote != '"' && quote != '\'')) return 0;
    *format = strpbrk(low, "ft") != NULL;
    *raw = strchr(low, 'r') != NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], low) == 0) return n;
    return 0;
}

static size_t skip_number(const scan *s, size_t at)
{
    for (; at < s->n; at++) {
        const char c = s->text[at];
        const bool power = at > s->at && (c == '+' || c == '-') &&
                           (s->text[at - 1] | 0x20) == 'e' &&
                           (s->at + 1 >= s->n || (s->text[s->at + 1] | 0x20) != 'x');
        if (!usc_port_in_name(c) && c != '.' && !power) break;
    }
    return at;
}

static void take_word(scan *s)
{
    bool format = false, raw = false;
    const size_t prefix = prefix_at(s, s->at, &format, &raw);
    if (prefix > 0 && format) {
        open_fstring(s, s->at + prefix, raw);
    } else if (prefix > 0) {
        push(s, USC_PORT_TEXT, skip_string(s, s->at + prefix));
    } else {
        size_t end = s->at;
        while (end < s->n && usc_port_in_name(s->text[end]))
            end++;
        push(s, USC_PORT_NAME, end);
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static void take_code(scan *s)
{
    const char c = s->text[s->at], next = byte_at(s, s->at + 1);
    size_t end = s->at;
    if (newline_at(s, end) > 0) {
        push(s, USC_PORT_NEWLINE, end + newline_at(s, end));
    } else if (is_blank(c)) {
        while (end < s->n && is_blank(s->text[end]))
            end++;
        push(s, USC_PORT_SPACE, end);
    } else if (c == '\\' && newline_at(s, end + 1)) {
        push(s, USC_PORT_SPACE, end + 1 + newline_at(s, end + 1));
    } else if (c == '#') {
        while (end < s->n && s->text[end] != '\n' && s->text[end] != '\r')
            end++;
        push(s, USC_PORT_COMMENT, end);
    } else if (c == '"' || c == '\'') {
        push(s, USC_PORT_TEXT, skip_string(s, end));
    } else if ((c >= '0' && c <= '9') || (c == '.' && next >= '0' && next <= '9')) {
        push(s, USC_PORT_NUMBER, skip_number(s, end));
    } else if (usc_port_in_name(c)) {
        take_word(s);
    } else if (!leaves_field(s, c)) {
        push(s, USC_PORT_PUNCT, end + 1);
    }
}

void usc_port_cut_python(const char *text, size_t n, usc_port_tokens *out)
{
    scan s = {.text = text, .n = n, .out = out};
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) push(&s, USC_PORT_SPACE, 3);
    while (s.at < n && !out->failed) {
        if (s.n_levels > 0 && s.level[s.n_levels - 1].place != FIELD)
            take_literal(&s);
        else
            take_code(&s);
    }
    if (s.n_levels > 0) usc_port_unended(out, "an f-string", around(&s)->start);
}
