// SPDX-License-Identifier: Apache-2.0
// Logs: a name, a number behind it, and a step somewhere in the same line:
// {'loss': 2.3, 'epoch': 1}, "iteration 10/ 100 | lm loss: 1.2E+00 |", "step 3 loss 2.5",
// "10/100 [00:01<00:09, loss=2.5]", {"loss": 2.5} among other lines. Or what a regular
// expression says: curve_regex.h.
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "loss/curve.h"
#include "loss/curve_regex.h"
#include "loss/curve_text.h"

enum { LONGEST = 1 << 14 };

static bool is_word(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_';
}

static const char *past_word(const char *at)
{
    while (is_word(*at) || *at == '/')
        at++;
    return at;
}

static const char *past(const char *at, const char *set)
{
    return at + strspn(at, set);
}

/* Past what stands between a name and its number. */
static const char *past_separators(const char *at)
{
    at = past(at, "'\"");
    at = past(at, " \t");
    at = past(at, ":=");
    at = past(at, " \t");
    if (strncmp(at, "tensor(", 7) == 0) at += 7;
    return past(past(at, "'\"[("), " \t");
}

static bool number_at(const char *at, double *out)
{
    char plain[USC_CURVE_NUMBER], *end;
    at = past_separators(at);
    if (!isdigit((unsigned char)*at) && strchr("+-.nNiI", *at) == NULL) return false;
    if (*at == '\0') return false;
    (void)usc_curve_plain(at, strnlen(at, sizeof plain), plain, sizeof plain);
    *out = usc_parse_number(plain, &end);
    return end != plain && !is_word(*end);
}

/* ---- steps ---- */

/* "10", "10/100", "1,000", "10.000"; not "10.5", nor "10%", as bars begin. */
static bool whole_at(const char *at, int64_t *out)
{
    int64_t value = 0;
    int n = 0;
    for (; n < 15 && isdigit((unsigned char)*at); at++) {
        value = value * 10 + (*at - '0');
        n++;
        if (at[1] == ',' && isdigit((unsigned char)at[2]) &&
            isdigit((unsigned char)at[3]) && isdigit((unsigned char)at[4]) &&
            !isdigit((unsigned char)at[5]))
            at++;
    }
    if (n > 0 && *at == '.' && at[1] == '0') at = past(at + 1, "0");
    if (n == 0 || (*at == '.' && isdigit((unsigned char)at[1])) || is_word(*at) ||
        *past(at, " ") == '%')
        return false;
    *out = value;
    return true;
}

/* A progress bar: 10/100 [ */
static bool bar_step(const char *line, int64_t *out)
{
    for (const char *slash = line; (slash = strchr(slash, '/')) != NULL; slash++) {
        const char *first = slash, *end = slash + 1 + strspn(slash + 1, "0123456789");
        while (first > line && isdigit((unsigned char)first[-1]))
            first--;
        if (first == slash || end == slash + 1) continue;
        if (strncmp(end, " [", 2) == 0 && whole_at(first, out)) return true;
    }
    return false;
}

/* Past "/max_steps" behind "global_step", where the number is "5/100". */
static const char *past_ratio(const char *at)
{
    if (*at != '/') return at;
    const char *end = at + 1, *value;
    while (is_word(*end))
        end++;
    value = past_separators(end);
    const char *slash = past(value, "0123456789");
    return slash > value && *slash == '/' && isdigit((unsigned char)slash[1]) ? end : at;
}

/* "5/100", "  5/ 100": what it is one of, above which it does not get. */
static int64_t of_at(const char *at, int64_t step)
{
    int64_t of;
    at = past(past(past(at, " \t"), "0123456789"), " \t");
    if (*at != '/' || !whole_at(past(at + 1, " \t"), &of)) return 0;
    return step <= of ? of : 0;
}

/* [  50/2000] or [  50/2000 (  2%)] */
static bool bracket_step(const char *line, usc_curve_at *out)
{
    for (const char *at = line; (at = strchr(at, '[')) != NULL;) {
        int64_t step;
        at = past(at + 1, " \t");
        const int64_t of = whole_at(at, &step) ? of_at(at, step) : 0;
        if (of == 0) continue;
        const char *end = past(strchr(at, '/') + 1, " \t0123456789");
        if (*end != ']' && *end != '(') continue;
        out->step = step;
        out->of = of;
        return true;
    }
    return false;
}

/* "epoch 3", "Epoch(train) [3]", "Epoch: [  3/ 10]"; -1: none, or no whole number. */
static int64_t epoch_of(const char *line)
{
    int64_t epoch;
    for (const char *at = line; (at = strcasestr(at, "epoch")) != NULL;) {
        const bool inside = at > line && is_word(at[-1]);
        at += strlen("epoch");
        const char *end = *at == '(' ? at + strcspn(at, ")") : at;
        end += *end == ')';
        if (!inside && !is_word(*end) && whole_at(past_separators(end), &epoch))
            return epoch;
    }
    return -1;
}

static int64_t named_step(usc_curve_maker *m, const char *line, int64_t *of)
{
    static const char *const names[] = {"global_step", "steps", "step",
                                        "iteration",   "iter",  "num_updates"};
    int64_t step;
    for (const char *at = line; *at != '\0'; at++) {
        if (at > line && is_word(at[-1])) continue;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            const size_t n = strlen(names[i]);
            if (strncasecmp(at, names[i], n) != 0 || is_word(at[n])) continue;
            const char *end = past_ratio(at + n), *value = past_separators(end);
            if (!whole_at(past(value, "#"), &step)) continue;
            usc_curve_axis(m, at, (size_t)(end - at));
            *of = of_at(value, step);
            return step;
        }
    }
    return USC_NO_STEP;
}

