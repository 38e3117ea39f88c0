#!/bin/bash
# SPDX-License-Identifier: MIT
# Other people's clients see what is data and what is a hole, copy only the
# data, and get the same bytes with structured replies and without, through
# UNIX and TCP.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdinfo nbdcopy qemu-img qemu-io qemu-nbd nbd-client cmp
# nbdsh runs whatever python3 comes first, which need not be Debian's
for python in python3 /usr/bin/python3 ''; do
	"$python" -c 'import nbd' 2>/dev/null && break
done
[ -n "$python" ] || skip "python3-libnbd is missing"

MIB=$((1024 * 1024))
port=$(free_port)
start_nullbd -p "$port" -a 127.0.0.1 \
	"nullb0:size=64M,memory_backed=1,discard=1" \
	"copy:size=64M,memory_backed=1,discard=1" \
	"big:size=64M,memory_backed=1,discard=1,blocksize=4096" \
	"null:size=64M" \
	"huge:size=16T,memory_backed=1,discard=1"

# is WHAT GOT WANTED
is() {
	[ "$2" = "$3" ] || fail "$1: $2, want $3"
}

# says WHAT TEXT PATTERN: a line of it matches
says() {
	grep -qE -- "$3" <<<"$2" || {
		echo "$2" >&2
		fail "$1: nothing like '$3'"
	}
}

# 3 MiB of data in an image of 64 MiB: at 0, at 16 MiB, at its end.
image=$tmp/image
truncate -s 64M "$image"
for at in 0 16 63; do
	head -c $MIB /dev/urandom |
		dd of="$image" bs=$MIB seek=$at conv=notrunc status=none
done
map="0 $MIB 0 data
$MIB $((15 * MIB)) 3 hole,zero
$((16 * MIB)) $MIB 0 data
$((17 * MIB)) $((46 * MIB)) 3 hole,zero
$((63 * MIB)) $MIB 0 data"

# What the device is said to be made of, in the form of nbdinfo.
map_of() {
	nbdinfo --map "$1" | awk '{ print $1, $2, $3, $4 }'
}

# empty URI: nothing is in it any more
empty() {
	qemu-io -f raw -c "discard 0 64M" "$1" >/dev/null || fail "$1: discard"
	is "$1 when it is empty" "$(map_of "$1")" "0 $((64 * MIB)) 3 hole,zero"
}

for base in unix tcp; do
	if [ $base = unix ]; then
		here=$(uri) there=$(uri copy) big=$(uri big)
		null=$(uri null) huge=$(uri huge)
	else
		here=$(tcp_uri "$port" nullb0) there=$(tcp_uri "$port" copy)
		big=$(tcp_uri "$port" big) null=$(tcp_uri "$port" null)
		huge=$(tcp_uri "$port" huge)
	fi

	# nbdinfo: what is offered, and the map
	out=$(nbdinfo "$here") || fail "nbdinfo $here"
	says nbdinfo "$out" "using structured packets"
	says nbdinfo "$out" "base:allocation"
	says nbdinfo "$out" "can_df: true"
	out=$(nbdinfo --json "$here") || fail "nbdinfo --json $here"
	says "nbdinfo --json" "$out" '"structured": true'
	says "nbdinfo --json" "$out" '"base:allocation"'
	says "nbdinfo --json" "$out" '"can_df": true'
	out=$(nbdinfo --list "$here") || fail "nbdinfo --list $here"
	is "contexts of 5 exports" "$(grep -c base:allocation <<<"$out")" 5
	for can in df trim zero flush multi-conn "structured reply"; do
		nbdinfo --can "$can" "$here" || fail "nbdinfo --can $can"
	done
	is "nbdinfo --size" "$(nbdinfo --size "$huge")" $((1 << 44))
	is "the map of a device without memory" "$(map_of "$null")" \
		"0 $((64 * MIB)) 3 hole,zero"
	is "the totals of 16 TiB" \
		"$(nbdinfo --map --totals "$huge" | awk '{ print $1, $3 }')" \
		"$((1 << 44)) 3"

	# nbdcopy, into one, to the other, out: only data go
	empty "$here"
	empty "$there"
	nbdcopy --destination-is-zero "$image" "$here" || fail "nbdcopy in"
	is "the map of the copy" "$(map_of "$here")" "$map"
	nbdcopy --destination-is-zero --connections=4 "$here" "$there" ||
		fail "nbdcopy from one to the other"
	is "the map of the copy's copy" "$(map_of "$there")" "$map"
	rm -f "$tmp/out"
	nbdcopy "$there" "$tmp/out" || fail "nbdcopy out"
	cmp "$image" "$tmp/out" || fail "nbdcopy: other data come out"
	kib=$(du -k "$tmp/out" | cut -f 1)
	[ "$kib" -le 4096 ] || fail "nbdcopy: 3 MiB take $kib KiB"

	# qemu-img: the same map, sparse copies, comparisons
	is "qemu-img map" "$(qemu-img map --output=json -f raw "$here" |
		grep -c '"data": true')" 3
	qemu-img compare -q -f raw -F raw "$image" "$here" ||
		fail "qemu-img compare with the image"
	qemu-img compare -q -f raw -F raw "$here" "$there" ||
		fail "qemu-img compare of two devices"
	empty "$big"
	qemu-img convert -n --target-is-zero -f raw -O raw "$here" "$big" ||
		fail "qemu-img convert"
	is "the map of qemu's copy" "$(map_of "$big")" "$map"
	qemu-io -f raw -c "write -P 7 20M 64k" "$big" >/dev/null
	if qemu-img compare -q -f raw -F raw "$here" "$big"; then
		fail "qemu-img compare: what differs is the same"
	fi
	says "the map after qemu-io" "$(map_of "$big")" "^$((20 * MIB)) 65536 0 data"
	out=$(qemu-img info "$here") || fail "qemu-img info"
	says "qemu-img info" "$out" "virtual size: 64 MiB"
	echo "$base: nbdinfo, nbdcopy, qemu-img and qemu-io agree"
