#!/bin/bash
# SPDX-License-Identifier: MIT
# fio on /dev/nbd0 writes, reads, trims, and finds what it has written: by each
# of its engines for block devices, direct and through the page cache, over
# connections, block sizes and completion modes; and what the kernel sends is
# what the device counts.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

need fio

# checked FIO-ARGUMENT...: by two jobs, each in its half
checked() {
	must timeout 200 fio --name=x --filename=/dev/nbd0 --size=4m --bs=4k \
		--numjobs=2 --offset_increment=8m --verify=crc32c --verify_fatal=1 \
		--group_reporting "$@"
	grep -q 'err= 0' "$tmp/must" || fail "fio $*: $(<"$tmp/must")"
}

# reads and writes (ios, sectors) of a stat line, as "R RS W WS D DS"
counts() {
	awk '{ print $1, $3, $5, $7, $12, $14 }' <<<"$1"
}

# sectors that went by since $before were the same on both sides
same_sectors() {
	local here there

	here=$(difference "$(counts "$host_before")" "$(counts "$(sys nbd0 stat)")")
	there=$(difference "$(counts "$before")" "$(counts "$(ctl stat nullb0)")")
	[[ $there =~ ^[1-9][0-9]*\ [1-9] ]] || fail "nothing was read: $there"
	is "$(awk '{ print $2, $4, $6 }' <<<"$there")" \
		"$(awk '{ print $2, $4, $6 }' <<<"$here")" "sectors read, written, discarded"
}

difference() {
	paste -d ' ' <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") |
		awk '{ printf "%s%d", (NR > 1) ? " " : "", $2 - $1 }'
}

mark() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	host_before=$(sys nbd0 stat)
	before=$(ctl stat nullb0)
}

device=size=64M,memory_backed=1,discard=1
run=0
for irqmode in 0 1 2; do
	start_nullbd --workers 2 "nullb0:$device,irqmode=$irqmode,completion_nsec=200us"
	case_is "irqmode=$irqmode: libaio and io_uring, direct, one connection and four"
	for engine in libaio io_uring; do
		run=$((run + 1))
		attach nullb0 --raw -C $((run % 2 * 3 + 1))
		mark
		checked --ioengine=$engine --direct=1 --iodepth=16 --rw=randrw
		checked --ioengine=$engine --direct=1 --iodepth=4 --rw=trimwrite
		same_sectors
		detach
	done
	stop_nullbd
done

start_nullbd --workers 2 "nullb0:$device" "big:$device,blocksize=4096"
case_is "psync, direct and buffered; mmap"
attach nullb0 --raw
mark
checked --ioengine=psync --direct=1 --rw=write --bsrange=512-64k --bs_unaligned=0 --blockalign=512
checked --ioengine=psync --direct=0 --rw=randwrite --end_fsync=1
# (fio 3.33's mmap does not find its data on /dev/nbdX of 6.12, from nbdkit either)
must /usr/bin/python3 -c '
import mmap, os
fd = os.open("/dev/nbd0", os.O_RDWR)
m = mmap.mmap(fd, 1 << 20)
for i in range(256):
    m[i << 12:(i + 1) << 12] = bytes([i]) * 4096
m.flush()
m.close()
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
os.close(fd)
fd = os.open("/dev/nbd0", os.O_RDONLY | os.O_DIRECT)
m = mmap.mmap(-1, 1 << 20)
if os.readv(fd, [m]) != 1 << 20:
    raise SystemExit("a short read")
for i in range(256):
    if m[i << 12:(i + 1) << 12] != bytes([i]) * 4096:
        raise SystemExit(f"page {i} is not what was stored")'
same_sectors
detach

case_is "psync and libaio with blocks of 4 KiB"
attach big
checked --ioengine=psync --direct=0 --rw=randwrite --fsync=16
checked --ioengine=libaio --direct=1 --rw=randrw --iodepth=8 --bs=4k
detach

case_is "merges and splits of this kernel's own block layer change no byte"
attach nullb0 -C 2
echo 64 >/sys/block/nbd0/queue/max_sectors_kb
for scheduler in none mq-deadline; do
	echo $scheduler >/sys/block/nbd0/queue/scheduler
	checked --ioengine=libaio --direct=1 --rw=write --bs=4k --iodepth=32 \
		--iodepth_batch=32
	checked --ioengine=libaio --direct=1 --rw=randwrite --bs=256k --iodepth=4
done
detach

case_is "while the settings of the device change"
attach nullb0 --raw
settings="scheduler=mq-deadline nomerges=2 max_sectors_kb=4 plug=call nomerges=0
	scheduler=none plug=each nr_requests=8 max_sectors_kb=127 plug=plug nr_requests=64"
change() {
	while [ ! -e "$tmp/enough" ]; do
		for s in $settings; do
			ctl set nullb0 "$s" || return 1
		done
	done
}
change &
changer=$!
checked --ioengine=io_uring --direct=1 --rw=randrw --bs=16k --iodepth=16 --loops=4
touch "$tmp/enough"
wait $changer || fail "a setting was refused"
detach
if dmesg_has 'I/O error|nbd0: (Connection|Receive|Unexpected|Wrong)'; then
	fail "the kernel complains"
fi
cases_end
