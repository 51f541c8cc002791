// SPDX-License-Identifier: Apache-2.0
// C++ as the compiler's first phases see it: spliced lines, comments, texts, raw texts,
// numbers with separators, preprocessor lines. Digraphs are not known.
#include "port/port_token.h"

#include <string.h>

typedef struct scan {
    const char *text;
    size_t n, at;
    usc_port_tokens *out;
    bool directive;  /* in a preprocessor line */
    bool line_start; /* only blanks and comments since the line began */
    bool header;     /* behind #include */
    bool message;    /* behind #error and its like: words, not tokens */
} scan;

static char byte_at(const scan *s, size_t at)
{
    return at < s->n ? s->text[at] : '\0';
}

/* Bytes of a backslash with the end of a line behind it; 0 where there is none. */
static size_t splice_at(const scan *s, size_t at)
{
    if (byte_at(s, at) != '\\') return 0;
    if (byte_at(s, at + 1) == '\n') return 2;
    return byte_at(s, at + 1) == '\r' && byte_at(s, at + 2) == '\n' ? 3 : 0;
}

static bool ends_line(const scan *s, size_t at)
{
    return at >= s->n || s->text[at] == '\n' ||
           (s->text[at] == '\r' && byte_at(s, at + 1) == '\n');
}

static size_t skip_blanks(const scan *s, size_t at)
{
    for (size_t n; at < s->n; at += n) {
        const char c = s->text[at];
        n = c == ' ' || c == '\t' || c == '\f' || c == '\v';
        if (n == 0 && c == '\\') n = splice_at(s, at);
        if (n == 0 && c == '\r') n = byte_at(s, at + 1) != '\n';
        if (n == 0) break;
    }
    return at;
}

/* Behind the name that begins at `at`; *spliced: a line ends in it. */
static size_t skip_name(const scan *s, size_t at, bool *spliced)
{
    for (;;) {
        while (at < s->n && (usc_port_in_name(s->text[at]) || s->text[at] == '$'))
            at++;
        const size_t n = splice_at(s, at);
        /* a splice belongs to the name only where the name goes on behind it */
        if (n == 0 || !usc_port_in_name(byte_at(s, at + n))) return at;
        *spliced = true;
        at += n;
    }
}

static size_t skip_number(const scan *s, size_t at)
{
    for (; at < s->n; at++) {
        const char c = s->text[at];
        const bool power =
            at > 0 && (c == '+' || c == '-') && strchr("eEpP", s->text[at - 1]) != NULL;
        const bool parted = c == '\'' && usc_port_in_name(byte_at(s, at + 1));
        if (!usc_port_in_name(c) && c != '.' && !power && !parted) break;
    }
    return at;
}

static size_t skip_line_comment(const scan *s, size_t at)
{
    for (size_t from = at;;) {
        const char *found = memchr(s->text + from, '\n', s->n - from);
        if (found == NULL) return s->n;
        size_t end = (size_t)(found - s->text);
        from = end + 1;
        if (end > at && s->text[end - 1] == '\r') end--;
        if (s->text[end - 1] != '\\') return end;
    }
}

static size_t skip_block_comment(const scan *s, size_t at)
{
    for (size_t from = at + 3; from < s->n; from++) {
        const char *found = memchr(s->text + from, '/', s->n - from);
        if (found == NULL) break;
        from = (size_t)(found - s->text);
        if (found[-1] == '*') return from + 1;
    }
    usc_port_unended(s->out, "a comment", at);
    return s->n;
}

/* Behind the quote that ends a text which begins at `at`. */
static size_t skip_text(const scan *s, size_t at)
{
    const char quote = s->text[at];
    size_t i = at + 1;
    while (!ends_line(s, i)) {
        const size_t n = splice_at(s, i);
        if (n > 0) {
            i += n;
        } else if (s->text[i] == '\\' && !ends_line(s, i + 1)) {
            i += 2;
        } else if (s->text[i++] == quote) {
            return i;
        }
    }
    /* an apostrophe in what no compiler reads ("don't" below #if 0) is nobody's fault */
    if (quote == '"' && !s->message) usc_port_unended(s->out, "a text in quotes", at);
    return i;
}

/* R"mark( ... )mark": `at` is at the quote. */
static size_t skip_raw(const scan *s, size_t at)
{
    size_t mark = 0;
    while (mark <= 16 && at + 1 + mark < s->n && s->text[at + 1 + mark] != '(') {
        if (strchr(" )\\\t\n\"", s->text[at + 1 + mark]) != NULL) return skip_text(s, at);
        mark++;
    }
    if (byte_at(s, at + 1 + mark) != '(') return skip_text(s, at);
    for (size_t i = at + 2 + mark; i + mark + 1 < s->n; i++)
        if (s->text[i] == ')' && s->text[i + 1 + mark] == '"' &&
            memcmp(s->text + i + 1, s->text + at + 1, mark) == 0)
            return i + mark + 2;
    usc_port_unended(s->out, "a raw text", at);
    return s->n;
}

static bool is_prefix(const char *name, size_t n, bool *raw)
{
    static const char *const known[] = {"u8", "u",  "U",  "L", "u8R",
                                        "uR", "UR", "LR", "R"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0) {
            *raw = name[n - 1] == 'R';
            return true;
        }
    return false;
}

/* A token with bytes. */
static inline void put(scan *s, usc_port_kind kind, size_t end)
{
    usc_port_tokens *out = s->out;
    if (out->n == out->size && !usc_port_tokens_grow(out)) return;
    out->token[out->n++] = (usc_port_token){.start = (uint32_t)s->at,
                                            .end = (uint32_t)end,
                                            .kind = (uint8_t)kind,
                                            .directive = s->directive};
    s->line_start &= kind == USC_PORT_SPACE || kind == USC_PORT_COMMENT;
    s->at = end;
}

