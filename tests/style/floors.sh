#!/bin/sh
# SPDX-License-Identifier: MIT
# The floors of daemon/: which folder may include which, and that only the
# files directly in daemon/ see the event loop, threads' starts and the clock.
# plugins/ stands beside those, on all floors but nbd/ (their host has NBD), and
# has no event loop.
cd "$(dirname "$0")/../.." || exit 1
allow() {
	case $1 in
	blk) echo base ;;
	dev | nbd) echo base blk ;;
	ctl) echo base blk dev ;;
	compare) echo base ;;
	plugins) echo base blk dev ctl ;;
	esac
}
bad=0
fault() {
	echo "$*"
	bad=1
}
for f in $(find daemon -mindepth 2 -name '*.[ch]') plugins/*.[ch]; do
	own=$(basename "$(dirname "$f")")
	for inc in $(sed -n 's/^#include "\([a-z]*\)\/.*/\1/p' "$f"); do
		case " $own $(allow "$own") " in
		*" $inc "*) ;;
		*) fault "$f: must not include $inc/" ;;
		esac
	done
	grep -Hn '^#include "\.' "$f" && bad=1
	grep -Hn '<ev\.h>\|<sys/socket\.h>' "$f" && bad=1
	[ "$own" != plugins ] || {
		grep -Hn '"daemon\.h"' "$f" && bad=1
		continue
	}
	grep -Hn 'clock_gettime\|gettimeofday\|pthread_create\|time(NULL)' "$f" &&
		bad=1
done
# the core speaks through return values; only the edges log
for f in daemon/blk/*.c daemon/dev/*.c daemon/nbd/*.c; do
	grep -Hn 'base/log\.h\|fprintf(stderr\|[^a-z_]exit(' "$f" && bad=1
done
# each source file has its licence, each its test of the same name
for f in $(git ls-files '*.[ch]'); do
	head -n 1 "$f" | grep -q SPDX || fault "$f: line 1 is not its licence"
done
for f in daemon/base/*.c daemon/blk/*.c daemon/dev/*.c daemon/nbd/*.c \
	daemon/ctl/*.c daemon/compare/*.c plugins/service.c; do
	t=tests/unit/$(basename "$f")
	[ -e "$t" ] || fault "$f: no $t"
done
exit $bad
