#!/bin/bash
# SPDX-License-Identifier: MIT
# Traces: blktrace's own tools read what the daemon and nullbctl write, slow
# and dying readers harm nobody, a full disk ends a trace and not the daemon.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need blkparse blkrawverify btt iowatcher fio python3
[ -x "$NULLBCTL" ] || fail "$NULLBCTL is not there"
NULLBD=$(realpath "$NULLBD") NULLBCTL=$(realpath "$NULLBCTL")
cd "$tmp" || fail "$tmp"
WAIT_S=10

# writes FIRST N EXPORT: N adjacent writes of 4 KiB from block FIRST on, all of
# them in one send: a batch, one plug
writes() {
	python3 - "$sock" "$@" <<'EOF'
import socket, struct, sys
path, first, n, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
s = socket.socket(socket.AF_UNIX)
s.connect(path)
def get(n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        assert more, "hung up"
        data += more
    return data
get(18)
s.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, len(name)) + name.encode())
get(10)
s.sendall(b"".join(
    struct.pack(">IHHQQI", 0x25609513, 0, 1, i, (first + i) * 4096, 4096) + bytes(4096)
    for i in range(n)))
for i in range(n):
    assert get(16)[4:8] == bytes(4), "an error"
s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
EOF
}

# load SECONDS EXPORT [FIO-OPTION]: two busy connections.  (Where nothing may be
# dropped their pace is bounded: else, on two cores, nobody has time to fetch.)
load() {
	fio --name=load --ioengine=nbd --uri="$(uri "$2")" --rw=randrw --bs=4k \
		--iodepth=32 --size=64m --time_based --runtime="$1" --numjobs=2 ${3:-} \
		>"$tmp/fio" 2>&1 || fail "fio: $(cat "$tmp/fio")"
}

# trace DEVICE BASE: in the background, as $tracer; running when it returns
trace() {
	local end=$((SECONDS + WAIT_S))

	"$NULLBCTL" --control "$control" trace "$1" -o "$2" 2>"$tmp/err" &
	tracer=$!
	until [ -e "$2.blktrace.0" ]; do # made once the daemon has agreed
		kill -0 $tracer 2>/dev/null || fail "trace $*: $(cat "$tmp/err")"
		[ $SECONDS -le $end ] || fail "trace $*: does not begin"
		sleep 0.02
	done
}

# is a trace of DEVICE running?  (one that is not refused ends at once)
is_traced() {
	! "$NULLBCTL" --control "$control" trace "$1" -o probe -w 0.001 \
		2>probe.err && grep -q "is being traced already" probe.err
}

# ended STATUS PATTERN: the tracer ends so, and says so
ended() {
	wait $tracer
	status=$?
	[ $status = "$1" ] || fail "trace: status $status: $(cat "$tmp/err")"
	grep -q "$2" "$tmp/err" || fail "trace says '$(cat "$tmp/err")', not '$2'"
}

# actions BASE: what a trace tells of each event: action, kind, sector, sectors
actions() {
	blkparse -q -i "$1" -f '%a %d %S %n\n' 2>/dev/null |
		sed '/events,.*dropped/d; /^$/d; /^Input file/d'
}

# a device that is traced to files from power-on; the path is relative
start_nullbd --workers 2 \
	"nullb0:size=64M,memory_backed=1,irqmode=2,completion_nsec=1ms,trace=boot" \
	"nullb1:size=64M,irqmode=2,completion_nsec=80us" "off:power=0" "nullb2:size=64M"

# ---- one batch, event by event
"$NULLBCTL" --control "$control" trace nullb0 2>"$tmp/err"
[ $? -eq 1 ] || fail "a second trace is not refused"
grep -qx "nullbctl: nullb0: is being traced already" "$tmp/err" ||
	fail "a second trace: $(cat "$tmp/err")"
writes 10 4 nullb0
# it can be read while it is written
for _ in $(seq 100); do
	actions boot >boot.txt
	grep -q '^C ' boot.txt && break
	sleep 0.05
