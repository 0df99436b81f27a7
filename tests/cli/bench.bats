#!/usr/bin/env bats
# tools/bench.sh without a run: usage, medians, the table, and the walk over a way's processes.
load ../lib/common

bench() {
	run_split "$REPO/tools/bench.sh" --output-dir "$BATS_TEST_TMPDIR/results" "$@"
}

# those that start a run; the others need jq alone
need_tools() {
	run_split "$REPO/tools/bench.sh" --output-dir "$BATS_TEST_TMPDIR/none" --gpuimg /bin/true --list-ways
	[ "$status" -eq 0 ] || skip "${err%%$'\n'*}"
}

# fake_gpuimg COMMAND: a $fake whose build runs the command; "$result" and "$base" are what they say
fake_gpuimg() {
	fake=$BATS_TEST_TMPDIR/fake-gpuimg
	cat >"$fake" <<-END
		#!/bin/bash
		[ "\$1" = build ] && [ "\$2" != --help ] || exit 0
		base=\${*: -1}
		while [ "\$1" != -o ]; do shift; done
		result=\$2
		$1
	END
	chmod +x "$fake"
}

# part COMMAND...: in a shell of its own with the functions of tools/bench/*.sh
part() {
	# shellcheck disable=SC2016 # the inner shell expands
	run_split bash -euo pipefail -c '
		export LC_ALL=C
		here=$REPO/tools repo=$REPO work=$BATS_TEST_TMPDIR rounds=3 quiet=y
		die() { echo "$2" >&2; exit "$1"; }
		step() { :; }
		warn() { :; }
		for part in host ways measure view check report growth; do . "$here/bench/$part.sh"; done
		eval "$1"' - "$1"
}

sample() { # way, round, seconds, point
	printf '{"way": "%s", "title": "the %s", "point": "%s", "round": %d, "status": "ok", "seconds": %s,
		"cpu_seconds": %s, "memory_bytes": 104857600, "own_memory_bytes": null,
		"disk_bytes": 2097152, "output_bytes": 1048576, "sha256": "aa"}\n' "$1" "$1" "${4-}" "$2" "$3" "$3"
}

machine() {
	echo '{"cpu": "a CPU", "cores": 2, "memory_bytes": 4294967296, "kernel": "6.1",
		"accelerator": "tcg", "load_before": 0.1,
		"versions": {"gpuimg": "gpuimg 1", "qemu": "qemu 2", "virt-customize": ""}}' \
		>"$BATS_TEST_TMPDIR/machine.json"
	echo null >"$BATS_TEST_TMPDIR/base.json"
}

report() { # kind
	machine
	part "report_json $1 \$work/samples \$work/machine.json \$work/base.json >\$work/r.json
		report_table \$work/r.json"
	expect_status 0
}

@test "--help tells every option and leaves no directory behind" {
	bench --help
	expect_status 0
	for option in --base --rounds --only --growth --growth-all --points --gpuimg --write-docs; do
		expect_in "$out" "$option"
	done
	[ ! -e "$BATS_TEST_TMPDIR/results" ]
}

@test "wrong usage is told in a line that names it, with exit code 2" {
	for case in '--nonsense|unknown option' 'base.qcow2|unexpected argument' '-n 0|rounds' \
		'-n many|rounds' '--only gpuimg,magic|magic' '--points data-2|without --growth' \
		'--growth --points data-x|data-x' '--growth --base /etc/passwd|--growth' \
		'--timeout 0|timeout' '--base /nowhere/base.qcow2|/nowhere/base.qcow2' '--only|needs a value'; do
		# shellcheck disable=SC2086 # the case is a list of words
		bench ${case%|*}
		expect_status 2
		expect_in "$err" "${case#*|}"
	done
}

@test "a program that is not there is told with exit code 3" {
	bench --gpuimg "$BATS_TEST_TMPDIR/none" --base /etc/passwd
	expect_status 3
	expect_in "$err" "$BATS_TEST_TMPDIR/none"
}

@test "a base that is no image with one Debian root is refused with exit code 4" {
	need_tools
	truncate -s 8M "$BATS_TEST_TMPDIR/empty"
	fake_gpuimg :
	bench --gpuimg "$fake" --work-dir "$BATS_TEST_TMPDIR" --base "$BATS_TEST_TMPDIR/empty" --only gpuimg
	expect_status 4
	expect_in "$err" "0 ext4 root file systems"
	[ -z "$(find "$BATS_TEST_TMPDIR" -name 'gpuimg-bench.*')" ]
}

