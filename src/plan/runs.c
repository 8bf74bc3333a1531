// SPDX-License-Identifier: MIT
// A table of runs with the devices that they name, and its predictions as a table again.
#include "trireme/plan/runs.h"
#include "plan/runs_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MOST = 64 };

typedef struct holdings {
  tr__csv csv;
  tr_device device[DEVICES_MOST];
  const char *name[DEVICES_MOST];
  int like[DEVICES_MOST]; // the name is none; the device is like it
  size_t ndevice;
} holdings;

// The device of that name, or, if there is none, the one that is most like it, read once; NULL with the reason recorded.
static const tr_device *device_of(holdings *h, const char *name) {
  char like[128];
  for (size_t i = 0; i < h->ndevice; i++)
    if (strcmp(h->name[i], name) == 0) return &h->device[i];
  if (h->ndevice == DEVICES_MOST) {
    (void)tr_error(TR_ERR_DATA, "more than %d kinds of device", DEVICES_MOST);
    return NULL;
  }
  tr_device *device = &h->device[h->ndevice];
  if (tr_device_load(name, device) < 0) {
    if (!tr__settle_device(name, like, sizeof like) || tr_device_load(like, device) < 0) return NULL;
    h->like[h->ndevice] = 1;
  }
  h->name[h->ndevice++] = name;
  return device;
}

tr_status tr_runs_load(const char *path, tr_runs *out) {
  holdings *h = calloc(1, sizeof *h);
  tr_runs runs = {.owned = h};
  if (!h) return tr_error(TR_ERR_MEMORY, "no memory for the runs of %s", path);
  tr_status status = tr__csv_load(path, &h->csv);
  if (status == TR_OK && !(runs.run = calloc(h->csv.nrow + 1, sizeof *runs.run)))
    status = tr_error(TR_ERR_MEMORY, "no memory for the runs of %s", path);
  if (status == TR_OK && tr__csv_column(&h->csv, "n_gpus") < 0)
    status = tr_error(TR_ERR_DATA,
                      "%s has no column 'n_gpus'; the columns of published runs or of one node are expected", path);
  for (size_t i = 0; status == TR_OK && i < h->csv.nrow; i++) {
    tr_run *run = &runs.run[runs.n++];
    tr__run_read(&h->csv, i, run);
    const tr_device *device = device_of(h, run->device_name);
    if (device) tr__run_finish(&h->csv, i, device, run);
    if (device && h->like[device - h->device])
      tr__run_note(run, "'%.40s' is taken as %s", run->device_name, device->name);
    if (!device && !*run->why) snprintf(run->why, sizeof run->why, "%s", tr_status_text());
  }
  if (status == TR_OK)
    *out = runs;
  else
    tr_runs_unload(&runs);
  return status;
}

void tr_runs_unload(tr_runs *runs) {
  holdings *h = runs->owned;
  for (size_t i = 0; h && i < h->ndevice; i++) tr_device_unload(&h->device[i]);
  if (h) tr__csv_unload(&h->csv);
  free(h);
  free(runs->run);
  *runs = (tr_runs){0};
}

// Sources count memory in GB or GiB, as allocators or whole processes see it, or states alone.
static double memory_as_counted(const tr_run *run, const tr_footprint *m) {
  const char *kind = run->memory_kind;
  const double *item = m->item;
  if (strstr(kind, "states only")) return (item[TR_ITEM_WEIGHTS] + item[TR_ITEM_GRADS] + item[TR_ITEM_STATES]) / 1e9;
  int whole = strstr(kind, "nvidia-smi") || strstr(kind, "GB total process");
  double bytes = whole ? m->process : m->total;
  if (strstr(kind, "params+opt+activations")) bytes -= item[TR_ITEM_BUFFERS] + item[TR_ITEM_LOGITS];
  return bytes / (strncmp(kind, "GiB", 3) == 0 || strstr(kind, "nvidia-smi") ? 1073741824.0 : 1e9);
}

void tr_runs_predict(tr_runs *runs) {
  for (size_t i = 0; i < runs->n; i++) {
    tr_run *run = &runs->run[i];
    double term[TR_TERM_COUNT];
    tr_footprint memory;
    run->predicted_step = run->predicted_memory = 0;
    if (*run->why && !run->states_only) continue;
    tr_predict_memory(&run->plan, &run->model, &run->cluster, &memory);
    if (run->states_only || !run->micro_unknown || run->searched)
      run->predicted_memory = memory_as_counted(run, &memory);
    if (*run->why) continue;
    run->predicted_step = tr_predict_step(&run->plan, &run->model, &run->cluster, term);
  }
}

static void append_quoted(tr_text *out, const char *note) {
  tr_text_append(out, "\"");
  for (; *note; note++) tr_text_append(out, *note == '"' ? "\"\"" : "%c", *note);
  tr_text_append(out, "\"");
}

// Of the time, as a share: nine in ten comparable runs; of what was guessed, half.
static const double GUESSED = 0.5;
static double spread_of(const tr_run *run) {
  double spread = tr_predict_spread(&run->model, &run->cluster);
  return run->guessed ? fmax(spread, GUESSED) : spread;
}

static void append_note(const tr_run *run, tr_text *out) {
  char lack[128] = "", batch[] = "the batch is not stated: the time of a step of eight passes", note[640];
  tr_footprint m;
  tr_predict_memory(&run->plan, &run->model, &run->cluster, &m);
  double gib = 1073741824, room = run->cluster.device.memory_gib;
  if (run->micro_unknown && !run->searched)
    snprintf(lack, sizeof lack, "no memory: the micro-batch is not stated, and taken as 1");
  else if (m.needed > room * gib)
    snprintf(lack, sizeof lack, "out of memory: needs %.1f GiB of %.0f; most of it %s on stage %lld", m.needed / gib,
             room, tr_memory_item_name(m.biggest), (long long)m.stage);
  const char *part[] = {lack, run->batch_unknown && !run->searched ? batch : "", run->note};
  size_t n = 0;
  note[0] = '\0';
  for (size_t i = 0; i < sizeof part / sizeof *part; i++)
    if (*part[i] && n < sizeof note) n += (size_t)snprintf(note + n, sizeof note - n, "%s%s", n ? "; " : "", part[i]);
  if (n > 0) append_quoted(out, note);
}

static void append_prediction(const tr_run *run, tr_text *out) {
  double spread = 1 + spread_of(run), step = run->predicted_step, memory = run->predicted_memory;
  tr_text_append(out, "%.5g,%.5g,%.5g,", step, step / spread, step * spread);
  if (memory > 0)
    tr_text_append(out, "%.4g,%.4g,%.4g,", memory, memory * 0.87, memory * 1.15);
  else
    tr_text_append(out, ",,,");
  append_note(run, out);
}

static void append_refusal(const tr_run *run, tr_text *out) {
  double m = run->predicted_memory; // of states alone
  if (m > 0)
    tr_text_append(out, ",,,%.4g,%.4g,%.4g,", m, m * 0.98, m * 1.02);
  else
    tr_text_append(out, ",,,,,,");
  append_quoted(out, run->why);
}

void tr_runs_csv(const tr_runs *runs, tr_text *out) {
  tr_text_append(out, "id,predicted_step_time_s,step_time_low_s,step_time_high_s,predicted_mem_gb,mem_low_gb,"
                      "mem_high_gb,note\n");
  for (size_t i = 0; i < runs->n; i++) {
    const tr_run *run = &runs->run[i];
    tr_text_append(out, "%s,", run->id);
    if (*run->why)
      append_refusal(run, out);
    else
      append_prediction(run, out);
    tr_text_append(out, "\n");
  }
}
