// SPDX-License-Identifier: MIT
// The decision tree (law_tree.h). A fork is added with its two numbers; the walk stops dividing as soon as something fits:
// nothing, then a ZeRO stage inside a node, then ZeRO-3 over everything if each rank has enough tokens to hide its
// traffic, then tensor parallelism inside the node, if its links are fast enough, with the shallowest pipeline.
#include "trireme/plan/law_tree.h"
#include "trireme/base/text.h"
#include "trireme/plan/law_mesh.h"
#include "trireme/plan/law_money.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const double roomy = 0.9; // of a device's memory: buffers, logits and the system have the rest
static const double dear = 0.5;  // tensor parallelism that communicates longer than this share of computing is dear
static const double giga = 1e9, gib = 1073741824;            // what crosses links, and what a device holds
static const double thumb_small = 20e9, thumb_large = 100e9; // bytes of training state

static tr_law_fork *ask(tr_law_tree *t, const char *question, double have, double limit, const char *unit,
                        const char *format, ...) __attribute__((format(printf, 6, 7)));
static tr_law_fork *ask(tr_law_tree *t, const char *question, double have, double limit, const char *unit,
                        const char *format, ...) {
  tr_law_fork *fork = &t->fork[t->n++];
  *fork = (tr_law_fork){.question = question, .unit = unit, .have = have, .limit = limit, .yes = have <= limit};
  va_list args;
  va_start(args, format);
  vsnprintf(fork->text, sizeof fork->text, format, args);
  va_end(args);
  return fork;
}

static double devices_of(const tr_law_tree_input *in) { return in->per_node * in->nodes; }

// States and activations of the fullest rank; a pipeline's first stage holds as many micro-batches as there are stages, so
// activations are not divided by its depth.
static double rank_bytes(const tr_law_tree_input *in, double tp, double pp, int zero, double ranks) {
  double states = tr_law_state_bytes(in->roles, in->params / (tp * pp), zero, ranks);
  return states + tr_law_activation_bytes(&in->blocks, in->keep, tp, tp > 1);
}

static void settle(const tr_law_tree_input *in, tr_law_tree *t, tr_law_split split, double tp, double pp, int zero) {
  t->split = split;
  t->tp = tp;
  t->pp = pp;
  t->zero = zero;
  t->dp = fmax(1, floor(devices_of(in) / (tp * pp)));
  t->shard = t->dp;
  t->rank_bytes = rank_bytes(in, tp, pp, zero, t->shard);
  t->fits = t->rank_bytes <= roomy * in->capacity;
}

static int fits_one_device(const tr_law_tree_input *in, tr_law_tree *t) {
  double need = rank_bytes(in, 1, 1, 0, 1), room = roomy * in->capacity;
  double states = tr_law_state_bytes(in->roles, in->params, 0, 1);
  return ask(t, "does it fit one device?", need / gib, room / gib, "GiB",
             "%.4g GiB of states (%.3g bytes a parameter) and %.4g GiB of activations; %.0f %% of the memory counts",
             states / gib, tr_law_roles_sum(in->roles), (need - states) / gib, 100 * roomy)
      ->yes;
}

static int fits_one_node(const tr_law_tree_input *in, tr_law_tree *t, int *zero) {
  double room = roomy * in->capacity;
  for (*zero = 1; *zero < 3 && rank_bytes(in, 1, 1, *zero, in->per_node) > room;) ++*zero;
  double need = rank_bytes(in, 1, 1, *zero, in->per_node);
  return ask(t, "does it fit one node?", need / gib, room / gib, "GiB",
             need <= room ? "ZeRO-%d over the %.0f device%s of a node is the lowest stage that fits"
                          : "not even with ZeRO-%d over the %.0f device%s of a node",
             *zero, in->per_node, tr_text_plural((int64_t)in->per_node, "s"))
      ->yes;
}

static void ask_replicas(const tr_law_tree_input *in, tr_law_tree *t, double copy) {
  if (!(in->seconds > 0)) return;
  double rate = copy * in->flops, takes = tr_law_train_flop(in->params, in->tokens) / rate;
  double replicas = ceil(takes / in->seconds), most = floor(devices_of(in) / copy);
  ask(t, "is one copy of the model fast enough?", takes / 86400, in->seconds / 86400, "days",
      "%.4g tokens on the %.0f device%s of one copy; %.0f replica%s would do, there is room for %.0f", in->tokens,
      copy, tr_text_plural((int64_t)copy, "s"), replicas, replicas == 1 ? "" : "s", most);
}

// Tokens of each rank, from which gathering weights (3 x 2 bytes for 6 FLOP per parameter and token) is hidden.
static int zero3_hides(const tr_law_tree_input *in, tr_law_tree *t) {
  double tokens = in->batch_tokens / devices_of(in);
  tr_law_link link = in->nodes > 1 ? in->between : in->inside;
  return ask(t, "does ZeRO-3 over all devices hide its traffic?", tr_law_flop_per_byte(in->flops, link.bandwidth),
             tokens, "tokens a device",
             "6 bytes against 6 FLOP per parameter and token: %.4g tokens a device are needed, a "
             "batch of %.4g gives %.4g",
             tr_law_flop_per_byte(in->flops, link.bandwidth), in->batch_tokens, tokens)
      ->yes;
}

