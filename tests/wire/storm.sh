#!/bin/bash
# SPDX-License-Identifier: MIT
# Everything at once: attributes, power, devices, zones, faults and clients
# change and are read while fio and libnbd do I/O on the same devices.  Who asks
# is always answered; a device that nobody touches keeps its data; in the end
# all are as good as new, what was used is given back, and the daemon ends in
# time.  NULLB_LONG=1: 30 seconds of it, or STORM_SECONDS; STORM_SEED repeats
# what is asked for.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

seconds=${STORM_SECONDS:-4}
[ -z "${NULLB_LONG:-}" ] || seconds=${STORM_SECONDS:-30}
seed=${STORM_SEED:-$$}
echo "seed $seed, $seconds s"

# nbdsh runs whatever python3 comes first, which need not be Debian's
for python in python3 /usr/bin/python3 ''; do
	[ -z "$python" ] || ! "$python" -c 'import nbd' 2>/dev/null || break
done
[ -n "$python" ] || skip "python3-libnbd is missing"
need fio

cat >"$tmp/storm.py" <<'END'
import json, nbd, os, random, socket, sys, time
dir, role, seed, seconds = (sys.argv[1], sys.argv[2], int(sys.argv[3]),
    float(sys.argv[4]))
random.seed(f"{seed} {role}")
end = time.monotonic() + seconds
fixed = ["nullb0", "nullb1", "nullb2", "zoned0", "zoned1"]
fleeting = ["new0", "new1", "new2"]
devices = fixed + fleeting

# ---- who asks

class Ctl:
    """An answer comes to each request: within ANSWER_S, or it hangs."""
    ANSWER_S = 40
    def __init__(self):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(self.ANSWER_S)
        self.s.connect(dir + "/control")
        self.f = self.s.makefile("rb")
    def ask(self, **request):
        self.s.sendall(json.dumps(request).encode() + b"\n")
        try:
            line = self.f.readline()
        except TimeoutError:
            sys.exit(f"no answer in {self.ANSWER_S} s: {request}")
        if not line:
            sys.exit(f"hung up on: {request}")
        answer = json.loads(line)
        if not answer["ok"] and answer["errno"] in ("EIO", "EFAULT", "ENOTSUP"):
            # nothing of what is asked here may fail so, but for zones
            if request["command"] != "zone":
                sys.exit(f"{request}: {answer}")
        return answer
    def set(self, device, attribute, value):
        return self.ask(command="set", name=device, attribute=attribute,
            value=str(value))

live = {
    "scheduler": ["none", "mq-deadline"],
    "submit_queues": [1, 2, 3, 4],
    "poll_queues": [0, 1],
    "irqmode": [0, 1, 2],
    "completion_nsec": [0, 1000, 100000, 3000000],
    "mbps": [0, 0, 1, 20, 400],
    "cache_size": [0, "64K", "1M", "8M"],
    "memory_limit": [0, "1M", "16M", "64M"],
    "badblocks": ["+8-15", "+1000-1999", "-0-99999", "-0-131071"],
    "badblocks_once": [0, 1],
    "badblocks_partial_io": [0, 1],
    "timeout": ["", "", "1,5,0,-1"],
    "timeout_nsec": ["1ms", "5ms", "30ms"],
    "requeue": ["", "1,10,0,-1", "3,100,0,-1"],
    "nomerges": [0, 1, 2],
    "nr_requests": [0, 4, 17, 64, 128],
    "max_sectors_kb": [0, 4, 64, 127],
    "discard_max_bytes": [0, 65536, "1M", 4294966784],
    "iostats": [0, 1],
    "plug": ["plug", "call", "each"],
    "read_expire": [1, 500],
    "write_expire": [1, 5000],
    "fifo_batch": [1, 16],
    "writes_starved": [1, 2],
    "front_merges": [0, 1],
    "async_depth": [0, 1, 64],
    "zone_readonly": [0, 4096, 40000],
    "zone_offline": [8192, 70000],
    # not live: refused while it is on
    "size": ["64M", "48M", "63M"],
    "blocksize": [512, 1024, 4096],
    "memory_backed": [0, 1, 1, 1],
    "discard": [0, 1],
    "write_zeroes_max_bytes": [0, "1M"],
    "queue_mode": [0, 2, 2],
    "hw_queue_depth": [1, 4, 64, 256],
    "zoned": [0, 1],
    "zone_size": ["64K", "1M", "4M"],
    "zone_capacity": [0, "64K", "1M"],
    "zone_nr_conv": [0, 1, 8],
    "zone_max_open": [0, 1, 3],
    "zone_max_active": [0, 4],
    "zone_full": [0, 1],
    "kernel": ["4.14", "5.4", "6.1", "6.12"],
    "shared_tag_bitmap": [0, 1],
    "blocking": [0, 1],
    "fua": [0, 1],
    "page_order": [0, 2, 9],
}
def change(ctl):
    attribute = random.choice(list(live))
    ctl.set(random.choice(devices), attribute, random.choice(live[attribute]))

