#!/bin/bash
# SPDX-License-Identifier: MIT
# nullbctl attach --persist: the connection is lost, or the daemon is, and
# comes back, under fio and under a mounted file system: requests wait for it.
# (What a daemon had in its memory ends with it: ext4 finds a blank device.)

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

# again: a daemon at the same sockets, and nbd-client finds it
again() {
	rm -f "$sock" "$control"
	start_nullbd nullb0:size=128M,memory_backed=1,discard=1
	until_true "nbd-client connects again" eval '[ "$(connections nullb0)" = 2 ]'
	until_true "/dev/nbd0 works again" works
}

works() {
	[ "$(timeout 20 dd if=/dev/nbd0 bs=4k count=1 iflag=direct 2>/dev/null | wc -c)" = 4096 ]
}

end_daemon() {
	kill "-$1" "$pid"
	wait "$pid" 2>/dev/null
	pid=
}

kick() {
	must ctl kick "$(ctl clients | awk '/transmission/ { print $1; exit }')"
}

# written_now N: a block is written, and is in the store of this daemon
written_now() {
	head -c 4096 /dev/urandom >"$tmp/block"
	timeout 60 dd if="$tmp/block" of=/dev/nbd0 bs=4k count=1 seek="$1" \
		oflag=direct 2>"$tmp/must" || fail "a write fails: $(<"$tmp/must")"
	must nbdcopy "$(uri nullb0)" "$tmp/image"
	cmp -n 4096 -i $(($1 * 4096)):0 "$tmp/image" "$tmp/block" ||
		fail "block $1 is not in the device"
}

start_nullbd nullb0:size=128M,memory_backed=1,discard=1
attach nullb0 --persist -C 2 -t 3

case_is "connections that are kicked come back, and fio does not notice"
fio --name=x --filename=/dev/nbd0 --direct=1 --ioengine=libaio --rw=randwrite \
	--bs=4k --size=16m --iodepth=8 --verify=crc32c --verify_fatal=1 \
	--time_based --runtime=15 >"$tmp/fio" 2>&1 &
load=$!
for i in 1 2 3 4; do
	sleep 2
	kick
	until_true "two are there again" eval '[ "$(connections nullb0)" = 2 ]'
done
wait $load || {
	tail -n 20 "$tmp/fio" >&2
	fail "fio fails"
}
written_now 100

for signal in TERM KILL; do
	case_is "the daemon ends by SIG$signal and another takes its place"
	written_now 300
	end_daemon $signal
	again
	written_now 400
	is "$(od -An -tx1 -N 16 -j $((300 * 4096)) "$tmp/image" | tr -d ' 0\n')" "" \
		"what the first had in memory"
done

case_is "a write that comes while no daemon is there waits for the next one"
end_daemon KILL
head -c 4096 /dev/urandom >"$tmp/block"
dd if="$tmp/block" of=/dev/nbd0 bs=4k count=1 seek=600 oflag=direct 2>"$tmp/must" &
writer=$!
sleep 3
kill -0 $writer 2>/dev/null || fail "it did not wait: $(<"$tmp/must")"
again
wait $writer || fail "it fails: $(<"$tmp/must")"
must nbdcopy "$(uri nullb0)" "$tmp/image"
cmp -n 4096 -i $((600 * 4096)):0 "$tmp/image" "$tmp/block" || fail "it is not there"

case_is "ext4 is mounted meanwhile: no write fails, none hangs"
must mkfs.ext4 -q -F /dev/nbd0
must mount /dev/nbd0 /mnt
(
	i=0
	while [ ! -e "$tmp/enough" ]; do
		i=$((i + 1))
		dd if=/dev/zero of="/mnt/$((i % 20))" bs=16k count=4 conv=fsync \
			2>"$tmp/writer" || {
			cp "$tmp/writer" "$tmp/failures"
			break
		}
		echo $i >"$tmp/written"
		sleep 0.05
	done
) &
writer=$!
sleep 2
end_daemon KILL
sleep 2
again
before=$(<"$tmp/written")
until_true "the writer goes on" eval '[ "$(<"$tmp/written")" -gt $((before + 2)) ]'
touch "$tmp/enough"
for i in $(seq 60); do
	kill -0 $writer 2>/dev/null || break
	sleep 1
done
kill -0 $writer 2>/dev/null && fail "the writer hangs"
[ ! -s "$tmp/failures" ] || fail "a write fails: $(<"$tmp/failures")"
[ "$(ctl stat nullb0 | awk '{ print $7 }')" -gt 0 ] || fail "nothing was written"
timeout 60 umount /mnt || fail "umount hangs, or fails"
written_now 500

case_is "and is detached for good"
detach
sleep 2
detached /dev/nbd0 || fail "it has been attached again"
is "$(connections nullb0)" 0 "connections"
until_true "who kept it has gone" eval '! pgrep -f "nullbctl.*--persist" >/dev/null'
cases_end
