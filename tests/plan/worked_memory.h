// SPDX-License-Identifier: MIT
// Worked examples of memory, communication and the mesh; the inputs stand in the calls.
// 1 MiB is said where it is meant, GB is 1e9 bytes.
#ifndef TRIREME_WORKED_MEMORY_H
#define TRIREME_WORKED_MEMORY_H

#include "plan/worked_examples.h"
#include "trireme/plan/law_batch.h"
#include "trireme/plan/law_collective.h"
#include "trireme/plan/law_embedding.h"
#include "trireme/plan/law_mesh.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/law_pipeline.h"
#include "trireme/plan/law_scaling.h"

static void memory_of_states(example_count *count) {
  const tr_law_roles adam = tr_law_roles_mixed_adam();
  const example rows[] = {
      ROW("mem-adam", tr_law_roles_sum(adam), 16, 0),
      ROW("mem-7b", tr_law_state_bytes(adam, 7 * G, 0, 64) / G, 112, 0.5),
      ROW("mem-7b", tr_law_state_bytes(adam, 7 * G, 3, 64) / G, 1.75, 0.005),
      ROW("mem-7b", tr_law_state_bytes(adam, 1, 3, 64), 0.25, 0.005),
      ROW("mem-7b", tr_law_state_bytes(adam, 7 * G, 3, 4) / G, 28, 0.5),
      ROW("mem-zero-table", tr_law_state_bytes(adam, 7.5 * G, 0, 64) / G, 120, 0.5),
      ROW("mem-zero-table", tr_law_state_bytes(adam, 7.5 * G, 1, 64) / G, 31.4, 0.05),
      ROW("mem-zero-table", tr_law_state_bytes(adam, 7.5 * G, 2, 64) / G, 16.6, 0.05),
      ROW("mem-zero-table", tr_law_state_bytes(adam, 7.5 * G, 3, 64) / G, 1.9, 0.05),
      ROW("mem-weights", states(175 * G, 2) / G, 350, 0.5),
      ROW("mem-weights", tr_law_devices_for(states(175 * G, 2), 80 * G), 5, 0),
      ROW("mem-175b-3d-8B", tr_law_state_bytes(roles(2, 0, 8), 175 * G / 8, 0, 1) / G, 218.8, 0.051),
      ROW("mem-175b-3d-8B", tr_law_state_bytes(roles(2, 0, 8), 175 * G / (8 * 16), 0, 1) / G, 13.7, 0.05),
      ROW("mem-175b-3d-8B", tr_law_state_bytes(roles(2, 0, 12), 175 * G / (8 * 16), 0, 1) / G, 19.1, 0.05),
      ROW("mem-175b-3d-8B", tr_law_state_bytes(roles(2, 2, 8), 175 * G / (8 * 16), 0, 1) / G, 16.4, 0.05),
      ROW("mem-175b-3d-8B", tr_law_state_bytes(roles(2, 2, 12), 175 * G / (8 * 16), 0, 1) / G, 21.9, 0.05),
      ROW("mem-671b", tr_law_state_bytes(adam, 671 * G, 0, 1) > 10 * T, 1, 0),
      ROW("mem-671b-ratio", tr_law_state_bytes(adam, 671 * G, 0, 1) / (80 * G), 134, 0.5),
      ROW("mem-grad-sizes", states(110 * M, 4) / M, 440, 0.5),
      ROW("mem-grad-sizes", states(340 * M, 4) / G, 1.4, 0.05),
      ROW("mem-threshold", tr_law_params_within(adam, 80 * G) / G, 5, 0.5),
      ROW("mem-175b-states", states(175 * G, 2) / G, 350, 0.5),
      ROW("mem-175b-states", states(175 * G, adam.optimizer) / G, 2100, 0.5),
      ROW("mem-175b-states", tr_law_state_bytes(adam, 175 * G, 0, 1) / G, 2800, 0.5),
      ROW("mem-175b-states", states(175 * G, 8) / T, 1.4, 0.05),
      ROW("mem-175b-states", states(175 * G, 12) / T, 2.1, 0.05),
      ROW("mem-175b-slices", tr_law_state_bytes(roles(2, 0, 0), 175 * G, 3, 64) / G, 5.5, 0.05),
      ROW("mem-175b-slices", states(175 * G / 8, 2) / G, 43.75, 0.005),
      ROW("mem-zero3-headroom", (80 * G - tr_law_state_bytes(adam, 7 * G, 3, 64)) / G, 78, 0.5),
      ROW("mem-grad-7b", tr_law_accumulate(7 * G, 2, 1, 1, 1).buffer / G, 14, 0.5),
      ROW("mem-grad-7b", tr_law_accumulate(7 * G, 2, 1, 1, 32).buffer / G, 14, 0.5),
      ROW("mem-small", states(10.8 * M, 4) / M, 43, 0.5),
      ROW("mem-small", tr_law_block_params(24, 1024) / M, 302, 0.5),
      ROW("mem-small", states(tr_law_block_params(24, 1024), 4) / G, 1.2, 0.05),
      ROW("mem-small", tr_law_block_params(24, 2048) / G, 1.208, 0.0005),
      ROW("mem-small", tr_law_state_bytes(adam, tr_law_block_params(24, 2048), 0, 1) / G, 19.3, 0.05),
      ROW("mem-small", states(1.5 * G, 4) / G, 6, 0.5),
      ROW("mem-blocks", tr_law_mlp_params(8, 256, 4), 4208640, 0),
      ROW("mem-blocks", tr_law_state_bytes(roles(1, 0, 0), tr_law_mlp_params(8, 256, 4), 3, 2), 2104320, 0),
      ROW("mem-blocks", tr_law_state_bytes(roles(1, 0, 0), tr_law_mlp_params(8, 256, 4), 3, 4), 4208640 / 4, 0),
      ROW("mem-archetype-a", tr_law_params_within(roles(2, 0, 0), 3.5 * T) / T, 1.75, 0.005),
      ROW("mem-dlrm", tr_law_touched_bytes(10 * T, 0.001 / 100) / M, 100, 0.5),
      ROW("mem-fit-4x32", tr_law_state_bytes(adam, 1.5 * G, 3, 4) / G, 6, 0.5),
      ROW("mem-fit-4x32", tr_law_state_bytes(adam, 3 * G, 3, 4) / G, 12, 0.5),
      ROW("mem-fit-4x32", tr_law_state_bytes(adam, 7 * G, 3, 4) / G, 28, 0.5),
  };
  CHECK_EXAMPLES(rows, count);
}

