// SPDX-License-Identifier: MIT
// Reading devices and clusters: the tables of their fields, from which checking and messages come, and their presets.
#include "trireme/plan/device.h"
#include "plan/plan_internal.h"
#include "trireme/base/preset.h"
#include "trireme/base/yaml.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_LIMIT = 4096, NAME_LIMIT = 128 };

#define AT(field) offsetof(tr_device, field)
#define IN(field) offsetof(tr_cluster, field)

// clang-format off
#define TEXT(key, field, note) {.path = key, .type = TR_OPTION_STRING, .offset = field, .def = "", .help = note}
#define REAL(key, field, standard, least, most, u, note) \
  {.path = key, .type = TR_OPTION_REAL, .offset = field, .def = standard, .min = least, .max = most, .unit = u, .help = note}
#define COUNT(key, field, standard, least, most, u, note) \
  {.path = key, .type = TR_OPTION_INT, .offset = field, .def = standard, .min = least, .max = most, .unit = u, .help = note}

static const tr_option device_rows[] = {
    TEXT("name", AT(name), "The device's name."),
    TEXT("like", AT(like), "The device whose efficiencies hold for this one too."),
    REAL("peak.bf16", AT(peak_bf16), "0", 0, 1e6, "TFLOP/s", "Dense bf16 or fp16 products."),
    REAL("peak.fp8", AT(peak_fp8), "0", 0, 1e6, "TFLOP/s", "Dense fp8 products; 0: none."),
    REAL("peak.f32", AT(peak_f32), "0", 0, 1e6, "TFLOP/s", "f32 products; 0: not known."),
    TEXT("peak.source", AT(source_peak), "Where the section's figures are from."),
    REAL("memory.size", AT(memory_gib), "0", 0, 1e5, "GiB", "Memory of the device; data sheets say GB."),
    REAL("memory.bandwidth", AT(memory_gbs), "0", 0, 1e6, "GB/s", "Its bandwidth."),
    REAL("memory.host", AT(host_gbs), "0", 0, 1e5, "GB/s", "To the host's memory each way over coherent links; 0: over its bus only."),
    REAL("memory.reserved", AT(reserved_gb), "1", 0, 100, "GB", "Taken before a program allocates."),
    TEXT("memory.source", AT(source_memory), "Where the section's figures are from."),
    REAL("link.bandwidth", AT(link_gbs), "0", 0, 1e5, "GB/s", "Links between devices, each way."),
    REAL("link.sum_gain", AT(link_fused), "1", 1, 4, "", "What sums gain from reduction in the switch."),
    REAL("link.processors", AT(link_share), "0", 0, 0.9, "", "Share of the processor that a running collective occupies."),
    COUNT("link.devices", AT(link_domain), "8", 1, 1 << 20, "devices", "Devices that the links join."),
    TEXT("link.source", AT(source_link), "Where the section's figures are from."),
    REAL("network.bandwidth", AT(network_gbit), "0", 0, 1e5, "Gbit/s", "Network per device, each way."),
    TEXT("network.source", AT(source_network), "Where the section's figures are from."),
    REAL("power", AT(power_w), "0", 0, 1e5, "W", "Board power; 0: not known."),
    REAL("price", AT(price_hour), "0", 0, 1e4, "per hour", "Price of an hour; 0: not known."),
    TEXT("fit.source", AT(source_fit), "How the efficiencies were found."),
    REAL("fit.matmul", AT(fit.matmul), "0.72", 0.01, 1, "", "Share of the bf16 peak of large products."),
    REAL("fit.matmul_fp8", AT(fit.matmul_fp8), "0.62", 0.01, 1, "", "Share of the fp8 peak of large products."),
    REAL("fit.tile", AT(fit.tile_mi), "2", 0, 64, "Mi elements", "m x n at which a product reaches half its rate."),
    REAL("fit.depth", AT(fit.depth), "64", 0, 8192, "", "k at which a product reaches half its rate."),
    REAL("fit.attention", AT(fit.attention), "0.5", 0.01, 1.2, "", "Share of the bf16 peak of fused attention."),
    REAL("fit.attention_early", AT(fit.attention_early), "0.3", 0.01, 1.2, "", "The same, kernels written for the generation before."),
    REAL("fit.scores", AT(fit.scores), "0.9", 0.1, 10, "", "Passes over the scores of attention that is not fused, against the usual."),
    REAL("fit.memory", AT(fit.memory), "0.65", 0.05, 1, "", "Share of the memory bandwidth of elementwise kernels."),
    REAL("fit.passes", AT(fit.passes), "9", 4, 40, "", "Passes over a layer's wide tensors in programs that fuse little."),
    REAL("fit.touch", AT(fit.touch), "2", 0, 80, "bytes", "Moved per parameter and micro-batch: weights read, gradients added up."),
    REAL("fit.layer", AT(fit.layer_us), "1200", 0, 20000, "us", "Host time of a layer's forward pass."),
    REAL("fit.expert_layer", AT(fit.expert_layer_us), "3000", 0, 40000, "us", "The same of a layer with experts."),
    REAL("fit.link", AT(fit.link), "0.78", 0.6, 0.95, "", "Share of the links' bandwidth that collectives reach."),
    REAL("fit.link_latency", AT(fit.link_us), "80", 0, 2000, "us", "Time of a collective besides its bytes."),
    REAL("fit.network", AT(fit.network), "0.9", 0.05, 0.98, "", "Share of the network that collectives reach."),
    REAL("fit.network_latency", AT(fit.network_us), "35", 0, 5000, "us", "The same between hosts, per doubling of hosts."),
    REAL("fit.hop", AT(fit.hop_us), "15", 0, 1000, "us", "Time per rank of a ring between hosts."),
    REAL("fit.hide_tp", AT(fit.hide_tp), "0.7", 0, 1, "", "Share of tensor-parallel traffic that is hidden where a program overlaps it."),
    REAL("fit.hide_grad", AT(fit.hide_grad), "0.85", 0, 1, "", "The same of gradients and gathered weights."),
    REAL("fit.hide_ep", AT(fit.hide_ep), "0.35", 0, 1, "", "The same of the experts' exchange."),
    REAL("fit.grouped", AT(fit.grouped), "0.8", 0.05, 1, "", "Experts' products against plain ones."),
    REAL("fit.step", AT(fit.step_ms), "9", 0, 2000, "ms", "Time per step whatever its size."),
    REAL("fit.straggle", AT(fit.straggle), "0.001", 0, 0.2, "", "Share of the step, per doubling of hosts."),
    REAL("fit.median", AT(fit.median), "0.08", 0, 10, "", "Median error of runs predicted without their model."),
    REAL("fit.p90", AT(fit.p90), "0.25", 0, 10, "", "Nine in ten errors are below it."),
    REAL("fit.p90_experts", AT(fit.p90_experts), "0.4", 0, 10, "", "The same of models with experts."),
};

