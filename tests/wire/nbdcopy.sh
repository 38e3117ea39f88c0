#!/bin/bash
# SPDX-License-Identifier: MIT
# A file system goes in with nbdcopy over four connections and comes out again:
# identical, to qemu-img and e2fsck too, through UNIX and TCP.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdcopy qemu-img e2fsck mkfs.ext4

mkdir "$tmp/dir"
cp -r "$(dirname "$0")/../.." "$tmp/dir/tree" 2>/dev/null
rm -rf "$tmp/dir/tree/build"
for i in 1 2 3 4 5 6 7 8; do
	head -c $((i * 700001)) /dev/urandom >"$tmp/dir/random$i"
done
truncate -s 20M "$tmp/dir/sparse"
image=$tmp/image
truncate -s 192M "$image"
mkfs.ext4 -q -F -d "$tmp/dir" "$image" || fail "mkfs.ext4"
e2fsck -fn "$image" >/dev/null 2>&1 || fail "the image itself is not clean"
size=$(stat -c %s "$image")

# there_and_back URI WHAT
there_and_back() {
	local out=$tmp/out

	rm -f "$out"
	nbdcopy --connections=4 "$image" "$1" || fail "$2: nbdcopy in"
	qemu-img compare -q -f raw -F raw "$image" "$1" ||
		fail "$2: qemu-img compare"
	nbdcopy --connections=4 "$1" "$out" || fail "$2: nbdcopy out"
	cmp "$image" "$out" || fail "$2: what comes out is not what went in"
	e2fsck -fn "$out" >"$tmp/fsck" 2>&1 || {
		cat "$tmp/fsck" >&2
		fail "$2: e2fsck"
	}
	echo "$2: identical and clean"
}

port=$(free_port)
start_nullbd -p "$port" -a 127.0.0.1 --workers 2 \
	"unix:size=${size}B,memory_backed=1,discard=1" \
	"tcp:size=${size}B,memory_backed=1,discard=1" \
	"timer:size=${size}B,memory_backed=1,irqmode=2,completion_nsec=50000" \
	"big:size=${size}B,memory_backed=1,discard=1,blocksize=4096,kernel=4.14"
there_and_back "$(uri unix)" "UNIX"
there_and_back "$(tcp_uri "$port" tcp)" "TCP"
there_and_back "$(uri timer)" "UNIX, timer completion"
there_and_back "$(tcp_uri "$port" big)" "TCP, 4096-byte blocks"

# a full device, overwritten with another image of the same size
nbdcopy --connections=4 "$(uri unix)" "$(tcp_uri "$port" timer)" ||
	fail "from one device to another"
qemu-img compare -q -f raw -F raw "$image" "$(uri timer)" ||
	fail "from one device to another: not the same"
stop_nullbd
