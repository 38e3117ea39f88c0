#!/bin/bash
# SPDX-License-Identifier: MIT
# make install puts everything below DESTDIR/PREFIX, make uninstall takes it
# away; the programs run from there, the manual pages have no faults.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
fault() {
	echo "FAULT: $*"
	bad=1
}
make -s install DESTDIR="$dir" PREFIX=/usr >"$dir/log" 2>&1 ||
	{ fault install; cat "$dir/log"; }
"$dir/usr/sbin/nullbd" --version | grep -q '^nullbd [0-9]' || fault nullbd
"$dir/usr/bin/nullbctl" --version | grep -q '^nullbctl [0-9]' || fault nullbctl
"$dir/usr/bin/nullb-replay" --version | grep -q '^nullb-replay [0-9]' ||
	fault nullb-replay
"$dir/usr/bin/nullb-calibrate" --version | grep -q '^nullb-calibrate [0-9]' ||
	fault nullb-calibrate
"$dir/usr/bin/nullb-compare" --version | grep -q '^nullb-compare [0-9]' ||
	fault nullb-compare
"$dir/usr/bin/nullb-sysfs" --help | grep -q '^usage' || fault nullb-sysfs
for m in man8/nullbd.8 man7/nullbd-null_blk.7 man7/nullbd-control.7 man5/nullbd.conf.5 man1/nullbctl.1 \
	man1/nullb-replay.1 man1/nullb-calibrate.1 man1/nullb-compare.1 \
	man1/nullb-sysfs.1 man1/nbdkit-nullb-plugin.1; do
	f=$dir/usr/share/man/$m
	[ -s "$f" ] || fault "$m is missing"
	mandoc -T lint -W warning "$f" || fault "$m"
	grep -q '@[a-z]*@' "$f" && fault "$m: a mark was left"
done
plugin=$dir$(pkg-config --variable=plugindir nbdkit)/nbdkit-nullb-plugin.so
nbdkit --dump-plugin "$plugin" | grep -q '^nullb_profiles=4.14 ' ||
	fault nbdkit-nullb-plugin
# every program has its page
for p in "$dir"/usr/bin/*; do
	[ -s "$dir/usr/share/man/man1/${p##*/}.1" ] || fault "${p##*/}: no manual"
done
bash -n "$dir/usr/share/bash-completion/completions/nullbctl" || fault completion
# every attribute that --help knows is in the manual, and none is unexplained
"$dir/usr/sbin/nullbd" --help |
	sed -n 's|^  \(queue/\)\{0,1\}\([a-z_]*\)[= ].*|\2|p' | sort -u |
	while read -r a; do
		case $a in "" | n | usage) continue ;; esac
		grep -q "fB\(queue/\)\{0,1\}$a\\\\fP" "$dir/usr/share/man/man8/nullbd.8" ||
			echo "$a"
	done >"$dir/missing"
[ -s "$dir/missing" ] && fault "not in nullbd(8): $(tr '\n' ' ' <"$dir/missing")"
make -s uninstall DESTDIR="$dir" PREFIX=/usr >"$dir/log" 2>&1 || fault uninstall
left=$(find "$dir/usr" -type f)
[ -z "$left" ] || fault "left behind: $left"
exit $bad
