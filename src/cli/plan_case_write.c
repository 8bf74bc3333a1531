// SPDX-License-Identifier: MIT
// Writing a plan as a run file (plan_case_internal.h): the fields that decide it, and what is predicted of it as comments.
// What train has no field for stands in the section `plan`, unless it is 1.
#include "cli/plan_case_internal.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/plan/pipeline.h"
#include <string.h>

static const double GIB = 1073741824;

// In double quotes, as YAML reads them.
static void append_name(const char *key, const char *name, tr_text *out) {
  tr_text_append(out, "  %s: \"", key);
  for (; *name; name++) tr_text_append(out, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
  tr_text_append(out, "\"\n");
}

static void append_count(const char *key, int64_t value, tr_text *out) {
  tr_text_append(out, "  %s: %lld\n", key, (long long)value);
}

static void append_prediction(const tr__plan_case *c, const tr_prediction *x, tr_text *out) {
  tr_text_append(out, "# Predicted: %.4g s a step (%.4g to %.4g), MFU %.1f %%, %.0f tokens/s per device.\n", x->step,
                 x->low, x->high, 100 * x->mfu, x->tokens_per_device);
  tr_text_append(out, "# Time, s:");
  for (int i = 0; i < TR_TERM_COUNT; i++)
    if (x->term[i] > 0) tr_text_append(out, " %s %.4g", tr_time_term_name(i), x->term[i]);
  tr_text_append(out, "\n# Memory of the fullest rank (place %lld of the pipeline), GiB: %.4g of %.4g;",
                 (long long)x->memory.stage, x->memory.process / GIB, c->cluster.device.memory_gib);
  for (int i = 0; i < TR_ITEM_COUNT; i++)
    if (x->memory.item[i] > 0) tr_text_append(out, " %s %.3g", tr_memory_item_name(i), x->memory.item[i] / GIB);
  tr_text_append(out, "\n");
}

static void append_parallel(const tr_plan *p, tr_text *out) {
  char map[32];
  tr_plan standard;
  tr_text_append(out, "parallel:\n");
  append_count("dp", p->dp, out);
  append_count("tp", p->tp, out);
  append_count("pp", p->pp, out);
  append_count("cp", p->cp, out);
  append_count("zero", p->zero, out);
  tr_plan_init(&standard);
  tr__plan_map_text(p, map, sizeof map);
  if (memcmp(p->map, standard.map, sizeof p->map) != 0) tr_text_append(out, "  map: %s\n", map);
  if (p->pp > 1 && (p->schedule || p->vpp > 1)) tr_text_append(out, "  schedule: %s\n", tr_plan_schedule(p));
  if (p->vpp > 1) append_count("chunks", p->vpp, out);
}

tr_status tr__plan_case_write(const tr__plan_case *c, const tr_prediction *x, const char *path) {
  const tr_plan *p = &c->plan;
  int64_t devices = tr_plan_devices(p);
  tr_text out = {0};
  tr_text_append(&out, "# The plan that `trireme plan` found for %lld x %s.\n", (long long)devices,
                 c->cluster.device.name);
  append_prediction(c, x, &out);
  tr_text_append(&out, "plan: # for trireme plan explain and what-if; train does not read it\n");
  append_name("cluster", c->cluster_name, &out);
  append_count("devices", devices, &out);
  if (p->vpp > 1) append_count("vpp", p->vpp, &out);
  if (p->ep > 1) append_count("ep", p->ep, &out);
  if (c->model.imbalance > 1) tr_text_append(&out, "  imbalance: %.10g\n", c->model.imbalance);
  tr_text_append(&out, "model:\n");
  append_name("from", c->model_name, &out);
  tr_text_append(&out, "data:\n");
  append_count("sequence", p->sequence, &out);
  tr_text_append(&out, "batch:\n");
  append_count("sequences", p->batch, &out);
  append_count("micro", p->micro, &out);
  append_parallel(p, &out);
  tr_text_append(&out, "precision:\n  compute: %s\n", p->number == TR_PLAN_FP8 ? "fp8" : "bf16");
  tr_text_append(&out, "memory:\n  recompute: %s\n", tr_plan_recompute_name(p->recompute));
  if (devices <= c->cluster.host_devices) {
    tr_text_append(&out, "run:\n");
    append_count("ranks", devices, &out);
  }
  tr_status status = out.failed ? tr_error(TR_ERR_MEMORY, "no memory for the run file")
                                : tr_file_write_atomic(path, out.data, out.size);
  tr_text_free(&out);
  return status;
}
