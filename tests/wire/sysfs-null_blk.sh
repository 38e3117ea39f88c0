#!/bin/bash
# SPDX-License-Identifier: MIT
# What null_blk of real kernels answered to write(2) on files of its configfs, with the
# same bytes (tests/data/*.tsv), and what the files of --sysfs answer; and which files
# there are.  Where they differ a row of DIFFERENCES says so; nullbd-null_blk(7) has
# them with reasons.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"
data=$(dirname "$0")/../data

need python3
need_sysfs
mkdir "$tmp/sys"
start_nullbd --workers 2 --sysfs "$tmp/sys" none:size=1M
for kernel in 6.1 6.12; do
	"$NULLBCTL" --control "$control" create $kernel-off kernel=$kernel power=0 ||
		fail "no $kernel-off"
	"$NULLBCTL" --control "$control" create $kernel-on kernel=$kernel size=64 ||
		fail "no $kernel-on"
done

timeout 120 python3 - "$tmp/sys" "$data" "$NULLBCTL" "$control" <<'END' || fail "see above"
import errno, fnmatch, os, subprocess, sys

top, data, nullbctl, control = sys.argv[1:]
config, block = top + '/config/nullb', top + '/block'

# KERNEL POWER ATTRIBUTE "VALUE", or KERNEL power SETTINGS, patterns; what we answer,
# and what is read then: = is what it was before
DIFFERENCES = '''
* * * ""|OK|=
* off size "1k"|OK|1024B
* off blocksize "1k"|OK|1024
* off size "9223372036854775807"|ERANGE|=
* off size "18446744073709551615"|ERANGE|=
* off cache_size "1k"|OK|1024B
* off cache_size "9223372036854775807"|ERANGE|=
* off cache_size "18446744073709551615"|ERANGE|=
* off zone_size "1k"|OK|1024B
* off zone_size "9223372036854775807"|ERANGE|=
* off zone_size "18446744073709551615"|ERANGE|=
* off zone_capacity "1k"|OK|1024B
* off zone_capacity "9223372036854775807"|ERANGE|=
* off zone_capacity "18446744073709551615"|ERANGE|=
* power blocksize=0|EINVAL|
* power size=8796093022208|ERANGE|
* power size=17592186044415|ERANGE|
6.1 power max_sectors=[17]|EINVAL|
6.1 power max_sectors=7 blocksize=4096|EINVAL|
* power poll_queues=0 queue/nr_requests||64
* power poll_queues=0 queue/scheduler||[none] mq-deadline
6.1 power zoned=1* queue/nr_requests||64
6.1 power zoned=1* queue/scheduler||[none] mq-deadline
* power shared_tags=1 hw_queue_depth=8 queue/nr_requests||8
'''
differences = [d.split('|') for d in DIFFERENCES.strip().split('\n')]
used = set()
wrong = 0

def differs(case, error, reads, before=''):
    for key, e, r in differences:
        if fnmatch.fnmatchcase(case, key) and error == e and \
           reads == (before if r == '=' else r):
            used.add(key)
            return True
    return False

def complain(*what):
    global wrong
    wrong += 1
    print(*what)

def write(path, value):
    try:
        fd = os.open(path, os.O_WRONLY)
        try:
            n = os.write(fd, value)
        finally:
            os.close(fd)
        return 'OK' if n == len(value) else 'short: %d' % n
    except OSError as e:
        return errno.errorcode[e.errno]

def read(path):
    try:
        with open(path) as f:
            return f.read().rstrip('\n').rstrip()
    except PermissionError:  # it can only be written
        return ''

def rows(name):
    for line in open(data + '/' + name):
        if not line.startswith('#'):
            yield line.rstrip('\n').split('\t')

def raw(text):
    return text.replace('\\n', '\n').encode()

# ---- each value, off and on