static void memory_of_activations(example_count *count) {
  const tr_law_roles adam = tr_law_roles_mixed_adam();
  const tr_law_blocks gpt3 = blocks(96, 12288, 96, 2048, 4), single = blocks(96, 12288, 96, 2048, 1);
  const tr_law_blocks wide = blocks(1, 8192, 64, 2048, 1), seven = blocks(32, 4096, 32, 2048, 1);
  const double left = 32 * G - tr_law_state_bytes(adam, 7 * G, 3, 4);
  const double shard = tr_law_state_bytes(adam, 175 * G, 3, 64);
  const double inputs = tr_law_activation_bytes(&single, TR_LAW_KEEP_INPUT, 1, 0);
  const example rows[] = {
      ROW("mem-175b-zero3", tr_law_state_bytes(adam, 175 * G, 0, 64) / G, 2800, 0.5),
      ROW("mem-175b-zero3", shard / G, 43.8, 0.051),
      ROW("mem-175b-zero3", inputs / G, 4.8, 0.05),
      ROW("mem-175b-zero3", (shard + inputs) / G, 48.6, 0.05),
      ROW("mem-act-175b", tr_law_activation_bytes(&gpt3, TR_LAW_KEEP_ALL, 1, 0) / T, 1.1, 0.05),
      ROW("mem-act-175b", tr_law_activation_bytes(&gpt3, TR_LAW_KEEP_TILED, 1, 0) / T, 0.33, 0.005),
      ROW("mem-act-175b", tr_law_activation_bytes(&gpt3, TR_LAW_KEEP_INPUT, 1, 0) / G, 19.3, 0.05),
      ROW("mem-pp-boundary", tr_law_boundary_bytes(&wide, 2) / (1 << 20), 32, 0.5),
      ROW("mem-pp-boundary", tr_law_boundary_bytes(&wide, 2) / M, 33.6, 0.05),
      ROW("mem-pp-boundary", tr_law_boundary_bytes(&gpt3, 2) / M, 201.3, 0.05),
      ROW("mem-sp", tr_law_boundary_bytes(&gpt3, 2) / M, 201.3, 0.05),
      ROW("mem-sp", tr_law_activation_bytes(&gpt3, TR_LAW_KEEP_INPUT, 8, 0) / gpt3.layers / M, 201.3, 0.05),
      ROW("mem-sp", tr_law_activation_bytes(&gpt3, TR_LAW_KEEP_INPUT, 8, 1) / gpt3.layers / M, 25.2, 0.05),
      ROW("mem-fit-4x32", tr_law_activation_bytes(&seven, TR_LAW_KEEP_TILED, 1, 0) > left, 1, 0),
      ROW("mem-fit-4x32", tr_law_activation_bytes(&seven, TR_LAW_KEEP_INPUT, 1, 0) < left, 1, 0),
      ROW("comm-dp-pp", tr_law_boundary_bytes(&gpt3, 2) / M, 201.3, 0.05),
      ROW("comm-dp-pp", states(175 * G, 2) / G, 350, 0.5),
  };
  CHECK_EXAMPLES(rows, count);
}

