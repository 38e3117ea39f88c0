#!/bin/bash
# SPDX-License-Identifier: MIT
# --sysfs: the devices as files, as null_blk's scripts use them; with I/O in flight,
# clients attached, several writers, and however the daemon ends.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

[ -x "$NULLBCTL" ] || fail "$NULLBCTL is not there"
need fio timeout
need_sysfs
sys=$tmp/sys
config=$sys/config/nullb
block=$sys/block
mkdir "$sys"

ctl() {
	timeout 20 "$NULLBCTL" --control "$control" "$@"
}

# is VALUE FILE: what it reads
is() {
	local value

	value=$(timeout 10 cat "$2") || fail "$2 cannot be read"
	[ "$value" = "$1" ] || fail "$2 reads '$value', not '$1'"
}

# put VALUE FILE
put() {
	timeout 10 bash -c "echo $1 >$2" || fail "echo $1 >$2"
}

# refused WORDS COMMAND...
refused() {
	local words=$1

	shift
	! timeout 10 "$@" 2>"$tmp/refused" || fail "$*: is not refused"
	grep -q "$words" "$tmp/refused" || fail "$*: $(<"$tmp/refused")"
}

# until_true COMMAND...
until_true() {
	local end=$((SECONDS + READY_S))

	until "$@"; do
		[ $SECONDS -le $end ] || fail "never: $*"
		sleep 0.02
	done
}

# job DEVICE OPTION...: fio, in the background; $job is its pid
job() {
	local name=$1

	shift
	timeout 60 fio --name="$name" --ioengine=nbd --uri="$(uri "$name")" --rw=randwrite \
		--bs=4k --iodepth=8 --size=16m --time_based --runtime=30 "$@" \
		>"$tmp/fio" 2>&1 &
	job=$!
}

io_began() {
	[ "$(awk '{ print $5 }' "$block/$1/stat")" -gt 0 ]
}

in_flight() {
	[ "$(awk '{ print $2 }' "$block/$1/inflight")" -gt 0 ]
}

echo "-- a session"
start_nullbd --sysfs "$sys" none:size=64
mkdir "$config/x" || fail "mkdir"
is 0 "$config/x/power"
[ ! -e "$block/x" ] || fail "block/x is there without power"
put 64 "$config/x/size"
put 1 "$config/x/memory_backed"
put 1 "$config/x/power"
is 1 "$config/x/power"
is 131072 "$block/x/size"
is '[none] mq-deadline ' "$block/x/queue/scheduler"
refused busy bash -c "echo 128 >$config/x/size"
refused Invalid bash -c "echo soon >$config/x/size"
refused denied bash -c "echo 1 >$block/x/ro"
refused denied cat "$config/x/zone_offline"
refused denied bash -c "echo 1 >$config/x/no_such_thing"
refused permitted rm "$config/x/size"
refused permitted mkdir "$config/x/y"
refused permitted rmdir "$block/x"
refused 'File exists' mkdir "$config/x"
refused 'too long' mkdir "$config/12345678901234567890123456789012"
grep -q badblocks_once "$config/features" || fail "features: $(<"$config/features")"
! grep -q timeout "$config/features" || fail "features: $(<"$config/features")"
[ "$(ls "$config")" = $'features\nnone\nx' ] || fail "ls: $(ls "$config")"
put mq-deadline "$block/x/queue/scheduler"
is 'none [mq-deadline] ' "$block/x/queue/scheduler"
put 4 "$block/x/queue/iosched/fifo_batch"
[ "$(ctl get x fifo_batch)" = 4 ] || fail "fifo_batch is not set"
fio --name=x --ioengine=nbd --uri="$(uri x)" --rw=write --bs=4k --size=1m >"$tmp/fio" ||
	fail "fio: $(<"$tmp/fio")"
