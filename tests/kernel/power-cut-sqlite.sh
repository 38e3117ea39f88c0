#!/bin/bash
# SPDX-License-Identifier: MIT
# SQLite across a power cut, with a write-ahead log and with a journal that is
# rolled back: the file is sound, money is neither made nor lost, and every
# commit that was answered is there.  With a device that lies about flushes it
# is not so.
#
# NULLB_CUTS cuts each (5: CI, with two kernels, has ten); NULLB_SEED.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/lib/cut.sh
. "$(dirname "$0")/../lib/cut.sh"

load=$PWD/build/kernel/sqlite-load

start_nullbd --workers 2 "sound:$cut_settings" "liar:$cut_settings,fua=0"

# new MODE DEVICE: a file system, and a file that was flushed
new() {
	attach "$2"
	must mkfs.ext4 -q -F /dev/nbd0
	must mount /dev/nbd0 /mnt
	must "$load" make /mnt/bank.db "$1"
	sync
}

# is it all there?  Else $tmp/back says what is not.
back() {
	mount /dev/nbd0 /mnt >"$tmp/back" 2>&1 || return
	"$load" check /mnt/bank.db "$tmp/state" >"$tmp/back" 2>&1
}

for mode in wal delete; do
	case_is "SQLite, journal_mode=$mode: every commit is there"
	new $mode sound
	for ((i = 1; i <= cuts; i++)); do
		cut sound $i run /mnt/bank.db $mode "$tmp/state" "$i"
		back || fail "cut $i ($(cut_how "$i")): $(<"$tmp/load"): $(<"$tmp/back")"
		echo "cut $i: $(cut_how "$i"): $(<"$tmp/load")"
		rm /mnt/bank.db*
		must "$load" make /mnt/bank.db $mode
		sync
	done
	must umount /mnt
	detach
	case_is "SQLite, journal_mode=$mode: not so on a device that lies"
	for ((i = 0; i < cuts; i++)); do
		new $mode liar
		must ctl fault liar add op=FLUSH,action=lost
		cut liar $((i * 3)) run /mnt/bank.db $mode "$tmp/state" "$i"
		back
		status=$?
		must ctl fault liar remove all
		umount /mnt 2>/dev/null
		detach
		[ $status = 0 ] || break
	done
	[ $status != 0 ] || fail "$cuts cuts, and nothing was lost"
	echo "cut $i: $(<"$tmp/load"): $(<"$tmp/back")"
done
cases_end
