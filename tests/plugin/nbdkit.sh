#!/bin/bash
# SPDX-License-Identifier: MIT
# The plugin in nbdkit: parameters, exports, captive fio, counters, errors, as
# libnbd's command, ends in time, clean under ASan and valgrind.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdkit nbdinfo fio qemu-io valgrind
B=$(dirname "$NULLBD")
plugin=${PLUGIN:-$B/nbdkit-nullb-plugin.so}
[ -e "$plugin" ] || skip "$plugin was not built"
PLUGIN=$plugin # start_nullbd waits for no control socket

# nullb PARAMETER...: nbdkit with the plugin; its output is $out
nullb() {
	out=$(timeout 30 nbdkit -U - "$plugin" "$@" 2>&1)
}

# says WHAT PATTERN: a line of $out matches
says() {
	grep -qE -- "$2" <<<"$out" || fail "$1: no '$2' in: $out"
}

# parameters
out=$(nbdkit --dump-plugin "$plugin")
says dump-plugin '^nullb_profiles=4\.14 .*6\.12'
says dump-plugin '^nullb_attributes=size .*completion_nsec.*plug_nsec'
out=$(nbdkit --help "$plugin")
says help 'completion_nsec'
nullb scheduler=fast --run true && fail "scheduler=fast was taken"
says "a wrong value" "scheduler: .*fast.*allowed"
nullb colour=red --run true && fail "colour=red was taken"
says "a wrong name" 'colour'
nullb size=1G zoned=1 zone_size=3 --run true && fail "zones of 3 MiB"
says "what does not fit" 'zone_size'
nullb trace=/tmp/x --run true && fail "trace was taken"

# files, devices, exports
cat >"$tmp/conf" <<-END
	[nullbd]
	default_export = second
	[first]
	size = 1G
	description = the first one
	export_names = alias
	[second]
	size = 2G
	ro = 1
	[off]
	power = 0
	[secret]
	tls_only = 1
END
nullb config="$tmp/conf" device=first rotational=1 \
	--run 'nbdinfo --list "$uri"; nbdinfo "$uri"' || fail "config: $out"
says exports 'export="first":'
says exports 'export="alias":'
says exports 'description: the first one'
says exports 'is_rotational: true'
says exports 'is_read_only: true'
grep -qE 'export="(off|secret)"' <<<"$out" && fail "exports: $out"
[ "$(grep -c 'export-size: 2147483648' <<<"$out")" -ge 2 ] ||
	fail "the default export: $out"
nullb config="$tmp/conf" device=frist --run true && fail "device=frist"
nullb device=a size=1M device=b size=2M -e b --run 'nbdinfo --size "$uri"' ||
	fail "devices: $out"
says devices '^2097152$'
nullb device=a size=1M -e c --run 'nbdinfo "$uri"' && fail "export c"

# captive fio: what is in flight at once merges, and the counters add up
nullb size=64M memory_backed=1 kernel=6.12 plug_nsec=1ms stats="$tmp/stats" \
	--run 'fio --name=v --ioengine=nbd --uri="$uri" --rw=write --bs=4k \
	    --size=8M --iodepth=16 --verify=crc32c --verify_fatal=1' ||
	fail "captive fio: $out"
read -r _ _ read_sectors _ writes merged sectors _ <<<"$(sed -n 2p "$tmp/stats")"
[ $((writes + merged)) = 2048 ] && [ "$sectors" = 16384 ] &&
	[ "$read_sectors" -ge 16384 ] || fail "counters: $(cat "$tmp/stats")"
[ "$merged" -gt 512 ] || fail "only $merged of 2048 writes merged"

# latency is the device's
nullb size=64M irqmode=2 completion_nsec=2ms stats="$tmp/stats" --run \
	'qemu-io -f raw -c "read 0 4k" "$uri"' || fail "latency: $out"
grep -qE 'avg=[2-9][0-9]{3}\.' "$tmp/stats" || {
	# a busy machine is late, never early
	grep -qE 'avg=[0-9]{5,}\.' "$tmp/stats" || fail "$(cat "$tmp/stats")"
}