[ "$(awk '{ print $7 }' "$block/x/stat")" = 2048 ] || fail "stat: $(<"$block/x/stat")"
[ "$(ctl stat x)" = "$(<"$block/x/stat")" ] || fail "stat and nullbctl differ"
put 50 "$config/x/timeout_inject/probability"
is 50 "$config/x/timeout_inject/probability"
[ "$(ctl get x timeout)" = 1,50,0,1 ] || fail "timeout is $(ctl get x timeout)"
put 0 "$config/x/timeout_inject/probability"
# of a value only what configfs takes of it, and there are other writers than echo
head -c 4200 /dev/zero | tr '\0' ' ' >"$tmp/blanks"
refused Invalid cp "$tmp/blanks" "$config/x/size"
put 1 "$config/x/submit_queues"
exec 5<"$config/x/size" 6<"$block/x/stat" 7<"$config"
rmdir "$config/x" || fail "rmdir"
[ "$(ctl list | grep -c '^x ')" = 0 ] || fail "x is still there"
[ "$(ls "$config")" = $'features\nnone' ] || fail "ls: $(ls "$config")"
# files that are open know no other device
mkdir "$config/x"
! cat <&5 2>/dev/null || fail "a file outlives its device"
! cat <&6 2>/dev/null || fail "stat outlives its device"
[ "$(ls /proc/self/fd/7)" = $'features\nnone\nx' ] || fail "a directory that was open"
exec 5<&- 6<&- 7<&-
rmdir "$config/x"

echo "-- with I/O in flight, and clients"
ctl create busy size=64 memory_backed=1 irqmode=2 completion_nsec=400ms
job busy
until_true in_flight busy
# a change waits for what is in flight; meanwhile others read, and write elsewhere
bash -c "echo mq-deadline >$block/busy/queue/scheduler" &
writer=$!
while kill -0 $writer 2>/dev/null; do
	is 64 "$config/busy/size"
	is 131072 "$block/none/size"
	timeout 5 ls "$block/busy/queue" >/dev/null || fail "ls waits for a writer"
	sleep 0.02
done
wait $writer || fail "queue/scheduler cannot be set under I/O"
is 'none [mq-deadline] ' "$block/busy/queue/scheduler"
# who changes the same device waits, as in the kernel, and is not told EBUSY
for i in 1 2 3 4; do
	bash -c "echo $i >$block/busy/queue/iosched/fifo_batch" &
	writers[i]=$!
	bash -c "echo $((i % 2)) >$block/busy/queue/nomerges" &
	writers[i + 4]=$!
done
for i in "${writers[@]}"; do
	wait "$i" || fail "a writer beside another one is refused"
done
# without power for a client that is attached: it goes
put 0 "$config/busy/power"
is 0 "$config/busy/power"
[ ! -e "$block/busy" ] || fail "block/busy is there without power"
wait "$job"
[ "$(ctl clients | grep -c busy)" = 0 ] || fail "clients: $(ctl clients)"
put 1 "$config/busy/power"
job busy
until_true in_flight busy
# power that goes, and comes, at the same time: the one after the other
bash -c "echo 0 >$config/busy/power" &
writer=$!
sleep 0.05
put 1 "$config/busy/power"
wait $writer || fail "power 0"
is 1 "$config/busy/power"
wait "$job"
job busy
until_true in_flight busy
timeout 10 rmdir "$config/busy" || fail "rmdir with a client attached"
wait "$job"
! ctl get busy size 2>/dev/null || fail "busy is still there"
stop_nullbd
! mounted "$sys" || fail "SIGTERM leaves it mounted"

echo "-- ends"
# with somebody inside, a file open, and a write that waits
start_nullbd --sysfs "$sys" slow:size=64,memory_backed=1,irqmode=2,completion_nsec=900ms
job slow
until_true in_flight slow
(cd "$config/slow" && exec sleep 60) &
inside=$!
exec 5<"$block/slow/stat"
bash -c "echo mq-deadline >$block/slow/queue/scheduler" 2>/dev/null &
writer=$!
bash -c "echo 0 >$block/slow/queue/nomerges" 2>/dev/null &
queued=$!
sleep 0.1
stop_nullbd
! mounted "$sys" || fail "SIGTERM leaves it mounted, with somebody inside"
wait $writer && fail "a write that waited is told that it was done"
wait $queued && fail "a write that was queued is told that it was done"
kill $inside
wait $inside "$job" 2>/dev/null
exec 5<&-
# killed: the next one clears it away
for i in 1 2; do
	start_nullbd --sysfs "$sys" nullb0:size=64
	kill -KILL $pid
	wait $pid 2>/dev/null
	pid=
	refused 'not connected' ls "$sys"
