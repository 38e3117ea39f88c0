#!/bin/bash
# SPDX-License-Identifier: MIT
# nbdkit's own filters do on our devices what they do on any other.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdkit qemu-io nbdinfo nbdcopy sfdisk
plugin=${PLUGIN:-$(dirname "$NULLBD")/nbdkit-nullb-plugin.so}
[ -e "$plugin" ] || skip "$plugin was not built"

# nbdkit_run FILTER [PARAMETER]... -- COMMAND: the command's output is $out
nbdkit_run() {
	local filter=$1 parameters=()

	shift
	while [ "$1" != -- ]; do
		parameters+=("$1")
		shift
	done
	out=$(timeout 30 nbdkit -U - --filter="$filter" "$plugin" size=16M \
		memory_backed=1 discard=1 stats="$tmp/stats" "${parameters[@]}" \
		--run "$2" 2>&1)
}

io() {
	echo "qemu-io -f raw ${*@Q} \"\$uri\""
}

# the device itself saw no write
nbdkit_run cow -- "$(io -c 'write -P 7 1M 1M' -c 'read -P 7 1M 1M' -c flush)" ||
	fail "cow: $out"
grep -q 'Pattern verification failed' <<<"$out" && fail "cow: $out"
[ "$(awk 'NR == 2 { print $5 }' "$tmp/stats")" = 0 ] ||
	fail "cow: the device was written: $(cat "$tmp/stats")"

start=$(date +%s%N)
nbdkit_run delay rdelay=300ms -- "$(io -c 'read 0 4k')" || fail "delay: $out"
[ $(($(date +%s%N) - start)) -ge 300000000 ] || fail "delay: none"

nbdkit_run error error=ENOSPC error-pwrite-rate=100% -- \
	"$(io -c 'write 0 4k')" && fail "error: there was none"
grep -q 'No space left on device' <<<"$out" || fail "error: $out"

nbdkit_run stats statsfile="$tmp/nbdkit" -- \
	"$(io -c 'write 0 4k' -c 'write 8k 4k')" || fail "stats: $out"
grep -q '^write: 2 ops' "$tmp/nbdkit" || fail "stats: $(cat "$tmp/nbdkit")"
[ "$(awk 'NR == 2 { print $5 + $6 }' "$tmp/stats")" = 2 ] ||
	fail "stats: the device counted $(cat "$tmp/stats")"

# reads, changes and writes whole blocks for who writes parts of them
nbdkit_run blocksize blocksize=4096 minblock=4096 -- \
	"$(io -c 'write -P 9 512 512' -c 'read -P 9 512 512' \
		-c 'read -P 0 0 512' -c 'read -P 0 1k 3k')" ||
	fail "blocksize: $out"
grep -q 'Pattern verification failed' <<<"$out" && fail "blocksize: $out"

# on an empty device there is none
nbdkit_run partition partition=2 -- 'nbdinfo "$uri"' &&
	fail "partition: found one in an empty device"
# so a second nbdkit looks for the table that was written to the first
truncate -s 16M "$tmp/image"
printf 'label: dos\nstart=2048,size=4096\nstart=8192,size=6144\n' |
	sfdisk -q "$tmp/image" || fail "sfdisk"
timeout 30 nbdkit -U - "$plugin" size=16M memory_backed=1 --run "
	nbdcopy $tmp/image \"\$uri\" &&
	nbdkit -U - --filter=partition nbd uri=\"\$uri\" partition=2 \
		--run 'nbdinfo --size \"\$uri\"'" >"$tmp/size" ||
	fail "partition: $?"
[ "$(cat "$tmp/size")" = $((6144 * 512)) ] || fail "partition: $(cat "$tmp/size")"

echo "cow, delay, error, stats, blocksize and partition work"
