// SPDX-License-Identifier: Apache-2.0
// What a library lacks: symbols that neither it nor what it needs has. Each by its plain
// name, with where it is defined: the sources' tree is looked through by
// usc_port_where, libraries nearby by their tables. See doctor.h and doctor_elf.h.
#include "doctor/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/port.h>

#include "common/cli_python.h"
#include "doctor/doctor_elf.h"

enum { MOST_LIBRARIES = 512, MOST_NEARBY = 20000, PYTHON_MS = 60000 };

typedef struct lacking {
    const char *name; /* of the library's own table */
    char *plain;      /* f(int); the same where nobody can read it */
    char *library;    /* that has it, and is not linked; NULL: none was seen */
    bool found;       /* in what is linked */
    usc_port_place place;
} lacking;

typedef struct looking {
    doctor_elf library[MOST_LIBRARIES]; /* the one, then what it needs */
    size_t n_libraries, n_gone;         /* those not found */
    lacking *lacks;                     /* sorted by name */
    size_t n_lacks, n_nearby;
    char torch[PATH_MAX]; /* its folder of libraries; "" */
} looking;

/* ---- plain names */

typedef char *demangle_function(const char *, char *, size_t *, int *);

static char *plain_of(const char *name)
{
    static demangle_function *demangle;
    static bool asked;
    int status;
    if (!asked) {
        void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
        void *found = library != NULL ? dlsym(library, "__cxa_demangle") : NULL;
        *(void **)&demangle = found;
        asked = true;
    }
    char *plain = demangle != NULL && strncmp(name, "_Z", 2) == 0
                      ? demangle(name, NULL, NULL, &status)
                      : NULL;
    return plain != NULL ? plain : strdup(name);
}

/* What a plain name is in the sources, without arguments, those of templates and what it
 * gives: "void at::f<int>(int)" is at::f. Empty: what has no name there. */
static void bare(const char *plain, char *out, size_t size, bool *of_class)
{
    static const char *const emitted[] = {"vtable for ", "typeinfo for ",
                                          "typeinfo name for ", "VTT for "};
    size_t n = 0, depth = 0;
    *of_class = false;
    for (size_t i = 0; i < sizeof emitted / sizeof emitted[0]; i++)
        if (strncmp(plain, emitted[i], strlen(emitted[i])) == 0) {
            plain += strlen(emitted[i]);
            *of_class = true;
        }
    if (strstr(plain, "operator") != NULL || strstr(plain, " for ") != NULL ||
        strstr(plain, "{lambda") != NULL || strstr(plain, "thunk to ") != NULL)
        plain = "";
    for (const char *c = plain; *c != '\0' && n + 1 < size; c++) {
        static const char anonymous[] = "(anonymous namespace)";
        if (strncmp(c, anonymous, strlen(anonymous)) == 0)
            c += strlen(anonymous) + (c[strlen(anonymous)] == ':');
        else if (*c == '<')
            depth++;
        else if (*c == '>')
            depth -= depth > 0;
        else if (depth == 0 && (*c == '(' || *c == '['))
            break;
        else if (depth == 0 && *c == ' ')
            n = 0; /* what it gives */
        else if (depth == 0)
            out[n++] = *c;
    }
    out[n] = '\0';
}

/* ---- what is linked */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lacking *)a)->name, ((const lacking *)b)->name);
}

static lacking *lacking_of(looking *l, const char *name)
{
    const lacking key = {.name = name};
    return l->n_lacks > 0 ? bsearch(&key, l->lacks, l->n_lacks, sizeof *l->lacks, by_name)
                          : NULL;
}

/* Python's own are the interpreter's, which loads the library. */
static bool of_python(const char *name)
{
    return strncmp(name, "Py", 2) == 0 || strncmp(name, "_Py", 3) == 0;
}

