// SPDX-License-Identifier: Apache-2.0
// Globs over operator names; the syntax stands in ulpscope/x/pattern.h.
#include <ulpscope/x/pattern.h>
#include <ulpscope/x/unmatched.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A piece of text that somebody else owns. */
typedef struct span {
    const char *at;
    size_t n;
} span;

static span span_trim(span s)
{
    while (s.n > 0 && isspace((unsigned char)s.at[0]))
        s.at++, s.n--;
    while (s.n > 0 && isspace((unsigned char)s.at[s.n - 1]))
        s.n--;
    return s;
}

static bool span_contains(span s, const char *needle)
{
    const size_t n = strlen(needle);
    for (size_t i = 0; i + n <= s.n; i++)
        if (memcmp(s.at + i, needle, n) == 0) return true;
    return false;
}

/* Takes the next comma-separated item off `*rest`, which starts not NULL and ends NULL.
 */
static span next_item(const char **rest)
{
    const char *start = *rest;
    const char *comma = strchr(start, ',');
    const size_t n = comma != NULL ? (size_t)(comma - start) : strlen(start);
    *rest = comma != NULL ? comma + 1 : NULL;
    return span_trim((span){start, n});
}

/* Linear in time: only the last `*` is ever gone back to. */
static bool glob_match(span glob, span text)
{
    size_t g = 0, t = 0, star = SIZE_MAX, star_t = 0;
    while (t < text.n) {
        if (g < glob.n && glob.at[g] == '*') {
            star = g++;
            star_t = t;
        } else if (g < glob.n && (glob.at[g] == '?' || glob.at[g] == text.at[t])) {
            g++, t++;
        } else if (star != SIZE_MAX) {
            g = star + 1;
            t = ++star_t;
        } else {
            return false;
        }
    }
    while (g < glob.n && glob.at[g] == '*')
        g++;
    return g == glob.n;
}

/* `name` comes without its overload. An empty overload means `default`, which the name
 * does not spell out but a glob may: its `.default` is taken off then. */
static bool name_match(span glob, span name, span overload)
{
    if (glob_match(glob, name)) return true;
    if (overload.n > 0) return glob_match(glob, (span){name.at, name.n + 1 + overload.n});
    static const char suffix[] = ".default";
    const size_t n = sizeof suffix - 1;
    return glob.n > n && memcmp(glob.at + glob.n - n, suffix, n) == 0 &&
           glob_match((span){glob.at, glob.n - n}, name);
}

/* A Python function: by its whole name, or by the last word of it. */
static bool function_match(span glob, const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *last = dot != NULL ? dot + 1 : name;
    return glob_match(glob, (span){name, strlen(name)}) ||
           glob_match(glob, (span){last, strlen(last)});
}

static bool op_match(span glob, const char *op_name)
{
    const char *colons = strstr(op_name, "::");
    if (colons == NULL) return function_match(glob, op_name);
    const char *base = colons + 2;
    const char *dot = strchr(base, '.');
    const char *end = dot != NULL ? dot : base + strlen(base);
    const span overload = dot != NULL ? (span){dot + 1, strlen(dot + 1)} : (span){end, 0};
    const char *from = span_contains(glob, "::") ? op_name : base;
    return name_match(glob, (span){from, (size_t)(end - from)}, overload);
}

/* A module: by its own path, or by that of one around it. */
static bool path_match(span glob, const char *path)
{
    for (size_t n = 0;; n++) {
        if ((path[n] == '.' || path[n] == '\0') && glob_match(glob, (span){path, n}))
            return true;
        if (path[n] == '\0') return false;
    }
}

static bool list_match(const char *pattern, const char *name,
                       bool (*match)(span glob, const char *name))
{
    bool any_plain = false, matched = false;
    for (const char *rest = pattern; rest != NULL;) {
        span item = next_item(&rest);
        if (item.n == 0) continue;
        if (item.at[0] == '!') {
            item = span_trim((span){item.at + 1, item.n - 1});
            if (match(item, name)) return false;
        } else {
            any_plain = true;
            matched = matched || match(item, name);
        }
    }
    return matched || !any_plain;
}

bool usc_pattern_match(const char *pattern, const char *op_name)
{
    return list_match(pattern, op_name, op_match);
}

bool usc_pattern_covers(const char *pattern, const char *path)
{
    return list_match(pattern, path, path_match);
}

static bool matches_any(span glob, const char *const *names, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (op_match(glob, names[i])) return true;
    return false;
}

void usc_pattern_unmatched(const char *pattern, const char *const *names, int64_t n,
                           char *out, size_t size)
{
    size_t used = 0;
    if (size > 0) out[0] = '\0';
    for (const char *rest = pattern; rest != NULL;) {
        const span item = next_item(&rest);
        if (item.n == 0 || item.at[0] == '!' || matches_any(item, names, n)) continue;
        const int more = snprintf(out + used, size - used, "%s'%.*s'",
                                  used > 0 ? ", " : "", (int)item.n, item.at);
        if (more < 0 || (size_t)more >= size - used) {
            if (used < size) out[used] = '\0';
            return;
        }
        used += (size_t)more;
    }
}

static bool char_allowed(char c)
{
    return isalnum((unsigned char)c) || (c != '\0' && strchr("_.:*?", c) != NULL);
}

usc_status usc_pattern_check(const char *pattern, usc_error *err)
{
    const span whole = {pattern, pattern != NULL ? strlen(pattern) : 0};
    if (span_trim(whole).n == 0) return USC_OK;
    for (const char *rest = pattern; rest != NULL;) {
        span item = next_item(&rest);
        if (item.n > 0 && item.at[0] == '!')
            item = span_trim((span){item.at + 1, item.n - 1});
        if (item.n == 0)
            return usc_error_set(err, USC_E_ARG, item.at - pattern,
                                 "pattern '%s': empty item at byte %d", pattern,
                                 (int)(item.at - pattern));
        for (size_t i = 0; i < item.n; i++)
            if (!char_allowed(item.at[i]))
                return usc_error_set(err, USC_E_ARG, item.at + i - pattern,
                                     "pattern '%s': '%c' at byte %d is not allowed",
                                     pattern, item.at[i], (int)(item.at + i - pattern));
    }
    return USC_OK;
}

double usc_likeness(const char *a, const char *b)
{
    enum { MOST = 63 };
    int row[MOST + 1] = {0};
    const size_t n_a = strnlen(a, MOST), n_b = strnlen(b, MOST);
    for (size_t i = 0; i < n_a; i++) {
        int corner = 0;
        for (size_t j = 1; j <= n_b; j++) {
            const int above = row[j];
            const int longest = above > row[j - 1] ? above : row[j - 1];
            const bool same =
                tolower((unsigned char)a[i]) == tolower((unsigned char)b[j - 1]);
            row[j] = same ? corner + 1 : longest;
            corner = above;
        }
    }
    return n_a + n_b > 0 ? 2.0 * row[n_b] / (double)(n_a + n_b) : 1;
}
