#!/bin/bash
# SPDX-License-Identifier: MIT
# What requests wait for, as fio sees it through the wire: depth raises
# throughput up to the lanes, caps hold and credits run out, an arm chooses its
# way, and the daemon ends while requests wait for it.  Times are long beside
# what a busy machine adds; tests/unit/parts.c and hdd.c are exact.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio python3
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no engine nbd"

# load DEVICE DEPTH OPTION...: IOPS, and the ms it took
load() {
	local device=$1 depth=$2

	shift 2
	(cd "$tmp" && fio --ioengine=nbd --thread --output-format=json \
		--output="$tmp/out.json" --name=load --uri="$(uri "$device")" \
		--rw=randread --bs=4k --size=1G --iodepth="$depth" "$@" \
		>"$tmp/fio" 2>&1 </dev/null) || fail "fio: $(<"$tmp/fio")"
	python3 - "$tmp/out.json" <<-'end'
		import json, sys
		text = open(sys.argv[1]).read()
		read = json.loads(text[text.index("{"):])["jobs"][0]["read"]
		print(round(read["iops"]), read["runtime"])
	end
}

# within WHAT IS LEAST MOST
within() {
	echo "$1: $2, allowed $3 to $4"
	[ "$2" -ge "$3" ] && [ "$2" -le "$4" ]
}

# again COMMAND...: others may have the machine, but not always
again() {
	local try

	for try in 1 2 3; do
		"$@" && return
		echo "not yet: $try"
	done
	fail "$*: three times"
}

start_nullbd --workers 2 \
	"lanes:size=1G,lanes=8,hw_queue_depth=128,latency.read=constant 4ms" \
	"cap:size=1G,cap.iops=400,hw_queue_depth=128" \
	"burst:size=1G,cap.iops=50,burst.iops=500,burst.ios=250,hw_queue_depth=128" \
	"hdd:size=1T,hdd.rpm=7200,hw_queue_depth=64" \
	"slow:size=1T,hdd.rpm=1000,hdd.seek=1000ms,hdd.stroke=2000ms,hw_queue_depth=64"

# 250, 2000, 2000
knee() {
	local one eight many ms

	read -r one ms < <(load lanes 1 --number_ios=250)
	read -r eight ms < <(load lanes 8 --number_ios=2000)
	read -r many ms < <(load lanes 64 --number_ios=2000)
	echo "lanes=8: $one, $eight, $many IOPS at depth 1, 8, 64 ($ms ms)"
	within "depth 8, percent of depth 1" $((eight * 100 / one)) 600 900 &&
		within "depth 64, percent of depth 8" \
			$((many * 100 / eight)) 80 130 &&
		within "depth 64" "$many" 1500 2050
}
again knee

cap() {
	local many ms

	read -r many ms < <(load cap 64 --number_ios=400)
	within "cap.iops=400: IOPS ($ms ms)" "$many" 320 480
}
again cap

# 500 a second while there are 250 credits, 50 of which come back a second: 277;
# the other 103 at 50 a second
burst() {
	local iops ms

	sleep "${1:-0}"
	read -r iops ms < <(load burst 8 --number_ios=380)
	within "380 I/Os, 250 credits: ms ($iops IOPS)" "$ms" 2400 3500
}
burst || burst 6 || burst 6 || fail "burst: three times"

arm() {
	local one many ms

	read -r one ms < <(load hdd 1 --size=1T --number_ios=100)
	read -r many ms < <(load hdd 16 --size=1T --number_ios=250)
	echo "an arm: $one, $many IOPS at depth 1, 16 ($ms ms)"
	within "depth 1" "$one" 60 90 &&
		within "depth 16, percent of depth 1" \
			$((many * 100 / one)) 150 400
}
again arm

# requests that wait for an arm, for a minute, end with the daemon
fio --ioengine=nbd --thread --name=left --uri="$(uri slow)" --rw=randread \
	--bs=4k --size=1T --iodepth=32 --number_ios=1000 --output="$tmp/left" \
	>/dev/null 2>&1 </dev/null &
left=$!
for _ in $(seq 100); do
	sleep 0.1
	busy=$("$NULLBCTL" --control "$control" stat slow | awk '{ print $9 }')
	[ "$busy" = 32 ] && break
done
[ "$busy" = 32 ] || fail "$busy requests are in flight, not 32"
stop_nullbd
wait "$left"
exit 0
