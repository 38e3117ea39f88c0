#!/bin/bash
# SPDX-License-Identifier: MIT
# latency.*: what fio measures through the wire, of each model, of bytes and of
# stalls, beside a device whose time is constant: so much later than that are the
# others, too, on a machine that does other things.  Then what nullb-calibrate
# makes of it, and fio once more with that.  tests/unit/dist.c and timing.c are
# exact.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio python3
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no engine nbd"
CALIBRATE=$(dirname "$NULLBD")/nullb-calibrate
[ -x "$CALIBRATE" ] || fail "$CALIBRATE is not there"

# At depth 1, as fio takes the last ones of a deeper queue for as late as the
# very last.  160 of each: of 5120 draws seed 796 has all percentiles within 1 %.
clients=32 nr=160 stalls=60
[ -z "${NULLB_LONG:-}" ] || nr=1000 stalls=300

ctl() {
	"$NULLBCTL" --control "$control" "$@" || fail "nullbctl $*"
}

# The models, the percentiles to look at, and what these are, in us.  What is
# not here is measured as the reference is.
reference=20000
declare -A model rest job ps want
model[constant]='read=constant 40ms'
ps[constant]='50 99' want[constant]='40000 40000'

model[uniform]='read=uniform 20ms 40ms'
ps[uniform]='50 99' want[uniform]='30000 39800'
rest[uniform]=,trace=$tmp/t

model[normal]='write=normal mean=30ms stddev=5ms'
job[normal]=--rw=randwrite
ps[normal]='50 99' want[normal]='30000 41632'

model[exponential]='discard=exponential mean=20ms'
rest[exponential]=,memory_backed=1,discard=1
job[exponential]=--rw=randtrim
ps[exponential]='50 99' want[exponential]='13863 92103'

model[lognormal]='read=lognormal p50=20ms p99=80ms'
ps[lognormal]='50 99' want[lognormal]='20000 80000'

model[pareto]='read=pareto p50=10ms p99=80ms'
ps[pareto]='50 99' want[pareto]='10000 80000'

model[table]='read=table 0=4ms 50=16ms 90=20ms 99=60ms 100=62ms'
ps[table]='50 99' want[table]='16000 60000'

# one in five is four times as large
model[bytes]='read=constant 5ms + 10ms/4k'
job[bytes]=--bssplit=4k/80:16k/20
ps[bytes]='50 99' want[bytes]='15000 45000'

# one in ten begins a stall, and nothing else comes until it is over
model[spike]='read=constant 8ms'
rest[spike]=',latency.spike=10% 72ms'
job[spike]="--numjobs=1 --number_ios=$((5 * stalls))"
ps[spike]='50 80 95 99' want[spike]='8000 8000 80000 80000'

# each begins one, behind those of the seven others
model[stalls]='read=constant 20ms'
rest[stalls]=',latency.spike=100% 10ms'
job[stalls]="--numjobs=8 --number_ios=$stalls"
ps[stalls]='50 99' want[stalls]='80000 80000'

# measure OUT DEVICE...: all at once, of each us[DEVICE,PERCENT]
declare -A us
measure() {
	local out=$1 jobs=() device p value

	shift
	for device; do
		jobs+=(--name="$device" --uri="$(uri "$device")" --size=1G
			--rw=randread --bs=4k --iodepth=1 --number_ios="$nr"
			--numjobs="$clients" --new_group --group_reporting)
		# shellcheck disable=SC2206 # words
		jobs+=(${job[$device]-})
	done
	(cd "$tmp" && fio --ioengine=nbd --thread --output-format=json \
		--output="$out" "${jobs[@]}" 2>"$tmp/fio" </dev/null) ||
		fail "fio: $(<"$tmp/fio")"
	while read -r device p value; do
		us[$device,$p]=$value
	done < <(python3 - "$tmp/$out" <<-'end'
		import json, sys
		text = open(sys.argv[1]).read()  # behind what fio says of itself
		for job in json.loads(text[text.index("{"):])["jobs"]:
		    for way in "read", "write", "trim":
		        of = job[way]["clat_ns"].get("percentile", {})
		        for p in of:
		            print(job["jobname"], float(p), of[p] // 1000)
	end
	)
}

# only JOB: of all.json
only() {
	python3 - "$tmp/all.json" "$1" <<-'end'
		import json, sys
		text = open(sys.argv[1]).read()
		all = json.loads(text[text.index("{"):])
		all["jobs"] = [j for j in all["jobs"] if j["jobname"] == sys.argv[2]]
		print(json.dumps(all))
	end
}

# near WHAT HAS WANT LATE PERCENT: us; is it within PERCENT, and LATE?
near() {
	echo "$1: $2 us, should be $3, may be $4 late"
	[ "$2" -ge $(($3 * (100 - $5) / 100)) ] &&
		[ "$2" -le $(($3 * (100 + $5) / 100 + $4)) ]
}

# late P: us, of the reference
late() {
	local was=${us[reference,$1]}

	echo $((was > reference ? was - reference : 0))
}

# again COMMAND...: it may fail when others have the machine, but not always
again() {
	local try

	for try in 1 2 3; do
		"$@" && return
		echo "not yet: $try"
	done
	fail "$*: three times"
}

fit() {
	local name values p

	measure all.json reference "${!model[@]}"
	near "reference, p50" "${us[reference,50.0]}" "$reference" 0 5 || return
	for name in "${!model[@]}"; do
		read -ra values <<<"${want[$name]}"
		for p in ${ps[$name]}; do
			near "$name, p$p" "${us[$name,$p.0]}" "${values[0]}" \
				"$(late "$p.0")" 5 || return
			values=("${values[@]:1}")
		done
	done
}

# found again by nullb-calibrate, on a device that is then set to it
calibrated() {
	local found p at

	found=$(only lognormal | "$CALIBRATE" - |
		sed -n 's/^latency\.read = //p')
	[ -n "$found" ] || fail "nullb-calibrate finds no model"
	echo "calibrated: $found"
	ctl set again latency.read "$found"
	measure again.json reference again
	for p in 50 90 99 99.9; do
		at=$p
		[[ $p == *.* ]] || at=$p.0
		near "calibrated, p$p" "${us[again,$at]}" "${us[lognormal,$at]}" \
			"$(late "$at")" 10 || return
	done
}

# One worker draws for all, and anew with each try, so that these are always the
# same draws.
both() {
	local of=size=1G,seed=796 name devices=()

	[ -z "$pid" ] || stop_nullbd
	for name in "${!model[@]}"; do
		devices+=("$name:$of,latency.${model[$name]}${rest[$name]-}")
	done
	printf '[nullbd]\nmax_handshakes = 1024\n' >"$tmp/conf"
	start_nullbd --workers 1 -c "$tmp/conf" \
		"reference:$of,latency.read=constant 20ms" "again:$of" \
		"${devices[@]}"
	fit && calibrated
}

again both

# what fio reported, as a table
only table >"$tmp/measured.json"
ctl set again latency.read "fio $tmp/measured.json"
[[ $(ctl get again latency.read) == "table 0="* ]] ||
	fail "reads $(ctl get again latency.read)"
err=$("$NULLBCTL" --control "$control" set again latency.read "fio $tmp/none" \
	2>&1) && fail "takes a file that is not there"
[[ $err == *"$tmp/none: No such file"* ]] || fail "complains $err"
stop_nullbd

# the same from D to C of a trace
traced=$("$CALIBRATE" "$tmp/t" | awk '$2 == "measured" { print int($3) }')
near "uniform in a trace, p50" "${traced:-0}" 30000 0 5 || fail "from D to C"
exit 0
