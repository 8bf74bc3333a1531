// SPDX-License-Identifier: MIT
// The contract of determinism: everything that decides the bits of a run, written down with it. Two runs with equal
// contracts give the same losses and weights, bit for bit; when a run goes on under another contract, what changed is said.
#include "train/train_internal.h"
#include "trireme/base/cpu.h"
#include "trireme/base/file.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static json_t *hash_json(uint64_t hash) {
  char text[17];
  snprintf(text, sizeof text, "%016" PRIx64, hash);
  return json_string(text);
}

// Of the program's own file; null where the system does not show it.
static json_t *binary_hash(void) {
  tr_file_map map;
  if (tr_file_map_open("/proc/self/exe", &map) < 0) return json_null();
  json_t *hash = hash_json(tr_hash_bytes(map.data, map.nbyte));
  tr_file_map_close(&map);
  return hash;
}

static json_t *data_json(const tr_train_plan *plan) {
  json_t *list = json_array();
  for (size_t i = 0; i < tr_source_corpora(plan->source); i++) {
    const tr_corpus *corpus = tr_source_corpus(plan->source, i);
    json_array_append_new(list,
                          json_pack("{s:s, s:I, s:o}", "format", tr_corpus_format_name(corpus), "tokens",
                                    (json_int_t)tr_corpus_tokens(corpus), "xxh3", hash_json(tr_corpus_hash(corpus))));
  }
  return list;
}

// Shares as numbers that add up to 1, so that "1,3" and "2,6" are the same; null: by size.
static json_t *shares_json(const char *weights) {
  double sum = 0;
  json_t *list = json_array();
  if (!*weights) {
    json_decref(list);
    return json_null();
  }
  for (int pass = 0; pass < 2; pass++)
    for (const char *at = weights; *at; at += strcspn(at, ","), at += *at == ',') {
      double share = strtod(at, NULL);
      if (pass)
        json_array_append_new(list, json_integer((json_int_t)llround(share / sum * 1e12)));
      else
        sum += share;
    }
  return list;
}

// What decides which tokens sample g is made of, and how samples are dealt. Where the end of a document means nothing, it
// does not count.
static json_t *order_json(const tr_train_plan *plan) {
  static const char *const packing[] = {"stream", "documents", "first_fit"};
  const tr_train_config *c = plan->config;
  int ends = c->data.documents || c->data.packing != TR_PACK_STREAM;
  return json_pack("{s:s, s:b, s:o, s:i, s:I, s:s, s:s, s:I, s:I}", "packing", packing[c->data.packing], "documents",
                   c->data.documents, "weights", shares_json(c->data.weights), "end", ends ? (int)plan->end : -1,
                   "samples", (json_int_t)plan->samples, "sampling",
                   c->data.sampling == TR_SAMPLING_REPLACEMENT ? "replacement" : "epochs", "dealing",
                   c->data.dealing == TR_DEALING_BALANCED ? "balanced" : "order", "sequence",
                   (json_int_t)c->data.sequence, "batch", (json_int_t)c->batch.sequences);
}

static int stage_of(const tr_train_plan *plan, int piece) {
  int stage = 0;
  while (piece >= plan->stage_piece[stage + 1]) stage++;
  return stage;
}

// Whether two stages use one parameter (tied embeddings), whose gradient is then added in an order of its own.
static int stages_share(const tr_train_plan *plan) {
  const int nparam = tr_model_params(plan->model);
  int shared = 0, *stage = calloc((size_t)nparam, sizeof *stage); // of the first user, from 1 on
  for (int i = 0; stage && i < tr_model_pieces(plan->model); i++) {
    const tr_piece *piece = tr_model_piece(plan->model, i);
    for (int k = 0; k < piece->nparam; k++) {
      int *first = &stage[piece->param[k]], own = stage_of(plan, i) + 1;
      if (!*first) *first = own;
      shared |= *first != own;
    }
  }
  free(stage);
  return shared;
}

