// SPDX-License-Identifier: MIT
// `trireme simulate`: a pipeline's step program against a clock, drawn, counted and compared, before anything is run. Arguments
// and files here; simulate_costs.c and simulate_model.c give the costs, simulate_report.c and simulate_compare.c tell.
#include "cli/arguments_internal.h"
#include "cli/cli_internal.h"
#include "cli/simulate_internal.h"
#include "trireme/base/file.h"
#include <stdio.h>
#include <string.h>

static tr_status check_request(const tr__simulate_request *r) {
  if (!r->schedule == !r->compare)
    return tr__cli_usage("simulate", "give a schedule with --schedule, or several with --compare");
  if (!r->stages.model != !r->stages.cluster)
    return tr__cli_usage("simulate", "--model and --cluster go together; give both");
  if (!r->stages.model && (r->stages.micro || r->stages.sequence || r->stages.tp || r->stages.ep || r->stages.layers))
    return tr__cli_usage(
        "simulate", "--micro, --seq, --tp, --ep and --layers say how a model is run; give --model and --cluster");
  if (r->stages.model && (r->costs || r->pair || r->comm || r->occupancy || r->reduce || r->tick))
    return tr__cli_usage("simulate", "--model and --cluster give all times; leave out --costs, --pair, --comm, "
                                     "--occupancy, --reduce and --tick");
  if (r->compare && (r->svg || r->trace || r->write || r->dump))
    return tr__cli_usage("simulate",
                         "--compare prints a table; --svg, --trace, --write and --dump are for one schedule");
  const char *const file[] = {r->svg, r->trace, r->write};
  for (int i = 0; i < 3; i++)
    if (file[i] && !*file[i]) return tr__cli_usage("simulate", "--svg, --trace and --write need the name of a file");
  if (r->dump && r->json)
    return tr__cli_usage("simulate", "--dump prints token lists, --json the figures; give one of them");
  if (r->compare && !(r->p && r->m)) return tr__cli_usage("simulate", "--compare needs -p and -m");
  return TR_OK;
}

static tr_status parse(int argc, char **argv, tr__simulate_request *r) {
  *r = (tr__simulate_request){.stages.replicas = 1};
  const tr__argument table[] = {
      {.name = "--schedule", .kind = TR__ARGUMENT_TEXT, .out = &r->schedule},
      {.name = "--compare", .kind = TR__ARGUMENT_TEXT, .out = &r->compare},
      {.name = "-p", .kind = TR__ARGUMENT_COUNT, .out = &r->p, .min = 1, .max = 65535},
      {.name = "-m", .kind = TR__ARGUMENT_COUNT, .out = &r->m, .min = 1, .max = TR_STEP_MICROBATCHES},
      {.name = "-v", .kind = TR__ARGUMENT_COUNT, .out = &r->v, .min = 1, .max = 65535},
      {.name = "--group", .kind = TR__ARGUMENT_COUNT, .out = &r->group, .min = 1, .max = TR_STEP_MICROBATCHES},
      {.name = "--costs", .kind = TR__ARGUMENT_TEXT, .out = &r->costs},
      {.name = "--pair", .kind = TR__ARGUMENT_TEXT, .out = &r->pair},
      {.name = "--comm", .kind = TR__ARGUMENT_TEXT, .out = &r->comm},
      {.name = "--occupancy", .kind = TR__ARGUMENT_TEXT, .out = &r->occupancy},
      {.name = "--one-stream", .kind = TR__ARGUMENT_FLAG, .out = &r->one_stream},
      {.name = "--reduce", .kind = TR__ARGUMENT_TEXT, .out = &r->reduce},
      {.name = "--replicas", .kind = TR__ARGUMENT_COUNT, .out = &r->stages.replicas, .min = 1, .max = 1 << 24},
      {.name = "--model", .kind = TR__ARGUMENT_TEXT, .out = &r->stages.model},
      {.name = "--cluster", .kind = TR__ARGUMENT_TEXT, .out = &r->stages.cluster},
      {.name = "--micro", .kind = TR__ARGUMENT_COUNT, .out = &r->stages.micro, .min = 1, .max = 1 << 16},
      {.name = "--seq", .kind = TR__ARGUMENT_COUNT, .out = &r->stages.sequence, .min = 1, .max = 1 << 28},
      {.name = "--tp", .kind = TR__ARGUMENT_COUNT, .out = &r->stages.tp, .min = 1, .max = 1 << 16},
      {.name = "--ep", .kind = TR__ARGUMENT_COUNT, .out = &r->stages.ep, .min = 1, .max = 1 << 16},
      {.name = "--layers", .kind = TR__ARGUMENT_TEXT, .out = &r->stages.layers},
      {.name = "--tick", .kind = TR__ARGUMENT_TEXT, .out = &r->tick},
      {.name = "--svg", .kind = TR__ARGUMENT_TEXT, .out = &r->svg},
      {.name = "--trace", .kind = TR__ARGUMENT_TEXT, .out = &r->trace},
      {.name = "--write", .kind = TR__ARGUMENT_TEXT, .out = &r->write},
      {.name = "--dump", .kind = TR__ARGUMENT_FLAG, .out = &r->dump},
      {.name = "--json", .kind = TR__ARGUMENT_FLAG, .out = &r->json}};
  size_t npath = 0;
  TR_TRY(tr__cli_parse_paths("simulate", argc, argv, table, sizeof table / sizeof *table, &npath));
  if (npath)
    return tr__cli_usage("simulate", "'%.80s' is no option; a schedule is given as --schedule %.40s", argv[1],
                         argv[1]);
  return check_request(r);
}

