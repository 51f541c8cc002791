// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/x/toml.h>

#define OWN "ulpscope.toml"
#define SHARED "pyproject.toml"

enum { MOST_BYTES = 1 << 20 };

/* ---- what commands have ---- */

static const cli_page *const *all; /* NULL behind them */

void cli_config_begin(const cli_page *const *pages)
{
    all = pages;
}

/* `fail_on` is `fail-on`. */
static void with_dashes(char *name)
{
    for (; *name != '\0'; name++)
        if (*name == '_') *name = '-';
}

static const cli_entry *option_of(const cli_page *page, const char *name)
{
    for (int l = 0; page->options[l] != NULL; l++)
        for (const cli_entry *e = page->options[l]; e->key != 0; e++)
            if (e->name != NULL && strcmp(e->name, name) == 0) return e;
    return NULL;
}

const cli_page *cli_config_page(const char *command)
{
    for (const cli_page *const *page = all; *page != NULL; page++)
        if (strcmp((*page)->command, command) == 0) return *page;
    return NULL;
}

static const char *nearest_command(const char *command)
{
    const char *best = NULL;
    for (const cli_page *const *page = all; *page != NULL; page++)
        (void)cli_nearer(command, (*page)->command, &best);
    return best;
}

int cli_config_no_command(const char *command)
{
    const char *best = nearest_command(command);
    if (best != NULL)
        return cli_fail(
            "there is no command '%s'; did you mean %s? ulpscope --help lists them",
            command, best);
    return cli_fail("there is no command '%s'; ulpscope --help lists them", command);
}

/* What is nearest to a name among the options of a command, NULL: of all. */
static const char *nearest_option(const cli_page *only, const char *name)
{
    const char *best = NULL;
    for (const cli_page *const *page = all; *page != NULL; page++)
        for (int l = 0; (only == NULL || only == *page) && (*page)->options[l] != NULL;
             l++)
            for (const cli_entry *e = (*page)->options[l]; e->key != 0; e++)
                if (e->name != NULL) (void)cli_nearer(name, e->name, &best);
    return best;
}

static bool any_has(const char *name)
{
    for (const cli_page *const *page = all; *page != NULL; page++)
        if (option_of(*page, name) != NULL) return true;
    return false;
}

/* ---- reading ---- */

typedef struct reading {
    cli_config *config;
    const char *shown;
    bool shared, found; /* of pyproject.toml; whether our table is in it */
    bool failed;
} reading;

static bool refuse(reading *r, int line, const char *format, ...) USC_PRINTF(3, 4);

static bool refuse(reading *r, int line, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->failed = true;
    (void)cli_fail("%s:%d: %s (ulpscope --no-config does without that file)", r->shown,
                   line, text);
    return false;
}

static bool refuse_name(reading *r, int line, const cli_page *page, const char *name)
{
    char meant[80] = "";
    const char *best = nearest_option(page, name);
    if (best != NULL) (void)snprintf(meant, sizeof meant, "; did you mean %s?", best);
    if (page != NULL)
        return refuse(r, line, "ulpscope %s has no option --%s%s", page->command, name,
                      meant);
    return refuse(r, line, "no command has an option --%s%s", name, meant);
}

static bool add(reading *r, const cli_page *page, const char *name,
                const usc_toml_value *value)
{
    cli_config *c = r->config;
    const char *command = page != NULL ? page->command : NULL;
    bool again = false; /* it is a further element of an array */
    for (size_t i = 0; i < c->n; i++) {
        cli_default *d = &c->defaults[i];
        if (d->command != command || strcmp(d->name, name) != 0) continue;
        if (!value->in_array)
            return refuse(r, value->line, "'%s' is given in line %d already", name,
                          d->line);
        if (d->text == NULL) { /* the first of the array that begins there */
            d->text = strdup(value->text);
            d->line = value->line;
            d->is_bool = value->kind == USC_TOML_BOOL;
            return d->text != NULL || refuse(r, value->line, "no memory");
        }
        again = true;
    }
    if (c->n == c->size) {
        const size_t size = c->size > 0 ? 2 * c->size : 16;
        cli_default *grown = realloc(c->defaults, size * sizeof *grown);
        if (grown == NULL) return refuse(r, value->line, "no memory");
        c->defaults = grown;
        c->size = size;
    }
    cli_default *d = &c->defaults[c->n];
    *d = (cli_default){.command = command,
                       .name = strdup(name),
                       .line = value->line,
                       .is_bool = value->kind == USC_TOML_BOOL,
                       .again = again};
    if (value->kind != USC_TOML_ARRAY) d->text = strdup(value->text);
    c->n++;
    return (d->name != NULL && (d->text != NULL || value->kind == USC_TOML_ARRAY)) ||
           refuse(r, value->line, "no memory");
}

