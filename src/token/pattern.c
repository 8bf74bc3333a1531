// SPDX-License-Identifier: MIT
// Regular expressions of tokenizer files, run by PCRE2.
//
// They are written for Oniguruma, and the two engines read some of the syntax differently: what \s, \w and \h are, that ^ and
// $ stand at every line, that {1,3}+ repeats and is not possessive. So an expression is rewritten first, atom by atom; what
// cannot be rewritten is refused rather than matched differently. Where PCRE2's tables of Unicode are older than a character,
// the character belongs to no class.
//
// A hostile expression can take exponential time and a deep stack, so matches, depth and heap are limited. Compiled code
// ignores the limits of depth and heap but has a stack of its own; when that is full the interpreter, which honours them,
// tries again. A scan like a* counts as one step however long it is, and the limits hold for one place of one match, so the
// time for all matches of a text is limited too: a callout, put before everything that repeats, asks for it now and then.
// That is time of the thread's processor, which does not run while others do: still a measurement, but two orders of
// magnitude above what texts need.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "token/pattern_internal.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REGEX_MAX = 1 << 16, GROUP_MAX = 100, NAME_MAX_NBYTE = 40 };
enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 1000000, HEAP_LIMIT_KIB = 64 << 10 };
enum { BUDGET_FLOOR_NS = 2000000000, BUDGET_NS_PER_BYTE = 1000 }; // 2 s, and 1 s per MB
enum { ASK_EVERY = 1024, SCAN_UNIT = 1 << 16 };                   // see on_callout
static const char callout[] = "(?C)";
enum { JIT_STACK_START = 32 << 10, JIT_STACK_MAX = 1 << 20 };

// What Oniguruma 6.9 means, as the inside of a class.
#define SPACE                                                                                                        \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD                                                                                                         \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"                   \
  "\\x{1f170}-\\x{1f189}"
// \b, and \w outside classes, but neither \W nor \w in a class, take the superscripts and fractions of Latin-1 too.
#define LATIN "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

struct tr__pattern {
  pcre2_code *code;
  char *source, *name; // for messages
};

struct tr__matcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
  int64_t budget, end_ns; // of the text's matches; the time that ends it, 0: not yet asked for
  int work;               // since the time was asked for last
};

// An escape: how it is written outside and inside a class. NULL: it has no such form.
typedef struct escape_row {
  char letter;
  const char *outside, *inside;
} escape_row;

