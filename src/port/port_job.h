// SPDX-License-Identifier: Apache-2.0
// The port of one file: its tokens, the edits that rules ask for, what is left. Rules
// read the tokens and write nothing; the edits are made at the end, in one pass.
#ifndef USC_PORT_JOB_H
#define USC_PORT_JOB_H

#include "base/keys.h"
#include "port/port_names.h"
#include "port/port_token.h"

/* Bytes [start, end) become `text`. */
typedef struct usc_port_edit {
    size_t start, end;
    const char *text;
    size_t order; /* of two at one place the one asked for first comes first */
} usc_port_edit;

/* The names of the files of a tree that get another ending. */
typedef struct usc_port_renames {
    const char *const *path; /* below the source, before the port */
    size_t n;
    usc_keys ends;  /* each path and what of it stands behind a slash: 1, the path: 2 */
    usc_keys globs; /* those asked for so far, and whether a path is among them */
} usc_port_renames;

/* A name that an import binds in a Python file, and all that it stands for. */
typedef struct usc_port_alias {
    const char *name, *stands_for;
    const char *shown; /* what it is called after the port */
} usc_port_alias;

/* A text that tokens have, without spliced lines; each once. */
typedef struct usc_port_term {
    const char *text;
    uint8_t of; /* of the rules that look at it: bits that the rules give */
    bool asked_names, asked_tellings;
} usc_port_term;

/* The terms of a file, and of those before it: a source has few words that differ. */
typedef struct usc_port_terms {
    usc_keys at; /* the place of each in the arena, by its bytes */
    usc_arena arena;
    size_t size; /* bytes of the arena */
} usc_port_terms;

/** Forgets all terms where they take more than a file may be expected to have. */
void usc_port_terms_trim(usc_port_terms *terms);

typedef struct usc_port_own usc_port_own; /* port_own.h */

typedef struct usc_port_job {
    const usc_port_options *options;
    const usc_port_names *names;
    usc_port_renames *renames;
    usc_port_terms *terms;
    usc_port_own *own_names; /* NULL: they stay */
    bool learns;             /* of its own names, and asks no rule */
    const char *path;        /* below the source */
    const char *root;        /* the source folder; NULL: there is none */
    usc_arena *arena;
    const char *text;
    size_t n;
    usc_port_tokens tokens;
    uint32_t *sig; /* the tokens that mean something, by their numbers */
    size_t n_sig;
    usc_port_edit *edit;
    size_t n_edits, edits_size;
    usc_port_left *left;
    size_t n_left, left_size;
    usc_port_alias *alias;
    size_t n_aliases, aliases_size;
    usc_keys bound; /* the last alias of each name */
    size_t line_at; /* the byte up to which lines are counted, and the line there */
    int64_t line;
    usc_keys told; /* what is left already, by construct and line */
    usc_keys own;  /* the names that the file declares, of Python the attributes that it
                      assigns, once `own_known` */
    bool own_known;
    bool loads_torch, wants_device; /* Python: whether the device has to be loaded */
    bool failed;                    /* no memory at some time */
} usc_port_job;

/* ---- tokens that mean something, by their place i among them */

/** The token; NULL outside. */
static inline const usc_port_token *usc_port_sig(const usc_port_job *job, size_t i)
{
    return i < job->n_sig ? &job->tokens.token[job->sig[i]] : NULL;
}

/** Whether the token there is this word or sign; false outside. */
static inline bool usc_port_at(const usc_port_job *job, size_t i, const char *word)
{
    return i < job->n_sig && usc_port_is(job->text, usc_port_sig(job, i), word);
}

/** Whether it is of that kind; false outside. */
static inline bool usc_port_kind_at(const usc_port_job *job, size_t i, usc_port_kind kind)
{
    return i < job->n_sig && usc_port_sig(job, i)->kind == kind;
}

/** Its term; one without text outside, and where there is no memory. */
usc_port_term *usc_port_term_at(usc_port_job *job, size_t i);

/** Its text in the arena, without spliced lines; "" outside. */
const char *usc_port_word(usc_port_job *job, size_t i);

/* ---- what rules ask for */

/** Replaces bytes. `text` lives as long as the arena. */
void usc_port_edit_put(usc_port_job *job, size_t start, size_t end, const char *text);

/** Replaces the token at i. */
void usc_port_replace(usc_port_job *job, size_t i, const char *text);

/** Leaves something to a human: the token at i and those up to `last` are shown. */
void usc_port_leave(usc_port_job *job, size_t i, size_t last, const char *construct,
                    const char *advice);

/** Whether a construct was not asked about before: a name that is left by its own sake is
 * left once. */
bool usc_port_first(usc_port_job *job, const char *construct);

/** The same at a byte, with an excerpt; once for each construct and line. */
void usc_port_leave_at(usc_port_job *job, size_t at, const char *construct,
                       const char *excerpt, const char *advice);