static bool list_lacks(looking *l)
{
    const doctor_elf *e = &l->library[0];
    l->lacks = calloc(e->n_symbols + 1, sizeof *l->lacks);
    for (size_t i = 0; l->lacks != NULL && i < e->n_symbols; i++) {
        const char *name = doctor_elf_symbol(e, i, true);
        if (name != NULL && !of_python(name)) l->lacks[l->n_lacks++].name = name;
    }
    if (l->n_lacks > 0) qsort(l->lacks, l->n_lacks, sizeof *l->lacks, by_name);
    return l->lacks != NULL;
}

static void cross_off(looking *l, const doctor_elf *e)
{
    for (size_t i = 0; i < e->n_symbols; i++) {
        const char *name = doctor_elf_symbol(e, i, false);
        lacking *has = name != NULL ? lacking_of(l, name) : NULL;
        if (has != NULL) has->found = true;
    }
}

static bool is_open(const looking *l, const char *path)
{
    for (size_t i = 0; i < l->n_libraries; i++)
        if (strcmp(l->library[i].path, path) == 0) return true;
    return false;
}

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* What a library needs, and what that needs; first come, first asked, as the loader does. */
static void open_needed(doctor *d, looking *l)
{
    char path[PATH_MAX];
    for (size_t k = 0; k < l->n_libraries; k++) {
        const char *needed;
        for (size_t i = 0;
             (needed = doctor_elf_text(&l->library[k], DT_NEEDED, i)) != NULL; i++) {
            bool seen = false;
            for (size_t m = 0; m < l->n_libraries && !seen; m++)
                seen = strcmp(last_of(l->library[m].path), needed) == 0;
            if (seen || l->n_libraries == MOST_LIBRARIES) continue;
            doctor_elf *e = &l->library[l->n_libraries];
            usc_error err;
            if (!doctor_elf_find(&l->library[k], needed, l->torch, path, sizeof path)) {
                char folder[PATH_MAX];
                doctor_finding *f =
                    doctor_wrong(d, "library", "%s, which %s needs, is not found", needed,
                                 last_of(l->library[k].path));
                if (doctor_find_library(needed, folder, sizeof folder))
                    doctor_mend(f, "export LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH", folder);
                else
                    doctor_mend(f, "install what brings it, or say where it lies: export "
                                   "LD_LIBRARY_PATH=ITS FOLDER:$LD_LIBRARY_PATH");
                l->n_gone++;
            } else if (doctor_elf_open(path, e, &err) != USC_OK) {
                doctor_mend(doctor_wrong(d, "library", "%s", err.text),
                            "install again what brings %s", path);
                l->n_gone++;
            } else {
                cross_off(l, e);
                l->n_libraries++;
            }
        }
    }
}

/* Where torch's libraries lie: an extension finds them because torch is loaded before. */
static void ask_for_torch(looking *l)
{
    static cli_python python;
    char script[] = "import importlib.util as u, os; s = u.find_spec('torch'); "
                    "print(os.path.join(os.path.dirname(s.origin), 'lib') if s else '')";
    char words[] = "-c";
    if (!cli_python_find(&python, NULL)) return;
    char *argv[] = {python.program, words, script, NULL};
    if (cli_run(argv, PYTHON_MS, false, l->torch, sizeof l->torch) != 0)
        l->torch[0] = '\0';
    l->torch[strcspn(l->torch, "\n")] = '\0';
}

/* ---- what is not linked */

static bool all_found(const looking *l)
{
    for (size_t i = 0; i < l->n_lacks; i++)
        if (!l->lacks[i].found && l->lacks[i].library == NULL) return false;
    return true;
}

static void look_into(looking *l, const char *path)
{
    doctor_elf e;
    if (is_open(l, path) || ++l->n_nearby > MOST_NEARBY ||
        doctor_elf_open(path, &e, NULL) != USC_OK)
        return;
    for (size_t i = 0; i < e.n_symbols; i++) {
        const char *name = doctor_elf_symbol(&e, i, false);
        lacking *has = name != NULL ? lacking_of(l, name) : NULL;
        if (has != NULL && !has->found && has->library == NULL)
            has->library = strdup(path);
    }
    doctor_elf_close(&e);
}

