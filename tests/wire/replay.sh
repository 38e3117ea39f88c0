#!/bin/bash
# SPDX-License-Identifier: MIT
# nullb-replay counts what kernels count, takes every kind of recording, and
# its exit status tells what came of it.  It needs no daemon.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

REPLAY=$(dirname "$NULLBD")/nullb-replay
DATA=$(dirname "$0")/../data
[ -x "$REPLAY" ] || fail "$REPLAY is not there"

# replay ARGUMENT...: its stdout is $out, its stderr $err, its status $status
replay() {
	out=$("$REPLAY" "$@" 2>"$tmp/err")
	status=$?
	err=$(cat "$tmp/err")
}

# expect STATUS OUT ERR: what the last replay did; * is any text
expect() {
	[ "$status" = "$1" ] || fail "status $status, not $1: $out $err"
	# shellcheck disable=SC2053 # patterns are meant
	[[ $out == $2 ]] || fail "prints '$out', not '$2'"
	# shellcheck disable=SC2053
	[[ $err == $3 ]] || fail "complains '$err', not '$3'"
}

# counts READ WRITE DISCARD: each "ios merges sectors", as the last one printed
counts() {
	local got

	[ "$status" = 0 ] || fail "status $status: $err"
	got=$(awk '{ print $1, $2, $3, $5, $6, $7, $12, $13, $14 }' <<<"$out")
	[ "$got" = "$1 $2 $3" ] || fail "counts $got, not $1 $2 $3"
}

# sequential ACTION NUMBER BYTES: an iolog
sequential() {
	echo "fio version 2 iolog"
	seq 0 $(($2 - 1)) | awk -v a="$1" -v b="$3" \
		'{ printf "/dev/nullb0 %s %d %d\n", a, $1 * b, b }'
}

# the rows of b-stat-c1.tsv, which 6.1 and 6.12 agree in
sequential write 4096 4096 >"$tmp/write-4k"
sequential read 4096 4096 >"$tmp/read-4k"
sequential write 1024 65536 >"$tmp/write-64k"
sequential write 64 1048576 >"$tmp/write-1m"
sequential trim 1024 65536 >"$tmp/trim-64k"
{
	echo "fio version 2 iolog"
	awk '/^=/ { found = $2 == "reportA-1job"; next }
		/^#/ || !found { next }
		{ for (i = 0; i < (NF > 3 ? $4 : 1); i++)
			print "/dev/nullb0", $1 == "R" ? "read" : "write",
				($2 + i * $3) * 512, $3 * 512 }' "$DATA/workloads.txt"
} >"$tmp/reportA"
for kernel in 6.1 6.12; do
	k="--kernel $kernel --batch"
	# shellcheck disable=SC2086 # words are meant
	while IFS='|' read -r file args read write discard; do
		replay $k $args "$tmp/$file"
		counts "$read" "$write" "$discard"
	done <<-EOF
		write-4k|64|0 0 0|192 3904 32768|0 0 0
		read-4k|64|192 3904 32768|0 0 0|0 0 0
		write-4k|32|0 0 0|256 3840 32768|0 0 0
		write-4k|2|0 0 0|4096 0 32768|0 0 0
		write-4k|64 --set nomerges=1|0 0 0|192 3904 32768|0 0 0
		write-4k|64 --set nomerges=2|0 0 0|4096 0 32768|0 0 0
		write-4k|64 --set queue/max_sectors_kb=64|0 0 0|256 3840 32768|0 0 0
		write-4k|64 --set max_sectors_kb=4|0 0 0|4096 0 32768|0 0 0
		write-64k|64|0 0 0|1024 0 131072|0 0 0
		write-1m|8|0 0 0|576 0 131072|0 0 0
		write-1m|8 --set hw_queue_depth=4|0 0 0|576 0 131072|0 0 0
		write-1m|8 --set max_sectors_kb=4|0 0 0|16384 0 131072|0 0 0
		trim-64k|64 --set memory_backed=1 --set discard=1|0 0 0|0 0 0|1024 0 131072
		reportA|64|1510 482 37849|1565 539 33874|0 0 0
		reportA|64 --set nomerges=2|1992 0 37849|2104 0 33874|0 0 0
		reportA|64 --set max_sectors_kb=64|1552 440 37849|1596 508 33874|0 0 0
		reportA|64 --set max_sectors_kb=4|5338 103 37849|4919 133 33874|0 0 0
	EOF
done
# a plug is opened around 1 in 4.14, so two of them merge nothing either
replay --kernel 4.14 --batch 2 "$tmp/write-4k"
expect 0 "*0 *2048 *2048 *32768*" ""
[ "$(wc -w <<<"$out")" = 11 ] || fail "the fields of 4.14: $out"

