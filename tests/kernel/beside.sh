#!/bin/bash
# SPDX-License-Identifier: MIT
# Real null_blk beside nullbd: the same attributes, the same fio jobs, and what
# both count.  The device of nullbd is attached raw, so that it gets the bios as
# the kernel's own device does.  Lines that begin with "beside" are the table of
# nullbd-null_blk(7): what was compared, null_blk, nullbd, a verdict, and of
# counters what /dev/nbd0 has counted on the way:
#
#	same		equal
#	missing		nullbd does not have it, for the reason that is named
#	differs		expected, for the reason that is named
#	measured	a time
#	WRONG		not expected: the test fails
#
# Counters are reads' ios, merges and sectors, those of writes, those of
# discards, and flushes.  Sectors, flushes, and ios and merges together (bios,
# when they have been split) are equal in every job, however it arrives.

# shellcheck disable=SC2015,SC2086 # words are meant
# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

modprobe null_blk nr_devices=0 || skip "this kernel has no null_blk"
mountpoint -q /sys/kernel/config || must mount -t configfs config /sys/kernel/config

configfs=/sys/kernel/config/nullb
version=$(uname -r | cut -d . -f 1,2)
PLUG_MS=250
TRIES=3
wrong=0

# what nullbd does not have, in configfs and in queue/, and why
declare -A lacks=(
	[queue/io_poll]="nothing is polled over NBD"
	[queue/io_poll_delay]="nothing is polled over NBD"
	[queue/add_random]="of the host" [queue/dax]="of the host"
	[queue/read_ahead_kb]="of the host's page cache"
	[queue/stable_writes]="of the host's page cache"
	[queue/wbt_lat_usec]="of the host's page cache"
	[queue/rq_affinity]="a reply leaves from where its request came"
	[queue/io_timeout]="nothing times out"
	[queue/dma_alignment]="payloads have no alignment"
	[queue/optimal_io_size]="always 0"
	[queue/max_integrity_segments]="no integrity data"
	[queue/atomic_write_max_bytes]="no atomic writes"
	[queue/atomic_write_boundary_bytes]="no atomic writes"
	[queue/atomic_write_unit_min_bytes]="no atomic writes"
	[queue/atomic_write_unit_max_bytes]="no atomic writes"
	[queue/discard_zeroes_data]="always 0" [queue/write_same_max_bytes]="always 0"
)

say() {
	printf beside
	printf '\t%s' "$@"
	echo
}

# row WHAT THEIRS OURS [REASON [HOST]]: REASON if a difference is expected
row() {
	local verdict=WRONG

	if [ "$2" = "$3" ]; then
		verdict=same
	elif [ -n "${4-}" ]; then
		verdict="differs: $4"
	else
		wrong=$((wrong + 1))
	fi
	say "$1" "$2" "$3" "$verdict" "${@:5}"
}

