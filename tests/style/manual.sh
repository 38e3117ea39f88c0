#!/bin/sh
# SPDX-License-Identifier: MIT
# Manuals have what the tables have: each command of the control socket in
# nullbd-control(7), of nullbctl in nullbctl(1), each metric in nullbd(8).
cd "$(dirname "$0")/../.." || exit 1
bad=0

# missing WHAT FILE PATTERN: no line of it is like that
missing() {
	grep -q -e "$3" "$2" || {
		echo "$2: nothing about $1"
		bad=1
	}
}

# rows FILE: the names that the table commands[] begins with
rows() {
	sed -n '/^} commands\[\] = {$/,/^};$/s/^	{ "\([a-z_]*\)",.*/\1/p' "$1"
}

nr=0
for c in $(rows daemon/ctl/control.c); do
	missing "$c" daemon/nullbd-control.7.in "^\\.SS $c\$"
	nr=$((nr + 1))
done
for c in $(sed -n '/^\.SH COMMANDS$/,/^\.SH SEE/s/^\.SS //p' daemon/nullbd-control.7.in); do
	rows daemon/ctl/control.c | grep -qx "$c" || {
		echo "daemon/nullbd-control.7.in: $c: no such command"
		bad=1
	}
done
for c in $(rows daemon/nullbctl.c); do
	missing "$c" daemon/nullbctl.1.in "^\\.BR\\{0,1\\} \"\\{0,1\\}$c\\( \\|\$\\)"
	nr=$((nr + 1))
done
for m in $(sed -n 's/^	{ "\(nullbd_[a-z_]*\)", "\([a-z]*\)",.*/\1:\2/p' daemon/ctl/metrics.c); do
	name=${m%:*}
	case ${m#*:} in
	counter) name=${name}_total ;;
	info) name=${name}_info ;;
	esac
	missing "$name" daemon/nullbd.8.in "[ \"]$name"
	nr=$((nr + 1))
done
[ $nr -ge 60 ] || {
	echo "only $nr commands and metrics were found: the tables look otherwise"
	bad=1
}
exit $bad
