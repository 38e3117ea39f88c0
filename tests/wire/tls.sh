#!/bin/bash
# SPDX-License-Identifier: MIT
# Other people's clients, with the keys of other people's tools: certificates
# by certtool, shared keys by psktool.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

need certtool psktool nbdinfo nbdcopy qemu-img qemu-io qemu-nbd nbd-client fio

pki=$tmp/pki
mkdir "$pki" "$tmp/other"

# certify WHO TEMPLATE...: WHO-key.pem and WHO-cert.pem, of our authority
certify() {
	local who=$1

	shift
	printf '%s\n' "$@" >"$tmp/template"
	certtool --generate-privkey --key-type ecdsa --curve secp256r1 \
		--outfile "$pki/$who-key.pem" 2>>"$tmp/certtool" || return
	if [ "$who" = ca ]; then
		certtool --generate-self-signed --template "$tmp/template" \
			--load-privkey "$pki/ca-key.pem" \
			--outfile "$pki/ca-cert.pem" 2>>"$tmp/certtool"
	else
		certtool --generate-certificate --template "$tmp/template" \
			--load-privkey "$pki/$who-key.pem" \
			--load-ca-certificate "$pki/ca-cert.pem" \
			--load-ca-privkey "$pki/ca-key.pem" \
			--outfile "$pki/$who-cert.pem" 2>>"$tmp/certtool"
	fi
}
{
	certify ca 'cn = "our authority"' ca cert_signing_key &&
	certify server 'cn = localhost' 'dns_name = localhost' \
		'ip_address = 127.0.0.1' tls_www_server signing_key &&
	certify client 'cn = alice' tls_www_client signing_key &&
	psktool -u alice -p "$tmp/keys.psk" >>"$tmp/certtool" 2>&1
} || { cat "$tmp/certtool"; fail "no keys"; }
# what a client has that knows the authority, and no more
cp "$pki/ca-cert.pem" "$tmp/other"
printf 'alice:00112233\n' >"$tmp/wrong.psk"

port=$(free_port)
start_nullbd -p "$port" -a 127.0.0.1 --tls required --tls-verify-peer \
	--tls-certificates "$pki" --tls-psk "$tmp/keys.psk" \
	"nullb0:size=32M,memory_backed=1,discard=1" "second:size=1G"

x509="tls-certificates=$pki"
psk="tls-psk-file=$tmp/keys.psk"
tcp="nbds://localhost:$port/nullb0?$x509"
unix="nbds+unix://localhost/nullb0?socket=$sock&$x509"
shared="nbds+unix://alice@localhost/nullb0?socket=$sock&$psk"

# works COMMAND...: exit status 0; its stdout is $out
works() {
	out=$("$@" 2>"$tmp/stderr") || {
		cat "$tmp/stderr" >&2
		fail "$*: status $?"
	}
}

# refused COMMAND...
refused() {
	! timeout 20 "$@" >"$tmp/stderr" 2>&1 ||
		fail "$*: it is let in"
}

says() {
	grep -qF -- "$1" <<<"$out" || {
		echo "$out" >&2
		fail "does not say '$1'"
	}
}

for u in "$tcp" "$unix" "$shared" "nbds://alice@localhost:$port/nullb0?$psk"; do
	works nbdinfo "$u"
	says "protocol: newstyle-fixed with TLS"
	says "export-size: 33554432"
	works nbdinfo --list "$u"
	says 'export="second"'
done
refused nbdinfo "nbd+unix:///nullb0?socket=$sock"
refused nbdinfo "nbd://localhost:$port"
refused nbdinfo "nbds://localhost:$port?tls-certificates=$tmp/other"
refused nbdinfo "nbds+unix://alice@localhost/?socket=$sock&tls-psk-file=$tmp/wrong.psk"
refused nbdinfo "nbds+unix://bob@localhost/?socket=$sock&$psk"
refused nbd-client -l 127.0.0.1 "$port"

# clients are told apart
/usr/bin/python3 - "$shared" "$NULLBCTL" "$control" <<-'END' || fail "nullbctl clients"
	import nbd, subprocess, sys
	h = nbd.NBD()
	h.set_uri_allow_local_file(True)
	h.connect_uri(sys.argv[1])
	print(subprocess.check_output([sys.argv[2], "--control", sys.argv[3],
	    "clients"], text=True).splitlines()[1])
	sys.exit(0 if subprocess.check_output([sys.argv[2], "--control",
	    sys.argv[3], "clients"], text=True).rstrip().endswith("tls") else 1)
END

head -c 32M /dev/urandom >"$tmp/image"
for u in "$tcp" "$shared"; do
	works nbdcopy --connections=4 "$tmp/image" "$u"
	rm -f "$tmp/back"
	works nbdcopy --connections=4 "$u" "$tmp/back"
	cmp "$tmp/image" "$tmp/back" || fail "nbdcopy $u: other data"
done

x=tls-creds-x509,id=t,dir=$pki,endpoint=client
p=tls-creds-psk,id=t,dir=$tmp/qemu,endpoint=client,username=alice
mkdir "$tmp/qemu" && cp "$tmp/keys.psk" "$tmp/qemu/keys.psk"
at=driver=nbd,host=localhost,port=$port,export=nullb0,tls-creds=t
for creds in "$x" "$p"; do
	works qemu-img info --object "$creds" --image-opts "$at"
	says "(33554432 bytes)"
	works qemu-img compare --object "$creds" --image-opts "$at" \
		"driver=raw,file.driver=file,file.filename=$tmp/image"
	works qemu-io --object "$creds" --image-opts "$at" \
		-c 'write -P 0xab 1M 3M' -c 'read -P 0xab 1M 3M' \
		-c 'write -z 2M 1M' -c 'read -P 0 2M 1M' -c 'flush'
	if grep -q 'Pattern verification failed' <<<"$out"; then
		fail "qemu-io reads other data than it wrote"
	fi
	works nbdcopy "$tmp/image" "$tcp"
done
works qemu-nbd --object "$x" --tls-creds t --tls-hostname localhost -L \
	-b localhost -p "$port"
says "exports available: 2"

works nbd-client -l -unix "$sock" -x -A "$pki/ca-cert.pem" -H localhost \
	-certfile "$pki/client-cert.pem" -keyfile "$pki/client-key.pem"
says second
kill -0 "$pid" || fail "nullbd has died"
stop_nullbd

# fio takes no paths from a URI, so it has no certificate, and verifies none
start_nullbd --tls required --tls-certificates "$pki" \
	"nullb0:size=64M,memory_backed=1"
works fio --name=t --ioengine=nbd \
	--uri="nbds+unix:///nullb0?socket=$sock&tls-verify-peer=false" \
	--rw=randrw --bs=16k --iodepth=16 --size=16m \
	--verify=crc32c --verify_state_save=0
stop_nullbd
echo "nbdinfo, nbdcopy, qemu, nbd-client and fio are content with TLS"
