# SPDX-License-Identifier: Apache-2.0
# What: the samples of one run into a report, and a report into a Markdown table.

def median:
	sort | length as $n |
	if $n == 0 then null
	elif $n % 2 == 1 then .[($n - 1) / 2]
	else (.[$n / 2 - 1] + .[$n / 2]) / 2 end;

def medians($field): map(.[$field] | select(. != null)) | median;

# one row: a way, in the growth at a point
def row:
	map(select(.status == "ok")) as $ok |
	(.[0] | {way, title, point}) + {
		samples: ($ok | length),
		failed: (map(select(.status == "failed")) | length),
		reason: (map(.reason | select(. != null)) | first),
		seconds: ($ok | medians("seconds")),
		seconds_min: ($ok | map(.seconds) | min),
		seconds_max: ($ok | map(.seconds) | max),
		cpu_seconds: ($ok | medians("cpu_seconds")),
		memory_bytes: ($ok | medians("memory_bytes")),
		own_memory_bytes: ($ok | medians("own_memory_bytes")),
		disk_bytes: ($ok | medians("disk_bytes")),
		output_bytes: ($ok | medians("output_bytes")),
		results: ($ok | map(.sha256 | select(. != "")) | unique | length)
	};

# groups in the order of their first sample
def groups:
	reduce .[] as $s ([]; ($s.way + " " + ($s.point // "")) as $key |
		(map(.key) | index($key)) as $at |
		if $at == null then . + [{key: $key, list: [$s]}] else .[$at].list += [$s] end) |
	map(.list);

# how many times gpuimg's median, at the same point
def ratios:
	. as $rows | map(. as $r |
		($rows | map(select(.way == "gpuimg" and .point == $r.point)) | first | .seconds) as $one |
		. + {ratio: (if $one == null or $one == 0 or .seconds == null then null
			else .seconds / $one end)});

def report($kind; $made; $rounds; $machine; $base):
	{schema: 1, kind: $kind, made: $made, rounds: $rounds, machine: $machine, base: $base,
	rows: (groups | map(row) | ratios), samples: .};

# a number with that many decimals; jq prints 2.50 as 2.5
def fixed($n):
	pow(10; $n) as $scale | (. * $scale + 0.5 | floor | tostring) as $t |
	if $n == 0 then $t
	else ("000"[: ([0, $n + 1 - ($t | length)] | max)] + $t) | .[: -$n] + "." + .[-$n:] end;

def shown($n): if . == null then "–" else fixed($n) end;
def mib: if . == null then "–" else . / 1048576 | fixed(0) end;

def seconds_shown:
	(.seconds | shown(1)) +
	if .samples > 1 then " (\(.seconds_min | shown(1))–\(.seconds_max | shown(1)))" else "" end;

def ratio_shown: if .ratio == null then "–" else "\(.ratio | fixed(2))×" end;

def cells($first):
	if .samples == 0 then
		$first + [(if .failed > 0 then "failed" else "left out" end) + ": \(.reason)"] +
		[range(6) | ""]
	else
		$first + [seconds_shown, ratio_shown, (.cpu_seconds | shown(1)), (.memory_bytes | mib),
			(.own_memory_bytes | mib), (.disk_bytes | mib), (.output_bytes | mib)]
	end;

def line: "| " + join(" | ") + " |";

def heads($first):
	($first + ["seconds", "times gpuimg", "CPU seconds", "peak memory, MiB",
		"of which gpuimg itself", "peak disk, MiB", "result, MiB"]) |
	line, (map("---") | line);

def machine_line:
	.machine | "\(.cpu), \(.cores) cores, \(.memory_bytes / 1073741824 | fixed(0)) GiB, Linux \(.kernel), " +
	(if .accelerator == "kvm" then "KVM works" else "no KVM (libguestfs with force_tcg)" end) +
	", load before \(.load_before); \(.versions.gpuimg), \(.versions.qemu)" +
	(if .versions["virt-customize"] == "" then "" else ", \(.versions["virt-customize"])" end) + ".";

def base_line:
	.base | if . == null then empty else
	"Base: `\(.file)`, \(.os), \(.kernels | length) kernel(s), \(.bytes | mib) MiB as \(.format) " +
	"(\(.compression)), \(.virtual_bytes / 1073741824 | fixed(0)) GiB virtual." end;

def point_title: {
	"kernels": "kernel(s)", "data": "GB of data"
}[split("-")[0]] as $what | "\(split("-")[1]) \($what)";

def table:
	. as $all |
	"Measured \(.made[:10]), \(.rounds) round(s), medians (lowest–highest). \(machine_line)",
	base_line,
	"",
	if .kind == "growth" then
		heads(["image", "way"]), (.rows[] | cells([(.point | point_title), .title]) | line)
	else
		heads(["way"]), (.rows[] | cells([.title]) | line)
	end,
	(if any($all.rows[]; .failed > 0 and .samples > 0) then
		"", "Some samples failed: " + ([$all.rows[] | select(.failed > 0 and .samples > 0) |
			"\(.title): \(.failed)"] | join(", ")) + "."
	else empty end);
