# SPDX-License-Identifier: MIT
# manager.py NULLBD NULLBCTL DIRECTORY: a service manager with a store of file
# descriptors (sd_pid_notify_with_fds(3)), that starts the daemon anew: memory
# of devices comes back, and clients, whose socket goes on to listen, wait.
import array
import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import nbd

nullbd, nullbctl, where = sys.argv[1:4]
sock, control, notify = (os.path.join(where, n) for n in ("s", "c", "n"))
FIRST_FD = 3
DEVICE = "m:size=64M,memory_backed=1,backing=memfd"


def listener(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(path)
    s.listen(16)
    return s


class Manager:
    def __init__(self):
        self.sockets = [("nbd", listener(sock).detach()),
                        ("control", listener(control).detach())]
        self.store = {}
        self.ready = threading.Event()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(notify)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            text, rest, _, _ = self.notify.recvmsg(4096, 1024)
            lines = text.decode().split("\n")
            fds = array.array("i")
            for _, kind, data in rest:
                assert kind == socket.SCM_RIGHTS
                fds.frombytes(data)
            name = [x[7:] for x in lines if x.startswith("FDNAME=")]
            if "FDSTORE=1" in lines:
                assert len(fds) == 1, lines
                assert re.fullmatch("[^:]{1,255}", name[0]), name
                self.store[name[0]] = fds[0]
            elif "FDSTOREREMOVE=1" in lines:
                os.close(self.store.pop(name[0]))
            else:
                assert not fds
            if "READY=1" in lines:
                self.ready.set()

    def start(self, device, stored=None):
        """stored: what is passed instead of what was stored"""
        passed = self.sockets + list(
            (self.store if stored is None else stored).items())
        self.ready.clear()
        self.pid = os.fork()
        if self.pid == 0:
            high = [os.dup2(fd, 200 + i) for i, (_, fd) in enumerate(passed)]
            for i, fd in enumerate(high):
                os.dup2(fd, FIRST_FD + i)
            os.closerange(FIRST_FD + len(passed), 1024)
            os.environ.update(
                LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(passed)),
                LISTEN_FDNAMES=":".join(n for n, _ in passed),
                NOTIFY_SOCKET=notify)
            os.dup2(os.open(os.path.join(where, "log"), os.O_WRONLY |
                            os.O_CREAT | os.O_APPEND, 0o600), 2)
            os.execv(nullbd, [nullbd, device])
        assert self.ready.wait(20), "it is not ready"

    def kill(self):
        if self.pid != 0:
            os.kill(self.pid, signal.SIGKILL)

    def stop(self, sig):
        os.kill(self.pid, sig)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if sig == signal.SIGTERM:
            assert status == 0, status


def ctl(*args):
    subprocess.run([nullbctl, "--control", control] + list(args), check=True)


def attach(name):
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///%s?socket=%s" % (name, sock))
    return h


class Client(threading.Thread):
    """As nbd-client -persist: what was not answered is sent again."""

    def __init__(self):
        super().__init__()
        self.ends = False
        self.nr_ios = 0
        self.nr_attached = 0
        self.pause = 0.0
        self.error = None

    def run(self):
        try:
            self.work()
        except AssertionError as e:
            self.error = e

    def work(self):
        h = None
        serial = done = 0
        last = time.monotonic()
        while not self.ends:
            try:
                if h is None:
                    h = attach("m")
                    self.nr_attached += 1
                have = h.pread(512, 1 << 20)
                assert have[:8] in (done.to_bytes(8, "little"),
                                    serial.to_bytes(8, "little")), (
                    have[:8], done, serial)
                if done == serial:
                    serial += 1
                h.pwrite(serial.to_bytes(8, "little") * 64, 1 << 20)
            except nbd.Error:
                h = None
                time.sleep(0.001)
                continue
            done = serial
            self.nr_ios += 1
            self.pause = max(self.pause, time.monotonic() - last)
            last = time.monotonic()


m = Manager()
atexit.register(m.kill)
m.start(DEVICE)
assert list(m.store) == ["backing-m"], m.store
h = attach("m")
h.pwrite(b"kept" * 1024, 0)
h.shutdown()
client = Client()
client.start()
for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
    before = client.nr_ios
    while client.nr_ios < before + 20:
        assert client.is_alive(), client.error
        time.sleep(0.01)
    m.stop(sig)
    m.start(DEVICE)
before = client.nr_ios
while client.nr_ios < before + 20:
    assert client.is_alive(), client.error
    time.sleep(0.01)
client.ends = True
client.join()
assert client.error is None, client.error
assert client.nr_attached == 4, client.nr_attached
print("restarts: 3, I/Os: %d, the longest pause: %.0f ms" % (
    client.nr_ios, client.pause * 1000))
h = attach("m")
assert h.pread(4096, 0) == b"kept" * 1024
h.shutdown()

# the power goes and comes back; the memory grows, and goes with the device
ctl("power", "m", "off")
ctl("set", "m", "size", "65M")
ctl("power", "m", "on")
h = attach("m")
assert h.get_size() == 65 << 20
assert h.pread(4096, 0) == b"kept" * 1024
h.shutdown()
ctl("create", "n", "size=1M", "memory_backed=1", "backing=memfd")
ctl("remove", "m")
end = time.monotonic() + 5
while sorted(m.store) != ["backing-n"]:
    assert time.monotonic() < end, m.store
    time.sleep(0.01)
# what nobody asks for stays as it is, until somebody does
h = attach("n")
h.pwrite(b"n" * 512, 0)
h.shutdown()
m.stop(signal.SIGTERM)
m.start("other:size=1M")
assert sorted(m.store) == ["backing-n"]
ctl("create", "n", "size=1M", "memory_backed=1", "backing=memfd")
h = attach("n")
assert h.pread(512, 0) == b"n" * 512
h.shutdown()
m.stop(signal.SIGTERM)

# what was passed by that name and is none
m.start("other:size=1M", {"backing-n": os.open("/dev/null", os.O_RDWR)})
r = subprocess.run([nullbctl, "--control", control, "create", "n", "size=1M",
                    "memory_backed=1", "backing=memfd"],
                   stderr=subprocess.PIPE, text=True)
assert r.returncode != 0 and "backing: \"memfd\"" in r.stderr, r.stderr
m.stop(signal.SIGTERM)
