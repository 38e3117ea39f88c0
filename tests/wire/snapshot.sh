#!/bin/bash
# SPDX-License-Identifier: MIT
# nullbctl snapshot: another device with the data of one moment, at once and
# without a copy, while the first is served; from then on each has its own.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need nbdcopy fio python3
/usr/bin/python3 -c 'import nbd' 2>/dev/null || skip "python3-libnbd is missing"

ctl() {
	"$NULLBCTL" --control "$control" "$@" >"$tmp/out" 2>&1
}
must() {
	ctl "$@" || fail "$*: $(<"$tmp/out")"
}
# refused TEXT COMMAND...: with that in its sentence
refused() {
	local text=$1

	shift
	! ctl "$@" || fail "$*: not refused"
	grep -qF -e "$text" "$tmp/out" || fail "$*: not \"$text\": $(<"$tmp/out")"
}
holds() {
	timeout 60 nbdcopy "$(uri "$1")" "$tmp/copy" || fail "$1: nbdcopy"
	cmp "$tmp/copy" "$2" || fail "$1 is not $2"
}
put() {
	timeout 60 nbdcopy "$2" "$(uri "$1")" || fail "$1: nbdcopy"
}

start_nullbd "a:size=64M,memory_backed=1,discard=1,irqmode=2,cache_size=1M" \
	"z:size=64M,zoned=1,zone_size=16M,memory_backed=1" "n:size=1M" \
	"f:size=1M,memory_backed=1,backing=$tmp/f.img"
for i in 1 2 3; do
	head -c 64M /dev/urandom >"$tmp/$i"
done

# its settings, its data, also what its cache has not written
put a "$tmp/1"
must snapshot a b
must get b irqmode
[ "$(<"$tmp/out")" = 2 ] || fail "irqmode is $(<"$tmp/out")"
holds b "$tmp/1"
put a "$tmp/2"
must snapshot a c
put b "$tmp/3"
holds a "$tmp/2"
holds b "$tmp/3"
holds c "$tmp/2"
# gone in any order, with the power of others off and on
must power c off
must remove a
must power c on
holds c "$tmp/2"
must snapshot c a
must snapshot a d
must remove c
must power a off
must snapshot a e
must power a on
must get e power
[ "$(<"$tmp/out")" = 0 ] || fail "e is on"
must power e on
put a "$tmp/1"
holds d "$tmp/2"
holds e "$tmp/2"
for name in b d e; do
	must remove $name
done
holds a "$tmp/1"

# what has no data, and whose data a file keeps: it has none then
must snapshot n m
must remove m
head -c 1M "$tmp/3" >"$tmp/mib"
put f "$tmp/mib"
must snapshot f g
must get g backing
[ -z "$(<"$tmp/out")" ] || fail "both have $(<"$tmp/out")"
holds g "$tmp/mib"
must power f off
refused "(backing) has its data while it is off" snapshot f h
refused "snapshot: allowed: none, as zoned is set" snapshot z h
refused "there is one already" snapshot a g
refused "no such device" snapshot none h
must list
! grep -q '^h' "$tmp/out" || fail "a device is left of what was refused"

# while it is written: one moment of it.  A writer stamps its blocks in order,
# waiting for each: whatever the moment, the stamps fall once at most, by one
cat >"$tmp/load.py" <<'END'
import nbd, struct, subprocess, sys, threading
sock, nullbctl, control = sys.argv[1:]
NR = 64

def attach(name):
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///%s?socket=%s" % (name, sock))
    return h

def stamps(h, first):
    data = h.pread(NR * 4096, first * 4096)
    return [struct.unpack_from("<Q", data, i * 4096)[0] for i in range(NR)]

class Writer(threading.Thread):
    def __init__(self, first):
        super().__init__()
        self.first, self.rounds, self.ends = first, 0, False

    def run(self):
        h = attach("a")
        while not self.ends:
            self.rounds += 1
            for i in range(NR):
                h.pwrite(struct.pack("<Q", self.rounds) * 512,
                         (self.first + i) * 4096)

def ctl(*args):
    subprocess.run([nullbctl, "--control", control] + list(args), check=True)

def check(h):
    for w in writers:
        s = stamps(h, w.first)
        assert s == sorted(s, reverse=True), s
        assert s[0] - s[-1] <= 1, s
    return [stamps(h, w.first) for w in writers]

attach("a").trim(8 << 20, 0)
writers = [Writer(0), Writer(1024)]
for w in writers:
    w.start()
seen = []
for n in range(30):
    name = "s%d" % n
    ctl("snapshot", "a", name)
    h = attach(name)
    before = check(h)
    seen.append((name, h, before))
    if n >= 4:
        name, h, before = seen.pop(0)
        assert check(h) == before, "it has changed"
        h.shutdown()
        ctl("remove", name)
for w in writers:
    w.ends = True
    w.join()
rounds = [w.rounds for w in writers]
print("rounds written meanwhile:", rounds)
assert min(rounds) > 2, rounds
for name, h, before in seen:
    assert check(h) == before
END
timeout 120 /usr/bin/python3 "$tmp/load.py" "$sock" "$NULLBCTL" "$control" ||
	fail "a snapshot while it is written"
stop_nullbd

# the memory of all comes home
start_nullbd "a:size=64M,memory_backed=1"
put a "$tmp/1"
before=$(rss_kib)
must snapshot a b
bound "KiB more with a snapshot of 64 MiB" $(($(rss_kib) - before)) 8192
begin=$(date +%s%N)
must snapshot b c
bound "ms for a snapshot of 64 MiB" $((($(date +%s%N) - begin) / 1000000)) 1000
must remove a
holds b "$tmp/1"
must remove b
holds c "$tmp/1"
stop_nullbd
exit 0
