#!/bin/bash
# SPDX-License-Identifier: MIT
# nullbctl power-cut: what was flushed is there afterwards, of the rest what
# --lose and --tear have it; nobody gets an answer; other devices go on.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need python3
/usr/bin/python3 -c 'import nbd' 2>/dev/null || skip "python3-libnbd is missing"

start_nullbd \
	"a:size=16M,memory_backed=1,discard=1,cache_size=8M,irqmode=0" \
	"b:size=16M,memory_backed=1,irqmode=0" \
	"slow:size=16M,memory_backed=1,cache_size=8M,irqmode=2,completion_nsec=100s" \
	"file:size=16M,memory_backed=1,cache_size=8M,backing=$tmp/file.img" \
	"large:size=16M,memory_backed=1,cache_size=8M,blocksize=4096" \
	"zoned:size=64M,zoned=1,zone_size=16M,memory_backed=1"

cat >"$tmp/cuts.py" <<'END'
import json, nbd, select, subprocess, sys, time
sock, nullbctl, control = sys.argv[1:]
BLOCK = 4096

def attach(name):
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///%s?socket=%s" % (name, sock))
    return h

def ctl(*args, status=0):
    p = subprocess.run([nullbctl, "--control", control] + list(args),
                       capture_output=True, text=True, timeout=20)
    assert p.returncode == status, (args, p)
    return p.stdout if status == 0 else p.stderr

def cut(name, *args):
    return json.loads(ctl("--json", "power-cut", name, *args))["cut"]

def put(h, block, letter, flags=0):
    h.pwrite(letter * BLOCK, block * BLOCK, flags)

def get(h, block):
    data = bytes(h.pread(BLOCK, block * BLOCK))
    assert len(set(data)) == 1, data
    return data[:1]

# Nobody is told anything: what fails is the socket, and no errno of a reply.
def no_answer(call, *args):
    try:
        call(*args)
    except nbd.Error as e:
        assert e.errno in ("ENOTCONN", "ECONNRESET", "EPIPE"), e
        return
    raise AssertionError("answered")

# It is not there at once, nor is a name there while it is off.
def attach_soon(name):
    for i in range(500):
        try:
            return attach(name)
        except nbd.Error:
            time.sleep(0.01)
    raise AssertionError("%s does not come on" % name)

def flushed_is_there(name):
    h = attach(name)
    put(h, 0, b"a")
    h.flush()
    put(h, 0, b"b")
    put(h, 1, b"c")
    put(h, 2, b"d", nbd.CMD_FLAG_FUA)
    assert (get(h, 0), get(h, 1)) == (b"b", b"c")
    r = cut(name)
    assert (r["writes"], r["lost"], r["torn"]) == (2, 2, 0), r
    no_answer(h.pread, BLOCK, 0)
    assert ctl("get", name, "power") == "0\n"
    try:
        attach(name)
        raise AssertionError("attached while it is off")
    except nbd.Error:
        pass
    assert "the power is off" in ctl("power-cut", name, status=1)
    ctl("power", name, "on")
    h = attach(name)
    assert [get(h, i) for i in range(3)] == [b"a", b"\0", b"d"]

# With the same seed and the same requests; --on: it is soon back.
def is_repeated(lose, check):
    outcome = []
    for i in range(2):
        h = attach("a")
        h.trim(1 << 20, 0)
        h.flush()
        for n in range(64):
            put(h, n, bytes([65 + n % 26]))
        r = cut("a", "--lose", lose, "--seed", "7", "--on")
        assert r["writes"] == 64 and r["seed"] == 7, r
        h = attach_soon("a")
        there = [get(h, n) != b"\0" for n in range(64)]
        assert there.count(False) == r["lost"], (r, there)
        check(there)
        outcome.append(there)
    assert outcome[0] == outcome[1]

def some(there):
    assert 10 < there.count(True) < 54, there

def first_ones(there):
    assert there == sorted(there, reverse=True), there

# Its other connections and other devices know nothing of it.
def comes_with_a_request():
    h, other, b = attach("a"), attach("a"), attach("b")
    h.trim(1 << 20, 0)
    h.flush()
    put(b, 0, b"x")
    ctl("power-cut", "a", "--at", "5", "--seed", "9", "--on")
    for n in range(4):
        put(h if n % 2 else other, n, b"w")
        assert get(other, n) == b"w"  # reads do not count
    no_answer(put, h, 4, b"w")
    no_answer(other.flush)
    h = attach_soon("a")
    assert [get(h, n) for n in range(5)] == [b"\0"] * 5
    assert get(b, 0) == b"x"

def a_flush_is_not_done():
    h = attach("a")
    put(h, 0, b"1")
    h.flush()
    put(h, 0, b"2")
    ctl("power-cut", "a", "--at", "1", "--on")
    no_answer(h.flush)
    assert get(attach_soon("a"), 0) == b"1"

