#!/bin/bash
# SPDX-License-Identifier: MIT
# File systems across a power cut, under a load that fsyncs: they come back with
# their logs, are found sound, and have all that fsync had promised.  With a
# device that lies about flushes they have not: so the test can fail.
#
# NULLB_CUTS cuts each (5: CI, with two kernels, has ten); NULLB_FS="ext4 xfs
# btrfs"; NULLB_SEED, of which everything follows but the order in which threads
# come.  A hundred:
#	NULLB_CUTS=100 tests/kernel/boot -t 7200 tests/kernel/power-cut.sh

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/lib/cut.sh
. "$(dirname "$0")/../lib/cut.sh"

load=$PWD/build/kernel/fsync-load

start_nullbd --workers 2 "fua:$cut_settings" "flush:$cut_settings,fua=0" \
	"liar:$cut_settings,fua=0"

# new FS DEVICE: a file system, empty
new() {
	attach "$2" -C 2
	case $1 in
	ext4) must mkfs.ext4 -q -F /dev/nbd0 ;;
	xfs) must mkfs.xfs -q -f /dev/nbd0 ;;
	btrfs) must mkfs.btrfs -q -f /dev/nbd0 ;;
	esac
	must mount /dev/nbd0 /mnt
}

# files that were flushed, and what becomes of others across the Nth cut
load_and_cut() {
	rm -rf /mnt/*
	must "$load" make /mnt
	sync
	cut "$1" "$2" run /mnt "$tmp/state" $((seed * 1000 + $2))
}

# its log has been replayed: is it sound?
check_fs() {
	case $1 in
	ext4) e2fsck -f -n /dev/nbd0 ;;
	xfs) xfs_repair -n /dev/nbd0 ;;
	btrfs) btrfs check /dev/nbd0 ;;
	esac
}

# back FS: is all there that was promised?  Else $tmp/back says what is not.
back() {
	local fs=$1 status=0

	{
		mount -t "$fs" /dev/nbd0 /mnt || return 1
		"$load" check /mnt "$tmp/state" || status=1
		umount /mnt || return 1
		check_fs "$fs" || status=1
	} >"$tmp/back" 2>&1
	return $status
}

# sound FS DEVICE FIRST LAST: these cuts lose nothing
sound() {
	local fs=$1 device=$2 i=$3 last=$4

	new "$fs" "$device"
	for (( ; i <= last; i++)); do
		load_and_cut "$device" "$i"
		back "$fs" || {
			head -n 30 "$tmp/back" >&2
			fail "cut $i ($(cut_how "$i")): $(<"$tmp/load")"
		}
		echo "cut $i: $(cut_how "$i"): $(<"$tmp/load")"
		must mount /dev/nbd0 /mnt
	done
	must umount /mnt
	detach
}

# liar FS: within as many cuts, of those that lose all, something is gone
liar() {
	local fs=$1 i status

	for ((i = 0; i < cuts; i++)); do
		new "$fs" liar
		must ctl fault liar add op=FLUSH,action=lost
		load_and_cut liar $((i * 3))
		back "$fs"
		status=$?
		must ctl fault liar remove all
		umount /mnt 2>/dev/null
		detach
		[ $status = 0 ] || break
	done
	[ $status != 0 ] || fail "$cuts cuts, and nothing was lost"
	echo "cut $i: $(<"$tmp/load")"
	grep -v '^Pass' "$tmp/back" | head -n 5
}

for fs in ${NULLB_FS:-ext4 xfs btrfs}; do
	modprobe "$fs" 2>/dev/null
	if ! grep -qw "$fs" /proc/filesystems; then
		echo "skipped: $kernel has no $fs"
		continue
	fi
	case_is "$fs has what it promised, where a write can have FUA"
	sound "$fs" fua 1 $((cuts / 2))
	case_is "$fs has what it promised, where it flushes instead"
	sound "$fs" flush $((cuts / 2 + 1)) "$cuts"
	case_is "$fs on a device that lies has not"
	liar "$fs"
done
cases_end
