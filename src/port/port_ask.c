// SPDX-License-Identifier: Apache-2.0
// One text cut into tokens and asked of the rules; notebooks come through here, too.
#include <stdlib.h>
#include <string.h>

#include "port/port_own.h"

/* The tokens that mean something: of Python's line ends those that end a statement. */
static void find_sig(usc_port_job *job, bool lines)
{
    job->sig = malloc((job->tokens.n + 1) * sizeof *job->sig);
    if (job->sig == NULL) {
        job->failed = true;
        return;
    }
    const usc_port_token *token = job->tokens.token;
    if (!lines) {
        for (size_t i = 0; i < job->tokens.n; i++) {
            job->sig[job->n_sig] = (uint32_t)i;
            job->n_sig += token[i].kind > USC_PORT_COMMENT;
        }
        return;
    }
    int64_t depth = 0;
    for (size_t i = 0; i < job->tokens.n; i++) {
        const usc_port_token *t = &token[i];
        const char c = job->text[t->start];
        if (t->kind == USC_PORT_PUNCT && t->end == t->start + 1) {
            if (strchr("([{", c) != NULL) depth++;
            if (strchr(")]}", c) != NULL && depth > 0) depth--;
        }
        if (t->kind == USC_PORT_SPACE || t->kind == USC_PORT_COMMENT ||
            (t->kind == USC_PORT_NEWLINE && depth > 0))
            continue;
        job->sig[job->n_sig++] = (uint32_t)i;
    }
}

bool usc_port_ask(usc_port_job *job, bool python)
{
    (python ? usc_port_cut_python : usc_port_cut_cxx)(job->text, job->n, &job->tokens);
    job->failed |= job->tokens.failed;
    if (job->tokens.open != NULL) {
        usc_port_leave_at(job, job->tokens.open_at, "unended", job->tokens.open,
                          "never ends: what is in the file is left as it is");
        return false;
    }
    find_sig(job, python);
    if (job->failed) return false;
    if (job->learns) {
        usc_port_own_learn(job, job->own_names, python);
        return false;
    }
    if (job->options->lower) {
        usc_port_lower(job);
        return !job->failed;
    }
    (python ? usc_port_python : usc_port_cxx)(job);
    if (job->own_names != NULL) usc_port_own_apply(job, python);
    if (job->options->comments) usc_port_comments(job, python);
    return !job->failed;
}
