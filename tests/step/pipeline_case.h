// SPDX-License-Identifier: MIT
// A pipeline for tests: a schedule, for each rank a part of a model drawn at random, and the programs of all ranks.
//
// Stages have one to three pieces and one or two units; the first and the last stage may share one (as a tied embedding
// does), on one rank or on two. Ranks may compute things again, or have pieces that communicate.
#ifndef TRIREME_TESTS_STEP_PIPELINE_CASE_H
#define TRIREME_TESTS_STEP_PIPELINE_CASE_H

#include "step/symbolic_ranks.h"
#include "trireme/step/schedule.h"

typedef struct pc_part {
  int chunk_piece[2 * SR_CHUNKS], last_piece[SR_UNITS], unit_chunk_piece[SR_CHUNKS * SR_UNITS], tied[1],
      comm_piece[SR_PIECES];
  int64_t start[SR_UNITS + 1];
  tr_step_use use[SR_CHUNKS];
  tr_step_range range[SR_PIECES];
  tr_step_model model;
  tr_step_options options;
} pc_part;

typedef struct pc_case {
  tr_schedule schedule;
  pc_part part[SR_RANKS];
  tr_program program[SR_RANKS];
  const tr_program *pointer[SR_RANKS];
} pc_case;

// What the whole model is like; each is drawn, or set by a test.
typedef struct pc_wish {
  int most_pieces; // of a stage
  int tied, recompute, comm, use, dp, zero;
  int64_t bucket;
} pc_wish;

static inline pc_wish pc_draw(uint64_t *random) {
  static const int64_t bucket[] = {0, 150, 1 << 30};
  pc_wish wish = {.most_pieces = 3,
                  .tied = (int)sr_random(random, 2),
                  .recompute = sr_random(random, 3) == 0,
                  .comm = (int)sr_random(random, 2),
                  .use = (int)sr_random(random, 2),
                  .dp = 1 + (int)sr_random(random, 2),
                  .zero = (int)sr_random(random, 2)};
  wish.bucket = bucket[sr_random(random, 3)];
  return wish;
}

static inline void pc_add_unit(pc_part *part, int chunk, int piece, uint64_t *random) {
  int unit = part->model.nunit++;
  part->last_piece[unit] = piece;
  part->start[unit + 1] = part->start[unit] + 64 * (1 + sr_random(random, 3));
  for (int c = 0; c < SR_CHUNKS; c++) part->unit_chunk_piece[c * SR_UNITS + unit] = c == chunk ? piece : -1;
}

static inline int pc_has_comm(const pc_wish *wish, uint64_t *random) {
  return wish->comm && sr_random(random, 3) == 0;
}

static inline void pc_add_chunk(pc_part *part, int chunk, const pc_wish *wish, uint64_t *random) {
  int first = part->model.npiece, n = 1 + (int)sr_random(random, (uint32_t)wish->most_pieces), last = first + n;
  part->chunk_piece[2 * chunk] = first;
  part->chunk_piece[2 * chunk + 1] = part->model.npiece = last;
  for (uint32_t k = 1 + sr_random(random, 2); k > 0; k--)
    pc_add_unit(part, chunk, first + (int)sr_random(random, (uint32_t)n), random);
  if (wish->recompute && sr_random(random, 2)) {
    int begin = first + (int)sr_random(random, (uint32_t)n);
    part->range[part->options.nrecompute++] =
        (tr_step_range){begin, begin + 1 + (int)sr_random(random, (uint32_t)(last - begin))};
  }
  for (int p = first; p < last; p++)
    if (pc_has_comm(wish, random)) part->comm_piece[part->model.ncomm++] = p;
  static const uint8_t until[] = {TR_OP_F, TR_OP_I, TR_OP_W};
  part->use[chunk] = (tr_step_use){until[sr_random(random, 3)], until[1 + sr_random(random, 2)]};
}

// Rows of unit_chunk_piece lie as far apart as there are units.
static inline void pc_close_rows(pc_part *part, int nchunk) {
  for (int c = 0; c < nchunk; c++)
    for (int u = 0; u < part->model.nunit; u++)
      part->unit_chunk_piece[c * part->model.nunit + u] = part->unit_chunk_piece[c * SR_UNITS + u];
}

