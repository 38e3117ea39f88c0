#!/bin/bash
# SPDX-License-Identifier: MIT
# fill: a device begins with the data of an image, holes and all; keeps its own
# from then on; and what does not fit is told, and makes nothing.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdcopy nbdinfo truncate

ctl() {
	"$NULLBCTL" --control "$control" "$@" >"$tmp/out" 2>&1
}
must() {
	ctl "$@" || fail "$*: $(<"$tmp/out")"
}
# refused TEXT COMMAND...: with that in its sentence
refused() {
	local text=$1

	shift
	! ctl "$@" || fail "$*: not refused"
	grep -qF -e "$text" "$tmp/out" || fail "$*: not \"$text\": $(<"$tmp/out")"
}
# holds NAME IMAGE: the device begins with it, and then has zeros
holds() {
	timeout 60 nbdcopy "$(uri "$1")" "$tmp/copy" || fail "$1: nbdcopy"
	cmp "$tmp/copy" "$2" >"$tmp/out" 2>&1 || grep -q "EOF on $2" "$tmp/out" ||
		fail "$1: $(<"$tmp/out")"
	cmp -i "$(stat -c %s "$2"):0" "$tmp/copy" /dev/zero >"$tmp/out" 2>&1
	grep -q "EOF on $tmp/copy" "$tmp/out" || fail "$1: beyond it: $(<"$tmp/out")"
	rm "$tmp/copy"
}
# is_read NAME: has the daemon such a file open?
is_read() {
	find "/proc/$pid/fd" -lname "*/$1" | grep -q .
}
memory_of() {
	must --json list
	sed 's/},{/\n/g' "$tmp/out" | grep "\"name\":\"$1\"" |
		sed 's/.*"memory":\([0-9]*\).*/\1/'
}

# data here and there, not all of it in whole blocks
truncate -s 64M "$tmp/image"
for at in 0 9 4096 40000 65535; do
	dd if=/dev/urandom of="$tmp/image" bs=1K seek=$at count=1 conv=notrunc \
		status=none
done
head -c 100001 /dev/urandom >"$tmp/odd"
cp "$tmp/image" "$tmp/image.before"
mkfifo "$tmp/fifo"

start_nullbd "a:size=64M,memory_backed=1,fill=$tmp/image" \
	"b:size=1M,memory_backed=1,blocksize=4096,fill=$tmp/odd" "c:size=1M"
holds a "$tmp/image"
holds b "$tmp/odd"
bound "bytes of memory for 5 KiB of data" "$(memory_of a)" 100000
nbdinfo --map "$(uri a)" >"$tmp/out"
[ "$(awk '$3 == 3 { n += $2 } END { print n }' "$tmp/out")" -gt 66000000 ] ||
	fail "its holes are none: $(<"$tmp/out")"

# its own from then on: the image is never written, nor read again
head -c 64K /dev/urandom >"$tmp/more"
timeout 20 nbdcopy "$tmp/more" "$(uri a)" || fail "nbdcopy"
cp "$tmp/image" "$tmp/mine"
dd if="$tmp/more" of="$tmp/mine" conv=notrunc status=none
must power a off
must power a on
holds a "$tmp/mine"
cmp "$tmp/image" "$tmp/image.before" || fail "the image has changed"

# at run time
must create d size=64M memory_backed=1 fill="$tmp/image"
holds d "$tmp/image"
must power c off
must set c memory_backed 1
must set c fill "$tmp/odd"
must power c on
holds c "$tmp/odd"
refused "c: fill: " set c fill x

# what does not fit makes no device
refused "$tmp/none\": No such file" create x memory_backed=1 fill="$tmp/none"
refused "allowed: a file, or a block device" \
	create x memory_backed=1 fill="$tmp"
refused "allowed: a file, or a block device" \
	create x memory_backed=1 fill="$tmp/fifo"
refused "67108864 bytes: allowed: at most the size (67107840)" \
	create x size=65535K memory_backed=1 fill="$tmp/image"
