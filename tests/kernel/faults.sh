#!/bin/bash
# SPDX-License-Identifier: MIT
# What goes wrong in the daemon, or on the way to it, as the kernel and its
# file systems see it.  (Errors that are injected are not there yet.)

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

# read_one SECONDS [OFFSET]: a direct read of 4 KiB, within so long; dd's words
# are in $tmp/must, its status is the function's
read_one() {
	timeout "$1" dd if=/dev/nbd0 of=/dev/null bs=4k count=1 skip="${2-0}" \
		iflag=direct >"$tmp/must" 2>&1
}

write_one() {
	timeout "$1" dd if=/dev/zero of=/dev/nbd0 bs=4k count=1 seek="${2-0}" \
		oflag=direct >"$tmp/must" 2>&1
}

# said WHAT PATTERN: by the kernel, since the case began
said() {
	until_true "the kernel says '$2' of $1" dmesg_has "$2"
}

# The kernel prints ten of its "I/O error" lines in 5 s and drops the others:
# a case that waits for one begins when those of the case before are forgotten.
may_speak() {
	sleep 6
}

failed_with() {
	grep -q "$1" "$tmp/must" || fail "not '$1': $(<"$tmp/must")"
}

case_is "memory_limit: a write that finds no memory is an I/O error"
start_nullbd nullb0:size=256M,memory_backed=1,discard=1,memory_limit=48M
attach nullb0 -C 1
must_fail dd if=/dev/zero of=/dev/nbd0 bs=1M count=96 oflag=direct
failed_with "Input/output error" # what the kernel makes of any error of NBD
said "the write" 'I/O error, dev nbd0, sector [0-9]+ op 0x1:\(WRITE\)'
[ "$(memory_of nullb0)" -le $((48 << 20)) ] || fail "it takes $(memory_of nullb0)"
must blkdiscard /dev/nbd0
must dd if=/dev/zero of=/dev/nbd0 bs=1M count=32 oflag=direct
must blkdiscard /dev/nbd0

case_is "memory_limit: ext4 loses only what it was told of"
may_speak
must mkfs.ext4 -q -F -J size=8 /dev/nbd0
must mount -o errors=remount-ro /dev/nbd0 /mnt
head -c 4M /dev/urandom >"$tmp/data"
must dd if="$tmp/data" of=/mnt/first bs=64k conv=fsync
must_fail dd if=/dev/zero of=/mnt/large bs=1M count=96 conv=fsync
failed_with "Input/output error"
said "the file" 'I/O error, dev nbd0'
umount /mnt # there is no room for its journal either: it may complain
must mount -o ro,noload /dev/nbd0 /mnt
cmp /mnt/first "$tmp/data" || fail "the first file has changed"
must umount /mnt
detach
stop_nullbd

case_is "bad blocks: I/O of them fails, and of nothing else"
may_speak
start_nullbd nullb0:size=64M,memory_backed=1
attach nullb0 -C 1
must ctl badblocks nullb0 add 800-803 # half of block 100
must_fail read_one 10 100
failed_with "Input/output error"
said "the read" 'I/O error, dev nbd0, sector 800 op 0x0:\(READ\)'
must_fail write_one 10 100
said "the write" 'I/O error, dev nbd0, sector 800 op 0x1:\(WRITE\)'
for block in 99 101; do
	read_one 10 $block || fail "a read of block $block fails"
	write_one 10 $block || fail "a write of block $block fails"
done
must ctl badblocks nullb0 clear
read_one 10 100 || fail "it is still bad"

case_is "a file that has a bad block: the rest of it, and others, can be read"
must mkfs.ext4 -q -F -b 4096 /dev/nbd0
must mount /dev/nbd0 /mnt
must dd if=/dev/urandom of=/mnt/bad bs=4k count=16 conv=fsync
must dd if=/dev/urandom of=/mnt/good bs=4k count=16 conv=fsync
must umount /mnt
block=$(debugfs -R "blocks /bad" /dev/nbd0 2>/dev/null | awk '{ print $8 }')
[[ $block =~ ^[1-9] ]] || fail "where is the file? $block"
must ctl badblocks nullb0 add $((block * 8))-$((block * 8 + 7))
must mount /dev/nbd0 /mnt
must_fail dd if=/mnt/bad of=/dev/null bs=4k count=1 skip=7 iflag=direct
failed_with "Input/output error"
must dd if=/mnt/bad of=/dev/null bs=4k count=7 iflag=direct
must cat /mnt/good
must ctl badblocks nullb0 clear
must cat /mnt/bad
must umount /mnt
detach
stop_nullbd

