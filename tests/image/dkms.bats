#!/usr/bin/env bats
# A real driver on a real Debian 12: branch 535 from the distribution's archive, compiled by DKMS for its
# kernel. Needs the network; a compilation takes minutes.
load ../lib/common

setup_file() {
	need_root
	export WORLD=$OUT/dkms
	rm -rf "$WORLD"
	mkdir -p "$WORLD/cache"
	# The answer of the accelerator's probe, so that it is not asked for once more.
	cp "${XDG_CACHE_HOME:-$HOME/.cache}/gpuimg/accel.json" "$WORLD/cache/" 2>/dev/null || true
	base=$(base bookworm --suite=bookworm)
	export base manifest=$WORLD/first.manifest.json
	code=0
	bake first || code=$?
	export code
	[ "$code" -ne 0 ] || root=$(raw_root "$WORLD/first.qcow2" 1)
	base_root=$(raw_root "$base" 1)
	export root base_root
}

teardown_file() {
	rm -f "${root-}" "$base_root"
}

# bake NAME OPTION...: with a cache of the file's own.
bake() {
	local name=$1
	shift
	"$GPUIMG" build --no-boot-test --exec=sandbox --cache-dir="$WORLD/cache" --driver-branch=535 \
		--driver-flavour=proprietary -o "$WORLD/$name.qcow2" "$@" "$base" \
		>"$WORLD/$name.out" 2>"$WORLD/$name.err" </dev/null
}

# Names in a directory of the image that the base's has not.
new_in() {
	comm -13 <(guest_ls "$base_root" "$1" | sort) <(guest_ls "$root" "$1" | sort)
}

@test "the driver is baked" {
	[ "$code" -eq 0 ] || {
		tail -n 30 "$WORLD/first.err"
		return 1
	}
	expect_manifest '.driver.source == "distro" and .driver.branch == "535" and .driver.from_cache == false'
	expect_manifest '.driver.flavour == "proprietary" and .driver.forwarded == false'
}

@test "every kernel has all modules, of one version, compiled by DKMS" {
	expect_manifest '[.driver.kernels[] | select(.how == "dkms") | .version] == [.kernels[].version]'
	expect_manifest '.driver.version as $v | .driver.found.modules | length >= 4 and all(.version == $v)'
	expect_manifest '(.driver.found.modules | map(.kernel) | unique) == [.kernels[].version]'
	for module in nvidia-current nvidia-current-modeset nvidia-current-drm nvidia-current-uvm; do
		expect_manifest ".driver.found.modules | any(.file | endswith(\"/updates/dkms/$module.ko\"))"
	done
	expect_manifest '.driver.found.modules | any(.license == "NVIDIA")'
	expect_manifest '[.proof[] | select(.verdict == "bad")] == []'
	expect_manifest '[.proof[] | select(.id == "driver.vermagic" and .verdict == "ok")] | length >= 4'
}

@test "each kernel is told while its modules are compiled" {
	kernel=$(jq -r '.kernels[0].version' "$manifest")
	grep "kernel '$kernel': compiles nvidia-current/535\." "$WORLD/first.err"
	grep "kernel '$kernel': nvidia-current/535\..* installed after [0-9]* s" "$WORLD/first.err"
}

@test "inspect finds a baked driver that holds" {
	run_split "$GPUIMG" inspect --json -q --profile=gpu-baked "$WORLD/first.qcow2"
	expect_status 0
	[ "$(jq -r .verdict <<<"$out")" = ok ] || {
		jq '[.findings[] | select(.verdict == "bad")]' <<<"$out"
		return 1
	}
	run_split "$GPUIMG" inspect --json -q --profile=gpu-baked "$base"
	expect_status 5
}

@test "a base that has the driver is refused for another one, by name" {
	run_split "$GPUIMG" build --no-boot-test --no-cache --driver-branch=535 -o "$WORLD/never.qcow2" "$WORLD/first.qcow2"
	expect_status 4
	expect_in "$err" "already, version 535."
	expect_in "$err" "--replace-driver"
}

@test "no initramfs has grown by a module of the driver" {
	kernel=$(jq -r '.kernels[0].version' "$manifest")
	guest_cat "$root" "/boot/initrd.img-$kernel" >"$WORLD/initrd"
	lsinitramfs "$WORLD/initrd" >"$WORLD/initrd.list"
	grep -q 'virtio_blk' "$WORLD/initrd.list"
	! grep -i 'nvidia.*\.ko\|nvidia.*/gsp_' "$WORLD/initrd.list"
	rm "$WORLD/initrd"
}

@test "driver and kernel are held together" {
	guest_cat "$root" /var/lib/dpkg/status | awk '/^Package: / { p = $2 } /^Status: hold ok installed/ { print p }' >"$WORLD/held"
	grep -x nvidia-kernel-dkms "$WORLD/held"
	grep -x libcuda1 "$WORLD/held"
	grep -x linux-image-amd64 "$WORLD/held"
	grep "^linux-headers-$(jq -r '.kernels[0].version' "$manifest")$" "$WORLD/held"
	guest_cat "$root" /etc/apt/preferences.d/gpuimg-driver | grep '^Pin: version 535\.'
}

@test "nothing of the build is left in the image" {
	[ -z "$(new_in /var/lib/apt/lists)" ]
	[ -z "$(new_in /usr/sbin | grep policy-rc.d)" ]
	[ -z "$(new_in /var/cache | grep gpuimg)" ]
	[ -z "$(guest_ls "$root" /etc/dkms/framework.conf.d)" ]
	[ -z "$(guest_ls "$root" /var/lib/dkms | grep mok)" ]
	[ -z "$(new_in /etc/apt/sources.list.d)" ]
	for file in /etc/apt/sources.list /usr/sbin/update-initramfs /etc/resolv.conf; do
		cmp <(guest_cat "$base_root" "$file") <(guest_cat "$root" "$file")
	done
	guest_cat "$root" /usr/sbin/dkms | head -n 1 | grep '#!.*bash'
	[ -z "$(guest_cat "$root" /var/lib/dpkg/diversions | grep gpuimg)" ]
}

@test "dpkg has every package configured" {
	[ -z "$(guest_cat "$root" /var/lib/dpkg/status | grep '^Status: ' | grep -v ' ok installed$\| ok config-files$')" ]
}

@test "another image with the same driver takes the packages and modules from the cache" {
	echo one >"$WORLD/upload.txt"
	run_split bake second --upload="$WORLD/upload.txt:/etc/by-upload"
	expect_status 0
	jq -e '.driver.from_cache' "$WORLD/second.manifest.json"
	[ "$(jq -c '.driver.found' "$manifest")" = "$(jq -c '.driver.found' "$WORLD/second.manifest.json")" ]
	[ "$(jq -c '.packages' "$manifest")" = "$(jq -c '.packages' "$WORLD/second.manifest.json")" ]
	! grep 'compiles nvidia-current' "$WORLD/second.err"
	driver=$(jq '[.steps[] | select(.name == "driver") | .seconds] | add' "$WORLD/second.manifest.json")
	awk -v s="$driver" 'BEGIN { exit !(s < 60) }'
	rm -f "$WORLD/second.qcow2"
}
