// SPDX-License-Identifier: Apache-2.0
// Finds where members begin and end; what stands between is for the parser of json.h.
#include "json/json_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/number.h"

enum { LONGEST_KEY = 4096, MOST_NESTING = 1024, UNREAD = -2 };

static usc_status cut_off(const usc_json_stream *s, usc_error *err)
{
    if (s->file != NULL && ferror(s->file))
        return usc_error_set(err, USC_E_IO, s->at, "%s: %s", s->name, strerror(errno));
    return usc_error_set(
        err, USC_E_CORRUPT, s->at,
        "%s: ends at byte %lld inside %s%.100s%s: it was cut off; did the "
        "program that wrote it die, or is it still writing?",
        s->name, (long long)s->at, s->key.n > 0 ? "'" : "an object",
        s->key.n > 0 ? s->key.text : "", s->key.n > 0 ? "'" : "");
}

static usc_status unexpected(const usc_json_stream *s, int c, const char *wanted,
                             usc_error *err)
{
    if (c == EOF) return cut_off(s, err);
    return usc_error_set(err, USC_E_CORRUPT, s->at - 1,
                         "%s: no JSON at byte %lld: %s is expected, not %s%c%s", s->name,
                         (long long)s->at - 1, wanted,
                         c < ' ' || c > '~' ? "a byte" : "'",
                         c < ' ' || c > '~' ? ' ' : c, c < ' ' || c > '~' ? "" : "'");
}

static int peek(usc_json_stream *s)
{
    if (s->ahead == UNREAD) {
        s->ahead = getc_unlocked(s->file);
        if (s->ahead != EOF) s->at++;
    }
    return s->ahead;
}

static int take(usc_json_stream *s)
{
    const int c = peek(s);
    s->ahead = UNREAD;
    return c;
}

static int past_space(usc_json_stream *s)
{
    int c;
    do
        c = take(s);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r');
    return c;
}

/* ---- one value as text ---- */

static usc_status keep(usc_json_stream *s, usc_line *to, int64_t most, const char *bytes,
                       size_t n, usc_error *err)
{
    if (to == NULL) return USC_OK;
    if ((int64_t)(to->n + n) > most)
        return usc_error_set(err, USC_E_RANGE, s->at,
                             "%s: the value of '%.100s' has more than %lld bytes",
                             s->name, s->key.n > 0 ? s->key.text : "", (long long)most);
    usc_line_put(to, bytes, n);
    return to->failed ? usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", s->name)
                      : USC_OK;
}

/* A string whose opening quote was taken, with its quotes. */
static usc_status pass_string(usc_json_stream *s, usc_line *to, int64_t most,
                              usc_error *err)
{
    usc_status st = keep(s, to, most, "\"", 1, err);
    bool escaped = false;
    while (st == USC_OK) {
        const int c = take(s);
        if (c == EOF) return cut_off(s, err);
        const char byte = (char)c;
        st = keep(s, to, most, &byte, 1, err);
        if (c == '"' && !escaped) return st;
        escaped = c == '\\' && !escaped;
    }
    return st;
}

static bool is_word_byte(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '+' || c == '-' || c == '.';
}

/* Whether digits with a sign are no int64: then a point makes a number of them. */
static bool is_too_big(const char *word)
{
    const char *digits = word + (word[0] == '-');
    if (strspn(digits, "0123456789") != strlen(digits)) return false;
    errno = 0;
    (void)strtoll(word, NULL, 10);
    return errno == ERANGE;
}

/* A number, a literal, or what Python writes for numbers that JSON lacks. */
static usc_status pass_word(usc_json_stream *s, usc_line *to, int64_t most, int first,
                            usc_error *err)
{
    static const char *const known[][2] = {
        {"NaN", "\"nan\""}, {"Infinity", "\"inf\""}, {"-Infinity", "\"-inf\""}};
    usc_line word = {0};
    const char begin = (char)first;
    usc_status st = keep(s, &word, most, &begin, 1, err);
    while (st == USC_OK && is_word_byte(peek(s))) {
        const char byte = (char)take(s);
        st = keep(s, &word, most, &byte, 1, err);
    }
    const char *text = word.text;
    for (size_t i = 0; st == USC_OK && i < 3; i++)
        if (strcmp(word.text, known[i][0]) == 0) text = known[i][1];
    if (st == USC_OK) st = keep(s, to, most, text, strlen(text), err);
    if (st == USC_OK && text == word.text && is_too_big(text))
        st = keep(s, to, most, ".0", 2, err);
    if (st == USC_OK) st = keep(s, to, most, " ", 1, err); /* two words stay two */
    usc_line_free(&word);
    return st;
}