// clang-format off
static const escape_row escapes[] = {
    {'s', "[" SPACE "]", SPACE},
    {'S', "[^" SPACE "]", "\\S\\x{180e}"}, // PCRE2 alone takes U+180E for a blank
    {'w', "[" WORD LATIN "]", WORD},
    {'W', "[^" WORD "]", NULL},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {'H', "[^0-9A-Fa-f]", "\\x{0}-\\x{2f}\\x{3a}-\\x{40}\\x{47}-\\x{60}\\x{67}-\\x{10ffff}"},
    {'b', "(?:(?<=[" WORD LATIN "])(?![" WORD LATIN "])|(?<![" WORD LATIN "])(?=[" WORD LATIN "]))", "\\x{8}"},
    {'B', "(?:(?<=[" WORD LATIN "])(?=[" WORD LATIN "])|(?<![" WORD LATIN "])(?![" WORD LATIN "]))", NULL},
    {'v', "\\x{b}", "\\x{b}"},
    {'n', "\\n", "\\n"}, {'r', "\\r", "\\r"}, {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"}, {'a', "\\a", "\\a"}, {'e', "\\e", "\\e"},
    {'A', "\\A", NULL}, {'z', "\\z", NULL}, {'Z', "\\Z", NULL}, {'R', "\\R", NULL},
};
// clang-format on

// The expression being rewritten.
typedef struct rewrite {
  const char *text, *end;
  tr_text *out;
  size_t atom;             // where in `out` the last atom starts
  size_t watched;          // the atom that has its callout
  size_t group[GROUP_MAX]; // where the open groups start
  size_t ngroup;
  const char *wrong; // what cannot be rewritten
} rewrite;

static int fail(rewrite *r, const char *wrong) {
  r->wrong = wrong;
  return 0;
}

static int at(const rewrite *r, const char *text) {
  size_t n = strlen(text);
  return (size_t)(r->end - r->text) >= n && memcmp(r->text, text, n) == 0;
}

static void copy(rewrite *r, size_t n) {
  tr_text_append_bytes(r->out, r->text, n);
  r->text += n;
}

// \p{Lu} \p{^L} \P{N}: general categories by their short names, and scripts, which PCRE2 would take with their extensions.
static int property(rewrite *r) {
  char kind = r->text[1];
  const char *name = r->text + 3, *close = name;
  if (!at(r, "\\p{") && !at(r, "\\P{")) return fail(r, "\\p without {}");
  if (name < r->end && *name == '^') {
    kind = kind == 'p' ? 'P' : 'p';
    name++;
  }
  for (close = name; close < r->end && ((*close | 32) >= 'a' && (*close | 32) <= 'z'); close++) {
  }
  size_t n = (size_t)(close - name);
  if (close == r->end || *close != '}' || n == 0 || n > NAME_MAX_NBYTE) return fail(r, "a property of this form");
  tr_text_append(r->out, "\\%c{%s%.*s}", kind, n > 2 ? "sc:" : "", (int)n, name);
  r->text = close + 1;
  return 1;
}

// \x41 \x{41} \u0041
static int code_point(rewrite *r) {
  const char *digit = r->text + 2;
  int braces = digit < r->end && *digit == '{' && r->text[1] == 'x';
  size_t n = 0, most = braces ? 8 : r->text[1] == 'u' ? 4 : 2;
  digit += braces;
  while (n < most && digit + n < r->end && strchr("0123456789abcdefABCDEF", digit[n]) && digit[n]) n++;
  if (n == 0 || (braces && (digit + n == r->end || digit[n] != '}'))) return fail(r, "a code point of this form");
  tr_text_append(r->out, "\\x{%.*s}", (int)n, digit);
  r->text = digit + n + braces;
  return 1;
}

static int is_alphanumeric(char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'); }

static int escape(rewrite *r, int inside) {
  if (r->text + 1 == r->end) return fail(r, "a backslash at the end");
  char letter = r->text[1];
  if (letter == 'p' || letter == 'P') return property(r);
  if (letter == 'x' || letter == 'u') return code_point(r);
  if (!is_alphanumeric(letter)) {
    size_t n = 2;
    while (r->text + n < r->end && ((unsigned char)r->text[n] & 0xC0) == 0x80) n++;
    copy(r, n);
    return 1;
  }
  if (letter >= '1' && letter <= '9' && !inside && (r->text + 2 == r->end || !is_alphanumeric(r->text[2]))) {
    copy(r, 2);
    return 1;
  }
  for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
    const char *form = inside ? escapes[i].inside : escapes[i].outside;
    if (escapes[i].letter != letter || !form) continue;
    tr_text_append(r->out, "%s", form);
    r->text += 2;
    return 1;
  }
  return fail(r, "an escape that is not known here");
}

static int class(rewrite *r) {
  copy(r, 1);
  if (at(r, "^")) copy(r, 1);
  if (at(r, "]")) {
    tr_text_append(r->out, "\\]");
    r->text++;
  }
  while (r->text < r->end && *r->text != ']') {
    if (at(r, "[")) return fail(r, "a class inside a class");
    if (at(r, "&&")) return fail(r, "an intersection of classes");
    if (*r->text == '\\') {
      if (!escape(r, 1)) return 0;
    } else {
      copy(r, 1);
    }
  }
  if (r->text == r->end) return fail(r, "a class without an end");
  copy(r, 1);
  return 1;
}

// (?i: and its like. Ruby's m is everybody else's s.
static int options(rewrite *r) {
  copy(r, 2);
  for (; r->text < r->end && strchr("im-", *r->text) && *r->text; r->text++) {
    tr_text_append(r->out, "%c", *r->text == 'm' ? 's' : *r->text);
  }
  if (!at(r, ":") && !at(r, ")")) return fail(r, "a group of this kind");
  if (at(r, ")")) r->ngroup--; // options for the rest of the group around it
  copy(r, 1);
  return 1;
}

static int group(rewrite *r) {
  static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
  if (r->ngroup == GROUP_MAX) return fail(r, "more than 100 groups inside each other");
  r->group[r->ngroup++] = r->out->size;
  if (at(r, "(*")) return fail(r, "a group that starts with *");
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!at(r, kinds[i])) continue;
    copy(r, strlen(kinds[i]));
    return 1;
  }
  if (at(r, "(?")) return options(r);
  copy(r, 1);
  return 1;
}

