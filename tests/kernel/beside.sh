#!/bin/bash
# SPDX-License-Identifier: MIT
# Real null_blk beside nullbd: the same attributes, the same fio jobs, and what
# both count.  The device of nullbd is attached raw, so that it gets the bios as
# the kernel's own device does.  Lines that begin with "beside" are the table of
# nullbd-null_blk(7): what was compared, null_blk, nullbd, and a verdict:
#
#	same		equal
#	missing		an attribute that nullbd does not have yet
#	differs		expected, for the reason that is named
#	WRONG		not expected: the test fails
#
# NBD sends one request at a time: where a job submits batches, plug_nsec gives
# them the time to arrive before the plug closes.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

modprobe null_blk nr_devices=0 || skip "this kernel has no null_blk"
mountpoint -q /sys/kernel/config || must mount -t configfs config /sys/kernel/config

configfs=/sys/kernel/config/nullb
version=$(uname -r | cut -d . -f 1,2)
PLUG_MS=300
wrong=0
reason= # of a difference that the next job may make

# row WHAT THEIRS OURS [REASON]: REASON if a difference is expected
row() {
	local verdict=WRONG

	if [ "$2" = "$3" ]; then
		verdict=same
	elif [ $# -gt 3 ]; then
		verdict="differs: $4"
	else
		wrong=$((wrong + 1))
	fi
	printf 'beside\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$verdict"
}

none_wrong() {
	[ $wrong = 0 ] || fail "$wrong rows differ that should not"
}

# real ATTRIBUTE=VALUE...: /dev/real, made by null_blk
real() {
	local a

	must mkdir $configfs/real
	for a; do
		echo "${a#*=}" >"$configfs/real/${a%%=*}" || fail "null_blk: $a"
	done
	echo 1 >$configfs/real/power || fail "null_blk has no power"
	until_true "/dev/real is there" test -b /dev/real
}

unreal() {
	echo 0 >$configfs/real/power
	must rmdir $configfs/real
}

# ours ATTRIBUTE=VALUE...: /dev/nbd0, made by nullbd
ours() {
	local spec=nullb0:kernel=$version a

	for a; do
		spec+=,$a
	done
	start_nullbd --workers 2 "$spec"
	attach nullb0 --raw -C 1
	must dd if=/dev/nbd0 of=/dev/null bs=4k count=1 iflag=direct # who opens it first reads its partitions
	until_true "nobody reads any more" is_quiet
}

is_quiet() {
	local before

	before=$(ctl stat nullb0)
	sleep 1
	[ "$(ctl stat nullb0)" = "$before" ] && [[ $before =~ [1-9] ]]
}

not_ours() {
	detach
	stop_nullbd
}

# ------------------------------------------------------------------ attributes


# attributes_of WHEN: each that configfs has
attributes_of() {
	local a theirs mine

	for a in "$configfs"/real/*; do
		[ -f "$a" ] || continue
		theirs=$(cat "$a" 2>/dev/null) || continue # written only
		a=${a##*/}
		if mine=$(ctl get nullb0 "$a" 2>/dev/null); then
			row "$1: $a" "$theirs" "$mine"
		else
			printf 'beside\t%s\t%s\t\tmissing\n' "$1: $a" "$theirs"
		fi
	done
}

# sysfs_of WHEN: what both have of /sys/block/X/queue
sysfs_of() {
	local f theirs mine

	for f in /sys/block/real/queue/*; do
		[ -f "$f" ] || continue
		theirs=$(cat "$f" 2>/dev/null) || continue
		mine=$(ctl get nullb0 "queue/${f##*/}" 2>/dev/null) || continue
		[ "${f##*/}" != scheduler ] ||
			theirs=$(sed 's/.*\[\(.*\)\].*/\1/' <<<"$theirs")
		row "$1: queue/${f##*/}" "$theirs" "$mine"
	done
}

case_is "attributes and limits: as they are made, and with settings"
real size=64
ours size=64M
attributes_of defaults
sysfs_of defaults
not_ours
unreal
set -- size=64 memory_backed=1 discard=1 blocksize=4096 max_sectors=64 \
	submit_queues=2 hw_queue_depth=16 irqmode=0
real "$@"
ours "$@"
attributes_of set
sysfs_of set
not_ours
unreal
none_wrong

# -------------------------------------------------------------------- counters

# ios, merges and sectors of reads, writes, discards; flushes
counted() {
	awk '{ print $1, $2, $3, $5, $6, $7, $12, $13, $14, $16 }' "$1"
}

difference() {
	paste -d ' ' <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") |
		awk '{ printf "%s%d", (NR > 1) ? " " : "", $2 - $1 }'
}

