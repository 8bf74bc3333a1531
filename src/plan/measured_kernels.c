// SPDX-License-Identifier: MIT
// The map `kernels` of a cluster, as `trireme bench step --write` measures it: how and where (`source`), how far whole steps were off
// (`median`, `p90`), and a list `prices` with a row for every kind of kernel, pass, type and layout (kernel_time.h). Unknown fields and
// kinds of values, rows told twice and figures out of range are refused with file and line.
#include "plan/plan_internal.h"
#include "trireme/base/text.h"
#include <stdlib.h>
#include <string.h>

static tr_status bad(const tr_yaml_node *node, const char *field, const char *what) {
  return tr_error(TR_ERR_CONFIG, "%s:%d:%d: kernels.%s is '%.60s'; it must be %s", node->file, node->line,
                  node->column, field, node->kind == TR_YAML_SCALAR ? node->value : "a list or map", what);
}

static tr_status missing(const tr_yaml_node *map, const char *field) {
  return tr_error(TR_ERR_CONFIG, "%s:%d:%d: %s is missing in kernels", map->file, map->line, map->column, field);
}

static tr_status read_real(const tr_yaml_node *map, const char *field, double most, double *out) {
  const tr_yaml_node *node = tr_yaml_find(map, field);
  char what[64];
  if (!node) return missing(map, field);
  if (node->kind == TR_YAML_SCALAR && tr_parse_real(node->value, out) == TR_OK && *out >= 0 && *out <= most)
    return TR_OK;
  snprintf(what, sizeof what, "a number from 0 to %g", most);
  return bad(node, field, what);
}

static tr_status read_count(const tr_yaml_node *map, const char *field, int *out) {
  const tr_yaml_node *node = tr_yaml_find(map, field);
  int64_t value;
  if (!node) return missing(map, field);
  if (node->kind != TR_YAML_SCALAR || tr_parse_count(node->value, &value) < 0 || value < 1 || value > 4096)
    return bad(node, field, "1 to 4096");
  *out = (int)value;
  return TR_OK;
}

static tr_status read_word(const tr_yaml_node *map, const char *field, const char *const *words, int n, int *out) {
  const tr_yaml_node *node = tr_yaml_find(map, field);
  if (!node) return missing(map, field);
  for (*out = 0; *out < n; ++*out)
    if (node->kind == TR_YAML_SCALAR && strcmp(node->value, words[*out]) == 0) return TR_OK;
  tr_text list = {0};
  for (int i = 0; i < n; i++) tr_text_append(&list, "%s%s", i ? " or " : "", words[i]);
  tr_status status = bad(node, field, list.data ? list.data : "one of a few words");
  tr_text_free(&list);
  return status;
}

static tr_status check_fields(const tr_yaml_node *map) {
  enum { OWN = 6, KNOWN = OWN + TR_KERNEL_TERMS };
  const char *known[KNOWN] = {"kind", "pass", "type", "ranks", "threads", "error"};
  memcpy(known + OWN, tr_kernel_term, sizeof tr_kernel_term);
  for (size_t i = 0; i < map->nchild; i++) {
    const tr_yaml_node *field = map->child[i];
    int k = 0;
    while (k < KNOWN && strcmp(field->key, known[k]) != 0) k++;
    if (k < KNOWN) continue;
    const char *closest = tr_text_closest(field->key, known, KNOWN);
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: kernels has no field '%.60s'%s%s%s", field->file, field->key_line,
                    field->key_column, field->key, closest ? "; did you mean '" : "", closest ? closest : "",
                    closest ? "'?" : "");
  }
  return TR_OK;
}

static tr_status read_row(const tr_yaml_node *map, tr_kernel_rate *out) {
  static const char *const types[] = {"f32", "bf16"};
  const char *const passes[] = {tr_kernel_pass_name(TR_KERNEL_FORWARD), tr_kernel_pass_name(TR_KERNEL_BACKWARD)};
  const tr_yaml_node *kind = tr_yaml_find(map, "kind");
  int pass, type;
  if (map->kind != TR_YAML_MAP)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: a row of kernels is a map", map->file, map->line, map->column);
  TR_TRY(check_fields(map));
  if (!kind) return missing(map, "kind");
  if (kind->kind != TR_YAML_SCALAR || !*kind->value || strlen(kind->value) >= TR_KERNEL_KIND)
    return bad(kind, "kind", "a kind of piece, or update, pack, norm or step");
  TR_TRY(read_word(map, "pass", passes, TR_KERNEL_PASSES, &pass));
  TR_TRY(read_word(map, "type", types, 2, &type));
  TR_TRY(read_count(map, "ranks", &out->ranks));
  TR_TRY(read_count(map, "threads", &out->threads));
  TR_TRY(read_real(map, "error", 1e6, &out->error));
  for (int j = 0; j < TR_KERNEL_TERMS; j++) {
    out->price[j] = 0; // what is not told costs nothing
    if (tr_yaml_find(map, tr_kernel_term[j])) TR_TRY(read_real(map, tr_kernel_term[j], 1, &out->price[j]));
  }
  strcpy(out->kind, kind->value);
  out->pass = (tr_kernel_pass)pass;
  out->type = type ? TR_BF16 : TR_F32;
  return TR_OK;
}

static int same_row(const tr_kernel_rate *a, const tr_kernel_rate *b) {
  return a->pass == b->pass && a->type == b->type && a->ranks == b->ranks && a->threads == b->threads &&
         strcmp(a->kind, b->kind) == 0;
}

static tr_status read_rows(const tr_yaml_node *list, tr_kernel_rates *out) {
  for (size_t i = 0; i < list->nchild; i++) {
    tr_kernel_rate *row = &out->row[out->n];
    TR_TRY(read_row(list->child[i], row));
    for (size_t k = 0; k < out->n; k++)
      if (same_row(row, &out->row[k]))
        return tr_error(TR_ERR_CONFIG, "%s:%d:%d: kernels has this row of '%s' twice", list->child[i]->file,
                        list->child[i]->line, list->child[i]->column, row->kind);
    out->n++;
  }
  return TR_OK;
}

tr_status tr__measured_kernels(const tr_yaml_node *map, tr_cluster *c) {
  const tr_yaml_node *list = map->kind == TR_YAML_MAP ? tr_yaml_find(map, "prices") : NULL,
                     *source = list ? tr_yaml_find(map, "source") : NULL;
  if (!list || list->kind != TR_YAML_LIST || list->nchild == 0)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: kernels is a map with a source and a list of prices", map->file,
                    map->line, map->column);
  if (!source || source->kind != TR_YAML_SCALAR || !*source->value) return missing(map, "source");
  TR_TRY(read_real(map, "median", 10, &c->kernels_median));
  TR_TRY(read_real(map, "p90", 10, &c->kernels_p90));
  c->kernels.row = calloc(list->nchild, sizeof *c->kernels.row);
  if (!c->kernels.row) return tr_error(TR_ERR_MEMORY, "no memory for %zu kernels", list->nchild);
  return read_rows(list, &c->kernels);
}
