#!/bin/bash
# SPDX-License-Identifier: MIT
# nullbctl asks a running daemon, and its exit status tells what came of it.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

[ -x "$NULLBCTL" ] || fail "$NULLBCTL is not there"

# ctl ARGUMENT...: its stdout is $out, its stderr $err, its status $status
ctl() {
	out=$("$NULLBCTL" --control "$control" "$@" 2>"$tmp/err")
	status=$?
	err=$(cat "$tmp/err")
}

# expect STATUS OUT ERR: what the last ctl did; * is any text
expect() {
	[ "$status" = "$1" ] || fail "status $status, not $1: $out $err"
	# shellcheck disable=SC2053 # patterns are meant
	[[ $out == $2 ]] || fail "prints '$out', not '$2'"
	# shellcheck disable=SC2053
	[[ $err == $3 ]] || fail "complains '$err', not '$3'"
}

# without a daemon
ctl list
expect 1 "" "nullbctl: no daemon is listening at $control*"

# help needs none: of all attributes, the devices' and the daemon's; of one;
# of one that is in both tables
ctl help
expect 0 "*queue/nomerges=0*plug_nsec=0*\[nullbd\]*handshake_seconds=10*" ""
ctl help irqmode
expect 0 "*irqmode=1*2 timer*" ""
[ "$(wc -l <<<"$out")" = 4 ] || fail "more than irqmode: $out"
ctl help queue/nomerges
expect 0 "*queue/nomerges=0*2 off*" ""
ctl help memory_limit
expect 0 "*memory_limit=0*ENOSPC*memory_limit=auto*" ""
ctl help nope
expect 2 "" "nullbctl: nope: no such attribute (nullbctl help lists them)"
ctl help memory_backd
expect 2 "" "nullbctl: memory_backd: no such attribute; is it memory_backed?"
ctl help max_connection
expect 2 "" "nullbctl: max_connection: no such attribute; is it max_connections?"

# nor do null_blk's features, on a line, in order
ctl features
expect 0 "badblocks,badblocks_once,*,memory_backed,*,virt_boundary*" ""
[ "$(tr , '\n' <<<"$out" | LC_ALL=C sort)" = "$(tr , '\n' <<<"$out")" ] ||
	fail "features in no order: $out"

start_nullbd "nullb0:size=64M,memory_backed=1,description=the first" \
	"old:kernel=4.14"

# values, bare, as null_blk prints them
ctl get nullb0 size
expect 0 64 ""
ctl get nullb0 queue/max_sectors_kb
expect 0 127 ""
ctl get old kernel
expect 0 4.14 ""
ctl get nullb0
expect 0 "size * 64*description * the first*" ""
ctl list
expect 0 "NAME*nullb0 * on * 67108864*old*4.14" ""

# the same through $NULLBD_CONTROL
out=$(NULLBD_CONTROL=$control "$NULLBCTL" get nullb0 blocksize)
[ "$out" = 512 ] || fail "NULLBD_CONTROL: '$out'"

# 17 fields, or the 11 of 4.14
ctl stat nullb0
[ "$(wc -w <<<"$out")" = 17 ] || fail "stat: $out"
ctl stat old
[ "$(wc -w <<<"$out")" = 11 ] || fail "stat: $out"

ctl iostat -x nullb0 0.05 3
expect 0 "Device * r/s *%util*nullb0*Device*nullb0*Device*nullb0*" ""
ctl iostat
expect 0 "Device * tps *nullb0*old*" ""
ctl diskstats old
expect 0 "  old: ios=0/0, merge=0/0, ticks=0/0, in_queue=0, util=0.00%" ""
ctl diskstats -s old
expect 0 "  old: ios=0/0, sectors=0/0, merge=0/0, *" ""
ctl inflight old
expect 0 "       0        0" ""
ctl --json diskstats old
expect 0 '{"ok":true,"devices":*"   0       1 old 0 0 *}' ""

