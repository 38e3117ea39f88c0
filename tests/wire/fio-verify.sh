#!/bin/bash
# SPDX-License-Identifier: MIT
# fio writes, reads, trims, and finds what it has written: over workloads,
# depths, jobs, completion modes, block sizes, kernel profiles, schedulers and
# ages of plugs; and while the settings of the queue change.
#
# By default the smallest part of the matrix that has each value together with
# each other value at least once; NULLB_LONG=1 runs all of it.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio awk
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no engine nbd"

RUN_S=120 # of one run, which takes one or two: then it hangs

seed=${NULLB_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "seed: NULLB_SEED=$seed"

# One line a run, chosen greedily: always the one with the most pairs of
# values that were not together yet.
matrix() {
	awk -v all="${NULLB_LONG:-0}" '
	BEGIN {
		n = split("rw depth jobs irq bs kernel sched plug", dim, " ")
		v["rw"] = "randwrite randrw trimwrite"
		v["depth"] = "1 8 64"
		v["jobs"] = "1 4"
		v["irq"] = "0 1 2"
		v["bs"] = "512 4k 64k 1M 4M"
		v["kernel"] = "4.14 5.4 6.1 6.12"
		v["sched"] = "none mq-deadline"
		v["plug"] = "plug call each"
		rows[0] = ""
		nr = 1
		for (d = 1; d <= n; d++) {
			k = split(v[dim[d]], val, " ")
			m = 0
			for (r = 0; r < nr; r++)
				for (i = 1; i <= k; i++)
					next_rows[m++] = rows[r] " " val[i]
			for (r = 0; r < m; r++)
				rows[r] = next_rows[r]
			nr = m
		}
		if (all != "0") {
			for (r = 0; r < nr; r++)
				print rows[r]
			exit
		}
		for (;;) {
			best = -1
			most = 0
			for (r = 0; r < nr; r++) {
				split(rows[r], a, " ")
				new = 0
				for (i = 1; i < n; i++)
					for (j = i + 1; j <= n; j++)
						new += !((i, a[i], j, a[j]) in seen)
				if (new > most) {
					most = new
					best = r
				}
			}
			if (best < 0)
				exit
			split(rows[best], a, " ")
			for (i = 1; i < n; i++)
				for (j = i + 1; j <= n; j++)
					seen[i, a[i], j, a[j]] = 1
			print rows[best]
		}
	}'
}

# bytes of a job: 4096 I/Os, fewer of the large ones, more than a depth
region() {
	case $1 in
	512) echo 2 ;;
	4k) echo 16 ;;
	64k) echo 32 ;;
	1M) echo 80 ;;
	4M) echo 288 ;;
	esac
}

# verify WHAT FIO-ARGUMENT...: four jobs at most, each in its quarter
verify() {
	local what=$1

	shift
	if ! (cd "$tmp" && timeout -k 5 "$RUN_S" fio --name=checked --ioengine=nbd \
		--uri="$(uri "")" --size=25% --offset_increment=25% \
		--verify=crc32c --verify_fatal=1 --do_verify=1 \
		--verify_state_save=0 --randseed="$seed" --group_reporting "$@") \
		>"$tmp/fio" 2>&1 </dev/null ||
		! grep -q 'err= 0' "$tmp/fio" || grep -q 'verify: ' "$tmp/fio"; then
		tail -n 60 "$tmp/fio" >&2
		[ -n "${PLUGIN:-}" ] ||
			"$NULLBCTL" --control "$control" stat nullb0 >&2
		fail "fio $* on $what"
	fi
}

runs=0
matrix >"$tmp/matrix"
# a second server for the same devices: a few will do
[ -z "${PLUGIN:-}" ] || [ -n "${NULLB_LONG:-}" ] ||
	sed -i -n '1~4p' "$tmp/matrix"
while read -r rw depth jobs irq bs kernel sched plug; do
	size=$((4 * $(region "$bs")))
	device="nullb0:size=${size}M,memory_backed=1,discard=1"
	device+=",irqmode=$irq,completion_nsec=20000,kernel=$kernel"
	device+=",scheduler=$sched,plug=$plug"
	# splits, in the midst of pages, too
	device+=",max_sectors=$((runs % 4 * 9))"
	# few tags, so that requests wait in the scheduler
	[ "$sched" = none ] || device+=",hw_queue_depth=4"
	# nbdkit's threads do not keep the order in which requests came
	[ -z "${PLUGIN:-}" ] || [ "$rw" != trimwrite ] || depth=1
	start_nullbd "$device"
	verify "$device" --rw="$rw" --bs="$bs" --iodepth="$depth" \
		--numjobs="$jobs"
	stop_nullbd
	runs=$((runs + 1))
	[ $((runs % 100)) -ne 0 ] || echo "$runs runs, $SECONDS s"
done <"$tmp/matrix"
[ $runs -gt 0 ] || fail "nothing was run"

if [ -n "${PLUGIN:-}" ]; then
	echo "$runs runs of fio verified in nbdkit; $SECONDS s"
	exit
fi

# all that is live and changes what becomes of an I/O, until $tmp/enough is there
change_settings() {
	local i=0

	set -- scheduler=mq-deadline nomerges=2 nr_requests=5 max_sectors_kb=4 \
		plug=call nomerges=0 scheduler=none plug=each nr_requests=64 \
		max_sectors_kb=127 scheduler=mq-deadline nomerges=1 plug=plug \
		nr_requests=8 scheduler=none max_sectors_kb=20
	while [ ! -e "$tmp/enough" ]; do
		"$NULLBCTL" --control "$control" set nullb0 "${@:i++ % $# + 1:1}" ||
			return 1
	done
	echo "$i settings changed" >"$tmp/changed"
}

device="nullb0:size=256M,memory_backed=1,discard=1,irqmode=2"
device+=",completion_nsec=20000,hw_queue_depth=64"
start_nullbd "$device"
change_settings &
changer=$!
for load in "randrw 64k 32" "trimwrite 16k 8" "randwrite 4k 64"; do
	read -r rw bs depth <<<"$load"
	verify "$device, whose settings change" --rw="$rw" --bs="$bs" \
		--iodepth="$depth" --numjobs=4
done
touch "$tmp/enough"
wait $changer || fail "a setting was refused"
stop_nullbd
echo "$runs runs of fio verified; $(<"$tmp/changed"); $SECONDS s"
