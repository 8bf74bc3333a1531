// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
//
// What holds for the laws whatever the inputs: bounds, directions and inverses, over grids of inputs; makespans against a
// simulation of the schedules, order statistics and Poisson sums against plain counting.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/plan/law_batch.h"
#include "trireme/plan/law_mesh.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/law_number.h"
#include "trireme/plan/law_pipeline.h"
#include "trireme/plan/law_reliability.h"
#include "trireme/plan/law_scaling.h"
#include "trireme/plan/law_sync.h"
#include "trireme/plan/law_utilisation.h"
#include <math.h>
#include <string.h>

static void near(const char *what, double got, double want, double tolerance) {
  if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.17g, not %.17g", what, got, want);
}

// a <= b, but for rounding.
static void no_more(const char *what, double a, double b) {
  if (!(a <= b + 1e-12 * fabs(b))) fail_msg("%s: %.17g is more than %.17g", what, a, b);
}

static void sharding_never_takes_more(void **state) {
  (void)state;
  const tr_law_roles adam = tr_law_roles_mixed_adam();
  for (int ranks = 1; ranks <= 64; ranks++)
    for (int zero = 0; zero <= 3; zero++) {
      double bytes = tr_law_state_bytes(adam, 1e9, zero, ranks);
      if (zero) no_more("a stage", bytes, tr_law_state_bytes(adam, 1e9, zero - 1, ranks));
      no_more("ranks", tr_law_state_bytes(adam, 1e9, zero, ranks + 1), bytes);
      no_more("all ranks hold the whole", 16e9, bytes * ranks);
    }
  const tr_law_blocks b = {24, 1024, 16, 2048, 4};
  for (double tp = 1; tp <= 16; tp *= 2)
    for (int sp = 0; sp <= 1; sp++) {
      double all = tr_law_activation_bytes(&b, TR_LAW_KEEP_ALL, tp, sp);
      double tiled = tr_law_activation_bytes(&b, TR_LAW_KEEP_TILED, tp, sp);
      no_more("tiles", tiled, all);
      no_more("inputs", tr_law_activation_bytes(&b, TR_LAW_KEEP_INPUT, tp, sp), tiled);
      no_more("tp", tr_law_activation_bytes(&b, TR_LAW_KEEP_ALL, 2 * tp, sp), all);
      no_more("sp", tr_law_activation_bytes(&b, TR_LAW_KEEP_ALL, tp, 1), all);
    }
  for (double ranks = 2; ranks <= 4096; ranks *= 2) {
    tr_law_mesh mesh = {8, 2, tr_law_mesh_dp_for(16 * ranks, (tr_law_mesh){8, 2, 0, 1}), 1};
    near("dp takes what is left", tr_law_mesh_ranks(mesh), 16 * ranks, 0);
  }
}

static void faster_links_never_slow_a_collective(void **state) {
  (void)state;
  for (double ranks = 2; ranks <= 4096; ranks *= 2)
    for (double bandwidth = 1e9; bandwidth < 1e12; bandwidth *= 3)
      for (double alpha = 0; alpha <= 1e-4; alpha += 5e-5) {
        tr_law_link link = {alpha, bandwidth}, faster = {alpha, 2 * bandwidth}, later = {2 * alpha, bandwidth};
        double seconds = tr_law_allreduce_seconds(ranks, 1e9, link);
        no_more("bandwidth", tr_law_allreduce_seconds(ranks, 1e9, faster), seconds);
        no_more("latency", seconds, tr_law_allreduce_seconds(ranks, 1e9, later));
        no_more("bytes", seconds, tr_law_allreduce_seconds(ranks, 2e9, link));
        near("two halves", seconds, 2 * tr_law_gather_seconds(ranks, 1e9, link), 1e-12 * seconds);
        // Of equal links a hierarchy with a port for each device moves the bytes of the flat ring in fewer messages.
        tr_law_fabric fabric = {ranks / 2, 2, 2, link, link};
        tr_law_hierarchy h = tr_law_allreduce_hierarchical(&fabric, 1e9);
        near("a hierarchy's bytes", h.inside + h.between, tr_law_allreduce_bytes(ranks, 1e9) / bandwidth,
             1e-9 * seconds);
        no_more("a hierarchy's messages", h.total, seconds);
        if (ranks > 2) near("the use of its own links", tr_law_link_use(&h, h.total), 1, 1e-9);
      }
}

