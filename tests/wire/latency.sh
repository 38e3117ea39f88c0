#!/bin/bash
# SPDX-License-Identifier: MIT
# latency.c once more, with the daemon as it is: under a sanitizer it skips.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

program=$(dirname "$NULLBD")/wire/latency
[ -x "$program" ] || skip "$program is not built (make tests)"
start_nullbd nullb0
sanitized && skip "a sanitizer's daemon keeps no time"
stop_nullbd
export NULLBD NULLBCTL
"$program"