@test "a way that does not do the work has no figures, and the run fails" {
	need_tools
	fake_gpuimg 'cp "$base" "$result"'
	bench --gpuimg "$fake" --work-dir "$BATS_TEST_TMPDIR" --base "$(phony plain)" --only gpuimg -n 1
	expect_status 1
	expect_in "$out" "| gpuimg build | failed: wrong result: no '/etc/modprobe.d/gpuimg-gpu-block.conf' |"
	[ "$(jq -r '.samples[0].status' "$BATS_TEST_TMPDIR/results/bench.json")" = failed ]
}

@test "a way that hangs is stopped at the timeout, with all that it started" {
	need_tools
	need_root
	fake_gpuimg 'setsid sleep 987.25 & sleep 987.25'
	bench --gpuimg "$fake" --work-dir "$BATS_TEST_TMPDIR" --base "$(phony plain)" --only gpuimg -n 1 \
		--timeout 1
	expect_status 1
	expect_in "$out" "failed: stopped after 1 s"
	[ -z "$(pgrep -f 'sleep 987\.25')" ]
}

@test "an interrupted run leaves no process, no directory and no report" {
	need_tools
	need_root
	fake_gpuimg 'setsid sleep 987.5 & touch "$result.runs"; sleep 987.5'
	"$REPO/tools/bench.sh" --gpuimg "$fake" --work-dir "$BATS_TEST_TMPDIR" --base "$(phony plain)" \
		--only gpuimg --output-dir "$BATS_TEST_TMPDIR/results" >/dev/null 2>&1 3>&- &
	pid=$!
	for ((i = 0; i < 100; i++)); do
		[ -z "$(find "$BATS_TEST_TMPDIR" -name '*.runs')" ] || break
		sleep 0.1
	done
	[ "$i" -lt 100 ]
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	[ "$status" -eq 143 ]
	[ -z "$(pgrep -f 'sleep 987\.5')" ]
	[ -z "$(find "$BATS_TEST_TMPDIR" -name 'gpuimg-bench.*')" ]
	[ ! -e "$BATS_TEST_TMPDIR/results/bench.json" ]
}

@test "the median of three is the middle one, of two their mean, and ratios are of medians" {
	{
		sample gpuimg 1 10.04
		sample root-script 1 40
		sample gpuimg 2 30.04
		sample root-script 2 20.08
		sample gpuimg 3 20.04
	} >"$BATS_TEST_TMPDIR/samples"
	report bench
	expect_in "$out" "| the gpuimg | 20.0 (10.0–30.0) | 1.00× | 20.0 | 100 | – | 2 | 1 |"
	expect_in "$out" "| the root-script | 30.0 (20.1–40.0) | 1.50× | 30.0 | 100 | – | 2 | 1 |"
	expect_in "$out" "no KVM"
}

@test "a way that failed or cannot run keeps its row, with the reason and without figures" {
	{
		sample gpuimg 1 1
		echo '{"way": "a", "title": "the a", "point": "", "round": 1, "status": "failed", "reason": "no image"}'
		echo '{"way": "b", "title": "the b", "point": "", "status": "skipped", "reason": "needs root"}'
	} >"$BATS_TEST_TMPDIR/samples"
	report bench
	expect_in "$out" "| the a | failed: no image |"
	expect_in "$out" "| the b | left out: needs root |"
}

@test "a failed sample beside good ones is told under the table" {
	{
		sample gpuimg 1 1
		echo '{"way": "gpuimg", "title": "the gpuimg", "point": "", "round": 2, "status": "failed", "reason": "x"}'
	} >"$BATS_TEST_TMPDIR/samples"
	report bench
	expect_in "$out" "Some samples failed: the gpuimg: 1."
}

@test "the growth's ratios are of the same point" {
	{
		sample gpuimg 1 1 kernels-1
		sample root-script 1 3 kernels-1
		sample gpuimg 1 2 data-12
		sample root-script 1 8 data-12
	} >"$BATS_TEST_TMPDIR/samples"
	report growth
	expect_in "$out" "| 1 kernel(s) | the root-script | 3.0 | 3.00× |"
	expect_in "$out" "| 12 GB of data | the root-script | 8.0 | 4.00× |"
}

