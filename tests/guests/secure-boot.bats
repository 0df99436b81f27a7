#!/usr/bin/env bats
# Secure Boot: Debian's signed chain, built, proven under that firmware; and chains that it must stop.
load ../lib/common

setup_file() {
	need_root
	base=$(base secure-boot --secure-boot)
	export base
	keep build "$GPUIMG" build --no-cache --firmware=uefi-secure-boot -o "$OUT/secure-boot.qcow2" "$base"
	# Nobody signed this one's boot loader.
	keep refused "$GPUIMG" build --no-cache --firmware=uefi-secure-boot -o "$OUT/secure-boot-refused.qcow2" "$(base default)"
	# A shim that is to start what nobody signed; a GRUB that is.
	unsigned_grub
	unsigned_kernel
	for which in grub kernel; do
		keep "$which" "$GPUIMG" boot --no-cache --json --firmware=uefi-secure-boot "$OUT/unsigned-$which.raw"
	done
	keep inspect "$GPUIMG" inspect --json "$OUT/unsigned-grub.raw"
	rm -f "$OUT"/unsigned-*.raw
}

# keep NAME COMMAND...: its exit code, what it says, and its seconds.
keep() {
	local name=$1 code=0 began=$SECONDS
	shift
	"$@" >"$OUT/secure-$name.out" 2>"$OUT/secure-$name.err" </dev/null || code=$?
	echo "$code" >"$OUT/secure-$name.code"
	echo $((SECONDS - began)) >"$OUT/secure-$name.seconds"
}

offset_of() { # raw image, partition number: in bytes
	local start
	start=$(sfdisk -d "$1" | awk -F'[=,]' -v p="$2 :" 'index($0, p) { print $2 + 0 }')
	echo $((start * 512))
}

unsigned_grub() {
	local raw=$OUT/unsigned-grub.raw esp
	qemu-img convert -q -O raw "$base" "$raw"
	esp=$raw@@$(offset_of "$raw" 15)
	mcopy -n -i "$esp" ::/EFI/BOOT/grubx64.efi "$OUT/grub.efi"
	sbattach --remove "$OUT/grub.efi"
	mcopy -o -i "$esp" "$OUT/grub.efi" ::/EFI/BOOT/grubx64.efi
}

unsigned_kernel() {
	local raw=$OUT/unsigned-kernel.raw root kernel
	qemu-img convert -q -O raw "$base" "$raw"
	root="$raw?offset=$(offset_of "$raw" 1)"
	kernel=$(debugfs -R "ls -p /boot" "$root" 2>/dev/null | cut -d/ -f6 | grep '^vmlinuz-')
	debugfs -R "dump /boot/$kernel $OUT/vmlinuz" "$root"
	sbattach --remove "$OUT/vmlinuz"
	printf 'rm /boot/%s\nwrite %s /boot/%s\n' "$kernel" "$OUT/vmlinuz" "$kernel" >"$OUT/debugfs.cmd"
	debugfs -w -f "$OUT/debugfs.cmd" "$root"
}

kept() { # name
	status=$(cat "$OUT/secure-$1.code") out=$(cat "$OUT/secure-$1.out") err=$(cat "$OUT/secure-$1.err")
}

manifest() {
	jq -r "$1" "$OUT/secure-boot.manifest.json"
}

@test "the pair passes with Secure Boot: the base fails, the image does not" {
	kept build
	expect_status 0
	[ "$(manifest '.boot_test.runs[0] | "\(.firmware) \(.verdict) \(.base.bar_assigned) \(.image.bar_assigned)"')" = "uefi-secure-boot passed no yes" ]
	[ "$(manifest '.boot_test.runs[0].base.card_probed')" = yes ]
	[ "$(manifest '.boot_test.runs[0].image.card_probed')" = no ]
}

@test "both guests say themselves that it is on, and are locked down" {
	[ "$(manifest '.boot_test.runs[0] | "\(.base.secure_boot) \(.image.secure_boot)"')" = "yes yes" ]
	[ "$(manifest '.boot_test.runs[0].image.lockdown')" = integrity ]
}

@test "the manifest claims the boot type that was proven" {
	[ "$(manifest '.image.boot_types | join(" ")')" = "bios uefi uefi-secure-boot" ]
}

@test "inspect finds signatures in the chain" {
	run_split "$GPUIMG" inspect --json "$OUT/secure-boot.qcow2"
	expect_status 0
	[ "$(jq -r '.findings[] | select(.id == "boot.secure-boot").verdict' <<<"$out")" = ok ]
}

@test "inspect names the GRUB beside the shim that nobody signed" {
	kept inspect
	expect_status 5 # of a base: what a build would do is bad
	[ "$(jq -r '.findings[] | select(.id == "boot.secure-boot").verdict' <<<"$out")" = note ]
	expect_in "$(jq -r '.findings[] | select(.id == "boot.secure-boot").what' <<<"$out")" "grubx64.efi"
}

@test "a build whose boot loader nobody signed fails, says so, and leaves no manifest" {
	kept refused
	expect_status 5
	expect_in "$err" "the firmware does not start the image's boot loader"
	expect_in "$err" "signed shim"
	[ ! -e "$OUT/secure-boot-refused.manifest.json" ]
	[ ! -e "$OUT/secure-boot-refused.qcow2" ]
}

@test "a shim that is to start an unsigned GRUB fails for that one reason" {
	kept grub
	expect_status 5
	[ "$(jq '.runs[0].reasons | length' <<<"$out")" = 1 ]
	expect_in "$(jq -r '.runs[0].reasons[0]' <<<"$out")" "shim does not start"
}

@test "a GRUB that is to start an unsigned kernel fails for that one reason" {
	kept kernel
	expect_status 5
	[ "$(jq '.runs[0].reasons | length' <<<"$out")" = 1 ]
	expect_in "$(jq -r '.runs[0].reasons[0]' <<<"$out")" "GRUB does not start the kernel"
}

@test "what is refused is found in less than five minutes, not by the time limit" {
	for which in grub kernel; do
		[ "$(jq '.runs[0].image.seconds < 300' "$OUT/secure-$which.out")" = true ]
	done
}
