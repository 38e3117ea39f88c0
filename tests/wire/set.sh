#!/bin/bash
# SPDX-License-Identifier: MIT
# nullbctl set changes a device while it is in use: what is live and only
# that, at once where plugs are all that it waits for, and without a trace where
# it is refused, given up, or its asker is gone.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no engine nbd"

GIVE_UP_S=10 # then a change is refused
WAIT_S=10    # for what takes a moment

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

# becomes DEVICE ATTRIBUTE VALUE
becomes() {
	ctl set "$1" "$2" "$3"
	expect 0 "" ""
	ctl get "$1" "$2"
	expect 0 "$3" ""
}

# refused DEVICE ATTRIBUTE VALUE SENTENCE: and all is as it was
refused() {
	local before

	ctl get "$1"
	before=$out
	ctl set "$1" "$2" "$3"
	expect 1 "" "nullbctl: $1: $4"
	ctl get "$1"
	[ "$out" = "$before" ] || fail "refused, but it has changed: $out"
}

# in_flight DEVICE N: wait until it has so many requests
in_flight() {
	local end=$((SECONDS + WAIT_S))

	until ctl stat "$1" && [ "$(awk '{ print $9 }' <<<"$out")" = "$2" ]; do
		[ $SECONDS -le $end ] || fail "$1 has not $2 in flight: $out"
		sleep 0.02
	done
}

# read_from DEVICE [NAME]: one request, in the background; how it went is in
# $tmp/NAME
read_from() {
	(
		cd "$tmp" || exit
		fio --name=one --ioengine=nbd --uri="$(uri "$1")" --rw=read \
			--bs=512 --size=512 >"$1.fio" 2>&1 </dev/null
		echo $? >"${2-$1}"
	) &
}

# was_read NAME: with success
was_read() {
	local end=$((SECONDS + WAIT_S))

	until [ -s "$tmp/$1" ]; do
		[ $SECONDS -le $end ] || fail "$1 does not answer"
		sleep 0.02
	done
	[ "$(<"$tmp/$1")" = 0 ] || fail "a read of $1 fails"
	rm "$tmp/$1"
}

# change_waits DEVICE: until it is so; what is refused anyway tells
change_waits() {
	local end=$((SECONDS + WAIT_S))

	until ctl set "$1" nomerges x; [[ $err != *allowed* ]]; do
		[ $SECONDS -le $end ] || fail "no change of $1 waits: $err"
	done
	expect 1 "" "nullbctl: $1: nomerges: another change is being made"
}

ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# what help calls live, and two values of each
values() {
	cat <<-'END'
	queue/scheduler mq-deadline none
	queue/nomerges 2 1
	queue/nr_requests 16 8
	queue/max_sectors_kb 64 4
	queue/discard_max_bytes 1048576 4096
	queue/iostats 1 0
	queue/iosched/read_expire 100 1
	queue/iosched/write_expire 1000 1
	queue/iosched/writes_starved 0 7
	queue/iosched/fifo_batch 1 64
	queue/iosched/front_merges 0 1
	queue/iosched/async_depth 4 8
	queue/iosched/prio_aging_expire 1 500
	plug call each
	irqmode 0 2
	completion_nsec 0 20000
	submit_queues 2 1
	poll_queues 0 1
	memory_limit 1073741824 0
	mbps 40960 0
	cache_size 8 0
	badblocks_once 1 0
	badblocks_partial_io 1 0
	timeout 1,0,0,-1 1,100,0,0
	requeue 1,0,0,-1 10,0,3,5
	init_hctx 1,0,0,-1 1,100,0,1
	timeout_nsec 1000 0
	END
}

