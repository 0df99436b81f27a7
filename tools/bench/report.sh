# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: samples into bench.json (or growth.json) and a Markdown table; the table into the docs.
# Why:  a report is written whole, from one run, at its end: nothing of another run gets into it.

# peak FILE COLUMN [UNTIL]: the largest value, of what was sampled until then
peak()
{
	awk -v column="$2" -v until="${3:-9e18}" \
		'$1 <= until && $column > max { max = $column } END { printf "%.0f\n", max }' "$1"
}

# record NAME ROUND SECONDS CPU UNTIL OUTPUT_BYTES SHA256 OWN_BYTES (the last two may be empty)
record()
{
	local kib disk

	kib=$(peak "$run_log.samples" 2 "$5")
	disk=$(peak "$run_log.samples" 3 "$5")
	jq -nc --arg way "$1" --arg title "$(way_label "$1")" --arg point "${point-}" \
		--argjson round "$2" --argjson seconds "$3" --argjson cpu "$4" \
		--argjson memory "$((kib * 1024))" --argjson disk "$disk" --argjson output "$6" \
		--arg sha256 "${7-}" --argjson own "${8:-null}" \
		'{way: $way, title: $title, point: $point, round: $round, status: "ok",
		seconds: $seconds, cpu_seconds: $cpu, memory_bytes: $memory, own_memory_bytes: $own,
		disk_bytes: $disk, output_bytes: $output, sha256: $sha256}' >>"$work/samples"
}

record_failed() # NAME ROUND REASON
{
	jq -nc --arg way "$1" --arg title "$(way_label "$1")" --arg point "${point-}" \
		--argjson round "$2" --arg reason "$3" \
		'{way: $way, title: $title, point: $point, round: $round, status: "failed",
		reason: $reason}' >>"$work/samples"
}

record_skipped() # NAME REASON
{
	jq -nc --arg way "$1" --arg title "$(way_label "$1")" --arg point "${point-}" --arg reason "$2" \
		'{way: $way, title: $title, point: $point, status: "skipped", reason: $reason}' \
		>>"$work/samples"
}

# the peak of gpuimg's own process, as it wrote it down itself
own_memory()
{
	local manifest

	for manifest in "$run_dir"/out/*.manifest.json; do
		[ ! -f "$manifest" ] || jq '.execution.peak_memory_bytes // empty' "$manifest"
	done
}

ticks_to_seconds()
{
	awk -v t="$1" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f", t / hz }'
}

# what virt-customize alone took is a row of its own: up to its mark
record_parts()
{
	local name time_stamp ticks bytes

	[ -f "$run_log.marks" ] || return 0
	while read -r name time_stamp ticks bytes; do
		record "$1" "$2" "$(awk -v a="$began" -v b="$time_stamp" 'BEGIN { printf "%.2f", b - a }')" \
			"$(ticks_to_seconds "$((ticks - began_ticks))")" \
			"$time_stamp" "$bytes"
	done <"$run_log.marks"
}

# record_sample WAY ROUND REASON: the whole way, and its parts
record_sample()
{
	local name=$1 seconds out=$run_dir/out/result.qcow2

	if [ -n "$3" ]; then
		record_failed "$name" "$2" "$3"
		return 0
	fi
	record_parts "$1" "$2"
	[ ! -f "$run_log.marks" ] || name=${name/virt-customize/virt-sparsify}
	seconds=$(tail -n 1 "$run_log.time")
	record "$name" "$2" "$seconds" \
		"$(ticks_to_seconds "$((ended_ticks - began_ticks))")" '' \
		"$(stat -c %s "$out")" "$(sha256sum <"$out" | cut -d' ' -f1)" "$(own_memory)"
	step "$name: $seconds s"
}

# report_json KIND SAMPLES MACHINE BASE (a file with null for the growth)
report_json()
{
	jq -s --arg kind "$1" --arg made "$(date -u +%FT%TZ)" --argjson rounds "$rounds" \
		--slurpfile machine "$3" --slurpfile base "$4" -L "$here/bench" \
		'include "report"; report($kind; $made; $rounds; $machine[0]; $base[0])' "$2"
}

# report_table JSON
report_table()
{
	jq -r -L "$here/bench" 'include "report"; table' "$1"
}

# put_between FILE NAME TABLE: what stands between the marks is replaced, all else stays
put_between()
{
	local new=$1.new.$$

	[ "$(grep -c -x -F -e "<!-- $2:begin -->" -e "<!-- $2:end -->" "$1")" = 2 ] ||
		die 1 "'$1' has no marks '<!-- $2:begin -->' and '<!-- $2:end -->'" "restore them"
	awk -v begin="<!-- $2:begin -->" -v end="<!-- $2:end -->" -v table="$3" '
		$0 == end { inside = 0 }
		!inside { print }
		$0 == begin { inside = 1; while ((getline line <table) > 0) print line }' "$1" >"$new"
	mv "$new" "$1"
}

# publish_report KIND: bench or growth
publish_report()
{
	local kind=$1

	report_json "$kind" "$work/samples" "$work/machine.json" "$work/base.json" >"$work/$kind.json"
	report_table "$work/$kind.json" >"$work/$kind.md"
	for file in "$kind.json" "$kind.md"; do
		cp "$work/$file" "$output_dir/.$file.new"
		mv "$output_dir/.$file.new" "$output_dir/$file"
	done
	[ -z "$write_docs" ] || put_between "$repo/docs/performance.md" "$kind" "$work/$kind.md"
	cat "$work/$kind.md"
	step "done: $output_dir/$kind.json"
}
