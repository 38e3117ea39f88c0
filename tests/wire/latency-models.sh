#!/bin/bash
# SPDX-License-Identifier: MIT
# latency.*: what fio measures through the wire at depth 1, beside a device
# whose time is constant: so much later than that are the others, too, on a
# machine that does other things.  Then what nullb-calibrate makes of it, and
# fio once more with that.  tests/unit/dist.c and timing.c are exact.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio python3
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no engine nbd"
CALIBRATE=$(dirname "$NULLBD")/nullb-calibrate
[ -x "$CALIBRATE" ] || fail "$CALIBRATE is not there"

ctl() {
	"$NULLBCTL" --control "$control" "$@" || fail "nullbctl $*"
}

# measure OUT DEVICE...: all at once, each by 16 clients at depth 1
measure() {
	local out=$1 jobs=() device

	shift
	for device; do
		jobs+=(--name="$device" --new_group --uri="$(uri "$device")"
			--rw=randread --bs=4k --iodepth=1 --numjobs=16
			--number_ios=250 --size=1G --group_reporting)
	done
	(cd "$tmp" && fio --ioengine=nbd --thread --output-format=json \
		--output="$out" "${jobs[@]}" 2>"$tmp/fio" </dev/null) ||
		fail "fio: $(<"$tmp/fio")"
}

# percentile FILE JOB P: us
percentile() {
	python3 - "$tmp/$1" "$2" "$3" <<-'end'
		import json, sys
		text = open(sys.argv[1]).read()  # behind what fio says of itself
		jobs = json.loads(text[text.index("{"):])["jobs"]
		job = [j for j in jobs if j["jobname"] == sys.argv[2]][0]
		of = job["read"]["clat_ns"]["percentile"]
		print(of[sys.argv[3] + ".000000"] // 1000)
	end
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

# near WHAT HAS MODEL LATE PERCENT: us; is it within PERCENT, and as late as the
# constant one is?
near() {
	echo "$1: $2 us, the model has $3, and a constant is $4 late"
	[ "$2" -ge $(($3 * (100 - $5) / 100)) ] &&
		[ "$2" -le $(($3 * (100 + $5) / 100 + $4)) ]
}

# late FILE P: us
late() {
	local us

	us=$(percentile "$1" constant "$2")
	echo $((us > 10000 ? us - 10000 : 0))
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

# the models, and what their p50 and p99 are
declare -A p50 p99
p50[lognormal]=10000 p99[lognormal]=40000
p50[uniform]=15000 p99[uniform]=19900
p50[table]=8000 p99[table]=30000

fit() {
	local model p want

	measure all.json constant "${!p50[@]}"
	for model in "${!p50[@]}"; do
		for p in 50 99; do
			want=${p50[$model]}
			[ $p = 50 ] || want=${p99[$model]}
			near "$model, p$p" "$(percentile all.json "$model" $p)" \
				"$want" "$(late all.json $p)" 5 || return
		done
	done
}

# found again by nullb-calibrate, on a device that is then set to it
calibrated() {
	local model p us

	model=$(only lognormal | "$CALIBRATE" - |
		sed -n 's/^latency\.read = //p')
	[ -n "$model" ] || fail "nullb-calibrate finds no model"
	echo "calibrated: $model"
	ctl set again latency.read "$model"
	measure again.json constant again
	for p in 50 90 99; do
		us=$(percentile all.json lognormal $p)
		near "calibrated, p$p" "$(percentile again.json again $p)" \
			"$us" "$(late again.json $p)" 10 || return
	done
}

# One worker draws for all, and anew with each try, so that these are always the
# same draws, of which 4000 have the percentiles of their model within 1 %.
both() {
	[ -z "$pid" ] || stop_nullbd
	start_nullbd --workers 1 "constant:size=1G,latency.read=constant 10ms" \
		"lognormal:size=1G,seed=38,latency.read=lognormal p50=10ms p99=40ms" \
		"uniform:size=1G,seed=38,latency.read=uniform 10ms 20ms,trace=$tmp/t" \
		"table:size=1G,seed=38,latency.read=table 0=2ms 50=8ms 90=10ms 99=30ms 100=31ms" \
		"again:size=1G,seed=38"
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
us=$("$CALIBRATE" "$tmp/t" | awk '$2 == "measured" { print int($3) }')
near "uniform in a trace, p50" "${us:-0}" "${p50[uniform]}" \
	"$(late all.json 50)" 5 || fail "from D to C"
exit 0