static tr_law_link at(double bandwidth) { return (tr_law_link){0, bandwidth}; }

// 128 nodes of 8, links of a device: 300 GB/s inside, `between` and 5 us to the other nodes.
static tr_law_fabric big_cluster(double between) {
  return (tr_law_fabric){.nodes = 128, .per_node = 8, .ports = 8, .inside = at(300 * G), .between = {5e-6, between}};
}

// 4 nodes of 8 that share one port of 10 Gbit/s.
static tr_law_fabric small_cluster(void) {
  return (tr_law_fabric){.nodes = 4, .per_node = 8, .ports = 1, .inside = at(450 * G), .between = at(1.25 * G)};
}

static void communication_of_rings(example_count *count) {
  const tr_law_fabric big = big_cluster(25 * G), slower = big_cluster(0.6 * 25 * G);
  const tr_law_hierarchy hierarchy = tr_law_allreduce_hierarchical(&big, 3 * G);
  const double flat = tr_law_allreduce_seconds(1024, 3 * G, at(25 * G));
  const example rows[] = {
      ROW("comm-ring-3gb-1024", flat * K, 239.8, 0.05),
      ROW("comm-hier-3gb", hierarchy.total * K, 48.5, 0.05),
      ROW("comm-hier-3gb", hierarchy.latency * K, 1.27, 0.005),
      ROW("comm-pcie", tr_law_allreduce_seconds(4, 3 * G, at(10 * G)), 0.45, 0.005),
      ROW("comm-pcie", tr_law_allreduce_seconds(4, 1.2 * G, at(10 * G)), 0.18, 0.005),
      ROW("comm-1b-1024", states(1 * G, 2) / G, 2, 0.05),
      ROW("comm-1b-1024", tr_law_allreduce_bytes(1024, states(1 * G, 2)) / G, 4.0, 0.05),
      ROW("comm-star", tr_law_server_bytes(8, 3 * G) / G, 24, 0.5),
      ROW("comm-star", tr_law_allreduce_bytes(8, 3 * G) / G, 5.25, 0.005),
      ROW("comm-slow-sync", flat * K > 100 && hierarchy.total * K < 100, 1, 0),
      ROW("comm-slow-sync", 100 - hierarchy.total * K, 51.5, 0.05),
      ROW("comm-slow-sync", tr_law_allreduce_hierarchical(&slower, 3 * G).total * K, 68.4, 0.05),
      ROW("comm-slow-sync", tr_law_link_use(&hierarchy, 0.0684), 0.60, 0.005),
      ROW("comm-slow-sync", tr_law_link_use(&hierarchy, 0.100), 0.37, 0.005),
      ROW("comm-tier-ratio", tr_law_gather_seconds(8, G, at(25 * G)) / tr_law_gather_seconds(8, G, at(600 * G)), 24,
          0.5),
      ROW("comm-tier-ratio", tr_law_gather_seconds(8, G, at(25 * G)) / tr_law_gather_seconds(8, G, at(900 * G)), 36,
          0.5),
      ROW("comm-tier-ratio", tr_law_gather_seconds(8, G, at(50 * G)) / tr_law_gather_seconds(8, G, at(450 * G)), 9,
          0.5),
      ROW("comm-fsdp", tr_law_zero_collectives(3), 3, 0),
      ROW("comm-fsdp", tr_law_zero_collectives(3) / tr_law_zero_collectives(0), 1.5, 0),
      ROW("comm-accum-freq", tr_law_accumulate(1, 2, 8, 16, 4).saved, 0.75, 0.005),
      ROW("comm-share-1b", 100 * tr_law_share(25, 50), 33, 0.5),
      ROW("comm-share-1b", 100 * tr_law_share(180, 2400), 7, 0.5),
      ROW("comm-overlap-half", tr_law_share(1, 1), 0.5, 0),
      ROW("comm-energy", tr_law_link_energy(9e15, 7.5e-12) / K, 540, 5),
      ROW("comm-energy", tr_law_link_energy(500e12, 35e-12) / K, 140, 5),
      ROW("scale-energy-tier", tr_law_link_energy(3 * G, 1.5e-12), 0.036, 0.0005),
      ROW("scale-energy-tier", tr_law_link_energy(3 * G, 7.5e-12), 0.18, 0.005),
      ROW("scale-energy-tier", tr_law_link_energy(3 * G, 35e-12), 0.84, 0.005),
      ROW("comm-flop-byte", tr_law_flop_per_byte(97 * T, 10 * G) / K, 10, 0.5),
      ROW("comm-flop-byte", tr_law_flop_per_byte(989 * T, 160 * G) / K, 6, 0.5),
      ROW("comm-flop-byte", tr_law_flop_per_byte(989 * T, 50 * G) / K, 20, 0.5),
      ROW("comm-ring-attn", tr_law_ring_attention_tokens(989 * T, 50 * G, 1, 0), 989.0 / 50 * K, 1e-6),
      ROW("comm-ring-attn", tr_law_ring_attention_tokens(989 * T, 50 * G, 8.0 / 64, 0), 989.0 / 400 * K, 1e-6),
      ROW("comm-ring-attn", tr_law_ring_attention_tokens(989 * T, 50 * G, 1, 1), 989.0 / 25 * K, 1e-6),
  };
  CHECK_EXAMPLES(rows, count);
}

