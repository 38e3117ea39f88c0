#!/bin/bash
# SPDX-License-Identifier: MIT
# fio writes, reads, trims, and finds what it has written: over workloads,
# depths, jobs, completion modes, block sizes and kernel profiles.
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
		n = split("rw depth jobs irq bs kernel", dim, " ")
		v["rw"] = "randwrite randrw trimwrite"
		v["depth"] = "1 8 64"
		v["jobs"] = "1 4"
		v["irq"] = "0 1 2"
		v["bs"] = "512 4k 64k 1M 4M"
		v["kernel"] = "4.14 5.4 6.1 6.12"
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

runs=0
matrix >"$tmp/matrix"
while read -r rw depth jobs irq bs kernel; do
	size=$((4 * $(region "$bs")))
	device="nullb0:size=${size}M,memory_backed=1,discard=1"
	device+=",irqmode=$irq,completion_nsec=20000,kernel=$kernel"
	start_nullbd "$device"
	if ! (cd "$tmp" && timeout -k 5 "$RUN_S" fio --name=checked --ioengine=nbd \
		--uri="$(uri "")" --rw="$rw" --bs="$bs" --iodepth="$depth" \
		--numjobs="$jobs" --size=25% --offset_increment=25% \
		--verify=crc32c --verify_fatal=1 --do_verify=1 \
		--verify_state_save=0 --randseed="$seed" --group_reporting) \
		>"$tmp/fio" 2>&1 </dev/null; then
		cat "$tmp/fio" >&2
		"$NULLBCTL" --control "$control" stat nullb0 >&2
		fail "fio $rw, depth $depth, $jobs jobs, bs $bs on $device"
	fi
	if ! grep -q 'err= 0' "$tmp/fio" || grep -q 'verify: ' "$tmp/fio"; then
		cat "$tmp/fio" >&2
		fail "fio $rw, depth $depth, $jobs jobs, bs $bs on $device"
	fi
	stop_nullbd
	runs=$((runs + 1))
	[ $((runs % 100)) -ne 0 ] || echo "$runs runs, $SECONDS s"
done <"$tmp/matrix"
[ $runs -gt 0 ] || fail "nothing was run"
echo "$runs runs of fio verified in $SECONDS s"
