#!/bin/bash
# SPDX-License-Identifier: MIT
# backing: a file keeps a device's data over the ends of its power and of the
# daemon, kill -9 too, and of a volatile cache no more than what was flushed; it
# is one device's alone; and what it cannot take is the error of who writes.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdcopy truncate fio python3
python3=/usr/bin/python3
$python3 -c 'import nbd' 2>/dev/null || skip "python3-libnbd is missing"
tries=20
[ -z "${NULLB_LONG:-}" ] || tries=100

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
# nbd NAME STATEMENT...: with libnbd's h attached to it
nbd() {
	local name=$1

	shift
	timeout 60 $python3 - "$(uri "$name")" "$@" <<-'END' || fail "$name: $*"
	import errno, nbd, sys
	h = nbd.NBD()
	h.connect_uri(sys.argv[1])
	for statement in sys.argv[2:]:
	    exec(statement)
	h.shutdown()
	END
}
# holds NAME IMAGE
holds() {
	timeout 60 nbdcopy "$(uri "$1")" "$tmp/copy" || fail "$1: nbdcopy"
	cmp "$tmp/copy" "$2" || fail "$1 is not $2"
	rm "$tmp/copy"
}
used_kib() {
	du -k "$1" | cut -f1
}
restart() {
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	pid=
	start_nullbd "$@"
}

# it is made, is as large as the device, takes no more room than there is data
a="a:size=64M,memory_backed=1,discard=1,write_zeroes_max_bytes=1M"
a="$a,backing=$tmp/a.img"
start_nullbd "$a"
[ "$(stat -c %s "$tmp/a.img")" = 67108864 ] || fail "its size"
bound "KiB of a file with no data" "$(used_kib "$tmp/a.img")" 64
head -c 3M /dev/urandom >"$tmp/data"
truncate -s 64M "$tmp/data"
dd if="$tmp/data" of="$tmp/data" bs=4K count=100 seek=9000 conv=notrunc \
	status=none
timeout 60 nbdcopy "$tmp/data" "$(uri a)" || fail "nbdcopy"
cmp "$tmp/a.img" "$tmp/data" || fail "the file has not what was written"
bound "KiB of a file with 3.4 MiB" "$(used_kib "$tmp/a.img")" 6000

# what is discarded is given back, what is zeroed is zeros
nbd a 'h.trim(2 << 20, 1 << 20)' 'h.zero(100352, 512)' 'h.flush()'
cp "$tmp/data" "$tmp/expected"
dd if=/dev/zero of="$tmp/expected" bs=1M seek=1 count=2 conv=notrunc status=none
dd if=/dev/zero of="$tmp/expected" bs=512 seek=1 count=196 conv=notrunc \
	status=none
cmp "$tmp/a.img" "$tmp/expected" || fail "what was discarded is still there"
bound "KiB of it when 2 MiB are discarded" "$(used_kib "$tmp/a.img")" 2200
holds a "$tmp/expected"

# it survives kill -9 of the daemon, SIGTERM, the power's end, the device's
restart "$a"
holds a "$tmp/expected"
stop_nullbd
start_nullbd "$a"
holds a "$tmp/expected"
must power a off
must power a on
holds a "$tmp/expected"
must remove a
must create b size=64M memory_backed=1 backing="$tmp/a.img"
holds b "$tmp/expected"
[ "$(ctl get b queue/write_cache; cat "$tmp/out")" = "write back" ] ||
	fail "clients are not told to flush"

# it grows with the device, and never becomes smaller
must power b off
must set b size 65M
must power b on
truncate -s 65M "$tmp/expected"
holds b "$tmp/expected"
must power b off
must set b size 64M
refused "a.img\": 68157440 bytes: allowed: at most the size (67108864)" \
	power b on
must set b size 65M
must power b on

# one device's alone
refused "a.img\": in use by another device, or another program" \
	create c size=65M memory_backed=1 backing="$tmp/a.img"
! "$NULLBD" -U "$tmp/other" "c:size=65M,memory_backed=1,backing=$tmp/a.img" \
	2>"$tmp/out" || fail "another daemon takes the file"
grep -q "c: backing: .* in use by another" "$tmp/out" || fail "$(<"$tmp/out")"
must remove b
must create b size=65M memory_backed=1 backing="$tmp/a.img"
must remove b

# what cannot be makes no device
mkfifo "$tmp/fifo"
refused "allowed: none, unless memory_backed" create x backing="$tmp/x"
refused "allowed: none, as zoned is set" create x memory_backed=1 \
	zoned=1 backing="$tmp/x"
refused "fill: \"$tmp/data\": allowed: none, as backing is set" \
	create x memory_backed=1 fill="$tmp/data" backing="$tmp/x"
refused "$tmp/none/x\": No such file" create x memory_backed=1 \
	backing="$tmp/none/x"