// ---- schedules, played: stage s does its list of passes in order, each when its input has come.
enum { P_MOST = 6, M_MOST = 12 };
typedef struct player {
  int p, m, eager[P_MOST]; // forward passes before the first backward one
  double f, b, c, clock[P_MOST], forward[P_MOST][M_MOST], backward[P_MOST][M_MOST];
  int nf[P_MOST], nb[P_MOST], peak[P_MOST];
} player;

static int play_one(player *g, int s) {
  int i = g->nf[s], j = g->nb[s];
  int wants_forward = i < g->m && i - j <= g->eager[s];
  double ready;
  if (wants_forward) {
    if (s > 0 && g->nf[s - 1] <= i) return 0;
    ready = s > 0 ? g->forward[s - 1][i] + g->c : 0;
    g->clock[s] = g->forward[s][i] = fmax(g->clock[s], ready) + g->f;
    g->nf[s]++;
    if (g->nf[s] - g->nb[s] > g->peak[s]) g->peak[s] = g->nf[s] - g->nb[s];
    return 1;
  }
  if (j >= g->m || (s < g->p - 1 && g->nb[s + 1] <= j)) return 0;
  ready = s < g->p - 1 ? g->backward[s + 1][j] + g->c : g->forward[s][j];
  g->clock[s] = g->backward[s][j] = fmax(g->clock[s], ready) + g->b;
  g->nb[s]++;
  return 1;
}

static double play(player *g, int gpipe) {
  int moved = 1;
  double end = 0;
  for (int s = 0; s < g->p; s++) g->eager[s] = gpipe ? g->m : g->p - 1 - s;
  // GPipe does all forward passes first: the rule "forward while fewer than `eager` are unanswered" never turns back.
  while (moved) {
    moved = 0;
    for (int s = 0; s < g->p; s++)
      while (play_one(g, s)) moved = 1;
  }
  for (int s = 0; s < g->p; s++) end = fmax(end, g->clock[s]);
  return end;
}

static void makespans_are_those_of_played_schedules(void **state) {
  (void)state;
  for (int p = 1; p <= P_MOST; p++)
    for (int m = 1; m <= M_MOST; m++)
      for (int c = 0; c <= 2; c++)
        for (int gpipe = 0; gpipe <= 1; gpipe++) {
          tr_law_pipe pipe = {p, m, 1, 2, 1, 0, 0.5 * c};
          tr_law_schedule schedule = gpipe ? TR_LAW_GPIPE : TR_LAW_1F1B;
          player g = {.p = p, .m = m, .f = pipe.f, .b = pipe.b, .c = pipe.message};
          double end = play(&g, gpipe);
          near(gpipe ? "GPipe" : "1F1B", tr_law_pipe_makespan(schedule, &pipe), end, 1e-9);
          for (int s = 0; s < p; s++) near("in flight", tr_law_pipe_in_flight(schedule, &pipe, s), g.peak[s], 0);
        }
}

static void more_micro_batches_mean_less_bubble(void **state) {
  (void)state;
  for (double p = 2; p <= 64; p *= 2)
    for (double chunks = 1; chunks <= 4; chunks++)
      for (double bubble = 0.02; bubble < 0.5; bubble += 0.04) {
        double m = tr_law_micros_for(p, bubble, chunks);
        no_more("enough", tr_law_bubble(p, m, chunks), bubble * (1 + 1e-9));
        if (m > 1) no_more("not one too many", bubble, tr_law_bubble(p, m - 1, chunks));
        no_more("micro-batches", tr_law_bubble(p, m + 1, chunks), tr_law_bubble(p, m, chunks));
        no_more("depth", tr_law_bubble(p, m, chunks), tr_law_bubble(2 * p, m, chunks));
      }
}

static tr_law_job job_of(double bandwidth, double jitter) {
  tr_law_link inside = {2e-6, 300e9}, between = {5e-6, bandwidth};
  return (tr_law_job){.compute = 100,
                      .bytes = 3e9,
                      .overlap = 0.5,
                      .jitter = jitter,
                      .price = 2,
                      .fabric = {.per_node = 8, .ports = 8, .inside = inside, .between = between}};
}