// A pipeline has the bits of one rank, unless something is added in another order or rounded on the way.
static json_t *pipeline_json(const tr_train_plan *plan, const tr_run_options *run) {
  const tr_schedule *s = &plan->schedule;
  const tr_dtype wire = tr__stage_type(plan->config);
  if (!s->p || (tr_schedule_ascends(s) && s->map != TR_STAGES_BOTH && wire == run->type && !stages_share(plan)))
    return NULL;
  return json_pack("{s:i, s:s, s:i, s:s}", "pp", s->p, "schedule", s->name, "stages", s->S, "wire",
                   tr_dtype_name(wire));
}

tr_status tr__contract(const tr_train_plan *plan, json_t **out) {
  const tr_train_config *c = plan->config;
  tr_run_options run;
  tr_train_run_options(plan, 0, &run);
  json_t *json = json_pack(
      "{s:I, s:o, s:o, s:o, s:{s:s, s:s, s:s, s:s}, s:s, s:s, s:o, s:{s:i, s:i, s:i, s:s}, s:s}", "seed",
      (json_int_t)c->train.seed, "data", data_json(plan), "order", order_json(plan), "tokenizer",
      plan->tokenizer ? hash_json(tr_tokenizer_hash(plan->tokenizer)) : json_null(), "types", "compute",
      tr_dtype_name(run.type), "wire", tr_dtype_name(plan->step.dp > 1 ? run.grad_wire : TR_F32), "accumulate", "f32",
      "master", "f32", "kernels", run.kernels->name, "cpu", tr_isa_name(tr_cpu_isa()), "program", binary_hash(),
      "layout", "dp", plan->mesh.degree[TR_AXIS_DP], "micro", plan->micro, "accumulation", plan->accumulation,
      "grad_sync", c->comm.grad_sync == TR_SYNC_EVERY ? "every" : "last", "sums",
      c->comm.order == TR_ORDER_ANY ? "any order" : "aligned binary tree over ranks");
  json_t *pipeline = pipeline_json(plan, &run);
  if (json && pipeline) json_object_set(json_object_get(json, "layout"), "pipeline", pipeline);
  json_decref(pipeline);
  if (!json) return tr_error(TR_ERR_MEMORY, "no memory for the contract of the run");
  *out = json;
  return TR_OK;
}

// Processors and mounts may differ between hosts; files are known by what they hold.
static int of_its_host(const char *line, size_t nbyte) {
  static const char *const keys[] = {
      "  threads:", "  bind:", "  progress:", "  deadline:", "  path:", "  val_path:", "  cache:", "  tokenizer:"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (nbyte > strlen(keys[i]) && strncmp(line, keys[i], strlen(keys[i])) == 0) return 1;
  return 0;
}

tr_status tr__contract_number(const tr_train_plan *plan, const tr_options *options, uint64_t *out) {
  tr_text all = {0}, common = {0};
  tr_options_print(options, 0, &all);
  for (const char *line = all.data, *end; line && *line; line = *end ? end + 1 : end) {
    end = line + strcspn(line, "\n");
    if (!of_its_host(line, (size_t)(end - line))) tr_text_append(&common, "%.*s\n", (int)(end - line), line);
  }
  tr_text_append(&common, "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n", tr_source_hash(plan->source),
                 tr_source_validation_hash(plan->source), plan->tokenizer ? tr_tokenizer_hash(plan->tokenizer) : 0);
  tr_status status =
      all.failed || common.failed ? tr_error(TR_ERR_MEMORY, "no memory to compare the settings") : TR_OK;
  if (status == TR_OK) *out = tr_hash_bytes(common.data, common.size);
  tr_text_free(&all);
  tr_text_free(&common);
  return status;
}

void tr__contract_compare(const json_t *own, const json_t *saved, tr_text *out) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)own, key, value) {
    if (json_equal(value, json_object_get(saved, key))) continue;
    tr_text_append(out, "%s%s", out->size ? ", " : "", key);
  }
}
