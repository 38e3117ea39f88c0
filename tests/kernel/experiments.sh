#!/bin/bash
# SPDX-License-Identifier: MIT
# The three public experiments on /dev/nbdX of a real kernel, small: all is
# emulated here, so rates mean nothing, and counts and directions are what is
# checked.  Lines that begin with "experiment" are the tables.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

need fio
MSYNC=${NULLBD%/*}/kernel/msync-mt
[ -x "$MSYNC" ] || skip "$MSYNC is not there"
IOS=1024
RUNS=${NULLB_RUNS:-3}
TRIES=3
REPORTS=${NULLB_REPORTS:-abc}

wanted() { [[ $REPORTS == *$1* ]]; }

say() {
	printf 'experiment'
	printf '\t%s' "$@"
	echo
}

# reads' and writes' ios, merges, sectors of a device of ours
counted() {
	ctl stat "$1" | awk '{ print $1, $2, $3, $5, $6, $7 }'
}

# ---------------------------------------------------------------- report A

# Eight sizes in batches of 64, on 4.14 before and after multipage bvecs.  The
# plug waits for a batch to arrive: see beside.sh.
# report_a MULTIPAGE: into counts[]
report_a() {
	local before share

	start_nullbd "nullb0:size=1G,kernel=4.14,multipage_bvec=$1,plug_nsec=200ms"
	attach nullb0 --raw -C 1
	must dd if=/dev/nbd0 of=/dev/null bs=4k count=1 iflag=direct
	sleep 1
	before=$(counted nullb0)
	must fio --name=fiotest --filename=/dev/nbd0 --direct=1 --rw=randrw:2 \
		--ioengine=libaio --iodepth=64 --number_ios=$IOS --randrepeat=1 \
		--bssplit=512/20:1k/16:2k/9:4k/12:8k/19:16k/10:32k/8:64k/4 \
		--fadvise_hint=0 --iodepth_batch_submit=64 --iodepth_batch_complete_min=64 \
		--iodepth_batch_complete_max=64
	counts[$1]=$(paste -d ' ' <(tr ' ' '\n' <<<"$before") \
		<(counted nullb0 | tr ' ' '\n') | awk '{ printf "%d ", $2 - $1 }')
	share=$(awk '{ printf "%.1f", 100 * ($2 + $5) / ($1 + $2 + $4 + $5) }' \
		<<<"${counts[$1]}")
	say "report A" "multipage_bvec=$1" "${counts[$1]}" "merges $share %"
	# 47.1% with batches of 64 throughout
	awk -v s="$share" 'BEGIN { exit !(s > 42 && s < 52) }' || fail "merge share: $share %"
	detach
	stop_nullbd
}

# A batch may be late, for once.
wanted a && {
	case_is "report A: multipage bvecs change neither merges nor requests"
	for ((try = 0; try < TRIES; try++)); do
		report_a 0
		report_a 1
		[ "${counts[1]}" != "${counts[0]}" ] || break
	done
	is "${counts[1]}" "${counts[0]}" "ios, merges, sectors of reads and writes"
}

# ---------------------------------------------------------------- report B

# msync_run FS OPTION: KiB/s touched, and sectors that were written
msync_run() {
	local before sectors rate

	must mount -o "$2" /dev/nbd0 /mnt
	before=$(counted nullb0 | awk '{ print $6 }')
	"$MSYNC" /mnt/file 64 4 3 >"$tmp/rate" || fail "msync-mt on $1, $2"
	rate=$(<"$tmp/rate")
	must umount /mnt
	sectors=$(($(counted nullb0 | awk '{ print $6 }') - before))
	[ "$rate" -gt 0 ] || fail "$1, $2: nothing was touched"
	# each page that was touched before an msync is written
	[ $((sectors / 8)) -gt $((rate * 3 / 4 / 4)) ] ||
		fail "$1, $2: $rate KiB/s touched, but $sectors sectors written"
	say "report B" "$1, $2" "$rate KiB/s" "$sectors sectors"
}

# mmap_run US: the same load on the device itself, by fio
mmap_run() {
	local rate sectors

	start_nullbd "nullb0:size=64M,memory_backed=1,cache_size=16M,irqmode=2,completion_nsec=$1us"
	attach nullb0 -C 2
	must fio --name=msync --filename=/dev/nbd0 --ioengine=mmap --rw=randwrite \
		--bs=4k --size=16M --fsync=64 --numjobs=4 --thread --group_reporting \
		--time_based --runtime=5 --minimal --output="$tmp/fio"
	rate=$(cut -d ';' -f 48 "$tmp/fio")
	sectors=$(counted nullb0 | awk '{ print $6 }')
	[ "${rate:-0}" -gt 0 ] || fail "fio's msync, $1 us: $(<"$tmp/fio")"
	[ "$sectors" -gt 0 ] || fail "fio's msync, $1 us: nothing was written"
	say "report B" "fio mmap on /dev/nbd0, $1 us" "$rate KiB/s" "$sectors sectors"
	detach
	stop_nullbd
}

wanted b && {
	case_is "report B: fio's msync on the device itself"
	for _ in $(seq $RUNS); do # interleaved
		for us in 2000 1000; do
			mmap_run $us
		done
	done
}

for fs in ext4 xfs; do
	wanted b || break
	modprobe $fs 2>/dev/null
	case_is "report B: msync-mt on $fs, relatime, lazytime and noatime"
	start_nullbd nullb0:size=320M,memory_backed=1,discard=1
	attach nullb0 -C 2
	must mkfs.$fs -q "$([ $fs = xfs ] && echo -f || echo -F)" /dev/nbd0
	for _ in $(seq $RUNS); do # interleaved
		for option in relatime lazytime noatime; do
			msync_run $fs $option
		done
	done
	detach
	stop_nullbd
done

# ---------------------------------------------------------------- report C

# Four devices, a thread each, depth 32; a request started as it comes, or a
# plug a batch.
wanted c && case_is "report C: batching merges adjacent I/O, and only that"
for plug in each plug; do
	wanted c || break
	start_nullbd $(for i in 0 1 2 3; do
		echo "nullb$i:size=64M,plug=$plug,plug_nsec=200ms,kernel=5.4"
	done)
	for i in 0 1 2 3; do
		must ctl attach --raw -C 1 nullb$i /dev/nbd$i
		must dd if=/dev/nbd$i of=/dev/null bs=4k count=1 iflag=direct
	done
	sleep 1
	for rw in read randread; do
		declare -A before
		for i in 0 1 2 3; do
			before[$i]=$(counted nullb$i)
		done
		must fio --thread --direct=1 --ioengine=libaio --iodepth=32 --bs=4k \
			--rw=$rw --number_ios=128 --randrepeat=1 --iodepth_batch_submit=32 \
			--iodepth_batch_complete_min=32 --iodepth_batch_complete_max=32 \
			--name=a --filename=/dev/nbd0 --name=b --filename=/dev/nbd1 \
			--name=c --filename=/dev/nbd2 --name=d --filename=/dev/nbd3
		for i in 0 1 2 3; do
			read -r ios merges sectors <<<"$(paste -d ' ' \
				<(tr ' ' '\n' <<<"${before[$i]}") \
				<(counted nullb$i | tr ' ' '\n') |
				awk '{ printf "%d ", $2 - $1 }' | cut -d ' ' -f 1-3)"
			say "report C" "plug=$plug $rw nullb$i" "$ios reads" "$merges merges"
			is "$sectors" 1024 "sectors of nullb$i"
			is $((ios + merges)) 128 "bios of nullb$i"
			case $plug:$rw in
			each:*) is "$merges" 0 "merges without a plug" ;;
			plug:read) [ "$merges" -ge 100 ] || fail "only $merges merges" ;;
			plug:randread) [ "$merges" -le 8 ] || fail "$merges merges at random" ;;
			esac
		done
	done
	for i in 0 1 2 3; do
		must ctl detach /dev/nbd$i
	done
	stop_nullbd
done
cases_end
