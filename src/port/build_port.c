// SPDX-License-Identifier: Apache-2.0
// Build files and scripts: names of files that are renamed are followed; what else speaks
// of CUDA is listed, a line each.
#include <string.h>
#include <strings.h>

#include "port/port_job.h"

static bool in_path(char c)
{
    static const bool signs[128] = {
        ['.'] = true, ['/'] = true, ['*'] = true, ['-'] = true,
        ['+'] = true, ['?'] = true, ['['] = true, [']'] = true};
    return usc_port_in_name(c) || signs[c & 127];
}

/* Names of files that end in .cu or .cuh, in a line [start, end). */
static bool follow(usc_port_job *job, size_t start, size_t end)
{
    bool any = false;
    for (size_t at = start; at < end;) {
        size_t to = at;
        while (to < end && job->text[to] != '\0' && in_path(job->text[to]))
            to++;
        const char *dot = memchr(job->text + at, '.', to - at), *name = NULL;
        if (dot != NULL) /* others name no source */
            name = usc_port_new_name(job, usc_port_copy(job, job->text + at, to - at));
        if (name != NULL) usc_port_edit_put(job, at, to, name);
        any |= name != NULL;
        at = to > at ? to : to + 1;
    }
    return any;
}

static bool has(const char *line, size_t n, const char *word)
{
    const size_t m = strlen(word);
    for (size_t i = 0; i + m <= n; i++)
        if ((line[i] | 32) == word[0] && strncasecmp(line + i, word, m) == 0) return true;
    return false;
}

/* Scripts and settings: one line stands for all. */
static bool once(const char *path)
{
    static const char *const names[] = {"*.sh", "*.bat", "*.yml", "*.yaml",
                                        "Dockerfile*"};
    const char *last = strrchr(path, '/');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (usc_port_glob(names[i], last != NULL ? last + 1 : path)) return true;
    return false;
}

static bool is_cmake(const char *path)
{
    return usc_port_glob("CMakeLists.txt", path) || usc_port_glob("*.cmake", path);
}

void usc_port_build(usc_port_job *job)
{
    const bool one = once(job->path), cmake = is_cmake(job->path);
    static const char *const of_cuda[] = {"cuda", "nvcc", "nvidia", "nccl", "cudnn"};
    static const char *const of_musa[] = {"musa", "mcc", "mthreads", "mccl", "mudnn"};
    const char *const *words = job->options->target == USC_PORT_CUDA ? of_musa : of_cuda;
    for (size_t start = 0, end; start < job->n; start = end + 1) {
        const char *newline = memchr(job->text + start, '\n', job->n - start);
        end = newline != NULL ? (size_t)(newline - job->text) : job->n;
        const char *line = job->text + start;
        const size_t blank = strspn(line, " \t");
        const size_t n = end - start;
        if (n > 4096 || blank >= n || line[blank] == '#') continue;
        (void)follow(job, start, end);
        if (cmake) continue;
        for (size_t i = 0;
             i < sizeof of_cuda / sizeof of_cuda[0] && !(one && job->n_left > 0); i++)
            if (has(line, n, words[i])) {
                const int shown = n - blank > 60 ? 60 : (int)(n - blank);
                usc_port_leave_at(
                    job, start, "build file",
                    usc_port_format(job, "%.*s", shown, line + blank),
                    one ? "the first line of a script that speaks of CUDA: read "
                          "it through"
                        : "write it for the target by hand");
                break;
            }
    }
    if (cmake) usc_port_cmake(job);
}
