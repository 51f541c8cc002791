// SPDX-License-Identifier: Apache-2.0
// The reader of defaults (ulpscope/x/toml.h): every form of TOML 1.0 that a project's
// files have, and what is wrong with those that are none.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ulpscope/x/toml.h>

typedef struct heard {
    char text[1024];
    size_t n;
    int stop_at; /* a line at which the hearer has enough; 0: none */
} heard;

/* a.b=[text]: what was heard, with a letter for the kind and one for an array. */
static bool hear(const usc_toml_value *v, void *ctx)
{
    heard *h = ctx;
    static const char kinds[] = "tbpAT";
    if (h->stop_at == v->line) return false;
    char keys[256] = "";
    size_t n = 0;
    for (int i = 0; i < v->n_keys && i < USC_TOML_MOST_KEYS && n < sizeof keys; i++)
        n += (size_t)snprintf(keys + n, sizeof keys - n, "%s%s", i > 0 ? "." : "",
                              v->keys[i]);
    if (h->n < sizeof h->text)
        h->n += (size_t)snprintf(h->text + h->n, sizeof h->text - h->n, "%s%s=%c%s%s@%d",
                                 h->n > 0 ? " " : "", keys, kinds[v->kind],
                                 v->in_array ? "+" : "", v->text, v->line);
    return true;
}

static void test_what_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *toml, *heard;
    } rows[] = {
        {"", ""},
        {"# only\n\n", ""},
        {"\xEF\xBB\xBF"
         "a = 1",
         "a=p1@1"},
        {"a = 1\r\nb = 2\r\n", "a=p1@1 b=p2@2"},
        {"a=\"x # y\" # z", "a=tx # y@1"},
        {"a = 'C:\\dir'", "a=tC:\\dir@1"},
        {"a = \"\"", "a=t@1"},
        {"a = \"\\t\\u00e9\\U0001F600\\\\\"", "a=t\t\xC3\xA9\xF0\x9F\x98\x80\\@1"},
        {"a = \"\"\"\nx\ny\\\n   z\"\"\"\nb=1", "a=tx\nyz@1 b=p1@5"},
        {"a = \"\"\"\"x\"\"\"\"", "a=t\"x\"@1"},
        {"a = '''\n'x'\n'''", "a=t'x'\n@1"},
        {"a = true\nb = false", "a=btrue@1 b=bfalse@2"},
        {"a = 1979-05-27 07:32:00 # d", "a=p1979-05-27 07:32:00@1"},
        {"a = -1_000.5e+3\nb = +inf\nc = 0xff", "a=p-1_000.5e+3@1 b=p+inf@2 c=p0xff@3"},
        {"a . \"b c\" . 'd' = 1", "a.b c.d=p1@1"},
        {"[t]\na = 1\n[t.u] # x\nb = 2\n[[v]]\nc = 3",
         "t=T@1 t.a=p1@2 t.u=T@3 t.u.b=p2@4 v=T@5 v.c=p3@6"},
        {"a = [ 1, # one\n \"x\",\n]\nb = []", "a=A@1 a=p+1@1 a=t+x@2 b=A@4"},
        {"a = [[1], [2]]", "a=A@1 a=A+@1 a=p+1@1 a=A+@1 a=p+2@1"},
        {"a = { b = 1, c.d = 'x' }\ne = 2", "a=T@1 a.b=p1@1 a.c.d=tx@1 e=p2@2"},
        {"a = [ { b = [1] } ]", "a=A@1 a=T+@1 a.b=A@1 a.b=p+1@1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        heard h = {.text = ""};
        int line = 0;
        char why[128];
        if (!usc_toml_read(rows[i].toml, strlen(rows[i].toml), hear, &h, &line, why))
            fail_msg("row %zu, line %d: %s", i, line, why);
        assert_string_equal(h.text, rows[i].heard);
    }
}

static void test_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *toml;
        int line;
        const char *why;
    } rows[] = {
        {"a", 1, "'=' is missing"},
        {"\n= 1", 2, "a key is missing"},
        {"a. = 1", 1, "a key is missing"},
        {"a =", 1, "a value is missing"},
        {"a = x", 1, "'x' is no value"},
        {"a = 1 2", 1, "more than one value"},
        {"a = \"x", 1, "no closing \""},
        {"a = \"x\ny\"", 1, "no closing \""},
        {"a = \"\"\"x\n\n", 1, "no closing \""},
        {"a = \"\\x\"", 1, "no escape"},
        {"a = \"\\ud800\"", 1, "no character U+D800"},
        {"a = \"\\u00\"", 1, "4 hexadecimal digits"},
        {"a = \"\\u0000\"", 1, "no character U+0000"},
        {"a = '\x01'", 1, "control character 1"},
        {"a = [1", 1, "no closing ]"},
        {"a = [1\n2]", 2, "',' or ']'"},
        {"a = {b = 1 c = 2}", 1, "',' or '}'"},
        {"a = {", 1, "no closing }"},
        {"[a", 1, "']' is missing"},
        {"[[a]", 1, "']]' is missing"},
        {"\"\"\"a\"\"\" = 1", 1, "several lines"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        heard h = {.text = ""};
        int line = 0;
        char why[128];
        if (usc_toml_read(rows[i].toml, strlen(rows[i].toml), hear, &h, &line, why) ||
            strstr(why, rows[i].why) == NULL || line != rows[i].line)
            fail_msg("row %zu, line %d: %s", i, line, why);
    }
}

static void test_deep_long_and_enough(void **state)
{
    (void)state;
    char deep[4 + 2 * USC_TOML_DEEPEST], why[128];
    heard h = {.text = ""};
    int line = 0;
    memcpy(deep, "a = ", 4);
    memset(deep + 4, '[', sizeof deep - 4);
    assert_false(usc_toml_read(deep, sizeof deep, hear, &h, &line, why));
    assert_non_null(strstr(why, "too deep"));

    char keys[4 * USC_TOML_MOST_KEYS + 8]; /* more keys than are handed on */
    size_t n = 0;
    for (int i = 0; i < 2 * USC_TOML_MOST_KEYS; i++)
        n += (size_t)snprintf(keys + n, sizeof keys - n, "%sk", i > 0 ? "." : "");
    (void)snprintf(keys + n, sizeof keys - n, "=1");
    assert_true(usc_toml_read(keys, strlen(keys), hear, &h, &line, why));

    char wide[3 * USC_TOML_LONGEST_KEY];
    memset(wide, 'x', sizeof wide);
    memcpy(wide + sizeof wide - 2, "=1", 2);
    h = (heard){.text = ""};
    assert_true(usc_toml_read(wide, sizeof wide, hear, &h, &line, why));
    assert_int_equal(strcspn(h.text, "="), USC_TOML_LONGEST_KEY - 1);

    h = (heard){.text = "", .stop_at = 2};
    assert_false(usc_toml_read("a=1\nb=2\nc=3", 11, hear, &h, &line, why));
    assert_string_equal(why, "");
    assert_string_equal(h.text, "a=p1@1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_deep_long_and_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
