// SPDX-License-Identifier: Apache-2.0
// CMake: packages, their variables and targets by table. What it has no name for is
// listed by what it is: a language, architectures, a target that holds kernels.
#include <string.h>
#include <strings.h>

#include "port/port_job.h"

/* A word of a line, and the command in which it stands. */
typedef struct place {
    const char *word; /* with ::, "CUDA::cublas" */
    size_t start, end;
    const char *command; /* "find_package"; "" outside */
    bool first;          /* of its arguments */
} place;

static bool is_source(const usc_port_job *job, const char *word)
{
    static const char *const of_cuda[] = {"cuda", "nvcc", "nvidia", "nccl", "cudnn"};
    static const char *const of_musa[] = {"musa", "mcc", "mthreads", "mccl", "mudnn"};
    const char *const *words = job->options->target == USC_PORT_CUDA ? of_musa : of_cuda;
    for (int i = 0; i < 5; i++) {
        const size_t n = strlen(words[i]);
        for (const char *at = word; *at != '\0'; at++)
            if ((*at | 32) == words[i][0] && strncasecmp(at, words[i], n) == 0)
                return true;
    }
    return false;
}

static void leave(usc_port_job *job, const place *p)
{
    const char *construct = "build file", *advice = "write it for the target by hand";
    if (strcasecmp(p->command, "project") == 0 ||
        strcasecmp(p->command, "enable_language") == 0 ||
        strstr(p->word, "LANGUAGE") != NULL) {
        construct = "CMake language";
        advice =
            "CMake has no such language at the target: take it out, and build kernels "
            "by the target's own command";
    } else if (strstr(p->word, "ARCH") != NULL) {
        construct = "CMake architectures";
        advice = "numbers of another vendor's chips: give the target's";
    }
    const char *line = job->text + p->start;
    while (line > job->text && line[-1] != '\n')
        line--;
    line += strspn(line, " \t");
    const size_t n = strcspn(line, "\r\n");
    usc_port_leave_at(job, p->start, construct,
                      usc_port_format(job, "%.*s", n > 60 ? 60 : (int)n, line), advice);
}

static void look_at(usc_port_job *job, const place *p)
{
    bool known = false;
    const char *name = p->word;
    if (strcasecmp(p->command, "find_package") == 0 && p->first)
        name = usc_port_format(job, "find_package %s", p->word);
    const char *to = usc_port_to(job, USC_PORT_BUILD_NAME, name, strlen(name), &known);
    if (to != NULL && strncmp(to, "find_package ", 13) == 0) to += 13; /* backwards */
    if (to == NULL) {
        if (is_source(job, p->word)) leave(job, p);
        return;
    }
    usc_port_edit_put(job, p->start, p->end, to);
    const char *next = job->text + p->end + strspn(job->text + p->end, " \t");
    if (name != p->word && *next >= '0' && *next <= '9')
        usc_port_leave_at(
            job, p->end, "toolkit version",
            usc_port_format(job, "%.*s", (int)strcspn(next, " \t)\n"), next),
            "a version of another toolkit: give the target's");
}

static bool in_path(char c)
{
    return c != '\0' && strchr("/.-\\", c) != NULL;
}

static size_t word_end(const usc_port_job *job, size_t at)
{
    while (at < job->n) {
        if (usc_port_in_name(job->text[at]))
            at++;
        else if (job->text[at] == ':' && job->text[at + 1] == ':' &&
                 usc_port_in_name(job->text[at + 2]))
            at += 2;
        else
            break;
    }
    return at;
}

/* Behind the quotes that begin at `at`: of what they hold only ${VARIABLES} are names. */
static size_t take_quoted(usc_port_job *job, size_t at)
{
    place p = {.command = ""};
    for (at++; at < job->n && job->text[at] != '"'; at++) {
        if (job->text[at] == '\\') at++;
        if (at < job->n && job->text[at] == '{' && job->text[at - 1] == '$') {
            p.start = at + 1;
            p.end = word_end(job, p.start);
            p.word = usc_port_copy(job, job->text + p.start, (size_t)(p.end - p.start));
            if (p.end > p.start) look_at(job, &p);
        }
    }
    return at + 1;
}

/* Behind a comment. */
static size_t skip_comment(const usc_port_job *job, size_t at)
{
    const char *end = strncmp(job->text + at, "#[[", 3) == 0
                          ? strstr(job->text + at, "]]")
                          : strchr(job->text + at, '\n');
    return end != NULL ? (size_t)(end - job->text) + 1 : job->n;
}

void usc_port_cmake(usc_port_job *job)
{
    place p = {.command = ""};
    bool kernels = false;
    for (size_t at = 0; at < job->n;) {
        const char c = job->text[at];
        if (c == '#') {
            at = skip_comment(job, at);
        } else if (c == '"') {
            at = take_quoted(job, at);
        } else if (!usc_port_in_name(c)) {
            if (c == ')') p.command = "";
            kernels &= c != ')';
            at++;
        } else {
            p.start = at;
            p.end = at = word_end(job, at);
            p.word = usc_port_copy(job, job->text + p.start, (size_t)(p.end - p.start));
            const bool path = (p.start > 0 && in_path(job->text[p.start - 1])) ||
                              in_path(job->text[p.end]);
            if (!path) look_at(job, &p);
            p.first = job->text[p.end + strspn(job->text + p.end, " \t")] == '(';
            if (p.first) {
                p.command = p.word;
                kernels = strcasecmp(p.word, "add_library") == 0 ||
                          strcasecmp(p.word, "add_executable") == 0;
            }
            const char *ending =
                path && p.start > 0 && job->text[p.start - 1] == '.'
                    ? usc_port_ending(job->options->target,
                                      usc_port_format(job, ".%s", p.word))
                    : NULL;
            if (kernels && ending != NULL) {
                usc_port_leave_at(job, p.start, "target of kernels", p.command,
                                  "CMake does not know how to compile them: use the "
                                  "target's own command");
                kernels = false;
            }
        }
    }
}
