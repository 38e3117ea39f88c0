#!/bin/bash
# SPDX-License-Identifier: MIT
# Devices of 2^63 - 512 bytes and of 250 GiB start at once, cost nothing, and
# hold what is written near, far and at their ends.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdinfo
# nbdsh runs whatever python3 comes first, which need not be Debian's
for python in python3 /usr/bin/python3 ''; do
	"$python" -c 'import nbd' 2>/dev/null && break
done
[ -n "$python" ] || skip "python3-libnbd is missing"
START_MS=1000
RSS_KIB=$((30 * 1024))

# small WHEN
small() {
	local rss

	rss=$(rss_kib)
	echo "$1: $rss KiB"
	sanitized && return
	[ "$rss" -lt $RSS_KIB ] || fail "$1: $rss KiB of memory"
}

for size in 9223372036854775296B 250G; do
	start=$(date +%s%N)
	start_nullbd "nullb0:size=$size,memory_backed=1,discard=1"
	ms=$((($(date +%s%N) - start) / 1000000))
	[ $ms -lt $START_MS ] || sanitized || fail "$size: starts in $ms ms"
	small "$size, started in $ms ms"
	"$python" -m nbd -u "$(uri)" -c '
import os
size = h.get_size()
block = 512
offsets = [o for o in (0, 2**32, 2**41) if o + block <= size]
offsets += [size - block]
data = {o: os.urandom(block) for o in offsets}
for o in offsets:
    h.pwrite(data[o], o)
if h.can_flush():
    h.flush()
for o in offsets:
    assert h.pread(block, o) == data[o], "offset %d" % o
    if o:
        assert h.pread(block, o - block) == bytes(block), "before %d" % o
    if o + 2 * block <= size:
        assert h.pread(block, o + block) == bytes(block), "after %d" % o
print("%d bytes: %d offsets read back" % (size, len(offsets)))
' || fail "$size: data"
	small "$size, written"
	stop_nullbd
done

# both, and a hundred more, at once
devices=()
for i in {1..100}; do
	devices+=("d$i:size=250G,memory_backed=1")
done
start_nullbd "huge:size=9223372036854775296B" "large:size=250G" \
	"${devices[@]}"
[ "$(nbdinfo --size "$(uri)")" = 9223372036854775296 ] ||
	fail "the largest size is not told"
[ "$(nbdinfo --size "$(uri d100)")" = 268435456000 ] || fail "250G is not"
small "102 devices"
stop_nullbd