done
want='Q WS 80 8
G WS 80 8
P N 0 0
Q WS 88 8
M WS 88 8
Q WS 96 8
M WS 96 8
Q WS 104 8
M WS 104 8
U N 0 0
D WS 80 32
C WS 80 32'
[ "$(cat boot.txt)" = "$want" ] || fail "a batch: $(cat boot.txt)"

# ---- a load, and the three tools
trace nullb1 one
load 1 nullb1 --rate_iops=4000
kill -INT $tracer
ended 0 "^nullb1: [1-9][0-9]* events, 0 dropped$"
[ "$(ls one.blktrace.* | tr '\n' ' ')" = "one.blktrace.0 one.blktrace.1 " ] ||
	fail "files: $(ls one.blktrace.*)"
blkrawverify one >/dev/null
grep -c '(100.0%)' one.verify.out | grep -qx 2 ||
	fail "blkrawverify: $(tail -n 40 one.verify.out)"
blkparse -O -q -i one -d one.bin >/dev/null 2>&1 || fail "blkparse -d"
actions one >one.txt
for a in Q G D C; do
	grep -q "^$a R " one.txt || fail "no $a of a read"
	grep -q "^$a WS " one.txt || fail "no $a of a write"
done
grep -c '^D ' one.txt | grep -qx "$(grep -c '^C ' one.txt)" ||
	fail "not as many C as D, though all has ended"
ios=$("$NULLBCTL" --control "$control" stat nullb1 | awk '{ print $1 + $5 }')
[ "$ios" = "$(grep -c '^D ' one.txt)" ] ||
	fail "stat counts $ios requests, the trace $(grep -c '^D ' one.txt)"
blkparse -q -i one -f '%C\n' 2>/dev/null >names.txt
grep -q '^conn [0-9]' names.txt || fail "nobody is called conn N"
btt -i one.bin >btt.txt 2>&1 || fail "btt: $(cat btt.txt)"
awk -v q="$(grep -c '^Q ' one.txt)" -v d="$(grep -c '^D ' one.txt)" '
	/^D2C/ { d2c = $3 >= 80e-6 && $3 < 1 } # each takes 80 us or more
	/^Q2C/ { q2c = $3 >= 80e-6 && $3 < 1 }
	/#Q *#D/ { table = 1 }
	table && /^ \(259, *1\)/ { nr = $4 == q && $5 == d; table = 0 }
	END { exit !(d2c && q2c && nr) }' btt.txt || fail "btt: $(head -n 40 btt.txt)"
iowatcher -t one -o one.svg >iowatcher.txt 2>&1 || fail "iowatcher: $(cat iowatcher.txt)"
grep -q '<svg' one.svg || fail "iowatcher made no SVG"

# ---- to a pipe: in order (cpu by cpu, half of the lines would go back)
mkfifo pipe
blkparse -q -i - -f '%T.%9t %a\n' <pipe >pipe.txt 2>/dev/null &
reader=$!
"$NULLBCTL" --control "$control" trace nullb1 -o - 2>"$tmp/err" >pipe &
tracer=$!
load 1 nullb1 --rate_iops=4000
kill -INT $tracer
ended 0 "^nullb1: [1-9][0-9]* events, 0 dropped$"
wait $reader || fail "blkparse -i -"
grep -q ' C$' pipe.txt || fail "-o -: no events"
# but for what a worker told late, because it had to wait for a core
awk '$1 + 0 < last { back++ } { last = $1 + 0 } END { exit back > NR / 50 }' \
	pipe.txt || fail "-o -: times go back"

# ---- ended by the time; the name is the device's
"$NULLBCTL" --control "$control" trace nullb1 -w 0.2 2>"$tmp/err" ||
	fail "-w: $(cat "$tmp/err")"
[ -e nullb1.blktrace.0 ] || fail "-w: $(ls)"