done
mkdir "$tmp/sys2"
ln -s "$sys" "$tmp/sys-link"
start_nullbd --sysfs "$tmp/sys-link" nullb0:size=64
is 131072 "$block/nullb0/size"
[ "$(grep -c " $sys " /proc/self/mounts)" = 1 ] || fail "mounted more than once"
# two daemons: the second is refused, and the first goes on
refused 'mounted there already' "$NULLBD" -U "$tmp/other" --sysfs "$sys" a:size=1M
"$NULLBD" -U "$tmp/other" --sysfs "$tmp/sys2" a:size=1M 2>/dev/null &
other=$!
until_true test -e "$tmp/sys2/block/a/stat"
is 2048 "$tmp/sys2/block/a/size"
is 131072 "$block/nullb0/size"
kill $other
wait $other || fail "the other daemon ends otherwise"
# someone else unmounts it: the daemon goes on
umount -l "$sys" 2>/dev/null || fusermount3 -uzq "$sys"
until_true grep -q 'not mounted any more' "$log"
[ "$(ctl get nullb0 size)" = 64 ] || fail "it does not go on without --sysfs"
stop_nullbd
rm "$tmp/sys-link"
refused 'No such file' "$NULLBD" -U "$tmp/other" --sysfs "$tmp/missing" a:size=1M
refused 'not a directory' "$NULLBD" -U "$tmp/other" --sysfs "$log" a:size=1M
[ ! -e "$tmp/other" ] || fail "who was refused leaves a socket behind"

echo "-- where the kernel has them"
in_kernel=$(dirname "$0")/../../daemon/nullb-sysfs
if unshare --mount true 2>/dev/null && [ -d /sys/block ]; then
	start_nullbd --sysfs "$sys" nullb0:size=64
	# as blktests looks for what null_blk can, makes a device, and lets it go
	cat >"$tmp/script" <<-'END'
		set -e
		grep -qw badblocks_once /sys/kernel/config/nullb/features
		mkdir /sys/kernel/config/nullb/t
		echo 64 >/sys/kernel/config/nullb/t/size
		echo 1 >/sys/kernel/config/nullb/t/power
		test "$(cat /sys/block/t/size)" = 131072
		cat /sys/block/nullb0/stat
		rmdir /sys/kernel/config/nullb/t
		for f in /sys/kernel/*; do
			ls -d "$f"
		done
		exit 3
	END
	timeout 20 "$in_kernel" "$sys" bash "$tmp/script" >"$tmp/out" 2>&1
	[ $? = 3 ] || fail "nullb-sysfs: $(<"$tmp/out")"
	for f in /sys/kernel/*; do
		grep -qx "$f" "$tmp/out" || fail "nullb-sysfs: $f is missing"
	done
	# there it is as on a machine that has configfs
	timeout 20 "$in_kernel" "$sys" -- "$in_kernel" "$sys" ls /sys/kernel/config/nullb \
		>"$tmp/out" 2>&1 || fail "nullb-sysfs in itself: $(<"$tmp/out")"
	[ "$(<"$tmp/out")" = $'features\nnullb0' ] || fail "nullb-sysfs: $(<"$tmp/out")"
	! grep -q "nullb-sysfs" /proc/self/mounts || fail "a mount is left"
	refused 'no nullbd' "$in_kernel" "$tmp" true
	refused '^nullb-sysfs: none: not found, or no program$' "$in_kernel" "$sys" none
	stop_nullbd
else
	echo "left out: no mount namespace"
fi

echo "-- without root"
if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1 && command -v setpriv >/dev/null &&
	command -v fusermount3 >/dev/null; then
	mkdir "$tmp/nobody" "$tmp/sys-nobody"
	chmod 755 "$tmp"
	chown nobody "$tmp/nobody" "$tmp/sys-nobody"
	cp "$NULLBD" "$tmp/nullbd"
	nobody=(timeout 20 setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
	reason=
	for i in 1 2; do # the second one finds a mount that is stale
		pidfile=$tmp/nobody/pid$i
		"${nobody[@]}" "$tmp/nullbd" -U "$tmp/nobody/sock" --pidfile "$pidfile" \
			--sysfs "$tmp/sys-nobody" a:size=64 2>"$tmp/nobody.log" &
		other=$!
		until [ -e "$pidfile" ] || ! kill -0 $other 2>/dev/null; do
			sleep 0.02
		done
		[ -e "$pidfile" ] || {
			reason=$(<"$tmp/nobody.log")
			break
		}
		daemon=$(<"$pidfile")
		"${nobody[@]}" bash -c "cd $tmp/sys-nobody && mkdir config/nullb/b &&
			echo 64 >config/nullb/b/size && echo 1 >config/nullb/b/power &&
			cat block/b/stat && rmdir config/nullb/b" >"$tmp/out" ||
			fail "nobody's files: $(<"$tmp/nobody.log")"
		cp "$in_kernel" "$tmp/nullb-sysfs"
		! "${nobody[@]}" unshare --map-root-user --mount true 2>/dev/null ||
			"${nobody[@]}" "$tmp/nullb-sysfs" "$tmp/sys-nobody" \
				cat /sys/block/a/stat >"$tmp/out" 2>&1 ||
			fail "nobody's nullb-sysfs: $(<"$tmp/out")"
		if [ $i = 1 ]; then
			kill -KILL "$daemon"
			wait $other 2>/dev/null
			mounted "$tmp/sys-nobody" || fail "it was not killed"
		else
			kill "$daemon"
			wait $other || fail "nobody's daemon: $(<"$tmp/nobody.log")"
			! mounted "$tmp/sys-nobody" || fail "nobody's stays mounted"
		fi
	done
	[[ -z $reason ]] || {
		[[ $i == 1 && $reason == */dev/fuse* ]] || fail "nobody: $reason"
		echo "left out: $reason"
	}
