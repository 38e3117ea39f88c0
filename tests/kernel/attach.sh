#!/bin/bash
# SPDX-License-Identifier: MIT
# A device is attached, by nullbctl and by nbd-client in all its ways, works,
# and is detached.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

SIZE=67108864

# it is there, of this size and with these connections, and I/O goes through
works() {
	local device=$1 block=$2 conns=$3

	until_true "$device is attached" attached "$device"
	is "$(sys "$device" size)" $((SIZE / 512)) "sectors of $device"
	is "$(sys "$device" queue/logical_block_size)" "$block" "its blocks"
	is "$(connections nullb0)" "$conns" "connections"
	must fio --name=x --filename="$device" --direct=1 --ioengine=libaio \
		--rw=randwrite --bs=4k --size=2m --iodepth=8 --verify=crc32c \
		--verify_fatal=1
}

gone() {
	until_true "$1 is detached" detached "$1"
	until_true "the daemon sees it" is_idle
}

is_idle() {
	[ "$(connections nullb0)" = 0 ]
}

start_nullbd -p 10809 -a 127.0.0.1 --workers 2 \
	nullb0:size=64M,memory_backed=1,discard=1 \
	big:size=64M,memory_backed=1,blocksize=4096 other:size=1M

case_is "nullbctl attach takes the first free device, detach NAME undoes it"
is "$(ctl attach nullb0)" /dev/nbd0 "the device"
works /dev/nbd0 512 2
is "$(ctl attach other)" /dev/nbd1 "the next"
must ctl detach nullb0
gone /dev/nbd0
until_true "the other is still there" attached /dev/nbd1
must ctl detach other
until_true "the other is detached" detached /dev/nbd1

case_is "attach gives connections, a block size and a time-out"
attach nullb0 -C 4 -b 4096 -t 7
works /dev/nbd0 4096 4
detach
gone /dev/nbd0

case_is "a device of 4 KiB blocks has them without being told"
attach big
is "$(sys nbd0 queue/logical_block_size)" 4096 "its blocks"
detach

case_is "attach --raw leaves merging, splitting and sorting to us"
attach nullb0 --raw -C 1
is "$(sys nbd0 queue/nomerges)" 2 nomerges
[[ "$(sys nbd0 queue/scheduler)" == *"[none]"* ]] || fail "a scheduler"
is "$(sys nbd0 queue/max_sectors_kb)" "$(sys nbd0 queue/max_hw_sectors_kb)" max_sectors_kb
# one write of 1 MiB is one request of /dev/nbd0, and nine of ours (127 KiB)
before=$(ctl stat nullb0 | awk '{ print $5 }')
host=$(awk '{ print $5 }' /sys/block/nbd0/stat)
must dd if=/dev/zero of=/dev/nbd0 bs=1M count=1 oflag=direct
is $(($(awk '{ print $5 }' /sys/block/nbd0/stat) - host)) 1 "writes of /dev/nbd0"
is $(($(ctl stat nullb0 | awk '{ print $5 }') - before)) 9 "writes of nullb0"
detach

case_is "attach --persist, and detach by name"
attach nullb0 --persist -C 1
works /dev/nbd0 512 1
must ctl detach nullb0
gone /dev/nbd0

case_is "what cannot be is refused, and names what it is"
attach nullb0
must_fail ctl attach other /dev/nbd0
grep -q "other: /dev/nbd0: is attached already, by process" "$tmp/must" || fail "$(<"$tmp/must")"
must_fail ctl attach other /dev/nbd999
grep -q "/dev/nbd999: no such device" "$tmp/must" || fail "$(<"$tmp/must")"
must_fail ctl attach big -b 512 /dev/nbd1
grep -q "big: --block-size: 512: allowed: at least its blocksize, 4096" "$tmp/must" ||
	fail "$(<"$tmp/must")"
must_fail ctl detach other
grep -q "other: no device is known to be it" "$tmp/must" || fail "$(<"$tmp/must")"
must_fail ctl detach /dev/nbd5
grep -q "/dev/nbd5: is not attached" "$tmp/must" || fail "$(<"$tmp/must")"
must mkfs.ext4 -q /dev/nbd0
must mount /dev/nbd0 /mnt
must_fail ctl detach nullb0
grep -q "/dev/nbd0: is in use" "$tmp/must" || fail "$(<"$tmp/must")"
must umount /mnt
detach
PATH=/bin must ctl attach nullb0 /dev/nbd0 # whose PATH lacks sbin
detach

# nbd-client itself: INTERFACE PLACE CONNECTIONS BLOCK [OPTION...]
by_nbd_client() {
	local how=$1 place=$2 conns=$3 block=$4

	shift 4
	case_is "nbd-client ${place/$sock/SOCKET} -C $conns -b $block ${how:+$how }$*"
	# shellcheck disable=SC2086 # words
	must nbd-client $place /dev/nbd0 -N nullb0 -C "$conns" -b "$block" $how "$@"
	works /dev/nbd0 "$block" "$conns"
	must nbd-client -c /dev/nbd0
	must nbd-client -d /dev/nbd0
	gone /dev/nbd0
}

for how in "" -L; do
	for place in "-unix $sock" "127.0.0.1 10809"; do
		for conns in 1 4; do
			for block in 512 4096; do
				by_nbd_client "$how" "$place" "$conns" "$block"
			done
		done
	done
done
by_nbd_client -L "-unix $sock" 1 512 -persist
by_nbd_client -L "-unix $sock" 1 512 -persist -timeout 5
by_nbd_client "" "-unix $sock" 4 512 -timeout 5

case_is "a device that is read only is so in the kernel"
stop_nullbd
start_nullbd nullb0:size=64M,memory_backed=1,ro=1
attach nullb0
is "$(sys nbd0 ro)" 1 "read only"
must_fail dd if=/dev/zero of=/dev/nbd0 bs=4k count=1 oflag=direct
must dd if=/dev/nbd0 of=/dev/null bs=4k count=1 iflag=direct
detach

case_is "where it is served is said whole"
stop_nullbd
cd "$tmp" || exit 1
sock=sock control=$tmp/control
NULLBD=$OLDPWD/$NULLBD NULLBCTL=$OLDPWD/$NULLBCTL
"$NULLBD" -U relative --control "$control" nullb0:size=1M >>"$log" 2>&1 &
pid=$!
until_true "it listens" listening "$control"
is "$(ctl uri nullb0)" "nbd+unix:///nullb0?socket=$tmp/relative" "its URI"
cases_end