def power(ctl):
    d = random.choice(devices)
    if random.random() < .6:
        ctl.ask(command="power", name=d, value="off")
        for _ in range(random.randrange(5)):
            change(ctl)
    if not ctl.ask(command="power", name=d, value="on")["ok"]:
        for a, v in (("scheduler", "none"), ("zoned", 0), ("size", "64M"),
            ("nr_requests", 0), ("max_sectors_kb", 0), ("zone_capacity", 0),
            ("discard_max_bytes", 0), ("write_zeroes_max_bytes", 0)):
            ctl.set(d, a, v)
        ctl.ask(command="power", name=d, value="on")

def come_and_go(ctl):
    d = random.choice(fleeting)
    ctl.ask(command="remove", name=d)
    attributes = {"size": "64M", "memory_backed": random.choice("011"),
        "irqmode": random.choice("012"), "cache_size": random.choice("01"),
        "submit_queues": random.choice("124"),
        "scheduler": random.choice(["none", "mq-deadline"])}
    if random.random() < .3:
        attributes.update(zoned="1", zone_size="1M", zone_max_open="3")
    if random.random() < .3:
        attributes.update(faults=["op=READ,chance=50",
            "op=WRITE,action=delay,delay=3ms,chance=9"])
    if random.random() < .3:
        attributes.update(fill=dir + "/image", power=random.choice("01"))
    ctl.ask(command="create", name=d, attributes=attributes)
    time.sleep(random.random() / 10)

def zones(ctl):
    d = random.choice(devices)
    if random.random() < .3:
        return ctl.ask(command="zone", name=d, action="report")
    request = dict(command="zone", name=d,
        action=random.choice(["open", "close", "finish", "reset", "reset"]))
    if random.random() < .2:
        request["all"] = True
    else:
        request["sector"] = random.randrange(64) * 2048
    ctl.ask(**request)

rules = ["chance=30,status=NOSPC", "chance=20,delay=5ms",
    "op=READ,action=corrupt,chance=5", "op=WRITE,action=corrupt,chance=5",
    "op=WRITE,action=torn,chance=7", "op=WRITE,action=torn,keep=1,chance=7",
    "action=misdirected,shift=3,chance=7",
    "action=misdirected,shift=-8,chance=7", "action=lost,chance=7",
    "chance=40,action=hang", "op=FLUSH,chance=2",
    "op=FLUSH,action=hang,chance=5", "op=FLUSH,action=delay,delay=2ms",
    "op=FLUSH,action=lost,chance=2", "op=DISCARD,chance=2",
    "action=drop,at=before,chance=300", "action=drop,at=mid-payload,chance=300"]
def faults(ctl):
    d = random.choice(devices)
    for _ in range(random.randrange(4)):
        ctl.ask(command="fault_add", name=d, rule=random.choice(rules))
        ctl.set(d, "faults", random.choice(rules))
    time.sleep(random.random() / 10)
    ctl.ask(command="faults", name=d)
    ctl.ask(command="fault_log", name=d)
    ctl.ask(command="fault_release", name=d)
    if random.random() < .5:
        ctl.set(d, "faults", "removeall")

def others(ctl):
    return [c for c in ctl.ask(command="clients")["clients"]
        if c["export"] != "calm"]

def look(ctl):
    for d in random.sample(devices, 3):
        for c in ("stat", "inflight", "segments", "latency", "queue", "uri",
            "get"):
            ctl.ask(command=c, name=d)
    for c in ("list", "iostat", "diskstats"):
        ctl.ask(command=c)
    clients = [c for c in others(ctl) if c["export"]]
    if clients and random.random() < .1:
        ctl.ask(command="kick", id=random.choice(clients)["id"])