static usc_curve_at step_of(usc_curve_maker *m, const char *line)
{
    usc_curve_at at = {.epoch = epoch_of(line)};
    at.step = named_step(m, line, &at.of);
    if (at.step == USC_NO_STEP && bracket_step(line, &at))
        usc_curve_axis(m, "[step/steps]", 12);
    else if (at.step == USC_NO_STEP && bar_step(line, &at.step))
        usc_curve_axis(m, "progress bar", 12);
    if (at.step == USC_NO_STEP || at.epoch < 0) at.of = 0;
    return at;
}

/* ---- names ---- */

/* Where the name that holds `at` begins: letters, what names are joined with, and one
 * more word before a single space: "lm loss". */
static const char *name_start(const char *line, const char *at)
{
    while (at > line && (is_word(at[-1]) || strchr("/.-", at[-1]) != NULL))
        at--;
    while (!is_word(*at))
        at++;
    const char *word = at - 1;
    if (at < line + 2 || *word != ' ') return at;
    while (word > line && isalpha((unsigned char)word[-1]))
        word--;
    const bool alone = word == line || !(is_word(word[-1]) || word[-1] == '/');
    return word < at - 1 && alone ? word : at;
}

typedef struct named_number {
    const char *name, *text; /* text: of the number */
    size_t n;
    double value;
} named_number;

/* Past the word behind "loss" in "loss train: 2.5"; else where it was. */
static const char *past_whose(const char *at)
{
    static const char *const whose[] = {"train", "training", "total", "avg", "mean"};
    for (size_t i = 0; *at == ' ' && i < sizeof whose / sizeof whose[0]; i++) {
        const size_t n = strlen(whose[i]);
        if (strncasecmp(at + 1, whose[i], n) == 0 && strchr(":=", at[n + 1]) != NULL)
            return at + n + 1;
    }
    return at;
}

/* The next number that has `word` in the name before it, from *at on. */
static bool next_number(const char *line, const char *word, bool exact, const char **at,
                        named_number *out)
{
    for (const char *found; (found = strcasestr(*at, word)) != NULL;) {
        const char *end = found + strlen(word);
        *at = end;
        if (!exact) end = past_whose(past_word(end));
        if (!number_at(end, &out->value)) continue;
        if (exact && found > line && (is_word(found[-1]) || is_word(*end))) continue;
        out->name = exact ? found : name_start(line, found);
        out->n = (size_t)(end - out->name);
        out->text = past_separators(end);
        return true;
    }
    return false;
}

static void take_line(usc_curve_maker *m, const char *line, bool offer)
{
    const char *key = m->options->key, *at = line;
    named_number number;
    while (next_number(line, key != NULL ? key : "loss", key != NULL, &at, &number)) {
        if (offer) {
            usc_curve_offer(m, number.name, number.n, number.value);
        } else if (usc_curve_is_key(m, number.name, number.n)) {
            usc_curve_printed(m, number.text, strlen(number.text));
            usc_curve_add_at(m, step_of(m, line), number.value);
            return;
        }
    }
}

static void take_match(usc_curve_maker *m, const usc_curve_regex *regex, const char *line)
{
    const char *loss, *step;
    size_t n_loss, n_step;
    double value;
    usc_curve_at number = {.step = USC_NO_STEP};
    if (!usc_curve_regex_find(regex, line, &loss, &n_loss, &step, &n_step)) return;
    if (!usc_curve_number(loss, n_loss, &value)) return;
    if (step == NULL || !usc_curve_step(step, n_step, &number.step))
        number = step_of(m, line);
    else
        usc_curve_axis(m, "group step", 10);
    usc_curve_printed(m, loss, n_loss);
    usc_curve_add_at(m, number, value);
}

/* The last byte of what a terminal is told at `i`: ESC [ 31 m, ESC [ K, ESC 7. */
static size_t escape_end(const char *line, size_t n, size_t i)
{
    if (i + 1 >= n || line[i + 1] != '[') return i + 1;
    for (i += 2; i < n && (line[i] < '@' || line[i] > '~');)
        i++;
    return i;
}

/* A copy of a line, cut to LONGEST, without colours and moves of a terminal. */
static void copy_line(const char *line, size_t n, char *out)
{
    size_t size = 0;
    for (size_t i = 0; i < n && size < LONGEST - 1; i++) {
        if (line[i] == '\033')
            i = escape_end(line, n, i);
        else
            out[size++] = line[i];
    }
    out[size] = '\0';
}

static void each_line(usc_curve_maker *m, const char *data, size_t size,
                      const usc_curve_regex *regex, bool offer)
{
    const char *at = data, *line;
    char text[LONGEST];
    size_t n;
    while (m->status == USC_OK && usc_curve_line(&at, data + size, &line, &n)) {
        copy_line(line, n, text);
        if (regex != NULL)
            take_match(m, regex, text);
        else
            take_line(m, text, offer);
    }
}

void usc_curve_log(usc_curve_maker *m, const char *data, size_t size)
{
    m->form = "log";
    if (m->options->regex == NULL) {
        each_line(m, data, size, NULL, true);
        usc_curve_choose(m);
        each_line(m, data, size, NULL, false);
        return;
    }
    usc_curve_regex *regex;
    m->status = usc_curve_regex_make(m->options->regex, &regex, m->err);
    if (m->status == USC_OK) each_line(m, data, size, regex, false);
    usc_curve_regex_free(regex);
}
