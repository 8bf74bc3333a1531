// SPDX-License-Identifier: MIT
// Which algorithm: the one that is predicted to be the fastest, unless the environment demands another.
//
// A prediction is alpha * rounds + beta * bytes + gamma * sums along the longest chain of messages, from what the algorithm
// claims and what the links are said to do; ranks that share a host share its link, and messages that a rank sends or takes
// beside those of the chain keep it busy for an eighth of alpha each. Every rank predicts the same, since all it
// goes by is the call and the environment.
//
//   TRIREME_COMM=ring                            for all operations that ring can do at all; rank 0 names those that it cannot
//   TRIREME_COMM=allreduce=ring,alltoall=bruck   for these, on pain of refusal; alltoall is alltoall_v too, if bruck can that
//   TRIREME_COMM=hierarchical/4                  with every 4 ranks of a group taken for a host
//
// A demand is met or refused. Only a group within one host goes its own way where an algorithm of several hosts is demanded, as
// there is nothing above that for it.
//   TRIREME_COMM_LINKS=cluster.yaml              latencies and bandwidths, as `trireme bench comm --write` measures them
#include "algorithm.h"
#include "trireme/base/text.h"
#include "trireme/base/yaml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tr__algorithm *const tr__algorithms[] = {
    &tr__algorithm_direct, &tr__algorithm_doubling,     &tr__algorithm_halving,     &tr__algorithm_tree,
    &tr__algorithm_chain,  &tr__algorithm_hierarchical, &tr__algorithm_leaders,     &tr__algorithm_bruck,
    &tr__algorithm_ring,   &tr__algorithm_star,         &tr__algorithm_double_tree, NULL,
};

// ---- what TRIREME_COMM says ---------------------------------------------------------------------

typedef struct family { // an operation as users write it
  const char *name;
  uint32_t kinds;
} family;

static const family families[] = {
    {"allreduce", 1u << TR__ALLREDUCE},
    {"reduce", 1u << TR__REDUCE},
    {"reduce_scatter", 1u << TR__REDUCE_SCATTER | 1u << TR__REDUCE_SCATTER_V},
    {"allgather", 1u << TR__ALLGATHER | 1u << TR__ALLGATHER_V},
    {"alltoall", 1u << TR__ALLTOALL | 1u << TR__ALLTOALL_V},
    {"broadcast", 1u << TR__BROADCAST},
    {"gather", 1u << TR__GATHER},
    {"scatter", 1u << TR__SCATTER},
    {"barrier", 1u << TR__BARRIER},
    {"reduce_scatter_v", 1u << TR__REDUCE_SCATTER_V},
    {"allgather_v", 1u << TR__ALLGATHER_V},
    {"alltoall_v", 1u << TR__ALLTOALL_V},
};
enum { FAMILIES = sizeof families / sizeof *families };

static void append(char *out, size_t nbyte, const char *name) {
  size_t used = strlen(out);
  snprintf(out + used, nbyte - used, "%s%s", used ? ", " : "", name);
}

static const tr__algorithm *named(const char *name) {
  for (int i = 0; tr__algorithms[i]; i++)
    if (strcmp(tr__algorithms[i]->name, name) == 0) return tr__algorithms[i];
  return NULL;
}

static tr_status unknown_algorithm(const char *name, uint32_t kinds, const char *operation) {
  char can[160] = "";
  for (int i = 0; tr__algorithms[i]; i++)
    if (tr__algorithms[i]->kinds & kinds) append(can, sizeof can, tr__algorithms[i]->name);
  if (!named(name))
    return tr_error(TR_ERR_CONFIG, "TRIREME_COMM: no algorithm is named '%s'; there are %s", name, can);
  return tr_error(TR_ERR_CONFIG, "TRIREME_COMM: %s cannot do %s; %s can", name, operation, can);
}

static tr_status unknown_operation(const char *name) {
  char all[200] = "";
  for (int i = 0; i < FAMILIES; i++) append(all, sizeof all, families[i].name);
  return tr_error(TR_ERR_CONFIG, "TRIREME_COMM: no operation is named '%s'; there are %s", name, all);
}

static tr_status set(tr__forced *f, const char *name, uint32_t kinds, const char *operation) {
  const tr__algorithm *a = named(name);
  if (!a || !(a->kinds & kinds)) return unknown_algorithm(name, kinds, operation);
  if (!operation) f->everywhere = a;
  for (int k = 0; k < TR__KINDS; k++)
    if (kinds & a->kinds & 1u << k) f->algorithm[k] = a;
  return TR_OK;
}

