#!/bin/bash
# SPDX-License-Identifier: MIT
# nullbctl watch: each event once, in order; what a slow watcher misses it is
# told of; and a watcher costs nobody else anything.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "fio has no ioengine nbd"

watchers=()

ctl() {
	"$NULLBCTL" --control "$control" "$@" || fail "nullbctl $*"
}

# watch FILE [OPTION]... [NAME]: in the background; it watches when this returns
watch() {
	local file=$1

	shift
	"$NULLBCTL" --control "$control" --json watch "$@" >"$file" 2>&1 &
	watchers+=($!)
	for _ in {1..200}; do
		grep -q ok "$file" && return
		sleep 0.02
	done
	fail "nullbctl watch $*: $(<"$file")"
}

# event FILE PATTERN: wait until there is such a line
event() {
	for _ in {1..250}; do
		grep -q -- "$2" "$1" && return
		sleep 0.02
	done
	fail "no event like $2 in: $(tail -n 20 "$1")"
}

# the events of a file, without the answer, numbers, times and clients' ids
events() {
	sed '1d; s/"seq":[0-9]*,//; s/"time_ns":[0-9]*,//; s/"client":[0-9]*/"client":N/' "$1"
}

io() {
	fio --name=t --ioengine=nbd --uri="$(uri "$1")" --rw=write --bs=4k \
		--size=64k --output=/dev/null
}

printf '[nullb0]\nsize = 1M\nmemory_backed = 1\n[other]\nsize = 1M\n' >"$tmp/conf"
start_nullbd -c "$tmp/conf"

# nobody there
[ "$("$NULLBCTL" --control "$control" watch nobody 2>&1)" = \
	"nullbctl: nobody: no such device" ] || fail "a device that is none is watched"

watch "$tmp/all"
watch "$tmp/other" other

# devices
ctl create new size=1M
ctl set new irqmode 2
ctl power new off
ctl set new size 2M
ctl power new on
"$NULLBCTL" --control "$control" set new size 4M 2>/dev/null && fail "size is live"
ctl remove new
event "$tmp/all" removed
cat >"$tmp/want" <<'END'
{"event":"created","device":"new","by":"control"}
{"event":"power","device":"new","power":true}
{"event":"set","device":"new","attribute":"irqmode","value":"2","by":"control"}
{"event":"power","device":"new","power":false}
{"event":"set","device":"new","attribute":"size","value":"2M","by":"control"}
{"event":"power","device":"new","power":true}
{"event":"power","device":"new","power":false}
{"event":"removed","device":"new"}
END
events "$tmp/all" | diff "$tmp/want" - || fail "these events were expected"

# clients, and what faults hit
ctl fault other add op=WRITE,after=3,times=2,action=delay,delay=1ms >/dev/null
io other || fail "fio"
event "$tmp/all" '"gone"'
ctl fault other add op=WRITE,times=1,action=hang >/dev/null
io other &
client=$!
event "$tmp/other" '"action":"hang"'
id=$(sed -n 's/.*"negotiated".*"client":\([0-9]*\),.*/\1/p' "$tmp/other" | tail -n 1)
ctl kick "$id"
event "$tmp/other" '"event":"kicked","device":"other","client":'"$id"
wait $client 2>/dev/null
event "$tmp/other" '"event":"gone","device":"other","client":'"$id"
# fio connects more than once
events "$tmp/other" | uniq | grep -v -e negotiated -e gone >"$tmp/got"
cat >"$tmp/want" <<'END'
{"event":"set","device":"other","attribute":"faults","value":"add,op=WRITE,after=3,times=2,action=delay,delay=1ms","by":"control"}
{"event":"fault","device":"other","id":1,"op":"WRITE","sector":24,"nr_sectors":8,"action":"delay"}
{"event":"fault","device":"other","id":1,"op":"WRITE","sector":32,"nr_sectors":8,"action":"delay"}
{"event":"set","device":"other","attribute":"faults","value":"add,op=WRITE,times=1,action=hang","by":"control"}
{"event":"fault","device":"other","id":2,"op":"WRITE","sector":0,"nr_sectors":8,"action":"hang"}
{"event":"kicked","device":"other","client":N,"peer":"unix"}
END
diff "$tmp/want" "$tmp/got" || fail "these events were expected"
grep -q '"event":"connected","client":[0-9]*,"peer":"unix"}' "$tmp/all" ||
	fail "nobody has connected: $(<"$tmp/all")"
! grep -q '"connected"\|"new"\|"nullb0"' "$tmp/other" ||
	fail "who watches other is told of others"

# numbers go up by one, times never down
sed '1d; s/{"seq":\([0-9]*\),"time_ns":\([0-9]*\),.*/\1 \2/' "$tmp/all" |
	awk '$1 != NR || $2 < last { bad = 1 } { last = $2 } END { exit bad }' ||
	fail "events are not in order: $(<"$tmp/all")"

