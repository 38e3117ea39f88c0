#!/bin/bash
# SPDX-License-Identifier: MIT
# What people put on a block device: partitions, LVM, dm-crypt, swap.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

need sfdisk lvm cryptsetup nbdcopy
modprobe dm_mod || fail "no device mapper"
export DM_DISABLE_UDEV=1 # there is none here: nodes are made at once

start_nullbd --workers 2 a:size=128M,memory_backed=1,discard=1 \
	b:size=128M,memory_backed=1,discard=1
head -c 4M /dev/urandom >"$tmp/data"

# export_has NAME OFFSET: the data, at this byte, as a client of NBD sees it
export_has() {
	must nbdcopy "$(uri "$1")" "$tmp/image"
	cmp -n 4194304 -i "$2:0" "$tmp/image" "$tmp/data" ||
		fail "the data is not at $2 of $1"
}

case_is "partitions: what is written to the second is at its sectors"
attach a
printf 'label: gpt\nstart=2048, size=20480\nstart=65536, size=40960\n' |
	sfdisk -q /dev/nbd0 >"$tmp/sfdisk" 2>&1 || fail "sfdisk: $(<"$tmp/sfdisk")"
until_true "its partitions are there" test -b /dev/nbd0p2
is "$(cat /sys/block/nbd0/nbd0p2/start)" 65536 "where it begins"
must dd if="$tmp/data" of=/dev/nbd0p2 bs=1M oflag=direct
export_has a $((65536 * 512))
must mkfs.ext4 -q -F /dev/nbd0p1
must mount /dev/nbd0p1 /mnt
must_fail ctl detach a # a partition is in use
grep -q "in use" "$tmp/must" || fail "$(<"$tmp/must")"
must umount /mnt
detach

case_is "partitions are found again by another attach"
attach a
until_true "its partitions are there" test -b /dev/nbd0p2
cmp -n 4194304 /dev/nbd0p2 "$tmp/data" || fail "the data is not there"
must blkdiscard -f /dev/nbd0
detach

case_is "LVM: a striped volume over two devices, grown with its file system"
attach a
must ctl attach b /dev/nbd1
lvm() {
	command lvm "$@" --devices /dev/nbd0,/dev/nbd1
}
must lvm pvcreate -q /dev/nbd0 /dev/nbd1
must lvm vgcreate -q vg /dev/nbd0 /dev/nbd1
must lvm lvcreate -q -y -Zn -n lv -i 2 -I 64 -L 64M vg
must dmsetup mknodes
must mkfs.ext4 -q -F /dev/mapper/vg-lv
must mount /dev/mapper/vg-lv /mnt
must dd if="$tmp/data" of=/mnt/file bs=1M conv=fsync
for d in a b; do # half of it each
	[ "$(memory_of $d)" -gt 2000000 ] || fail "$d has only $(memory_of $d)"
done
must lvm lvextend -q -L 128M vg/lv
must resize2fs /dev/mapper/vg-lv
[ "$(df --output=size -m /mnt | tail -n 1)" -gt 100 ] || fail "it has not grown"
echo 3 >/proc/sys/vm/drop_caches
cmp /mnt/file "$tmp/data" || fail "the file has changed"
must_fail ctl detach /dev/nbd1
must umount /mnt
must e2fsck -f -n /dev/mapper/vg-lv
must lvm vgchange -q -an vg
must lvm vgremove -q -f vg
must ctl detach /dev/nbd1
detach

case_is "dm-crypt: there is no plain text in the device"
modprobe dm_crypt 2>/dev/null
attach a
must blkdiscard -f /dev/nbd0
head -c 64 /dev/urandom >"$tmp/key"
must cryptsetup open --type plain --cipher aes-cbc-essiv:sha256 --key-size 256 \
	--key-file "$tmp/key" --keyfile-size 32 /dev/nbd0 secret
must dd if="$tmp/data" of=/dev/mapper/secret bs=1M oflag=direct
cmp -n 4194304 /dev/mapper/secret "$tmp/data" || fail "it does not decrypt"
must nbdcopy "$(uri a)" "$tmp/image"
# 16 bytes that the data has are nowhere in the device; the data is there twice
must python3 - "$tmp/image" "$tmp/data" <<-'END'
	import sys
	image = open(sys.argv[1], 'rb').read()
	data = open(sys.argv[2], 'rb').read()
	assert image[:len(data)] != bytes(len(data)), 'nothing was written'
	assert all(data[i:i + 16] not in image for i in range(0, len(data), 65536))
END
must cryptsetup close secret
detach

case_is "swap: memory that does not fit comes back as it was"
attach b
must mkswap /dev/nbd0
must swapon /dev/nbd0
must_fail ctl detach b
# a tmpfs larger than what a group may have: its pages go to swap
mkdir -p /sys/fs/cgroup
mountpoint -q /sys/fs/cgroup || must mount -t cgroup2 cg /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/small
echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
echo 24M >/sys/fs/cgroup/small/memory.max || fail "no memory controller"
mkdir -p "$tmp/t"
must mount -t tmpfs -o size=64M t "$tmp/t"
must bash -c "echo \$\$ >/sys/fs/cgroup/small/cgroup.procs &&
	for i in 1 2 3 4 5 6 7 8 9 10; do cat $tmp/data >$tmp/t/\$i || exit 1; done"
[ "$(awk '$1 == "/dev/nbd0" { print $4 }' /proc/swaps)" -gt 10000 ] ||
	fail "nothing was swapped out: $(cat /proc/swaps)"
for i in 1 2 3 4 5 6 7 8 9 10; do
	cmp "$tmp/t/$i" "$tmp/data" || fail "page $i came back changed"
done
must umount "$tmp/t"
must swapoff /dev/nbd0
detach
cases_end