static const tr_option cluster_rows[] = {
    TEXT("name", IN(name), "The cluster's name."),
    TEXT("source", IN(source), "Where the figures are from."),
    COUNT("hosts", IN(hosts), "1", 1, 1 << 20, "hosts", "Machines."),
    COUNT("host_devices", IN(host_devices), "8", 1, 4096, "devices", "Devices of a machine."),
    COUNT("link_devices", IN(domain), "0", 0, 1 << 20, "devices", "Devices joined by fast links; 0: those of a host, or of the device's link domain where that is larger."),
    REAL("network", IN(network_gbit), "0", 0, 1e5, "Gbit/s", "Network per device; 0: the device's."),
    COUNT("fabric.leaf_hosts", IN(fabric.leaf_hosts), "0", 0, 1 << 20, "hosts", "Hosts below one leaf switch (of a rail); 0: all."),
    COUNT("fabric.pod_hosts", IN(fabric.pod_hosts), "0", 0, 1 << 20, "hosts", "Hosts below one set of spines; 0: all."),
    REAL("fabric.leaf_oversubscription", IN(fabric.leaf_oversubscription), "1", 1, 1000, "", "Ports of hosts per port that leaves their leaf."),
    REAL("fabric.pod_oversubscription", IN(fabric.pod_oversubscription), "1", 1, 1000, "", "Ports of hosts per port that leaves their pod."),
    REAL("fabric.congestion", IN(fabric.congestion), "1", 1, 100, "", "The fullest link above the leaves against an even spread."),
    {.path = "fabric.rails", .type = TR_OPTION_BOOL, .offset = IN(fabric.rails), .def = "no", .help = "Each port of a host has leaves of its own."},
    REAL("fabric.host_mtbf", IN(fabric.host_mtbf), "0", 0, 1e8, "h", "Hours between failures of a host as a whole; 0: not known."),
    REAL("fabric.switch_mtbf", IN(fabric.switch_mtbf), "0", 0, 1e8, "h", "Hours between failures of a leaf switch; 0: not known."),
    TEXT("fabric.source", IN(fabric.source), "Where the section's figures are from."),
    REAL("mtbf", IN(mtbf_hours), "50000", 1, 1e8, "h", "Hours between failures of one device with its share of the host."),
    REAL("storage", IN(storage_gbs), "100", 0.001, 1e6, "GB/s", "What all hosts together write to storage."),
    REAL("price", IN(price_hour), "0", 0, 1e4, "per hour", "Price of a device's hour; 0: the device's."),
};
// clang-format on

