#!/bin/bash
# SPDX-License-Identifier: MIT
# The experiments A and C print their tables, one run a side: merge shares are
# those that were published, and batching merges adjacent I/O alone.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "fio has no ioengine nbd"
B=$(dirname "$NULLBD")
export B RUNTIME=1 ROUNDS=1 WARM_UP=0 DEVICES=1 LOADS='40K|64K' TMPDIR=$tmp

tests/experiment/a >"$tmp/a" 2>"$tmp/err" || fail "A: $(<"$tmp/err")"
[ ! -s "$tmp/err" ] || fail "A complains: $(<"$tmp/err")"
[ "$(grep -c '| agrees |$' "$tmp/a")" = 5 ] || fail "A, in-process: $(<"$tmp/a")"
# over the wire, after and before multipage bvecs, and in 6.12
awk -F '|' '
	function near(share, expected) {
		nr++
		if (share < expected - 5 || share > expected + 5)
			bad = 1
	}
	/^. merge share, (reads|writes)/ { near($6, 45); near($7, 45) }
	/^. stat.(read|write).merge_share/ { near($3, 45); near($4, 24.2) }
	END { exit bad || nr != 8 }' "$tmp/a" || fail "A, merge shares: $(<"$tmp/a")"

tests/experiment/c >"$tmp/c" 2>"$tmp/err" || fail "C: $(<"$tmp/err")"
[ ! -s "$tmp/err" ] || fail "C complains: $(<"$tmp/err")"
awk -F '|' '
	/^. [0-9]+K (adjacent|random)/ {
		nr++
		merges = /adjacent/
		for (i = 7; i <= 10; i += 3)
			if (merges ? $i + 0 < 40 : $i + 0 > 2)
				bad = 1
	}
	END { exit bad || nr != 2 }' "$tmp/c" || fail "C, what merges: $(<"$tmp/c")"
