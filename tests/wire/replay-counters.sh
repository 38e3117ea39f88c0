#!/bin/bash
# SPDX-License-Identifier: MIT
# nullb-replay counts what real kernels counted (tests/data/counters.tsv), for
# the workloads of tests/data/workloads.txt as iologs of fio: all of them whose
# batches are of one size, and which an iolog can tell (it knows no FUA, and
# null_blk's volatile cache is not there yet).  pipe/counters.c compares every
# row; here it is each seventeenth, or with NULLB_LONG=1 all of them.
set -u
cd "$(dirname "$0")/../.." || exit 1
replay=${NULLB_REPLAY:-build/nullb-replay}
[ -x "$replay" ] || { echo "$replay is not there"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# an iolog a workload, and a line "NAME BATCH" in batches
awk -v dir="$dir" '
	BEGIN { op["R"] = "read"; op["W"] = "write"; op["D"] = "trim"; op["F"] = "datasync" }
	/^#/ { next }
	/^= / {
		keep = $3 > 0 && NF == 3
		if (!keep)
			next
		print $2, $3 >(dir "/batches")
		log_ = dir "/" $2 ".log"
		print "fio version 2 iolog" >log_
		print "dev add\ndev open" >log_
		next
	}
	keep {
		n = NF > 3 ? $4 : 1
		step = n < 0 ? -$3 : $3
		if (n < 0)
			n = -n
		for (i = 0; i < n; i++)
			print "dev", op[$1], ($2 + i * step) * 512, $3 * 512 >log_
	}' tests/data/workloads.txt

stride=17 least=100
[ "${NULLB_LONG:-0}" = 0 ] || stride=1 least=1000
rows=0 wrong=0 seen=0
while IFS=$'\t' read -r kernel sched nomerges sectors device name want; do
	case $kernel in \#*) continue ;; esac
	batch=$(grep "^$name " "$dir/batches") || continue
	[ "$device" != cache ] || continue
	[ $((seen++ % stride)) = 0 ] || continue
	set -- --kernel "$kernel" --batch "${batch#* }" --set nomerges="$nomerges" \
		--set scheduler="${sched%%,*}"
	[ "$sched" = "${sched#*,}" ] || set -- "$@" --set iosched/"${sched#*,}"
	[ "$sectors" = 255 ] || set -- "$@" --set max_sectors_kb=$((sectors / 2))
	[ "$device" = null ] || set -- "$@" --set memory_backed=1 --set discard=1
	got=$("$replay" "$@" "$dir/$name.log") || { echo "failed: $* $name"; exit 1; }
	# shellcheck disable=SC2086 # fields
	set -- "$@" -- $got
	while [ "$1" != -- ]; do shift; done
	got=$(printf '%s\t' "$2" "$3" "$4" "$6" "$7" "$8" "${13}" "${14}" "${15}")
	rows=$((rows + 1))
	# all but the last field: flushes, of which these have none
	[ "$got${want##*$'\t'}" = "$want" ] && continue
	wrong=$((wrong + 1))
	echo "$kernel $sched nomerges=$nomerges $sectors sectors $device $name:"
	echo "	$got"
	echo "	$want (the kernel)"
done <tests/data/counters.tsv
echo "$rows rows, $wrong differ"
[ "$wrong" = 0 ] && [ "$rows" -gt $least ]