// ---- one schedule

static tr_status check_against_file(const char *option, int64_t asked, int has, const char *path) {
  if (!asked || asked == has) return TR_OK;
  return tr__cli_usage("simulate", "%s is %lld; %.80s has %d, so leave it out", option, (long long)asked, path, has);
}

static tr_status read_schedule(const tr__simulate_request *r, const char *path, tr_schedule *out) {
  if (r->group) return tr__cli_usage("simulate", "%.80s has an order of its own; leave out --group", path);
  TR_TRY(tr_schedule_read(path, out));
  tr_status status = check_against_file("-p", r->p, out->p, path);
  if (status == TR_OK) status = check_against_file("-m", r->m, out->m, path);
  if (status == TR_OK) status = check_against_file("-v", r->v, out->v, path);
  if (status < 0) tr_schedule_destroy(out);
  return status;
}

static tr_status make_schedule(const tr__simulate_request *r, const char *name, tr_schedule *out) {
  if (tr__cli_is_schedule_file(name)) return read_schedule(r, name, out);
  if (!(r->p && r->m))
    return tr__cli_usage("simulate", "the schedule %.40s needs -p, the ranks, and -m, the micro-batches", name);
  const tr_schedule_spec spec = {
      .name = name, .p = (int)r->p, .m = (int)r->m, .v = (int)r->v, .group = (int)r->group};
  return tr_schedule_build(&spec, out);
}

static tr_status make_costs(const tr__simulate_request *r, const tr_schedule *s, int compares,
                            tr__simulate_costs *out) {
  return r->stages.model ? tr__simulate_costs_predict(r, s, out)
                         : tr__simulate_costs_parse(r, s, compares ? s->S / s->p : 1, out);
}

tr_status tr__simulate(const tr__simulate_request *r, const char *schedule, int compares, tr__simulation *out) {
  *out = (tr__simulation){0};
  TR_TRY(make_schedule(r, schedule, &out->schedule));
  tr_status status = make_costs(r, &out->schedule, compares, &out->costs);
  if (status == TR_OK) status = tr_sim_lower(&out->schedule, &out->programs);
  if (status == TR_OK) status = tr_sim_run(out->programs.program, out->programs.p, &out->costs.sim, &out->result);
  if (status < 0) tr__simulation_destroy(out);
  return status;
}

void tr__simulation_destroy(tr__simulation *s) {
  tr_sim_result_destroy(&s->result);
  tr_sim_programs_destroy(&s->programs);
  tr__simulate_costs_free(&s->costs);
  tr_schedule_destroy(&s->schedule);
}

// ---- files

static tr_status write_file(const char *path, tr_text *text) {
  tr_status status = text->failed ? tr_error(TR_ERR_MEMORY, "no memory for %s", path)
                                  : tr_file_write_atomic(path, text->data, text->size);
  tr_text_free(text);
  return status;
}

static tr_status write_files(const tr__simulate_request *r, const tr__simulation *s) {
  const tr_program *const *program = s->programs.program;
  tr_text text = {0};
  if (r->svg) {
    char title[320];
    snprintf(title, sizeof title, "%.32s, %d rank%s, %d micro-batch%s: %s", s->schedule.name, s->schedule.p,
             tr_text_plural(s->schedule.p, "s"), s->schedule.m, tr_text_plural(s->schedule.m, "es"), s->costs.text);
    tr_sim_draw_svg(program, &s->result, title, s->costs.unit_ticks, s->costs.unit_name, &text);
    TR_TRY(write_file(r->svg, &text));
  }
  if (r->trace) {
    const double unit_ns = *s->costs.unit_name ? 1e9 : 1e6;
    const tr_sim_trace trace = {.ns = unit_ns / s->costs.unit_ticks, .label = "simulated"};
    tr_sim_draw_trace(program, &s->result, &trace, &text);
    TR_TRY(write_file(r->trace, &text));
  }
  if (r->write) {
    tr_schedule_print(&s->schedule, 1, &text);
    TR_TRY(write_file(r->write, &text));
  }
  return TR_OK;
}

static tr_status run(const tr__simulate_request *r) {
  tr__simulation s;
  if (r->compare) return tr__simulate_compare(r);
  TR_TRY(tr__simulate(r, r->schedule, 0, &s));
  tr_status status = write_files(r, &s);
  if (status == TR_OK) status = tr__simulate_report(r, &s);
  tr__simulation_destroy(&s);
  return status;
}

int tr__cli_simulate(int argc, char **argv) {
  tr__simulate_request request;
  if (tr__cli_wants_help(argc, argv)) return tr__simulate_print_help(), 0;
  tr_status status = parse(argc, argv, &request);
  if (status == TR_OK) status = run(&request);
  return status < 0 ? tr__cli_fail(status) : 0;
}