static bool hear_table(reading *r, const usc_toml_value *v, int n, char *command)
{
    if (n == 0) return true; /* [tool.ulpscope] */
    if (n > 1) return refuse(r, v->line, "a table lies within that of '%s'", command);
    if (cli_config_page(command) != NULL) return true;
    const char *best = nearest_command(command);
    if (best != NULL)
        return refuse(r, v->line, "there is no command '%s'; did you mean [%s]?", command,
                      best);
    return refuse(r, v->line, "there is no command '%s'", command);
}

static bool hear(const usc_toml_value *v, void *ctx)
{
    reading *r = ctx;
    int skip = 0;
    if (r->shared) {
        skip = 2;
        if (v->n_keys < 2 || strcmp(v->keys[0], "tool") != 0 ||
            strcmp(v->keys[1], "ulpscope") != 0)
            return true;
        r->found = true;
    }
    const int n = v->n_keys - skip;
    if (n > 2) return refuse(r, v->line, "a table lies within that of an option");
    char keys[2][USC_TOML_LONGEST_KEY] = {"", ""};
    for (int i = 0; i < n; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "%s", v->keys[skip + i]);
        with_dashes(keys[i]);
    }
    if (v->kind == USC_TOML_TABLE) return hear_table(r, v, n, keys[0]);
    if (n == 0) return refuse(r, v->line, "[tool.ulpscope] is a table");
    const cli_page *page = n == 2 ? cli_config_page(keys[0]) : NULL;
    if (n == 2 && page == NULL) return hear_table(r, v, 1, keys[0]);
    const char *name = keys[n - 1];
    if (page != NULL ? option_of(page, name) == NULL : !any_has(name))
        return refuse_name(r, v->line, page, name);
    if (v->kind == USC_TOML_ARRAY && v->in_array)
        return refuse(r, v->line, "'%s' is an array of arrays", name);
    return add(r, page, name, v);
}

/* The whole text of a file; NULL after a sentence. */
static char *text_of(const char *path, const char *shown, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *text = f != NULL ? malloc(MOST_BYTES) : NULL;
    if (text != NULL) *size = fread(text, 1, MOST_BYTES, f);
    if (text == NULL || ferror(f) != 0) {
        (void)cli_fail("%s cannot be read: %s (ulpscope --no-config does without it)",
                       shown, strerror(errno));
        free(text);
        text = NULL;
    } else if (*size == MOST_BYTES) {
        (void)cli_fail("%s is larger than 1 MiB: no file of defaults", shown);
        free(text);
        text = NULL;
    }
    if (f != NULL) (void)fclose(f);
    return text;
}

/* Reads a file; *found: whether it is one with defaults. */
static bool read_file(cli_config *config, const char *path, bool shared, bool *found)
{
    size_t size = 0;
    char *text = text_of(path, path, &size);
    *found = !shared;
    if (text == NULL) return false;
    reading r = {.config = config, .shown = path, .shared = shared};
    char why[128];
    int line = 0;
    /* What does not speak of us is not ours to find fault with. */
    if ((!shared || memmem(text, size, "ulpscope", 8) != NULL) &&
        !usc_toml_read(text, size, hear, &r, &line, why) && !r.failed &&
        (!shared || r.found))
        (void)refuse(&r, line, "%s", why);
    free(text);
    *found = *found || r.found;
    return !r.failed;
}

