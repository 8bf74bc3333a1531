#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: nightly
# timeout: 1500
# clang-tidy finds nothing in the sources, with the checks that .clang-tidy chooses.
#
# Skipped where clang-tidy is missing (scripts/install.sh nightly installs it).
set -euo pipefail
exec bash "$(dirname "$0")/../../scripts/tidy.sh"