else
	echo "left out: not root, or setpriv or fusermount3 are missing"
fi

echo "-- storms"
start_nullbd --sysfs "$sys" base:size=64,memory_backed=1
deadline=$((SECONDS + 8))
storm() {
	local n=$1 name value

	RANDOM=$n
	while [ $SECONDS -lt $deadline ]; do
		name=d$((RANDOM % 3))
		value=$((RANDOM % 2))
		case $((RANDOM % 10)) in
		0) mkdir "$config/$name" ;;
		1) rmdir "$config/$name" ;;
		2 | 3) echo $value >"$config/$name/power" ;;
		4) echo $value >"$config/$name/memory_backed" ;;
		5) echo mq-deadline >"$block/$name/queue/scheduler" ;;
		6) echo none >"$block/base/queue/scheduler" ;;
		7) echo $((value * 30)) >"$config/$name/requeue_inject/probability" ;;
		8) cat "$block/$name/stat" "$block/$name/queue/"* ;;
		9) ls -lR "$sys" ;;
		esac
	done >/dev/null 2>&1
}
storm_control() {
	local name value

	while [ $SECONDS -lt $deadline ]; do
		name=d$((RANDOM % 3))
		value=$((RANDOM % 2))
		case $((RANDOM % 6)) in
		0) ctl create "$name" size=64 ;;
		1) ctl remove "$name" ;;
		2) ctl power "$name" $value ;;
		3) ctl set base scheduler mq-deadline ;;
		4) ctl set base nomerges $value ;;
		5) ctl get "$name" ;;
		esac
	done >/dev/null 2>&1
}
storm_io() {
	while [ $SECONDS -lt $deadline ]; do
		timeout 20 fio --name=io --ioengine=nbd --uri="$(uri "$1")" --rw=randrw --bs=4k \
			--iodepth=16 --size=16m --time_based --runtime=2 || sleep 0.05
	done >/dev/null 2>&1
}
children=()
for i in 1 2 3 4; do
	storm $i &
	children+=($!)
done
storm_control &
children+=($!)
for name in base d0 d1; do
	storm_io $name &
	children+=($!)
done
for child in "${children[@]}"; do
	wait "$child"
done
kill -0 "$pid" 2>/dev/null || fail "nullbd has died in a storm"
for name in d0 d1 d2; do
	[ ! -e "$config/$name" ] || timeout 10 rmdir "$config/$name" || fail "rmdir $name"
done
[ "$(ls "$config")" = $'base\nfeatures' ] || fail "after the storm: $(ls "$config")"
is 131072 "$block/base/size"
fio --name=x --ioengine=nbd --uri="$(uri base)" --rw=write --bs=4k --size=1m >"$tmp/fio" ||
	fail "fio after the storm: $(<"$tmp/fio")"
stop_nullbd
! mounted "$sys" || fail "it stays mounted"
