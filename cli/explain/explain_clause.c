// SPDX-License-Identifier: Apache-2.0
// Clauses of causes: the library's own list of their words, with gaps where a number, an
// axis or a name stands.
#include "explain/explain.h"

#include <ctype.h>
#include <string.h>

#include <ulpscope/cause.h>

static const struct {
    const char *code, *words;
} clauses[] = {
#define CLAUSE(id, code, seen, words) {code, words},
    USC_CAUSE_LIST(CLAUSE)
#undef CLAUSE
};
enum { N_CLAUSES = sizeof clauses / sizeof clauses[0] };

/* How many letters of the words a text has, all between the gaps in their order; 0: not
 * all of them. */
static size_t letters_in(const char *text, const char *words)
{
    char plain[512];
    size_t n = 0;
    explain_plain(words, strlen(words), plain, sizeof plain);
    for (const char *at = plain; *at != '\0';) {
        char piece[512];
        const size_t size = strcspn(at, "$");
        (void)snprintf(piece, sizeof piece, "%.*s", (int)size, at);
        text = strstr(text, piece);
        if (text == NULL) return 0;
        text += size;
        n += size;
        at += size;
        if (*at == '$') at += at[1] != '\0' ? 2 : 1;
    }
    return n;
}

const char *explain_clause(const char *clause)
{
    enum { LEAST = 6 };
    const char *best = NULL;
    size_t most = LEAST;
    for (int i = 0; i < N_CLAUSES; i++) {
        const size_t n = letters_in(clause, clauses[i].words);
        if (n > most) best = clauses[i].code;
        if (n > most) most = n;
    }
    return best;
}

void explain_clauses(const explain_entry *e, char out[EXPLAIN_TEXT])
{
    size_t n = 0;
    out[0] = '\0';
    if (strcmp(e->kind, "cause") != 0) return;
    for (int i = 0; i < N_CLAUSES; i++) {
        if (strcmp(clauses[i].code, e->word) != 0) continue;
        for (const char *p = clauses[i].words; *p != '\0' && n + 8 < EXPLAIN_TEXT; p++)
            if (p[0] == '$' && p[1] != '\0') {
                if (n < 3 || memcmp(out + n - 3, "...", 3) != 0) {
                    memcpy(out + n, "...", 3);
                    n += 3;
                }
                p++;
            } else
                out[n++] = *p;
        out[n++] = '\n';
        out[n] = '\0';
    }
}

void explain_plain(const char *text, size_t n, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < n && text[i] != '\0' && used + 1 < size; i++)
        if (isspace((unsigned char)text[i])) {
            if (used > 0 && out[used - 1] != ' ') out[used++] = ' ';
        } else if (text[i] != '`')
            out[used++] = (char)tolower((unsigned char)text[i]);
    while (used > 0 && strchr(" .:", out[used - 1]) != NULL)
        used--;
    out[used] = '\0';
}