static void communication_of_a_small_job(example_count *count) {
  const tr_law_fabric cluster = small_cluster();
  const double inside = tr_law_allreduce_seconds(8, 3 * G, at(450 * G)), compute = 1.8;
  const double flat = tr_law_allreduce_seconds(32, 3 * G, at(1.25 * G));
  const tr_law_hierarchy hierarchy = tr_law_allreduce_hierarchical(&cluster, 3 * G);
  const double accumulated = tr_law_step_efficiency(4 * compute, inside);
  const double job = 50000 * compute, one = tr_law_wall_seconds(job, 8) / accumulated;
  const double four = tr_law_wall_seconds(job, 32) / tr_law_step_efficiency(compute, inside + flat);
  const double cheap = tr_law_price(1, one, 128), dear = tr_law_price(4, four, 128);
  const example rows[] = {
      ROW("comm-gpt2-node", states(1.5 * G, 2) / G, 3, 0.5),
      ROW("comm-gpt2-node", tr_law_allreduce_bytes(8, 3 * G) / G, 5.2, 0.051),
      ROW("comm-gpt2-node", inside * K, 11.7, 0.05),
      ROW("comm-gpt2-node", (compute + inside) * K, 1811.7, 0.05),
      ROW("comm-gpt2-node", 100 * tr_law_step_efficiency(compute, inside), 99.4, 0.05),
      ROW("comm-gpt2-10g", tr_law_allreduce_bytes(32, 3 * G) / G, 5.8, 0.05),
      ROW("comm-gpt2-10g", flat * K, 4650, 0.5),
      ROW("comm-gpt2-10g", (compute + inside + flat) * K, 6461.7, 0.05),
      ROW("comm-gpt2-10g", 100 * tr_law_step_efficiency(compute, inside + flat), 27.9, 0.05),
      ROW("comm-gpt2-10g", tr_law_equivalents(32, tr_law_step_efficiency(compute, inside + flat)), 8.9, 0.05),
      ROW("comm-gpt2-10g", hierarchy.between * K, 3600, 0.5),
      ROW("comm-gpt2-10g", (compute + hierarchy.total) * K, 5411.7, 0.05),
      ROW("comm-gpt2-10g", 100 * tr_law_step_efficiency(compute, hierarchy.total), 33.3, 0.05),
      ROW("comm-accum", tr_law_accumulate(1.5 * G, 2, 8, 16, 4).batch, 512, 0),
      ROW("comm-accum", 100 * inside / (4 * compute), 0.162, 0.0005),
      ROW("comm-accum", one / 3600, 3.1301, 0.00005),
      ROW("comm-accum", four / 3600, 2.8045, 0.00005),
      ROW("comm-accum", dear, 1436, 0.5),
      ROW("comm-accum", cheap, 401, 0.5),
      ROW("comm-accum", dear - cheap, 1035, 0.5),
      ROW("comm-accum", 100 * tr_law_saved(cheap, dear), 72.1, 0.05),
      ROW("scale-hours", job / 3600, 25, 0.5),
      ROW("scale-hours", one / 3600, 3.1, 0.05),
      ROW("scale-hours", four / 3600, 2.8, 0.05),
  };
  CHECK_EXAMPLES(rows, count);
}

