// SPDX-License-Identifier: Apache-2.0
// Schedules of faults: lines of JSON. What the members mean: ulpscope/x/inject.h.
#include "watch/inject.h"

#include <ulpscope/x/pattern.h>

#include "base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[USC_N_INJECT_KINDS] = {
#define NAME(id, name, what) [USC_INJECT_##id] = name,
    USC_INJECT_LIST(NAME)
#undef NAME
};

static const char *const texts[USC_N_INJECT_KINDS] = {
#define TEXT(id, name, what) [USC_INJECT_##id] = what,
    USC_INJECT_LIST(TEXT)
#undef TEXT
};

static const char *const members[] = {
    "step", "steps", "rank", "site",  "name",  "fault",  "element", "count", "every",
    "bit",  "bits",  "mask", "value", "shift", "factor", "growth",  "p"};

const char *usc_inject_kind_name(usc_inject_kind kind)
{
    return (unsigned)kind < USC_N_INJECT_KINDS ? names[kind] : NULL;
}

const char *usc_inject_kind_text(usc_inject_kind kind)
{
    return (unsigned)kind < USC_N_INJECT_KINDS ? texts[kind] : NULL;
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp(key, members[i]) == 0) return true;
    return false;
}

static void check_members(usc_json_taker *t, const usc_json *object)
{
    const char *key;
    const usc_json *value;
    for (void *at = NULL; usc_json_next(object, &at, &key, &value);)
        if (!is_known(key))
            usc_json_wrong(t, key,
                           "is not known; members are step, steps, rank, site, name, "
                           "fault, element, count, every, bit, bits, mask, value, shift, "
                           "factor, growth, p");
}

static void take_kind(usc_json_taker *t, const usc_json *object, usc_inject_rule *r)
{
    const char *name = usc_json_text(t, object, "fault", "");
    for (int k = 0; k < USC_N_INJECT_KINDS; k++)
        if (strcmp(name, names[k]) == 0) {
            r->kind = (usc_inject_kind)k;
            return;
        }
    usc_json_wrong(t, "fault",
                   "must be flip, mask, carry, stuck, scale, zero, stale, shift, swap or "
                   "narrow");
}

static const char *take_pattern(usc_json_taker *t, const usc_json *object,
                                const char *key)
{
    usc_error why;
    const char *text = usc_json_text(t, object, key, NULL);
    if (text != NULL && usc_pattern_check(text, &why) != USC_OK)
        usc_json_wrong(t, key, "is no PATTERN");
    return text;
}

/* A number, or a text such as "0x7f80": JSON has no hexadecimal digits. */
static uint64_t take_mask(usc_json_taker *t, const usc_json *object)
{
    const usc_json *value = usc_json_get(object, "mask");
    const char *text = usc_json_as_text(value);
    if (text == NULL) return (uint64_t)usc_json_integer(t, object, "mask", 0);
    char *end;
    errno = 0;
    const uint64_t mask = strtoull(text, &end, 16);
    if (*end != '\0' || end == text || errno != 0 || *text == '-')
        usc_json_wrong(t, "mask", "is no hexadecimal number, such as \"0x7f80\"");
    return mask;
}

static int64_t take_within(usc_json_taker *t, const usc_json *object, const char *key,
                           int64_t otherwise, int64_t least, const char *how)
{
    const int64_t value = usc_json_integer(t, object, key, otherwise);
    if (value < least) usc_json_wrong(t, key, how);
    return value;
}

static void take_when(usc_json_taker *t, const usc_json *object, usc_inject_rule *r)
{
    r->step = take_within(t, object, "step", 0, 0, "counts from 0");
    r->n_steps = take_within(t, object, "steps", 1, -1, "must be -1, or 1 and more");
    r->rank = take_within(t, object, "rank", -1, -1, "must be -1 (all), or 0 and more");
    r->site = take_pattern(t, object, "site");
    r->name = take_pattern(t, object, "name");
    r->p = usc_json_number(t, object, "p", 1);
    if (!(r->p >= 0 && r->p <= 1)) usc_json_wrong(t, "p", "must lie between 0 and 1");
    if (r->n_steps == 0) usc_json_wrong(t, "steps", "must be -1, or 1 and more");
}

static void take_what(usc_json_taker *t, const usc_json *object, usc_inject_rule *r)
{
    take_kind(t, object, r);
    r->drawn = usc_json_get(object, "element") == NULL;
    r->element = usc_json_integer(t, object, "element", 0);
    r->count = take_within(t, object, "count", 1, -1, "must be -1 (to the end) or more");
    r->every = take_within(t, object, "every", 1, 0, "must be 0 (a column) or more");
    r->bit = take_within(t, object, "bit", -1, -1, "counts from 0, the lowest");
    r->n_bits = take_within(t, object, "bits", 2, 1, "must be 1 or more");
    r->mask = take_mask(t, object);
    r->value = usc_json_integer(t, object, "value", 1);
    r->shift = usc_json_integer(t, object, "shift", 1);
    r->factor = usc_json_number(t, object, "factor", 1.01);
    r->growth = usc_json_number(t, object, "growth", 1);
    if (r->value != 0 && r->value != 1) usc_json_wrong(t, "value", "must be 0 or 1");
}

usc_status usc_inject_read(const char *text, size_t size, int64_t line,
                           usc_inject_rule *out, usc_error *err)
{
    char name[48];
    (void)usc_format(name, sizeof name, "schedule, line %lld", (long long)line);
    *out = (usc_inject_rule){.line = line};
    const usc_status st =
        usc_json_parse(text, size, name, "not a fault as JSON, {\"fault\": \"flip\"}",
                       &out->document, err);
    if (st != USC_OK) return st;
    usc_json_taker t = {.name = name, .err = err};
    if (!usc_json_is_object(out->document)) usc_json_wrong(&t, NULL, "is no object");
    check_members(&t, out->document);
    take_when(&t, out->document, out);
    take_what(&t, out->document, out);
    return t.status;
}

void usc_inject_rule_free(usc_inject_rule *rule)
{
    usc_json_free(rule->document);
    free(rule->kept);
    *rule = (usc_inject_rule){0};
}