static void push(scan *s, usc_port_kind kind, size_t end)
{
    if (end > s->at) put(s, kind, end);
}

static void take_name(scan *s)
{
    bool spliced = false;
    const size_t start = s->at, end = skip_name(s, start, &spliced);
    const char quote = byte_at(s, end);
    bool raw = false;
    if ((quote == '"' || quote == '\'') &&
        is_prefix(s->text + start, end - start, &raw) && (quote == '"' || !raw)) {
        push(s, USC_PORT_TEXT, raw ? skip_raw(s, end) : skip_text(s, end));
        return;
    }
    push(s, USC_PORT_NAME, end);
    const usc_port_tokens *out = s->out;
    if (out->n == 0) return; /* no memory */
    out->token[out->n - 1].spliced = spliced;
    if (!s->directive) return;
    static const char *const includes[] = {"include", "include_next", "import"};
    static const char *const messages[] = {"error", "warning", "pragma"};
    for (int i = 0; i < 3; i++) {
        s->header |= usc_port_is(s->text, &out->token[out->n - 1], includes[i]);
        s->message |= usc_port_is(s->text, &out->token[out->n - 1], messages[i]);
    }
}

/* <path> or "path" behind #include; 0 where none stands there. */
static size_t skip_header(const scan *s)
{
    const char open = s->text[s->at], close = open == '<' ? '>' : '"';
    if (open != '<' && open != '"') return 0;
    for (size_t i = s->at + 1; !ends_line(s, i); i++)
        if (s->text[i] == close) return i + 1;
    return 0;
}

static void take_other(scan *s)
{
    const char c = s->text[s->at], next = byte_at(s, s->at + 1);
    if ((usc_port_in_name(c) && (c < '0' || c > '9')) || c == '$') {
        take_name(s);
    } else if (c == '#' && s->line_start) {
        s->directive = true;
        push(s, USC_PORT_PUNCT, s->at + 1);
    } else if (c == '/' && next == '/') {
        push(s, USC_PORT_COMMENT, skip_line_comment(s, s->at));
    } else if (c == '/' && next == '*') {
        push(s, USC_PORT_COMMENT, skip_block_comment(s, s->at));
    } else if (c == '"' || c == '\'') {
        push(s, USC_PORT_TEXT, skip_text(s, s->at));
    } else if ((c >= '0' && c <= '9') || (c == '.' && next >= '0' && next <= '9')) {
        push(s, USC_PORT_NUMBER, skip_number(s, s->at));
    } else {
        const bool two = (c == ':' && next == ':') || (c == '-' && next == '>');
        push(s, USC_PORT_PUNCT, s->at + (two ? 2 : 1));
    }
}

/* What a byte begins, where that is all there is to know; else the long way. */
enum { LONG_WAY, BLANK, LETTER, SIGN };

static uint8_t begins(char c)
{
    static const uint8_t begun[128] = {
        [' '] = BLANK, ['\t'] = BLANK, ['('] = SIGN, [')'] = SIGN, ['['] = SIGN,
        [']'] = SIGN,  ['{'] = SIGN,   ['}'] = SIGN, [','] = SIGN, [';'] = SIGN,
        ['='] = SIGN,  ['+'] = SIGN,   ['*'] = SIGN, ['!'] = SIGN, ['&'] = SIGN,
        ['|'] = SIGN,  ['?'] = SIGN,   ['<'] = SIGN, ['>'] = SIGN,
    };
    const unsigned char at = (unsigned char)c;
    if (usc_port_in_name(c)) return at >= '0' && at <= '9' ? LONG_WAY : LETTER;
    return begun[at & 127];
}

/* One token, or more of them. */
static void take(scan *s)
{
    const size_t blanks = skip_blanks(s, s->at);
    const size_t header = s->header ? skip_header(s) : 0;
    if (blanks > s->at) {
        push(s, USC_PORT_SPACE, blanks);
    } else if (ends_line(s, s->at)) {
        push(s, USC_PORT_NEWLINE, s->at + (s->text[s->at] == '\r' ? 2 : 1));
        s->directive = s->header = s->message = false;
        s->line_start = true;
    } else if (header > 0) {
        push(s, USC_PORT_HEADER, header);
        s->header = false;
    } else {
        take_other(s);
    }
}

/* The end of a name as nearly all are: no text begins there, no line is spliced, and no
 * directive is about; 0 for others. */
static size_t plain_name(const scan *s)
{
    const char *text = s->text;
    const size_t n = s->n;
    size_t end = s->at + 1;
    while (end < n && usc_port_in_name(text[end]))
        end++;
    const char next = end < n ? text[end] : '\0';
    return s->directive || next == '"' || next == '\'' || next == '\\' || next == '$'
               ? 0
               : end;
}

void usc_port_cut_cxx(const char *text, size_t n, usc_port_tokens *out)
{
    scan s = {.text = text, .n = n, .out = out, .line_start = true};
    usc_port_tokens_reserve(out, n / 4);
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) push(&s, USC_PORT_SPACE, 3);
    while (s.at < n && !out->failed) {
        const uint8_t begun = s.header ? LONG_WAY : begins(text[s.at]);
        if (begun == LETTER) {
            const size_t end = plain_name(&s);
            if (end > 0)
                put(&s, USC_PORT_NAME, end);
            else
                take_name(&s);
        } else if (begun == SIGN) {
            put(&s, USC_PORT_PUNCT, s.at + 1);
        } else if (begun == BLANK && s.at + 1 < n && begins(text[s.at + 1]) == LETTER) {
            put(&s, USC_PORT_SPACE, s.at + 1);
        } else {
            take(&s);
        }
    }
}
