#!/bin/bash
# SPDX-License-Identifier: MIT
# Wire tests that apply to any server of our devices, with nbdkit and the plugin
# as the server: tests/plugin/nullbd takes the place of the daemon.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v nbdkit >/dev/null || {
	echo "skipped: nbdkit is missing"
	exit 77
}
B=${B:-build}
export PLUGIN=${PLUGIN:-$B/nbdkit-nullb-plugin.so} NULLBD=tests/plugin/nullbd
log=$(mktemp)
trap 'rm -f "$log"' EXIT
bad=0

# Cases in which nbdkit does not do what nullbd does: whatever is not in whole
# blocks is the plugin's to judge; a length of zero is refused; read only
# comes before a flag that is wrong; a payload that is too large is ENOMEM; what
# overlaps and is in flight together has no order.
others='N118 N111:|N119:|N88 N111:|N90 N89:|N89 N81:'
for t in transmission framing limits; do
	timeout 60 "$B/wire/$t" >"$log" 2>&1
	ok=$(grep -c '^\[       OK \]' "$log")
	odd=$(grep '^\[  FAILED  \] N' "$log" | sort -u |
		grep -vE "^\[  FAILED  \] ($others)")
	if [ -n "$odd" ] || [ "$ok" -lt 3 ] || grep -q 'GROUP' "$log"; then
		echo "FAILED: $t in nbdkit: $ok cases passed; $odd"
		tail -n 40 "$log"
		bad=1
	fi
	echo "$t: $ok cases passed"
done
for t in nbdcopy interop-status fio-verify; do
	timeout 100 "tests/wire/$t.sh" >"$log" 2>&1
	case $? in
	0) echo "$t: $(tail -n 1 "$log")" ;;
	77) echo "$t: $(tail -n 1 "$log")" ;;
	*)
		echo "FAILED: $t in nbdkit"
		tail -n 40 "$log"
		bad=1
		;;
	esac
done
exit $bad