refused "$tmp\": Is a directory" create x memory_backed=1 backing="$tmp"
refused "allowed: a file, or memfd" create x memory_backed=1 \
	backing="$tmp/fifo"
refused "no memory for its data" create x size=64M memory_backed=1 \
	memory_limit=64K backing="$tmp/data"
[ ! -e "$tmp/x" ] || fail "a file was made for nothing"

# a volatile cache: what was not flushed, or forced through, is not in the file
must create v size=16M memory_backed=1 cache_size=1M backing="$tmp/v.img"
nbd v 'h.pwrite(b"1" * 8192, 0)' 'h.flush()' \
	'h.pwrite(b"2" * 8192, 0)' 'h.pwrite(b"3" * 512, 512, nbd.CMD_FLAG_FUA)' \
	'assert h.pread(8192, 0) == b"2" * 512 + b"3" * 512 + b"2" * 7168'
must power v off
must power v on
nbd v 'assert h.pread(8192, 0) == b"1" * 512 + b"3" * 512 + b"1" * 7168'
# what finds no room in it is written
nbd v 'h.pwrite(b"4" * 4096, 0)' \
	'[h.pwrite(b"5" * 65536, i << 16) for i in range(16, 48)]'
restart "v:size=16M,memory_backed=1,cache_size=1M,backing=$tmp/v.img"
nbd v 'assert h.pread(4096, 0) == b"4" * 4096' \
	'assert h.pread(65536, 16 << 16) == b"5" * 65536' \
	'assert h.pread(65536, 47 << 16) == bytes(65536)' \
	'h.pwrite(b"6" * 4096, 0)'
# and a cache that is set to nothing has nothing to lose
must set v cache_size 0
must power v off
must power v on
nbd v 'assert h.pread(4096, 0) == b"6" * 4096'
must remove v

# a file system that is full: the write's error, or the flush's; then it goes on
mkdir "$tmp/small"
if mount -t tmpfs -o size=1M tmpfs "$tmp/small" 2>/dev/null; then
	trap 'umount -l "$tmp/small"; cleanup' EXIT
	must create s size=8M memory_backed=1 discard=1 \
		backing="$tmp/small/s.img"
	full='
def full(call, *args):
    try:
        call(*args)
    except nbd.Error as e:
        assert e.errnum == errno.ENOSPC, e
        return
    assert False, "it is not full"'
	nbd s "$full" 'h.pwrite(b"a" * 524288, 0)' \
		'full(h.pwrite, b"b" * 1048576, 1 << 20)' \
		'h.trim(1 << 20, 1 << 20)' 'h.pwrite(b"c" * 65536, 4 << 20)' \
		'h.flush()'
	must power s off
	must set s cache_size 4M
	must power s on
	nbd s 'assert h.pread(524288, 0) == b"a" * 524288' \
		'assert h.pread(65536, 4 << 20) == b"c" * 65536' "$full" \
		'h.pwrite(b"d" * 1048576, 1 << 20)' 'full(h.flush)' \
		'assert h.pread(1048576, 1 << 20) == b"d" * 1048576' \
		'h.trim(524288, 0)' 'h.trim(1 << 20, 4 << 20)' \
		'h.trim(1048576 - 65536, 1 << 20)' 'h.flush()'
	must power s off
	must power s on
	nbd s 'assert h.pread(65536, 2031616) == b"d" * 65536'
	must remove s
else
	echo "no tmpfs can be mounted: a full file system is not tried"
fi
stop_nullbd

# fio verifies what it wrote, after a restart
for cache in 0 4M; do
	d="f:size=32M,memory_backed=1,cache_size=$cache,backing=$tmp/f.img"
	start_nullbd "$d"
	args=(--name=f --ioengine=nbd "--uri=$(uri f)" --rw=randwrite
		--bsrange=512-64k --size=32M --iodepth=16 --verify=crc32c
		--randseed=1 --end_fsync=1 --verify_fatal=1)
	timeout 100 fio "${args[@]}" --do_verify=0 >"$tmp/out" 2>&1 ||
		fail "fio: $(<"$tmp/out")"
	nbd f 'h.flush()'
	restart "$d"
	timeout 100 fio "${args[@]}" --verify_only >"$tmp/out" 2>&1 ||
		fail "fio finds other data: $(<"$tmp/out")"
	stop_nullbd
	rm "$tmp/f.img"
done

# kill -9 at any time: nothing that was flushed, or written with FUA, is lost;
# without a cache nothing that was answered is
for cache in 0 256K; do
	timeout 300 $python3 "$(dirname "$0")/../lib/killed.py" "$NULLBD" \
		"$sock" "$tmp/k.img" $cache $tries || fail "cache_size=$cache"
	rm "$tmp/k.img"
done
exit 0