static void speed_up_has_bounds(void **state) {
  (void)state;
  for (double bandwidth = 1e9; bandwidth < 1e12; bandwidth *= 10)
    for (double jitter = 0; jitter < 0.3; jitter += 0.1) {
      tr_law_job job = job_of(bandwidth, jitter), faster = job_of(2 * bandwidth, jitter);
      near("one device", tr_law_scale(&job, 1).speedup, 1, 1e-12);
      for (double n = 1; n <= 16384; n *= 2) {
        tr_law_point at = tr_law_scale(&job, n);
        no_more("linear", at.speedup, n);
        no_more("efficiency", at.efficiency, 1);
        no_more("links", tr_law_scale(&faster, n).step, at.step);
        near("what a step is", at.step, at.compute + at.exposed + at.waiting, 1e-12 * at.step);
        near("1 / (1 + rho)", tr_law_step_efficiency(at.compute, at.exposed), 1 / (1 + at.rho), 1e-12);
        no_more("goodput", tr_law_goodput(n, 0.5, at.efficiency, 0.9), n);
      }
      no_more("faster links go on paying", tr_law_scale_limit(&job, 1e5, 1.4), tr_law_scale_limit(&faster, 1e5, 1.4));
      no_more("who asks for more stops sooner", tr_law_scale_limit(&job, 1e5, 1.8),
              tr_law_scale_limit(&job, 1e5, 1.2));
    }
  for (double n = 2; n < 1e4; n *= 3)
    for (double serial = 0.001; serial < 1; serial *= 2) {
      double s = tr_law_amdahl_speedup(n, serial);
      no_more("the ceiling", s, tr_law_amdahl_ceiling(serial));
      near("the serial share", tr_law_amdahl_serial(n, s), serial, 1e-9);
    }
  const tr_law_job four = {.compute = 8, .most = 4, .fabric = {.per_node = 8, .ports = 8}};
  assert_true(tr_law_scale(&four, 8).compute == 2); // a batch of four samples keeps four devices busy
}

