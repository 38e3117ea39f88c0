#!/bin/bash
# SPDX-License-Identifier: MIT
# Bad blocks of a daemon that serves: what clients are told of them, by errors
# and by x-nullb:badblocks, and nullbctl badblocks.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdinfo
# nbdsh runs whatever python3 comes first, which need not be Debian's
for python in python3 /usr/bin/python3 ''; do
	[ -z "$python" ] || ! "$python" -c 'import nbd' 2>/dev/null || break
done
[ -n "$python" ] || skip "python3-libnbd is missing"

# ctl ARGUMENT...: its stdout is $out, its stderr $err, its status $status
ctl() {
	out=$("$NULLBCTL" --control "$control" "$@" 2>"$tmp/err")
	status=$?
	err=$(<"$tmp/err")
}

# expect STATUS OUT ERR: what the last ctl did; * is any text
expect() {
	[ "$status" = "$1" ] || fail "status $status, not $1: $out $err"
	# shellcheck disable=SC2053 # patterns are meant
	[[ $out == $2 ]] || fail "prints '$out', not '$2'"
	# shellcheck disable=SC2053
	[[ $err == $3 ]] || fail "complains '$err', not '$3'"
}

# done_ ARGUMENT...: without a word
done_() {
	ctl "$@"
	expect 0 "" ""
}

# bad DEVICE LINES: what it reads as
bad() {
	ctl badblocks "$1"
	expect 0 "$2" ""
}

# map DEVICE: of x-nullb:badblocks, "offset length flags" a line
map() {
	nbdinfo --map=x-nullb:badblocks "$(uri "$1")" | awk '{ print $1, $2, $3 }'
}

# client DEVICE PYTHON: with the device as h
client() {
	"$python" -c "import nbd
h = nbd.NBD()
h.connect_uri('$(uri "$1")')
$2" >"$tmp/client" 2>&1 ||
		fail "$(<"$tmp/client")"
}

cat >"$tmp/conf" <<-'END'
	[conf]
	size = 64
	memory_backed = 1
	badblocks = +100-107
	badblocks = +200-207
	badblocks = -104-104
	[defaults]
	badblocks = +1-1
	[default]
	size = 64
END
start_nullbd --config "$tmp/conf" "nullb0:size=64M,memory_backed=1" \
	"4k:size=64M,memory_backed=1,blocksize=4096,badblocks=+10-10" \
	"part:size=64M,memory_backed=1,badblocks=+8-8,badblocks_partial_io=1"

# from files and from the command line
bad conf $'100 4\n105 3\n200 8'
bad default "1 1"
bad 4k "10 1"

# add, remove, list, clear; set and get are the same
bad nullb0 "1 1"
done_ badblocks nullb0 clear
bad nullb0 ""
done_ badblocks nullb0 add 8-15 100 0x20-0x2f
ctl badblocks nullb0 list
expect 0 $'8 8\n32 16\n100 1' ""
done_ badblocks nullb0 remove 10-11 100
bad nullb0 $'8 2\n12 4\n32 16'
done_ set nullb0 badblocks +10-11
done_ set nullb0 badblocks=-32-47
ctl get nullb0 badblocks
expect 0 "8 8" ""
done_ set nullb0 badblocks +1000-1007
ctl get nullb0
wanted=$'badblocks                      8 8\n                               1000 8\n'
expect 0 "*$wanted*" ""
ctl --json badblocks nullb0
expect 0 '{"ok":true,"value":"8 8\\n1000 8"}' ""
ctl badblocks nullb0 add 20-10
expect 1 "" 'nullbctl: nullb0: badblocks: "+20-10": allowed: *'
ctl badblocks nullb0 add 0-18446744073709551615
expect 1 "" 'nullbctl: nullb0: badblocks: "+0-18446744073709551615": out of *'
ctl badblocks nope
expect 1 "" "nullbctl: nope: no such device"
for wrong in "" "add" "remove" "clear 1" "list 1" "nothing"; do
	# shellcheck disable=SC2086 # words are meant
	ctl badblocks ${wrong:+nullb0} $wrong
	expect 2 "" "usage: *"
done
bad nullb0 $'8 8\n1000 8'

# what clients get
[ "$(map nullb0)" = "0 4096 0
4096 4096 1
8192 503808 0
512000 4096 1
516096 66592768 0" ] || fail "$(map nullb0)"
[ "$(map 4k)" = "0 4096 0
4096 4096 1
8192 67100672 0" ] || fail "$(map 4k)" # the block of a sector
client nullb0 '
import errno
def fails(f, *a):
    try:
        f(*a)
    except nbd.Error as e:
        assert e.errnum == errno.EIO, e
        return
    raise AssertionError("no error")
h.pwrite(b"x" * 4096, 0)
fails(h.pwrite, b"x" * 4096, 4096 - 512)
fails(h.pread, 512, 4096)
h.pwrite(b"y" * 512, 4096 - 512)
h.flush()
assert h.pread(4096, 0) == b"x" * 3584 + b"y" * 512
'

# once, and cleared, under a client that stays
done_ set nullb0 badblocks_once 1
client nullb0 '
try:
    h.pread(512, 512000)
    raise AssertionError("no error")
except nbd.Error:
    pass
h.pread(512, 512000)
'
bad nullb0 "8 8"
done_ badblocks nullb0 clear
bad nullb0 ""
[ "$(map nullb0)" = "0 67108864 0" ] || fail "$(map nullb0)"
client nullb0 'h.pwrite(b"x" * 4096, 4096)'

# in part
client part '
try:
    h.pwrite(b"z" * 8192, 0)
    raise AssertionError("no error")
except nbd.Error:
    pass
assert h.pread(4096, 0) == b"z" * 4096
'
done_ badblocks part clear
client part 'assert h.pread(4096, 4096) == bytes(4096)'

stop_nullbd
exit 0
