#!/bin/bash
# SPDX-License-Identifier: MIT
# Zones of a daemon that serves: nullbctl zone, what clients get, and fio's
# zonemode=zbd, which makes zones of its own and sends no command about them.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdinfo nbdcopy fio
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

# zones DEVICE WANTED: of each that is neither empty nor conventional its
# number of 8192 sectors, condition, and pointer
zones() {
	local is

	ctl zone report "$1"
	expect 0 "*" ""
	is=$(sed -n 's/^  start: \([^,]*\),.* wptr \([^ ]*\) .*(\(..\)) .*/\1 \3 \2/p' \
		<<<"$out" | while read -r start cond wptr; do
		case $cond in
		em | nw) ;;
		*) printf '%d %s %d, ' $((start / 8192)) "$cond" "$wptr" ;;
		esac
	done)
	[ "${is%, }" = "$2" ] || fail "zones of $1 are '${is%, }', not '$2'"
}

# map DEVICE CONTEXT: "offset length flags" a line
map() {
	nbdinfo --map="$2" "$(uri "$1")" | awk '{ print $1, $2, $3 }'
}

# client DEVICE PYTHON: with the device as h
client() {
	"$python" -c "import nbd, errno
h = nbd.NBD()
h.connect_uri('$(uri "$1")')
Z = 4 << 20
def fails(error, f, *a):
    try:
        f(*a)
    except nbd.Error as e:
        assert e.errnum == error, e
        return
    raise AssertionError('no error')
$2" >"$tmp/client" 2>&1 ||
		fail "$(<"$tmp/client")"
}

start_nullbd --workers 3 \
	"z:size=24M,memory_backed=1,zoned=1,zone_size=4M,zone_capacity=3M,zone_nr_conv=1,zone_max_open=1,zone_max_active=2" \
	"flat:size=64M" \
	"big:size=16G,zoned=1,zone_size=8M" \
	"fio:size=128M,memory_backed=1,zoned=1,zone_size=4M,zone_capacity=3M,zone_max_open=8" \
	"mq:size=128M,memory_backed=1,zoned=1,zone_size=4M,zone_capacity=3M,zone_max_open=8,scheduler=mq-deadline,submit_queues=2" \
	"few:size=128M,memory_backed=1,zoned=1,zone_size=4M,zone_capacity=3M,zone_max_open=8,scheduler=mq-deadline,hw_queue_depth=2,irqmode=2" \
	"old:size=128M,memory_backed=1,zoned=1,zone_size=4M,zone_capacity=3M,zone_max_open=8,kernel=6.1,mbps=400"

# as blkzone has it
ctl zone report z -c 2
expect 0 "  start: 0x000000000, len 0x002000, cap 0x002000, wptr 0x000000 reset:0 non-seq:0, zcond: 0(nw) [[]type: 1(CONVENTIONAL)]
  start: 0x000002000, len 0x002000, cap 0x001800, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [[]type: 2(SEQ_WRITE_REQUIRED)]" ""
done_ zone open z -o 8192 -c 1
zones z "1 oe 0"
ctl zone open z --offset 16384 --count 1
expect 1 "" "nullbctl: z: zone open: zone_max_open: 1: no more may be open"
done_ zone close z -a
done_ zone finish z -o 16384 -l 8192
zones z "2 fu 8192"
ctl zone reset z -o 8
expect 1 "" "nullbctl: z: zone reset: sectors 8 to 49151: allowed: whole *"
ctl zone open z -o 0 -c 1
expect 1 "" "nullbctl: z: zone open: *: a zone there is not in a condition *"
done_ zone reset z
zones z ""
ctl zone report flat
expect 1 "" "nullbctl: flat: has no zones"
ctl zone melt z
expect 1 "" 'nullbctl: zone: "melt": allowed: report, open, *'
ctl --json zone report z -c 1
expect 0 '{"ok":true,"zones":[[]{"start":0,"len":8192,"cap":8192,"wp":8192,"cond":0,"conventional":true}]}' ""
for wrong in "" "report" "report z z" "report z -a -c 1" "report z -c 1 -l 1" \
	"report z -c x" "report z -w 1" "report z -o"; do
	# shellcheck disable=SC2086 # words are meant
	ctl zone $wrong
	expect 2 "" "*"
done
ctl zone report big # in two answers
[ "$(wc -l <<<"$out")" = 2048 ] || fail "$(wc -l <<<"$out") zones of 2048"
ctl get z queue/nr_zones
expect 0 6 ""

