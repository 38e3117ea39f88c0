#!/bin/bash
# SPDX-License-Identifier: MIT
# backing=memfd: the daemon is started anew by a service manager that keeps the
# memory of its devices, and clients that reconnect see a pause, but no loss.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need python3
/usr/bin/python3 -c 'import nbd' 2>/dev/null || skip "python3-libnbd is missing"
timeout 120 /usr/bin/python3 "$(dirname "$0")/../lib/manager.py" \
	"$NULLBD" "$NULLBCTL" "$tmp" || fail "the manager"
