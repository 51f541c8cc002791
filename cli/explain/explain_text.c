// SPDX-License-Identifier: Apache-2.0
// The words of a page without its Markdown, and which of them somebody means.
#include "explain/explain.h"

#include <ctype.h>
#include <string.h>

/* ---- plain text ---- */

typedef struct writer {
    char *out;
    size_t n, size;
} writer;

static void put(writer *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n && w->n + 1 < w->size; i++)
        w->out[w->n++] = text[i];
    w->out[w->n] = '\0';
}

/* A link [text](place) is its text. */
static const char *put_link(writer *w, const char *at, const char *end)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (close == NULL || close + 1 >= end || close[1] != '(') {
        put(w, at, 1);
        return at + 1;
    }
    for (const char *p = at + 1; p < close; p++)
        if (*p != '`') put(w, p, 1);
    const char *last = memchr(close, ')', (size_t)(end - close));
    return last == NULL ? end : last + 1;
}

/* Text on one line: marks of code and of weight go, and so do escapes of a table. */
static void put_words(writer *w, const char *at, const char *end)
{
    while (at < end)
        if (*at == '[')
            at = put_link(w, at, end);
        else if (*at == '`' || (*at == '\\' && at + 1 < end && at[1] == '|'))
            at++;
        else if (at + 1 < end && at[0] == '*' && at[1] == '*')
            at += 2;
        else {
            put(w, *at == '\n' ? " " : at, 1);
            at++;
        }
}

static void put_section(writer *w, explain_span text)
{
    const char *end = text.at + text.n;
    for (const char *at = text.at; at < end;) {
        while (at < end && *at == '\n')
            at++;
        const char *stop = at;
        while (stop < end && !(stop[0] == '\n' && (stop + 1 >= end || stop[1] == '\n')))
            stop++;
        if (at == stop) break;
        if (w->n > 0) put(w, "\n\n", 2);
        put_words(w, at, stop);
        at = stop;
    }
}

/* The next cell of a row, without the spaces around; false at its end. */
static bool next_cell(const char **at, const char *end, explain_span *cell)
{
    const char *begin = *at;
    if (begin >= end || *begin != '|') return false;
    const char *stop = ++begin;
    while (stop < end && (*stop != '|' || stop[-1] == '\\'))
        stop++;
    if (stop >= end) return false;
    *at = stop;
    while (begin < stop && *begin == ' ')
        begin++;
    while (stop > begin && stop[-1] == ' ')
        stop--;
    *cell = (explain_span){begin, (size_t)(stop - begin)};
    return true;
}

/* The second cell says what it is; others are told with the title of their column, and
 * the first where it has more than the word. */
static void put_row(writer *w, const explain_entry *e)
{
    const char *at = e->text.at, *title_at = e->titles.at;
    const char *end = at + e->text.n, *title_end = title_at + e->titles.n;
    explain_span cell, title = {NULL, 0};
    for (int column = 0; next_cell(&at, end, &cell); column++) {
        if (title_at != NULL && !next_cell(&title_at, title_end, &title)) title.n = 0;
        if (column == 0 && cell.n == strlen(e->word) + 2) continue;
        if (w->n > 0) put(w, "\n\n", 2);
        if (column == 0) put(w, "as: ", 4);
        if (column > 1 && title.n > 0) {
            put_words(w, title.at, title.at + title.n);
            put(w, ": ", 2);
        }
        put_words(w, cell.at, cell.at + cell.n);
    }
}

void explain_text(const explain_entry *e, char out[EXPLAIN_TEXT])
{
    writer w = {.out = out, .size = EXPLAIN_TEXT};
    out[0] = '\0';
    if (e->titles.n > 0)
        put_row(&w, e);
    else
        put_section(&w, e->text);
}

