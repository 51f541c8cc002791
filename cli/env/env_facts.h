// SPDX-License-Identifier: Apache-2.0
// `ulpscope env`: facts by name, and what two lists of them differ in.
#ifndef ULPSCOPE_CLI_ENV_FACTS_H
#define ULPSCOPE_CLI_ENV_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct fact {
    char *name, *value;
} fact;

typedef struct facts {
    fact *fact;
    size_t n;
    bool failed;
} facts;

/** Adds copies, the value in one line; `failed` without memory. */
void env_add(facts *f, const char *name, const char *value);

/** Adds the lines "NAME<tab>VALUE" of `at`, which it cuts up; the value of a variable that
 * is secret is not shown. False after a sentence: the name of a line is "error". */
bool env_add_answers(facts *f, char *at);

void env_free(facts *f);
void env_sort(facts *f); /* by name */

/** Whether a text begins with one of them, or holds one; a list ends with NULL. */
bool env_begins(const char *text, const char *const *starts);
bool env_holds(const char *text, const char *const *parts);

/** Whether a variable's value is nobody's business, by its name or what it holds. */
bool env_is_secret(const char *name, const char *value);

/** Writes them, a line each, or as one JSON object. */
void env_put(const facts *f, bool json, FILE *to);

/** Reads what env_put wrote, sorted. False after a sentence. */
bool env_read(const char *path, facts *out);

/** Prints what two files differ in, what changes numbers first; the exit code. */
int env_diff(const char *a, const char *b, bool json);

#endif
