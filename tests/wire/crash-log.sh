#!/bin/bash
# SPDX-License-Identifier: MIT
# crash_log: what a device was at any moment, from the file that dm-log-writes
# would have written, onto an image that a device can begin with.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio nbdcopy python3
/usr/bin/python3 -c 'import nbd' 2>/dev/null || skip "python3-libnbd is missing"
replay=${NULLB_REPLAY:-$(dirname "$NULLBCTL")/nullb-replay}

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
	! "$@" >"$tmp/out" 2>&1 || fail "$*: not refused"
	grep -qF -e "$text" "$tmp/out" || fail "$*: not \"$text\": $(<"$tmp/out")"
}
# image UNTIL: $tmp/image, from nothing
image() {
	rm -f "$tmp/image"
	"$replay" --image "$tmp/image" --until "$1" "$tmp/a.log" >"$tmp/out" 2>&1 ||
		fail "--until $1: $(<"$tmp/out")"
	truncate -s 16M "$tmp/image"
}
is_same() {
	cmp "$tmp/image" "$1" || fail "$2: the image is not what the device had"
}
copy() {
	timeout 60 nbdcopy "$(uri a)" "$1" || fail "nbdcopy"
}
load() {
	timeout 60 fio --name=l --ioengine=nbd --uri="$(uri a)" --size=16m --rw="$1" \
		--bsrange=512-64k --iodepth=16 --number_ios="$2" --randseed="$3" \
		--fsync=20 --output="$tmp/fio" || fail "fio: $(<"$tmp/fio")"
}

start_nullbd \
	"a:size=16M,memory_backed=1,discard=1,cache_size=8M,crash_log=$tmp/a.log" \
	"b:size=1M,memory_backed=1"

# up to a mark, whatever came later
load randwrite 300 1
must mark a first
copy "$tmp/first"
load randtrimwrite 300 2
must mark a second
copy "$tmp/second"
load randwrite 100 3
image first
is_same "$tmp/first" "at the first mark"
image mark:second
is_same "$tmp/second" "at the second"
image end
copy "$tmp/now"
is_same "$tmp/now" "at the end"
"$replay" --list "$tmp/a.log" >"$tmp/list" || fail "--list"
for kind in write flush discard 'mark *first' 'mark *second'; do
	grep -q "^ *[0-9]* $kind" "$tmp/list" || fail "--list: no $kind"
done
nr=$(wc -l <"$tmp/list")
image $((nr - 1))
grep -q "^$((nr - 1)) of $nr entries\$" "$tmp/out" || fail "$(<"$tmp/out")"

# a device begins with it
image first
must create c size=16M memory_backed=1 fill="$tmp/image"
timeout 60 nbdcopy "$(uri c)" "$tmp/c" || fail "nbdcopy of c"
cmp "$tmp/c" "$tmp/first" || fail "c is not what a was"

# across a power cut the log of before is kept, and ends with what came last
must power-cut a --on
for ((i = 0; i < 100; i++)); do
	ctl get a power && [ "$(<"$tmp/out")" = 1 ] && break
	sleep 0.05
done
"$replay" --list "$tmp/a.log.old" >"$tmp/old" || fail "the log of before"
cmp "$tmp/old" "$tmp/list" || fail "the log of before is not what it was"
[ "$("$replay" --list "$tmp/a.log" | wc -l)" = 0 ] || fail "the new one is not empty"

# killed while it writes: what is in it is whole
fio --name=k --ioengine=nbd --uri="$(uri a)" --size=16m --rw=randwrite --bsrange=4k-64k \
	--iodepth=16 --time_based --runtime=30 >"$tmp/fio" 2>&1 &
job=$!
for ((i = 0; i < 200; i++)); do
	[ "$(stat -c %s "$tmp/a.log")" -lt 4000000 ] || break
	sleep 0.05
done
kill -KILL "$pid"
wait "$pid" 2>/dev/null
pid=
kill "$job" 2>/dev/null
wait "$job" 2>/dev/null
rm -f "$tmp/image"
"$replay" --image "$tmp/image" "$tmp/a.log" >"$tmp/out" 2>&1 || fail "$(<"$tmp/out")"
nr=$(sed -n 's/^\([0-9]*\) of .* entries/\1/p' "$tmp/out")
[ "$nr" -gt 10 ] || fail "only $nr entries"
rm -f "$sock" "$control"

# what is refused
start_nullbd "a:size=16M,memory_backed=1,crash_log=$tmp/a.log" \
	"b:size=1M,memory_backed=1"
nothing() { # a device that cannot be made
	refused "$1" "$NULLBCTL" --control "$control" create d size=1M memory_backed=1 "${@:2}"
}
refused "mark: it has no crash_log" "$NULLBCTL" --control "$control" mark b here
refused "mark: 480 bytes: allowed: 1 to 479" \
	"$NULLBCTL" --control "$control" mark a "$(printf '%480s' x)"
nothing "in use by another device" crash_log="$tmp/a.log"
nothing "allowed: none, unless memory_backed" memory_backed=0 crash_log="$tmp/d.log"
nothing "No such file or directory" crash_log="$tmp/none/d.log"
nothing "allowed: a file" crash_log=/dev/null
# nor is anything that is not a log, or is in use, put aside, or lost for it
echo precious >"$tmp/p"
nothing "not a crash log" crash_log="$tmp/p"
cp "$tmp/a.log" "$tmp/q"
echo precious >"$tmp/q.old"
nothing "not a crash log" crash_log="$tmp/q"
[ "$(cat "$tmp/p" "$tmp/q.old")" = $'precious\nprecious' ] || fail "it is lost"
rm "$tmp/q.old"
must create q size=1M memory_backed=1 crash_log="$tmp/q.old"
nothing "in use by another device" crash_log="$tmp/q"
cmp "$tmp/q" "$tmp/a.log" || fail "it is put aside"
must remove q
refused "not a crash log" "$replay" --list "$tmp/first"
refused 'no mark "none"' "$replay" --image "$tmp/image" --until none "$tmp/a.log"
refused 'allowed: a number of entries' "$replay" --image "$tmp/image" --until flush:0 "$tmp/a.log"
refused '--until: only with --image' "$replay" --until 3 "$tmp/a.log"

# a full file system: writes fail, and the log has whole entries
if mkdir "$tmp/small" && mount -t tmpfs -o size=256k small "$tmp/small" 2>/dev/null; then
	must create e size=16M memory_backed=1 crash_log="$tmp/small/e.log"
	/usr/bin/python3 - "$sock" <<'END' || status=$?
import nbd, sys
h = nbd.NBD()
h.connect_uri("nbd+unix:///e?socket=" + sys.argv[1])
h.pwrite(b"a" * 65536, 0)
for i in range(2):
    try:
        h.pwrite(b"b" * (1 << 20), 65536)
        sys.exit("written")
    except nbd.Error as e:
        assert e.errno == "ENOSPC", e
assert h.pread(512, 0) == b"a" * 512
END
	"$replay" --list "$tmp/small/e.log" >"$tmp/list" 2>&1 || status=$?
	must remove e
	umount "$tmp/small"
	[ "${status:-0}" = 0 ] || fail "a full file system: $(<"$tmp/list")"
	grep -q "write   0 + 128" "$tmp/list" || fail "--list: $(<"$tmp/list")"
	grep -q 'crash_log: .*e.log": No space left on device: it ends' "$log" ||
		fail "nobody is told"
fi
stop_nullbd
