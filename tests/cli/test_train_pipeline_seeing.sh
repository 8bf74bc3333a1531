#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: quick
# timeout: 240
# What a pipeline shows of itself: its bubble in each log line, measured and simulated; one line and one event at the end that hold
# the step against the simulation; a trace in which passes are named by stage and micro-batch, with the simulated step beside: the
# same operations from the same moment on, under every kind of schedule, with few micro-batches and with recomputation.
. "$(dirname "$0")/lib.sh"
run=("${tiny[@]}" model.layers=4 batch.micro=1)
for launch in processes threads; do
  folder=$work/$launch
  train "${run[@]}" -n 4 parallel.pp=2 train.folder="$folder" run.launch=$launch trace="$folder/trace.json"
  expect "$launch" 0
  log_lines | grep -Eq '^step 8/8 .* \| bubble [0-9.]+% \([0-9.]+%\) \| data ' || fail "$launch: $(log_lines)"
  if [ -n "$(wide_lines)" ]; then fail "$launch: long lines: $(wide_lines)"; fi
  if log_lines | grep '^step 1/8' | grep -q bubble; then fail "$launch: a bubble of the first step"; fi
  grep -Eq '^step    [0-9.]+ [mu]?s measured, [0-9.]+ [mu]?s simulated \([-+][0-9.]+%\), bubble [0-9.]+% measured, [0-9.]+% simulated$' "$work/out" ||
    fail "$launch: no line at the end: $(said)"
  grep -q '^{"step":8,.*"bubble":0\.[0-9]*,"bubble_simulated":0\.[0-9]*,"step_simulated_s":0' "$folder/metrics.jsonl" || fail "$launch: no bubble in metrics.jsonl"
  [ "$(grep -c '"event":"pipeline".*"steps":7,.*"step_kernels_s":0\.' "$folder/metrics.jsonl")" = 1 ] || fail "$launch: not one event of the pipeline"
  grep -Eq '^predicted   step [-+][0-9.]+%, F [-+][0-9.]+%, B [-+].*UPDATE [-+].* against steps [0-9]+ to 8$' "$work/out" || fail "$launch: no prediction: $(said)"
  grep -q '"ph":"X","pid":1,.*"name":"F 0\.5",.*"stage":0' "$folder/trace.json" || fail "$launch: no pass F 0.5"
  grep -q '"name":"SEND activation 0\.[0-9]*",.*"bytes":4096,"peer":2' "$folder/trace.json" || fail "$launch: no message with its bytes and peer"
  grep -q '"ph":"M","pid":4,.*"predicted' "$folder/trace.json" || fail "$launch: no predicted rank"
  if command -v python3 >/dev/null; then
    python3 - "$folder/trace.json" <<'END' || fail "$launch: the trace"
import json, sys
trace = json.load(open(sys.argv[1]))
s = trace["otherData"]["simulated"]
assert s["step_us"] > 0 and s["measured_step_us"] > 0 and 0 <= s["bubble"] < 1 and 0 <= s["measured_bubble"] < 1, s
assert {"F", "B", "UPDATE"} <= set(s["mean_us"]), s
passes = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] in (4, 5) and e["name"].startswith(("F ", "B "))]
assert len({(e["pid"], e["name"]) for e in passes}) == 2 * 2 * 6, passes
begin = max(e["ts"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 0 and e["name"] == "program")
assert all(e["ts"] >= begin - 1e6 for e in passes)
END
  fi
done

# seen NAME RANKS SETTINGS: the last step's operations of each rank, and those of the same number that are simulated.
seen() {
  local name=$1 ranks=$2 folder=$work/$1
  shift 2
  train "${run[@]}" -n "$ranks" parallel.pp="$ranks" train.folder="$folder" trace="$folder.json" train.eval_every=2 "$@"
  expect "$name" 0
  grep -Eq '^step    [0-9.]+ [mu]?s measured, [0-9.]+ [mu]?s simulated ' "$work/out" || fail "$name: no line at the end: $(said)"
  grep -Eq '^predicted   step [-+][0-9.]+%, F [-+].* against steps [0-9]+ to 8$' "$work/out" || fail "$name: no prediction: $(said)"
  if ! command -v python3 >/dev/null; then return; fi
  python3 - "$folder.json" "$ranks" <<'END' || fail "$name: the trace"
import json, sys
trace, ranks = json.load(open(sys.argv[1])), int(sys.argv[2])
slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
programs = [e for e in slices if e["name"] == "program" and e["args"]["step"] == 8]
simulated = [e for e in slices if e["pid"] >= ranks]
begin = min(e["ts"] for e in programs)
assert len(programs) == ranks and min(e["ts"] for e in simulated) == begin, begin
end = max(e["ts"] + e["dur"] for e in simulated)
assert abs(end - begin - trace["otherData"]["simulated"]["step_us"]) < 0.01, (begin, end)
def operations(pid, step):
    own = [e for e in slices if e["pid"] == pid and "op" in e.get("args", {}) and e["args"].get("step", step) == step]
    return {e["args"]["op"]: e["name"].split()[0] for e in own if e["name"].split()[0] in "F B I W R NORM UPDATE PUBLISH REDUCE GATHER".split()}
for r in range(ranks):
    measured, predicted = operations(r, 8), operations(ranks + r, 8)
    assert len(measured) > 5 and measured == predicted, (r, measured, predicted)
END
}

seen one-micro-batch 2 batch.sequences=1
seen fewer-than-ranks 4 batch.sequences=2
seen again 2 parallel.schedule=gpipe memory.recompute=full
seen split 2 parallel.schedule=zb_h1 memory.recompute=selective
seen folded 2 parallel.schedule=zbv
seen loops 2 parallel.schedule=interleaved parallel.chunks=2
seen both-ways 2 parallel.schedule=dualpipe batch.sequences=8

# A job that fails still has its trace, with the prediction from the steps that all ranks ended.
TRIREME_FAULT="rank=1,op=F,step=6,action=kill" train "${run[@]}" -n 2 parallel.pp=2 train.folder="$work/killed" trace="$work/killed.json"
expect "killed" 6 'rank 1 \(pid [0-9]+\) was killed'
grep -q '"simulated":{' "$work/killed.json" || fail "killed: no prediction"
TRIREME_FAULT="rank=1,op=F,step=1,action=kill" train "${run[@]}" -n 2 parallel.pp=2 train.folder="$work/early" trace="$work/early.json"
expect "killed early" 6 'rank 1 \(pid [0-9]+\) was killed'
if [ ! -s "$work/early.json" ]; then fail "killed early: no trace"; fi
# In a pipeline gradients were read before the norm: no rate of what has not moved.
train "${run[@]}" -n 2 parallel.pp=2 train.folder="$work/rates" profile=8
expect "rates" 0
grep -Eq '^  NORM +[0-9]+ +[0-9.]+ +[0-9.]+%( +-){4}$' "$work/out" || fail "rates: $(grep '^  NORM' "$work/out")"
finish