done

out=$(qemu-nbd -L -k "$sock") || fail "qemu-nbd -L"
is "qemu-nbd -L: contexts" "$(grep -c base:allocation <<<"$out")" 5
says "qemu-nbd -L" "$out" "flags: .* df"
[ -n "${PLUGIN:-}" ] || # it knows TCP alone
	nbd-client -l 127.0.0.1 "$port" >"$tmp/list" || fail "nbd-client -l"
[ -n "${PLUGIN:-}" ] || grep -q '^huge$' "$tmp/list" ||
	fail "nbd-client -l does not list all"

# libnbd's Python: structured replies on and off, the same bytes; the status
# of each request as it is there.
cat >"$tmp/client.py" <<'END'
import nbd, os, random, sys

BLOCK = 4096
SIZE = 4 << 20

def client(uri, structured, status):
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    if status:
        h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    h.connect_uri(uri)
    assert h.get_structured_replies_negotiated() == structured
    assert h.can_df() == structured
    assert h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION) == (
        structured and status)
    return h

def states(h):
    """A state a block, asked for until all is told."""
    told = []
    while len(told) < SIZE // BLOCK:
        got = []
        def extent(context, offset, entries, error):
            assert context == "base:allocation" and error.value == 0
            assert offset == len(told) * BLOCK
            got.extend(entries)
        h.block_status(SIZE - len(told) * BLOCK, len(told) * BLOCK, extent)
        assert got
        for n, state in zip(got[::2], got[1::2]):
            assert n % BLOCK == 0
            told.extend([state] * (n // BLOCK))
    return told[:SIZE // BLOCK]

def chunks(h, n, at, flags=0):
    """The bytes of a read, and what its chunks were."""
    kinds = []
    def chunk(data, offset, status, error):
        assert error.value == 0
        kinds.append((offset, len(data), status))
    data = h.pread_structured(n, at, chunk, flags)
    assert sum(k[1] for k in kinds) == n
    return data, kinds

rng = random.Random(int(sys.argv[1]))
for uri in sys.argv[2:]:
    plain = client(uri, False, True)
    chunked = client(uri, True, True)
    blind = client(uri, True, False)
    want = bytearray(SIZE)
    used = [False] * (SIZE // BLOCK)
    plain.trim(SIZE, 0)
    assert states(chunked) == [3] * len(used)
    for i in range(120):
        h = rng.choice([plain, chunked, blind])
        n = rng.randint(1, 16)
        at = rng.randrange(len(used) - n + 1)
        if i % 4 == 3:
            h.trim(n * BLOCK, at * BLOCK)
            want[at * BLOCK:(at + n) * BLOCK] = bytes(n * BLOCK)
        else:
            data = os.urandom(n * BLOCK)
            h.pwrite(data, at * BLOCK)
            want[at * BLOCK:(at + n) * BLOCK] = data
        used[at:at + n] = [i % 4 != 3] * n
    assert states(chunked) == [0 if u else 3 for u in used]
    for h in plain, chunked, blind:
        assert h.pread(SIZE, 0) == want, "not what was written"
        for i in range(100):
            n = rng.randint(1, 70) * BLOCK # libnbd keeps the block size
            at = rng.randrange((SIZE - n) // BLOCK) * BLOCK
            data, kinds = chunks(h, n, at)
            assert data == want[at:at + n], "not what was written"
            if h is plain:
                assert len(kinds) == 1
    data, kinds = chunks(chunked, SIZE, 0)
    assert data == want
    holes = [False] * len(used)
    for offset, n, status in kinds:
        if status == nbd.READ_HOLE:
            for b in range(offset // BLOCK, (offset + n) // BLOCK):
                holes[b] = True
    assert holes == [not u for u in used], "holes are not where they were made"
    data, kinds = chunks(chunked, SIZE, 0, nbd.CMD_FLAG_DF)
    assert data == want and len(kinds) == 1
    for h in plain, blind:
        h.set_strict_mode(0)
        try:
            h.block_status(BLOCK, 0, lambda *_: 0)
        except nbd.Error as e:
            assert e.errno in ("EINVAL", "ENOTSUP"), e.errno
        else:
            assert False, "a status that was not negotiated"
        assert h.pread(BLOCK, 0) == want[:BLOCK]
    chunked.set_strict_mode(0)
    for call, errno in (
            (lambda: chunked.pread(512, chunked.get_size()), "EINVAL"),
            (lambda: chunked.pwrite(b"x" * 512, chunked.get_size()), "ENOSPC"),
            (lambda: chunked.block_status(
                512, chunked.get_size(), lambda *_: 0), "EINVAL")):
        try:
            call()
        except nbd.Error as e:
            assert e.errno == errno, e.errno
        else:
            assert False, "a request beyond the end"
    for h in plain, chunked, blind:
        h.shutdown()
print("libnbd: the same with structured replies and without")
END
seed=${NULLB_SEED:-$RANDOM}
echo "seed: NULLB_SEED=$seed"
# nbdkit tells no holes in what is read
[ -n "${PLUGIN:-}" ] ||
	"$python" "$tmp/client.py" "$seed" "$(uri)" "$(tcp_uri "$port" big)" || fail "libnbd"

# fio's engine, which is libnbd, verifies what it has written
if fio --enghelp=nbd >/dev/null 2>&1; then
	for u in "$(uri)" "$(tcp_uri "$port" big)"; do
		fio --name=v --ioengine=nbd --uri="$u" --rw=randrw --bs=16k \
			--size=32m --iodepth=16 --verify=crc32c \
			--verify_fatal=1 >"$tmp/fio" 2>&1 || {
			cat "$tmp/fio" >&2
			fail "fio on $u"
		}
	done
	echo "fio: verified"
fi

# a file system in user space, where there is one
if command -v nbdfuse >/dev/null && [ -w /dev/fuse ]; then
	mkdir "$tmp/mnt"
	nbdcopy "$image" "$(uri)" || fail "nbdcopy in"
	nbdfuse "$tmp/mnt" "$(uri)" >"$tmp/nbdfuse" 2>&1 &
	fuse=$!
	end=$((SECONDS + READY_S))
	until [ -e "$tmp/mnt/nbd" ]; do
		kill -0 $fuse 2>/dev/null || break
		[ $SECONDS -le $end ] || break
		sleep 0.05
	done
	if [ -e "$tmp/mnt/nbd" ]; then
		cmp "$image" "$tmp/mnt/nbd" || same=no
		dd if=/dev/zero of="$tmp/mnt/nbd" bs=64k count=16 \
			conv=notrunc status=none || same=no
		fusermount3 -u "$tmp/mnt" 2>/dev/null || umount "$tmp/mnt" ||
			fail "nbdfuse is not to be unmounted"
		wait $fuse
		[ -z "${same-}" ] || fail "nbdfuse shows other data"
		head -c $MIB /dev/zero | cmp -n $MIB - <(nbdcopy "$(uri)" -) ||
			fail "what was written through nbdfuse is not there"
		echo "nbdfuse: the same"
	else
		kill $fuse 2>/dev/null
		wait $fuse
		echo "nbdfuse cannot mount here: $(head -n 1 "$tmp/nbdfuse")"
	fi
else
	echo "nbdfuse or /dev/fuse is missing"
fi

kill -0 "$pid" || fail "nullbd has died"
stop_nullbd
