#!/bin/bash
# SPDX-License-Identifier: MIT
# Other people's clients read the daemon without complaint.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdinfo qemu-img qemu-nbd qemu-io nbd-client

port=$(free_port)
start_nullbd -p "$port" -a 127.0.0.1 \
	"nullb0:size=64M,memory_backed=1,discard=1" \
	"second:size=1G,blocksize=4096,description=A second one" \
	"third:size=250G"

# quiet COMMAND...: exit status 0 and nothing on stderr; its stdout is $out
quiet() {
	out=$("$@" 2>"$tmp/stderr") || {
		cat "$tmp/stderr" >&2
		fail "$*: status $?"
	}
	[ ! -s "$tmp/stderr" ] || {
		cat "$tmp/stderr" >&2
		fail "$*: complains"
	}
}

# says TEXT...: each is in $out
says() {
	local text

	for text; do
		grep -qF -- "$text" <<<"$out" || {
			echo "$out" >&2
			fail "does not say '$text'"
		}
	done
}

tcp=nbd://127.0.0.1:$port
for u in "$(uri)" "$tcp"; do
	quiet nbdinfo "$u"
	says "protocol: newstyle-fixed without TLS" "export-size: 67108864" \
		"can_multi_conn: true" "is_read_only: false" "can_trim: true" \
		"block_size_minimum: 512" "block_size_maximum: 67108864"
	quiet nbdinfo --size "$u"
	says 67108864
	quiet nbdinfo --json "$u"
	says '"export-size": 67108864'
	quiet nbdinfo --list "$u"
	says 'export="nullb0":' 'export="second":' 'export="third":' \
		"export-size: 1073741824" "export-size: 268435456000" \
		"description: A second one"
	quiet nbdinfo --list --json "$u"
done
quiet nbdinfo "$(uri second)"
says "block_size_minimum: 4096"
quiet nbdinfo --can multi-conn "$(uri second)"
if nbdinfo "$(uri 'no such')" >/dev/null 2>&1; then
	fail "nbdinfo reads an export that is not there"
fi

for u in "$(uri)" "$tcp" "$(uri second)" "$tcp/third"; do
	quiet qemu-img info "$u"
	says "file format: raw" "virtual size:"
done
quiet qemu-img info "$(uri)"
says "(67108864 bytes)"

quiet qemu-nbd -L -k "$sock"
says "exports available: 3" "export: 'nullb0'" "export: 'second'" \
	"export: 'third'" "size:  67108864" "min block: 512" \
	"min block: 4096" "max block: 67108864"
quiet qemu-nbd -L -b 127.0.0.1 -p "$port"
says "exports available: 3"

quiet nbd-client -l 127.0.0.1 "$port"
says nullb0 second third

quiet qemu-io -f raw -c 'write -P 0xab 1M 3M' -c 'read -P 0xab 1M 3M' \
	-c 'read -P 0 0 1M' -c 'write -z 2M 1M' -c 'read -P 0 2M 1M' \
	-c 'discard 1M 512k' -c 'flush' -c 'write -f -P 0xcd 123 4567' \
	-c 'read -P 0xcd 123 4567' -c 'read -P 0xab 3M 1M' "$(uri)"
says "wrote 3145728/3145728 bytes" "wrote 4567/4567 bytes"
if grep -q 'Pattern verification failed' <<<"$out"; then
	fail "qemu-io reads other data than it wrote"
fi

kill -0 "$pid" || fail "nullbd has died"
stop_nullbd
echo "nbdinfo, qemu-img, qemu-nbd, nbd-client and qemu-io are content"
