# What: what the bats files share: where things are, guests made once, checks with clear messages.
# Why:  a guest or a build costs a minute; many tests look at the same one.
# How:  'load ../lib/common' at the top of a bats file.
# shellcheck shell=bash

REPO=$(cd "${BATS_TEST_DIRNAME}/../.." && pwd)
GPUIMG=${GPUIMG:-$REPO/build/gpuimg}
OUT=${GPUIMG_TEST_OUT:-$REPO/build/test-out}
export GPUIMG REPO OUT
mkdir -p "$OUT"

need_root() {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
}

# run_split COMMAND...: $status, $out (stdout) and $err (stderr) apart, and $seconds.
run_split() {
	local began
	began=$(date +%s.%N)
	status=0
	"$@" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" </dev/null || status=$?
	out=$(cat "$BATS_TEST_TMPDIR/out")
	err=$(cat "$BATS_TEST_TMPDIR/err")
	# shellcheck disable=SC2034 # for the tests
	seconds=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
}

expect_status() {
	if [ "$status" -ne "$1" ]; then
		echo "exit code $status, want $1"
		echo "stdout: $out"
		echo "stderr: $err"
		return 1
	fi
}

expect_in() { # text, part
	case $1 in
	*"$2"*) ;;
	*)
		echo "missing: $2"
		echo "in: $1"
		return 1
		;;
	esac
}

expect_not_in() { # text, part
	case $1 in
	*"$2"*)
		echo "not wanted: $2"
		echo "in: $1"
		return 1
		;;
	esac
}

wait_until() { # seconds, command...
	local tries=$(($1 * 20))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || {
			echo "in vain: $*"
			return 1
		}
		sleep 0.05
	done
}

# phony NAME [KERNEL...]: a phony image, made once a run; PHONY_CUSTOMIZE changes its root.
phony() {
	local path=$OUT/phony-$1.qcow2
	shift
	[ -e "$path" ] || "$REPO/tests/fixtures/make-phony-image.sh" "$path" "$@" >&2
	echo "$path"
}

# base NAME [OPTION...]: a real guest by the project's own maker, from its cache.
base() {
	local path=$OUT/base-$1.qcow2
	shift
	[ -e "$path" ] || "$GPUIMG" make-base --quiet -o "$path" "$@" >&2
	echo "$path"
}

# built NAME BASE [OPTION...]: a build of it without boot test, made once a run.
built() {
	local path=$OUT/$1.qcow2 from=$2
	shift 2
	[ -e "$path" ] || "$GPUIMG" build --no-boot-test --no-cache -o "$path" "$@" "$from" >"$path.out" 2>&1 || {
		cat "$path.out" >&2
		return 1
	}
	echo "$path"
}

# extract IMAGE DIR PATH...: files of an image's first ext file system with an fstab, by debugfs,
# which shares no code with gpuimg's own writer (the kernel's ext4 in the appliance).
raw_root() { # image, partition number: prints the path of the raw file system
	local raw=$1.p$2.raw line start size
	if [ ! -e "$raw" ]; then
		qemu-img convert -q -O raw "$1" "$1.raw"
		line=$(sfdisk -d "$1.raw" | grep "raw$2 :")
		start=$(awk -F'[=,]' '{ print $2 + 0 }' <<<"$line")
		size=$(awk -F'[=,]' '{ print $4 + 0 }' <<<"$line")
		dd if="$1.raw" of="$raw" bs=512 skip="$start" count="$size" conv=sparse status=none
		rm -f "$1.raw"
	fi
	echo "$raw"
}

guest_cat() { # raw file system, path
	debugfs -R "cat $2" "$1" 2>/dev/null
}

guest_ls() { # raw file system, directory: names, one a line
	debugfs -R "ls -p $2" "$1" 2>/dev/null | cut -d/ -f6 | grep -v -e '^\.$' -e '^\.\.$' -e '^$'
}

guest_stat() { # raw file system, path
	debugfs -R "stat $2" "$1" 2>/dev/null
}

# expect_manifest FILTER: holds of $manifest, that of a build with a driver; $plain and $cloud in it
# are kernels of some files.
expect_manifest() {
	# shellcheck disable=SC2154 # the file's own
	jq -e --arg plain "${PLAIN-}" --arg cloud "${CLOUD-}" "$1" "$manifest" >/dev/null || {
		echo "not so: $1"
		jq .driver "$manifest"
		return 1
	}
}
