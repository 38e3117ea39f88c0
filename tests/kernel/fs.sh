#!/bin/bash
# SPDX-License-Identifier: MIT
# File systems on an attached device: what was written is there after fsync, a
# umount, a check and another attach; what is discarded gives memory back.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

DATA_MB=24 # of a file

start_nullbd --workers 2 nullb0:size=512M,memory_backed=1,discard=1

# the file, and what its bytes should be
write_file() {
	head -c ${DATA_MB}M /dev/urandom >"$tmp/data"
	must dd if="$tmp/data" of="/mnt/$1" bs=64k conv=fsync
}

is_as_written() {
	echo 3 >/proc/sys/vm/drop_caches
	cmp "$tmp/data" "/mnt/$1" || fail "/mnt/$1 is not what was written"
}

used_mb() {
	echo $(($(memory_of nullb0) >> 20))
}

# freed WHAT BEFORE: most of a file's memory, within some time
freed() {
	until_true "$1: $2 MiB before" less_than $(($2 - DATA_MB * 3 / 4))
}

less_than() {
	[ "$(used_mb)" -le "$1" ]
}

check_fs() {
	case $1 in
	ext4) must e2fsck -f -n /dev/nbd0 ;;
	xfs) must xfs_repair -n /dev/nbd0 ;;
	btrfs) must btrfs check /dev/nbd0 ;;
	esac
}

make_fs() {
	case $1 in
	ext4) must mkfs.ext4 -q -F /dev/nbd0 ;;
	xfs) must mkfs.xfs -q -f /dev/nbd0 ;;
	btrfs) must mkfs.btrfs -q -f /dev/nbd0 ;;
	esac
}

# one_fs TYPE CONNECTIONS
one_fs() {
	local fs=$1 conns=$2 before written

	modprobe "$fs" 2>/dev/null
	if ! grep -qw "$fs" /proc/filesystems; then
		echo "skipped: $kernel has no $fs"
		return
	fi
	case_is "$fs over $conns connections: mkfs discards, files last"
	attach nullb0 -C "$conns"
	must dd if=/dev/zero of=/dev/nbd0 bs=1M count=160 oflag=direct
	[ "$(used_mb)" -ge 160 ] || fail "160 MiB take only $(used_mb)"
	make_fs "$fs"
	# the log of xfs is 64 MiB
	[ "$(used_mb)" -lt 100 ] || fail "mkfs leaves $(used_mb) MiB"
	must mount "/dev/nbd0" /mnt
	write_file one
	is_as_written one

	case_is "$fs: fstrim gives the memory of a removed file back"
	written=$(used_mb)
	[ "$written" -ge $DATA_MB ] || fail "a file of $DATA_MB MiB takes $written"
	rm /mnt/one
	sync -f /mnt
	must fstrim -v /mnt
	freed "fstrim" "$written"
	[ "$(sys nbd0 stat | awk '{ print $12 }')" -gt 0 ] ||
		fail "/dev/nbd0 has seen no discard"
	must umount /mnt

	case_is "$fs: -o discard does so by itself"
	must mount -o discard /dev/nbd0 /mnt
	write_file two
	before=$(used_mb)
	rm /mnt/two
	# when the journal commits, or the transaction
	sync -f /mnt
	freed "-o discard" "$before"
	write_file three
	must umount /mnt
	check_fs "$fs"
	detach

	case_is "$fs: all is there when it is attached again"
	attach nullb0 -C 1
	check_fs "$fs"
	must mount -o ro /dev/nbd0 /mnt
	is_as_written three
	[ ! -e /mnt/one ] && [ ! -e /mnt/two ] || fail "removed files are there"
	must umount /mnt
	detach
	if dmesg_has 'I/O error|EXT4-fs error|XFS .*(corrupt|error)|BTRFS error'; then
		fail "the kernel complains"
	fi
}

one_fs ext4 4
one_fs ext4 1
one_fs xfs 2
one_fs btrfs 1
cases_end
