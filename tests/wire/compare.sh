#!/bin/bash
# SPDX-License-Identifier: MIT
# nullb-compare says of equal configurations that they do not differ, runs jobs
# that were written for a kernel, and leaves nothing behind.  NULLB_LONG=1: twenty
# comparisons of equal ones.  (That it finds a difference: compare-latency.sh.)

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "fio has no ioengine nbd"
COMPARE=$(dirname "$NULLBD")/nullb-compare
[ -x "$COMPARE" ] || fail "$COMPARE is not there"
export TMPDIR=$tmp/private
mkdir "$TMPDIR"

# compare ARGUMENT...: its stdout is $out, its stderr $err, its status $status
compare() {
	out=$(timeout 300 "$COMPARE" "$@" 2>"$tmp/err")
	status=$?
	err=$(<"$tmp/err")
	[ -z "$(ls -A "$TMPDIR")" ] || fail "it leaves $(ls "$TMPDIR"/*)"
}

# expect STATUS OUT ERR: what the last one did; * is any text
expect() {
	[ "$status" = "$1" ] || fail "status $status, not $1: $out $err"
	# shellcheck disable=SC2053 # patterns are meant
	[[ $out == $2 ]] || fail "prints '$out', not '$2'"
	# shellcheck disable=SC2053
	[[ $err == $3 ]] || fail "complains '$err', not '$3'"
}

printf '[nullb0]\nsize = 1G\nirqmode = 2\ncompletion_nsec = 1ms\n' >"$tmp/1.conf"
sed 's/1ms/1100us/' "$tmp/1.conf" >"$tmp/1.1.conf"
cat >"$tmp/depth1.fio" <<-X
	[reads]
	filename=/dev/nullb0
	ioengine=libaio
	direct=1
	rw=randread
	bs=4k
	iodepth=1
	number_ios=100
X
sed 's/=300/=30/' "$tmp/depth1.fio" >"$tmp/quick.fio"

# bad input names itself
compare
expect 2 '' '*two configurations and a job are needed, not 0 files*'
compare --rounds 0 a b c
expect 2 '' '*--rounds: "0": allowed: 1 to 1000*'
compare --alpha 1 a b c
expect 2 '' '*--alpha: "1": allowed: more than 0, less than 1*'
compare --method t a b c
expect 2 '' '*--method: "t": allowed: welch, mann-whitney, lkp*'
compare "$tmp/none.conf" "$tmp/1.conf" "$tmp/depth1.fio"
expect 1 '' "*$tmp/none.conf: No such file*"
compare "$tmp/1.conf" "$tmp/1.conf" "$tmp/none.fio"
expect 1 '' "*$tmp/none.fio: No such file*"
printf '[nullb0]\nsise = 1G\n' >"$tmp/bad.conf"
compare "$tmp/1.conf" "$tmp/bad.conf" "$tmp/depth1.fio"
expect 1 '' "*$tmp/bad.conf:2: *sise*"
printf '[nullb0]\npower = 0\n' >"$tmp/off.conf"
compare "$tmp/off.conf" "$tmp/1.conf" "$tmp/depth1.fio"
expect 1 '' "*$tmp/off.conf: no device is on*"
printf '[a]\nfilename=/dev/nullb1\n' >"$tmp/other.fio"
compare "$tmp/1.conf" "$tmp/1.conf" "$tmp/other.fio"
expect 1 '' '*/dev/nullb1: no such device; the devices are: nullb0*'
printf '[a]\nrw=nonsense\n' >"$tmp/bad.fio"
compare "$tmp/1.conf" "$tmp/1.conf" "$tmp/bad.fio"
expect 1 '' '*nonsense*fio failed with*exit status 1*'
printf '[a]\nrw=trim\nnumber_ios=9\n' >"$tmp/trim.fio"
compare "$tmp/1.conf" "$tmp/1.conf" "$tmp/trim.fio"
expect 1 '' "*fio's job a: Invalid argument*fio failed with*exit status 1*"
printf '[a]\nrw=read\0\n' >"$tmp/nul.fio"
compare "$tmp/1.conf" "$tmp/1.conf" "$tmp/nul.fio"
expect 1 '' '*nul.fio: a byte 0: it is no text*'
echo 'include loop.fio' >"$tmp/loop.fio"
compare "$tmp/1.conf" "$tmp/1.conf" "$tmp/loop.fio"
expect 1 '' '*more than 16 files that include one another*'
compare <(cat "$tmp/1.conf") "$tmp/1.conf" "$tmp/depth1.fio"
expect 1 '' '*: not a regular file, and it is read for each run*'
echo 'alice:000102030405060708090a0b0c0d0e0f' >"$tmp/psk"
printf '[nullbd]\ntls = allowed\ntls_psk = %s\n[nullb0]\ntls_only = 1\n' \
	"$tmp/psk" >"$tmp/tls.conf"
