// SPDX-License-Identifier: Apache-2.0
// Why nothing of ours ran in a command: what it keeps from the recorder.
#include "common/around.h"

#include <string.h>
#include <unistd.h>

/* The words of a command that fit into one line. */
enum { MOST_WORDS = 80 };

void around_tell_start(char *const *command, const char *purpose, const char *steps)
{
    char words[MOST_WORDS + 1] = "";
    size_t n = 0;
    if (isatty(STDERR_FILENO) == 0) return;
    for (; *command != NULL; command++) {
        const size_t more = strlen(*command) + (n > 0);
        if (n + more > MOST_WORDS - 4) break;
        (void)snprintf(words + n, sizeof words - n, "%s%s", n > 0 ? " " : "", *command);
        n += more;
    }
    (void)fprintf(stderr, "ulpscope: running %s%s %s%s\n", words,
                  *command != NULL ? " ..." : "", purpose, steps);
}

/* "python", "pypy", with or without a version. */
static bool is_python(const char *word)
{
    const char *slash = strrchr(word, '/');
    const char *name = slash != NULL ? slash + 1 : word;
    const size_t n = strncmp(name, "python", 6) == 0 ? 6
                     : strncmp(name, "pypy", 4) == 0 ? 4
                                                     : 0;
    return n > 0 && name[n + strspn(name + n, "0123456789.")] == '\0';
}

char around_ignoring_flag(char *const *command)
{
    while (*command != NULL && !is_python(*command))
        command++;
    if (*command == NULL) return 0;
    while (*++command != NULL) {
        const char *word = *command;
        if (word[0] != '-' || word[1] == '\0' || strcmp(word, "--") == 0) return 0;
        if (word[1] == '-') continue;
        const size_t n = strcspn(word, "cmWX"); /* these take what follows */
        const char *flag = strpbrk(word, "IES");
        if (flag != NULL && (size_t)(flag - word) < n) return *flag;
        if (strpbrk(word, "cm") != NULL) return 0;
        if (word[n] != '\0' && word[n + 1] == '\0' && command[1] != NULL) command++;
    }
    return 0;
}

bool around_put_unseen(FILE *to, const around_seen *s, char *const *command,
                       const char *variable)
{
    const char *name = command[0];
    const char flag = around_ignoring_flag(command);
    if (s->not_started != NULL)
        (void)fprintf(to, "the recorder could not be started: %s", s->not_started);
    else if (s->n_torch > 0)
        return false;
    else if (s->n_python > 0)
        (void)fprintf(to,
                      "the recorder found nothing to record: no process of %s imported "
                      "torch",
                      name);
    else if (flag != 0)
        (void)fprintf(to,
                      "the recorder was never loaded: with -%c Python ignores it; run %s "
                      "without -%c",
                      flag, name, flag);
    else
        (void)fprintf(to,
                      "the recorder was never loaded: %s started no Python that takes "
                      "PYTHONPATH (python -I, -E and -S do not, nor does what a launcher "
                      "starts with a cleared environment: pass on PYTHONPATH and %s)",
                      name, variable);
    return true;
}
