// SPDX-License-Identifier: MIT
// Devices and clusters as data: what a processor, its links and a machine room can do, read from presets/devices and
// presets/clusters (YAML, every section with its source). A bad description is refused with file, line, field, value,
// unit and range. A cluster's `device` is a name, or a map with what a device's file has. Its list `links`, which `trireme bench
// comm --write` measures, stands for what its device says of those tiers; its map `kernels`, from `trireme bench step --write`, has
// the prices of the library's own kernels there. A description is read once and never changed; copies share its texts and tables.
#ifndef TRIREME_PLAN_DEVICE_H
#define TRIREME_PLAN_DEVICE_H

#include "trireme/base/option.h"
#include "trireme/base/status.h"
#include "trireme/plan/kernel_time.h"

// What programs reach of the figures on the data sheet: one set per kind of device, fitted on published runs by
// bench/bench_plan_fit (which also writes how well, `median` and `p90`). Shares are of the section's figure.
typedef struct tr_efficiency {
  double matmul, matmul_fp8;          // share of the peak that large products reach
  double tile_mi;                     // m x n (Mi elements) at which a product reaches half of that
  double depth;                       // k at which it reaches half of that
  double attention, attention_early;  // share of the bf16 peak, fused attention; of kernels for older devices
  double scores;                      // passes over the score matrix, attention that is not fused
  double memory;                      // share of the memory bandwidth, elementwise kernels
  double passes;                      // over a layer's wide tensors, in programs that fuse little
  double touch;                       // bytes per parameter and micro-batch: weights read, gradients added up
  double layer_us, expert_layer_us;   // host time of one layer's forward pass: a floor
  double link, link_us;               // share of the links' bandwidth, time per collective
  double network, network_us, hop_us; // the same between hosts, per doubling of hosts, and per rank of a ring
  double hide_tp, hide_grad, hide_ep; // share of communication that runs beside computation where a program overlaps
  double grouped;                     // experts' products against plain ones of the same size
  double step_ms;                     // per step, whatever its size
  double straggle;                    // per doubling of hosts, share of the step
  double median, p90,
      p90_experts; // relative error of step times predicted without their model; with experts
} tr_efficiency;

typedef struct tr_device {
  const char *name,
      *like;                     // `like`: the device that efficiencies come from which the description does not give
  double peak_bf16, peak_fp8;    // TFLOP/s, dense
  double peak_f32;               // 0: not known
  double memory_gib, memory_gbs; // GiB (what data sheets call GB), GB/s
  double host_gbs;               // to the host's memory each way, over coherent links; 0: over its bus only
  double reserved_gb;            // taken by the driver and libraries before a program allocates
  double link_gbs, link_fused;   // GB/s each way; in-switch reduction's gain for sums
  double link_share;             // of the processor, that the kernels of a running collective occupy; 0: not known
  int64_t link_domain;           // devices that these links join
  double network_gbit;           // Gbit/s per device
  double power_w, price_hour;    // 0: not known
  const char *source_peak, *source_memory, *source_link, *source_network, *source_fit;
  tr_efficiency fit;
  void *owned; // what was read; the texts are in it
} tr_device;

// The switches between hosts: leaves that join some hosts, pods of leaves. Oversubscription is against the ports of the hosts below;
// congestion is how much fuller the fullest link above the leaves is than an even spread.
typedef struct tr_fabric {
  int64_t leaf_hosts, pod_hosts; // 0: all of them, as if one switch joined them
  double leaf_oversubscription, pod_oversubscription, congestion;
  int rails;                     // each port of a host has leaves of its own: what changes rails goes above them
  double host_mtbf, switch_mtbf; // hours between failures of a host as a whole, of a leaf switch; 0: not known
  const char *source;
} tr_fabric;

typedef struct tr_cluster {
  const char *name, *device_name, *source;
  int64_t hosts, host_devices, domain; // domain: devices joined by the fast links
  double network_gbit;                 // per device
  tr_fabric fabric;
  double mtbf_hours, storage_gbs, price_hour;
  tr_device device;
  tr_kernel_rates kernels;            // none: n 0
  double kernels_median, kernels_p90; // errors of whole steps with them, as shares
  void *owned;
} tr_cluster;

// A file, or the name of a preset; letters in any case. TR_ERR_CONFIG naming what is wrong, TR_ERR_IO.
tr_status tr_device_load(const char *name, tr_device *out);
void tr_device_unload(tr_device *device);
tr_status tr_cluster_load(const char *name, tr_cluster *out); // its device too
void tr_cluster_unload(tr_cluster *cluster);

// One host or more of `device`, as its own description has it.
tr_cluster tr_cluster_of(const tr_device *device, int64_t devices, int64_t host_devices);

// The rows of the efficiencies ("fit.matmul", ...), their offsets in tr_device: for whoever fits them.
const tr_option *tr_device_fit_rows(size_t *n);

#endif
