#!/bin/bash
# SPDX-License-Identifier: MIT
# The files in conf/ work as they are, for anybody, and so do the fio jobs for them; what
# --check prints reads back as the same; --modprobe takes modprobe.d lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
nullbd=${NULLBD:-build/nullbd} nullbctl=${NULLBCTL:-build/nullbctl}
dir=$(mktemp -d)
pid= bad=0
stop() {
	[ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid"
	pid=
}
trap 'stop; rm -rf "$dir"' EXIT
fault() {
	echo "FAULT: $*"
	bad=1
}
start() { # CONF, with its sockets in our directory
	sed -e "s|^port = .*|listen = unix:$dir/s|" \
	    -e "s,^\(trace\|crash_log\) = ,&$dir/," -e "s|^backing = .*img|backing = $dir/img|" \
	    "$1" >"$dir/conf"
	"$nullbd" -c "$dir/conf" --control "$dir/c" 2>"$dir/log" &
	pid=$!
	for _ in $(seq 200); do
		"$nullbctl" --control "$dir/c" list >"$dir/list" 2>&1 && return 0
		sleep 0.05
	done
	fault "$1: did not start"
	cat "$dir/log"
	return 1
}
job() { # JOB [SED-EXPRESSION]...
	sed -e "s|nbd://localhost/\(nullb[0-9]*\)|nbd+unix:///\1?socket=$dir/s|" \
	    -e 's|^runtime=.*|runtime=1|' -e 's|^io_size=.*|io_size=8m|' \
	    "conf/fio/$1" >"$dir/job"
	NBD_URI="nbd+unix:///nullb0?socket=$dir/s" \
		fio --output="$dir/out" "$dir/job" >"$dir/fio" 2>&1 ||
		{ fault "conf/fio/$1"; cat "$dir/out" "$dir/fio"; }
}
# the key that conf/tls.conf asks for
key=$dir/keys.psk
echo 'alice:00112233445566778899aabbccddeeff' >"$key"
for c in conf/*.conf conf/devices/*.conf; do
	f=$c
	[ "$c" = conf/tls.conf ] && f=$dir/tls.conf &&
		sed "s|^tls_psk = .*|tls_psk = $key|" "$c" >"$f"
	"$nullbd" -c "$f" --check >"$dir/first" || fault "$c: --check"
	"$nullbd" -c "$dir/first" --check >"$dir/second" ||
		fault "$c: what --check printed is refused"
	cmp -s "$dir/first" "$dir/second" || fault "$c: --check twice differs"
	# an ordinary user has no directory that we could name
	grep -q '^ *\(control\|listen\|socket\) *= *[^ ]' "$c" &&
		fault "$c: a socket file that not everybody can make"
	start "$f" || continue
	"$nullbctl" --control "$dir/c" stat nullb0 >/dev/null || fault "$c: stat"
	case $c in
	*/null_blk.conf)
		job randrw.fio
		# ref/: /sys/block/nullb0/size and the queue of plain null_blk
		for want in size:256000 blocksize:512 irqmode:1 queue_mode:2 \
			submit_queues:1 hw_queue_depth:64 completion_nsec:10000 \
			queue/max_sectors_kb:127 queue/nr_requests:64 \
			queue/max_segments:128 queue/max_segment_size:65536; do
			got=$("$nullbctl" --control "$dir/c" get nullb0 "${want%:*}")
			[ "$got" = "${want##*:}" ] || fault "$c: $want, got $got"
		done ;;
	*/cache.conf)
		job verify.fio
		"$nullbctl" --control "$dir/c" set nullb0 cache_size 1M ||
			fault "$c: set" ;;
	*/memory.conf) job verify.fio ;;
	*/backing.conf)
		job verify.fio
		[ -s "$dir/img" ] || fault "$c: no file" ;;
	*/multipage-*.conf) job report-a.fio ;;
	*/many-devices.conf)
		for plug in each call plug; do
			for i in 0 1 2 3; do
				"$nullbctl" --control "$dir/c" set nullb$i plug $plug ||
					fault "$c: set plug"
			done
			job report-c.fio
		done ;;
	*/hdd-7200.conf) job devices.fio ;;
	*/devices/*.conf) ;; # tests/pipe/device_curves.c
	*/ssd.conf | */latency.conf) job latency.fio ;;
	*/mq-deadline.conf)
		job merges.fio
		[ "$("$nullbctl" --control "$dir/c" stat nullb0 | awk '{ print $6 }')" -gt 0 ] ||
			fault "$c: nothing merges"
		"$nullbctl" --control "$dir/c" set nullb0 iosched/fifo_batch 1 ||
			fault "$c: set" ;;
	*/trace.conf)
		job randrw.fio
		stop
		[ -s "$dir/nullb0.blktrace.0" ] || fault "$c: no trace" ;;
	*/power-cut.conf)
		job randrw.fio
		"$nullbctl" --control "$dir/c" mark nullb0 here || fault "$c: mark"
		"$nullbctl" --control "$dir/c" power-cut nullb0 >"$dir/cut" ||
			fault "$c: power-cut"
		grep -q ' writes not flushed, [1-9][0-9]* lost, ' "$dir/cut" ||
			fault "$c: $(cat "$dir/cut")"
		"$(dirname "$nullbctl")/nullb-replay" --list "$dir/nullb0.log" |
			grep -q 'mark    here' || fault "$c: no crash log" ;;
	*/worn-out.conf)
		[ "$("$nullbctl" --control "$dir/c" badblocks nullb0)" = "2048 8" ] ||
			fault "$c: badblocks"
		"$nullbctl" --control "$dir/c" set nullb0 mbps 5 ||
			fault "$c: set" ;;
	*/faulty.conf)
		nbdinfo --size "nbd+unix:///nullb1?socket=$dir/s" >/dev/null ||
			fault "$c: no size"
		[ "$("$nullbctl" --control "$dir/c" fault nullb0 | wc -l)" = 9 ] ||
			fault "$c: faults"
		# that it fails is what it is for
		fio --name=any --ioengine=nbd --rw=randrw --size=64m --iodepth=32 \
			--uri="nbd+unix:///nullb0?socket=$dir/s" \
			--continue_on_error=all >"$dir/fio" 2>&1
		"$nullbctl" --control "$dir/c" fault nullb0 log |
			grep -q "WRITE .* id=[0-9]" || fault "$c: nothing was hit" ;;
	*/zoned.conf)
		job zoned.fio
		"$nullbctl" --control "$dir/c" zone reset nullb0 -o 131072 -c 1 ||
			fault "$c: reset"
		"$nullbctl" --control "$dir/c" set nullb0 zone_readonly 163840 ||
			fault "$c: read-only"
		"$nullbctl" --control "$dir/c" zone report nullb0 -o 131072 -c 2 |
			sed 's/.*(\(..\)) .*/\1/' | tr '\n' ' ' | grep -qx 'em ro ' ||
			fault "$c: report" ;;
	*/tls.conf)
		nbdinfo --list --json "nbd+unix://?socket=$dir/s" |
			grep -q secret && fault "$c: tells of the secret"
		nbdinfo --size "nbd+unix:///secret?socket=$dir/s" >"$dir/out" 2>&1 &&
			fault "$c: the secret is open"
		nbdinfo --size "nbds+unix://alice@localhost/secret?socket=$dir/s&tls-psk-file=$key" |
			grep -qx 1073741824 || fault "$c: no secret in TLS" ;;
	*) fault "$c: no job tries it" ;;
	esac
	stop
done

cat >"$dir/modprobe" <<'E2'
# a comment, and somebody else's module
options loop max_loop=8
options null_blk nr_devices=2 gb=4 bs=4096 irqmode=2 \
	completion_nsec=50000
options null_blk memory_backed=Y
E2
"$nullbd" --modprobe "$dir/modprobe" --check >"$dir/first" ||
	fault "--modprobe"
for line in '[nullb0]' '[nullb1]' 'size = 4096' 'blocksize = 4096' \
	'irqmode = 2' 'completion_nsec = 50000' 'memory_backed = 1'; do
	grep -qxF "$line" "$dir/first" || fault "--modprobe: no '$line'"
done

# mistakes: status 2, and a line that names file, line, thing, value
printf '[nullb0]\nsize = 4G\nirqmode = fast\nbloksize = 512\n' >"$dir/bad"
"$nullbd" -c "$dir/bad" --check >/dev/null 2>"$dir/err"
[ $? -eq 2 ] || fault "a bad file: not status 2"
grep -q "bad:3: .*irqmode.*fast" "$dir/err" || fault "irqmode: $(cat "$dir/err")"
grep -q "bad:4: .*bloksize" "$dir/err" || fault "bloksize: $(cat "$dir/err")"
exit $bad