// The first of the efficiencies; all rows behind it are some, the last three their errors.
static size_t fit_first(void) {
  size_t i = 0;
  while (strcmp(device_rows[i].path, "fit.matmul") != 0) i++;
  return i;
}

const tr_option *tr_device_fit_rows(size_t *n) {
  *n = sizeof device_rows / sizeof *device_rows - fit_first() - 3;
  return device_rows + fit_first();
}

static int is_file(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

// "V100-SXM3-32 (DGX-2)" is looked for as v100-sxm3-32-dgx-2.
static void preset_name(const char *name, char out[NAME_LIMIT]) {
  size_t n = 0;
  for (; *name && n + 1 < NAME_LIMIT; name++) {
    if (isalnum((unsigned char)*name) || *name == '.' || *name == '_')
      out[n++] = (char)tolower((unsigned char)*name);
    else if (n > 0 && out[n - 1] != '-')
      out[n++] = '-';
  }
  while (n > 0 && out[n - 1] == '-') n--;
  out[n] = '\0';
}

static tr_status find(const char *what, const char *folder, const char *name, char path[PATH_LIMIT]) {
  char plain[NAME_LIMIT], sentence[512];
  snprintf(path, PATH_LIMIT, "%s", name);
  if (is_file(path)) return TR_OK;
  preset_name(name, plain);
  if (tr_preset_find(folder, plain, ".yaml", path, PATH_LIMIT)) return TR_OK;
  snprintf(sentence, sizeof sentence, "no %s '%.200s': it is no file and no preset", what, name);
  return tr_preset_missing(folder, plain, ".yaml", sentence);
}

// What options are read into stays where it is until they are destroyed: it is on the heap, and copied from there.
typedef struct reading {
  tr_options *options;
  union {
    tr_device device;
    tr_cluster cluster;
  };
} reading;

static void forget(reading *r) {
  if (r) tr_options_destroy(r->options);
  free(r);
}

// Reads a file, or the entries of `map` if it is not NULL. `sections`: what the caller reads himself, up to NULL.
static tr_status read(const char *path, const tr_yaml_node *map, const tr_option *rows, size_t n,
                      const char *const *sections, reading **out) {
  tr_yaml *yaml = NULL;
  reading *r = calloc(1, sizeof *r);
  if (!r) return tr_error(TR_ERR_MEMORY, "no memory to read %s", path);
  tr_status status = tr_options_create(rows, n, &r->device, &r->options);
  for (; status == TR_OK && *sections; sections++) status = tr_options_allow_subtree(r->options, *sections);
  if (status == TR_OK && !map) status = tr_yaml_load(path, &yaml);
  if (status == TR_OK) status = map ? tr_options_apply_map(r->options, map) : tr_options_apply_yaml(r->options, yaml);
  if (status < 0)
    forget(r);
  else
    *out = r;
  return status;
}

static tr_status need(const tr_options *options, const char *path, const char *file) {
  if (tr_options_is_set(options, path)) return TR_OK;
  return tr_error(TR_ERR_CONFIG, "%s: %s is missing", file, path);
}

static tr_status check_device(const reading *r, const char *file) {
  const tr_device *d = &r->device;
  static const char *const needed[] = {
      "name",         "peak.bf16",      "peak.source",       "memory.size",   "memory.bandwidth", "link.source",
      "link.devices", "link.bandwidth", "network.bandwidth", "memory.source", "network.source"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) TR_TRY(need(r->options, needed[i], file));
  static const char *const positive[] = {"peak.bf16", "memory.size", "memory.bandwidth", "link.bandwidth",
                                         "network.bandwidth"};
  const double value[] = {d->peak_bf16, d->memory_gib, d->memory_gbs, d->link_gbs, d->network_gbit};
  for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
    if (value[i] <= 0)
      return tr_options_error(r->options, positive[i], "0 says nothing; a number above 0 would work");
  return TR_OK;
}

// Efficiencies that a description does not give itself are those of the device that it is like.
static void inherit(reading *r, const tr_device *like) {
  for (size_t i = fit_first(); i < sizeof device_rows / sizeof *device_rows; i++) {
    size_t at = device_rows[i].offset;
    if (!tr_options_is_set(r->options, device_rows[i].path))
      memcpy((char *)&r->device + at, (const char *)like + at, sizeof(double));
  }
}

static tr_status load_device(const char *name, int depth, tr_device *out);

// `depth` bounds chains of "like".
static tr_status read_device(const char *path, const tr_yaml_node *map, int depth, tr_device *out) {
  static const char *const none[] = {NULL};
  reading *r;
  TR_TRY(read(path, map, device_rows, sizeof device_rows / sizeof *device_rows, none, &r));
  tr_status status = check_device(r, path);
  if (status == TR_OK && *r->device.like) {
    tr_device like = {0};
    status = depth == 0 ? tr_options_error(r->options, "like", "'%.80s' leads back here", r->device.like)
                        : load_device(r->device.like, depth - 1, &like);
    if (status == TR_OK) inherit(r, &like);
    tr_device_unload(&like);
  }
  if (status < 0) {
    forget(r);
    return status;
  }
  *out = r->device;
  out->owned = r;
  return TR_OK;
}

static tr_status load_device(const char *name, int depth, tr_device *out) {
  char path[PATH_LIMIT];
  TR_TRY(find("device", "devices", name, path));
  return read_device(path, NULL, depth, out);
}

enum { LIKE_MOST = 4 };
tr_status tr_device_load(const char *name, tr_device *out) { return load_device(name, LIKE_MOST, out); }

void tr_device_unload(tr_device *device) {
  forget(device->owned);
  *device = (tr_device){0};
}

// A name, or the device itself as a map.
static tr_status read_cluster_device(const reading *r, const char *path, tr_device *out) {
  const tr_yaml_node *node = tr_options_subtree(r->options, "device");
  if (!node) return tr_error(TR_ERR_CONFIG, "%s: device is missing", path);
  if (node->kind == TR_YAML_MAP) return read_device(path, node, LIKE_MOST, out);
  if (node->kind == TR_YAML_SCALAR) return tr_device_load(node->value, out);
  return tr_error(TR_ERR_CONFIG, "%s:%d:%d: device is a name, or a map with what a device's file has", node->file,
                  node->line, node->column);
}

// What was measured there takes the place of what the device says.
static tr_status read_measured(const reading *r, tr_cluster *c) {
  const tr_yaml_node *links = tr_options_subtree(r->options, "links"),
                     *kernels = tr_options_subtree(r->options, "kernels");
  if (links) TR_TRY(tr__measured_links(links, c));
  return kernels ? tr__measured_kernels(kernels, c) : TR_OK;
}

static tr_status check_fabric(const reading *r, const char *file) {
  const tr_fabric *f = &r->cluster.fabric;
  int given =
      f->leaf_hosts || f->pod_hosts || f->rails || f->congestion > 1 || f->host_mtbf > 0 || f->switch_mtbf > 0;
  if (given) TR_TRY(need(r->options, "fabric.source", file));
  if (f->pod_hosts > 0 && f->leaf_hosts > 0 && f->pod_hosts % f->leaf_hosts != 0)
    return tr_options_error(r->options, "fabric.pod_hosts", "%lld is no multiple of fabric.leaf_hosts, %lld",
                            (long long)f->pod_hosts, (long long)f->leaf_hosts);
  if (f->leaf_oversubscription > 1 && f->leaf_hosts == 0)
    return tr_options_error(r->options, "fabric.leaf_oversubscription",
                            "needs fabric.leaf_hosts to say what is below");
  if (f->pod_oversubscription > 1 && f->pod_hosts == 0)
    return tr_options_error(r->options, "fabric.pod_oversubscription", "needs fabric.pod_hosts to say what is below");
  return TR_OK;
}

tr_status tr_cluster_load(const char *name, tr_cluster *out) {
  static const char *const needed[] = {"name", "hosts", "host_devices", "source"};
  static const char *const sections[] = {"device", "links", "kernels", NULL};
  char path[PATH_LIMIT];
  reading *r;
  tr_device device;
  TR_TRY(find("cluster", "clusters", name, path));
  TR_TRY(read(path, NULL, cluster_rows, sizeof cluster_rows / sizeof *cluster_rows, sections, &r));
  tr_status status = TR_OK;
  for (size_t i = 0; i < sizeof needed / sizeof *needed && status == TR_OK; i++)
    status = need(r->options, needed[i], path);
  if (status == TR_OK) status = check_fabric(r, path);
  if (status == TR_OK) status = read_cluster_device(r, path, &device);
  if (status < 0) {
    forget(r);
    return status;
  }
  tr_cluster c = r->cluster, standard = tr_cluster_of(&device, c.hosts * c.host_devices, c.host_devices);
  c.device = device;
  c.device_name = device.name;
  c.owned = r;
  if (c.domain == 0) c.domain = standard.domain;
  if (c.network_gbit == 0) c.network_gbit = standard.network_gbit;
  if (c.price_hour == 0) c.price_hour = device.price_hour;
  status = read_measured(r, &c);
  if (status < 0) {
    tr_cluster_unload(&c);
    return status;
  }
  *out = c;
  return TR_OK;
}

void tr_cluster_unload(tr_cluster *cluster) {
  tr_device_unload(&cluster->device);
  free(cluster->kernels.row);
  forget(cluster->owned);
  *cluster = (tr_cluster){0};
}

tr_cluster tr_cluster_of(const tr_device *device, int64_t devices, int64_t host_devices) {
  if (devices < 1) devices = 1;
  if (host_devices <= 0) host_devices = device->link_domain < 8 ? device->link_domain : 8;
  tr_cluster c = {
      .name = device->name, .device_name = device->name, .source = device->source_link, .device = *device};
  c.host_devices = host_devices < devices ? host_devices : devices;
  c.hosts = (devices + c.host_devices - 1) / c.host_devices;
  c.domain = device->link_domain > 16 || device->link_domain < host_devices ? device->link_domain : host_devices;
  c.network_gbit = device->network_gbit;
  c.mtbf_hours = 50000;
  c.storage_gbs = 100;
  c.price_hour = device->price_hour;
  return c;
}
