# SPDX-License-Identifier: MIT
# killed.py NULLBD SOCKET FILE CACHE_SIZE TRIES: start the daemon, write to a
# device with backing=FILE from two connections, kill it at a random time, and
# look after the next start: of each block there is what was durable, or
# something written since.
import atexit
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time

import nbd

nullbd, sock, path, cache, tries = sys.argv[1:6]
BLOCK = 4096
BLOCKS = 256  # a connection
seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
print("seed", seed)


def start():
    if os.path.exists(sock):
        os.unlink(sock)
    p = subprocess.Popen(
        [nullbd, "-U", sock, "k:size=4M,memory_backed=1,cache_size=%s,"
         "backing=%s" % (cache, path)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    atexit.register(p.kill)
    for _ in range(3000):
        try:
            return p, connect()
        except nbd.Error:
            assert p.poll() is None, "it does not start"
            time.sleep(0.005)
    raise AssertionError("it does not listen")


def connect():
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///k?socket=" + sock)
    return h


class Writer:
    """Of its own blocks: what must be there, and what may be."""

    def __init__(self, first):
        self.first = first
        self.serial = 1
        self.durable = [0] * BLOCKS
        self.since = [set() for _ in range(BLOCKS)]
        self.nr_flushes = 0

    def run(self, h, rng):
        try:
            while True:
                self.step(h, rng)
        except nbd.Error:
            pass  # it was killed

    def step(self, h, rng):
        if rng.random() < 0.1:
            h.flush()
            self.nr_flushes += 1
            for i in range(BLOCKS):
                if self.since[i]:
                    self.settle(i, max(self.since[i]))
            return
        i = rng.randrange(BLOCKS)
        self.serial += 1
        self.since[i].add(self.serial)
        fua = rng.random() < 0.1
        h.pwrite(struct.pack("<Q", self.serial) * (BLOCK // 8),
                 (self.first + i) * BLOCK, nbd.CMD_FLAG_FUA if fua else 0)
        if fua or cache == "0":
            self.settle(i, self.serial)

    def settle(self, i, serial):
        self.durable[i] = serial
        self.since[i] = set()

    def check(self, h):
        for i in range(BLOCKS):
            data = h.pread(BLOCK, (self.first + i) * BLOCK)
            # a write that was under way may be there in part, but no block
            # of the device is torn
            for at in range(0, BLOCK, 512):
                block = data[at:at + 512]
                have = struct.unpack("<Q", block[:8])[0]
                assert block == struct.pack("<Q", have) * 64, "torn"
                assert have == self.durable[i] or have in self.since[i], \
                    "block %d: has %d, was durable: %d, written since: %s" % (
                        self.first + i, have, self.durable[i], self.since[i])
            self.settle(i, have)


writers = [Writer(0), Writer(BLOCKS)]
rng = random.Random(seed)
for n in range(int(tries)):
    daemon, first = start()
    for w in writers:
        w.check(first)
    threads = [
        threading.Thread(target=w.run, args=(
            connect(), random.Random(rng.random()))) for w in writers]
    for t in threads:
        t.start()
    time.sleep(rng.uniform(0.005, 0.06))
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    for t in threads:
        t.join()
daemon, first = start()
for w in writers:
    w.check(first)
daemon.terminate()
daemon.wait()
written = sum(w.serial for w in writers)
flushed = sum(w.nr_flushes for w in writers)
print("%s tries, cache_size=%s: %d writes, %d flushes" % (
    tries, cache, written, flushed))
assert written > 20 * int(tries), "too little was written to tell"
assert flushed > 0