# attribute_row WHEN ATTRIBUTE THEIRS: ours is in has[]
attribute_row() {
	local what="$1: $2"

	if [ -n "${has[$2]+yes}" ]; then
		row "$what" "$3" "${has[$2]}"
	elif [ -n "${lacks[$2]-}" ]; then
		say "$what" "$3" "" "missing: ${lacks[$2]}"
	else
		row "$what" "$3" "(none)"
	fi
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

# ours ATTRIBUTE=VALUE...: /dev/nbd0, made by nullbd; and, with other settings,
# what is in $more
more=()
ours() {
	local spec=nullb0:kernel=$version a

	for a; do
		spec+=,$a
	done
	start_nullbd --workers 2 "$spec" "${more[@]}"
	attach nullb0 --raw -C 1
}

not_ours() {
	detach
	stop_nullbd
}

# ------------------------------------------------------------------ attributes

# compare WHEN: each attribute that configfs, or /sys/block/X/queue, has
compare() {
	local -A has
	local f name theirs

	while read -r name theirs; do
		has[$name]=$theirs
	done < <(ctl get nullb0)
	for f in "$configfs"/real/* /sys/block/real/queue/*; do
		[ -f "$f" ] && [ -r "$f" ] || continue
		{ theirs=$(<"$f"); } 2>/dev/null || continue # written only
		name=${f#"$configfs/real/"}
		name=${name#/sys/block/real/}
		if [ "$name" = queue/scheduler ]; then # it names all that there are
			theirs=${theirs#*\[}
			theirs=${theirs%]*}
		fi
		attribute_row "$1" "$name" "$theirs"
	done
}

case_is "attributes and limits: as they are made, and with settings"
real size=64
ours size=64M
compare defaults
not_ours
unreal
set -- size=64 memory_backed=1 discard=1 blocksize=4096 max_sectors=64 \
	submit_queues=2 hw_queue_depth=16 irqmode=0 mbps=100 badblocks=+8-23
real "$@"
ours "$@"
compare set
not_ours
unreal
# the kernel gives one with a bitmap of tags for all queues a scheduler, unless it
# is told not to; and so one with zones
set -- size=64 memory_backed=1 cache_size=4 submit_queues=2 shared_tag_bitmap=1 \
	virt_boundary=1 no_sched=1
real "$@"
ours "$@"
compare cached
not_ours
unreal
set -- size=64 memory_backed=1 discard=1 no_sched=1 zoned=1 zone_size=4 \
	zone_capacity=3 zone_nr_conv=2 zone_max_open=5 zone_max_active=4
real "$@"
ours "$@"
compare zoned
not_ours
unreal
none_wrong

# -------------------------------------------------------------------- counters

# stat_of DEVICE: into counts[]: ios, merges and sectors of reads, writes and
# discards; flushes.  DEVICE is of this kernel, or ours:NAME.
stat_of() {
	local f

	if [ "${1%:*}" = ours ]; then
		read -ra f < <(ctl stat "${1#*:}")
	else
		read -ra f <"/sys/block/$1/stat"
	fi
	counts=("${f[@]:0:3}" "${f[@]:4:3}" "${f[@]:11:3}" "${f[15]}")
}

# since DEVICE BEFORE...: what it has counted since, into since
since() {
	local i counts before=("${@:2}")

	stat_of "$1"
	for i in "${!counts[@]}"; do
		counts[i]=$((counts[i] - before[i]))
	done
	since=${counts[*]}
}

# COUNT...: what is the same however it merges
bios() {
	bios="$(($1 + $2)) $3 $(($4 + $5)) $6 $(($7 + $8)) $9 ${10}"
}

# nr_sectors COUNT...
nr_sectors() {
	nr_sectors="$3 $6 $9"
}

# run DEVICE FIO-ARGUMENT...
run() {
	must fio --name=x --direct=1 --thread --randrepeat=1 --size=32m \
		"--filename=/dev/$1" "${@:2}"
}

# on_real FIO-ARGUMENT...: what null_blk counts, into theirs
on_real() {
	local counts

	stat_of real
	run real "$@"
	since real "${counts[@]}"
	theirs=$since
	[[ $theirs =~ [1-9] ]] || fail "null_blk has counted nothing"
}

# on_ours NAME NBD FIO-ARGUMENT...: what ours counts, into mine, and /dev/NBD, into
# host; and what holds for every job
on_ours() {
	local ours counts theirs_bios

	stat_of "ours:$1"
	ours=("${counts[@]}")
	stat_of "$2"
	run "$2" "${@:3}"
	since "$2" "${counts[@]}"
	host=$since
	since "ours:$1" "${ours[@]}"
	mine=$since
	nr_sectors $host
	host_sectors=$nr_sectors
	nr_sectors $mine
	is "$host_sectors" "$nr_sectors" "sectors that arrived at $1"
	bios $theirs
	theirs_bios=$bios
	bios $mine
	is "$bios" "$theirs_bios" "bios, sectors and flushes of $1"
}

# job NAME FIO-ARGUMENT...: the counters are equal
job() {
	on_real "${@:2}"
	on_ours nullb0 nbd0 "${@:2}"
	row "counters: $1" "$theirs" "$mine" "" "$host"
}

# waiting_job NAME FIO-ARGUMENT...: the same where the plug waits for the batch;
# which may take longer than that, for once.  $reason: why it may differ.
reason=''
waiting_job() {
	local try

	for ((try = 0; try < TRIES; try++)); do
		on_ours waits nbd1 "${@:2}" --iodepth_batch_submit=1
		[ "$mine" != "$theirs" ] && [ -z "$reason" ] || break
	done
	row "counters: $1, plug_nsec" "$theirs" "$mine" "$reason" "$host"
}

# batch_job NAME FIO-ARGUMENT...: on all of them
batch_job() {
	on_real "${@:2}"
	on_ours nullb0 nbd0 "${@:2}"
	row "counters: $1" "$theirs" "$mine" "batches as the socket brings them" "$host"
	waiting_job "$@"
}

# in_batches DEPTH [BATCH]: as options of fio
in_batches() {
	local batch=${2:-$1}

	options="--ioengine=libaio --iodepth=$1 --iodepth_batch=$batch"
	options+=" --iodepth_batch_complete_min=$batch --iodepth_batch_complete_max=$batch"
}

case_is "counters of jobs that submit one I/O at a time, or two"
real size=64 memory_backed=1 discard=1
more=("waits:size=64,memory_backed=1,discard=1,kernel=$version,plug_nsec=${PLUG_MS}ms")
ours size=64 memory_backed=1 discard=1
must ctl attach --raw -C 1 waits /dev/nbd1
# who opens one first reads its partitions: before anything is counted
for d in nbd0 nbd1; do
	must dd if=/dev/$d of=/dev/null bs=4k count=1 iflag=direct
done
one=--ioengine=psync
job "write 4k" $one --rw=write --bs=4k --number_ios=64
job "read 4k at random" $one --rw=randread --bs=4k --number_ios=64
job "write 128k" $one --rw=write --bs=128k --number_ios=16
job "read 1m" $one --rw=read --bs=1m --number_ios=8
job "randrw 512 to 64k" $one --rw=randrw --bsrange=512-64k --number_ios=64
job "trim 1m" $one --rw=trim --bs=1m --number_ios=16
job "write 4k, dsync" $one --rw=write --bs=4k --sync=dsync --number_ios=32
in_batches 2
# two are no plug's worth, but two of these and the next may come together
on_real $options --rw=write --bs=4k --number_ios=64
on_ours nullb0 nbd0 $options --rw=write --bs=4k --number_ios=64
row "counters: write 4k, batches of 2" "$theirs" "$mine" \
	"batches as the socket brings them" "$host"
none_wrong

# A batch is what one read of the socket brings, and which that is nobody knows.
# With plug_nsec a plug stays open until all of one is there.  These are then
# submitted one by one, and waited for together: else this kernel holds them in a
# plug of its own, which 6.1 sends in reverse.  Of a batch that overlaps itself,
# unless all of it reads, our order of effects closes the plug.
case_is "counters of jobs that submit batches: bios are equal, with plug_nsec all is"
in_batches 64
batch_job "write 4k, batches of 64" $options --rw=write --bs=4k --number_ios=256
batch_job "write 4k backwards, batches of 64" $options --rw=write:-8k --bs=4k \
	--offset=32m --number_ios=256
batch_job "randrw 4k, batches of 64" $options --rw=randrw --bs=4k --number_ios=256
sizes=--bssplit=512/20:1k/16:2k/9:4k/12:8k/19:16k/10:32k/8:64k/4
batch_job "read report A's sizes, batches of 64" $options --rw=randread:2 $sizes \
	--number_ios=256
reason="what overlaps waits, and closes the plug"
in_batches 32
batch_job "report A's sizes, batches of 32" $options --rw=randrw:2 $sizes --number_ios=256
reason=''
in_batches 16
batch_job "read 4k, batches of 16" $options --rw=read --bs=4k --number_ios=64
in_batches 8
batch_job "write 64k, batches of 8" $options --rw=write --bs=64k --number_ios=32
in_batches 4
batch_job "write 4k, batches of 4" $options --rw=write --bs=4k --number_ios=16
none_wrong

case_is "counters with other settings of the queue"
in_batches 32
for setting in "nomerges 2" "nomerges 1" "max_sectors_kb 16"; do
	read -r a value <<<"$setting"
	echo "$value" >"/sys/block/real/queue/$a"
	must ctl set waits "$a" "$value"
	on_real $options --rw=write --bs=4k --number_ios=64
	waiting_job "write 4k, batches of 32, $a=$value" $options --rw=write --bs=4k \
		--number_ios=64
	echo 0 >/sys/block/real/queue/nomerges
	must ctl set waits nomerges 0
done
# what was submitted one by one may arrive as a batch
echo 127 >/sys/block/real/queue/max_sectors_kb
must ctl set nullb0 plug each
in_batches 64 1
job "write 4k, 64 deep, one by one, plug=each" $options --rw=write --bs=4k --number_ios=256
must ctl detach /dev/nbd1
not_ours
unreal
more=()
none_wrong

# --------------------------------------------------------------------- latency

# latency_us DEVICE: the shortest, and the median, of reads one at a time
latency_us() {
	must fio --name=x --filename="$1" --direct=1 --ioengine=psync --rw=randread \
		--bs=4k --size=32m --number_ios=30 --output-format=json
	awk '/"clat_ns"/ { in_clat = 1 }
	    in_clat && /"min"/ { min = $3 }
	    in_clat && /"50.000000"/ { printf "%d %d", min / 1000, $3 / 1000; exit }' \
		"$tmp/must"
}

# mode IRQMODE NSEC: of both, shortest and median into theirs and mine
mode() {
	real size=64 irqmode="$1" completion_nsec="$2"
	ours size=64 irqmode="$1" completion_nsec="$2"
	theirs=$(latency_us /dev/real)
	mine=$(latency_us /dev/nbd0)
	not_ours
	unreal
	say "latency: irqmode=$1 completion_nsec=$2, us, shortest and median" \
		"$theirs" "$mine" measured
}

# What irqmode=0 takes is the way, the sockets and two processes, of an emulated
# machine; only a bug takes 40 ms more than that, and than null_blk.
case_is "completion modes: no I/O is early, and none waits that should not"
for irqmode in 0 1; do
	mode $irqmode 200000000
	[ "${mine#* }" -lt 200000 ] || fail "irqmode=$irqmode: waits: $mine"
	[ $irqmode != 0 ] || way=$((${mine#* } - ${theirs#* }))
done
for nsec in 1000000 20000000; do
	mode 2 $nsec
	[ "${theirs% *}" -ge $((nsec / 1000)) ] || fail "null_blk is early: $theirs"
	[ "${mine% *}" -ge $((nsec / 1000)) ] || fail "a read ends early: $mine"
	late=$((${mine#* } - ${theirs#* } - way))
	[ $late -le 40000 ] || fail "completion_nsec=$nsec: the median is $late us later"
done
cases_end
