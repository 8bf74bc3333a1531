// SPDX-License-Identifier: MIT
// Laws of communication: bytes moved and time of collectives in the alpha-beta model, and what they do to a step.
//
// A message of n bytes takes alpha + n / bandwidth. A ring sends (N-1)/N of the buffer per rank in N - 1 steps for a
// reduce-scatter or an all-gather, and both for an all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms", 2009); ranks may be infinite, for "N large". In a hierarchy each node reduces and scatters inside, rings over
// equal owners of all nodes follow, and an all-gather inside; a node with fewer ports than devices shares them.
#ifndef TRIREME_PLAN_LAW_COLLECTIVE_H
#define TRIREME_PLAN_LAW_COLLECTIVE_H

#include "trireme/plan/law_memory.h"

typedef struct tr_law_link {
  double alpha, bandwidth; // seconds per message; bytes per second in one direction
} tr_law_link;

double tr_law_gather_bytes(double ranks, double bytes);    // (N-1)/N M: all-gather, reduce-scatter, all-to-all
double tr_law_allreduce_bytes(double ranks, double bytes); // 2 (N-1)/N M, sent by each rank
double tr_law_server_bytes(double ranks, double bytes);    // N M go in, and as many out, at one parameter server
double tr_law_gather_seconds(double ranks, double bytes, tr_law_link link);    // N - 1 messages
double tr_law_allreduce_seconds(double ranks, double bytes, tr_law_link link); // flat ring, 2 (N - 1) messages

typedef struct tr_law_fabric {
  double nodes, per_node, ports; // ports: links that a node has to the others; more than per_node do not help
  tr_law_link inside, between;   // of a device inside its node; of one port
} tr_law_fabric;

typedef struct tr_law_hierarchy {
  double inside, between, latency, total; // seconds; latency is of all messages, the others are bandwidth terms
} tr_law_hierarchy;
tr_law_hierarchy tr_law_allreduce_hierarchical(const tr_law_fabric *fabric, double bytes);
// The share of the links between nodes that must have been used if `measured` seconds were taken; below 0: impossible.
double tr_law_link_use(const tr_law_hierarchy *ideal, double measured);

double tr_law_exposed(double seconds, double overlap); // what is left of it when a share is hidden
double tr_law_share(double part, double rest);         // part / (part + rest)

// Full sharding gathers weights twice (forward, and again in backward when they were released) and scatters gradients:
// three times M. Below stage 3 two: an all-reduce, or its halves.
double tr_law_zero_collectives(int zero); // per layer and step, each of M bytes

// Tensor parallelism: two all-reduces of one [b, s, h] per layer in forward, as many in backward. With sequence parallelism
// each is a reduce-scatter and an all-gather, which move the same bytes.
typedef struct tr_law_tensor {
  double payload, allreduce, forward, step; // bytes: of one tensor; moved per all-reduce, forward pass, step
} tr_law_tensor;
tr_law_tensor tr_law_tensor_bytes(const tr_law_blocks *blocks, double nbyte, double tp);
double tr_law_sequence_bytes(double tp, double bytes); // two reduce-scatter and all-gather pairs

// ---- when communication can hide

double tr_law_flop_per_byte(double flops, double bandwidth); // operations to find for each byte
// Ring attention: tokens per rank from which passing K and V on is hidden, 4 n^2 d FLOP against 4 n d bytes (Liu et al.,
// "Ring attention", 2023). `kv_share` is kv heads / heads; causal masks halve the work.
double tr_law_ring_attention_tokens(double flops, double bandwidth, double kv_share, int causal);

double tr_law_link_energy(double bytes, double joule_per_bit); // J; of bytes per second: W

#endif