/* Whether the user may be taken to know what is in a file: it is his own, the system's,
 * or that of whoever owns the folder where he works. */
static bool is_trusted(const struct stat *file)
{
    struct stat here;
    return file->st_uid == geteuid() || file->st_uid == 0 ||
           (stat(".", &here) == 0 && here.st_uid == file->st_uid);
}

static bool take(cli_config *config, const char *path, bool shared, bool *found)
{
    struct stat file;
    *found = false;
    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) return true;
    if (!is_trusted(&file)) {
        if (config->passed == NULL) config->passed = strdup(path);
        return true;
    }
    if (!read_file(config, path, shared, found)) return false;
    if (*found) config->path = strdup(path);
    return !*found || config->path != NULL || cli_fail("no memory") == 0;
}

/* In the working folder and those above it, the nearest that has one. */
static bool search(cli_config *config)
{
    char folder[PATH_MAX], path[PATH_MAX + sizeof SHARED];
    if (getcwd(folder, sizeof folder) == NULL) return true; /* it is gone */
    for (bool above = false;; above = true) {
        static const char *const names[] = {OWN, SHARED};
        for (int i = 0; i < 2; i++) {
            bool found = false;
            if (above)
                (void)snprintf(path, sizeof path, "%s/%s",
                               strcmp(folder, "/") == 0 ? "" : folder, names[i]);
            else
                (void)snprintf(path, sizeof path, "%s", names[i]);
            if (!take(config, path, i == 1, &found)) return false;
            if (found) return true;
        }
        char *slash = strrchr(folder, '/');
        if (slash == NULL || strcmp(folder, "/") == 0) return true;
        slash[slash == folder] = '\0';
    }
}

bool cli_config_read(cli_config *out)
{
    *out = (cli_config){0};
    const char *named = getenv("ULPSCOPE_CONFIG");
    if (named == NULL || *named == '\0') return search(out);
    if (strcmp(named, "off") == 0) return true;
    if (access(named, F_OK) != 0)
        return cli_fail("ULPSCOPE_CONFIG: there is no file '%s'; a file like " OWN
                        " is needed, or off",
                        named) == 0;
    const char *slash = strrchr(named, '/');
    bool found = false;
    if (!read_file(out, named, strcmp(slash != NULL ? slash + 1 : named, SHARED) == 0,
                   &found))
        return false;
    out->path = strdup(named);
    return out->path != NULL || cli_fail("no memory") == 0;
}

void cli_config_free(cli_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        free(config->defaults[i].name);
        free(config->defaults[i].text);
    }
    free(config->defaults);
    free(config->path);
    free(config->passed);
    *config = (cli_config){0};
}

/* ---- words ---- */

/* Options of one key are one option: --verdict-out may be another name of --out. */
static bool is_of(const cli_default *d, const cli_page *page, const cli_entry *option)
{
    const cli_entry *e = option_of(page, d->name);
    return !d->again && e != NULL && e->key == option->key;
}

const cli_default *cli_config_of(const cli_config *config, const cli_page *page,
                                 const cli_entry *option)
{
    const cli_default *of_all = NULL;
    for (size_t i = 0; i < config->n; i++) {
        const cli_default *d = &config->defaults[i];
        if (!is_of(d, page, option)) continue;
        if (d->command == NULL)
            of_all = d;
        else if (strcmp(d->command, page->command) == 0)
            return d;
    }
    return of_all;
}

const cli_default *cli_config_next(const cli_config *config, const cli_default *d)
{
    const cli_default *next = d + 1;
    return next < config->defaults + config->n && next->again ? next : NULL;
}

typedef struct words {
    char **argv;
    int n;
    FILE *told; /* what was taken, for the user */
} words;