/* The value at hand, whole, as text that the parser reads; NULL: nowhere. */
static usc_status pass_value(usc_json_stream *s, usc_line *to, usc_error *err)
{
    int depth = 0;
    usc_status st = USC_OK;
    s->waits = false;
    do {
        const int c = past_space(s);
        const char byte = (char)c;
        if (c == '"') {
            st = pass_string(s, to, s->limit, err);
        } else if (is_word_byte(c)) {
            st = pass_word(s, to, s->limit, c, err);
        } else if (c != EOF && strchr("{}[],:", c) != NULL && c != '\0') {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            if (depth < 0 || depth > MOST_NESTING ||
                (depth == 0 && (c == ',' || c == ':')))
                return unexpected(s, c, "a value", err);
            st = keep(s, to, s->limit, &byte, 1, err);
        } else {
            return unexpected(s, c, "a value", err);
        }
    } while (st == USC_OK && depth > 0);
    return st;
}

/* ---- members ---- */

usc_status usc_json_stream_open(usc_json_stream *s, const char *path, int64_t limit,
                                usc_error *err)
{
    *s = (usc_json_stream){.name = path, .ahead = UNREAD, .limit = limit, .level = 1};
    s->first[1] = true;
    s->file = fopen(path, "rb");
    if (s->file == NULL)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", path, strerror(errno));
    struct stat info;
    s->size = fstat(fileno(s->file), &info) == 0 ? (int64_t)info.st_size : -1;
    const int c = past_space(s);
    return c == '{' ? USC_OK : unexpected(s, c, "an object", err);
}

void usc_json_stream_close(usc_json_stream *s)
{
    if (s->file != NULL) (void)fclose(s->file);
    usc_line_free(&s->key);
    usc_line_free(&s->value);
    *s = (usc_json_stream){0};
}

static usc_status end_object(usc_json_stream *s, usc_error *err)
{
    s->level--;
    usc_line_clear(&s->key);
    if (s->level > 0) return USC_OK;
    const int c = past_space(s);
    if (c == EOF && !ferror(s->file)) return USC_OK;
    return unexpected(s, c, "the end of the file", err);
}

/* A key by the parser of json.h, which knows escapes and UTF-8. */
static usc_status read_key(usc_json_stream *s, usc_error *err)
{
    usc_json *whole = NULL;
    usc_line text = {0};
    usc_line_clear(&s->key);
    usc_line_text(&text, "[");
    usc_status st = pass_string(s, &text, LONGEST_KEY, err);
    usc_line_text(&text, "]");
    if (st == USC_OK && text.failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", s->name);
    if (st == USC_OK)
        st = usc_json_parse(text.text, text.n, s->name, "a name that is no text", &whole,
                            err);
    if (st == USC_OK) usc_line_text(&s->key, usc_json_as_text(usc_json_item(whole, 0)));
    usc_json_free(whole);
    usc_line_free(&text);
    if (st != USC_OK) return st;
    const int c = past_space(s);
    return c == ':' ? USC_OK : unexpected(s, c, "':'", err);
}

usc_status usc_json_stream_next(usc_json_stream *s, const char **key, usc_error *err)
{
    *key = NULL;
    usc_status st = s->waits ? pass_value(s, NULL, err) : USC_OK;
    if (st != USC_OK) return st;
    int c = past_space(s);
    if (c == '}') return end_object(s, err);
    if (!s->first[s->level]) {
        if (c != ',') return unexpected(s, c, "',' or '}'", err);
        c = past_space(s);
    }
    if (c != '"') return unexpected(s, c, "a name", err);
    s->first[s->level] = false;
    st = read_key(s, err);
    if (st != USC_OK) return st;
    s->waits = true;
    *key = s->key.text != NULL ? s->key.text : "";
    return USC_OK;
}

usc_status usc_json_stream_value(usc_json_stream *s, usc_json **out, usc_error *err)
{
    *out = NULL;
    usc_line_clear(&s->value);
    usc_line_text(&s->value, "["); /* jansson wants a list or an object around it */
    usc_status st = pass_value(s, &s->value, err);
    usc_line_text(&s->value, "]");
    if (st == USC_OK && s->value.failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", s->name);
    if (st != USC_OK) return st;
    char what[160];
    (void)usc_format(what, sizeof what, "the value of '%.100s' is no JSON",
                     s->key.text != NULL ? s->key.text : "");
    return usc_json_parse(s->value.text, s->value.n, s->name, what, out, err);
}

usc_status usc_json_stream_enter(usc_json_stream *s, usc_error *err)
{
    const int c = past_space(s);
    s->waits = false;
    if (c != '{') return unexpected(s, c, "an object", err);
    if (s->level == USC_JSON_STREAM_LEVELS)
        return usc_error_set(err, USC_E_CORRUPT, s->at, "%s: too deep", s->name);
    s->first[++s->level] = true;
    return USC_OK;
}