static void look_into_folder(looking *l, const char *folder)
{
    char path[PATH_MAX];
    DIR *list = folder[0] != '\0' && !all_found(l) ? opendir(folder) : NULL;
    for (const struct dirent *e; list != NULL && (e = readdir(list)) != NULL;)
        if (strstr(e->d_name, ".so") != NULL &&
            (size_t)snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < sizeof path)
            look_into(l, path);
    if (list != NULL) (void)closedir(list);
}

static void look_nearby(looking *l)
{
    char own[PATH_MAX];
    (void)snprintf(own, sizeof own, "%s", l->library[0].path);
    char *slash = strrchr(own, '/');
    if (slash != NULL) *slash = '\0';
    look_into_folder(l, slash != NULL ? own : ".");
    look_into_folder(l, l->torch);
    const char *given = getenv("LD_LIBRARY_PATH");
    for (size_t n; given != NULL && *given != '\0'; given += n + (given[n] == ':')) {
        n = strcspn(given, ":");
        (void)snprintf(own, sizeof own, "%.*s", (int)n, given);
        look_into_folder(l, own);
    }
    for (size_t i = 0; doctor_elf_folder(i) != NULL; i++)
        look_into_folder(l, doctor_elf_folder(i));
}

static usc_status look_into_sources(looking *l, const char *tree, usc_error *err)
{
    char(*name)[512] = calloc(l->n_lacks + 1, sizeof *name);
    const char **names = calloc(l->n_lacks + 1, sizeof *names);
    usc_port_place *place = calloc(l->n_lacks + 1, sizeof *place);
    usc_status st = USC_OK;
    size_t n = 0;
    if (name == NULL || names == NULL || place == NULL)
        st = usc_error_set(err, USC_E_NOMEM, -1, "no memory for the sources");
    for (size_t i = 0; st == USC_OK && i < l->n_lacks; i++) {
        if (l->lacks[i].found) continue;
        bare(l->lacks[i].plain, name[n], sizeof *name, &place[n].of_class);
        names[n] = name[n];
        n++;
    }
    if (st == USC_OK) st = usc_port_where(tree, names, place, n, err);
    for (size_t i = l->n_lacks; st == USC_OK && i-- > 0;)
        if (!l->lacks[i].found) l->lacks[i].place = place[--n];
    free(name);
    free(names);
    free(place);
    return st;
}

/* ---- telling */

static bool is_kernel(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && (strcmp(dot, ".cu") == 0 || strcmp(dot, ".mu") == 0);
}

static void tell_defined(doctor *d, const lacking *s)
{
    const usc_port_place *p = &s->place;
    const char *dot = strrchr(p->path, '.');
    doctor_finding *f =
        doctor_wrong(d, "symbol", "%.300s: defined in %.200s:%lld, %s", s->plain, p->path,
                     (long long)p->line,
                     p->header            ? "a header; no file that is built makes it"
                     : is_kernel(p->path) ? "a kernel file that is not built"
                                          : "a file that is not built");
    if (p->header)
        doctor_mend(f, "build a file that includes %.200s and instantiates it", p->path);
    else if (dot != NULL && strcmp(dot, ".cu") == 0)
        doctor_mend(
            f, "ulpscope port %.200s/%.200s, and add it to what %.100s is built from",
            d->source, p->path, last_of(d->library));
    else
        doctor_mend(f,
                    "add %.200s to what %.100s is built from; if it is there, an #if "
                    "leaves this out",
                    p->path, last_of(d->library));
}

/* libfoo.so.1 is linked by -lfoo. */
static void mend_by_linking(doctor_finding *f, const char *path)
{
    const char *last = last_of(path);
    const size_t n = (size_t)(strstr(last, ".so") - last);
    if (strncmp(last, "lib", 3) == 0)
        doctor_mend(f, "link it: -L%.*s -l%.*s", (int)(last - path - 1), path, (int)n - 3,
                    last + 3);
    else
        doctor_mend(f, "link %s", path);
}