compare "$tmp/tls.conf" "$tmp/1.conf" "$tmp/depth1.fio"
expect 1 '' "*$tmp/tls.conf: no device is on, and not tls_only*"
compare --plot nothing -r 1 -w 0 "$tmp/1.conf" "$tmp/1.conf" "$tmp/depth1.fio"
expect 2 '' '*--plot: nothing: no such figure; they are: fio.iops fio.bw*'

# installed, and found by PATH; odd names; a configuration that is in use elsewhere;
# a job as fio reads it
odd=$TMPDIR/'a b%41;c'
mkdir "$tmp/bin" "$tmp/sbin" "$odd"
cp "$COMPARE" "$tmp/bin"
ln -s "$(realpath "$NULLBD")" "$tmp/sbin"
{
	printf '[nullbd]\nlisten = 192.0.2.1:1\nmetrics = 192.0.2.1:1\n'
	printf 'pidfile = /none/pid\nsysfs = /none/sys\n'
	printf 'tls = required\ntls_psk = %s\n[a b%%41;?]\nsize = 1G\n' "$tmp/psk"
} >"$tmp/odd.conf"
printf '[reads] ; of one\n include\todd.inc # here\nnumber_ios=9\n' >"$tmp/odd.fio"
# shellcheck disable=SC2016 # fio's variable
printf 'ioengine=${ENGINE}\nlog_unix_epoch=1\nper_job_logs=0\n' >"$tmp/odd.inc"
out=$(
	unset NULLBD
	TMPDIR=$odd ENGINE=libaio PATH=$tmp/bin:$PATH timeout 60 nullb-compare \
		-r 1 -w 0 "$tmp/odd.conf" "$tmp/odd.conf" "$tmp/odd.fio" 2>&1
) || fail "$out"
[[ $out == *"ioengine=libaio became nbd"*fio.iops* ]] || fail "$out"
rmdir "$odd" || fail "it leaves $(ls "$odd")"

# what others have measured: report B's table
for i in 1 2 3 4 5; do
	echo "base throughput $((1920140 + 500 * i)) KiB/s higher"
	echo "other throughput $((2755159 - 700 * i)) KiB/s higher"
	echo "base major_page_faults 3777"
done >"$tmp/values"
compare --values "$tmp/values"
expect 0 '*throughput (KiB/s)*better: *throughput*' ''
compare --values "$tmp/values" "$tmp/1.conf"
expect 2 '' '*--values: nothing is run*'
echo 'base x' >"$tmp/values"
compare --values "$tmp/values"
expect 1 '' "*$tmp/values: line 1: needed: *"

# equal: of twenty, nineteen at least; of three, two
says_none=0
tries=$([ -n "${NULLB_LONG:-}" ] && echo 20 || echo 3)
for ((i = 0; i < tries; i++)); do
	compare -r 3 "$tmp/1.conf" "$tmp/1.conf" "$tmp/depth1.fio"
	expect 0 '*test: Welch*' ''
	if [[ $out == *"no difference that these runs can show"* ]]; then
		says_none=$((says_none + 1))
	else
		echo "$out" >>"$tmp/said"
	fi
done
echo "$says_none of $tries comparisons of equal ones see no difference"
[ $says_none -ge $((tries == 3 ? 2 : 19)) ] || fail "$(<"$tmp/said")"

# the time of a run is ours to say
compare -v -r 1 -w 0 -t 1 "$tmp/1.conf" "$tmp/1.conf" "$tmp/depth1.fio"
expect 0 '*' '*run 2 of 2: *IOPS'

# for programs: all values of all runs
compare --json -r 2 -w 0 "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/depth1.fio"
expect 0 '{*' ''
echo "$out" >"$tmp/json"
python3 - "$tmp/json" <<-X || fail "$out"
	import json, sys
	c = json.load(open(sys.argv[1]))
	f = {x['name']: x for x in c['figures']}
	for side in 'base', 'other':
	    assert len(f['fio.iops'][side]['values']) == 2, f['fio.iops']
	assert f['fio.read.clat.p50']['base']['mean'] > 1000
	assert f['stat.read.ios']['base']['mean'] >= 100
	assert f['nullbd.cpu_per_io']['base']['mean'] > 0
X
compare --csv -r 2 -w 0 "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/quick.fio"
expect 0 *fio.iops* ''

# a page, with what was touched; where it cannot be written, before anything runs
compare -r 2 -w 0 --trace --report "$tmp/page.html" \
	"$tmp/1.conf" "$tmp/1.1.conf" "$tmp/quick.fio"
