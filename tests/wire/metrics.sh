#!/bin/bash
# SPDX-License-Identifier: MIT
# GET /metrics: what it says while clients work and devices come and go, and
# that whoever else connects there harms nobody.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

trap '' PIPE # who is hung up on writes on
fds=()

# a connection to the HTTP port: its descriptor is in $fd
open_http() {
	exec {fd}<>"/dev/tcp/127.0.0.1/$port" || fail "nobody at port $port"
	fds+=("$fd")
}

close_http() {
	for fd in "${fds[@]}"; do
		exec {fd}>&-
	done
	fds=()
}

# http TEXT: send it; the answer's status is $status, its body in $tmp/body
http() {
	open_http
	# shellcheck disable=SC2059 # it has \r
	printf "$1" >&"$fd" 2>/dev/null
	timeout 10 cat <&"$fd" >"$tmp/answer" || fail "no answer to $1 in 10 s"
	close_http
	status=$(sed -n '1s/HTTP\/1.1 \([0-9]*\) .*/\1/p' "$tmp/answer")
	sed '1,/^\r$/d' "$tmp/answer" >"$tmp/body"
}

# nothing older: what was made just now is used again for a moment
scrape() {
	sleep 0.1
	http 'GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n'
	[ "$status" = 200 ] || fail "a scrape is answered with '$status'"
	[ "$(tail -n 1 "$tmp/body")" = "# EOF" ] || fail "a scrape is not whole"
}

# value SAMPLE: its number in the last scrape
value() {
	awk -v sample="$1 " 'index($0, sample) == 1 { print $NF }' "$tmp/body"
}

# says SAMPLE NUMBER
says() {
	[ "$(value "$1")" = "$2" ] || fail "$1 is '$(value "$1")', not $2"
}

has_no() {
	! grep -qF -- "$1" "$tmp/body" || fail "there is still $1"
}

ctl() {
	"$NULLBCTL" --control "$control" "$@" || fail "nullbctl $*"
}

# whatever may be wrong with a place is said
for place in /tmp/x localhost 1:2:3 127.0.0.1:x 127.0.0.1:65536 unix:/x; do
	"$NULLBD" --check --metrics "$place" >/dev/null 2>"$tmp/err"
	[ $? -eq 2 ] || fail "--metrics $place is taken"
	grep -q 'metrics: .*: allowed: HOST:PORT, \[V6\]:PORT, :PORT$' "$tmp/err" ||
		fail "--metrics $place: $(<"$tmp/err")"
done

start_nullbd --metrics 127.0.0.1:0 nullb0:size=16M,memory_backed=1 \
	other:size=1G,zoned=1,power=0
port=$(sed -n 's/.*metrics at http:\/\/127.0.0.1:\([0-9]*\)\/metrics$/\1/p' "$log")
[ -n "$port" ] || fail "the log does not say where"

scrape
grep -qi '^content-type: application/openmetrics-text; version=1.0.0; charset=utf-8'$'\r' \
	"$tmp/answer" || fail "its type is another: $(grep -i content-type "$tmp/answer")"
says 'nullbd_device_on{device="nullb0"}' 1
says 'nullbd_device_on{device="other"}' 0
says 'nullbd_device_size_bytes{device="nullb0"}' 16777216
says 'nullbd_connections' 0
has_no 'nullbd_device_ios_total{device="other"'

# the same over the control socket
ctl metrics | sed 's/_limit_bytes .*//' >"$tmp/ctl"
sed 's/_limit_bytes .*//' "$tmp/body" | diff - "$tmp/ctl" >"$tmp/diff" ||
	fail "nullbctl metrics says otherwise: $(<"$tmp/diff")"
answer=$(ctl --json metrics)
[[ $answer == '{"ok":true,"metrics":"# TYPE '* ]] || fail "--json is no answer"

# nothing else is there
http 'GET / HTTP/1.1\r\nHost: here\r\n\r\n'
[ "$status" = 404 ] || fail "GET / is answered with '$status'"
http 'GET /metrics/../x HTTP/1.1\r\nHost: here\r\n\r\n'
[ "$status" = 404 ] || fail "another path is answered with '$status'"
http 'POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello'
[ "$status" = 405 ] || fail "POST is answered with '$status'"
http 'nonsense\r\n\r\n'
case $status in
4?? | '') ;;
*) fail "nonsense is answered with '$status'" ;;
esac
http "GET /$(printf '%020000d' 0) HTTP/1.1\r\n\r\n"
case $status in
4?? | '') ;;
*) fail "what is too long is answered with '$status'" ;;
esac