static void tell_symbol(doctor *d, const lacking *s)
{
    const usc_port_place *p = &s->place;
    if (s->library != NULL) {
        mend_by_linking(doctor_wrong(d, "symbol",
                                     "%.300s: defined in %s, which is not linked",
                                     s->plain, s->library),
                        s->library);
        return;
    }
    if (p->found == USC_PORT_FOUND_DEFINED) {
        tell_defined(d, s);
        return;
    }
    if (p->found == USC_PORT_FOUND_NOWHERE) {
        doctor_finding *f = doctor_wrong(
            d, "symbol", "%.300s: defined nowhere%s", s->plain,
            d->source == NULL ? " in libraries here"
                              : ": neither in the sources nor in a library here");
        if (d->source == NULL)
            doctor_mend(
                f, "ulpscope doctor --symbols %s --source TREE looks into sources, too",
                d->library);
        else
            doctor_mend(f,
                        "look for it in the library's own sources for CUDA (--source); "
                        "else ask who makes what declares it");
        return;
    }
    doctor_mend(
        doctor_wrong(d, "symbol",
                     p->found == USC_PORT_FOUND_DECLARED
                         ? "%.300s: declared in %.200s:%lld, defined nowhere"
                         : "%.300s: named in %.200s:%lld; whether it is defined there "
                           "was not seen",
                     s->plain, p->path, (long long)p->line),
        p->found == USC_PORT_FOUND_DECLARED
            ? "ask who makes it; if nothing that runs calls it, define an empty one"
            : "look there, and add that file to what %.100s is built from",
        last_of(d->library));
}

static void tell_all(doctor *d, const looking *l)
{
    size_t n = 0, n_unseen = 0;
    for (size_t i = 0; i < l->n_lacks; i++) {
        const lacking *s = &l->lacks[i];
        if (s->found) continue;
        n++;
        if (l->n_gone > 0 && s->library == NULL &&
            s->place.found == USC_PORT_FOUND_NOWHERE)
            n_unseen++;
        else
            tell_symbol(d, s);
    }
    if (n == 0)
        doctor_fine(d, "symbols",
                    "%s: all %zu that it needs are in the %zu libraries it is linked to",
                    d->library, l->n_lacks, l->n_libraries - 1);
    if (n_unseen > 0)
        doctor_fine(d, "symbols",
                    "%zu were seen nowhere and may be in what is not found: ask again "
                    "when that is mended",
                    n_unseen);
}

int doctor_symbols(doctor *d)
{
    usc_error err;
    looking *l = calloc(1, sizeof *l);
    if (l == NULL) return cli_fail("out of memory");
    int code = CLI_SAME;
    if (doctor_elf_open(d->library, &l->library[0], &err) != USC_OK) {
        code = cli_fail("%s", err.text);
        free(l);
        return code;
    }
    l->n_libraries = 1;
    if (!list_lacks(l)) code = cli_fail("out of memory");
    if (code == CLI_SAME) {
        ask_for_torch(l);
        open_needed(d, l);
        for (size_t i = 0; i < l->n_lacks; i++)
            if (!l->lacks[i].found) l->lacks[i].plain = plain_of(l->lacks[i].name);
        if (!all_found(l))
            (void)fputs("ulpscope doctor: looking through libraries and sources\n",
                        stderr);
        look_nearby(l);
        if (d->source != NULL && look_into_sources(l, d->source, &err) != USC_OK)
            code = cli_fail("--source %s", err.text);
    }
    if (code == CLI_SAME) tell_all(d, l);
    for (size_t i = 0; i < l->n_lacks; i++) {
        free(l->lacks[i].plain);
        free(l->lacks[i].library);
    }
    for (size_t i = 0; i < l->n_libraries; i++)
        doctor_elf_close(&l->library[i]);
    free(l->lacks);
    free(l);
    return code;
}