# FUA or not, what it comes with is not promised; torn, its beginning is there.
def is_torn():
    torn = 0
    for seed in range(1, 30):
        h = attach("a")
        h.pwrite(b"o" * 65536, 0, nbd.CMD_FLAG_FUA)
        ctl("power-cut", "a", "--at", "1", "--seed", str(seed), "--on",
            "--tear", "512")
        no_answer(h.pwrite, b"n" * 65536, 0,
                  nbd.CMD_FLAG_FUA if seed % 2 else 0)
        data = bytes(attach_soon("a").pread(65536, 0))
        new = data.count(b"n")
        assert new % 512 == 0 and data == b"n" * new + b"o" * (65536 - new)
        torn += 0 < new < 65536
    assert torn > 10, torn

# What waits for its completion ends with it, though that takes 100 s.
def does_not_wait():
    h = attach("slow")
    began = time.monotonic()
    for n in range(8):
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"s" * BLOCK)),
                     2 * n * BLOCK)  # apart, or they merge
    while h.aio_in_flight() and int(
            ctl("inflight", "slow").split()[1]) < 8:
        h.poll(10)
    r = cut("slow", "--tear", "512", "--seed", "3")
    assert r["writes"] == 8, r
    assert time.monotonic() - began < 20
    no_answer(h.flush)

# Nor for what was to end in peace, if it comes with a request of that.
def comes_while_it_goes_off():
    ctl("power", "slow", "on")
    ctl("set", "slow", "mbps", "1")
    h = attach("slow")
    began = time.monotonic()
    for n in range(16):
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(1 << 18)), n << 19)
    while int(ctl("inflight", "slow").split()[1]) == 0:
        h.poll(10)
    ctl("power-cut", "slow", "--at", "2")
    ctl("power", "slow", "off")
    assert time.monotonic() - began < 20
    no_answer(h.flush)

def is_refused():
    put(attach("b"), 1, b"y")
    said = ctl("power-cut", "zoned", status=1)
    assert "power-cut: not with zoned set" in said, said
    said = ctl("power-cut", "large", "--tear", "512", status=1)
    assert 'tear: "512": allowed: none, 4096 (blocksize)' in said, said
    said = ctl("power-cut", "none", status=1)
    assert "no such device" in said, said
    said = ctl("power-cut", "b", "--lose", "some", status=1)
    assert 'lose: "some": allowed: all, random, ordered' in said, said
    said = ctl("power-cut", "b", "--cancel", status=1)
    assert "none is to come" in said, said
    said = ctl("power-cut", "b", "--at", "0", status=2)
    assert '--at: "0": allowed: 1 to' in said, said
    ctl("power-cut", "b", "--cancel", "--on", status=2)
    assert get(attach("b"), 1) == b"y"

def is_cancelled():
    ctl("power-cut", "b", "--at", "1")
    ctl("power-cut", "b", "--cancel")
    put(attach("b"), 2, b"z")
    assert get(attach("b"), 2) == b"z"

# Without a cache all is written at once.
def without_a_cache_nothing_is_lost():
    h = attach("b")
    put(h, 3, b"k")
    r = cut("b", "--on")
    assert r["writes"] == 0, r
    assert get(attach_soon("b"), 3) == b"k"

flushed_is_there("a")
flushed_is_there("file")
is_repeated("random", some)
is_repeated("ordered", first_ones)
comes_with_a_request()
a_flush_is_not_done()
is_torn()
does_not_wait()
comes_while_it_goes_off()
is_refused()
is_cancelled()
without_a_cache_nothing_is_lost()
# Who watches is told.
def is_told():
    w = subprocess.Popen([nullbctl, "--control", control, "watch", "a"],
                         stdout=subprocess.PIPE, text=True)
    for i in range(50):  # until it listens
        attach_soon("a").pwrite(b"t" * BLOCK, 0)
        cut("a", "--seed", "5", "--on")
        if select.select([w.stdout], [], [], 0.1)[0]:
            break
    line = next(line for line in w.stdout if "power_cut" in line)
    assert "power_cut a writes=1 lost=1 torn=0 seed=5" in line, line
    w.kill()

is_told()
# one is still to come when the daemon ends
attach_soon("a")
ctl("power-cut", "a", "--at", "1000")
END
timeout 120 /usr/bin/python3 "$tmp/cuts.py" "$sock" "$NULLBCTL" "$control" ||
	fail "see above"
# what the file has is what the device had
[ "$(head -c 1 "$tmp/file.img")" = a ] || fail "the file lacks what was flushed"
[ "$(head -c 8193 "$tmp/file.img" | tail -c 1)" = d ] || fail "and what was FUA"
grep -q 'the power was cut: 2 writes not flushed, 2 lost, 0 torn; seed=' "$log" ||
	fail "the log does not tell of it"
stop_nullbd
