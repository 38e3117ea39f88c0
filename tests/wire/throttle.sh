#!/bin/bash
# SPDX-License-Identifier: MIT
# mbps, in real time and so roughly: what fio gets, a change while it runs, and
# the end of the daemon while requests wait.  tests/pipe/throttle.c is exact.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no engine nbd"

ctl() {
	"$NULLBCTL" --control "$control" "$@" || fail "nullbctl $*"
}

ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# write_for DEVICE BS SECONDS: KiB/s
write_for() {
	(cd "$tmp" && fio --name=w --ioengine=nbd --uri="$(uri "$1")" \
		--rw=write --bs="$2" --iodepth=8 --size=1G --time_based \
		--runtime="$3" --output-format=terse --terse-version=3 \
		2>"$tmp/fio" </dev/null) | awk -F ';' 'NF > 1 { print $48 }'
}

# about WHAT KIB_A_SECOND MIB_A_SECOND: not a fifth more, nor so much less that
# it could not be a machine with other things to do
about() {
	echo "$1: $2 KiB/s of $3 MiB/s"
	[ "$2" -ge $(($3 * 1024 / 4)) ] || fail "$1: only $2 KiB/s"
	[ "$2" -le $(($3 * 1024 * 6 / 5)) ] || fail "$1: $2 KiB/s"
}

start_nullbd "ten:size=1G,mbps=10" "whole:size=1G,max_sectors=2048,mbps=10" \
	"slow:size=1G,max_sectors=2048,mbps=1"

about "4 KiB" "$(write_for ten 4k 3)" 10
about "1 MiB" "$(write_for ten 1m 3)" 10
about "1 MiB in one request" "$(write_for whole 1m 3)" 10

# in force for a request that would wait 64 s
(cd "$tmp" && fio --name=w --ioengine=nbd --uri="$(uri slow)" --rw=write \
	--bs=1m --iodepth=64 --size=64M >"$tmp/fio" 2>&1 </dev/null) &
writer=$!
until [ "$(ctl stat slow | awk '{ print $9 }')" -ge 60 ]; do sleep 0.02; done
start=$(ms)
ctl set slow mbps 1000
wait $writer || fail "the writer fails: $(<"$tmp/fio")"
bound "64 MiB with 1000 MiB/s set late, ms" $(($(ms) - start)) 10000

# the daemon ends at once, and what waits does
ctl set slow mbps 1
(cd "$tmp" && fio --name=w --ioengine=nbd --uri="$(uri slow)" --rw=write \
	--bs=1m --iodepth=64 --size=64M >"$tmp/fio" 2>&1 </dev/null) &
writer=$!
until [ "$(ctl stat slow | awk '{ print $9 }')" -ge 60 ]; do sleep 0.02; done
start=$(ms)
stop_nullbd
took=$(($(ms) - start))
wait $writer
bound "the end of a daemon with 64 MiB at 1 MiB/s in flight, ms" $took 1900
exit 0