// "[operation=]algorithm[/ranks]"
static tr_status parse_item(char *item, tr__forced *f) {
  char *equals = strchr(item, '='), *name = equals ? equals + 1 : item, *slash = strchr(name, '/');
  if (slash) {
    int64_t local;
    *slash = 0;
    TR_TRY(tr_parse_count(slash + 1, &local));
    if (local < 1 || local > TR__RANKS)
      return tr_error(TR_ERR_CONFIG, "TRIREME_COMM: %s/%s: 1 to %d ranks can count as a host", name, slash + 1,
                      TR__RANKS);
    f->local = (int)local;
  }
  if (!equals) return set(f, name, UINT32_MAX, NULL);
  *equals = 0;
  for (int i = 0; i < FAMILIES; i++)
    if (strcmp(families[i].name, item) == 0) return set(f, name, families[i].kinds, item);
  return unknown_operation(item);
}

tr_status tr__forced_parse(const char *text, tr__forced *forced) {
  char copy[256];
  tr__forced f = {0};
  if (text && strlen(text) >= sizeof copy)
    return tr_error(TR_ERR_CONFIG, "TRIREME_COMM has %zu characters; %zu are allowed", strlen(text), sizeof copy - 1);
  snprintf(copy, sizeof copy, "%s", text ? text : "");
  char *rest = NULL;
  for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) TR_TRY(parse_item(item, &f));
  *forced = f;
  return TR_OK;
}

// ---- what links do ------------------------------------------------------------------------------

// Round numbers of the right order: messages through shared memory, and TCP over an Ethernet of 10 Gbit/s.
void tr__tiers_init(tr__tiers *t) { *t = (tr__tiers){.host = {1e-6, 8e9}, .network = {20e-6, 1.1e9}, .adding = 8e9}; }

static tr_status number(const tr_yaml_node *map, const char *key, double *out) {
  const tr_yaml_node *node = tr_yaml_find(map, key);
  if (!node || !node->value)
    return tr_error(TR_ERR_CONFIG, "%s:%d: a link needs a number '%s'", map->file, map->line, key);
  tr_status status = tr_parse_real(node->value, out);
  if (status == TR_OK && *out > 0) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%s:%d: %s is '%s'; a number above 0 is needed", node->file, node->line, key,
                  node->value);
}

static tr_status load_link(const tr_yaml_node *link, tr__tiers *t) {
  const tr_yaml_node *tier = link->kind == TR_YAML_MAP ? tr_yaml_find(link, "tier") : NULL;
  const char *name = tier && tier->value ? tier->value : "";
  tr__tier read;
  int host = strcmp(name, "host") == 0;
  if (!host && strcmp(name, "network") != 0)
    return tr_error(TR_ERR_CONFIG, "%s:%d: a link's tier is '%s'; host or network is needed", link->file, link->line,
                    name);
  TR_TRY(number(link, "latency", &read.latency));
  TR_TRY(number(link, "bandwidth", &read.bandwidth));
  if (tr_yaml_find(link, "adding")) TR_TRY(number(link, "adding", &t->adding));
  *(host ? &t->host : &t->network) = read;
  return TR_OK;
}

tr_status tr__tiers_load(const char *path, tr__tiers *tiers) {
  tr_yaml *yaml;
  TR_TRY(tr_yaml_load(path, &yaml));
  tr__tiers t = *tiers;
  const tr_yaml_node *links = tr_yaml_find(tr_yaml_root(yaml), "links");
  tr_status status = TR_OK;
  if (!links || links->kind != TR_YAML_LIST) status = tr_error(TR_ERR_CONFIG, "%s has no list 'links'", path);
  for (size_t i = 0; status == TR_OK && i < links->nchild; i++) status = load_link(links->child[i], &t);
  tr_yaml_free(yaml);
  if (status == TR_OK) *tiers = t;
  return status;
}

// ---- the choice ---------------------------------------------------------------------------------

tr_status tr__choice_create(int any_order, tr__choice **out) {
  tr__choice *choice = calloc(1, sizeof *choice);
  if (!choice) return tr_error(TR_ERR_MEMORY, "no memory for the choice of algorithms");
  const char *links = getenv("TRIREME_COMM_LINKS");
  choice->any_order = any_order;
  choice->wire = TR__WIRE;
  tr__tiers_init(&choice->tiers);
  tr_status status = tr__forced_parse(getenv("TRIREME_COMM"), &choice->forced);
  if (status == TR_OK && links && *links) status = tr__tiers_load(links, &choice->tiers);
  if (status == TR_OK)
    *out = choice;
  else
    free(choice);
  return status;
}

int tr__choice_forces(const tr__choice *choice) {
  for (int k = 0; k < TR__KINDS; k++)
    if (choice->forced.algorithm[k]) return 1;
  return 0;
}

// Operations for which `a` is demanded, or for which nothing is, as users write them.
static void append_families(const tr__forced *f, const tr__algorithm *a, tr_text *out) {
  for (int i = 0, n = 0; i < FAMILIES; i++)
    if (f->algorithm[__builtin_ctz(families[i].kinds)] == a)
      tr_text_append(out, "%s%s", n++ ? ", " : "", families[i].name);
}