# kernels side by side
replay --batch 64 --kernel 4.14 --kernel 6.12 "$tmp/reportA"
expect 0 "kernel * 4.14 * 6.12*read_ios * 1054 * 1510*read_merges * 938 * \
482*write_merges * 985 * 539*segments * 10493 * 10493" ""
replay --batch 64 --kernel 4.14 --kernel 6.12 --json "$tmp/reportA"
expect 0 '{"recording":*"ios":4096,"ignored":0,"kernels":{"4.14":{*"read":{"ios":1054,*"6.12":{*"read":{"ios":1510,*' ""

# the same again, from a pipe, is the same
first=$out
out=$("$REPLAY" --batch 64 --kernel 4.14 --kernel 6.12 --json - <"$tmp/reportA")
[ "${out#*,}" = "${first#*,}" ] || fail "not the same twice: $out"

# time: two writes a second apart, of 10 us each; or one right after the other
cat >"$tmp/timed" <<-EOF
	fio version 3 iolog
	5 f write 0 512
	1000005 f write 512 512
	1000005 f read 512 512
EOF
replay --set irqmode=2 --json "$tmp/timed"
expect 0 '*"now_ns":1000010000,*' ""
replay --set irqmode=2 --closed --json "$tmp/timed"
expect 0 '*"now_ns":30000,*' ""
replay --set irqmode=2 --set hw_queue_depth=1 --json "$tmp/timed"
expect 0 '*"now_ns":1000020000,*' ""
printf 'fio version 2 iolog\nf write 0 512\nf wait 500 0\nf sync 0 0\n' \
	>"$tmp/waits"
replay --set irqmode=2 --json "$tmp/waits"
expect 0 '*"now_ns":500000,*' ""

# blkparse's output: the tasks' batches, and the other device
cat >"$tmp/trace" <<-EOF
	  8,0    0        1     0.000000000     1  Q  WS 0 + 8 [a]
	  8,0    0        2     0.000001000     1  Q  WS 8 + 8 [a]
	  8,0    0        3     0.000002000     1  Q  WS 16 + 8 [a]
	  8,0    0        4     0.000003000     2  Q  WS 24 + 8 [b]
	  8,1    0        5     0.000004000     2  Q  WS 0 + 8 [b]
	  8,0    0        6     0.000005000     2  Q FWS [b]
EOF
replay --batch 8 "$tmp/trace"
expect 0 "*" "*: 1 I/Os of other devices than 8,0 are ignored; --device *"
counts "0 0 0" "2 2 32" "0 0 0"
replay --device 8,1 "$tmp/trace"
counts "0 0 0" "1 0 8" "0 0 0"
# the third of three that 4.14 merges is another task's
replay --batch 8 --kernel 4.14 "$tmp/trace"
expect 0 "*0 *2 *2 *32*" "*"

# what is refused
replay --set size=1M "$tmp/write-4k"
expect 1 "" "nullb-replay: $tmp/write-4k:258: write of 4096 bytes at 1048576: \
beyond the end of the device, 1048576 bytes; --set size= makes it larger"
replay --set blocksize=4096 "$tmp/timed"
expect 1 "" "*/timed:2: write of 512 bytes at 0: allowed: whole blocks of 4096 *"
replay "$tmp/trim-64k"
expect 1 "" "*/trim-64k:2: discard of * offers none; --set memory_backed=1 *"
replay --set memory_backed=1 --set memory_limit=64K "$tmp/write-1m"
expect 1 "" "*/write-1m:2: write of 1048576 bytes at 0: No space left on device"
replay "$tmp/nothing"
expect 1 "" "nullb-replay: $tmp/nothing: No such file or directory"
echo "/dev/nullb0 frobnicate 0 512" >>"$tmp/timed"
replay "$tmp/timed"
expect 1 "" "$tmp/timed:5: time: \"/dev/nullb0\": allowed: *"
replay --kernel 2.4 "$tmp/reportA"
expect 2 "" "nullb-replay: kernel: *2.4*4.14*"
replay --set frobnicate=1 "$tmp/reportA"
expect 2 "" "nullb-replay: frobnicate: no such attribute*"
replay --set nomerges "$tmp/reportA"
expect 2 "" "nullb-replay: --set: allowed: ATTRIBUTE=VALUE"
replay --set blocksize=1000 "$tmp/reportA"
expect 2 "" "nullb-replay: blocksize: 1000: allowed: *"
replay --batch 0 "$tmp/reportA"
expect 2 "" "nullb-replay: --batch: \"0\": allowed: 1 to 1048576"
replay
expect 2 "" "usage: *"
replay --help
expect 0 "usage: *Exit status: *" ""
# a device that is busy for ages is not asked every 3 ms through all of them, and
# what takes its time is not taken for lost
printf 'fio version 3 iolog\n0 d add\n0 d open\n0 d write 0 1048576\n%s d write 0 4096\n' \
	80000000000 >"$tmp/gap"
replay --set irqmode=2 --set completion_nsec=3600s --set scheduler=mq-deadline \
	--set hw_queue_depth=1 "$tmp/gap"
counts "0 0 0" "10 0 2056" "0 0 0"

exit 0
