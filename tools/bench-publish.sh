#!/bin/bash
# What: 'gpuimg publish' of a 2 GB image to nginx, Swift and docker-registry, beside 'curl -T' of the
#       same file to the same server in the same run.
# Why:  a publisher must not be what a network waits for, nor need an image's worth of memory.
# How:  tools/bench-publish.sh [--gpuimg FILE] [--mib N]; prints a markdown table. As root, since the
#       servers drop to users of their own; all on loopback, all stopped at the end.
set -euo pipefail

REPO=$(cd "$(dirname "$0")/.." && pwd)
GPUIMG=$REPO/build/gpuimg
MIB=2048
while [ $# -gt 0 ]; do
	case $1 in
	--gpuimg) GPUIMG=$2 ;;
	--mib) MIB=$2 ;;
	*)
		echo "usage: $0 [--gpuimg FILE] [--mib N]" >&2
		exit 2
		;;
	esac
	shift 2
done
export REPO OCI_PASSWORD=unused BENCH_PASSWORD=s3cret-password BENCH_SECRET=s3cret-swift-key
# shellcheck source=/dev/null
. "$REPO/tests/lib/servers.bash"

WORK=$(mktemp -d /tmp/gpuimg-bench-XXXXXX)
IMAGE=$WORK/node.qcow2
finish() {
	servers_end
	rm -rf "$WORK"
}
trap finish EXIT

make_image() {
	head -c "${MIB}M" /dev/urandom >"$WORK/raw"
	qemu-img convert -q -O qcow2 "$WORK/raw" "$IMAGE"
	rm "$WORK/raw"
	SUM=$(sha256sum "$IMAGE" | cut -d' ' -f1)
	printf '{"image": {"sha256": "%s", "boot_types": ["bios"]}}\n' "$SUM" >"$WORK/node.manifest.json"
}

now() {
	date +%s.%N
}

# watch PID: of the process that does the work, the most memory and how much it read of files.
watch() {
	local worker='' hwm=0 rchar=0 value
	while kill -0 "$1" 2>/dev/null; do
		[ -n "$worker" ] || worker=$(cat "/proc/$1/task/$1/children" 2>/dev/null || true)
		worker=${worker%% *}
		if [ -n "$worker" ]; then
			value=$(awk '/^VmHWM/ { print $2 }' "/proc/$worker/status" 2>/dev/null || true)
			hwm=${value:-$hwm}
			value=$(awk '/^rchar/ { print $2 }' "/proc/$worker/io" 2>/dev/null || true)
			rchar=${value:-$rchar}
		fi
		sleep 0.1
	done
	echo "$hwm $rchar" >"$WORK/watched"
}

# Lines with the time at which they came. By the shell: a program that is still starting would give
# the first ones a later time, and so make the sending look fast.
stamp() {
	local line
	while IFS= read -r line; do
		echo "$EPOCHREALTIME $line"
	done
}

# gpuimg_run TYPE: $whole (with digests) and $sending seconds, $hwm KiB, $reads of the file.
gpuimg_run() {
	local began ended pid rchar
	sync
	began=$(now)
	mkfifo "$WORK/fifo.$1"
	stamp <"$WORK/fifo.$1" >"$WORK/events" &
	local stamper=$!
	"$GPUIMG" publish -t "$WORK/$1.yaml" --verify=none --json "$IMAGE" >"$WORK/fifo.$1" 2>"$WORK/$1.err" &
	pid=$!
	watch "$pid" &
	local watcher=$!
	wait "$pid" || {
		cat "$WORK/$1.err" >&2
		exit 1
	}
	ended=$(now)
	wait "$stamper" "$watcher"
	read -r hwm rchar <"$WORK/watched"
	whole=$(awk -v a="$began" -v b="$ended" 'BEGIN { print b - a }')
	# "progress" events name the phase too: only those of "phase" are its beginning
	sending=$(awk '!/"event":"phase"/ { next }
		/"phase":"sends"/ && !a { a = $1 } /"phase":"completes"/ && !b { b = $1 }
		END { print b - a }' "$WORK/events")
	awk -v s="$sending" -v w="$whole" 'BEGIN { exit !(s > 0 && s < w) }' || {
		echo "sending took '$sending' of $whole seconds: that cannot be" >&2
		exit 1
	}
	reads=$(awk -v r="$rchar" -v s="$(stat -c %s "$IMAGE")" 'BEGIN { printf "%.2f", r / s }')
}

curl_run() { # CURL_ARGUMENT...: $curled seconds
	local began
	sync
	began=$(now)
	curl -s --fail -o /dev/null -T "$IMAGE" "$@"
	curled=$(awk -v a="$began" -v b="$(now)" 'BEGIN { print b - a }')
}

row() { # NAME
	awk -v n="$1" -v size="$(stat -c %s "$IMAGE")" -v c="$curled" -v w="$whole" -v s="$sending" \
		-v m="$hwm" -v r="$reads" 'BEGIN { mb = size / 1e6
		printf "| %s | %.0f | %.0f | %.2f | %.0f | %.2f | %.0f MiB | %s |\n", n, mb / c, mb / s,
			c / s, mb / w, c / w, m / 1024, r }'
}

bench_http() {
	start_nginx
	install -d -o www-data "$NGINX_ROOT/bench"
	cat >"$WORK/http.yaml" <<-YAML
		targets:
		  web: {type: http, url: "http://127.0.0.1:$NGINX_PORT/bench", user: alice, password: {env: BENCH_PASSWORD}}
	YAML
	curl_run -u "alice:$BENCH_PASSWORD" "http://127.0.0.1:$NGINX_PORT/bench/curl"
	rm "$NGINX_ROOT/bench/curl"
	gpuimg_run http
	row "http, nginx"
	rm -rf "$NGINX_ROOT/bench"
}

bench_s3() {
	local token
	start_swift
	swift_curl PUT images
	cat >"$WORK/s3.yaml" <<-YAML
		targets:
		  store: {type: s3, endpoint: "http://127.0.0.1:$SWIFT_PORT", bucket: images, access_key: {env: BENCH_KEY}, secret_key: {env: BENCH_SECRET}}
	YAML
	export BENCH_KEY=test:tester
	token=$(swift_token)
	curl_run -H "X-Auth-Token: $token" "http://127.0.0.1:$SWIFT_PORT/v1/AUTH_test/images/curl"
	swift_curl DELETE images/curl
	gpuimg_run s3
	row "s3, Swift"
}

bench_oci() {
	local port location
	oci_registry "$WORK/registry"
	port=$(cat "$WORK/registry/port")
	cat >"$WORK/oci.yaml" <<-YAML
		targets:
		  registry: {type: oci, repository: "127.0.0.1:$port/bench/node"}
	YAML
	location=$(curl -s -D - -o /dev/null -X POST "http://127.0.0.1:$port/v2/bench/curl/blobs/uploads/" |
		tr -d '\r' | awk 'tolower($1) == "location:" { print $2 }')
	curl_run "$location&digest=sha256:$SUM"
	rm -rf "$WORK/registry/data/docker"
	gpuimg_run oci
	row "oci, docker-registry"
}

servers_begin
make_image
echo "$(stat -c %s "$IMAGE") bytes, $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), $(date -u +%F)"
echo
echo '| target | curl -T, MB/s | publish, sending, MB/s | ratio | with digests, MB/s | ratio | memory | file read |'
echo '|---|---|---|---|---|---|---|---|'
bench_http
bench_s3
bench_oci