void tr__choice_say(const tr__choice *choice, tr_text *out) {
  const tr__forced *f = &choice->forced;
  tr_text rest = {0};
  if (f->everywhere) append_families(f, NULL, &rest);
  if (rest.data) {
    tr_text_append(out, "TRIREME_COMM=%s is for ", f->everywhere->name);
    append_families(f, f->everywhere, out);
    tr_text_append(out, "; it cannot do %s, which go their usual way", rest.data);
  }
  tr_text_free(&rest);
}

tr_status tr__choice_check(const tr__choice *choice, int nrank, int nhost) {
  const tr__forced *f = &choice->forced;
  const tr__algorithm *levels = NULL;
  char can[160] = "";
  for (int k = 0; k < TR__KINDS && !levels; k++)
    if (f->algorithm[k] && f->algorithm[k]->hosts) levels = f->algorithm[k];
  if (!levels || nrank < 2 || (f->local ? f->local < nrank : nhost > 1)) return TR_OK;
  for (int i = 0; tr__algorithms[i]; i++)
    if (!tr__algorithms[i]->hosts && (tr__algorithms[i]->kinds & levels->kinds))
      append(can, sizeof can, tr__algorithms[i]->name);
  if (nrank > 2 && (levels->hosts > 1 || nrank % 2 == 0))
    snprintf(can + strlen(can), sizeof can - strlen(can), ", or %s/2", levels->name);
  return tr_error(
      TR_ERR_CONFIG,
      "TRIREME_COMM demands %s, which is for several hosts with more than one rank each, but all %d ranks "
      "are on one; %s would work",
      levels->name, nrank, can);
}

const tr__algorithm *tr__choice_demand(const tr__choice *choice, tr__kind kind, int local) {
  const tr__algorithm *a = choice->forced.algorithm[kind];
  return a && a->hosts && local == 0 ? NULL : a;
}

static int is_power_of_two(int n) { return (n & (n - 1)) == 0; }

const char *tr__algorithm_refuses(const tr__algorithm *a, const tr__case *c, int any_order) {
  uint32_t bit = tr__bit(c->kind);
  int sums = tr__kind_reduces(c->kind);
  if (!(a->kinds & bit)) return "it cannot do that";
  if ((a->powers_of_two & bit) && !is_power_of_two(c->size)) return "the ranks must be a power of two";
  if (sums && !(a->ordered & bit) && !any_order) return "it adds in an order of its own, which needs comm.order: any";
  if (!a->hosts) return NULL;
  if (c->local < 2) return "the ranks must be on several hosts, with more than one on each";
  if (a->hosts == 1 && c->size % c->local) return "every host must have as many ranks";
  if (sums && !any_order && !is_power_of_two(c->local)) return "ranks per host must be a power of two";
  return NULL;
}

double tr__algorithm_seconds(const tr__algorithm *a, const tr__case *c, const tr__tiers *tiers) {
  const tr__tier *tier = c->local > 0 ? &tiers->network : &tiers->host;
  double sharing = c->local > 1 && !a->hosts ? c->local : 1; // ranks of a host that send over its link at once
  size_t n = c->nelem * c->width * (tr__is_vector(c->kind) ? 1 : (size_t)c->size);
  if (c->start) n = c->start[c->size] * c->width;
  tr__claim claim;
  a->claim(c, 0, &claim);
  double seconds = (claim.rounds + claim.crowd / 8.0) * tier->latency +
                   sharing * (double)claim.path_bytes / tier->bandwidth + (double)claim.path_sums / tiers->adding;
  if (a->hosts) seconds += 2 * (tiers->host.latency + (double)n / tiers->host.bandwidth);
  return seconds;
}

static tr_status refuse(const tr__choice *choice, const tr__case *c, const tr__algorithm *a, const char *why) {
  char can[160] = "";
  for (int i = 0; tr__algorithms[i]; i++)
    if (!tr__algorithm_refuses(tr__algorithms[i], c, choice->any_order))
      append(can, sizeof can, tr__algorithms[i]->name);
  return tr_error(TR_ERR_CONFIG, "TRIREME_COMM demands %s for %s over %d ranks: %s; %s can do it", a->name,
                  tr__kind_name(c->kind), c->size, why, can);
}

tr_status tr__algorithm_choose(const tr__choice *choice, const tr__case *c, const tr__algorithm **out) {
  const tr__algorithm *forced = tr__choice_demand(choice, c->kind, c->local), *best = NULL;
  double least = 0;
  if (forced) {
    const char *why = tr__algorithm_refuses(forced, c, choice->any_order);
    if (why) return refuse(choice, c, forced, why);
    *out = forced;
    return TR_OK;
  }
  for (int i = 0; tr__algorithms[i]; i++) {
    const tr__algorithm *a = tr__algorithms[i];
    if (tr__algorithm_refuses(a, c, choice->any_order)) continue;
    double seconds = tr__algorithm_seconds(a, c, &choice->tiers);
    if (!best || seconds < least) best = a, least = seconds;
  }
  if (!best)
    return tr_error(TR_ERR_INTERNAL, "no algorithm can do %s over %d ranks", tr__kind_name(c->kind), c->size);
  *out = best;
  return TR_OK;
}