@test "the table goes between its marks, and all else in the file stays" {
	printf '%s\n' before '<!-- bench:begin -->' old '<!-- bench:end -->' after >"$BATS_TEST_TMPDIR/doc"
	echo new >"$BATS_TEST_TMPDIR/table"
	part 'put_between $work/doc bench $work/table; put_between $work/doc bench $work/table'
	expect_status 0
	[ "$(tr '\n' ' ' <"$BATS_TEST_TMPDIR/doc")" = "before <!-- bench:begin --> new <!-- bench:end --> after " ]
}

@test "a file without the marks is left as it is, and told" {
	echo text >"$BATS_TEST_TMPDIR/doc"
	part 'put_between $work/doc bench $work/doc'
	expect_status 1
	expect_in "$err" "has no marks"
	[ "$(cat "$BATS_TEST_TMPDIR/doc")" = text ]
}

@test "docs/performance.md has the marks that the tables go between" {
	for name in bench growth; do
		[ "$(grep -c -x -e "<!-- $name:begin -->" -e "<!-- $name:end -->" "$REPO/docs/performance.md")" = 2 ]
	done
}

@test "memory is summed over all that is below the way's process" {
	part 'sleep 0.1 # the shell itself is there
		bash -c "x=\$(head -c 20000000 /dev/zero | tr \"\\0\" a); sleep 20 & wait" & child=$!
		declare -A visited remembered
		for ((i = 0; i < 50; i++)); do
			sample_memory
			# head and tr are there for a moment too
			[ "$memory_kib" -lt 19000 ] || [ ${#visited[@]} -ne 2 ] || break
			sleep 0.1
		done
		echo "$memory_kib ${#visited[@]}"
		for pid in "${!visited[@]}"; do kill "$pid"; done'
	expect_status 0
	read -r kib count <<<"$out"
	[ "$kib" -gt 19000 ] && [ "$kib" -lt 100000 ]
	[ "$count" -eq 2 ]
}

@test "a peak is of what was sampled up to the given time" {
	printf '%s\n' '100.1 5 70' '100.2 9 10' '100.3 20 80' >"$BATS_TEST_TMPDIR/s"
	part 'peak $work/s 2; peak $work/s 2 100.25; peak $work/s 3'
	[ "$out" = $'20\n9\n80' ]
}

@test "entries that lack a parameter, or whose root is a device of this machine, are found" {
	printf '\tlinux\t/boot/vmlinuz-1 root=UUID=a ro pci=nocrs pci=realloc\n' >"$BATS_TEST_TMPDIR/good"
	printf '\tlinux\t/boot/vmlinuz-1 root=UUID=a ro pci=nocrs pci=realloc=off\n' >"$BATS_TEST_TMPDIR/bad"
	printf '\tlinux\t/boot/vmlinuz-1 root=/dev/loop0p1 pci=realloc pci=nocrs\n' >"$BATS_TEST_TMPDIR/loop"
	part 'base_roots=root=UUID=a
		check_entries $work/good && echo good
		check_entries $work/bad || echo "$wrong"
		check_entries $work/loop || echo "$wrong"
		check_entries /dev/null || echo "$wrong"'
	expect_status 0
	[ "$out" = "$(printf '%s\n' good '1 boot entries without the parameters' \
		'boot entries name another root: root=/dev/loop0p1' 'no boot entry')" ]
}

@test "the data of the growth are the same bytes each time, half of them compressible" {
	for dir in a b; do
		{ echo 'megabytes=60' && cat "$REPO/tools/bench/fill-data.sh"; } >"$BATS_TEST_TMPDIR/fill"
		bash "$BATS_TEST_TMPDIR/fill" "$BATS_TEST_TMPDIR/$dir"
	done
	diff -r "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b"
	[ "$(cat "$BATS_TEST_TMPDIR"/a/srv/data/* | wc -c)" -eq 60000000 ]
	packed=$(cat "$BATS_TEST_TMPDIR"/a/srv/data/* | zstd -q -c | wc -c)
	[ "$packed" -gt 15000000 ] && [ "$packed" -lt 45000000 ]
}
