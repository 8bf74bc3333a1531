#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: nightly
# timeout: 3600
# A job that saves all the time is killed a thousand times, as test_train_save_kill.sh does forty times: no checkpoint that
# does not load, no sample lost or used twice, and in the end the weights and the loss of an undisturbed run.
export TRIREME_KILLS=1000
exec bash "$(dirname "$0")/test_train_save_kill.sh"
