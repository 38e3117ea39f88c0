#!/bin/bash
# SPDX-License-Identifier: MIT
# What the daemon takes while nothing happens, and what it takes to remember:
# no wake-up, little for a connection and beside the data, nothing for what is
# over.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need python3
load=$(dirname "$NULLBD")/bench/load
[ -x "$load" ] || fail "$load is not there"

# How often threads of the daemon went to sleep, or lost the processor.
switches() {
	awk '/ctxt_switches/ { n += $2 } END { print n }' \
		/proc/"$pid"/task/*/status
}

# run OPTION...: load, on the daemon
run() {
	"$load" --unix "$sock" "$@" >"$tmp/load" || fail "load $*"
}

start_nullbd nullb0:size=256M,memory_backed=1,irqmode=timer
sanitized && skip "a sanitizer's daemon takes more"
empty=$(rss_kib)

# Idle, after work, with a connection that is silent: what was to be waited for
# is over.
run --requests 20000 --depth 32 --rw mixed
python3 - "$sock" <<'END' &
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.recv(18)
s.sendall((3).to_bytes(4, "big") + b"IHAVEOPT" + (1).to_bytes(4, "big") + bytes(4))
assert len(s.recv(10, socket.MSG_WAITALL)) == 10
time.sleep(60)
END
silent=$!
sleep 1
before=$(switches)
sleep 2
bound "wake-ups of an idle daemon in 2 s" $(($(switches) - before)) 0
kill $silent || fail "the silent client is gone"
wait $silent
stop_nullbd

# Data that is dense, and the nodes and slabs it is in.
start_nullbd nullb0:size=512M,memory_backed=1
run --prefill --requests 1 --depth 4
full=$(rss_kib)
bound "KiB to keep 512 MiB, beside them" $((full - empty - 512 * 1024)) \
	$((512 * 1024 * 3 / 100))

# A million requests of all sizes later it is the same, but for pages that a loop
# has at hand (4 MiB at most): 8 bytes a request would be more.
run --requests 1000000 --bs 4k --depth 64 --rw mixed
run --requests 20000 --bs 64k --depth 8 --rw mixed
run --requests 2000 --bs 1m --depth 4 --rw mixed
before=$(rss_kib)
run --requests 1000000 --bs 4k --depth 64 --rw mixed
run --requests 20000 --bs 64k --depth 8 --rw mixed
run --requests 2000 --bs 1m --depth 4 --rw mixed
bound "KiB more after a million requests" $(($(rss_kib) - before)) 8192
stop_nullbd

# Payloads that were announced, and of which a byte came: memory follows the
# bytes, not the promise, and comes back.
start_nullbd nullb0:size=64M,memory_backed=1
run --requests 1000
before=$(rss_kib)
python3 - "$sock" "$pid" <<'END' >"$tmp/promised" || fail "60 headers"
import re, socket, struct, sys, time
clients = []
for i in range(60):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.recv(18)
    s.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, 0))
    assert len(s.recv(10, socket.MSG_WAITALL)) == 10
    s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, i, 0, 32 << 20) + b"x")
    clients.append(s)
time.sleep(1)
print(re.search(r"VmRSS:\s*(\d+)", open("/proc/%s/status" % sys.argv[2]).read())[1])
END
bound "KiB for 60 writes of 32 MiB that have not come" \
	$(($(<"$tmp/promised") - before)) $((60 * 512))
sleep 1
bound "KiB more when they are gone" $(($(rss_kib) - before)) 16384
stop_nullbd

# Connections that are silent, most of them.  (The most that the daemon has had
# is what counts: load closes them before we could look.)
peak_kib() {
	awk '/^VmHWM/ { print $2 }' "/proc/$pid/status"
}
ulimit -n 4096 2>/dev/null || skip "1000 connections need file descriptors"
start_nullbd nullb0:size=64M
run --requests 1000
before=$(peak_kib)
run --requests 1000 --idle 1000
bound "KiB for 1000 idle connections" $(($(peak_kib) - before)) 64000
stop_nullbd