# ---- a reader that does not read: events are dropped, the daemon is well
trace nullb2 slow
kill -STOP $tracer
before=$(rss_kib)
load 4 nullb2
grown=$(($(rss_kib) - before))
# what may wait (4 MiB, and as much while it is moved), and the rings
sanitized || [ $grown -lt $((24 * 1024)) ] || fail "grows by $grown KiB"
"$NULLBCTL" --control "$control" list >/dev/null || fail "the daemon hangs"
kill -CONT $tracer
kill -TERM $tracer
ended 0 "^nullb2: [1-9][0-9]* events, [1-9][0-9]* dropped$"
blkrawverify slow >/dev/null
grep -c '(100.0%)' slow.verify.out | grep -qx 2 || fail "slow: not valid"

# ---- a reader that dies, and one after it
trace nullb1 dead
load 1 nullb1
kill -KILL $tracer
wait $tracer 2>/dev/null
for _ in $(seq 100); do
	is_traced nullb1 || break
	sleep 0.05
done
trace nullb1 next
writes 0 1 nullb1
kill -INT $tracer
ended 0 "^nullb1: 6 events, 0 dropped$" # Q G P U D C

# ---- a client that speaks on is not heard; half a close ends the trace
python3 - "$control" >half.bin <<'EOF' || fail "half a close"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.settimeout(10)
s.sendall(b'{"command":"trace","name":"nullb1"}\n{"command":"list"}\nmore')
s.shutdown(socket.SHUT_WR)
data = b""
while True:
    more = s.recv(65536)
    if not more:
        break
    data += more
line, rest = data.split(b"\n", 1)
assert line == b'{"ok":true,"cpus":2}', line
assert rest[:4] == b"\x07tae", rest
assert rest.endswith(b"0 events, 0 dropped"), rest
EOF

# ---- what is refused
refused() { # STATUS PATTERN ARGUMENT...
	local want=$1 says=$2

	shift 2
	"$NULLBCTL" --control "$control" "$@" >/dev/null 2>"$tmp/err"
	[ $? -eq "$want" ] || fail "$*: status is not $want: $(cat "$tmp/err")"
	grep -q "$says" "$tmp/err" || fail "$*: $(cat "$tmp/err")"
}
refused 1 "off: the power is off" trace off
refused 1 "nope: no such device" trace nope
refused 1 "/nowhere/x.blktrace.0: No such file" trace nullb1 -o /nowhere/x
refused 2 "usage:" trace
refused 2 "usage:" --json trace nullb1
refused 2 "usage:" stat nullb1 -o x
refused 2 "usage:" list -w 1
refused 2 "seconds" trace nullb1 -w soon

# ---- the daemon ends: what is left comes, to the files and to nullbctl
trace nullb1 last
writes 0 4 nullb1
stop_nullbd
ended 0 "^nullb1: [1-9][0-9]* events, 0 dropped$"
[ "$(actions last | tail -n 1)" = "C WS 0 32" ] ||
	fail "the last event: $(actions last | tail -n 1)"
grep -q "nullb0: trace: 12 events, 0 dropped" "$log" ||
	fail "the log does not say what was traced"
grep -qa "12 events, 0 dropped" boot.blktrace.? || fail "no message in the file"

# ---- a full disk: one line, the daemon serves on; an impossible path: none
ln -s /dev/full full.blktrace.0
start_nullbd --workers 1 "nullb0:size=64M,trace=full"
writes 0 4 nullb0
for _ in $(seq 100); do
	grep -q "nullb0: trace: full: No space left on device: stopped" "$log" && break
	sleep 0.05
done
writes 0 4 nullb0
grep -c "No space left on device" "$log" | grep -qx 1 || fail "a full disk"
is_traced nullb0 && fail "a trace that failed goes on"
"$NULLBCTL" --control "$control" stat nullb0 >/dev/null || fail "the daemon died"
stop_nullbd
"$NULLBD" -U "$sock" "nullb0:trace=/nowhere/x" 2>"$tmp/err" && fail "/nowhere is taken"
grep -q "nullb0: trace: /nowhere/x.blktrace.0: No such file" "$tmp/err" ||
	fail "/nowhere: $(cat "$tmp/err")"
[ -e "$sock" ] && fail "a daemon that gave up leaves its socket"
exit 0
