// SPDX-License-Identifier: MIT
// What the files of a checkpoint will be, before any of them is there.
//
// Headers, sizes and offsets follow from the list of files alone. Who writes what follows from the number of writers
// too: all tensors in a row, cut into as many stretches of about the same number of bytes, so that a writer has one
// stretch of a file and writes it in order. A tensor belongs to the stretch that its middle lies in. Where writers have only
// a side of the tensors, those of each side are cut among its writers.
#include "ckpt/ckpt_internal.h"
#include "trireme/base/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tr_status plan_file(const tr_ckpt_file *file, size_t f, tr__plan *plan) {
  static const tr_metadata format = {"format", "pt"}; // readers of Hugging Face files ask for it
  tr__plan_file *out = &plan->file[f];
  out->name = strdup(file->name);
  out->is_text = !file->item;
  out->first = plan->ntensor;
  if (!out->name) return tr_error(TR_ERR_MEMORY, "no memory for the name of a file");
  if (out->is_text) return TR_OK;
  tr_status status = tr__st_header(file->item, file->nitem, &format, 1, &out->header, &out->nbyte);
  if (status < 0) {
    tr_error_prefix("%s", file->name);
    return status;
  }
  tr_text_fit(&out->header); // it is kept for the whole run
  out->hash = tr_hash_bytes(out->header.data, out->header.size);
  out->ntensor = file->nitem;
  uint64_t at = out->header.size;
  for (size_t i = 0; i < file->nitem; i++) {
    uint64_t nbyte = tr__stored_nbyte(&file->item[i]);
    char *name = strdup(file->item[i].name);
    if (!name) return tr_error(TR_ERR_MEMORY, "no memory for the name of a tensor");
    plan->tensor[plan->ntensor++] =
        (tr__plan_tensor){.name = name, .file = f, .item = i, .offset = at, .nbyte = nbyte, .owner = -1};
    plan->nbyte += nbyte;
    at += nbyte;
  }
  return TR_OK;
}

// The n-th writer of a side.
static int writer_of(const int *side, int of, int n) {
  int writer = 0;
  if (!side) return n;
  while (side[writer] != of || n-- > 0) writer++;
  return writer;
}

// The tensors of one side, `whole` bytes, to its writers; without sides there is one, which is all.
static void give_to_side(tr__plan *plan, int nwriter, uint64_t whole, const int *side, const int *held, int of) {
  uint64_t before = 0;
  for (size_t i = 0; i < plan->ntensor; i++) {
    tr__plan_tensor *t = &plan->tensor[i];
    if (held && held[i] != of) continue;
    unsigned __int128 middle = (unsigned __int128)before * 2 + t->nbyte;
    int n = whole ? (int)(middle * (unsigned)nwriter / ((unsigned __int128)whole * 2)) : 0;
    t->owner = writer_of(side, of, n < nwriter ? n : nwriter - 1);
    before += t->nbyte;
  }
}

static tr_status give_to_writers(tr__plan *plan, int nwriter, const int *side, const int *held) {
  if (!side) {
    give_to_side(plan, nwriter, plan->nbyte, NULL, NULL, 0);
    return TR_OK;
  }
  for (int of = 0, seen = 0; seen < nwriter; of++) {
    int n = 0;
    uint64_t whole = 0;
    for (int w = 0; w < nwriter; w++) n += side[w] == of;
    for (size_t i = 0; i < plan->ntensor; i++) whole += held[i] == of ? plan->tensor[i].nbyte : 0;
    if (n == 0 && whole)
      return tr_error(TR_ERR_USAGE, "no writer has the %" PRIu64 " bytes of side %d of a checkpoint", whole, of);
    if (n) give_to_side(plan, n, whole, side, held, of);
    seen += n;
  }
  for (size_t i = 0; i < plan->ntensor; i++)
    if (plan->tensor[i].owner < 0)
      return tr_error(TR_ERR_USAGE, "no writer has tensor '%s' of a checkpoint", plan->tensor[i].name);
  return TR_OK;
}

// What all writers must agree on: names, and headers, which hold everything else.
static uint64_t hash_of(const tr__plan *plan) {
  uint64_t hash = plan->nfile;
  for (size_t f = 0; f < plan->nfile; f++) {
    uint64_t mix[3] = {hash, plan->file[f].hash, tr_hash_bytes(plan->file[f].name, strlen(plan->file[f].name))};
    hash = tr_hash_bytes(mix, sizeof mix);
  }
  return hash;
}

tr_status tr__plan_make(const tr_ckpt_file *file, size_t nfile, int nwriter, const int *side, const int *held,
                        tr__plan *out) {
  size_t ntensor = 0;
  for (size_t f = 0; f < nfile; f++) ntensor += file[f].item ? file[f].nitem : 0;
  *out = (tr__plan){.nfile = nfile};
  out->file = calloc(nfile + 1, sizeof *out->file);
  out->tensor = calloc(ntensor + 1, sizeof *out->tensor);
  tr_status status = TR_OK;
  if (!out->file || !out->tensor)
    status = tr_error(TR_ERR_MEMORY, "no memory for a list of %zu files and %zu tensors", nfile, ntensor);
  for (size_t f = 0; f < nfile && status == TR_OK; f++) status = plan_file(&file[f], f, out);
  if (status == TR_OK) status = give_to_writers(out, nwriter, side, held);
  if (status < 0) {
    tr__plan_free(out);
    return status;
  }
  out->hash = hash_of(out);
  return TR_OK;
}

void tr__plan_free(tr__plan *plan) {
  for (size_t f = 0; plan->file && f < plan->nfile; f++) {
    free(plan->file[f].name);
    tr_text_free(&plan->file[f].header);
  }
  for (size_t i = 0; i < plan->ntensor; i++) free(plan->tensor[i].name);
  free(plan->file);
  free(plan->tensor);
  *plan = (tr__plan){0};
}

int tr__plan_next_run(const tr__plan *plan, size_t f, int writer, size_t *begin, size_t *end) {
  size_t i = *end, last = plan->file[f].first + plan->file[f].ntensor;
  while (i < last && plan->tensor[i].owner != writer) i++;
  *begin = i;
  while (i < last && plan->tensor[i].owner == writer) i++;
  *end = i;
  return *begin < *end;
}