// Put a callout before the last atom, which repeats.
static void watch(rewrite *r) {
  size_t n = sizeof callout - 1, size = r->out->size;
  if (r->watched == r->atom) return;
  tr_text_append_bytes(r->out, callout, n);
  if (r->out->failed) return;
  char *atom = r->out->data + r->atom;
  memmove(atom + n, atom, size - r->atom);
  memcpy(atom, callout, n);
  r->atom += n;
  r->watched = r->atom;
}

// {n} {n,} {,m} {n,m} after an atom; anything else in braces is literal. `*n`: its bytes, 0: not a repetition.
static void interval(const rewrite *r, size_t *n, int *exact, int *open_low) {
  const char *p = r->text + 1;
  const char *low = p;
  *n = 0;
  while (p < r->end && *p >= '0' && *p <= '9') p++;
  *open_low = p == low;
  *exact = !(p < r->end && *p == ',');
  if (!*exact) p++;
  const char *high = p;
  while (!*exact && p < r->end && *p >= '0' && *p <= '9') p++;
  if (p == r->end || *p != '}' || (*open_low && (*exact || p == high))) return;
  *n = (size_t)(p + 1 - r->text);
}

static int braces(rewrite *r) {
  size_t n;
  int exact, open_low;
  interval(r, &n, &exact, &open_low);
  if (n == 0) {
    tr_text_append(r->out, "\\{");
    r->text++;
    return 1;
  }
  watch(r);
  tr_text_append(r->out, "{%s%.*s", open_low ? "0" : "", (int)n - 1, r->text + 1);
  r->text += n;
  if (exact && at(r, "?")) return fail(r, "{n}?");
  if (!at(r, "+")) return 1;
  r->text++; // not possessive: repeat what was repeated
  tr_text tail = {0};
  tr_text_append_bytes(&tail, r->out->data + r->atom, r->out->size - r->atom);
  r->out->size = r->atom;
  tr_text_append(r->out, "(?:%s)+", tail.data ? tail.data : "");
  if (tail.failed) r->out->failed = 1;
  tr_text_free(&tail);
  return 1;
}

static int atom(rewrite *r) {
  if (*r->text == '{') return braces(r);
  if (*r->text == '*' || *r->text == '+') watch(r);
  if (!strchr("?*+|", *r->text) || !*r->text) r->atom = r->out->size;
  if (*r->text == '\\') return escape(r, 0);
  if (*r->text == '[') return class(r);
  if (*r->text == '(') return group(r);
  if (*r->text == ')') {
    if (r->ngroup == 0) return fail(r, "a ) too many");
    r->atom = r->group[--r->ngroup];
  }
  size_t n = 1;
  while (r->text + n < r->end && ((unsigned char)r->text[n] & 0xC0) == 0x80) n++;
  copy(r, n);
  return 1;
}