// The first and the last stage share a unit of this rank: as one of two chunks, or with another rank.
static inline void pc_tie(pc_part *part, const tr_schedule *s, const int *stage, int nchunk, uint64_t *random) {
  int first = -1, last = -1;
  for (int c = 0; c < nchunk; c++) {
    if (stage[c] == 0) first = c;
    if (stage[c] == s->S - 1) last = c;
  }
  if ((first < 0 && last < 0) || s->S == 1) return;
  int chunk = first >= 0 ? first : last, unit = part->model.nunit;
  pc_add_unit(part, chunk, part->chunk_piece[2 * chunk], random);
  if (first >= 0 && last >= 0)
    part->unit_chunk_piece[last * SR_UNITS + unit] = part->chunk_piece[2 * last + 1] - 1;
  else
    part->tied[part->model.ntied++] = unit;
}

static inline void pc_make_part(pc_part *part, const tr_schedule *s, int rank, const pc_wish *wish,
                                uint64_t *random) {
  int stage[SR_CHUNKS], nchunk = tr_schedule_stages(s, rank, stage);
  *part = (pc_part){.options = {.microbatches = s->m,
                                .dp = wish->dp * (s->map == TR_STAGES_BOTH ? 2 : 1),
                                .bucket_elements = wish->bucket,
                                .zero = wish->zero}};
  for (int c = 0; c < nchunk; c++) pc_add_chunk(part, c, wish, random);
  if (wish->tied) pc_tie(part, s, stage, nchunk, random);
  pc_close_rows(part, nchunk);
  part->options.recompute = part->range;
  part->model.unit_last_piece = part->last_piece;
  part->model.unit_start = part->start;
  part->model.unit_chunk_piece = wish->tied ? part->unit_chunk_piece : NULL;
  part->model.tied = part->tied;
  part->model.comm_piece = part->comm_piece;
  part->model.use = wish->use ? part->use : NULL;
}

// The schedule is the case's from now on.
static inline tr_status pc_build(pc_case *c, const tr_schedule *schedule, const pc_wish *wish, uint64_t *random) {
  c->schedule = *schedule;
  for (int r = 0; r < schedule->p; r++) {
    pc_make_part(&c->part[r], schedule, r, wish, random);
    c->pointer[r] = &c->program[r];
    tr_status status = tr_program_build_pipeline(schedule, r, &c->part[r].model, c->part[r].chunk_piece,
                                                 &c->part[r].options, &c->program[r]);
    if (status == TR_OK) continue;
    while (r-- > 0) tr_program_destroy(&c->program[r]);
    return status;
  }
  return TR_OK;
}

static inline void pc_free_programs(pc_case *c) {
  for (int r = 0; r < c->schedule.p; r++) tr_program_destroy(&c->program[r]);
}

// Each rank's own proof, and that of all together.
static inline tr_status pc_check(const pc_case *c, int capacity) {
  for (int r = 0; r < c->schedule.p; r++)
    TR_TRY(tr_program_check(&c->program[r], &c->part[r].model, &c->part[r].options));
  return tr_program_check_pipeline(c->pointer, c->schedule.p, capacity);
}

// NULL when none of the timings gives a wrong result. Adds up messages that came before there was room for them.
static inline const char *pc_judge(const pc_case *c, int ntry, uint64_t seed, int *late) {
  static sr_job job; // large; tests have one thread
  for (int k = 0; k < ntry; k++) {
    job.p = c->schedule.p;
    job.capacity = k % 3;
    for (int r = 0; r < job.p; r++) sr_set_rank(&job.rank[r], &c->program[r], &c->part[r].model, &c->part[r].options);
    const char *wrong = sr_run_job(&job, seed + (uint64_t)k, 1 + (uint32_t)k % 8);
    if (late) *late += job.late;
    if (wrong) return wrong;
  }
  return NULL;
}

// A schedule that some numbers, drawn at random, allow.
static inline void pc_draw_schedule(uint64_t *random, tr_schedule *out) {
  int nname = 0;
  while (tr_schedule_known(nname, NULL)) nname++;
  for (;;) {
    tr_schedule_spec spec = {.name = tr_schedule_known((int)sr_random(random, (uint32_t)nname), NULL),
                             .p = 1 + (int)sr_random(random, 5),
                             .m = 1 + (int)sr_random(random, 12),
                             .v = (int)sr_random(random, 4)};
    if (tr_schedule_build(&spec, out) == TR_OK) return;
  }
}

#endif
