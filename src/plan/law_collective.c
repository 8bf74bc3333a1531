// SPDX-License-Identifier: MIT
// Laws of communication (law_collective.h): rings, a hierarchy of two tiers, what tensor parallelism and full sharding move, and
// when it can hide. Shares are written 1 - 1/N, which is right for infinitely many ranks too.
#include "trireme/plan/law_collective.h"

#include <math.h>

double tr_law_gather_bytes(double ranks, double bytes) { return (1 - 1 / ranks) * bytes; }

double tr_law_allreduce_bytes(double ranks, double bytes) { return 2 * tr_law_gather_bytes(ranks, bytes); }

double tr_law_server_bytes(double ranks, double bytes) { return ranks * bytes; }

// `messages` one after another; none without a latency, so that infinitely many ranks cost only bytes.
static double latency(double messages, tr_law_link link) { return link.alpha > 0 ? messages * link.alpha : 0; }

double tr_law_gather_seconds(double ranks, double bytes, tr_law_link link) {
  return latency(ranks - 1, link) + tr_law_gather_bytes(ranks, bytes) / link.bandwidth;
}

double tr_law_allreduce_seconds(double ranks, double bytes, tr_law_link link) {
  return 2 * tr_law_gather_seconds(ranks, bytes, link);
}

tr_law_hierarchy tr_law_allreduce_hierarchical(const tr_law_fabric *fabric, double bytes) {
  double n = fabric->per_node, ports = fmin(fabric->ports, n);
  tr_law_hierarchy out = {0};
  if (n > 1) {
    out.inside = tr_law_allreduce_bytes(n, bytes) / fabric->inside.bandwidth;
    out.latency = latency(2 * (n - 1), fabric->inside);
  }
  if (fabric->nodes > 1) {
    out.between = tr_law_allreduce_bytes(fabric->nodes, bytes / ports) / fabric->between.bandwidth;
    out.latency += latency(2 * (fabric->nodes - 1), fabric->between);
  }
  out.total = out.inside + out.between + out.latency;
  return out;
}

double tr_law_link_use(const tr_law_hierarchy *ideal, double measured) {
  return ideal->between / (measured - ideal->inside - ideal->latency);
}

double tr_law_exposed(double seconds, double overlap) { return seconds * (1 - overlap); }

double tr_law_share(double part, double rest) { return part / (part + rest); }

double tr_law_zero_collectives(int zero) { return zero >= 3 ? 3 : 2; }

tr_law_tensor tr_law_tensor_bytes(const tr_law_blocks *blocks, double nbyte, double tp) {
  tr_law_tensor out = {.payload = tr_law_boundary_bytes(blocks, nbyte)};
  out.allreduce = tr_law_allreduce_bytes(tp, out.payload);
  out.forward = 2 * blocks->layers * out.allreduce;
  out.step = 2 * out.forward;
  return out;
}

double tr_law_sequence_bytes(double tp, double bytes) { return 2 * (2 * tr_law_gather_bytes(tp, bytes)); }

double tr_law_flop_per_byte(double flops, double bandwidth) { return flops / bandwidth; }

double tr_law_ring_attention_tokens(double flops, double bandwidth, double kv_share, int causal) {
  return tr_law_flop_per_byte(flops, bandwidth) * kv_share * (causal ? 2 : 1);
}

double tr_law_link_energy(double bytes, double joule_per_bit) { return 8 * bytes * joule_per_bit; }