// Means of the largest of N standard normals on record (Harter, 1961; Tippett, 1925).
static void the_slowest_of_many_is_as_slow_as_on_record(void **state) {
  (void)state;
  static const double known[][2] = {{1, 0},       {2, 0.5642},   {3, 0.8463},   {5, 1.1630},
                                    {10, 1.5388}, {100, 2.5076}, {1000, 3.2414}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    near("largest", tr_law_expected_maximum(known[i][0]), known[i][1], 0.03);
  near("none is late", tr_law_late_probability(1000, 0.01), 1 - pow(0.99, 1000), 1e-12);
}

static void saving_often_enough_is_best(void **state) {
  (void)state;
  for (double mtbf = 1e3; mtbf < 1e7; mtbf *= 10)
    for (double write = 1; write < mtbf / 2; write *= 4) {
      double best = tr_law_saving_daly(write, mtbf), least = tr_law_saving_at(best, write, mtbf, 60).exact;
      for (double times = 0.25; times <= 4; times *= 2) {
        if (times == 1) continue;
        no_more("the best interval", least, tr_law_saving_at(best * times, write, mtbf, 60).exact);
      }
      for (double k = 0.5; k <= 60; k *= 3) // in any unit of time
        near("units", tr_law_saving_daly(k * write, k * mtbf), k * best, 1e-9 * k * best);
      no_more("longer writes, longer intervals", best, tr_law_saving_daly(1.5 * write, mtbf) + 0.6 * write);
      if (write < 1e-4 * mtbf) {
        tr_law_saving at = tr_law_saving_at(best, write, mtbf, 0);
        near("Young for short writes", best / tr_law_saving_young(write, mtbf), 1, 0.01);
        near("first order for short writes", at.overhead / at.exact, 1, 0.02);
        near("half an interval is lost", at.lost / (best + write), 0.5, 0.01);
      }
    }
}

// The mean place of a failure in a segment, given that one falls into it, by summing over small parts.
static void lost_work_is_that_of_an_exponential(void **state) {
  (void)state;
  const double mtbf = 1000, interval = 1500, write = 100, segment = interval + write, part = segment / 100000;
  double sum = 0, weight = 0;
  for (double at = part / 2; at < segment; at += part) {
    sum += at * exp(-at / mtbf);
    weight += exp(-at / mtbf);
  }
  near("lost", tr_law_saving_at(interval, write, mtbf, 0).lost, sum / weight, 1e-3);
}

static void spares_are_a_quantile(void **state) {
  (void)state;
  for (double mean = 0.01; mean < 3000; mean *= 7)
    for (double target = 0.5; target < 1; target += 0.09) {
      double spares = tr_law_spares(mean, 1, 1, target), below = 0;
      for (double k = 0; k < spares; k++) below += exp(k * log(mean) - mean - lgamma(k + 1));
      if (spares > 0) no_more("one spare less is too few", below, target + 1e-9);
      no_more("enough", target, below + exp(spares * log(mean) - mean - lgamma(spares + 1)) + 1e-9);
    }
  assert_true(isinf(tr_law_spares(10, 1, 1, 1)));
  const tr_law_part parts[] = {{"device", 1024, 5e4}, {"host", 128, 1e5}, {"switch", 32, 2e5}};
  double mtbf = tr_law_mtbf_of(parts, 3);
  near("rates add up", 1 / mtbf, 1024 / 5e4 + 128 / 1e5 + 32 / 2e5, 1e-12);
  for (size_t n = 1; n <= 3; n++) no_more("more parts fail more often", mtbf, tr_law_mtbf_of(parts, n));
  assert_true(isinf(tr_law_mtbf_of(parts, 0)));
  near("survival", tr_law_failure_probability(1, tr_law_mtbf_from_survival(100, 0.999)),
       tr_law_any_failure(100, 0.999), 1e-12);
}

static void batches_trade_steps_for_samples(void **state) {
  (void)state;
  for (double critical = 10; critical < 1e6; critical *= 10)
    for (double batch = 1; batch < 1e6; batch *= 3) {
      double steps = tr_law_steps_factor(batch, critical), samples = tr_law_samples_factor(batch, critical);
      near("the hyperbola", (steps - 1) * (samples - 1), 1, 1e-9);
      // Norms that the model of noise gives for two batch sizes give the model back.
      double g2 = 3, trace = critical * g2;
      tr_law_noise noise = tr_law_noise_from(batch, g2 + trace / batch, 64 * batch, g2 + trace / (64 * batch));
      near("tr(Sigma)", noise.trace / trace, 1, 1e-6);
      near("the critical size", noise.critical / critical, 1, 1e-6);
      for (double times = 1; times <= 1024; times *= 2) {
        double iterations = tr_law_iterations(1e5, batch, times, critical);
        no_more("fewer iterations", iterations, 1e5);
        no_more("but not samples", 1e5, iterations * times);
      }
    }
  near("without noise", tr_law_iterations(1e5, 32, 8, INFINITY), 12500, 0);
  assert_true(isnan(tr_law_noise_from(8, 1, 8, 1).critical));
  const tr_law_sgd sgd = {2, 3, 5, 64, 500};
  double rate = tr_law_sgd_rate(&sgd), bound = tr_law_sgd_bound(&sgd, rate);
  for (double times = 0.5; times < 2; times += 0.1)
    no_more("the best rate", bound, tr_law_sgd_bound(&sgd, rate * times));
}

static void staleness_waits_less_and_steps_more(void **state) {
  (void)state;
  tr_law_sync sync = {.one = 1e5, .batch = 32, .critical = 2e4, .stale_penalty = 0.055, .job = job_of(25e9, 0.1)};
  sync.job.compute = 0.4;
  for (double workers = 1; workers <= 1024; workers *= 2)
    for (double s = 0; s < 8; s++) {
      tr_law_run run = tr_law_run_predict(&sync, workers, s), more = tr_law_run_predict(&sync, workers, s + 1);
      no_more("overhead", more.overhead, run.overhead);
      no_more("iterations", run.iterations, more.iterations);
      no_more("less than the bound", run.iterations, (s + 1) * tr_law_run_predict(&sync, workers, 0).iterations);
      tr_law_run_cost cost = tr_law_run_price(&run, sync.one, 0.4, sync.batch, 3);
      no_more("linear", cost.speedup, workers);
      no_more("samples", sync.one * sync.batch, cost.samples);
    }
  near("one worker waits for nobody", tr_law_run_predict(&sync, 1, 0).overhead, 0, 0);
}

static void bills_add_up(void **state) {
  (void)state;
  const tr_law_budget b = {.flop = 3.6e24,
                           .devices = 1000,
                           .peak = 1e15,
                           .mfu = 0.5,
                           .scaling = 0.8,
                           .available = 0.9,
                           .power = 1000,
                           .pue = 1.25,
                           .carbon = 400,
                           .price = 2};
  const tr_law_bill bill = tr_law_bill_for(&b);
  near("seconds", bill.seconds, 3.6e24 / (1000 * 1e15 * 0.5 * 0.8 * 0.9), 1e-3);
  near("device hours", bill.device_hours, 1000 * 1e7 / 3600, 1e-3);
  near("energy", bill.joule, 1.25e6 * 1e7, 1);
  near("carbon", bill.gram, 1.25e13 / 3.6e6 * 400, 1);
  near("price", bill.price, 2 * bill.device_hours, 1e-6);
  near("achieved", tr_law_achieved_flops(b.flop, bill.device_hours * 3600), 1e15 * 0.5 * 0.8 * 0.9, 1);
}

static void number_formats_have_known_ranges(void **state) {
  (void)state;
  const tr_law_format f16 = {5, 10, 0}, bf16 = {8, 7, 0}, e4m3 = {4, 3, 1}, e5m2 = {5, 2, 0}, f32 = {8, 23, 0};
  near("f16", tr_law_format_largest(f16), 65504, 0);
  near("f16 smallest", tr_law_format_smallest(f16), 0x1p-24, 0);
  near("bf16", tr_law_format_largest(bf16), 0x1.fep127, 0);
  near("f32", tr_law_format_largest(f32), 0x1.fffffep127, 0);
  near("f32 step", tr_law_format_step(f32), 0x1p-23, 0);
  near("e4m3 smallest", tr_law_format_smallest(e4m3), 0x1p-9, 0);
  near("e5m2 smallest", tr_law_format_smallest(e5m2), 0x1p-16, 0);
  near("bytes", tr_law_format_bytes(e4m3) + tr_law_format_bytes(bf16), 3, 0);
  near("a third narrowed", tr_law_narrowed(300, 1.0 / 3, 2, 1), 250, 1e-9);
}

// PaLM 540B as published: 238.3k tokens per second on 6144 chips of 275 TFLOP/s, 46.2 % and 45.7 % without attention.
static void utilisation_is_that_of_the_formula_named(void **state) {
  (void)state;
  double rate = 238.3e3, chips = 6144, peak = 275e12, mfu[3];
  for (int c = 0; c < 3; c++)
    mfu[c] = tr_law_utilisation(tr_law_token_flop((tr_law_count)c, 540.35e9, 118, 48 * 256, 2048), rate, chips, peak);
  near("with attention", mfu[TR_LAW_COUNT_PALM], 0.462, 0.0005);
  near("without", mfu[TR_LAW_COUNT_6N], 0.457, 0.0005);
  near("half of it", mfu[TR_LAW_COUNT_CAUSAL], (mfu[TR_LAW_COUNT_PALM] + mfu[TR_LAW_COUNT_6N]) / 2, 1e-12);
  near("all layers again", tr_law_recompute_factor(1), 4.0 / 3, 1e-12);
  assert_string_equal(tr_law_count_formula(TR_LAW_COUNT_PALM), "6N + 12LdS");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sharding_never_takes_more),
                                     cmocka_unit_test(faster_links_never_slow_a_collective),
                                     cmocka_unit_test(makespans_are_those_of_played_schedules),
                                     cmocka_unit_test(more_micro_batches_mean_less_bubble),
                                     cmocka_unit_test(speed_up_has_bounds),
                                     cmocka_unit_test(the_slowest_of_many_is_as_slow_as_on_record),
                                     cmocka_unit_test(saving_often_enough_is_best),
                                     cmocka_unit_test(lost_work_is_that_of_an_exponential),
                                     cmocka_unit_test(spares_are_a_quantile),
                                     cmocka_unit_test(batches_trade_steps_for_samples),
                                     cmocka_unit_test(staleness_waits_less_and_steps_more),
                                     cmocka_unit_test(bills_add_up),
                                     cmocka_unit_test(number_formats_have_known_ranges),
                                     cmocka_unit_test(utilisation_is_that_of_the_formula_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
