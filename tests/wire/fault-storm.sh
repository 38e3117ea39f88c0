#!/bin/bash
# SPDX-License-Identifier: MIT
# Clients that come, do I/O and go, while rules of every kind come and go, too:
# in the end nobody is left, nothing hangs, all is as good as new, and the
# daemon ends in time.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

SECONDS_OF_STORM=5

# nbdsh runs whatever python3 comes first, which need not be Debian's
for python in python3 /usr/bin/python3 ''; do
	[ -z "$python" ] || ! "$python" -c 'import nbd' 2>/dev/null || break
done
[ -n "$python" ] || skip "python3-libnbd is missing"

ctl() {
	"$NULLBCTL" --control "$control" "$@" >"$tmp/out" 2>&1 ||
		fail "$*: $(<"$tmp/out")"
}

cat >"$tmp/client.py" <<-'END'
	import nbd, random, sys, time
	uri, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
	random.seed(seed)
	end = time.monotonic() + seconds
	def some(h):
	    n = random.choice([512, 4096, 65536, 131072])
	    pos = random.randrange(0, (64 << 20) - n) // 512 * 512
	    what = random.random()
	    if what < .5:
	        h.aio_pread(nbd.Buffer(n), pos)
	    elif what < .6:
	        h.aio_zero(n, pos)
	    else:
	        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(n)), pos)
	def burst(h, stop):
	    while time.monotonic() < stop:
	        while h.aio_in_flight() < 24:
	            some(h)
	        h.poll(20)
	        while True:
	            c = h.aio_peek_command_completed()
	            if c <= 0:
	                break
	            try:
	                h.aio_command_completed(c)
	            except nbd.Error:
	                pass # that is what it is about
	while time.monotonic() < end:
	    try:
	        h = nbd.NBD()
	        h.connect_uri(uri)
	        burst(h, time.monotonic() + random.random())
	    except nbd.Error:
	        pass # dropped: another one
END

start_nullbd --workers 3 \
	"nullb0:size=64M,memory_backed=1,submit_queues=2,hw_queue_depth=16,discard=1" \
	"nullb1:size=64M,memory_backed=1,scheduler=mq-deadline,irqmode=2,mbps=200"

clients=()
for i in 1 2 3 4; do
	"$python" "$tmp/client.py" "$(uri nullb$((i % 2)))" "$i" \
		$SECONDS_OF_STORM 2>"$tmp/client$i" &
	clients[i]=$!
done
end=$((SECONDS + SECONDS_OF_STORM))
while [ $SECONDS -lt $end ]; do
	for d in nullb0 nullb1; do
		for rule in chance=30,status=NOSPC chance=20,delay=5ms \
			op=READ,action=corrupt,chance=5 \
			op=WRITE,action=torn,chance=7 \
			action=misdirected,shift=3,chance=7 \
			action=lost,chance=7 chance=50,action=hang \
			action=drop,at=mid-payload,chance=500; do
			ctl fault $d add $rule
		done
		ctl set $d timeout_nsec 3ms
		ctl set $d timeout 1,2,0,-1
		ctl set $d requeue 1,10,0,-1
		sleep 0.1
		ctl fault $d release
		ctl fault $d log
		[ -s "$tmp/out" ] || fail "$d: nothing was hit"
		ctl fault $d remove all
		ctl set $d timeout ""
		ctl set $d requeue ""
	done
done
for i in 1 2 3 4; do
	wait "${clients[i]}" || fail "$(<"$tmp/client$i")"
done
for ((i = 0; ; i++)); do
	ctl clients
	[ "$(wc -l <"$tmp/out")" -gt 1 ] || break
	[ $i -lt 100 ] || fail "somebody is left: $(<"$tmp/out")"
	sleep 0.05
done
for d in nullb0 nullb1; do
	"$python" -c "
import nbd
h = nbd.NBD()
h.connect_uri('$(uri $d)')
h.pwrite(b'x' * (1 << 20), 0)
assert h.pread(1 << 20, 0) == b'x' * (1 << 20)
" || fail "$d: not as good as new"
	ctl inflight $d
	read -r reads writes <"$tmp/out"
	[ "$reads $writes" = "0 0" ] || fail "$d: in flight are $reads, $writes"
done
stop_nullbd
exit 0
