// SPDX-License-Identifier: MIT
// `trireme plan report`: one page for people about a given plan, in one file that needs nothing else: its figures, and pictures of
// its memory, its time and of what is around it. plan_page_draw.c draws; the pictures are in plan_page_stack.c, _curves.c and
// _space.c.
#include "cli/cli_internal.h"
#include "cli/plan_page_internal.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/plan/law_batch.h"
#include "trireme/plan/law_money.h"
#include "trireme/plan/pipeline.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ink:#1d2330;--soft:#5c6575;--paper:#fdfdfc;--card:#fff;--line:#dfe3e8;--faint:#eef0f3;"
    "--c0:#2f6db5;--c1:#8db4dd;--c2:#d0741f;--c3:#e6b06a;--c4:#a8443a;--c5:#9aa1ab;--c6:#c2a01c;--c7:#4c9a68;--c8:#"
    "7f5ba8;"
    "--c9:#50565f;--own:#1d2330}\n"
    "@media "
    "(prefers-color-scheme:dark){:root{--ink:#e7e9ee;--soft:#a2abb9;--paper:#15171b;--card:#1c1f24;--line:#363b44;"
    "--faint:#262a31;--c0:#6aa5e8;--c1:#3f6f9f;--c2:#eb9a4e;--c3:#a9763a;--c4:#e07a6f;--c5:#7d8591;--c6:#dcc04f;--c7:"
    "#72c490;"
    "--c8:#ab8ad3;--c9:#b3bac5;--own:#fff}}\n"
    "body{margin:0 auto;max-width:64rem;padding:1.5rem;background:var(--paper);color:var(--ink);font:15px/1.5 "
    "system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:0 0 .5rem}p{margin:.5rem "
    "0;color:var(--soft);max-width:46rem}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:1rem 1.25rem;margin:1rem "
    "0}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:.5rem 2rem;margin:1rem 0}.tiles div{min-width:7rem}.tiles "
    "b{display:block;font-size:1.25rem}"
    ".tiles span{color:var(--soft);font-size:.85rem}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;margin:.5rem 0}th,td{padding:.15rem "
    ".75rem .15rem 0;"
    "text-align:right;white-space:nowrap}th:first-child{text-align:left}tr{border-bottom:1px solid var(--faint)}"
    "summary{cursor:pointer;color:var(--soft)}\n"
    ".chart{font:12px system-ui,sans-serif}.chart text{font:12px system-ui,sans-serif;fill:var(--ink)}.chart "
    ".grid{stroke:var(--faint);fill:none}"
    ".chart .axis{stroke:var(--soft);fill:none}.chart .line{fill:none;stroke-width:2}.chart "
    ".mark{stroke:var(--soft);stroke-dasharray:4 3;"
    "fill:none}.chart .solid{stroke-dasharray:none;stroke:var(--ink)}.chart "
    ".bar{stroke:var(--card);stroke-width:.5}.chart .whole{fill:var(--soft)}"
    ".chart .dot{stroke:var(--card)}\n"
    ".chart .cell path{stroke:var(--card);stroke-width:.5}.chart .fits path{fill:var(--c0)}.chart .fits "
    ".left{fill:var(--c0);filter:brightness(.85)}"
    ".chart .fits .right{fill:var(--c0);filter:brightness(.7)}.chart .none path{fill:none;stroke:var(--line)}.chart "
    ".own path{fill:var(--own)}"
    ".chart .own .left,.chart .own .right{fill:var(--c2)}\n";

static tr_status print_help(void) {
  printf(
      "usage: trireme plan report RUN.yaml [MORE.yaml ...] [key=value ...] [--cluster C] [--devices N]\n"
      "                           [--write FILE] [--critical TOKENS] [--json]\n\n"
      "Write a page about a plan: memory of every rank, the time of a step, its timeline, what more devices and "
      "larger "
      "batches\n"
      "are worth, the memory wall, the cube of degrees, the frontier. One HTML file without scripts, which needs no "
      "network.\n\n"
      "  --write FILE        the page (plan.html)\n"
      "  --critical TOKENS   the critical batch size (that of language models at a loss of 2.5)\n"
      "  --json              say what was written as one JSON object\n\n"
      "example: trireme plan --model llama3-8b --cluster dgx-a100 --devices 16 --batch 64seq --write plan.yaml && "
      "\\\n"
      "  trireme plan report plan.yaml --write plan.html\n");
  return TR_OK;
}

// ---- the head of the page

static void tile(tr_text *out, const char *label, tr__plan_unit unit, double value) {
  char shown[64];
  tr__plan_format(shown, sizeof shown, unit, value);
  tr_text_append(out, "<div><b>%s</b><span>%s</span></div>\n", shown, label);
}

static void write_tiles(tr__page *page) {
  const tr__plan_case *c = page->c;
  const tr_prediction *x = &page->x;
  const double devices = (double)tr_plan_devices(&c->plan), price = c->cluster.price_hour;
  tr_text *out = &page->out;
  tr_text_append(out, "<div class=\"tiles\">\n");
  tile(out, "a step", TR__PLAN_TIME, x->step);
  tile(out, "MFU", TR__PLAN_SHARE, x->mfu);
  tile(out, "tokens a second", TR__PLAN_AMOUNT, devices * x->tokens_per_device);
  tile(out, "a second and device", TR__PLAN_AMOUNT, x->tokens_per_device);
  tile(out, x->fits ? "on the fullest device" : "on the fullest device: too much", TR__PLAN_MEMORY,
       x->memory.process);
  tile(out, "devices", TR__PLAN_COUNT, devices);
  if (price > 0)
    tile(out, "price of a billion tokens", TR__PLAN_MONEY,
         1e9 / (devices * x->tokens_per_device) * devices * price / 3600);
  tr_text_append(out, "</div>\n");
}

