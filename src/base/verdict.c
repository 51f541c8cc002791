// SPDX-License-Identifier: Apache-2.0
// The verdicts as text.
#include <ulpscope/verdict.h>

#include <string.h>

static const struct verdict_row {
    const char *text;
    bool flagged;
} rows[USC_N_VERDICTS] = {
#define VERDICT_ROW(id, words, flag) [USC_VERDICT_##id] = {words, flag},
    USC_VERDICT_LIST(VERDICT_ROW)
#undef VERDICT_ROW
};

const char *usc_verdict_text(usc_verdict verdict)
{
    return (unsigned)verdict < USC_N_VERDICTS ? rows[verdict].text : "unknown";
}

usc_verdict usc_verdict_by_text(const char *text)
{
    for (int v = 0; text != NULL && v < USC_N_VERDICTS; v++)
        if (strcmp(rows[v].text, text) == 0) return (usc_verdict)v;
    return USC_N_VERDICTS;
}

bool usc_verdict_flagged(usc_verdict verdict)
{
    return (unsigned)verdict < USC_N_VERDICTS && rows[verdict].flagged;
}

bool usc_verdict_missing(usc_verdict verdict)
{
    return verdict == USC_VERDICT_INTERNAL || verdict == USC_VERDICT_UNJUDGED ||
           verdict == USC_VERDICT_UNSUPPORTED;
}