refused "no memory for its data" create x size=1M memory_backed=1 \
	memory_limit=64K fill="$tmp/odd"
refused "allowed: none, unless memory_backed" create x fill="$tmp/odd"
refused "blocksize: 1000" create x memory_backed=1 blocksize=1000 \
	fill="$tmp/odd"
must list
! grep -q '^x' "$tmp/out" || fail "there is an x: $(<"$tmp/out")"
# one that was there stays off, and reads it when all is right
must create x size=1M memory_backed=1 memory_limit=64K fill="$tmp/odd" power=0
refused "no memory for its data" power x on
must set x memory_limit 0
must power x on
holds x "$tmp/odd"
memory=$(memory_of x)
must remove x
must create x size=1M memory_backed=1 memory_limit="$memory" fill="$tmp/odd"
holds x "$tmp/odd"
must remove x

# a large one keeps nobody waiting, and may be called off
head -c 192M /dev/urandom >"$tmp/large"
for how in "remove y" "power y off"; do
	must create y size=192M memory_backed=1 fill="$tmp/large" power=0
	"$NULLBCTL" --control "$control" power y on >"$tmp/on" 2>&1 &
	on=$!
	until is_read large || ! kill -0 $on 2>/dev/null; do :; done
	must stat c
	# shellcheck disable=SC2086 # words
	must $how
	wait $on || grep -q "called off" "$tmp/on" || fail "$how: $(<"$tmp/on")"
	must list
	case $how in
	remove*) ! grep -q '^y' "$tmp/out" || fail "it is not removed" ;;
	*) must remove y ;;
	esac
done
# nothing is set meanwhile, or it would not be what is read
must create y size=192M memory_backed=1 fill="$tmp/large" power=0
"$NULLBCTL" --control "$control" power y on >"$tmp/on" 2>&1 &
on=$!
until is_read large || ! kill -0 $on 2>/dev/null; do :; done
if is_read large; then
	ctl set y fill ""
	! is_read large || grep -q "its data is being read" "$tmp/out" ||
		fail "set while it is read: $(<"$tmp/out")"
fi
wait $on || fail "power on: $(<"$tmp/on")"
must get y power
must remove y
# or the daemon ends while it is read
"$NULLBCTL" --control "$control" create y size=192M memory_backed=1 \
	fill="$tmp/large" >/dev/null 2>&1 &
until is_read large; do :; done
stop_nullbd

# at the start it is an error, and nothing is served
for what in "$tmp/none" "$tmp"; do
	! "$NULLBD" -U "$sock" "a:memory_backed=1,fill=$what" 2>"$tmp/out" ||
		fail "started with $what"
	grep -q "a: fill: \"$what\": " "$tmp/out" || fail "no: $(<"$tmp/out")"
done

# checked WHAT FILE: by --check, which says where that was asked for
checked() {
	printf '[a]\nmemory_backed = 1\nsize = 1M\nfill = %s\n' "$2" >"$tmp/conf"
	"$NULLBD" -c "$tmp/conf" --check >/dev/null 2>"$tmp/out"
	[ $? -eq 2 ] || fail "--check takes $2"
	grep -qxF "$tmp/conf:1: a: fill: \"$2\": $1" "$tmp/out" ||
		fail "--check: not \"$1\": $(<"$tmp/out")"
}
checked "No such file or directory" "$tmp/none"
checked "allowed: a file, or a block device" "$tmp"
checked "allowed: a file, or a block device" "$tmp/fifo"
checked "201326592 bytes: allowed: at most the size (1048576)" "$tmp/large"
if [ "$(id -u)" != 0 ]; then
	chmod a-r "$tmp/odd"
	checked "Permission denied" "$tmp/odd"
	chmod u+r "$tmp/odd"
fi
"$NULLBD" --check "a:size=1M,memory_backed=1,fill=$tmp/odd" >/dev/null 2>"$tmp/out" ||
	fail "--check: $(<"$tmp/out")"
exit 0
