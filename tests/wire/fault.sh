#!/bin/bash
# SPDX-License-Identifier: MIT
# Faults of a daemon that serves: what clients see of each, nullbctl fault, and
# that nothing that hangs outlasts its client or the daemon.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

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

# rule DEVICE RULE: the only one it has; $id
rule() {
	ctl fault "$1" remove all
	expect 0 "" ""
	ctl fault "$1" add "$2"
	expect 0 "[0-9]*" ""
	id=$out
}

# hits DEVICE N: of its rule
hits() {
	ctl fault "$1"
	[ "$(sed -n 2p <<<"$out" | awk '{ print $2 }')" = "$2" ] ||
		fail "not $2 hits: $out"
}

# client DEVICE PYTHON: with the device as h; code() of an error, and more
client() {
	"$python" -c "
import errno, nbd, os, sys, time
def connect():
    h = nbd.NBD()
    h.connect_uri('$(uri "$1")')
    return h
def code(f, *a):
    try:
        f(*a)
    except nbd.Error as e:
        return e.errnum
    return 0
def gone(f, *a):
    try:
        f(*a)
    except nbd.Error as e:
        assert h.aio_is_dead() or h.aio_is_closed(), e
        return True
    return False
h = connect()
$2" >"$tmp/client" 2>&1 || fail "$(<"$tmp/client")"
}

asks=()

cat >"$tmp/conf" <<-'END'
	[conf]
	size = 64
	memory_backed = 1
	faults = op=READ,start=8,nr_sectors=8,status=MEDIUM
	faults = add,op=WRITE,action=lost
	timeout_nsec = 100ms
END
start_nullbd --config "$tmp/conf" \
	"nullb0:size=64M,memory_backed=1,discard=1,write_zeroes_max_bytes=1M" \
	"null:size=64M,timeout=\"1,100,0,2\",timeout_nsec=200ms" \
	"one:size=64M,seed=42,memory_backed=1" \
	"two:size=64M,seed=42,memory_backed=1"

# from a file, and from the command line
client conf '
assert code(h.pread, 4096, 4096) == errno.EIO # MEDIUM has no name in NBD
h.pwrite(b"x" * 4096, 0)
assert h.pread(4096, 0) == bytes(4096)
'
ctl fault conf
expect 0 "*HITS*RULE*op=WRITE,action=lost*op=READ,start=8,nr_sectors=8,status=MEDIUM" ""

grep -q "conf: faults: seed=[1-9][0-9]* repeats this run" "$log" ||
	fail "the log does not tell the seed"

# errors as libnbd sees them, by op
rule nullb0 op=WRITE,status=NOSPC
client nullb0 '
assert code(h.pwrite, b"x" * 512, 0) == errno.ENOSPC
assert code(h.pread, 512, 0) == 0
'
for pair in IOERR:EIO EIO:EIO ENOMEM:ENOMEM EPERM:EPERM ESHUTDOWN:ESHUTDOWN \
	TIMEOUT:EIO INVAL:EINVAL; do
	rule nullb0 "add,op=READ|DISCARD|WRITE_ZEROES,status=${pair%:*}"
	client nullb0 "
