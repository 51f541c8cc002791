// SPDX-License-Identifier: Apache-2.0
// A file of torch.save is a zip archive whose first member is NAME/data.pkl, or, of old
// versions, a pickle called .pt or .pth. Its tensors are written as safetensors into a
// scratch folder.
#include "common/judge_torch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli_python.h"
#include "common/scratch.h"

enum { TIMEOUT_MS = 600000, HEAD = 256 };

static bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), size = strlen(end);
    return n >= size && strcasecmp(name + n - size, end) == 0;
}

static bool is_of_torch(const char *path)
{
    char head[HEAD] = "";
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    const size_t n = fread(head, 1, sizeof head, file);
    (void)fclose(file);
    if (n > 2 && head[0] == '\x80' && (ends(path, ".pt") || ends(path, ".pth")))
        return true;
    return n > 4 && memcmp(head, "PK\3\4", 4) == 0 &&
           memmem(head, n, "data.pkl", 8) != NULL;
}

/* The name of a file without its folder and its end. */
static const char *stem_of(const char *path, int *n)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    *n = dot != NULL && dot > name ? (int)(dot - name) : (int)strlen(name);
    return name;
}

static bool convert(const char *from, const char *to)
{
    static cli_python python;
    static bool told; /* that this takes a while */
    char module[] = "ulpscope.calls.torch_tensors", minus_m[] = "-m", why[1024] = "";
    char source[PATH_MAX], target[PATH_MAX];
    usc_error err;
    if (python.program[0] == '\0' && !cli_python_find(&python, &err))
        return cli_fail("%s is a file of torch.save, which torch reads: %s", from,
                        err.text) == 0;
    (void)snprintf(source, sizeof source, "%s", from);
    (void)snprintf(target, sizeof target, "%s", to);
    if (!told) (void)fputs("ulpscope judge: loading torch, to read .pt\n", stderr);
    told = true;
    char *argv[] = {python.program, minus_m, module, source, target, NULL};
    const int code = cli_run(argv, TIMEOUT_MS, false, why, sizeof why - 1);
    why[strcspn(why, "\n")] = '\0';
    if (code == 0) return true;
    return cli_fail("%s%s", why[0] != '\0' ? why : from,
                    why[0] != '\0' ? "" : ": torch could not read it; ulpscope doctor") ==
           0;
}

/* Into the first `n_folder` characters of `folder`, under its own name. */
static bool convert_into(const char *path, const char *folder, int n_folder, char *made)
{
    int n;
    const char *stem = stem_of(path, &n);
    if (snprintf(made, PATH_MAX, "%.*s/%.*s.safetensors", n_folder, folder, n, stem) >=
        PATH_MAX)
        return cli_fail("%s: too long a name", path) == 0;
    return convert(path, made);
}

enum { DEEPEST = 16 };

typedef bool visitor(judge_source *s, const char *path, const char *made, int depth);

/* What lies in a folder, with the name that it would have in `to`. */
static bool each(judge_source *s, const char *from, const char *to, int depth,
                 visitor *see)
{
    char path[PATH_MAX], made[PATH_MAX];
    DIR *folder = depth < DEEPEST ? opendir(from) : NULL;
    bool ok = true;
    if (folder == NULL) return true; /* who opens it says why */
    for (struct dirent *e; ok && (e = readdir(folder)) != NULL;) {
        if (e->d_name[0] == '.' ||
            snprintf(path, sizeof path, "%s/%s", from, e->d_name) >= PATH_MAX ||
            snprintf(made, sizeof made, "%s/%s", to, e->d_name) >= PATH_MAX)
            continue;
        ok = see(s, path, made, depth);
    }
    (void)closedir(folder);
    return ok;
}

/* Goes on until there is a file of torch. */
static bool is_without(judge_source *s, const char *path, const char *made, int depth)
{
    if (cli_is_folder(path)) return each(s, path, made, depth + 1, is_without);
    return !is_of_torch(path);
}

static bool put(judge_source *s, const char *path, const char *made, int depth)
{
    char whole[PATH_MAX], converted[PATH_MAX];
    if (cli_is_folder(path))
        return (mkdir(made, 0700) == 0 || cli_fail("%s: no such folder", made) == 0) &&
               each(s, path, made, depth + 1, put);
    if (is_of_torch(path)) {
        const char *slash = strrchr(made, '/');
        return convert_into(path, made, (int)(slash - made), converted);
    }
    if (realpath(path, whole) == NULL) return true;
    return symlink(whole, made) == 0 || cli_fail("%s: no link to it", path) == 0;
}

/* The folder once more, what is torch's as safetensors and links to the others. */
static bool open_folder(judge_source *s)
{
    if (each(s, s->given, "", 0, is_without)) return true;
    if (!cli_scratch_make("judge", s->scratch, sizeof s->scratch)) return false;
    (void)snprintf(s->path, sizeof s->path, "%s", s->scratch);
    return each(s, s->given, s->scratch, 0, put);
}

bool judge_source_open(const char *given, judge_source *out)
{
    *out = (judge_source){.given = given};
    (void)snprintf(out->path, sizeof out->path, "%s", given);
    if (cli_is_folder(given)) return open_folder(out);
    if (!is_of_torch(given)) return true;
    if (!cli_scratch_make("judge", out->scratch, sizeof out->scratch)) return false;
    char made[PATH_MAX];
    if (!convert_into(given, out->scratch, (int)strlen(out->scratch), made)) return false;
    (void)snprintf(out->path, sizeof out->path, "%s", made);
    return true;
}

void judge_source_close(judge_source *s)
{
    if (s->scratch[0] != '\0') cli_scratch_remove(s->scratch);
    s->scratch[0] = '\0';
}