# job NAME FIO-ARGUMENT...: on both.  A batch of which a part came after the
# plug had closed is not what is compared: then once more, and once more.
job() {
	local name=$1 before theirs mine i
	local fio=(fio --name=x --direct=1 --thread --randrepeat=1 --size=32m)

	shift
	before=$(counted /sys/block/real/stat)
	must "${fio[@]}" --filename=/dev/real "$@"
	theirs=$(difference "$before" "$(counted /sys/block/real/stat)")
	[[ $theirs =~ [1-9] ]] || fail "$name: null_blk has counted nothing"
	for i in 1 2 3; do
		before=$(ctl stat nullb0 | counted -)
		must "${fio[@]}" --filename=/dev/nbd0 "$@"
		mine=$(difference "$before" "$(ctl stat nullb0 | counted -)")
		[[ $mine != "$theirs" && $* == *iodepth_batch* ]] || break
	done
	if [ -n "$reason" ] && [ "$(bios "$theirs")" = "$(bios "$mine")" ]; then
		row "counters: $name" "$theirs" "$mine" "$reason"
	else
		row "counters: $name" "$theirs" "$mine"
	fi
}

# what must be equal whatever merges: bios and sectors, of each kind
bios() {
	awk '{ print $1 + $2, $3, $4 + $5, $6, $7 + $8, $9, $10 }' <<<"$1"
}

batches() {
	echo --ioengine=libaio --iodepth="$1" --iodepth_batch="$1" \
		--iodepth_batch_complete_min="$1" --iodepth_batch_complete_max="$1"
}

# shellcheck disable=SC2046 # words are meant
jobs_one_by_one() {
	local one="--ioengine=psync"

	job "write 4k" $one --rw=write --bs=4k --number_ios=64
	job "read 4k, at random" $one --rw=randread --bs=4k --number_ios=64
	job "write 128k: two splits" $one --rw=write --bs=128k --number_ios=32
	job "read 1m: nine" $one --rw=read --bs=1m --number_ios=16
	job "write 1m" $one --rw=write --bs=1m --number_ios=16
	job "rw 512 to 64k" $one --rw=randrw --bsrange=512-64k --number_ios=64
	job "trim 1m" $one --rw=trim --bs=1m --number_ios=16
	job "write 4k, dsync" $one --rw=write --bs=4k --sync=dsync --number_ios=32
}

# shellcheck disable=SC2046
jobs_in_batches() {
	job "write 4k, batches of 32" $(batches 32) --rw=write --bs=4k --number_ios=256
	job "read 4k, batches of 16" $(batches 16) --rw=read --bs=4k --number_ios=128
	job "randwrite 4k, batches of 32" $(batches 32) --rw=randwrite --bs=4k --number_ios=256
	job "write 64k, batches of 8" $(batches 8) --rw=write --bs=64k --number_ios=64
	# up to 6.12 the plug of the kernel that sends is a stack: the first becomes
	# the last, so other bios meet
	reason="it gets a batch in reverse order"
	job "report A's sizes, batches of 32" $(batches 32) --rw=randrw:2 --number_ios=256 \
		--bssplit=512/20:1k/16:2k/9:4k/12:8k/19:16k/10:32k/8:64k/4
	reason=
}

case_is "counters of jobs that submit one I/O at a time"
real size=64 memory_backed=1 discard=1
ours size=64 memory_backed=1 discard=1
jobs_one_by_one
not_ours
none_wrong

case_is "counters of jobs that submit batches"
ours size=64 memory_backed=1 discard=1 plug_nsec=${PLUG_MS}ms
jobs_in_batches
for setting in "nomerges 2" "nomerges 1" "max_sectors_kb 16"; do
	read -r a value <<<"$setting"
	echo "$value" >"/sys/block/real/queue/$a"
	must ctl set nullb0 "$a" "$value"
	job "write 4k, batches of 32, $a=$value" $(batches 32) --rw=write --bs=4k --number_ios=128
	echo 0 >/sys/block/real/queue/nomerges
	must ctl set nullb0 nomerges 0
done
not_ours
unreal
none_wrong

# --------------------------------------------------------------------- latency

# median_us DEVICE: of reads, one at a time
median_us() {
	must fio --name=x --filename="$1" --direct=1 --ioengine=psync --rw=randread \
		--bs=4k --size=32m --number_ios=60 --output-format=json
	sed -n '/"clat_ns"/,/"50.000000"/s/.*"50.000000" : \([0-9]*\).*/\1/p' "$tmp/must" |
		head -n 1 | awk '{ printf "%d", $1 / 1000 }'
}

case_is "completion modes: the latency is what is asked for, and a way to go"
for mode in "0 0" "1 0" "2 5000000" "2 50000000"; do
	read -r irqmode nsec <<<"$mode"
	set -- size=64 irqmode="$irqmode" completion_nsec="$nsec"
	real "$@"
	ours "$@"
	theirs=$(median_us /dev/real)
	mine=$(median_us /dev/nbd0)
	printf 'beside\tlatency: irqmode=%s completion_nsec=%s, us at the median\t%s\t%s\tmeasured\n' \
		"$irqmode" "$nsec" "$theirs" "$mine"
	[ "$theirs" -ge $((nsec / 1000)) ] || fail "null_blk is early: $theirs"
	[ "$mine" -ge $((nsec / 1000)) ] || fail "a read ends early: $mine us"
	# the socket, two processes, and an emulated machine: only a bug takes 40 ms
	[ "$mine" -le $((nsec / 1000 + 40000)) ] || fail "a read ends late: $mine us"
	not_ours
	unreal
done
cases_end