expect 0 '*test: *' ''
grep -q 'Where the I/O went' "$tmp/page.html" || fail "the page has no trace"
[ "$(stat -c %s "$tmp/page.html")" -lt 1048576 ] || fail "the page is large"
compare --report "$tmp/none/page.html" "$tmp/1.conf" "$tmp/1.conf" "$tmp/quick.fio"
expect 1 '' "*--report: $tmp/none/page.html: No such file*"
NULLBCTL=/nowhere compare -r 2 -w 0 --trace --report "$tmp/page.html" \
	"$tmp/1.conf" "$tmp/1.1.conf" "$tmp/quick.fio"
expect 0 "*there is no trace of $tmp/1.conf: it failed*" '*nowhere*'

# on a terminal it says how far it is
script -qec "'$COMPARE' -r 2 -w 0 '$tmp/1.conf' '$tmp/1.conf' '$tmp/quick.fio'" \
	/dev/null </dev/null >"$tmp/out" || fail "on a terminal: $(<"$tmp/out")"
grep -q 'run 1 of 4, 0 s' "$tmp/out" || fail "no progress: $(<"$tmp/out")"
grep -q 'run 4 of 4, .* left: ' "$tmp/out" || fail "no time left: $(<"$tmp/out")"

# ---- it is stopped, or something is killed

# what runs of it: fio's jobs lead sessions of their own
ours() {
	pgrep -f "(fio|nullbd) .*$TMPDIR/"
}

# begin ARGUMENT...: it runs as $it
begin() {
	"$COMPARE" -v -w 0 "$@" >"$tmp/out" 2>"$tmp/err" &
	it=$!
}

# until_done COMMAND...: it succeeds, within half a minute
until_done() {
	for _ in {1..300}; do
		"$@" && return
		sleep 0.1
	done
	fail "not in half a minute: $*: $(<"$tmp/err")"
}

none_left() {
	! ours >/dev/null && [ -z "$(ls -A "$TMPDIR")" ]
}

# ended STATUS OUT ERR: it has, like that, and nothing goes on
ended() {
	wait $it
	status=$?
	out=$(<"$tmp/out")
	err=$(<"$tmp/err")
	expect "$@"
	none_left || fail "this is left: $(ours) $(ls -A "$TMPDIR")"
}

runs_done() {
	[ "$(wc -l <"$tmp/err")" -ge "$1" ]
}

fio_jobs_run() {
	[ "$(pgrep -fc "fio .*$TMPDIR/")" -ge "$1" ]
}

# ^C: what there is
begin -r 50 "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/quick.fio"
until_done runs_done 4
kill -INT $it
ended 0 '*fio.iops*' '*'

# also while a daemon starts: the fifth never does (two say which devices they have)
cat >"$tmp/slow" <<-END
	#!/bin/bash
	echo >>"$tmp/starts"
	[ "\$(wc -l <"$tmp/starts")" -le 4 ] || exec sleep 100
	exec "$(realpath "$NULLBD")" "\$@"
END
chmod +x "$tmp/slow"
starts() {
	[ -e "$tmp/starts" ] && [ "$(wc -l <"$tmp/starts")" = "$1" ]
}
for options in '-r 50' "-r 1 --trace --report $tmp/page.html"; do
	rm -f "$tmp/starts"
	# shellcheck disable=SC2086 # several
	NULLBD=$tmp/slow begin $options "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/quick.fio"
	until_done starts 5
	kill -INT $it
	ended 0 '*fio.iops*' '*'
done

# one job is on no device, and does not see that the daemon is gone
cat >"$tmp/long.fio" <<-END
	[global]
	time_based
	runtime=100
	[n]
	ioengine=null
	filename=x
	size=1g
	rate_iops=10
	[reads]
	filename=/dev/nullb0
	rate_iops=10
END

# in the first run there is nothing to print
for signal in INT TERM HUP; do
	begin "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/long.fio"
	until_done fio_jobs_run 3
	kill -$signal $it
	ended 1 '' '*stopped before a run that counts was done*'
done

# somebody else ends what it needs
begin "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/long.fio"
until_done fio_jobs_run 3
kill -KILL "$(pgrep -P $it fio)"
ended 1 '' "*fio failed with $tmp/1.conf: killed by signal 9*"
begin "$tmp/1.conf" "$tmp/1.1.conf" <(grep -v -e '^\[n' -e null$ "$tmp/long.fio")
until_done fio_jobs_run 2
kill -KILL "$(pgrep -P $it nullbd)"
ended 1 '' "*$tmp/1.conf: the daemon has ended in the middle of a run: killed by signal 9*"

# or it, which leaves it no time
begin "$tmp/1.conf" "$tmp/1.1.conf" "$tmp/long.fio"
until_done fio_jobs_run 3
disown $it
kill -KILL $it
until_done none_left