each_value() {
	local attribute value other

	while read -r attribute value other; do
		becomes nullb0 "$attribute" "$value"
		becomes nullb0 "$attribute" "$other"
		[ $# -eq 0 ] || becomes nullb0 "${attribute##*/}" "$value"
	done < <(values)
}

# badblocks, faults and zone_*, which have no value but changes, and latency.*,
# whose values are several words, have tests of their own
live=$("$NULLBCTL" help | awk '/^  [^ ]/ { name = $1 } /\(live\)/ { print name }' |
	sed 's/=.*//' | grep -vxE 'badblocks|faults|zone_(readonly|offline)|latency\..*' | sort)
[ "$live" = "$(values | cut -d ' ' -f 1 | sort)" ] ||
	fail "live are: $live"

start_nullbd --workers 2 "nullb0:size=64M,memory_backed=1,discard=1" \
	"old:kernel=4.14" \
	"gathers:plug_nsec=30s" \
	"slow:irqmode=2,completion_nsec=2s" \
	"slower:irqmode=2,completion_nsec=$((GIVE_UP_S + 3))s"

# each, and by its short name; with and without = between; units
each_value short
ctl set nullb0 queue/nomerges=2
expect 0 "" ""
ctl set nullb0 iosched/fifo_batch 1k
expect 1 "" "*fifo_batch: \"1k\": *"
ctl set nullb0 discard_max_bytes 1M
expect 0 "" ""
ctl get nullb0 discard_max_bytes
expect 0 1048576 ""

# what depends on the scheduler follows it
becomes nullb0 scheduler none
ctl set nullb0 nr_requests 0
ctl get nullb0 nr_requests
expect 0 64 ""
becomes nullb0 scheduler mq-deadline
ctl get nullb0 nr_requests
expect 0 128 ""
becomes nullb0 nr_requests 200
ctl set nullb0 scheduler none # which begins with its own
ctl get nullb0 nr_requests
expect 0 64 ""
ctl set nullb0 scheduler mq-deadline
becomes nullb0 scheduler none

# refusals
refused nullb0 size 128M "size: cannot change while the device is on*"
refused nullb0 blocking 0 "blocking: cannot change while the device is on*"
refused nullb0 submit_queues 3 \
	"submit_queues: 3: allowed while it is on: 1 to 2, the workers"
refused nullb0 submit_queues 0 "submit_queues: 0: allowed while it is on: *"
refused nullb0 poll_queues 2 "poll_queues: 2: allowed while it is on: at most 1"
refused nullb0 kernel 6.1 "kernel: cannot change while the device is on*"
refused nullb0 plug_nsec 1 "plug_nsec: cannot change while the device is on*"
refused nullb0 queue/max_hw_sectors_kb 64 "queue/max_hw_sectors_kb: read only"
refused nullb0 nope 1 "nope: no such attribute (nullbctl help lists them)"
refused nullb0 nomerges 3 'queue/nomerges: "3": out of range, allowed: *'
refused nullb0 nomerges x 'queue/nomerges: "x": allowed: *'
refused nullb0 nomerges "" 'queue/nomerges: "": *'
refused nullb0 max_sectors_kb 128 \
	"queue/max_sectors_kb: 128: allowed: 4 to 127 (max_hw_sectors_kb)"
refused nullb0 max_sectors_kb 3 "queue/max_sectors_kb: 3: allowed: 4 to 127 *"
refused nullb0 nr_requests 65 \
	"queue/nr_requests: 65: allowed: at most hw_queue_depth (64)"
refused nullb0 discard_max_bytes 100 "queue/discard_max_bytes: 100: allowed: *"
refused nullb0 iosched/front_merges 2 \
	'queue/iosched/front_merges: "2": allowed: 0 or 1'
refused nullb0 iosched/writes_starved 99999999999 \
	'queue/iosched/writes_starved: "99999999999": out of range, *'
refused nullb0 plug never 'plug: "never": allowed: plug, call, each'
refused nullb0 scheduler kyber 'queue/scheduler: "kyber": *: not simulated; *'
refused nullb0 scheduler bfq 'queue/scheduler: "bfq": *: not simulated; *'
refused nullb0 scheduler cfq 'queue/scheduler: "cfq": allowed: none, mq-deadline'
ctl --json set nullb0 size 1
expect 1 '{"ok":false,"errno":"EBUSY","error":"nullb0: size: cannot change *"}' "*"
ctl --json set nullb0 nomerges 3
expect 1 '{"ok":false,"errno":"ERANGE",*' "*"
ctl set nope nomerges 1
expect 1 "" "nullbctl: nope: no such device"
ctl set nullb0 nomerges
expect 2 "" "usage:*"
ctl get old scheduler
expect 0 none "" # nobody else's

# under load
fio --name=load --ioengine=nbd --uri="$(uri nullb0)" --rw=randrw --bs=16k \
	--iodepth=32 --numjobs=2 --size=64M --time_based --runtime=60 \
	>"$tmp/fio" 2>&1 </dev/null &
load=$!
end=$((SECONDS + WAIT_S))
until ctl stat nullb0 && [ "$(awk '{ print $1 }' <<<"$out")" -gt 1000 ]; do
	[ $SECONDS -le $end ] || fail "no load: $out $(<"$tmp/fio")"
	sleep 0.05
done
for _ in 1 2 3; do
	each_value
	refused nullb0 nomerges 3 'queue/nomerges: "3": out of range, *'
	refused nullb0 blocksize 4096 \
		"blocksize: cannot change while the device is on*"
	ctl set nullb0 nr_requests 0
	expect 0 "" ""
done
kill -0 $load || fail "the load has ended: $(<"$tmp/fio")"
kill -INT $load
wait $load
grep -q 'err= 0' "$tmp/fio" || fail "the load has errors: $(<"$tmp/fio")"

# a plug that would be open for 30 s is closed
read_from gathers
in_flight gathers 1
start=$(ms)
becomes gathers scheduler mq-deadline
took=$(($(ms) - start))
[ $took -lt 5000 ] || fail "a set takes $took ms while a plug is open"
was_read gathers

# while one change waits there is no other; its asker may leave; it is made
read_from slow
in_flight slow 1
"$NULLBCTL" --control "$control" set slow nomerges 2 2>/dev/null &
asker=$!
change_waits slow
becomes nullb0 nomerges 0 # of another device there is
{ kill -KILL $asker && wait $asker; } 2>/dev/null
ctl get slow nomerges
expect 0 0 ""
was_read slow
end=$((SECONDS + WAIT_S))
until ctl get slow nomerges && [ "$out" = 2 ]; do
	[ $SECONDS -le $end ] || fail "the change has gone with who asked for it"
	sleep 0.02
done
becomes slow nomerges 1

# a change that is given up changes nothing, and lets in what has waited
read_from slower
in_flight slower 1
start=$(ms)
"$NULLBCTL" --control "$control" set slower scheduler mq-deadline \
	2>"$tmp/given-up" &
asker=$!
change_waits slower
read_from slower "waits for the thaw"
wait $asker && fail "a change is made with requests in flight"
took=$(($(ms) - start))
[[ $(<"$tmp/given-up") == "nullbctl: slower: scheduler: \"mq-deadline\": requests \
have been in flight for $GIVE_UP_S s" ]] || fail "given up: $(<"$tmp/given-up")"
if [ $took -lt $((GIVE_UP_S * 1000 - 500)) ]; then
	fail "given up after $took ms"
fi
ctl get slower scheduler
expect 0 none ""
in_flight slower 2
was_read slower

# SIGTERM while a queue is being frozen: the daemon ends in time all the same
"$NULLBCTL" --control "$control" set slower nomerges 1 2>"$tmp/hung-up" &
asker=$!
change_waits slower
stop_nullbd
wait $asker && fail "a change is made by a daemon that ends"
[[ $(<"$tmp/hung-up") == "nullbctl: "* ]] || fail "it ends: $(<"$tmp/hung-up")"
wait
exit 0
