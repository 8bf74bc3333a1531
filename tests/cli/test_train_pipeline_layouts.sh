#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: nightly
# timeout: 1800
# A pipeline trains like one rank, as test_train_pipeline.sh says, with every schedule on every length of a pipeline, on one pipeline
# and on two.
export TRIREME_LAYOUTS=all
exec bash "$(dirname "$0")/test_train_pipeline.sh"