# a program that knows the format reads it
if /usr/bin/python3 -c 'import prometheus_client.openmetrics.parser' 2>/dev/null; then
	ctl fault nullb0 add op=WRITE,every=7 >/dev/null
	ctl power other on
	scrape
	/usr/bin/python3 - "$tmp/body" <<-'END' || fail "it is no OpenMetrics"
		import sys
		from prometheus_client.openmetrics.parser import text_string_to_metric_families
		families = list(text_string_to_metric_families(open(sys.argv[1]).read()))
		print(len(families), "families,", sum(len(f.samples) for f in families), "samples")
		assert any(f.name == "nullbd_fault_hits" for f in families)
	END
	ctl fault nullb0 remove all
	says 'nullbd_device_zones{device="other",condition="empty"}' 4
fi

# while clients work: counters grow, none goes back
if command -v fio >/dev/null && fio --enghelp 2>/dev/null | grep -qw nbd; then
	fio --name=t --ioengine=nbd --uri="$(uri nullb0)" --rw=randwrite \
		--bs=4k --iodepth=32 --size=16m --time_based --runtime=2 \
		>"$tmp/fio" 2>&1 &
	fio=$!
	last=0
	nr=0
	while kill -0 $fio 2>/dev/null; do
		scrape
		now=$(value 'nullbd_device_ios_total{device="nullb0",op="write"}')
		[ "$now" -ge "$last" ] || fail "ios go from $last to $now"
		last=$now
		nr=$((nr + 1))
	done
	wait $fio || fail "fio: $(tail -n 5 "$tmp/fio")"
	scrape
	echo "$nr scrapes beside fio, $last writes"
	ios=$(value 'nullbd_device_ios_total{device="nullb0",op="write"}')
	says 'nullbd_request_duration_seconds_count{device="nullb0",op="write"}' "$ios"
	says 'nullbd_request_duration_seconds_bucket{device="nullb0",op="write",le="+Inf"}' "$ios"
	[ "$ios" -gt 0 ] || fail "nothing was counted"
	[ "$(value 'nullbd_device_memory_bytes{device="nullb0"}')" -gt 1048576 ] ||
		fail "its data takes no memory"
	[ "$(value 'nullbd_device_io_bytes_total{device="nullb0",op="write"}')" -ge \
		$((ios * 4096)) ] || fail "its bytes are too few"
fi

# devices come and go between two scrapes
ctl create new size=1M
scrape
says 'nullbd_device_on{device="new"}' 1
ctl remove new
scrape
has_no '"new"'
ctl power nullb0 off
scrape
says 'nullbd_device_on{device="nullb0"}' 0
has_no 'nullbd_device_ios_total{device="nullb0"'
ctl power nullb0 on
for _ in {1..20}; do
	ctl create new size=1M memory_backed=1
	http 'GET /metrics HTTP/1.0\r\n\r\n' &
	ctl remove new
	wait $! || exit 1
done

# half a request, and silence: hung up on in time, while others are served
open_http
slow=$fd
fds=()
printf 'GET /metrics HTTP/1.1\r\nHost: he' >&"$slow"
begin=$SECONDS
scrape
timeout 15 cat <&"$slow" >/dev/null || fail "a client that is silent stays"
bound "seconds until a silent client is hung up on" $((SECONDS - begin)) 8
exec {slow}>&-

# one byte a moment does not prolong it
open_http
begin=$SECONDS
for _ in {1..200}; do
	printf 'G' >&"$fd" || break
	sleep 0.1
done 2>/dev/null
bound "seconds until a slow client is hung up on" $((SECONDS - begin)) 8
close_http

# 200 that say nothing, or half: the newest is served nevertheless
held=()
for i in {1..200}; do
	open_http
	held+=("$fd")
	[ $((i % 2)) -eq 0 ] || printf 'GET /metrics HTTP/1.1\r\n' >&"$fd" 2>/dev/null
done
nr=$(find "/proc/$pid/fd" -lname 'socket:*' | wc -l)
bound "sockets of a daemon with 200 such clients" "$nr" 80
fds=()
scrape
says 'nullbd_device_on{device="nullb0"}' 1
ctl list >/dev/null
for fd in "${held[@]}"; do
	exec {fd}>&-
done

# many at once: all are answered, and nullbctl as well
for i in {1..40}; do
	open_http
	printf 'GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n' >&"$fd"
done
ctl list >/dev/null
for fd in "${fds[@]}"; do
	timeout 10 cat <&"$fd" >"$tmp/body" || fail "one of many gets no answer"
	[ "$(tail -n 1 "$tmp/body")" = "# EOF" ] || fail "one of many gets half"
done
close_http

# who does not read its answer
for _ in {1..100}; do
	open_http
	printf 'GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n' >&"$fd" 2>/dev/null
done
held=("${fds[@]}")
fds=()
scrape
for fd in "${held[@]}"; do
	exec {fd}>&-
done

# it does not hold up the end
open_http
printf 'GET' >&"$fd"
stop_nullbd
close_http

# off by default
start_nullbd nullb0
! grep -q 'metrics at' "$log" || [ "$(grep -c 'metrics at' "$log")" = 1 ] ||
	fail "metrics are served though nobody asked for them"
stop_nullbd