/** A copy of n bytes in the arena, with a zero behind them. */
const char *usc_port_copy(usc_port_job *job, const char *bytes, size_t n);

/** "first.second" in the arena: most names of Python are made so. */
const char *usc_port_dot(usc_port_job *job, const char *first, const char *second);

/** Text of a format in the arena. */
const char *usc_port_format(usc_port_job *job, const char *format, ...) USC_PRINTF(2, 3);

/** In C++: whether the name at i is declared or defined there. */
bool usc_port_declares(usc_port_job *job, size_t i);

/* The name of what is called, or of the macro, in whose parentheses i stands, looking back
 * over so many tokens; NULL: none. */
const char *usc_port_called_around(usc_port_job *job, size_t i, size_t most);

/** The name of a row's target; NULL: none. *known: whether there is a row. */
const char *usc_port_to(const usc_port_job *job, usc_port_row_kind kind, const char *from,
                        size_t n, bool *known);

/** What to do about a name without a row's name: which there are, else `otherwise`. */
const char *usc_port_advice(usc_port_job *job, usc_port_row_kind kind, const char *from,
                            const char *otherwise);

/** What an ending becomes at the target: ".cu" is ".mu" at musa; NULL: stays. */
const char *usc_port_ending(usc_port_target target, const char *ending);

/** Remembers the path of a file that is renamed, which is in r->path. False: no memory. */
bool usc_port_renames_add(usc_port_renames *r, const char *path);

/** Whether a path (a text in a source, with globs) names files that are renamed. */
bool usc_port_renamed(const usc_port_job *job, const char *path);

/** The path with the name that its file gets at the target, whether or not there is such a
 * file; NULL: the same. */
const char *usc_port_new_path(usc_port_job *job, const char *path);

/** The same of a path that names renamed files; NULL for others. */
const char *usc_port_new_name(usc_port_job *job, const char *path);

/** Whether a glob (*, ?, [...], ** as *) matches a path or its last part. */
bool usc_port_glob(const char *glob, const char *path);

/* ---- the rules */

void usc_port_cxx(usc_port_job *job);
void usc_port_cxx_left(usc_port_job *job);

/** Whether __CUDA_ARCH__ at i stands alone in an `#ifdef` that has no other branch and holds
 * functions of the device. */
bool usc_port_only_for_devices(const usc_port_job *job, size_t i);

/** Lists what no kernel of the simulated device may have. */
void usc_port_cxx_refused(usc_port_job *job);

/** A kernel's file for a compiler of C++. */
void usc_port_lower(usc_port_job *job);
void usc_port_python(usc_port_job *job);

/** Takes the import at place i of a statement; the place behind it. */
size_t usc_port_import(usc_port_job *job, size_t i);

/** What a dotted name stands for: its alias is followed, which is *alias; NULL: none. */
const char *usc_port_stands_for(usc_port_job *job, const char *chain,
                                const usc_port_alias **alias);

/** The longest row of a dotted name: what it becomes whole; NULL where there is none, and
 * where a human decides (*left). *matched: words of the row. */
const char *usc_port_dotted(usc_port_job *job, usc_port_row_kind kind, const char *name,
                            size_t *matched, bool *left);

/** The rules on a text in quotes at place i. */
void usc_port_python_text(usc_port_job *job, size_t i);

/** The same on a literal part of an f-string. */
void usc_port_python_middle(usc_port_job *job, size_t i);

/** Of how many words a dotted name consists. */
size_t usc_port_words_of(const char *name);

/** Whether the source itself holds the module that a dotted name begins with. */
bool usc_port_is_here(usc_port_job *job, const char *module);

/** Puts the import of the device behind docstring and `from __future__`. */
void usc_port_load_device(usc_port_job *job);

void usc_port_build(usc_port_job *job);

/** What a file of CMake names, but for files. */
void usc_port_cmake(usc_port_job *job);

/** Whether a file is a notebook, by its name; the rules of Python on its cells of code. */
bool usc_port_is_notebook(const char *path);
void usc_port_notebook(usc_port_job *job);

/** Takes back what was asked for in lines that are marked as excluded. */
void usc_port_exclude(usc_port_job *job);

/** Ports names in comments. */
void usc_port_comments(usc_port_job *job, bool python);

/* ---- the whole */

/** Cuts the text of a job and asks the rules. False: it cannot be cut, which is then left,
 * or there is no memory. */
bool usc_port_ask(usc_port_job *job, bool python);

/** Ports a file whose text is in the job; the bytes after it are in the arena, *changes
 * the number of edits. NULL: nothing changes, or no memory (job->failed). */
const char *usc_port_run(usc_port_job *job, usc_port_language language, size_t *size,
                         int64_t *changes);

/** A unified diff of the job's edits, in the arena; "" where there are none. */
const char *usc_port_diff(usc_port_job *job, const char *to);

/** The language of a file by its name. */
usc_port_language usc_port_language_of(const char *path, usc_port_target target);

void usc_port_job_close(usc_port_job *job);

#endif