# devices that come and go
ctl create new size=1G memory_backed=1 badblocks=+1-2 badblocks=+8-8 \
	description="a = b"
expect 0 "" ""
ctl get new description
expect 0 "a = b" ""
ctl get new badblocks
expect 0 $'1 2\n8 1' ""
ctl get new power
expect 0 1 ""
ctl create new
expect 1 "" "nullbctl: new: there is one already"
ctl create other blocksize=1000
expect 1 "" "nullbctl: other: blocksize: 1000: allowed: *"
ctl create other nope=1
expect 1 "" "nullbctl: other: nope: no such attribute (nullbctl help lists them)"
ctl create other size
expect 2 "" 'nullbctl: create: "size": allowed: ATTRIBUTE=VALUE'
ctl create
expect 2 "" "usage:*"
ctl power new off
expect 0 "" ""
ctl list
expect 0 "*new * off * 1073741824*" ""
ctl get new power
expect 0 0 ""
ctl uri new
expect 1 "" "nullbctl: new: the power is off"
ctl set new size 2G
expect 0 "" ""
ctl set new power 1
expect 0 "" ""
ctl uri new
expect 0 "$(uri new)" ""
ctl set new power=0
expect 0 "" ""
ctl power new maybe
expect 2 "" 'nullbctl: power: "maybe": allowed: on, off'
ctl power new of
expect 2 "" 'nullbctl: power: "of": allowed: on, off'
ctl power new
expect 2 "" "usage:*"
ctl --json remove new
expect 0 '{"ok":true}' ""
ctl remove new
expect 1 "" "nullbctl: new: no such device"
ctl create off power=0
expect 0 "" ""
ctl remove off
expect 0 "" ""

