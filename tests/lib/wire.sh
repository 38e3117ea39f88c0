# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the scripts of tests/wire share.  A script sources this, then calls
# start_nullbd, the client, stop_nullbd.  Exit: 0 passed, 1 failed, 77 skipped
# (something is missing, and it says what).  Everything is in a directory of
# its own, and only what was started here is ended.

set -u -o pipefail

NULLBD=${NULLBD:-build/nullbd}
NULLBCTL=${NULLBCTL:-$(dirname "$NULLBD")/nullbctl}
READY_S=15
STOP_S=5

tmp=$(mktemp -d "${TMPDIR:-/tmp}/nullb-wire-XXXXXX")
sock=$tmp/sock
control=$tmp/control
log=$tmp/log
pid=

# is a --sysfs mounted at PATH?
mounted() {
	grep -q " $1 fuse.nullbd " /proc/self/mounts
}

unmount() {
	umount -l "$1" 2>/dev/null || fusermount3 -uzq "$1" 2>/dev/null
}

cleanup() {
	local dir

	if [ -n "$pid" ]; then
		kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	fi
	for dir in "$tmp"/sys*; do # what a daemon that was killed leaves
		while mounted "$dir"; do
			unmount "$dir" || break
		done
	done
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

skip() {
	echo "skipped: $*"
	exit 77
}

fail() {
	echo "FAILED: $*" >&2
	if [ -s "$log" ]; then
		echo "the daemon's log ends so:" >&2
		tail -n 30 "$log" | sed 's/^/  | /' >&2
	fi
	exit 1
}

# bound WHAT HAS ALLOWED
bound() {
	echo "$1: $2, allowed $3"
	[ "$2" -le "$3" ] || fail "$1: $2, allowed are $3"
}

# need PROGRAM...: skip without them
need() {
	local p

	for p; do
		command -v "$p" >/dev/null || skip "$p is missing"
	done
}

# is PATH a socket that listens?  (without connecting to it)
listening() {
	grep -q " 00010000 .* $1\$" /proc/net/unix
}

# start_nullbd ARGUMENT...: with -U "$sock" and --control "$control"
start_nullbd() {
	local end=$((SECONDS + READY_S))

	[ -x "$NULLBD" ] || fail "$NULLBD is not there"
	"$NULLBD" -U "$sock" --control "$control" "$@" >>"$log" 2>&1 &
	pid=$!
	until listening "$sock" && { [ -n "${PLUGIN:-}" ] || listening "$control"; }; do
		kill -0 "$pid" 2>/dev/null || fail "nullbd $* does not start"
		[ $SECONDS -le $end ] || fail "nullbd $* does not listen"
		sleep 0.02
	done
}

# SIGTERM, exit status 0 within STOP_S seconds, its sockets gone
stop_nullbd() {
	local end=$((SECONDS + STOP_S + 1)) status

	kill -0 "$pid" 2>/dev/null || fail "nullbd has died"
	kill -TERM "$pid"
	while kill -0 "$pid" 2>/dev/null; do
		[ $SECONDS -le $end ] || fail "nullbd does not end in $STOP_S s"
		sleep 0.02
	done
	wait "$pid"
	status=$?
	pid=
	[ $status -eq 0 ] || fail "nullbd exits with $status"
	if [ -n "${PLUGIN:-}" ]; then
		rm -f "$sock" # nbdkit lets it lie
	elif [ -e "$sock" ] || [ -e "$control" ]; then
		fail "nullbd leaves its sockets behind"
	fi
}

# can there be a --sysfs?
need_sysfs() {
	[ -w /dev/fuse ] || skip "/dev/fuse cannot be opened"
	[ "$(id -u)" = 0 ] || need fusermount3
}

# a TCP port of 127.0.0.1 that nobody uses
free_port() {
	local port

	while :; do
		port=$((20000 + RANDOM % 10000))
		grep -q "$(printf ':%04X ' $port)" /proc/net/tcp || break
	done
	echo $port
}

rss_kib() {
	awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"
}

sanitized() {
	grep -q -e libasan -e libtsan "/proc/$pid/maps"
}

# the URI of an export at a TCP port; nbdkit, which has one place alone, is there
tcp_uri() {
	if [ -n "${PLUGIN:-}" ]; then
		uri "$2"
	else
		echo "nbd://127.0.0.1:$1/$2"
	fi
}

# the URI of an export of the UNIX socket
uri() {
	echo "nbd+unix:///${1-}?socket=$sock"
}
