#!/bin/bash
# SPDX-License-Identifier: MIT
# nullb-compare finds that 1.1 ms are more than 1 ms, at depth 1, and says which is
# better.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "fio has no ioengine nbd"
COMPARE=$(dirname "$NULLBD")/nullb-compare
[ -x "$COMPARE" ] || fail "$COMPARE is not there"

printf '[nullb0]\nsize = 1G\nirqmode = 2\ncompletion_nsec = 1ms\n' >"$tmp/1.conf"
sed 's/1ms/1100us/' "$tmp/1.conf" >"$tmp/1.1.conf"
printf '[reads]\nfilename=/dev/nullb0\nioengine=libaio\nrw=randread\nbs=4k\nnumber_ios=300\n' \
	>"$tmp/depth1.fio"

# says STATUS WORD OPTION...: a machine that is busy for seconds gets another try
says() {
	local want=$1 word=$2 status out

	shift 2
	for _ in 1 2 3; do
		out=$(timeout 100 "$COMPARE" -r 6 "$@" "$tmp/depth1.fio" 2>&1)
		status=$?
		[ $status = "$want" ] && [[ $out == *"$word: "*fio.* ]] && return
	done
	fail "status $status, not $want, with \"$word\": $out"
}

says 3 worse --exit-code "$tmp/1.conf" "$tmp/1.1.conf"
says 0 better --exit-code "$tmp/1.1.conf" "$tmp/1.conf"
