// SPDX-License-Identifier: MIT
// The list `links` of a cluster, as `trireme bench comm --write` measures it: per tier the latency (s) and the bandwidth
// (bytes/s) between two ranks, and perhaps how fast a rank adds what comes, which has no use here. It replaces what the device's description says of that tier; shares of a figure are 1 then,
// since nothing of what was measured remains to be lost. Unknown fields, tiers told twice and figures out of range are refused.
#include "plan/plan_internal.h"
#include "trireme/base/text.h"
#include <string.h>

typedef struct link {
  double latency, bandwidth;
} link;

static tr_status read_number(const tr_yaml_node *map, const char *key, const char *unit, double least, double most,
                             double *out) {
  const tr_yaml_node *node = tr_yaml_find(map, key);
  if (!node)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: this link has no %s (%s)", map->file, map->line, map->column, key,
                    unit);
  if (node->kind == TR_YAML_SCALAR && tr_parse_real(node->value, out) == TR_OK && *out >= least && *out <= most)
    return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%s:%d:%d: links.%s is '%.80s'; it must be %g to %g %s", node->file, node->line,
                  node->column, key, node->kind == TR_YAML_SCALAR ? node->value : "a list or map", least, most, unit);
}

static tr_status check_fields(const tr_yaml_node *map) {
  static const char *const known[] = {"tier", "latency", "bandwidth", "adding", "source"};
  enum { KNOWN = sizeof known / sizeof *known };
  for (size_t i = 0; i < map->nchild; i++) {
    const tr_yaml_node *field = map->child[i];
    size_t k = 0;
    while (k < KNOWN && strcmp(field->key, known[k]) != 0) k++;
    if (k < KNOWN) continue;
    const char *closest = tr_text_closest(field->key, known, KNOWN);
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: a link has no field '%.80s'; %s%s%s", field->file, field->key_line,
                    field->key_column, field->key,
                    closest ? "did you mean '" : "there are tier, latency, bandwidth, adding, source",
                    closest ? closest : "", closest ? "'?" : "");
  }
  const tr_yaml_node *source = tr_yaml_find(map, "source");
  if (source && source->kind == TR_YAML_SCALAR && *source->value) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%s:%d:%d: this link has no source: how it was measured", map->file, map->line,
                  map->column);
}

// The device's own tiers: inside a host, and between hosts.
static tr_status read_link(const tr_yaml_node *map, tr_cluster *c, int seen[2]) {
  static const char *const tiers[] = {"host", "network"};
  link l;
  double adding;
  if (map->kind != TR_YAML_MAP)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: a link is a map with tier, latency, bandwidth and source", map->file,
                    map->line, map->column);
  TR_TRY(check_fields(map));
  const tr_yaml_node *tier = tr_yaml_find(map, "tier");
  const char *name = tier && tier->kind == TR_YAML_SCALAR ? tier->value : "";
  int at = 0;
  while (at < 2 && strcmp(name, tiers[at]) != 0) at++;
  if (at == 2)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: links.tier is '%.80s'; it must be host or network", map->file,
                    map->line, map->column, name);
  if (seen[at]++)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: the tier %s is told twice", map->file, map->line, map->column, name);
  TR_TRY(read_number(map, "latency", "s", 1e-9, 1, &l.latency));
  TR_TRY(read_number(map, "bandwidth", "bytes/s", 1e4, 1e15, &l.bandwidth));
  if (tr_yaml_find(map, "adding")) TR_TRY(read_number(map, "adding", "bytes/s", 1e4, 1e15, &adding));
  tr_device *d = &c->device;
  if (at == 0) {
    d->link_gbs = l.bandwidth / 1e9;
    d->link_fused = d->fit.link = 1;
    d->fit.link_us = 1e6 * l.latency;
  } else {
    c->network_gbit = l.bandwidth * 8 / 1e9;
    d->fit.network = 1;
    d->fit.network_us = d->fit.hop_us = 1e6 * l.latency;
  }
  return TR_OK;
}

tr_status tr__measured_links(const tr_yaml_node *list, tr_cluster *cluster) {
  int seen[2] = {0};
  if (list->kind != TR_YAML_LIST || list->nchild == 0)
    return tr_error(TR_ERR_CONFIG, "%s:%d:%d: links is a list with an entry per tier", list->file, list->line,
                    list->column);
  for (size_t i = 0; i < list->nchild; i++) TR_TRY(read_link(list->child[i], cluster, seen));
  return TR_OK;
}
