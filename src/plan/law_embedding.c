// SPDX-License-Identifier: MIT
// Laws of embedding tables (law_embedding.h). Placing: copies of what is small; rows of what is larger than a device, or than
// the even share, since such a table alone would make its device the fullest; of the others the largest first to the
// least loaded device, which is within 4/3 of the best (Graham, 1969).
#include "trireme/plan/law_embedding.h"

#include <math.h>

static const double gib = 1073741824;

double tr_law_touched_bytes(double table_bytes, double share) { return table_bytes * share; }

double tr_law_table_bytes(const tr_law_table *table) {
  return table->rows * (table->width * table->nbyte + table->optimizer);
}

static void choose_cuts(tr_law_table *table, size_t n, const tr_law_table_budget *budget, double total) {
  for (size_t i = 0; i < n; i++) {
    double bytes = tr_law_table_bytes(&table[i]), even = total / budget->devices;
    int large = bytes > budget->capacity || bytes > even;
    table[i].cut = bytes <= budget->copy_below ? TR_LAW_TABLE_COPY : large ? TR_LAW_TABLE_ROWS : TR_LAW_TABLE_WHOLE;
  }
}

// The largest whole table that comes after `last` in the order by bytes, then by index; n when there is none.
static size_t next_whole(const tr_law_table *table, size_t n, size_t last) {
  size_t best = n;
  for (size_t i = 0; i < n; i++) {
    double bytes = tr_law_table_bytes(&table[i]), limit = last < n ? tr_law_table_bytes(&table[last]) : INFINITY;
    int after = bytes < limit || (bytes == limit && i > last);
    if (table[i].cut != TR_LAW_TABLE_WHOLE || !after) continue;
    if (best == n || bytes > tr_law_table_bytes(&table[best])) best = i;
  }
  return best;
}

static void place_whole(tr_law_table *table, size_t n, size_t devices, double *load) {
  for (size_t at = next_whole(table, n, n); at < n; at = next_whole(table, n, at)) {
    size_t least = 0;
    for (size_t d = 1; d < devices; d++)
      if (load[d] < load[least]) least = d;
    table[at].device = least;
    load[least] += tr_law_table_bytes(&table[at]);
  }
}

// What every device has in equal parts: copies in full and rows divided. Traffic is counted along.
static double spread(const tr_law_table *table, size_t n, const tr_law_table_budget *budget,
                     tr_law_table_result *out) {
  double each = 0;
  for (size_t i = 0; i < n; i++) {
    double bytes = tr_law_table_bytes(&table[i]), row = table[i].width * table[i].nbyte;
    out->total += bytes;
    out->lookup += budget->batch * table[i].pooling * row;
    if (table[i].cut == TR_LAW_TABLE_COPY) each += bytes;
    if (table[i].cut == TR_LAW_TABLE_ROWS) each += bytes / budget->devices;
    // Rows of one table on all devices are summed on the way (reduce-scatter), so one row a sample arrives either way.
    if (table[i].cut != TR_LAW_TABLE_COPY) out->moved += budget->batch * row * (1 - 1 / budget->devices);
  }
  return each;
}

tr_status tr_law_tables_place(tr_law_table *table, size_t n, const tr_law_table_budget *budget, double *load,
                              tr_law_table_result *out) {
  tr_law_table_result result = {0};
  size_t devices = (size_t)budget->devices;
  double total = 0, copies = 0;
  for (size_t i = 0; i < n; i++) total += tr_law_table_bytes(&table[i]);
  choose_cuts(table, n, budget, total);
  double each = spread(table, n, budget, &result);
  for (size_t d = 0; d < devices; d++) load[d] = each;
  place_whole(table, n, devices, load);
  for (size_t d = 0; d < devices; d++) {
    result.fullest = fmax(result.fullest, load[d]);
    result.mean += load[d] / budget->devices;
  }
  for (size_t i = 0; i < n; i++)
    if (table[i].cut == TR_LAW_TABLE_COPY) copies += tr_law_table_bytes(&table[i]);
  if (result.fullest > budget->capacity && copies >= budget->capacity)
    return tr_error(TR_ERR_PLAN, "tables that every device copies take %.4g GiB of %.4g GiB; copy fewer",
                    copies / gib, budget->capacity / gib);
  if (result.fullest > budget->capacity)
    return tr_error(TR_ERR_PLAN,
                    "embedding tables take %.4g GiB on the fullest of %zu devices, %.4g GiB more than it has; about "
                    "%.6g devices would do",
                    result.fullest / gib, devices, (result.fullest - budget->capacity) / gib,
                    ceil((total - copies) / (budget->capacity - copies)));
  *out = result;
  return TR_OK;
}