static void write_head(tr__page *page) {
  const tr__plan_case *c = page->c;
  char plan[224], params[32], line[640];
  tr_text *out = &page->out;
  tr__plan_case_text(&c->plan, plan, sizeof plan);
  tr__plan_format(params, sizeof params, TR__PLAN_AMOUNT, tr_workload_params(&c->model));
  tr_text_append(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta "
                      "name=\"viewport\" content=\"width=device-width\"/>\n<title>");
  tr__page_escaped(out, c->model_name);
  tr_text_append(out, "</title>\n<style>\n%s", style);
  for (int i = 0; i < TR__PAGE_COLOURS; i++)
    tr_text_append(out, ".chart .f%d{fill:var(--c%d)}.chart .l%d{stroke:var(--c%d)}", i, i, i, i);
  tr_text_append(out, "\n</style>\n</head>\n<body>\n<h1>");
  snprintf(line, sizeof line, "%s on %s", c->model_name, c->cluster.name);
  tr__page_escaped(out, line);
  tr_text_append(out, "</h1>\n");
  tr__page_caption(out, "%s parameters, %lld x %s; %lld sequence%s of %lld token%s a step, %s. %s.", params,
                   (long long)tr_plan_devices(&c->plan), c->cluster.device.name, (long long)c->plan.batch,
                   tr_text_plural(c->plan.batch, "s"), (long long)c->plan.sequence,
                   tr_text_plural(c->plan.sequence, "s"), c->plan.number == TR_PLAN_FP8 ? "fp8" : "bf16", plan);
  if (!page->x.fits) tr__page_caption(out, "This plan does not fit.");
}

static void write_sources(tr__page *page) {
  const tr_device *d = &page->c->cluster.device;
  tr__page_section(&page->out, "Where the figures come from");
  tr__page_caption(&page->out, "Cluster: %s", page->c->cluster.source);
  tr__page_caption(&page->out, "Peaks: %s", d->source_peak);
  tr__page_caption(&page->out, "Memory: %s", d->source_memory);
  tr__page_caption(&page->out, "Links: %s; network: %s", d->source_link, d->source_network);
  tr__page_caption(&page->out, "Efficiencies: %s; half of the errors are below %.1f %%, nine in ten below %.1f %%.",
                   d->source_fit, 100 * d->fit.median, 100 * tr_predict_spread(&page->c->model, &page->c->cluster));
  tr__page_section_end(&page->out);
}

static void write_page(tr__page *page) {
  write_head(page);
  write_tiles(page);
  tr__page_step(page);
  tr__page_memory(page);
  tr__page_timeline(page);
  tr__page_scaling(page);
  tr__page_wall(page);
  tr__page_cube(page);
  tr__page_frontier(page);
  tr__page_batch(page);
  write_sources(page);
  tr_text_append(&page->out, "</body>\n</html>\n");
}

// ---- the command

typedef struct request {
  const char *path;
  double critical;
  int json;
} request;

// Takes --write FILE and --critical TOKENS out of the arguments; the rest is the plan's.
static tr_status take_own(int *argc, char **argv, request *r) {
  int n = 0;
  *r = (request){.path = "plan.html"};
  for (int i = 0; i < *argc; i++) {
    const char *value;
    int64_t tokens;
    if (i > 0 && tr__cli_option(*argc, argv, &i, "--write", &value)) {
      if (!value || !*value) return tr__cli_usage("plan report", "--write takes a file");
      r->path = value;
    } else if (i > 0 && tr__cli_option(*argc, argv, &i, "--critical", &value)) {
      if (!value || tr_parse_count(value, &tokens) < 0 || tokens < 1)
        return tr__cli_usage("plan report", "--critical takes tokens as in 4M, not '%.40s'", value ? value : "");
      r->critical = (double)tokens;
    } else {
      argv[n++] = argv[i];
    }
  }
  argv[n] = NULL;
  *argc = n;
  return TR_OK;
}

static tr_status write_file(const request *r, const tr__plan_case *c) {
  tr__plan_report said;
  tr__page page = {.c = c, .critical = r->critical, .given = r->critical > 0};
  if (!page.given) page.critical = tr_law_critical_tokens(TR__PAGE_LOSS);
  TR_TRY(tr_file_prove(r->path));
  TR_TRY(tr_predict_simulated(&c->plan, &c->model, &c->cluster, &page.x));
  write_page(&page);
  tr_status status = page.out.failed ? tr_error(TR_ERR_MEMORY, "no memory for the page")
                                     : tr_file_write_atomic(r->path, page.out.data, page.out.size);
  const size_t size = page.out.size;
  tr_text_free(&page.out);
  TR_TRY(status);
  tr__plan_begin(&said, "report", r->json);
  tr__plan_text(&said, "written", "written", r->path);
  tr__plan_value(&said, "size", "bytes", TR__PLAN_BYTES, (double)size);
  tr__plan_value(&said, "a step", "step_s", TR__PLAN_TIME, page.x.step);
  tr__plan_value(&said, "memory of the fullest device", "memory_bytes", TR__PLAN_MEMORY, page.x.memory.process);
  return tr__plan_end(&said);
}

tr_status tr__plan_page(int argc, char **argv) {
  tr__plan_case c;
  request r;
  if (tr__cli_wants_help(argc, argv)) return print_help();
  if (argc < 2) return tr__cli_usage("plan report", "give a run file, as trireme plan --write makes it");
  TR_TRY(take_own(&argc, argv, &r));
  TR_TRY(tr__plan_case_load("plan report", argc, argv, &r.json, &c));
  tr_status status = write_file(&r, &c);
  tr__plan_case_unload(&c);
  return status;
}
