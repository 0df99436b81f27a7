#!/usr/bin/env bats
# A driver from repositories whose packages have the names and dependencies of Ubuntu's and NVIDIA's: what
# is resolved, refused, built and held. The packages are stand-ins (tests/lib/driver-standin.bash), the
# image is a Debian that says it is Ubuntu; kernels, headers, DKMS, apt and dpkg are real.
#
# Of its two kernels PLAIN has prebuilt modules of branch 580 in the archive and no headers at all, CLOUD
# has its headers on the image.
load ../lib/common
load ../lib/repo
load ../lib/driver-standin

setup_file() {
	need_root
	export WORLD=$OUT/driver-standin
	rm -rf "$WORLD"
	mkdir -p "$WORLD"
	world
	kernels
	repo_new "$WORLD/ubuntu"
	repo_new "$WORLD/nvidia"
	standin_keys "$WORLD/keys"
	standin_ubuntu "$WORLD/ubuntu" "$PLAIN" "$WORLD/keys"
	standin_nvidia "$WORLD/nvidia" "$PLAIN"
	repo_publish "$WORLD/ubuntu" noble
	repo_publish "$WORLD/nvidia"
	UBUNTU_URL=$(repo_serve "$WORLD/ubuntu")
	NVIDIA_URL=$(repo_serve "$WORLD/nvidia")
	repo_new "$WORLD/toolkit"
	standin_toolkit "$WORLD/toolkit"
	repo_publish "$WORLD/toolkit"
	TOOLKIT_URL=$(repo_serve "$WORLD/toolkit")
	export UBUNTU_URL NVIDIA_URL TOOLKIT_URL
	standin_image "$base" "$WORLD/ubuntu/key.gpg" "$WORLD/base.raw"
	written_before=$(stat -c '%y %z %s' "$WORLD/base.raw")
	export written_before
	plan_to "$WORLD/plan" --driver-branch=580
	# the one build from the archive: handed on, prebuilt for one kernel, DKMS for the other
	code=0
	build -o "$WORLD/baked.qcow2" --driver-branch=535 --allow-branch-forward "$WORLD/base.raw" \
		>"$WORLD/baked.out" 2>"$WORLD/baked.err" || code=$?
	export code manifest=$WORLD/baked.manifest.json
}

