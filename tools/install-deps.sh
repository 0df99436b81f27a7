#!/bin/sh
# What: installs what building, running and testing gpuimg needs (Debian 12 or later, Ubuntu).
# Why:  'make image' and 'make test' are to work on a fresh machine with nothing but make and apt.
# How:  tools/install-deps.sh build|test|lint|bench|publish ...; does nothing, and needs no root, if all is there.
set -eu

build_packages='gcc libc6-dev make pkg-config binutils libguestfs-dev zlib1g-dev libzstd-dev libarchive-dev libcurl4-openssl-dev
libjansson-dev libblkid-dev libext2fs-dev comerr-dev libnbd-dev libkmod-dev libssl-dev libyaml-dev libselinux1-dev'

# The programs that gpuimg and its base maker run, and a kernel for the libguestfs appliance.
run_packages='qemu-system-x86 qemu-utils supermin bubblewrap mmdebstrap ovmf seabios
dosfstools mtools fdisk gdisk e2fsprogs xfsprogs btrfs-progs grub-pc-bin grub-efi-amd64-bin zstd xz-utils
cpio kmod gpg passwd procps util-linux ca-certificates debian-archive-keyring'

test_packages='bats jq lz4 zip bzip2 gzip mandoc curl python3 gpg-agent dpkg-dev nbdkit libnbd-bin guestfish attr libcap2-bin acl busybox-static libarchive-tools
libclang-rt-14-dev libclang-rt-dev clang lvm2 time initramfs-tools-core openssl sbsigntool'

# what 'make bench' measures gpuimg against, and what it measures and checks results with
bench_packages='guestfs-tools jq time qemu-system-common initramfs-tools-core e2fsprogs fdisk mount openssl
zstd cpio'

# real servers for the tests of 'gpuimg publish'
publish_packages='nginx-light libnginx-mod-http-dav-ext apache2-bin apache2-utils docker-registry skopeo swift-proxy swift-account swift-container swift-object memcached keystone glance-api
sqlite3 python3'

lint_packages='clang clang-tidy clang-format cppcheck shellcheck'

# A kernel that supermin can boot: any that is installed will do.
kernel_package() {
	for kernel in /boot/vmlinuz-* /lib/modules/*/vmlinuz; do
		if [ -r "$kernel" ]; then
			return 0
		fi
	done
	if grep -q '^ID=ubuntu' /etc/os-release; then
		echo linux-image-generic
	else
		echo linux-image-amd64
	fi
}

is_installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Names differ between releases: what apt does not know is left out here, and what is really
# needed shows itself when it is used.
is_known() {
	apt-cache show --no-all-versions "$1" 2>/dev/null | grep -q .
}

# Names that this release's apt does not know do not count; before the first 'apt-get update' apt
# knows none at all, and then all count.
has_lists() {
	[ -n "$(apt-cache pkgnames gcc 2>/dev/null)" ]
}

missing_of() {
	for package in "$@"; do
		if ! is_installed "$package" && { ! has_lists || is_known "$package"; }; then
			printf '%s ' "$package"
		fi
	done
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		echo "install-deps: error: cannot install packages: not root, and no sudo" >&2
		echo "install-deps: hint: run as root: apt-get install $missing" >&2
		exit 3
	fi
}

wanted="$build_packages $run_packages $(kernel_package)"
for group in "$@"; do
	case $group in
	build) ;;
	test) wanted="$wanted $test_packages" ;;
	publish) wanted="$wanted $publish_packages" ;;
	bench) wanted="$wanted $bench_packages" ;;
	lint) wanted="$wanted $lint_packages" ;;
	*)
		echo "install-deps: error: unknown group '$group'" >&2
		exit 2
		;;
	esac
done

# shellcheck disable=SC2086 # a list of package names
missing=$(missing_of $wanted)
if [ -z "$missing" ]; then
	exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-deps: error: no apt-get here; install by hand: $missing" >&2
	exit 3
fi
echo "install-deps: installs: $missing" >&2
as_root apt-get update -q
known=
for package in $missing; do
	if is_known "$package"; then
		known="$known $package"
	else
		echo "install-deps: warning: apt knows no package '$package', ignoring" >&2
	fi
done
# shellcheck disable=SC2086 # a list of package names
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $known