nr = 0
for kernel, power, attribute, text, want, reads in rows('writes.tsv'):
    path = '%s/%s-%s/%s' % (config, kernel, power, attribute)
    before = read(path)
    got, value = write(path, raw(text)), read(path)
    wanted = reads if want == 'OK' else before
    nr += 1
    if (got, value) != (want, wanted) and not differs(
            '%s %s %s "%s"' % (kernel, power, attribute, text), got, value, before):
        complain('%s, %s: %s = %r: %s, %r; null_blk: %s, %r' %
                 (kernel, power, attribute, text, got, value, want, wanted))
print(nr, 'values: as null_blk, or as the rules have it')

# ---- the same of one device after the other; bad blocks

os.mkdir(config + '/fresh')
nr = 0
for attribute, text, want, reads in rows('attr-writes.tsv'):
    path = '%s/fresh/%s' % (config, attribute)
    before = read(path)
    got, value = write(path, raw(text)), read(path)
    nr += 1
    if got != want and not differs('6.12 off %s "%s"' % (attribute, text), got, value, before):
        complain('%s = %r: %s; null_blk: %s' % (attribute, text, got, want))
    elif got == want == 'OK' and value != reads:
        complain('%s = %r reads %r; null_blk: %r' % (attribute, text, value, reads))
os.rmdir(config + '/fresh')
os.mkdir(config + '/fresh')
for text, want, reads in rows('badblocks.tsv'):
    path = config + '/fresh/badblocks'
    got, lines = write(path, raw(text)), read(path).split('\n')
    value = ','.join(lines)
    if len(lines) > 10:
        value = '...%d,%s,%s' % (len(lines), lines[-2], lines[-1])
    nr += 1
    if (got, value) != (want, reads):
        complain('badblocks %r: %s, %r; null_blk: %s, %r' % (text, got, value, want, reads))
os.rmdir(config + '/fresh')
print(nr, 'more of a new device: the same')

# ---- settings together, at power-on

def make(name, kernel):
    subprocess.run([nullbctl, '--control', control, 'create', name, 'kernel=' + kernel,
                    'power=0'], check=True)

def scheduler(text):
    return text.split('[')[-1].split(']')[0]

nr = 0
for kernel, settings, want, everything in rows('power-on-all.tsv'):
    make('it', kernel)
    answers = [write('%s/it/%s' % (config, s.split('=')[0]), s.split('=')[1].encode() + b'\n')
               for s in settings.split()]
    got = next((a for a in answers if a != 'OK'), None) or \
        write(config + '/it/power', b'1\n')
    nr += 1
    if got != want and not differs('%s power %s' % (kernel, settings), got, ''):
        complain('%s: %s: %s; null_blk: %s' % (kernel, settings, got, want))
    for s in everything.split() if got == want == 'OK' else []:
        name, wanted = s.split('=')
        if name == 'sectors':
            value = read(block + '/it/size')
        elif name.startswith('queue/'):
            value = read(block + '/it/' + name)
        else:
            value = read(config + '/it/' + name)
        is_same = value.replace(' ', '_') == wanted
        if name == 'queue/scheduler':
            is_same = scheduler(value) == wanted
        if not is_same and not differs(
                '%s power %s %s' % (kernel, settings, name), '', value):
            complain('%s: %s: %s is %r; null_blk: %r' %
                     (kernel, settings, name, value, wanted))
    if (read(config + '/it/power') == '1') != (got == 'OK'):
        complain('%s: %s: power reads otherwise' % (kernel, settings))
    os.rmdir(config + '/it')
print(nr, 'settings at power-on: the same')

# ---- a new device, and the queues of powered ones

nr = 0
variants = {'-': None}
for kernel, variant, name, wanted in rows('defaults.tsv'):
    if variant != '-':
        continue
    if not os.path.isdir(config + '/new' + kernel):
        make('new' + kernel, kernel)
    value = read('%s/new%s/%s' % (config, kernel, name))
    nr += 1
    if value != wanted and name != 'index':
        complain('%s: new: %s is %r; null_blk: %r' % (kernel, name, value, wanted))
print(nr, 'attributes of a new device: the same')

for key, _, _ in differences:
    if key not in used:
        complain('a difference that there is not:', key)
sys.exit(wrong > 0)
END
stop_nullbd
