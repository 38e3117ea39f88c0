#!/bin/bash
# SPDX-License-Identifier: MIT
# What I/O costs, in what no clock measures and no noise moves: instructions of
# the block layer a bio (callgrind), system calls of the daemon a request
# (strace).  The bounds are a tenth or so above what was counted when they were
# written; who makes it cheaper lowers them.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need valgrind strace
cost=$(dirname "$NULLBD")/bench/cost load=$(dirname "$NULLBD")/bench/load
[ -x "$cost" ] || fail "$cost is not there"
[ -x "$load" ] || fail "$load is not there"

# instructions ARGUMENT...: of a run of cost
instructions() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$cost" "$@" \
		2>"$tmp/callgrind" || fail "cost $*: $(cat "$tmp/callgrind")"
	awk '/Collected/ { print $4 }' "$tmp/callgrind"
}

# beyond FEW MANY DEVICES KIND [SETTING]...: instructions a bio beyond the first
# few, start and end left out
beyond() {
	local from=$1 to=$2 few many

	shift 2
	few=$(instructions "$from" "$@") && many=$(instructions "$to" "$@") ||
		exit 1
	echo $(((many - few) / (to - from)))
}

a_bio() {
	beyond 3200 19200 "$@"
}

one=$(a_bio 1 random) || exit 1
bound "instructions a bio, none merges" "$one" 1600
bound "instructions a bio, in requests of 31" "$(a_bio 1 merging)" 900
bound "instructions a bio under mq-deadline" \
	"$(a_bio 1 random scheduler=mq-deadline)" 2450
# flat in the number of devices and in their size
bound "instructions a bio, 64 devices" "$(a_bio 64 random)" $((one * 11 / 10))
bound "instructions a bio, a device of 8 EiB" \
	"$(a_bio 1 random size=9223372036854775296B)" $((one * 11 / 10))

# and nearly so in how many wait for their time to come
pending=(irqmode=timer completion_nsec=1ms hw_queue_depth=2000)
few=$(beyond 9600 25600 100 100 "${pending[@]}") || exit 1
bound "instructions a bio, 100000 wait for the timer, not 100" \
	"$(beyond 112000 128000 100 100000 "${pending[@]}")" $((few * 3 / 2))

# a batch is read, submitted and answered with few system calls
start_nullbd --workers 1 nullb0:size=64M
strace -f -qq -e trace=recvmsg,sendmsg -o "$tmp/calls" -p "$pid" &
tracer=$!
sleep 0.5
requests=20000
"$load" --unix "$sock" --bs 4k --depth 32 --batch 32 --rw read \
	--requests $requests >/dev/null || fail "load"
kill -INT $tracer
wait $tracer
for call in recvmsg sendmsg; do
	n=$(grep -c " $call(" "$tmp/calls")
	bound "$call of $requests requests in batches of 32" "$n" $((requests / 16))
	[ "$n" -gt 0 ] || fail "strace has seen no $call"
done
stop_nullbd
