// SPDX-License-Identifier: Apache-2.0
// ulpscope loss: where two loss curves part, and whether that is more than noise.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <ulpscope/x/loss.h>

#include "common/progress.h"

enum {
    OPT_KEY = 256,
    OPT_REGEX,
    OPT_NOISE,
    OPT_TOLERANCE,
    OPT_SAME_BYTES,
    OPT_HTML,
    OPT_JSON
};
enum { MOST_CURVES = 64 };

static const cli_entry own_options[] = {
    {OPT_KEY, "key", "NAME", NULL,
     "the column, JSON key (outer.inner), tag or word before the number; A=NAME,B=NAME "
     "for each side (default: what is called loss and has the most values and digits)"},
    {OPT_REGEX, "regex", "REGEX", NULL,
     "how a log writes the loss, e.g. 'loss[=: ]+(?P<loss>[-+.0-9eE]+)'; a group step "
     "where "
     "it gives one"},
    {OPT_NOISE, "noise", "FILE...", NULL,
     "runs like A with other seeds: what they differ by among each other is noise"},
    {OPT_TOLERANCE, "tolerance", "X", "0.001",
     "a steady relative difference below X is none; given, also what the first steps "
     "differ by from the start on, as runs in 16 bits do"},
    {OPT_SAME_BYTES, "same-bytes", NULL, NULL,
     "files of the same bytes are two runs all the same, not a copy"},
    {OPT_HTML, "html", "FILE", NULL, "write a page with pictures"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object per comparison and line"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_loss_page = {
    .command = "loss",
    .usage = "A B [MORE...] [OPTIONS]",
    .about =
        "Holds the loss curves of B and MORE against that of A: the first step at which "
        "they "
        "differ by more than noise, by how much, the area between them, and whether they "
        "drift apart steadily.\n"
        "\n"
        "Each is CSV, JSON lines, a JSON list, a Trainer's trainer_state.json, an event "
        "file "
        "of TensorBoard or a folder of them, or a log of any kind. Steps are matched "
        "where "
        "both give them.\n"
        "\n"
        "Noise is what repeated runs differ by (--noise C D); without them, where both "
        "saw "
        "the same batches, how rough the difference itself is. Where neither tells, the "
        "answer is \"not told\", with what would tell.\n",
    .options = options,
    .examples = "  ulpscope loss gpu.log npu.log\n"
                "  ulpscope loss gpu.csv npu.csv --key train/loss --html loss.html\n"
                "  ulpscope loss gpu.log npu.log --noise gpu-seed2.log gpu-seed3.log\n"
                "  ulpscope loss wandb.csv --key 'A=gpu - loss,B=npu - loss'\n"
                "  ulpscope loss a.log b.log --regex 'step (?P<step>\\d+).*nll "
                "(?P<loss>\\S+)'\n",
    .codes =
        "0 the same within noise, 1 they differ, 2 not told, or something went wrong",
};

typedef struct arguments {
    char *keys; /* what --key says, cut into `key`; freed by cmd_loss */
    const char *key[MOST_CURVES];
    usc_curve_options read;
    usc_loss_options compare;
    const char *names[MOST_CURVES], *noise[MOST_CURVES], *html;
    int n_names, n_noise;
    bool json, same_bytes;
} arguments;

/* "A=NAME,B=NAME", a letter for each file, or one name for all of them. A comma belongs
 * to the name where no letter and "=" follow. */
static bool take_keys(arguments *a)
{
    free(a->keys);
    a->keys = strdup(optarg);
    a->read.key = optarg;
    if (a->keys == NULL) return cli_fail("out of memory") == 0;
    char *at = a->keys;
    if (strncmp(at, "A=", 2) != 0 && strncmp(at, "B=", 2) != 0) return true;
    a->read.key = NULL;
    for (char *next; at != NULL; at = next) {
        const int side = at[0] - 'A';
        for (next = strchr(at, ','); next != NULL; next = strchr(next + 1, ','))
            if (next[1] >= 'A' && next[1] <= 'Z' && next[2] == '=') break;
        if (next != NULL) *next++ = '\0';
        if (at[2] == '\0')
            return cli_fail("--key '%s': no name behind %c=", optarg, at[0]) == 0;
        a->key[side] = at + 2;
    }
    return true;
}

static bool take_tolerance(arguments *a)
{
    if (cli_real(optarg, &a->compare.tolerance) && a->compare.tolerance > 0) return true;
    return cli_fail("--tolerance '%s': a positive number is needed, e.g. 0.001",
                    optarg) == 0;
}

static bool take_noise(arguments *a, int argc, char **argv)
{
    a->noise[a->n_noise++] = optarg;
    while (optind < argc && argv[optind][0] != '-' && a->n_noise < MOST_CURVES - 1)
        a->noise[a->n_noise++] = argv[optind++];
    return a->n_noise < MOST_CURVES - 1 || cli_fail("--noise: at most 62 files") == 0;
}

static bool take(arguments *a, int key, int argc, char **argv)
{
    switch (key) {
    case OPT_KEY:
        return take_keys(a);
    case OPT_REGEX:
        a->read.regex = optarg;
        return true;
    case OPT_NOISE:
        return take_noise(a, argc, argv);
    case OPT_TOLERANCE:
        return take_tolerance(a);
    case OPT_HTML:
        a->html = optarg;
        return cli_writable("--html", optarg);
    case OPT_SAME_BYTES:
        a->same_bytes = true;
        return true;
    case OPT_JSON:
        a->json = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){0};
    for (int key; (key = cli_next(&cmd_loss_page, argc, argv)) != -1;)
        if (!take(a, key, argc, argv)) return false;
    for (; optind < argc && a->n_names < MOST_CURVES; optind++)
        a->names[a->n_names++] = argv[optind];
    if (a->keys != NULL && a->read.regex != NULL)
        return cli_fail("--key and --regex say two things: leave out one") == 0;
    if (a->n_names == 1 && a->key[0] != NULL && a->key[1] != NULL)
        a->names[a->n_names++] = a->names[0]; /* two columns of one file */
    if (a->n_names >= 2 && optind == argc) return true;
    return cli_fail("two curves are needed, e.g. ulpscope loss gpu.log npu.log; see "
                    "ulpscope loss --help") == 0;
}

/* ---- reading ---- */

typedef struct curves {
    usc_curve *curve[MOST_CURVES], *noise[MOST_CURVES];
    usc_loss_result *result[MOST_CURVES];
} curves;

/* Runs that stand for A are read by its key. */
static bool read_all(const arguments *a, const char *const *names, int n, bool noise,
                     usc_curve **out)
{
    usc_error err;
    for (int i = 0; i < n; i++) {
        usc_curve_options how = a->read;
        cli_progress reads;
        if (how.key == NULL) how.key = a->key[noise ? 0 : i];
        cli_progress_read(&reads, "loss");
        const usc_status st = usc_curve_read(names[i], &how, &out[i], &err);
        cli_progress_end(&reads);
        if (st != USC_OK) return cli_fail("%s", err.text) == 0;
        if (out[i]->notes[0] != '\0') (void)fprintf(stderr, "%s\n", out[i]->notes);
    }
    return true;
}

static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* False after a sentence where two are the same curve: what that would give is no answer
 * to the question. */
static bool are_two(const arguments *a, const usc_curve *one, const usc_curve *other)
{
    if (one->held_out != other->held_out) {
        const usc_curve *out = one->held_out ? one : other;
        return cli_fail("'%s' of %s is of what is held out, '%s' of %s is not: name what "
                        "is to be compared with --key 'A=NAME,B=NAME'",
                        out->key, out->name, out == one ? other->key : one->key,
                        out == one ? other->name : one->name) == 0;
    }
    if (strcmp(one->key, other->key) != 0) return true;
    if (is_one_file(one->name, other->name))
        return cli_fail(
                   "'%s' of %s is given twice: the same file. Name two files, or two "
                   "columns with --key 'A=NAME,B=NAME'",
                   one->key, one->name) == 0;
    if (one->digest != other->digest || a->same_bytes) return true;
    return cli_fail("%s and %s hold the same bytes: is one a copy of the other? Name the "
                    "other run's file; of two runs that agree in every digit say "
                    "--same-bytes",
                    one->name, other->name) == 0;
}

/* B, C, ... and the repeats against A, and the repeats against each other and B. */
static bool are_different(const arguments *a, const curves *c)
{
    for (int i = 1; i < a->n_names; i++)
        if (!are_two(a, c->curve[0], c->curve[i])) return false;
    for (int k = 0; k < a->n_noise; k++) {
        for (int i = 0; i < a->n_names; i++)
            if (!are_two(a, c->curve[i], c->noise[k])) return false;
        for (int i = 0; i < k; i++)
            if (!are_two(a, c->noise[i], c->noise[k])) return false;
    }
    return true;
}

static void free_all(curves *c)
{
    for (int i = 0; i < MOST_CURVES; i++) {
        usc_curve_free(c->curve[i]);
        usc_curve_free(c->noise[i]);
        usc_loss_free(c->result[i]);
    }
}

/* ---- showing ---- */

static bool write_page(const arguments *a, const curves *c)
{
    usc_error err;
    FILE *to = fopen(a->html, "w");
    if (to == NULL) return cli_fail("%s: %s", a->html, strerror(errno)) == 0;
    usc_status st = usc_loss_html(c->curve[0], (const usc_curve *const *)c->curve + 1,
                                  (const usc_loss_result *const *)c->result + 1,
                                  (size_t)a->n_names - 1, to, &err);
    if (fclose(to) != 0 && st == USC_OK)
        st = usc_error_set(&err, USC_E_IO, -1, "cannot write: %s", strerror(errno));
    return st == USC_OK || cli_fail("%s: %s", a->html, err.text) == 0;
}

static int compare(arguments *a, curves *c)
{
    usc_error err;
    int code = CLI_SAME;
    a->compare.repeats = (const usc_curve *const *)c->noise;
    a->compare.n_repeats = (size_t)a->n_noise;
    for (int i = 1; i < a->n_names; i++) {
        const usc_curve *first = c->curve[0], *other = c->curve[i];
        usc_status st = usc_loss_compare(first, other, &a->compare, &c->result[i], &err);
        if (st == USC_OK && i > 1 && !a->json) (void)putchar('\n');
        if (st == USC_OK)
            st = a->json ? usc_loss_json(first, other, c->result[i], stdout, &err)
                         : usc_loss_table(first, other, c->result[i], cli_width(), stdout,
                                          &err);
        if (st != USC_OK) return cli_fail("%s", err.text);
        if (c->result[i]->differ) code = CLI_DIFFERS;
        if (!c->result[i]->told && code == CLI_SAME) code = CLI_TROUBLE;
    }
    if (a->html != NULL && !write_page(a, c)) return CLI_TROUBLE;
    code = cli_close_output(code);
    if (code == CLI_DIFFERS && !a->json)
        cli_next_is("ulpscope bisect --reference %s -- COMMAND of %s", a->names[0],
                    a->names[1]);
    return code;
}

int cmd_loss(int argc, char **argv)
{
    arguments a;
    cli_begin("loss");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    curves *c = calloc(1, sizeof *c);
    if (c == NULL) return cli_fail("out of memory");
    const bool read = read_all(&a, a.names, a.n_names, false, c->curve) &&
                      read_all(&a, a.noise, a.n_noise, true, c->noise) &&
                      are_different(&a, c);
    const int code = read ? compare(&a, c) : CLI_TROUBLE;
    free_all(c);
    free(c);
    free(a.keys);
    return code;
}