// Time that the sums of tensor parallelism take, as a share of the time that its products take.
static double tensor_share(const tr_law_tree_input *in, double tp, tr_law_link link) {
  double tokens = in->blocks.micro * in->blocks.sequence;
  double compute =
      tr_law_train_flop(tr_law_block_params(in->blocks.layers, in->blocks.width), tokens) / tp / in->flops;
  return tr_law_tensor_bytes(&in->blocks, 2, tp).step / link.bandwidth / compute;
}

static int tensor_is_cheap(const tr_law_tree_input *in, tr_law_tree *t) {
  double inside = tensor_share(in, in->per_node, in->inside), twice = tensor_share(in, 2 * in->per_node, in->between);
  return ask(t, "is tensor parallelism cheap inside a node?", inside, dear, "of computing",
             "its sums take %.3g of the time of its products with TP%.0f inside a node, %.3g with TP%.0f over two",
             inside, in->per_node, twice, 2 * in->per_node)
      ->yes;
}

static void ask_pipeline(const tr_law_tree_input *in, tr_law_tree *t) {
  double bytes = tr_law_boundary_bytes(&in->blocks, 2), tokens = in->blocks.micro * in->blocks.sequence;
  double compute = tr_law_train_flop(in->params, tokens) / (t->tp * t->pp) / in->flops;
  tr_law_link link = in->nodes > 1 ? in->between : in->inside;
  ask(t, "is a pipeline cheap on the slowest link?", 2 * bytes / link.bandwidth / compute, 0.1, "of computing",
      "a boundary moves %.4g MB per micro-batch and direction; summing the gradients of one stage moves %.4g GB",
      bytes * 1e-6, in->params * in->roles.gradient / (t->tp * t->pp) / giga);
}

// The shallowest pipeline that fits: over nodes when tensor parallelism takes those, over devices when it is too dear.
static void split_layers(const tr_law_tree_input *in, tr_law_tree *t) {
  int cheap = in->per_node > 1 && tensor_is_cheap(in, t);
  double tp = cheap ? in->per_node : 1, places = devices_of(in) / tp;
  settle(in, t, TR_LAW_SPLIT_TENSOR, tp, 1, 1);
  for (double pp = 2; !t->fits && pp <= fmin(places, in->blocks.layers); pp++)
    if (fmod(places, pp) == 0) settle(in, t, cheap ? TR_LAW_SPLIT_3D : TR_LAW_SPLIT_PIPELINE, tp, pp, 1);
  if (t->pp > 1) ask_pipeline(in, t);
}

static const char *answer(tr_law_split split) {
  static const char *const text[] = {"data parallelism", "ZeRO", "a pipeline", "tensor parallelism",
                                     "ZeRO and three dimensions"};
  return text[split];
}

static void compare_thumb(const tr_law_tree_input *in, tr_law_tree *t) {
  double states = in->params * tr_law_roles_sum(in->roles);
  int size = states < thumb_small ? 0 : states <= thumb_large ? 1 : 2;
  static const char *const thumb[] = {"data parallelism", "a pipeline", "ZeRO and three dimensions"};
  t->thumb = thumb[size];
  static const tr_law_split means[] = {TR_LAW_SPLIT_NONE, TR_LAW_SPLIT_PIPELINE, TR_LAW_SPLIT_3D};
  t->thumb_right = t->split == means[size];
  const char *why = t->thumb_right ? "right here" : "wrong here";
  const char *more = size == 0   ? "small is what fits a device, and activations count too"
                     : size == 1 ? "what fits one device needs no cut, and ZeRO in a node has no bubble"
                                 : "the fast links and the tokens a device gets decide, not the size alone";
  snprintf(t->thumb_text, sizeof t->thumb_text, "%.4g GiB of states: the rule of thumb says %s, %s: %s%s%s",
           states / gib, t->thumb, why, answer(t->split), t->thumb_right ? "" : "; ", t->thumb_right ? "" : more);
}

void tr_law_tree_walk(const tr_law_tree_input *in, tr_law_tree *out) {
  int zero;
  *out = (tr_law_tree){0};
  if (fits_one_device(in, out)) {
    settle(in, out, TR_LAW_SPLIT_NONE, 1, 1, 0);
    ask_replicas(in, out, 1);
  } else if (fits_one_node(in, out, &zero)) {
    // Sharding stays in the node; between nodes replicas sum gradients.
    settle(in, out, TR_LAW_SPLIT_ZERO, 1, 1, zero);
    out->shard = in->per_node;
    out->rank_bytes = rank_bytes(in, 1, 1, zero, out->shard);
    out->fits = 1;
    ask_replicas(in, out, in->per_node);
  } else {
    int whole = rank_bytes(in, 1, 1, 3, devices_of(in)) <= roomy * in->capacity;
    if (zero3_hides(in, out) && whole)
      settle(in, out, TR_LAW_SPLIT_ZERO, 1, 1, 3);
    else
      split_layers(in, out);
    ask_replicas(in, out, out->tp * out->pp);
  }
  compare_thumb(in, out);
}
