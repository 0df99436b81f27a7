#!/usr/bin/env bats
# Boot tests of the default base and its build: the pair in both firmwares, the healthy window, void.
load ../lib/common

setup_file() {
	need_root
	base=$(base default)
	image=$(built default "$base" --exec=sandbox)
	export base image
	run_boot bios --firmware=bios --control="$base"
	run_boot uefi --firmware=uefi --control="$base"
	run_boot healthy --firmware=bios --window=reachable
	run_boot void --firmware=bios --control="$image"
}

# run_boot NAME OPTION...: one run of 'gpuimg boot', its report and exit code kept for the tests.
run_boot() {
	local name=$1 code=0
	shift
	"$GPUIMG" boot --no-cache --json --console="$OUT/boot-$name.console" --expect=pci=nocrs --expect=pci=realloc "$@" "$image" \
		>"$OUT/boot-$name.json" 2>"$OUT/boot-$name.err" || code=$?
	echo "$code" >"$OUT/boot-$name.code"
}

# fact NAME JQ-FILTER: of the first run of a report.
fact() {
	jq -r ".runs[0].$2" "$OUT/boot-$1.json"
}

expect_fact() { # name, filter, value
	local got
	got=$(fact "$1" "$2")
	[ "$got" = "$3" ] || {
		echo "$1: $2 is $got, want $3"
		jq . "$OUT/boot-$1.json"
		cat "$OUT/boot-$1.err"
		return 1
	}
}

@test "case 25: BIOS: the pair passes: the base fails, the image does not" {
	[ "$(cat "$OUT/boot-bios.code")" -eq 0 ]
	expect_fact bios verdict passed
}

@test "case 25: UEFI: the pair passes: the base fails, the image does not" {
	[ "$(cat "$OUT/boot-uefi.code")" -eq 0 ]
	expect_fact uefi verdict passed
}

@test "case 25: in the base the window is dropped and the BAR has no address" {
	for firmware in bios uefi; do
		expect_fact $firmware base.window_dropped yes
		expect_fact $firmware base.bar_assigned no
		expect_fact $firmware base.bar_address null
	done
}

@test "case 25: in the image the BAR has an address that the CPU reaches" {
	for firmware in bios uefi; do
		expect_fact $firmware image.bar_assigned yes
		address=$(fact $firmware image.bar_address)
		end=${address#*-}
		[ $((end)) -lt $((1 << 40)) ]
		[ $((end)) -gt $((1 << 32)) ]
	done
}

@test "nouveau probes the card in the base, and never in the image" {
	for firmware in bios uefi; do
		expect_fact $firmware base.card_probed yes
		[ "$(fact $firmware base.card_reads)" -gt 0 ]
		expect_fact $firmware image.card_probed no
		expect_fact $firmware image.card_reads 0
		expect_fact $firmware base.nouveau_loadable_by_alias yes
		expect_fact $firmware image.nouveau_loadable_by_alias no
		expect_fact $firmware image.nouveau_loadable_by_name no
		expect_fact $firmware image.nouveau_loaded no
	done
}

@test "case 26: disk, network card and serial console still work beside the large BAR" {
	for run in bios uefi healthy; do
		for what in disk_ok nic_ok serial_ok; do
			expect_fact $run image.$what yes
		done
	done
}

@test "the parameters are in /proc/cmdline" {
	for run in bios uefi healthy; do
		expect_in "$(fact $run image.cmdline)" "pci=nocrs"
		expect_in "$(fact $run image.cmdline)" "pci=realloc"
		expect_in "$(fact $run image.cmdline)" "console=ttyS0"
	done
}

@test "a healthy window: the parameters change nothing, the BAR is assigned" {
	[ "$(cat "$OUT/boot-healthy.code")" -eq 0 ]
	expect_fact healthy verdict passed
	expect_fact healthy image.window_dropped no
	expect_fact healthy image.bar_assigned yes
}

@test "boots of one image get different machine-ids and host keys" {
	[ "$(fact bios image.machine_id | wc -c)" -eq 33 ]
	[ "$(fact bios image.machine_id)" != "$(fact healthy image.machine_id)" ]
	[ "$(fact bios image.machine_id)" != "$(fact uefi image.machine_id)" ]
	[ "$(jq -c '.runs[0].image.host_keys' "$OUT/boot-bios.json")" != "$(jq -c '.runs[0].image.host_keys' "$OUT/boot-healthy.json")" ]
	[ "$(jq '.runs[0].image.host_keys | length' "$OUT/boot-bios.json")" -gt 0 ]
}

@test "no unit fails in the image" {
	[ "$(jq '.runs[0].image.failed_units | length' "$OUT/boot-bios.json")" -eq 0 ]
}

@test "a control that does not fail makes the test void, with its own exit code" {
	[ "$(cat "$OUT/boot-void.code")" -eq 6 ]
	expect_fact void verdict void
}

@test "the image was not touched by its boots" {
	[ "$(sha256sum <"$image" | cut -d' ' -f1)" = "$(jq -r .image.sha256 "$OUT/default.manifest.json")" ]
}

@test "the console log is kept" {
	grep -q "Linux version" "$OUT/boot-bios.console"
}