/* One value as a word; false after a sentence. */
static bool put_word(const cli_config *config, const cli_default *d, const cli_entry *e,
                     words *w)
{
    const bool flag = e->value == NULL, bare = d->is_bool && strcmp(d->text, "true") == 0;
    if (d->text == NULL || (d->is_bool && !bare)) return true; /* [] and false: none */
    if (flag && !d->is_bool)
        return cli_fail("%s:%d: '%s' takes true or false", config->path, d->line,
                        d->name) == 0;
    if (!flag && d->is_bool && e->value[0] != '=')
        return cli_fail("%s:%d: '%s' takes a value: %s", config->path, d->line, d->name,
                        e->value) == 0;
    (void)fprintf(w->told, "%s--%s%s%s (line %d)", ftell(w->told) > 0 ? ", " : "",
                  e->name, d->is_bool ? "" : " ", d->is_bool ? "" : d->text, d->line);
    char **word = &w->argv[w->n++]; /* lives as long as the program */
    return (d->is_bool ? asprintf(word, "--%s", e->name)
                       : asprintf(word, "--%s=%s", e->name, d->text)) >= 0 ||
           cli_fail("no memory") == 0;
}

/* Whether an option of this key was typed. */
static bool is_typed(const int *typed, int n, int key)
{
    for (int i = 0; i < n; i++)
        if (typed[i] == key) return true;
    return false;
}

/* The keys of the options that were typed; scanning stops at what is no option. */
static int typed_keys(const cli_page *page, int argc, char **argv, int *keys)
{
    char **copy = calloc((size_t)argc + 1, sizeof *copy); /* it is put in order there */
    int n = 0;
    if (copy == NULL) return 0;
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    optind = 0;
    for (int key; n < argc && (key = cli_page_key(page, argc, copy)) != -1;)
        keys[n++] = key;
    optind = 0; /* the command begins anew */
    free(copy);
    return n;
}

static bool put_defaults(const cli_config *config, const cli_page *page, const int *typed,
                         int n_typed, words *w)
{
    for (int l = 0; page->options[l] != NULL; l++)
        for (const cli_entry *e = page->options[l]; e->key != 0; e++) {
            if (e->name == NULL || e->help == NULL) continue; /* another name */
            if (is_typed(typed, n_typed, e->key)) continue;
            for (const cli_default *d = cli_config_of(config, page, e); d != NULL;
                 d = cli_config_next(config, d))
                if (!put_word(config, d, e, w)) return false;
        }
    return true;
}

/* Before the first option; of a command whose options end at the first word, before it. */
static int place_of(const cli_page *page, int argc, char **argv)
{
    int at = 1;
    while (!page->stops && at < argc && argv[at][0] != '-')
        at++;
    return at;
}

char **cli_config_apply(const cli_page *page, int *argc, char **argv)
{
    cli_config config;
    if (page->options[0] == NULL) return argv;
    const bool read = cli_config_read(&config);
    if (read && config.passed != NULL)
        (void)fprintf(stderr,
                      "ulpscope: %s is another user's and is not read; "
                      "ULPSCOPE_CONFIG=%s reads it\n",
                      config.passed, config.passed);
    if (!read || config.n == 0) {
        cli_config_free(&config);
        return read ? argv : NULL;
    }
    char *told = NULL;
    size_t size = 0;
    const size_t most = (size_t)*argc + config.n + 1;
    words w = {.argv = calloc(most, sizeof *w.argv),
               .told = open_memstream(&told, &size)};
    int *typed = calloc((size_t)*argc + 1, sizeof *typed);
    const int at = place_of(page, *argc, argv);
    bool ok =
        (w.argv != NULL && typed != NULL && w.told != NULL) || cli_fail("no memory") == 0;
    if (ok) {
        memcpy(w.argv, argv, (size_t)at * sizeof *argv);
        w.n = at;
        ok = put_defaults(&config, page, typed, typed_keys(page, *argc, argv, typed), &w);
    }
    if (w.told != NULL) (void)fclose(w.told);
    if (ok) {
        if (w.n > at) (void)fprintf(stderr, "ulpscope: %s: %s\n", config.path, told);
        memcpy(w.argv + w.n, argv + at, (size_t)(*argc - at) * sizeof *argv);
        *argc += w.n - at;
    }
    free(told);
    free(typed);
    cli_config_free(&config);
    return ok ? w.argv : NULL;
}