static void communication_of_175b(example_count *count) {
  const double flop = tr_law_train_flop(175 * G, 2 * M), gradients = states(175 * G, 2), many = INFINITY;
  const double compute = tr_law_wall_seconds(flop / (1979 * T * 0.5), 1024);
  const double raw = tr_law_allreduce_seconds(many, gradients, at(50 * G)), left = tr_law_exposed(raw, 0.75);
  const double shard = tr_law_allreduce_seconds(many, gradients / 8, at(50 * G));
  const tr_law_blocks stage = blocks(6, 12288, 96, 2048, 4), all = blocks(96, 12288, 96, 2048, 4);
  const tr_law_blocks small = blocks(96, 4096, 32, 2048, 4);
  const tr_law_tensor large = tr_law_tensor_bytes(&small, 2, many), part = tr_law_tensor_bytes(&stage, 2, 8);
  const double payload = tr_law_boundary_bytes(&small, 2), moved = tr_law_allreduce_bytes(8, payload);
  const double fast = tr_law_allreduce_seconds(8, payload, at(450 * G));
  const double slow = tr_law_allreduce_seconds(8, payload, at(50 * G));
  const example rows[] = {
      ROW("comm-175b-dp", flop / 1e18, 2.1, 0.05),
      ROW("comm-175b-dp", raw, 14, 0.5),
      ROW("comm-175b-dp", left, 3.5, 0.05),
      ROW("comm-175b-dp", compute, 2.07, 0.005),
      ROW("comm-175b-dp", compute + left, 5.57, 0.005),
      ROW("comm-175b-dp", 100 * tr_law_step_efficiency(compute, left), 37.2, 0.05),
      ROW("comm-175b-tp8", gradients / 8 / G, 43.75, 0.005),
      ROW("comm-175b-tp8", shard, 1.75, 0.005),
      ROW("comm-175b-tp8", tr_law_allreduce_seconds(128, gradients / 8, at(50 * G)), 1.736, 0.0005),
      ROW("comm-175b-tp8", 100 * tr_law_step_efficiency(compute, shard), 54.2, 0.05),
      ROW("comm-175b-tp8pp4", gradients / tr_law_mesh_parts((tr_law_mesh){8, 4, 32, 1}) / G, 10.94, 0.005),
      ROW("comm-175b-tp8pp4", 100 * tr_law_bubble(4, 32, 1), 8.6, 0.05),
      ROW("comm-tp-64mb", large.payload / M, 67.1, 0.05),
      ROW("comm-tp-64mb", large.allreduce / M, 134.2, 0.05),
      ROW("comm-tp-64mb", large.forward / G, 25.8, 0.05),
      ROW("comm-tp-64mb", large.step / G, 51.5, 0.05),
      ROW("comm-tp-175b", part.payload / M, 201.3, 0.05),
      ROW("comm-tp-175b", part.forward / G, 4.2, 0.05),
      ROW("comm-tp-175b", part.step / G, 8.5, 0.05),
      ROW("comm-tp-175b", tr_law_tensor_bytes(&all, 2, 8).forward / G, 67.6, 0.05),
      ROW("comm-tp-tier", fast * K, 0.26, 0.005),
      ROW("comm-tp-tier", slow * K, 2.35, 0.005),
      ROW("comm-tp-tier", 96 * 2 * fast * K, 50, 0.5),
      ROW("comm-tp-tier", 96 * 2 * slow * K, 451, 0.5),
      ROW("comm-tp-tier", 96 * tr_law_allreduce_seconds(8, payload, at(moved / 0.002)) * K, 200, 10),
      ROW("comm-tp-tier", 96 * tr_law_allreduce_seconds(8, payload, at(moved / 0.010)) * K, 960, 5),
      ROW("comm-sp-bytes", tr_law_sequence_bytes(8, M) - 2 * tr_law_allreduce_bytes(8, M), 0, 0),
      ROW("comm-sp-bytes", tr_law_sequence_bytes(8, M) / M, 2 * 2 * 7.0 / 8, 1e-12),
      ROW("comm-moe", tr_law_boundary_bytes(&small, 2) / M, 67, 0.5),
      ROW("comm-moe", 2 * tr_law_boundary_bytes(&small, 2) / M, 134, 0.5),
      ROW("comm-moe", tr_law_expert_capacity(1.25, 4 * 2048, 64), 1.25 * 8192 / 64, 0),
  };
  CHECK_EXAMPLES(rows, count);
}