def trace(ctl):
    """It ends when we go, or when the device does."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(.2)
        s.connect(dir + "/control")
        s.sendall(json.dumps(dict(command="trace",
            name=random.choice(devices))).encode() + b"\n")
        try:
            for _ in range(random.randrange(20)):
                if not s.recv(65536):
                    break
        except TimeoutError:
            pass
    time.sleep(.05)

def ask_all(*steps):
    ctl = Ctl()
    while time.monotonic() < end:
        random.choice(steps)(ctl)

# ---- clients

def uri(d):
    return f"nbd+unix:///{d}?socket={dir}/sock"

def some(h, size):
    n = random.choice([512, 4096, 4096, 65536, 131072, 1 << 20])
    pos = random.randrange(0, size - n) // 4096 * 4096
    what = random.random()
    fua = nbd.CMD_FLAG_FUA if random.random() < .2 else 0
    if what < .4:
        h.aio_pread(nbd.Buffer(n), pos)
    elif what < .75:
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"s" * n)), pos,
            flags=fua)
    elif what < .8:
        h.aio_zero(n, pos, flags=random.choice([0, nbd.CMD_FLAG_NO_HOLE]))
    elif what < .85:
        h.aio_trim(random.choice([n, 1 << 20]), pos)
    elif what < .9:
        h.aio_flush()
    elif what < .95:
        h.aio_block_status(1 << 20, pos, lambda *a: 0)
    else:
        h.aio_cache(n, pos)

def burst(h, stop):
    size = h.get_size()
    while time.monotonic() < stop:
        try:
            while h.aio_in_flight() < 32:
                some(h, size)
        except nbd.Error:
            if h.aio_is_dead() or h.aio_is_closed():
                return # else this export does not offer it
        h.poll(20)
        while True:
            c = h.aio_peek_command_completed()
            if c <= 0:
                break
            try:
                h.aio_command_completed(c)
            except nbd.Error:
                pass # that is what it is about

def sequential(h, stop):
    """As one writes to zones."""
    size, pos = h.get_size(), 0
    while time.monotonic() < stop:
        try:
            h.pwrite(b"z" * 65536, pos, flags=random.choice([0, 0, 1]))
            pos += 65536
        except nbd.Error:
            if h.aio_is_dead() or h.aio_is_closed():
                return
            pos = random.randrange(size >> 20) << 20

def client(*some_devices):
    while time.monotonic() < end:
        try:
            h = nbd.NBD()
            h.set_strict_mode(0)
            for c in ("base:allocation", "x-nullb:zones"):
                h.add_meta_context(c)
            h.connect_uri(uri(random.choice(some_devices)))
            random.choice([burst, burst, sequential])(h,
                time.monotonic() + 2 * random.random())
            if random.random() < .3:
                h.shutdown()
        except nbd.Error:
            time.sleep(.005) # off, or dropped: another one

def calm():
    """A device that nobody changes: what was written is there."""
    h = nbd.NBD()
    h.connect_uri(uri("calm"))
    data = bytearray(1 << 20)
    h.pwrite(data, 0)
    while time.monotonic() < end:
        n = random.choice([512, 4096, 70000 // 512 * 512])
        pos = random.randrange(len(data) - n) // 512 * 512
        data[pos:pos + n] = random.randbytes(n)
        h.pwrite(data[pos:pos + n], pos)
        if h.pread(len(data), 0) != data:
            sys.exit("calm: other data than was written")

# ---- afterwards

def settle():
    ctl = Ctl()
    for d in devices:
        for a, v in (("faults", "removeall"), ("timeout", ""), ("requeue", ""),
            ("mbps", 0), ("badblocks", "-0-999999")):
            ctl.set(d, a, v)
        ctl.ask(command="power", name=d, value="off")
    left = 100
    while others(ctl):
        left -= 1
        if left == 0:
            sys.exit(f"somebody is left: {others(ctl)}")
        time.sleep(.05)
    for d in fleeting:
        ctl.ask(command="remove", name=d)
    for d in fixed:
        for a, v in (("size", "64M"), ("blocksize", 512), ("zoned", 0),
            ("memory_backed", 1), ("memory_limit", 0), ("scheduler", "none"),
            ("max_sectors_kb", 0), ("nr_requests", 0), ("discard", 1),
            ("discard_max_bytes", 4294966784), ("hw_queue_depth", 64),
            ("completion_nsec", 1000), ("write_zeroes_max_bytes", 0)):
            if not ctl.set(d, a, v)["ok"]:
                sys.exit(f"{d}: {a} cannot be set")
        answer = ctl.ask(command="power", name=d, value="on")
        if not answer["ok"]:
            sys.exit(f"{d}: {answer}")
        as_new(ctl, d)
    for d in fixed:
        ctl.ask(command="remove", name=d)

def as_new(ctl, d):
    h = nbd.NBD()
    h.connect_uri(uri(d))
    data = random.randbytes(1 << 20)
    for pos in (0, 33 << 20, 63 << 20):
        h.pwrite(data, pos)
        if h.pread(len(data), pos) != data:
            sys.exit(f"{d}: other data than was written")
    h.flush()
    h.trim(1 << 20, 0)
    if h.pread(1 << 20, 0) != bytes(1 << 20):
        sys.exit(f"{d}: a trim did nothing")
    h.shutdown()
    answer = ctl.ask(command="inflight", name=d)
    if answer["inflight"].split() != ["0", "0"]:
        sys.exit(f"{d}: in flight: {answer}")

{
    "change": lambda: ask_all(change),
    "power": lambda: ask_all(power, change),
    "devices": lambda: ask_all(come_and_go, come_and_go, power),
    "faults": lambda: ask_all(faults, zones),
    "zones": lambda: ask_all(zones, zones, zones, change),
    "look": lambda: ask_all(look),
    "trace": lambda: ask_all(trace),
    "client0": lambda: client(*devices),
    "client1": lambda: client(*fixed),
    "client2": lambda: client("zoned0", "zoned1"),
    "client3": lambda: client("nullb1", "new0"),
    "calm": calm,
    "settle": settle,
}[role]()
END

head -c 20M /dev/urandom >"$tmp/image"

fio_on() {
	local stop=$((SECONDS + seconds))

	while [ $SECONDS -lt $stop ]; do
		timeout 60 fio --name=storm --ioengine=nbd --uri="$(uri "$1")" --rw=randrw \
			--bsrange=512-128k --iodepth=16 --numjobs=3 --size=32m \
			--time_based --runtime=2 --fsync=50 --fdatasync=9 --continue_on_error=all \
			--output=/dev/null >/dev/null 2>&1 </dev/null
		sleep 0.05
	done
	return 0
}

common=memory_backed=1,size=64M,discard=1
start_nullbd --workers 4 "nullb0:$common" \
	"nullb1:$common,submit_queues=4,hw_queue_depth=16,scheduler=mq-deadline" \
	"nullb2:$common,irqmode=2,cache_size=1M" \
	"zoned0:$common,zoned=1,zone_size=1M,zone_max_open=4,cache_size=1M" \
	"zoned1:$common,zoned=1,zone_size=1M,zone_nr_conv=8,scheduler=mq-deadline" \
	"calm:size=1M,memory_backed=1"
# broken WHAT: with all that a sanitizer has to say, not only the log's end
broken() {
	grep -v '^nullbd: ' "$log" | head -n 100 >&2
	fail "seed $seed: $*"
}
files() {
	find "/proc/$pid/fd" -mindepth 1 | wc -l
}
files_before=$(files) rss_before=$(rss_kib)

# settled ROLE PID: it is over, and was content
settled() {
	wait "$2" || broken "$1: $(<"$tmp/$1.err")"
}

declare -A player
for role in change power devices faults zones look trace calm \
	client0 client1 client2 client3; do
	"$python" "$tmp/storm.py" "$tmp" $role "$seed" "$seconds" 2>"$tmp/$role.err" &
	player[$role]=$!
done
fio_on nullb0 &
fio0=$!
fio_on zoned0 &
fio1=$!
# Those who change things first: what is left hanging then ends with the power,
# and with it who waits for that.
for role in "${!player[@]}"; do
	[[ $role == client* ]] || settled "$role" "${player[$role]}"
done
sleep 3 # nobody begins anew after that
kill -0 "$pid" || broken "nullbd has died"
timeout 100 "$python" "$tmp/storm.py" "$tmp" settle "$seed" 60 2>"$tmp/settle.err" ||
	broken "afterwards: $(<"$tmp/settle.err")"
for role in "${!player[@]}"; do
	[[ $role != client* ]] || settled "$role" "${player[$role]}"
done
wait $fio0 $fio1
for ((i = 0; ; i++)); do
	[ "$(files)" -gt "$files_before" ] || break
	[ $i -lt 100 ] || broken "$(files) files, before it were $files_before"
	sleep 0.05
done
# what threads and their allocators keep at hand: as much after a minute
sanitized || bound "KiB more than before" $(($(rss_kib) - rss_before)) 163840
stop_nullbd
if grep -E 'ERROR|WARNING: |runtime error' "$log" >/dev/null; then
	broken "the log has more to say"
fi
exit 0
