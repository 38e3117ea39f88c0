#!/bin/bash
# SPDX-License-Identifier: MIT
# How others start nullbd and are told of it: --run, -U -, --print-uri,
# --pidfile, --exit-with-parent, affinity.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdinfo nbdcopy python3
export TMPDIR=$tmp
device=nullb0:size=1M,memory_backed=1
slow=slow:size=1M,irqmode=2,completion_nsec=3600000000000

# until COMMAND...: succeeds, within 10 s
until_() {
	local end=$((SECONDS + 10))

	until "$@"; do
		[ $SECONDS -le $end ] || return 1
		sleep 0.02
	done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# is nothing of it left in $tmp?
clean() {
	! compgen -G "$tmp/nullbd-*" >/dev/null
}
# ended STATUS: the daemon in the background ends with that
ended() {
	until_ gone "$pid" || fail "it does not end"
	wait "$pid"
	status=$?
	pid=
	[ $status -eq "$1" ] || fail "status $status, not $1"
}
# run COMMAND ARGUMENT...: its output in $out, its status in $status
run() {
	out=$("$NULLBD" --run "$@" 2>"$log")
	status=$?
}

# ---- --run: a private socket, its variables, its status

run 'nbdinfo --size "$uri"; stat -c "%a %U" "$(dirname "$unixsocket")"
	echo "$uri $nbd $exportname ($port)"; exit 9' $device
[ $status -eq 9 ] || fail "--run: status $status"
want="1048576
700 $(id -un)
nbd+unix:///nullb0?socket=$tmp/nullbd-*/socket \
nbd:unix:$tmp/nullbd-*/socket:exportname=nullb0 nullb0 ()"
# shellcheck disable=SC2053 # a pattern is meant
[[ $out == $want ]] || fail "--run: $out"
clean || fail "--run leaves its socket behind"

run 'echo "$uri|$nbd|$port|$unixsocket|"; nbdinfo --size "$uri"' -p 0 "$device"
port=$(sed -n 's|^nbd://127.0.0.1:\([0-9]*\)/nullb0.*|\1|p' <<<"$out")
[ "$out" = "nbd://127.0.0.1:$port/nullb0|nbd:127.0.0.1:$port:exportname=nullb0\
|$port||
1048576" ] || fail "--run -p 0: $out"
run 'echo "$uri|$nbd|"' -p 0 -a ::1 "$device"
if [ $status -eq 0 ]; then
	[ "$(sed 's/:[0-9]\{4,\}/:PORT/g' <<<"$out")" = \
		"nbd://[::1]:PORT/nullb0|nbd:[::1]:PORT:exportname=nullb0|" ] ||
		fail "--run -a ::1: $out"
fi
run 'echo "$unixsocket"' -U "$sock" "$device"
[ "$out" = "$sock" ] || fail "--run -U: $out"
[ ! -e "$sock" ] || fail "--run -U leaves its socket behind"
# the name that "" means, or the first
run 'echo "$exportname"; nbdinfo --size "$uri"' --listen unix:- a:size=1M \
	b:size=2M
[ "$out" = "a
1048576" ] || fail "the first: $out"

run 'kill -9 $$' "$device"
[ $status -eq 137 ] || fail "a command that is killed: $status"
run 'exec no-such-program' "$device"
[ $status -eq 127 ] || fail "a command that there is not: $status"
clean || fail "--run leaves its socket behind"

# ---- a signal ends the command, and all that it has started

"$NULLBD" --run "sleep 1000 | sleep 1001 & echo \$! >$tmp/child; wait; :" \
	$device 2>"$log" </dev/null &
pid=$!
until_ test -s "$tmp/child" || fail "the command does not start"
kill -TERM $pid
ended 143
until_ gone "$(cat "$tmp/child")" || fail "a child of the command lives on"
clean || fail "after SIGTERM a private socket is left"

# one that does not listen is killed, in time
"$NULLBD" --run "trap '' TERM; echo >$tmp/deaf; while :; do sleep 0.1; done" \
	$device 2>"$log" </dev/null &
pid=$!
until_ test -e "$tmp/deaf" || fail "the command does not start"
start=$SECONDS
kill -TERM $pid
ended 0
[ $((SECONDS - start)) -le 6 ] || fail "a deaf command: $((SECONDS - start)) s"
grep -q 'the command of --run did not end in 4 s: killed' "$log" ||
	fail "it does not say that it killed its command"

# whoever kills the daemon ends its command, too
"$NULLBD" --run "echo \$\$ >$tmp/shell; sleep 1000; :" $device 2>"$log" \
	</dev/null &
pid=$!
until_ test -s "$tmp/shell" || fail "the command does not start"
kill -KILL $pid
wait $pid 2>/dev/null
pid=
until_ gone "$(cat "$tmp/shell")" || fail "after SIGKILL the command lives on"
rm -rf "$tmp"/nullbd-*

# ---- -U -

TMPDIR=/proc/nowhere "$NULLBD" -U - $device 2>"$log" && fail "-U - nowhere"
grep -q 'a directory for a private socket: /proc/nowhere' "$log" ||
	fail "-U - nowhere: it does not say so"
mkdir -p "$tmp/$(printf '%0100d' 0)"
TMPDIR="$tmp/$(printf '%0100d' 0)" "$NULLBD" -U - $device 2>"$log" &&
	fail "-U -: a path that is too long"
grep -q 'TMPDIR: too long' "$log" || fail "-U -: $(cat "$log")"

# with requests in flight, and a second signal
in_flight() { # has the device a request?
	[ "$("$NULLBCTL" --control "$control" inflight slow | tr -d ' 0')" != "" ]
}
"$NULLBD" -U - --control "$control" --print-uri --pidfile "$tmp/pid" $slow \
	>"$tmp/uri" 2>"$log" &
pid=$!
until_ test -s "$tmp/uri" || fail "--print-uri prints nothing"
[ "$(cat "$tmp/pid")" = $pid ] || fail "--pidfile: $(cat "$tmp/pid"), not $pid"
nbdcopy --no-extents "$(cat "$tmp/uri")" null: 2>/dev/null &
client=$!
until_ in_flight || fail "the client's request does not come"
kill -TERM $pid
sleep 0.2
kill -TERM $pid
ended 1
clean || fail "after a second signal a private socket is left"
[ ! -e "$tmp/pid" ] || fail "after a second signal the pidfile is left"
kill $client 2>/dev/null
wait $client 2>/dev/null

# ---- --print-uri: nothing else on standard output, and each of them serves

rm "$tmp/uri"
"$NULLBD" --print-uri -U - -U "$sock" -p 0 a:size=1M 'b c:size=2M' \
	off:power=0 >"$tmp/uri" 2>"$log" &
pid=$!
until_ test -s "$tmp/uri" || fail "--print-uri prints nothing"
[ "$(sed 's|/nullbd-......|/nullbd-X|; s|:[0-9][0-9]*/|:PORT/|' "$tmp/uri")" = \
"nbd+unix:///a?socket=$tmp/nullbd-X/socket
nbd+unix:///a?socket=$sock
nbd://127.0.0.1:PORT/a
nbd+unix:///b%20c?socket=$tmp/nullbd-X/socket
nbd+unix:///b%20c?socket=$sock
nbd://127.0.0.1:PORT/b%20c" ] || fail "--print-uri: $(cat "$tmp/uri")"
sizes=$(while read -r u; do nbdinfo --size "$u"; done <"$tmp/uri" | tr '\n' ' ')
[ "$sizes" = "1048576 1048576 1048576 2097152 2097152 2097152 " ] ||
	fail "the URIs lead to $sizes"
kill -TERM $pid
ended 0
clean || fail "after SIGTERM a private socket is left"

# ---- --pidfile

echo "a longer file that was there before" >"$tmp/pid"
start_nullbd --pidfile "$tmp/pid" $device
until_ test "$(cat "$tmp/pid")" = "$pid" ||
	fail "--pidfile: $(cat "$tmp/pid"), not $pid"
[ "$(stat -c %a "$tmp/pid")" = 644 ] || fail "--pidfile: its mode"
[ "$(echo "$tmp"/pid*)" = "$tmp/pid" ] || fail "left: $(echo "$tmp"/pid*)"
stop_nullbd
[ ! -e "$tmp/pid" ] || fail "the pidfile is left"
# somebody else's is left alone
start_nullbd --pidfile "$tmp/pid" $device
until_ test -e "$tmp/pid" || fail "no pidfile"
rm "$tmp/pid" && echo 1 >"$tmp/pid.other" && mv "$tmp/pid.other" "$tmp/pid"
stop_nullbd
[ "$(cat "$tmp/pid")" = 1 ] || fail "a pidfile of another was removed"
rm "$tmp/pid"
for path in /proc/pid "$tmp/none/pid" "$tmp"; do
	"$NULLBD" -U "$sock" --pidfile "$path" $device 2>"$log"
	[ $? -eq 1 ] || fail "--pidfile $path"
	grep -q "pidfile: \"$path\": " "$log" || fail "--pidfile $path: no word"
	[ ! -e "$sock" ] || fail "--pidfile $path: the socket is left"
done

# ---- --exit-with-parent

( "$NULLBD" -U "$sock" --exit-with-parent $device 2>"$log" &
  echo $! >"$tmp/orphan"
  until listening "$sock"; do sleep 0.02; done )
orphan=$(cat "$tmp/orphan")
until_ gone "$orphan" || { kill "$orphan"; fail "it outlives its parent"; }
[ ! -e "$sock" ] || fail "when its parent ends, its socket is left"

# the parent is gone before it can look, and process 1 has adopted it
orphan() { # COMMAND ARGUMENT...
	sh -c '(sleep 0.3; exec "$@") & :' sh "$@"
}
# shellcheck disable=SC2016
orphan sh -c 'echo $PPID >"$0"' "$tmp/adopter"
until_ test -s "$tmp/adopter" || fail "an orphan does not run"
if [ "$(cat "$tmp/adopter")" = 1 ]; then
	orphan "$NULLBD" -U "$sock" --exit-with-parent $device 2>"$log"
	until_ test -s "$log" || fail "an orphan says nothing"
	[ "$(cat "$log")" = \
	"nullbd: --exit-with-parent: the parent has ended already" ] ||
		fail "an orphan: $(cat "$log")"
	[ ! -e "$sock" ] || fail "an orphan serves"
fi

# ---- affinity: worker i on the i-th cpu of the list

pins() { # the cpus of all threads but the first
	local t

	for t in /proc/"$pid"/task/*; do
		[ "${t##*/}" = "$pid" ] ||
			awk '/^Cpus_allowed_list/ { print $2 }' "$t/status"
	done | sort -n | tr '\n' ' '
}
read -r first last < <(python3 -c 'import os
c = sorted(os.sched_getaffinity(0))
print(c[0], c[-1])')
start_nullbd --listen unix:- $device
free=$(pins)
stop_nullbd
printf '[nullbd]\naffinity = %s,%s\n[%s]\nsize = 1M\n' "$last" "$first" nullb0 \
	>"$tmp/conf"
start_nullbd -c "$tmp/conf"
want=$(printf '%s\n' "$first" "$last" | sort -n | tr '\n' ' ')
[ "$(pins)" = "$want" ] || fail "affinity: $(pins), not $want"
stop_nullbd
# more workers than cpus take turns
start_nullbd -c "$tmp/conf" --workers 3
want=$(printf '%s\n' "$first" "$last" "$last" | sort -n | tr '\n' ' ')
[ "$(pins)" = "$want" ] || fail "affinity of three: $(pins), not $want"
stop_nullbd
if [ "$first" != "$last" ]; then
	[[ " $free" == *[-,]* ]] || fail "not asked for it is pinned: $free"
fi
printf '[nullbd]\naffinity = %s,1023\n' "$first" >"$tmp/conf"
"$NULLBD" -c "$tmp/conf" 2>"$log"
[ $? -eq 2 ] || fail "affinity of a cpu that is not there: no status 2"
grep -q 'affinity: CPU 1023: is not there, or not for us' "$log" ||
	fail "affinity: $(cat "$log")"
clean || fail "something is left"
exit 0