for f in (lambda: h.pread(512, 0), lambda: h.trim(512, 0), lambda: h.zero(512, 0)):
    assert code(f) == errno.${pair#*:}, code(f)
assert code(h.pwrite, b'x' * 512, 0) == 0"
	hits nullb0 3
done

# a delay is a lower bound, also for what fails
rule nullb0 op=READ,delay=100ms,times=2
client nullb0 '
for wanted in (0.1, 0.1):
    start = time.monotonic()
    h.pread(512, 0)
    assert time.monotonic() - start >= wanted
h.pread(512, 0)
'
rule nullb0 op=READ,delay=100ms,status=IOERR
client nullb0 '
start = time.monotonic()
assert code(h.pread, 512, 0) == errno.EIO
assert time.monotonic() - start >= 0.1
'

# hang: others are served, wait returns when it is there, release lets it go on
rule nullb0 op=READ,start=8,nr_sectors=1,action=hang
client nullb0 "
buf = nbd.Buffer(512)
cookie = h.aio_pread(buf, 4096)
assert os.system('$NULLBCTL --control $control fault nullb0 wait $id --timeout 10') == 0
other = connect()
other.pread(512, 0)
h.pread(512, 0)
for i in range(20):
    h.poll(1)
assert not h.aio_command_completed(cookie)
assert os.system('$NULLBCTL --control $control fault nullb0 release $id') == 0
while not h.aio_command_completed(cookie):
    h.poll(-1)
"
hits nullb0 1

# what hangs ends with its client
rule nullb0 action=hang
client nullb0 "
buf = nbd.Buffer(512)
h.aio_pread(buf, 0)
h.aio_pwrite(b'x' * 512, 4096)
assert os.system('$NULLBCTL --control $control fault nullb0 wait $id --hits 2 --timeout 10') == 0
os._exit(0)
"
for ((i = 0; ; i++)); do
	ctl fault nullb0
	[[ $out == *" 2          2     0 "* ]] && break
	[ "$i" -lt 100 ] || fail "it hangs without its client: $out"
	sleep 0.05
done
ctl clients
expect 0 "ID*" ""
[ "$(wc -l <<<"$out")" = 1 ] || fail "$out"

# hang up, at each place
for at in reply mid-reply mid-payload; do
	for n in 512 65536; do
		rule nullb0 "op=READ,action=drop,at=$at,times=1"
		client nullb0 "
assert gone(h.pread, $n, 0)
h = connect()
assert len(h.pread($n, 0)) == $n
"
		hits nullb0 1
	done
	rule nullb0 "op=WRITE,action=drop,at=$at"
	client nullb0 "
assert gone(h.pwrite, b'$at' * 512, 512)
h = connect()
assert h.pread(${#at} * 512, 512) == b'$at' * 512 # it was written
"
done

# flipped bits: in what is read; in what is written
ctl fault nullb0 remove all
client nullb0 'h.pwrite(b"\x33" * 262144, 0)'
rule nullb0 op=READ,action=corrupt,offset=100,bit=0,every=2
client nullb0 '
for n in (4096, 65536):
    want = bytearray(b"\x33" * n)
    want[100] ^= 1
    assert h.pread(n, 0) == b"\x33" * n
    assert h.pread(n, 0) == want
assert h.pread(n, 0) == b"\x33" * n
'
rule nullb0 op=WRITE,action=corrupt
client nullb0 '
for pos, n in ((1 << 20, 4096), (2 << 20, 65536 - 512), (3 << 20, 512)):
    h.pwrite(b"\x55" * n, pos + 512)
    got = h.pread(n, pos + 512)
    assert sum(bin(b ^ 0x55).count("1") for b in got) == 1
'

# elsewhere, in part, not at all (and large payloads, whose pages are lent)
rule nullb0 action=misdirected,shift=3
client nullb0 '
for n in (4096, 65536):
    h.zero(1 << 20, 0)
    h.pwrite(b"m" * n, 8192)
    assert h.pread(1536, 8192) == bytes(1536)
    assert h.pread(n, 8192 + 1536) == b"m" * n
'
rule nullb0 action=torn,keep=5,status=IOERR
client nullb0 '
for n in (4096, 65536):
    h.zero(1 << 20, 0)
    assert code(h.pwrite, b"t" * n, 512) == errno.EIO
    assert h.pread(n, 512) == b"t" * 2560 + bytes(n - 2560)
'
rule nullb0 action=lost
client nullb0 '
before = h.pread(65536, 0)
h.pwrite(b"l" * 65536, 0)
h.flush()
assert h.pread(65536, 0) == before
'

# null_blk's timeout: two requests, then none
client null '
for i in range(2):
    start = time.monotonic()
    assert code(h.pread, 512, 0) == errno.EIO
    assert time.monotonic() - start >= 0.2
h.pread(512, 0)
'
ctl fault null log
expect 0 $'1 READ 0+1 timeout\n2 READ 0+1 timeout' ""
ctl set null timeout 1,0
expect 1 "" 'nullbctl: null: timeout: "1,0": allowed: INTERVAL,*'

# the same seed, the same requests: the same log, byte by byte
for name in one two; do
	rule $name probability=20
	ctl fault $name add op=WRITE,action=torn,chance=5
	ctl fault $name add op=READ,action=corrupt,chance=3
	client $name '
for i in range(500):
    code(h.pwrite, b"x" * 4096, i * 7919 % 1000 * 4096)
    code(h.pread, 4096, i * 104729 % 1000 * 4096)
'
	ctl fault $name log
	echo "$out" >"$tmp/$name"
done
[ "$(wc -l <"$tmp/one")" -gt 300 ] || fail "$(wc -l <"$tmp/one") hits"
cmp "$tmp/one" "$tmp/two" || fail "two logs of one seed differ"
ctl get null seed
expect 0 "[1-9]*" ""

# what is wrong
rule nullb0 op=READ
ctl fault nullb0 add op=READ,status=NONSENSE
expect 1 "" 'nullbctl: nullb0: faults: "add,op=READ,status=NONSENSE": status: *'
ctl fault nullb0 wait 999999
expect 1 "" "nullbctl: nullb0: fault 999999: no such rule"
ctl fault nullb0 wait "$id" --timeout 1 --hits 1000
expect 1 "" "nullbctl: nullb0: fault $id: not hit so often in 1 s"
"$NULLBCTL" --control "$control" fault nullb0 wait "$id" 2>"$tmp/waits" &
waits=$!
sleep 0.3
ctl fault nullb0 remove "$id" # who waits for it is told
expect 0 "" ""
wait $waits && fail "a rule that is gone has hit"
grep -q "no such rule" "$tmp/waits" || fail "$(<"$tmp/waits")"
rule nullb0 op=READ
ctl fault nope
expect 1 "" "nullbctl: nope: no such device"
for wrong in "add" "remove" "wait" "nothing" "list 1" "wait x" "remove 0"; do
	# shellcheck disable=SC2086 # words are meant
	ctl fault nullb0 $wrong
	expect 2 "" "*"
done

# who waits and goes away, half or whole, has no place of those that there are
rule one op=READ,start=1,nr_sectors=1,times=1
ctl fault one
id=$(sed -n 2p <<<"$out" | awk '{ print $1 }')
"$python" -c "
import socket, sys
for i in range(70):
    s = socket.socket(socket.AF_UNIX)
    s.connect('$control')
    s.sendall(b'{\"command\":\"fault_wait\",\"name\":\"one\",\"id\":$id,\"hits\":9}\n')
    if i % 2:
        s.shutdown(socket.SHUT_WR)
    s.close()
" || fail "who waits is not let in"
ctl fault one remove all
expect 0 "" ""

# SIGTERM: what hangs, or is late, is answered ESHUTDOWN
rule nullb0 op=READ,action=hang
rule one op=READ,delay=600s
for name in nullb0 one; do
	"$python" -c "
import errno, nbd
h = nbd.NBD()
h.connect_uri('$(uri $name)')
try:
    h.pread(512, 0)
except nbd.Error as e:
    raise SystemExit(0 if e.errnum == errno.ESHUTDOWN else 1)
raise SystemExit(2)
" &
	asks[${#asks[@]}]=$!
	ctl fault $name
	id=$(sed -n 2p <<<"$out" | awk '{ print $1 }')
	ctl fault $name wait "$id" --timeout 10
	expect 0 "" ""
done
stop_nullbd
for client in "${asks[@]}"; do
	wait "$client" || fail "a request was not answered ESHUTDOWN"
done
exit 0