# clients: nobody, or one that waits
ctl clients
expect 0 "ID * PEER * EXPORT * LOOP PHASE * REQUESTS * AGE FEATURES" ""
ctl --json clients
expect 0 '{"ok":true,"clients":[[]]}' ""
if command -v python3 >/dev/null; then
	exec 9> >(exec python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
sys.stdin.read()' "$sock")
	for _ in $(seq 100); do
		ctl clients
		[[ $out == *$'\n'* ]] && break
		sleep 0.05
	done
	expect 0 "ID *
* unix, pid *, uid $(id -u) * main handshake * 0 * -" ""
	id=$(awk 'END { print $1 }' <<<"$out")
	ctl kick "$id"
	expect 0 "" ""
	ctl clients
	expect 0 "ID *FEATURES" ""
	ctl kick "$id"
	expect 1 "" "nullbctl: kick: $id: no such client"
	exec 9>&-
fi
for id in x 0 -- "" 4294967296; do
	ctl kick "$id"
	[ "$status" = 2 ] || fail "kick '$id': status $status"
done
ctl kick
expect 2 "" "usage:*"
ctl clients now
expect 2 "" "usage:*"

# refused by the daemon: 1; not understood by nullbctl: 2
ctl get nope size
expect 1 "" "nullbctl: nope: no such device"
ctl get nullb0 nope
expect 1 "" "nullbctl: nope: no such attribute (nullbctl help lists them)"
ctl get
expect 2 "" "usage:*"
# where it is; and what attach needs that is not here, or not allowed
ctl uri nullb0
expect 0 "$(uri nullb0)" ""
ctl uri nope
expect 1 "" "nullbctl: nope: no such device"
if [ ! -e /sys/block/nbd0 ]; then
	ctl attach nullb0
	expect 1 "" "nullbctl: nullb0: * no nbd driver loaded: modprobe nbd *"
	ctl detach /dev/nbd0
	expect 1 "" "nullbctl: * no nbd driver loaded: modprobe nbd *"
fi
ctl attach nullb0 /dev/nbdx
expect 2 "" 'nullbctl: attach: "/dev/nbdx": allowed: /dev/nbd and a number'
ctl attach nullb0 -C 0
expect 2 "" 'nullbctl: attach: --connections: "0": allowed: 1 to 64'
ctl attach nullb0 -b 513
expect 2 "" 'nullbctl: attach: --block-size: 513: allowed: 512, 1024, 2048, 4096'
ctl attach nullb0 -t 1s
expect 2 "" 'nullbctl: attach: --timeout: "1s": allowed: 1 to 86400'
ctl attach nope
expect 1 "" "nullbctl: nope: no such device"
ctl detach nullb0
expect 1 "" "nullbctl: nullb0: no device is known to be it*"
ctl detach /dev/sda
expect 2 "" 'nullbctl: detach: "/dev/sda": allowed: /dev/nbd and a number'
ctl --json attach nullb0
expect 2 "" "usage:*"
ctl detach --raw nullb0
expect 2 "" "usage:*"
ctl frobnicate
expect 2 "" "nullbctl: frobnicate: no such command (nullbctl --help lists them)"
ctl disk-stats
expect 2 "" "nullbctl: disk-stats: no such command; is it diskstats?"
ctl iostat nullb0 0
expect 2 "" "nullbctl: iostat: an interval*"
ctl top nope 0.1 1
expect 1 "" "nullbctl: nope: no such device"
ctl latency nullb0 x
expect 2 "" "nullbctl: latency: an interval*"
# what one command takes, and not all that there are
for line in "set nullb0 irqmode" "fault nullb0 add" "fault nullb0 frobnicate" \
	"badblocks nullb0 add" "zone report nullb0 -c 1 -l 1" "list nullb0"; do
	ctl $line
	expect 2 "" "usage: nullbctl ${line%% *}*"$'\n'"(nullbctl --help says more)"
done
ctl stat -x nullb0
expect 2 "" "usage:*"
ctl iostat -s
expect 2 "" "usage:*"
ctl segments
expect 2 "" "usage:*"
ctl queue nope
expect 1 "" "nullbctl: nope: no such device"
ctl --help
expect 0 "usage:*Exit status*" ""

if command -v nbdinfo >/dev/null && command -v nbdcopy >/dev/null; then
	head -c 1M /dev/urandom >"$tmp/data"
	nbdcopy "$tmp/data" "$(uri nullb0)" || fail "nbdcopy"
	ctl stat nullb0
	[ "$(awk '{ print $7 }' <<<"$out")" = 2048 ] ||
		fail "1 MiB written, 2048 sectors: $out"

	# what became of it
	ctl segments nullb0
	expect 0 "nullb0: kernel 6.12, multi-page bvecs*
bvecs of a bio, as it was submitted: * on average*
sectors of a request: *
refused merges *" ""
	ctl --json segments nullb0
	[[ $out == *'"sectors_per_request":{"count":'*',"sum":2048,'* ]] ||
		fail "1 MiB written, 2048 sectors: $out"
	ctl latency nullb0
	expect 0 "nullb0:
  write: *, avg=* usec
    lat percentiles (*sec):
     |  1.00th=\[*99.99th=\[*\]" ""
	ctl latency nullb0 0.1 2
	expect 0 "nullb0:*
nullb0:" ""
	ctl --json latency nullb0
	[[ $out == *'"write":{"count":'[1-9]*'"from_ns":'* ]] ||
		fail "no write took any time: $out"
	ctl top 0.1 2
	expect 0 "NAME * p99.9 us
nullb0 *
NAME * p99.9 us
nullb0 *" ""
	ctl queue nullb0
	expect 0 "/sys/block/nullb0/queue*max_sectors_kb * 127*
the plug of 6.12*
scheduler none, 0 of 64 tags in use*
HCTX * 2048 0-*" ""
	ctl --json queue nullb0
	expect 0 '{"ok":true,"queue":{*"max_segments":"128"*' ""
fi

stop_nullbd
exit 0
