# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the scripts of tests/kernel share.  They run as root in a guest (see
# boot), each in one of its own: nothing needs to be undone.  On top of
# tests/lib/wire.sh, which starts daemons: devices of this kernel, and cases.
#
#	case_is "what is tested" ...; what fails ends the script

# shellcheck source=tests/lib/wire.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/wire.sh"

WAIT_S=30 # for what takes a moment: all is emulated

[ "$(id -u)" = 0 ] && [ -e /io/stage2 ] || skip "for tests/kernel/boot alone"
modprobe nbd max_part=8 2>/dev/null || skip "this kernel has no nbd"
kernel=$(uname -r)
this_case=

# The case before it, if any, has passed: a line that tests/run counts.
end_case() {
	[ -z "$this_case" ] || echo "[       OK ] $this_case"
	this_case=
}

case_is() {
	end_case
	this_case=$*
	echo "[ RUN      ] $this_case"
	dmesg -C
}

# at the end of a script
cases_end() {
	end_case
	exit 0
}

# tests/lib/wire.sh's, with what the kernel said
fail() {
	echo "FAILED: $*" >&2
	[ -z "$this_case" ] || echo "[  FAILED  ] $this_case"
	echo "the kernel, $kernel, said:" >&2
	dmesg | tail -n 30 | sed 's/^/  | /' >&2
	if [ -s "$log" ]; then
		echo "the daemon's log ends so:" >&2
		tail -n 30 "$log" | sed 's/^/  | /' >&2
	fi
	exit 1
}

# until WHAT COMMAND...: the command succeeds, soon
until_true() {
	local what=$1 end=$((SECONDS + WAIT_S))

	shift
	until "$@"; do
		[ $SECONDS -le $end ] || fail "$what: not within $WAIT_S s"
		sleep 0.1
	done
}

# a command that must succeed, quietly
must() {
	local status

	"$@" >"$tmp/must" 2>&1
	status=$?
	[ $status = 0 ] || {
		tail -n 30 "$tmp/must" >&2
		fail "$*: status $status"
	}
}

# one that must not; what it said is in $tmp/must
must_fail() {
	! "$@" >"$tmp/must" 2>&1 || fail "$*: succeeds"
}

# has the kernel said so since the case began?
dmesg_has() {
	dmesg | grep -Eq "$1"
}

# sys DEVICE FILE: what /sys/block says of it
sys() {
	cat "/sys/block/${1#/dev/}/$2"
}

is() {
	[ "$1" = "$2" ] || fail "$3: '$1', not '$2'"
}

attached() {
	[ -e "/sys/block/${1#/dev/}/pid" ]
}

detached() {
	! attached "$1"
}

# ctl ARGUMENT...: nullbctl on the daemon that start_nullbd has started
ctl() {
	"$NULLBCTL" --control "$control" "$@"
}

# attach NAME [OPTION...]: it is /dev/nbd0
attach() {
	local name=$1

	shift
	must ctl attach "$@" "$name" /dev/nbd0
}

# and it is not any more
detach() {
	must ctl detach /dev/nbd0
}

# bytes of memory that a device's data takes
memory_of() {
	ctl list | awk -v name="$1" '$1 == name { print $6 }'
}

# its connections
connections() {
	ctl clients | grep -c " $1 .*transmission"
}