static void meshes(example_count *count) {
  const example rows[] = {
      ROW("mesh-groups", tr_law_mesh_dp_groups((tr_law_mesh){8, 1, 128, 1}), 8, 0),
      ROW("mesh-groups", tr_law_mesh_dp_for(1024, (tr_law_mesh){8, 1, 0, 1}), 128, 0),
      ROW("mesh-groups", tr_law_mesh_dp_groups((tr_law_mesh){8, 4, 32, 1}), 32, 0),
      ROW("mesh-groups", tr_law_mesh_ranks((tr_law_mesh){8, 4, 32, 1}), 1024, 0),
      ROW("mesh-groups", tr_law_mesh_ranks((tr_law_mesh){8, 16, 128, 1}), 16384, 0),
      ROW("mesh-groups", tr_law_mesh_ranks((tr_law_mesh){8, 4, 8, 1}), 256, 0),
      ROW("mesh-blackwell", tr_law_mesh_parts((tr_law_mesh){16, 8, 1, 1}), 128, 0),
      ROW("mesh-blackwell", tr_law_mesh_parts((tr_law_mesh){8, 16, 1, 1}), 128, 0),
      ROW("mesh-blackwell", 100 * tr_law_bubble(8, 32, 1), 17.9, 0.05),
      ROW("mesh-blackwell", 100 * tr_law_bubble(16, 32, 1), 31.9, 0.05),
      ROW("mesh-v3", tr_law_mesh_dp_for(2048, (tr_law_mesh){1, 16, 0, 1}), 128, 0),
      ROW("mesh-v3", tr_law_expert_nodes(64, 8), 8, 0),
      ROW("mesh-v3", tr_law_token_nodes(8, tr_law_expert_nodes(64, 8), 4), 4, 0),
      ROW("mesh-ulysses", tr_law_ulysses_degree(8, 32), 8, 0),
      ROW("mesh-ulysses", 32 / tr_law_ulysses_degree(8, 32), 4, 0),
      ROW("scale-moe", tr_law_capacity_ratio(1e12, 1e10), 100, 0),
      ROW("scale-moe", tr_law_expert_capacity(1.25, 8192, 64), 160, 0),
      ROW("scale-moe", tr_law_expert_capacity(1.5, 8192, 64), 192, 0),
  };
  CHECK_EXAMPLES(rows, count);
}

#endif
