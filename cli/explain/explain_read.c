// SPDX-License-Identifier: Apache-2.0
// Where the words lie in the pages.
#include "explain/explain.h"

#include <ctype.h>
#include <string.h>

/* Texts that the build makes of the pages (cmake/embed.cmake). */
extern const char usc_page_words_md[], usc_page_excuses_md[], usc_page_faults_md[],
    usc_page_metrics_md[];

/* A page: words are headlines of a level, or rows of the tables of one section. */
typedef struct page {
    const char *text, *path;
    const char *kind;    /* NULL: by the headline above */
    int level;           /* of the headlines that are words; 0: rows */
    const char *section; /* of rows: the headline above */
} page;

static const page pages[] = {
    {usc_page_words_md, "docs/reference/words.md", NULL, 3, NULL},
    {usc_page_excuses_md, "docs/reference/excuses.md", "excuse", 2, NULL},
    {usc_page_metrics_md, "docs/reference/metrics.md", "standard", 0, "3. Standards"},
    {usc_page_faults_md, "docs/reference/faults.md", "fault", 0, "Kinds"},
};

/* Sections of words.md and what one of their words is. */
static const char *const kinds[][2] = {
    {"Verdicts", "verdict"}, {"Numbers", "number"}, {"Causes", "cause"},
    {"Notes", "note"},       {"Errors", "error"},   {"Exit codes", "exit code"},
};

static size_t line_size(const char *line)
{
    return strcspn(line, "\n");
}

static const char *next_line(const char *line)
{
    line += line_size(line);
    return *line == '\n' ? line + 1 : line;
}

/* Level of a headline, 0 for any other line. */
static int level_of(const char *line)
{
    const int n = (int)strspn(line, "#");
    return n > 0 && line[n] == ' ' ? n : 0;
}

static bool says(const char *line, int level, const char *title)
{
    const char *text = line + level + 1;
    return line_size(text) == strlen(title) && strncmp(text, title, strlen(title)) == 0;
}

/* The name that a site gives to a headline. */
static void name_anchor(explain_entry *e, const char *title, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n && used + 1 < sizeof e->anchor; i++)
        if (isalnum((unsigned char)title[i]) || title[i] == '_' || title[i] == '-')
            e->anchor[used++] = (char)tolower((unsigned char)title[i]);
        else if (title[i] == ' ')
            e->anchor[used++] = '-';
    e->anchor[used] = '\0';
}

/* The word in `code` marks that the text begins with; what may follow it is a parameter:
 * of `ulp:K` the word is ulp. */
static bool take_word(explain_entry *e, const char *text, bool parameters)
{
    if (*text != '`') return false;
    size_t n = strcspn(text + 1, "`\n");
    if (text[1 + n] != '`') return false;
    if (parameters) n = strcspn(text + 1, "[:`");
    if (n == 0 || n >= sizeof e->word) return false;
    memcpy(e->word, text + 1, n);
    e->word[n] = '\0';
    return true;
}

static explain_entry *add(explain_words *out, explain_entry e)
{
    if (out->n == EXPLAIN_MOST) return NULL;
    out->entry[out->n] = e;
    return &out->entry[out->n++];
}

static const char *kind_of(const char *line)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (says(line, 2, kinds[i][0])) return kinds[i][1];
    return NULL;
}

static void read_headlines(const page *p, explain_words *out)
{
    const char *kind = p->kind;
    explain_entry *open = NULL;
    for (const char *line = p->text; *line != '\0'; line = next_line(line)) {
        const int level = level_of(line);
        if (level == 0) continue;
        if (open != NULL) open->text.n = (size_t)(line - open->text.at);
        open = NULL;
        if (p->kind == NULL && level == 2) kind = kind_of(line);
        explain_entry e = {.kind = kind, .page = p->path};
        if (level != p->level || kind == NULL || !take_word(&e, line + level + 1, false))
            continue;
        name_anchor(&e, line + level + 1, line_size(line + level + 1));
        e.text = (explain_span){next_line(line), strlen(next_line(line))};
        open = add(out, e);
    }
}

static void read_rows(const page *p, explain_words *out)
{
    explain_entry of = {.kind = p->kind, .page = p->path};
    bool inside = false;
    const char *before = "";
    for (const char *line = p->text; *line != '\0'; line = next_line(line)) {
        const int level = level_of(line);
        if (level > 0) {
            inside = says(line, level, p->section);
            name_anchor(&of, line + level + 1, line_size(line + level + 1));
        }
        if (strncmp(line, "|---", 4) == 0)
            of.titles = (explain_span){before, line_size(before)};
        explain_entry e = of;
        if (inside && strncmp(line, "| `", 3) == 0 && take_word(&e, line + 2, true)) {
            e.text = (explain_span){line, line_size(line)};
            (void)add(out, e);
        }
        before = line;
    }
}

void explain_read(explain_words *out)
{
    out->n = 0;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        pages[i].level > 0 ? read_headlines(&pages[i], out) : read_rows(&pages[i], out);
}