# the configuration is read again
printf '[late]\nsize = 1M\npower = 0\n' >>"$tmp/conf"
kill -HUP "$pid"
event "$tmp/all" '"event":"created","device":"late","by":"reload"}$'

# for a person
"$NULLBCTL" --control "$control" watch >"$tmp/text" &
watchers+=($!)
sleep 0.3
ctl set nullb0 mbps 0
event "$tmp/text" '^20[0-9T:.-]*Z set nullb0 attribute=mbps value=0 by=control$'

# who does not read loses events, is told how many, and holds up nobody
mkfifo "$tmp/fifo"
sleep 60 >"$tmp/fifo" & # so that it opens
holder=$!
exec {fd}<"$tmp/fifo"
"$NULLBCTL" --control "$control" --json watch >"$tmp/fifo" 2>/dev/null &
slow=$!
kill $holder
sleep 0.3
ctl fault nullb0 add op=WRITE,action=delay,delay=1ns >/dev/null
before=$(rss_kib)
for _ in 1 2 3; do
	timeout 60 fio --name=t --ioengine=nbd --uri="$(uri nullb0)" --rw=randwrite \
		--bs=4k --size=1m --number_ios=5000 --io_size=20m --iodepth=32 \
		--output=/dev/null || fail "a slow watcher holds up fio"
	ctl list >/dev/null
done
sanitized || bound "KiB more because of a slow watcher" $(($(rss_kib) - before)) 8192
ctl fault nullb0 remove all
event "$tmp/all" removeall
cat <&"$fd" >"$tmp/slow" &
reader=$!
event "$tmp/slow" '"event":"dropped","count":[0-9]*}'
ctl set nullb0 mbps 0
event "$tmp/slow" '"mbps"'
# those it was told of and those it lost are all that there were
sed '1d; s/.*"seq":\([0-9]*\),.*"count":\([0-9]*\)}/\1 \2/; s/.*"seq":\([0-9]*\),.*/\1 1/' \
	"$tmp/slow" | awk '
	NR > 1 && $1 != last + $2 { print "after " last " comes " $0; bad = 1 }
	{ last = $1; if ($2 > 1) lost += $2; else told++ }
	END { print told " told, " lost " lost"; exit bad }' || fail "some are not accounted for"
kill $slow
wait $slow 2>/dev/null
kill $reader 2>/dev/null
exec {fd}<&-

# those that come and go, while there are events
ctl fault nullb0 add op=WRITE,action=delay,delay=1ns >/dev/null
fio --name=t --ioengine=nbd --uri="$(uri nullb0)" --rw=randwrite --bs=4k \
	--size=1m --time_based --runtime=2 --iodepth=32 --output=/dev/null &
client=$!
for _ in {1..30}; do
	timeout 0.05 "$NULLBCTL" --control "$control" watch >/dev/null 2>&1
done
wait $client || fail "fio"
ctl fault nullb0 remove all

# all are told of the end, and end; also one that has more to read than a socket
# holds, and has lost some: no line is cut
"$NULLBCTL" --control "$control" --json watch >"$tmp/behind" 2>&1 &
behind=$!
watchers+=($behind)
event "$tmp/behind" ok
kill -STOP $behind
ctl fault nullb0 add op=WRITE,action=delay,delay=1ns >/dev/null
timeout 60 fio --name=t --ioengine=nbd --uri="$(uri nullb0)" --rw=randwrite \
	--bs=4k --size=1m --number_ios=8000 --io_size=32m --iodepth=32 \
	--output=/dev/null || fail "a stopped watcher holds up fio"
{ sleep 0.1 && kill -CONT $behind; } & # when the daemon is at its end
stop_nullbd
for w in "${watchers[@]}"; do
	wait "$w" || fail "a watcher ends with $?"
done
tail -n 1 "$tmp/all" | grep -q '"event":"shutdown"}$' ||
	fail "the last event is $(tail -n 1 "$tmp/all")"
tail -n 2 "$tmp/behind" | sed 's/.*"event"/"event"/; s/[0-9]\+/N/' >"$tmp/end"
[ "$(<"$tmp/end")" = $'"event":"dropped","count":N}\n"event":"shutdown"}' ] ||
	fail "the last events of one that is behind are $(tail -n 2 "$tmp/behind")"
tail -n 1 "$tmp/other" | grep -q '"event":"shutdown"}$' ||
	fail "the last event of other is $(tail -n 1 "$tmp/other")"

# a daemon that is gone at once is none that has ended
start_nullbd nullb0
"$NULLBCTL" --control "$control" watch >"$tmp/killed" 2>&1 &
w=$!
sleep 0.3
kill -KILL "$pid"
wait "$pid" 2>/dev/null
pid=
wait $w
[ $? -eq 1 ] || fail "a daemon that was killed: status $?"
grep -q 'hung up$' "$tmp/killed" || fail "a daemon that was killed: $(<"$tmp/killed")"