teardown_file() {
	repo_stop "$WORLD/ubuntu"
	repo_stop "$WORLD/nvidia"
	repo_stop "$WORLD/toolkit"
	rm -f "$WORLD"/*.raw "$WORLD"/*.p1.raw
}

world() {
	base=$(base standin --packages=dkms,linux-headers-cloud-amd64 \
		--kernels=linux-image-amd64,linux-image-cloud-amd64 --customize="$REPO/tests/fixtures/standin-ubuntu.sh")
	export base
}

# The versions of the two kernels.
kernels() {
	local raw
	raw=$(raw_root "$base" 1)
	CLOUD=$(guest_ls "$raw" /usr/lib/modules | grep -- '-cloud-')
	PLAIN=$(guest_ls "$raw" /usr/lib/modules | grep -v -- '-cloud-')
	rm -f "$raw"
	export CLOUD PLAIN
}

build() {
	"$GPUIMG" build --no-boot-test --no-cache --driver-flavour=open --apt-mirror="$UBUNTU_URL" "$@"
}

# One plan that several tests look at.
plan_to() { # name, options
	local name=$1
	shift
	build --plan --json -o "$WORLD/never.qcow2" "$@" "$WORLD/base.raw" >"$name.json" 2>"$name.err" || {
		cat "$name.err" >&2
		return 1
	}
}

# plan OPTION...: what would be done to the base, as JSON.
plan() {
	run_split build --plan --json -o "$WORLD/never.qcow2" "$@" "$WORLD/base.raw"
}

# Whether the JSON in $out fulfils a jq expression; shows its driver if not.
expect_plan() {
	if ! jq -e --arg plain "$PLAIN" --arg cloud "$CLOUD" "$1" <<<"$out" >/dev/null; then
		echo "not so: $1"
		jq .driver <<<"$out"
		return 1
	fi
}

# --- the plan ---

@test "a branch is resolved in the plan, kernel by kernel" {
	out=$(cat "$WORLD/plan.json")
	expect_plan '.driver.version == "580.126.09" and .driver.branch == "580"'
	expect_plan '[.driver.kernels[] | select(.version == $plain)][0].how == "prebuilt"'
	expect_plan '[.driver.kernels[] | select(.version == $cloud)][0].how == "dkms"'
}

@test "the plan names packages at their exact versions, and what they need" {
	out=$(cat "$WORLD/plan.json")
	expect_plan '.driver.install | index("nvidia-utils-580-server=580.126.09-0ubuntu0.24.04.1")'
	expect_plan '.driver.install | index("linux-modules-nvidia-580-server-open-\($plain)=6.8.0-31.31+1")'
	expect_plan '.driver.packages | index("nvidia-firmware-580-server-580.126.09=580.126.09-0ubuntu0.24.04.1")'
}

@test "neither plan nor build writes to the base" {
	[ "$(stat -c '%y %z %s' "$WORLD/base.raw")" = "$written_before" ]
	[ ! -e "$WORLD/never.qcow2" ]
}

@test "a branch that the archive hands on is refused, with the package and the real branch" {
	plan --driver-branch=570
	expect_status 4
	expect_in "$err" "nvidia-utils-570-server is a transitional package to branch 580"
	expect_in "$err" "--allow-branch-forward"
}

@test "--require-signed refuses the kernel that would be compiled for, by name" {
	plan --driver-branch=580 --require-signed
	expect_status 4
	expect_in "$err" "'$CLOUD'"
	expect_in "$err" "linux-modules-nvidia-580-server-open-$CLOUD"
	expect_not_in "$err" "kernel '$PLAIN'"
}

@test "a kernel without modules and without headers is named, with the package that is missing" {
	plan --driver-branch=590
	expect_status 4
	expect_in "$err" "'$PLAIN'"
	expect_in "$err" "linux-headers-$PLAIN"
	expect_not_in "$err" "linux-headers-$CLOUD"
}

@test "a branch that is not there: the error lists what there is" {
	plan --driver-branch=999
	expect_status 4
	expect_in "$err" "there is: 580 open, 590 open"
	expect_not_in "$err" "570 open"
}

@test "an extra package of another version than the driver is refused" {
	plan --driver-branch=580 --driver-extra=fabricmanager
	expect_status 4
	expect_in "$err" "580.126.09"
	expect_in "$err" "nvidia-fabricmanager-580: 580.95.05-1"
}

# --- with the container toolkit ---

plan_toolkit() { # option...
	plan --containerd-runtime=nvidia --toolkit-repo="$TOOLKIT_URL" --toolkit-repo-key="$WORLD/toolkit/key.asc" "$@"
}

@test "a toolkit that goes alone, but not with the driver, is refused before anything is compiled" {
	plan_toolkit --driver-branch=580
	expect_status 4
	expect_in "$err" "cannot install 'nvidia-container-toolkit' beside driver 580.126.09"
	expect_in "$err" "nvidia-compute-utils-580-server"
}

@test "one that goes with it is planned beside it, and what it takes along" {
	plan_toolkit --driver-branch=595 --driver-source=nvidia-repo \
		--driver-repo="$NVIDIA_URL" --driver-repo-key="$WORLD/nvidia/key.asc"
	expect_status 0
	jq -e '.containerd.toolkit == ["libnvidia-container1=1.18.0-1", "nvidia-container-toolkit=1.18.0-1"]' <<<"$out"
	expect_plan '.driver.packages | index("nvidia-firmware=595.71.05-1ubuntu1")'
}

# --- a mirror that breaks down ---

@test "a mirror that is gone in the middle of a download fails the build, and nothing is left" {
	local dir=$BATS_TEST_TMPDIR url
	mkdir "$dir/work" "$dir/cache"
	cp -r "$WORLD/ubuntu" "$dir/dying"
	url=$(repo_serve "$dir/dying" nvidia-firmware-580)
	run_split "$GPUIMG" build --no-boot-test --driver-flavour=open --apt-mirror="$url" --driver-branch=580 \
		--work-dir="$dir/work" --cache-dir="$dir/cache" -o "$dir/dead.qcow2" "$WORLD/base.raw"
	repo_stop "$dir/dying"
	expect_status 3
	expect_in "$err" "stage 'driver', apply"
	expect_in "$err" "cannot download nvidia-utils-580-server"
	expect_in "$err" "nvidia-firmware-580-server"
	expect_in "$err" "hint: check this host's network"
	[ "$(cd "$dir" && echo dead*)" = dead.log ]
	[ -z "$(ls "$dir/work")" ]
	[ -z "$(find "$dir/cache" -path '*driver*' -type f)" ]
	[ "$(stat -c '%y %z %s' "$WORLD/base.raw")" = "$written_before" ]
}

# --- one build ---

@test "the build goes through with modules of both kinds" {
	[ "$code" -eq 0 ] || {
		cat "$WORLD/baked.err"
		return 1
	}
}

@test "the other branch is told at the end and in the manifest" {
	expect_in "$(cat "$WORLD/baked.err")" "branch 535 is forwarded to 580"
	expect_manifest '.driver.forwarded == true and .driver.branch_asked == "535" and .driver.branch == "580"'
}

@test "each kernel has its modules: signed ones, and ones that DKMS made" {
	raw=$(raw_root "$WORLD/baked.qcow2" 1)
	expect_in "$(guest_ls "$raw" "/usr/lib/modules/$PLAIN/kernel/nvidia-580srv-open")" nvidia-uvm.ko
	expect_in "$(guest_ls "$raw" "/usr/lib/modules/$CLOUD/updates/dkms")" nvidia-uvm.ko
	[ -z "$(guest_ls "$raw" "/usr/lib/modules/$PLAIN/updates/dkms")" ]
	guest_cat "$raw" "/usr/lib/modules/$CLOUD/modules.dep" >"$BATS_TEST_TMPDIR/dep"
	grep -q '^updates/dkms/nvidia.ko' "$BATS_TEST_TMPDIR/dep"
}

@test "the proof has read the signer of the prebuilt modules" {
	run_split "$GPUIMG" inspect --json "$WORLD/baked.qcow2"
	expect_in "$out" "Stand-in kernel module signing"
}

@test "real packages are held, transitional ones are not even there" {
	raw=$(raw_root "$WORLD/baked.qcow2" 1)
	guest_cat "$raw" /var/lib/dpkg/status >"$BATS_TEST_TMPDIR/status"
	grep -A1 '^Package: nvidia-utils-580-server$' "$BATS_TEST_TMPDIR/status" | grep -q '^Status: hold ok installed'
	grep -A1 "^Package: linux-modules-nvidia-580-server-open-$PLAIN\$" "$BATS_TEST_TMPDIR/status" |
		grep -q '^Status: hold ok installed'
	! grep -q '^Package: nvidia-utils-5[37]' "$BATS_TEST_TMPDIR/status"
}

@test "nothing of the build's sources stays on the image" {
	raw=$(raw_root "$WORLD/baked.qcow2" 1)
	[ "$(guest_cat "$raw" /etc/apt/sources.list)" = \
		'deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://archive.example.invalid/ubuntu noble main' ]
	[ -z "$(guest_ls "$raw" /var/cache/gpuimg-apt)" ]
	! guest_ls "$raw" /usr/sbin | grep -q policy-rc.d
}

# --- over another driver ---

@test "a driver over a driver is refused by name" {
	run_split build --plan -o "$WORLD/never.qcow2" --driver-branch=580 "$WORLD/baked.qcow2"
	expect_status 4
	expect_in "$err" "580.126.09"
	expect_in "$err" "--replace-driver"
}

@test "--replace-driver takes the old one out before apt is asked" {
	run_split build --plan --json -o "$WORLD/never.qcow2" --driver-branch=580 --replace-driver "$WORLD/baked.qcow2"
	expect_status 0
	expect_plan '.driver.version == "580.126.09" and (.driver.packages | index("nvidia-utils-580-server=580.126.09-0ubuntu0.24.04.1"))'
}

# Versions of the driver that goes away, of which the repository still has all packages.
@test "--replace-driver gets another version, though an earlier build pinned the old one" {
	local name image=$WORLD/pinned.raw start
	cp --sparse=always "$WORLD/base.raw" "$image"
	start=$(($(sfdisk -d "$image" 2>/dev/null | awk -F'[=,]' '/1 : start/ && !done { print $2 + 0; done = 1 }') * 512))
	for name in libnvidia-compute nvidia-firmware nvidia-kernel-common; do
		printf 'Package: %s\nPin: version 610.43.02-1ubuntu1\nPin-Priority: 1001\n\n' "$name"
	done >"$BATS_TEST_TMPDIR/pins"
	debugfs -w -R "write $BATS_TEST_TMPDIR/pins /etc/apt/preferences.d/gpuimg-driver" "$image?offset=$start" 2>/dev/null
	echo 'int standin;' | gcc -shared -nostdlib -Wl,-soname,libcuda.so.1 -x c - -o "$BATS_TEST_TMPDIR/libcuda"
	debugfs -w -R "write $BATS_TEST_TMPDIR/libcuda /usr/lib/x86_64-linux-gnu/libcuda.so.610.43.02" "$image?offset=$start" 2>/dev/null
	run_split build --plan --json -o "$WORLD/never.qcow2" --driver-branch=595 --driver-source=nvidia-repo --replace-driver \
		--driver-repo="$NVIDIA_URL" --driver-repo-key="$WORLD/nvidia/key.asc" "$image"
	expect_status 0
	expect_in "$err" "already, version 610.43.02"
	expect_plan '.driver.packages | index("nvidia-kernel-common=595.71.05-1ubuntu1")'
}

# --- other sources ---

@test "a directory of packages is enough, without network" {
	mkdir -p "$WORLD/debs"
	cp "$WORLD"/ubuntu/pool/restricted/*580*.deb "$WORLD/debs/"
	run_split "$GPUIMG" build --plan --json --no-cache -o "$WORLD/never.qcow2" --driver-branch=580 \
		--driver-source=debs --driver-path="$WORLD/debs" "$WORLD/base.raw"
	expect_status 0
	expect_plan '.driver.source == "debs" and .driver.version == "580.126.09"'
	expect_plan '[.driver.kernels[] | select(.version == $plain)][0].how == "prebuilt"'
}

@test "a directory that lacks a part is refused with what there is" {
	mkdir -p "$WORLD/part"
	cp "$WORLD"/ubuntu/pool/restricted/nvidia-utils-580-server_*.deb "$WORLD/part/"
	run_split "$GPUIMG" build --plan --no-cache -o "$WORLD/never.qcow2" --driver-branch=580 \
		--driver-source=debs --driver-path="$WORLD/part" "$WORLD/base.raw"
	expect_status 4
	expect_in "$err" "nvidia-headless-no-dkms-580-server-open: not there"
}

@test "NVIDIA's repository: the branch is pinned among packages of one name" {
	run_split build --plan --json -o "$WORLD/never.qcow2" --driver-branch=595 --driver-source=nvidia-repo \
		--driver-repo="$NVIDIA_URL" --driver-repo-key="$WORLD/nvidia/key.asc" "$WORLD/base.raw"
	expect_status 0
	expect_plan '.driver.version == "595.71.05"'
	expect_plan '.driver.packages | index("nvidia-firmware=595.71.05-1ubuntu1")'
	expect_plan '.driver.install | index("linux-headers-\($plain)=6.8.0-31.31")'
}

@test "a repository that another key signed is refused" {
	run_split build --plan -o "$WORLD/never.qcow2" --driver-branch=595 --driver-source=nvidia-repo \
		--driver-repo="$NVIDIA_URL" --driver-repo-key="$WORLD/ubuntu/key.asc" "$WORLD/base.raw"
	[ "$status" -ne 0 ]
	expect_in "$err" "$NVIDIA_URL"
}