static tr_status rewrite_all(const char *regex, size_t nbyte, const char *name, tr_text *out) {
  rewrite r = {.text = regex, .end = regex + nbyte, .out = out};
  tr_text_append(out, "%s", callout); // one for every place that is tried
  r.atom = r.watched = out->size;
  while (r.text < r.end) {
    if (!atom(&r)) return tr_error(TR_ERR_DATA, "%s: pattern '%.200s': %s is not supported", name, regex, r.wrong);
  }
  return out->failed ? tr_error(TR_ERR_MEMORY, "%s: no memory for a pattern", name) : TR_OK;
}

static tr_status compile(tr__pattern *pattern, const char *regex, size_t nbyte, int literal) {
  int error;
  size_t offset;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  uint32_t options =
      literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  if (!context) return tr_error(TR_ERR_MEMORY, "%s: no memory for a pattern", pattern->name);
  (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pattern->code = pcre2_compile((PCRE2_SPTR)regex, nbyte, options, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!pattern->code) {
    unsigned char why[128] = "";
    (void)pcre2_get_error_message(error, why, sizeof why);
    return tr_error(TR_ERR_DATA, "%s: pattern '%.200s': %s", pattern->name, pattern->source, (const char *)why);
  }
  (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); // without it the interpreter runs
  return TR_OK;
}

static tr_status create(const char *regex, size_t nbyte, int literal, const char *name, tr__pattern **out) {
  if (nbyte > REGEX_MAX)
    return tr_error(TR_ERR_DATA, "%s: a pattern has %zu bytes; at most %d are accepted", name, nbyte, REGEX_MAX);
  if (memchr(regex, '\0', nbyte)) return tr_error(TR_ERR_DATA, "%s: a pattern holds a zero byte", name);
  tr_text text = {0};
  tr__pattern *pattern = calloc(1, sizeof *pattern);
  if (pattern) pattern->source = strndup(regex, nbyte);
  if (pattern) pattern->name = strdup(name);
  tr_status status = TR_OK;
  if (!pattern || !pattern->source || !pattern->name)
    status = tr_error(TR_ERR_MEMORY, "%s: no memory for a pattern", name);
  if (status == TR_OK && !literal) status = rewrite_all(pattern->source, nbyte, name, &text);
  if (status == TR_OK) status = compile(pattern, literal ? regex : text.data, literal ? nbyte : text.size, literal);
  tr_text_free(&text);
  if (status == TR_OK)
    *out = pattern;
  else
    tr__pattern_free(pattern);
  return status;
}

tr_status tr__pattern_compile(const char *regex, size_t nbyte, const char *name, tr__pattern **out) {
  return create(regex, nbyte, 0, name, out);
}

tr_status tr__pattern_literal(const char *string, size_t nbyte, const char *name, tr__pattern **out) {
  return create(string, nbyte, 1, name, out);
}

void tr__pattern_free(tr__pattern *pattern) {
  if (!pattern) return;
  pcre2_code_free(pattern->code);
  free(pattern->source);
  free(pattern->name);
  free(pattern);
}

static int64_t thread_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Until the next callout there is at most one scan of the rest of the text, so the longer that is, the sooner the time is
// asked for. Texts that take few callouts never ask.
static int on_callout(pcre2_callout_block *block, void *user) {
  tr__matcher *m = user;
  size_t rest = (block->subject_length - block->current_position) / SCAN_UNIT;
  m->work += 1 + (int)(rest < ASK_EVERY ? rest : ASK_EVERY);
  if (m->work < ASK_EVERY) return 0;
  m->work = 0;
  int64_t now = thread_ns();
  if (m->end_ns == 0) m->end_ns = now + m->budget;
  return now < m->end_ns ? 0 : PCRE2_ERROR_CALLOUT;
}

int64_t tr__matcher_budget(size_t nbyte) { return BUDGET_FLOOR_NS + BUDGET_NS_PER_BYTE * (int64_t)nbyte; }

void tr__matcher_allow(tr__matcher *matcher, int64_t budget) {
  matcher->budget = budget;
  matcher->end_ns = 0;
}

static tr_status matcher_init(tr__matcher *matcher) {
  matcher->budget = BUDGET_FLOOR_NS;
  matcher->data = pcre2_match_data_create(1, NULL);
  matcher->context = pcre2_match_context_create(NULL);
  if (!matcher->data || !matcher->context) return tr_error(TR_ERR_MEMORY, "no memory for matching patterns");
  (void)pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
  (void)pcre2_set_depth_limit(matcher->context, DEPTH_LIMIT);
  (void)pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
  (void)pcre2_set_callout(matcher->context, on_callout, matcher);
  return TR_OK;
}

static void matcher_clear(tr__matcher *matcher) {
  pcre2_match_data_free(matcher->data);
  pcre2_match_context_free(matcher->context);
  pcre2_jit_stack_free(matcher->stack);
}

tr_status tr__matcher_create(tr__matcher **out) {
  tr__matcher *matcher = calloc(1, sizeof *matcher);
  if (!matcher) return tr_error(TR_ERR_MEMORY, "no memory for matching patterns");
  tr_status status = matcher_init(matcher);
  if (status != TR_OK) {
    tr__matcher_free(matcher);
    return status;
  }
  // Without it compiled code has the 32 KiB that it takes from the thread's own stack.
  matcher->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
  if (matcher->stack) pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
  *out = matcher;
  return TR_OK;
}

void tr__matcher_free(tr__matcher *matcher) {
  if (!matcher) return;
  matcher_clear(matcher);
  free(matcher);
}

static tr_status match_error(const tr__pattern *pattern, const tr__matcher *matcher, int code, size_t from,
                             size_t nbyte) {
  unsigned char why[128] = "";
  if (code == PCRE2_ERROR_CALLOUT)
    return tr_error(
        TR_ERR_DATA,
        "%s: pattern '%.200s' takes too long with this text: after %.3g s of processor time it is at byte "
        "%zu of %zu",
        pattern->name, pattern->source, (double)matcher->budget / 1e9, from, nbyte);
  (void)pcre2_get_error_message(code, why, sizeof why);
  if (code == PCRE2_ERROR_NOMEMORY)
    return tr_error(TR_ERR_MEMORY, "%s: no memory for matching a pattern", pattern->name);
  return tr_error(TR_ERR_DATA, "%s: pattern '%.200s' cannot be matched with this text: %s", pattern->name,
                  pattern->source, (const char *)why);
}

tr_status tr__pattern_find(const tr__pattern *pattern, tr__matcher *matcher, const char *text, size_t nbyte,
                           size_t from, size_t *begin, size_t *end) {
  PCRE2_SPTR subject = (PCRE2_SPTR)text;
  uint32_t options = PCRE2_NO_UTF_CHECK;
  int found = pcre2_match(pattern->code, subject, nbyte, from, options, matcher->data, matcher->context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = pcre2_match(pattern->code, subject, nbyte, from, options | PCRE2_NO_JIT, matcher->data, matcher->context);
  *begin = *end = nbyte + 1;
  if (found == PCRE2_ERROR_NOMATCH) return TR_OK;
  if (found < 0) return match_error(pattern, matcher, found, from, nbyte);
  const size_t *place = pcre2_get_ovector_pointer(matcher->data);
  *begin = place[0];
  *end = place[1];
  return TR_OK;
}

tr_status tr__pattern_next(const tr__pattern *pattern, const char *text, size_t nbyte, size_t from, size_t *begin,
                           size_t *end) {
  tr__matcher matcher = {0};
  tr_status status = matcher_init(&matcher);
  tr__matcher_allow(&matcher, tr__matcher_budget(nbyte));
  if (status == TR_OK) status = tr__pattern_find(pattern, &matcher, text, nbyte, from, begin, end);
  matcher_clear(&matcher);
  return status;
}
