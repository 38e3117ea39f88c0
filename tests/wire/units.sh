#!/bin/bash
# SPDX-License-Identifier: MIT
# The systemd units: systemd understands them as installed, finds the service
# well shut in, and its socket activation starts the daemon.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need systemd-analyze make
MAX_EXPOSURE=20 # in tenths, of systemd-analyze's 0 to 10

make -s install DESTDIR="$tmp/root" PREFIX=/opt/nullbd >"$log" 2>&1 ||
	fail "make install"
units=$tmp/root/opt/nullbd/lib/systemd/system
[ "$(cd "$units" && echo *)" = \
	"nullbd-control.socket nullbd.service nullbd.socket" ] ||
	fail "installed are $(ls "$units")"
grep -q '^ExecStart=/opt/nullbd/sbin/nullbd ' "$units/nullbd.service" ||
	fail "the service does not start what was installed"
! grep -r /usr/local "$units" || fail "a path that was not installed to"

# verify looks for the program, which is below $tmp
sed -i "s|=/opt/|=$tmp/root/opt/|" "$units/nullbd.service"
for u in "$units"/*; do
	systemd-analyze verify --man=no "$u" >"$log" 2>&1 ||
		fail "systemd-analyze verify ${u##*/}"
	# it warns of what it does not know, too, and is content
	! grep -F nullbd "$log" || fail "${u##*/} is complained about"
done

out=$(systemd-analyze security --offline=true "$units/nullbd.service" 2>"$log") ||
	fail "systemd-analyze security"
exposure=$(sed -n 's/.*exposure level for nullbd.service: \([0-9]*\)\.\([0-9]\) OK.*/\1\2/p' \
	<<<"$out")
[ -n "$exposure" ] || fail "not OK: $(tail -n 1 <<<"$out")"
bound "exposure, in tenths" "$((10#$exposure))" $MAX_EXPOSURE

# as the manager does it: a connection starts the daemon, which gets the socket
need systemd-socket-activate nbdinfo
systemd-socket-activate -l "$sock" --fdname=nbd "$NULLBD" nullb0:size=1M \
	>"$log" 2>&1 &
pid=$!
for _ in $(seq 200); do
	listening "$sock" && break
	sleep 0.02
done
[ "$(nbdinfo --size "$(uri nullb0)")" = 1048576 ] || fail "nobody serves"
kill -TERM $pid
wait $pid || fail "status $?"
pid=
[ -S "$sock" ] || fail "the manager's socket file was removed"
exit 0