# errors
for want in 'badblocks=+0-7 Input/output' 'memory_limit=4096 No.space'; do
	nullb size=64M memory_backed=1 "${want% *}" --run \
		'qemu-io -f raw -c "write 0 1M" "$uri"' && fail "no error: $want"
	says "${want% *}" "${want#* }"
done

# a command of libnbd's
for python in python3 /usr/bin/python3 ''; do
	"$python" -c 'import nbd' 2>/dev/null && break
done
[ -z "$python" ] || "$python" - "$plugin" <<-'END' || fail "connect_command"
	import nbd, sys
	h = nbd.NBD()
	h.connect_command(["nbdkit", "-s", "--exit-with-parent", sys.argv[1],
	                   "size=16M", "memory_backed=1", "write_zeroes_max_bytes=1M"])
	h.pwrite(b"abc" * 512, 512, nbd.CMD_FLAG_FUA)
	assert h.pread(1536, 512) == b"abc" * 512
	h.zero(1024, 512, nbd.CMD_FLAG_FAST_ZERO)
	assert h.pread(1024, 512) == bytes(1024)
	h.cache(4096, 0)
	h.flush()
	h.shutdown()
END

# who hangs delays no end
start_end=$SECONDS
timeout 30 nbdkit -U - "$plugin" size=16M irqmode=2 completion_nsec=3600s \
	faults=op=READ,action=hang --run 'timeout 1 qemu-io -f raw \
		-c "aio_read 0 4k" -c "aio_write 0 4k" -c aio_flush "$uri"' \
	>"$log" 2>&1
[ $((SECONDS - start_end)) -lt 10 ] || fail "it ends after $((SECONDS - start_end)) s"

# clean: a client that does a bit of everything
everything() {
	qemu-io -f raw -c 'write -P 3 0 3M' -c 'read -P 3 1M 2M' \
		-c 'write -z 1M 1M' -c 'discard 0 1M' -c 'write -f -P 5 5M 17k' \
		-c flush -c 'read -P 5 5M 17k' "$(uri)" >"$tmp/out" 2>&1 ||
		fail "qemu-io: $(cat "$tmp/out")"
	grep -q 'Pattern verification failed' "$tmp/out" && fail "other data"
	nbdinfo --map "$(uri)" >"$tmp/out" || fail "nbdinfo --map"
	fio --name=v --ioengine=nbd --uri="$(uri)" --rw=randrw --bs=4k \
		--offset=8M --size=2M --iodepth=16 --verify=crc32c \
		--verify_fatal=1 >"$tmp/out" 2>&1 || fail "fio: $(cat "$tmp/out")"
}
device="nullb0:size=16M,memory_backed=1,discard=1,write_zeroes_max_bytes=1M"
device+=",irqmode=2,completion_nsec=20us,cache_size=1M"
NULLBD=$(dirname "$0")/nullbd
export PLUGIN NBDKIT
# what nbdkit itself keeps of a connection when it ends in the middle of a reply
cat >"$tmp/nbdkits" <<-'END'
	{
	   memory that nbdkit, and not the plugin, has asked for
	   Memcheck:Leak
	   match-leak-kinds: definite,possible
	   fun:*alloc
	   obj:*/nbdkit
	   ...
	}
END
NBDKIT="valgrind -q --error-exitcode=9 --leak-check=full --suppressions=$tmp/nbdkits nbdkit"
STOP_S=20
start_nullbd "$device"
everything
stop_nullbd
grep -q '^==' "$log" && fail "valgrind"
if [ -e "$B/asan/nbdkit-nullb-plugin.so" ]; then
	PLUGIN=$B/asan/nbdkit-nullb-plugin.so
	NBDKIT="env LD_PRELOAD=$(gcc -print-file-name=libasan.so) nbdkit"
	start_nullbd "$device"
	everything
	stop_nullbd
	grep -q 'Sanitizer\|runtime error' "$log" && fail "ASan"
fi
echo "parameters, exports, fio, counters, errors, libnbd; valgrind and ASan clean"
