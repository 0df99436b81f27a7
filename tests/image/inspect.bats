#!/usr/bin/env bats
# inspect of a phony image as it comes, and after a build: it names what a build mends, and nothing
# after it.
load ../lib/common

setup_file() {
	need_root
	image=$(PHONY_BOOT=16 phony inspected 6.1.0-phony 6.12.0-phony)
	after=$(built inspected-built "$image" --exec=sandbox)
	export image after
	"$GPUIMG" inspect "$image" >"$OUT/inspect-before.txt" 2>"$OUT/inspect-before.err" && code=0 || code=$?
	echo "$code" >"$OUT/inspect-before.code"
	"$GPUIMG" inspect --json -q "$image" >"$OUT/inspect-before.json" 2>"$OUT/inspect-before.json.err" || true
	"$GPUIMG" inspect --json -q "$after" >"$OUT/inspect-after.json" && code=0 || code=$?
	echo "$code" >"$OUT/inspect-after.code"
}

@test "the base does not hold, and the exit code says so" {
	[ "$(cat "$OUT/inspect-before.code")" -eq 5 ]
	[ "$(jq -r .verdict "$OUT/inspect-before.json")" = bad ]
}

@test "each problem of the base is one line" {
	for id in modules.alias cmdline.param identity.machine-id; do
		[ "$(grep -c "^BAD   $id" "$OUT/inspect-before.txt")" -eq 1 ]
	done
	grep '^BAD   cmdline.param' "$OUT/inspect-before.txt" | grep "all [0-9]* entries lack 'pci=nocrs', 'pci=realloc', 'module_blacklist="
	grep '^BAD   modules.alias' "$OUT/inspect-before.txt" | grep '6.1.0-phony, root file system' | grep 'would load nouveau'
}

@test "the JSON holds one finding for each entry and parameter" {
	entries=$(jq '.entries | length' "$OUT/inspect-before.json")
	[ "$entries" -ge 2 ]
	[ "$(jq '[.findings[] | select(.id == "cmdline.param" and .verdict == "bad")] | length' "$OUT/inspect-before.json")" -eq $((3 * entries)) ]
	jq -e '.findings | all(has("verdict") and has("id") and has("what"))' "$OUT/inspect-before.json"
	jq -e '[.findings[] | select(.verdict == "bad" and (has("cure") | not))] == []' "$OUT/inspect-before.json"
}

@test "the JSON says what the image is" {
	[ "$(jq -r .schema "$OUT/inspect-before.json")" = 1 ]
	[ "$(jq -r .os.id "$OUT/inspect-before.json")" = debian ]
	[ "$(jq -r .generator "$OUT/inspect-before.json")" = initramfs-tools ]
	[ "$(jq -c '[.kernels[].version]' "$OUT/inspect-before.json")" = '["6.1.0-phony","6.12.0-phony"]' ]
	[ "$(jq -c '[.mounts[].path]' "$OUT/inspect-before.json")" = '["/","/boot"]' ]
	jq -e '.modules | all(.claimed_by | index("nouveau"))' "$OUT/inspect-before.json"
	jq -e '.modules | all(.would_load | index("nouveau"))' "$OUT/inspect-before.json"
	[ "$(jq -r .identity.machine_id "$OUT/inspect-before.json")" = set ]
}

@test "--json -q says nothing else" {
	[ ! -s "$OUT/inspect-before.json.err" ]
}

@test "what a build has mended is not told any more" {
	for prefix in modules. cmdline. identity. initramfs.; do
		[ "$(jq -c --arg p "$prefix" '[.findings[] | select(.verdict == "bad" and (.id | startswith($p)))]' "$OUT/inspect-after.json")" = '[]' ]
	done
	jq -e '.initramfs | length == 2 and all(.blocks == true)' "$OUT/inspect-after.json"
	jq -e '.modules | all(.would_load == [])' "$OUT/inspect-after.json"
	[ "$(jq -r .identity.machine_id "$OUT/inspect-after.json")" = empty ]
	jq -e '[.findings[] | select(.id == "cmdline.hotplug")] | length == 1' "$OUT/inspect-after.json"
}

@test "after a build all holds, and the exit code says so" {
	[ "$(jq -c '[.findings[] | select(.verdict == "bad")]' "$OUT/inspect-after.json")" = '[]' ]
	[ "$(jq -r .verdict "$OUT/inspect-after.json")" = ok ]
	[ "$(cat "$OUT/inspect-after.code")" -eq 0 ]
}

@test "what was left out of a build can be left out here" {
	run_split "$GPUIMG" inspect --json -q --no-nocrs --no-realloc --no-module-blacklist "$image"
	expect_status 5
	[ "$(jq -c '[.findings[] | select(.id == "cmdline.param")]' <<<"$out")" = '[]' ]
	run_split "$GPUIMG" inspect --json -q --cmdline-add=iommu=pt "$after"
	expect_status 5
	jq -e '[.findings[] | select(.id == "cmdline.param" and .verdict == "bad")] | length > 0 and all(.what | contains("iommu=pt"))' <<<"$out"
}

@test "the image is not written" {
	before=$(sha256sum "$image")
	run_split "$GPUIMG" inspect "$image"
	[ "$(sha256sum "$image")" = "$before" ]
}