case_is "a request that takes longer than the time-out fails"
start_nullbd nullb0:size=64M,irqmode=2,completion_nsec=15s
# opening it reads nothing: the partition table was read with the time-out, too
ctl attach nullb0 -C 1 -t 2 /dev/nbd0 >"$tmp/must" 2>&1
SECONDS=0
! read_one 60 || fail "the read succeeds"
[ $SECONDS -lt 14 ] || fail "after $SECONDS s, not 2"
said "the request" 'nbd0: Connection timed out'
detach
stop_nullbd

case_is "without one the kernel waits, and says so"
start_nullbd nullb0:size=64M,irqmode=2,completion_nsec=1ms slow:size=64M
attach nullb0 -C 1
kill -STOP "$pid"
read_one 100 &
reader=$!
sleep 35
dmesg_has 'nbd0: Possible stuck request .*: control \(read@' ||
	fail "after 35 s the kernel has nothing to say"
kill -CONT "$pid"
wait $reader || fail "the read fails: $(<"$tmp/must")"
detach

case_is "a daemon that is stopped for a while: nothing is lost"
attach nullb0 -C 2
kill -STOP "$pid"
write_one 60 &
writer=$!
sleep 2
kill -0 $writer || fail "the write did not wait"
kill -CONT "$pid"
wait $writer || fail "the write fails: $(<"$tmp/must")"
detach
stop_nullbd

case_is "one of four connections is lost: the others go on"
start_nullbd --workers 2 nullb0:size=64M,memory_backed=1,irqmode=2,completion_nsec=200us
attach nullb0 -C 4 -t 3
fio --name=x --filename=/dev/nbd0 --direct=1 --ioengine=libaio --rw=randwrite \
	--bs=4k --size=16m --iodepth=8 --verify=crc32c --verify_fatal=1 \
	--numjobs=2 --offset_increment=16m --loops=3 >"$tmp/fio" 2>&1 &
load=$!
sleep 2
must ctl kick "$(ctl clients | awk '/transmission/ { print $1; exit }')"
until_true "three are left" eval '[ "$(connections nullb0)" = 3 ]'
wait $load || {
	tail -n 20 "$tmp/fio" >&2
	fail "fio has noticed"
}
detach

case_is "the only connection is lost: I/O fails, at once and for good"
attach nullb0 -C 1
write_one 10 || fail "a write fails before"
must ctl kick "$(ctl clients | awk '/transmission/ { print $1; exit }')"
! write_one 60 || fail "a write succeeds"
failed_with "Input/output error\|No such device"
ctl detach /dev/nbd0 >/dev/null 2>&1 || nbd-client -d /dev/nbd0 >/dev/null 2>&1
until_true "it is gone" detached /dev/nbd0
attach nullb0 -C 1
write_one 10 || fail "a write fails after another attach: $(<"$tmp/must")"
detach
stop_nullbd

# ends_under_load SIGNAL: nothing hangs, what fails says so, another daemon
# serves the device
ends_under_load() {
	start_nullbd nullb0:size=64M,irqmode=2,completion_nsec=5ms
	attach nullb0 -C 2 -t 5
	timeout 100 fio --name=x --filename=/dev/nbd0 --direct=1 --ioengine=libaio \
		--rw=randrw --bs=4k --size=64m --iodepth=32 --time_based \
		--runtime=60 >"$tmp/fio" 2>&1 &
	load=$!
	sleep 2
	SECONDS=0
	kill "-$1" "$pid"
	wait "$pid"
	[ $SECONDS -le 6 ] || fail "the daemon takes $SECONDS s to end"
	wait $load && fail "fio has not noticed"
	[ $SECONDS -lt 55 ] || fail "fio hangs"
	grep -q 'error=Input/output error\|error=No such device' "$tmp/fio" ||
		fail "fio: $(tail -n 5 "$tmp/fio")"
	said "the daemon's end" 'nbd0: (Receive control failed|Dead connection|shutting down|Other side returned error)'
	pid=
	rm -f "$sock" "$control"
	start_nullbd nullb0:size=64M
	nbd-client -d /dev/nbd0 >/dev/null 2>&1
	until_true "it is gone" detached /dev/nbd0
	attach nullb0 -C 1
	read_one 10 || fail "a read from the next one fails: $(<"$tmp/must")"
	detach
	stop_nullbd
}

case_is "SIGTERM with requests in flight"
ends_under_load TERM
case_is "SIGKILL with requests in flight"
ends_under_load KILL
cases_end