/* ---- which one is meant ---- */

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether a phrase stands in a text, whole words of it. */
static bool stands_in(const char *text, const char *phrase)
{
    const size_t n = strlen(phrase);
    for (const char *p = text; n > 0 && (p = strstr(p, phrase)) != NULL; p++)
        if ((p == text || !is_letter(p[-1]) || !is_letter(phrase[0])) &&
            (!is_letter(p[n]) || !is_letter(phrase[n - 1])))
            return true;
    return false;
}

typedef bool fits(const explain_entry *e, const char *word, const char *query);

static bool is_it(const explain_entry *e, const char *word, const char *query)
{
    (void)e;
    return strcmp(word, query) == 0 ||
           (strncmp(query, "usc_", 4) == 0 && strcmp(word, query + 4) == 0);
}

static bool lies_in_query(const explain_entry *e, const char *word, const char *query)
{
    (void)e;
    return stands_in(query, word);
}

static bool holds_query(const explain_entry *e, const char *word, const char *query)
{
    (void)e;
    return stands_in(word, query);
}

static bool tells_of_query(const explain_entry *e, const char *word, const char *query)
{
    char text[EXPLAIN_TEXT], plain[EXPLAIN_TEXT];
    (void)word;
    explain_text(e, text);
    explain_plain(text, sizeof text, plain, sizeof plain);
    return strlen(query) > 2 && stands_in(plain, query);
}

/* Leaves out the last word of a text; false where fewer than three are left to begin
 * with. */
static bool shorten(char *text)
{
    char *last = strrchr(text, ' ');
    if (last == NULL || memchr(text, ' ', (size_t)(last - text)) == NULL) return false;
    *last = '\0';
    return true;
}

static int gather(const explain_words *words, const char *query, fits *fit,
                  const explain_entry *found[EXPLAIN_TOLD])
{
    int n = 0;
    for (int i = 0; i < words->n && n < EXPLAIN_TOLD; i++) {
        char word[EXPLAIN_WORD];
        explain_plain(words->entry[i].word, EXPLAIN_WORD, word, sizeof word);
        if (fit(&words->entry[i], word, query)) found[n++] = &words->entry[i];
    }
    return n;
}

/* Leaves the longest words. */
static int keep_longest(const explain_entry *found[EXPLAIN_TOLD], int n)
{
    size_t most = 0;
    int left = 0;
    for (int i = 0; i < n; i++)
        if (strlen(found[i]->word) > most) most = strlen(found[i]->word);
    for (int i = 0; i < n; i++)
        if (strlen(found[i]->word) == most) found[left++] = found[i];
    return left;
}

/* The cause that a clause of a report is of. */
static int gather_cause(const explain_words *words, const char *query,
                        const explain_entry *found[EXPLAIN_TOLD])
{
    const char *code = explain_clause(query);
    for (int i = 0; i < words->n && code != NULL; i++)
        if (strcmp(words->entry[i].kind, "cause") == 0 &&
            strcmp(words->entry[i].word, code) == 0) {
            found[0] = &words->entry[i];
            return 1;
        }
    return 0;
}

explain_how explain_find(const explain_words *words, const char *query,
                         const explain_entry *found[EXPLAIN_TOLD], int *n)
{
    char plain[1024];
    explain_plain(query, strlen(query), plain, sizeof plain);
    *n = gather(words, plain, is_it, found);
    if (*n == 0) *n = gather_cause(words, plain, found);
    if (*n > 0) return EXPLAIN_WORDS;
    *n = keep_longest(found, gather(words, plain, lies_in_query, found));
    if (*n > 0 && strlen(found[0]->word) * 3 > strlen(plain)) return EXPLAIN_WORDS;
    *n = gather(words, plain, holds_query, found);
    do {
        if (*n == 0) *n = gather(words, plain, tells_of_query, found);
    } while (*n == 0 && shorten(plain));
    return *n == 0 ? EXPLAIN_NONE : *n == 1 ? EXPLAIN_WORDS : EXPLAIN_AMONG;
}