# what clients get
client z '
fails(errno.EIO, h.pwrite, b"x" * 512, Z + 512)
h.pwrite(b"x" * 8192, Z)
h.pwrite(b"y" * 512, 100 * 512)       # anywhere, in a conventional one
fails(errno.EIO, h.pwrite, b"x" * 512, Z)
h.pwrite(b"z" * 512, 2 * Z)           # zone 1 is closed for it
fails(errno.EIO, h.pwrite, b"z" * 512, 3 * Z) # EOVERFLOW, to the block layer
assert h.pread(16384, Z) == b"x" * 8192 + b"\xff" * 8192
assert h.pread(1 << 20, Z) == b"x" * 8192 + b"\xff" * ((1 << 20) - 8192)
assert h.can_trim()
fails(errno.EINVAL, h.trim, 4096, Z)
fails(errno.EINVAL, h.trim, Z, Z + 4096)
'
zones z "1 cl 16, 2 oi 1"
[ "$(map z x-nullb:zones)" = "0 4194304 0
4194304 8192 180
4202496 3137536 148
7340032 1048576 212
8388608 512 50
8389120 3145216 18
11534336 1048576 82
12582912 3145728 145
15728640 1048576 209
16777216 3145728 17
19922944 1048576 81
20971520 3145728 145
24117248 1048576 209" ] || fail "$(map z x-nullb:zones)"
# 0xff is no zero, wherever it comes from
[ "$(map z base:allocation)" = "0 51200 3
51200 512 0
51712 4142592 3
4194304 8192 0
4202496 4186112 1
8388608 512 0
8389120 16776704 1" ] || fail "$(map z base:allocation)"
nbdcopy "$(uri z)" "$tmp/copy" || fail "nbdcopy"
[ "$(tr -d '\377\000' <"$tmp/copy" | wc -c)" = $((8192 + 512 + 512)) ] ||
	fail "$(tr -d '\377\000' <"$tmp/copy" | wc -c) bytes copied"
[ "$(tr -d '\000xyz' <"$tmp/copy" | wc -c)" = $((5 * 4194304 - 8192 - 512)) ] ||
	fail "not all else is 0xff"
client z '
h.trim(Z, Z)
h.pwrite(b"w" * 512, Z)
h.trim(2 * Z, Z)                      # more than one
'
zones z ""
# many, and each of them whole
client big '
for i in (0, 511, 512, 2047):
    h.pwrite(b"x" * 4096, i * (8 << 20))
for i in range(0, 15, 3):
    h.trim(3 << 30, i << 30)
h.trim((1 << 30) - (8 << 20), 15 << 30)
'
ctl zone report big
[ "$(grep -c '(oi)' <<<"$out")" = 1 ] || fail "$(grep '(oi)' <<<"$out")"

# in order, as many as there may be in flight, of one connection
client fio '
c = []
for i in range(48):
    c.append(h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i]) * 65536),
                          i * 65536))
for i in c:
    while not h.aio_command_completed(i):
        h.poll(-1)
'
zones fio "0 fu 6144"
client fio 'for i in range(48): assert h.pread(65536, i * 65536) == bytes([i]) * 65536'
done_ zone reset fio
# a worker gives the memory back
end=$((SECONDS + READY_S))
until ctl list && [ "$(awk '$1 == "fio" { print $6 }' <<<"$out")" = 0 ]; do
	[ $SECONDS -le $end ] || fail "memory stays: $out"
	sleep 0.05
done

# read-only and offline
done_ set z zone_readonly 8192
done_ set z zone_offline=16390
ctl get z zone_readonly
expect 0 8192 ""
ctl get z zone_offline
expect 0 16384 ""
client z '
fails(errno.EIO, h.pwrite, b"x" * 512, Z)
fails(errno.EIO, h.pread, 512, 2 * Z)
assert h.pread(512, Z) == bytes(512)
fails(errno.EIO, h.trim, Z, Z)
'
done_ set z zone_readonly 8192
done_ set z zone_offline 16384
zones z ""
ctl set z zone_readonly 0
expect 1 "" 'nullbctl: z: zone_readonly: "0": allowed: no conventional zone*'
ctl set flat zone_readonly 0
expect 1 "" 'nullbctl: flat: zone_readonly: "0": allowed: while a device with*'

# zbd DEVICE BS OPTION...: each zone is written once, and read
zbd() {
	local device=$1 bs=$2
	shift 2

	(cd "$tmp" && fio --ioengine=nbd --uri="$(uri "$device")" --zonemode=zbd \
		--zonesize=4M --zonecapacity=3M --bs="$bs" --verify=crc32c \
		--verify_state_save=0 --verify_fatal=1 "$@") >"$tmp/fio" 2>&1 ||
		fail "fio: $(tail -n 30 "$tmp/fio")"
	ctl zone report "$device"
	[ "$(grep -c '14(fu)' <<<"$out")" = 32 ] ||
		fail "$device, $bs: not all are full: $out"
	done_ zone reset "$device"
}

jobs=()
for ((i = 0; i < 8; i++)); do
	jobs+=(--name="j$i" --offset=$((i * 16))M)
done
zbd fio 64k --name=seq --rw=write --iodepth=16 --size=128M
zbd fio 16k --name=rnd --rw=randwrite --iodepth=16 --size=128M \
	--io_size=96M --max_open_zones=4
for device in fio mq few old; do
	# 1 MiB is split in nine, which keep their order
	for bs in 1M 64k; do
		zbd "$device" "$bs" --rw=write --iodepth=8 --size=16M "${jobs[@]}"
	done
done

stop_nullbd
exit 0
