#!/usr/bin/env bats
# The runtime 'nvidia' in real containerds: 1.6 (bookworm), 1.7 (trixie) and 2.1 (forky), each with every kind of
# configuration. What the module wrote is asked of that containerd once more, outside of it: 'config dump'
# must load all of it, show the runtime with runc's own options, and what was there before.
# nvidia-container-runtime and nvidia-ctk here are stand-ins (scripts): their real packages are not in Debian.
# shellcheck disable=SC2154,SC2016
load ../lib/common
load ../lib/roots

TRY=${CONTAINERD_TRY:-$REPO/build/tests/tools/containerd-try}
SHIFTED=1879048192 # TREE_UID_BASE: the sandbox's root
ROWS=$OUT/containerd.tsv
V2='plugins."io.containerd.grpc.v1.cri"'
V3='plugins."io.containerd.cri.v1.runtime"'

setup_file() {
	local suite tar
	need_root
	for tool in mmdebstrap bwrap chroot; do
		command -v "$tool" >/dev/null || skip "needs $tool"
	done
	: >"$ROWS"
	for suite in bookworm trixie forky; do
		tar=$(root_tar "$suite" containerd runc dash coreutils libc-bin base-files sed grep mawk)
		rm -rf --one-file-system "$OUT/containerd-$suite"
		"$TRY" --tar="$tar" "$OUT/containerd-$suite"
		cp "$OUT/containerd-$suite/etc/containerd/config.toml" "$OUT/containerd-$suite.packaged"
		put "$OUT/containerd-$suite/usr/bin/nvidia-container-runtime" 0755 <<<$'#!/bin/sh\n# stand-in\nexit 1'
	done
}

teardown_file() {
	for suite in bookworm trixie forky; do
		rm -rf --one-file-system "$OUT/containerd-$suite"
	done
}

put() { # path, mode: standard input, owned by the sandbox's root
	mkdir -p "${1%/*}"
	cat >"$1"
	chmod "$2" "$1"
	chown "$SHIFTED:$SHIFTED" "${1%/*}" "$1"
}

# A root with nothing of an earlier case in it; standard input becomes the main file.
fresh() { # suite
	dir=$OUT/containerd-$1
	suite=$1
	rm -rf "$dir/etc/containerd" "$dir/usr/bin/nvidia-ctk"
	mkdir "$dir/etc/containerd"
	chown "$SHIFTED:$SHIFTED" "$dir/etc/containerd"
	put "$dir/etc/containerd/config.toml" 0644
	[ -s "$dir/etc/containerd/config.toml" ] || rm "$dir/etc/containerd/config.toml"
}

dump() { # what that containerd says by itself
	if [ -e "$dir/etc/containerd/config.toml" ]; then
		# a pipe in its place would hold it for ever
		timeout 10 chroot "$dir" /usr/bin/containerd config dump 2>/dev/null
	else
		chroot "$dir" /usr/bin/containerd config default 2>/dev/null
	fi
}

# "KEY = VALUE" lines of the dump's section whose header ends in this, without quotes.
section() { # dump, end of header
	awk -v want="$2]" '/^ *\[/ { inside = (substr($0, length($0) - length(want) + 1) == want); next }
		inside && NF { gsub(/[ "'\'']/, ""); print }' "$1" | sort
}

# row CONFIGURATION OUTCOME
row() {
	local version edited
	version=$(sed -n 's/^version\t//p' <<<"$out")
	edited=$(sed -n 's/^edited\t//p' <<<"$out" | paste -sd' ')
	printf '%s (%s)\t%s\t%s\t%s\t%s\n' "${version%%[~+-]*}" "$suite" "$1" "$(sed -n 's/^by\t//p' <<<"$out")" \
		"$edited" "$2" >>"$ROWS"
}

set_up() { # [options]
	before=$BATS_TEST_TMPDIR/before
	after=$BATS_TEST_TMPDIR/after
	[ -p "$dir/etc/containerd/config.toml" ] || dump >"$before" || true
	find "$dir/etc/containerd" -type f -exec sha256sum {} + | sort >"$BATS_TEST_TMPDIR/files"
	run_split "$TRY" --data-dir="$REPO" "$@" "$dir"
}

# Options that say something: an empty one is the same as none.
said() {
	grep -v -e BinaryName -e '=$' -e '=0$' -e '=false$' || true
}

# The runtime as that containerd shows it: its program, its type, runc's options.
has_runtime() { # [SystemdCgroup]
	dump >"$after"
	expect_in "$(section "$after" runtimes.nvidia)" 'runtime_type=io.containerd.runc.v2'
	expect_in "$(section "$after" runtimes.nvidia.options)" 'BinaryName=/usr/bin/nvidia-container-runtime'
	diff <(section "$after" runtimes.runc.options | said) <(section "$after" runtimes.nvidia.options | said)
	expect_in "$(section "$after" runtimes.nvidia.options)" "SystemdCgroup=${1:-false}"
	expect_in "$(section "$after" runtimes.runc.options)" "SystemdCgroup=${1:-false}"
}

# All of the dump but the new runtime, imports and disabled_plugins is as it was; an option that is empty is as good
# as none, since a section of ours for runc names only what says something.
nothing_else() {
	local file
	for file in "$before" "$after"; do
		awk '/^ *\[/ { inside = ($0 ~ /runtimes\.nvidia[].]/) } !inside && NF' "$file" |
			grep -v -e '^imports' -e '^disabled_plugins' \
				-e "^            [A-Z][A-Za-z]* = \(0\|false\|\"\"\|''\)\$" >"$file.rest"
	done
	diff "$before.rest" "$after.rest"
}

# A second time nothing is done.
is_idempotent() { # [options]
	run_split "$TRY" --data-dir="$REPO" "$@" "$dir"
	expect_status 0
	expect_in "$out" $'by\tthe image'
	expect_not_in "$out" $'edited\t'
}

is_untouched() {
	find "$dir/etc/containerd" -type f -exec sha256sum {} + | sort | diff "$BATS_TEST_TMPDIR/files" -
}

good() { # row's name, SystemdCgroup, [options]
	local name=$1 cgroup=$2 first
	shift 2
	set_up "$@"
	expect_status 0
	first=$out
	has_runtime "$cgroup"
	is_idempotent "$@"
	out=$first
	row "$name" "loaded; runtime there, SystemdCgroup = $cgroup as runc's"
}

# --- configurations ---

no_file() {
	fresh "$1" </dev/null
	good 'no file' false
	nothing_else
}

packaged() {
	fresh "$1" <"$OUT/containerd-$1.packaged"
	good "the package's own (version 2)" false
	nothing_else
	expect_in "$(section "$after" .cni)" '/usr/lib/cni'
}

with_imports() {
	fresh "$1" <<-EOF
		# ours
		version = 2
		imports = ["/etc/containerd/conf.d/*.toml"] # keep
		[$V2]
		  enable_selinux = true
	EOF
	put "$dir/etc/containerd/conf.d/10-site.toml" 0644 <<-EOF
		version = 2
		oom_score = -500
		[$V2.containerd.runtimes.runc]
		  runtime_type = "io.containerd.runc.v2"
		  [$V2.containerd.runtimes.runc.options]
		    SystemdCgroup = true
	EOF
	good 'version 2 with imports, runc in a drop-in' true
	nothing_else
	grep -q '^oom_score = -500' "$after"
	grep -q '# keep' "$dir/etc/containerd/config.toml"
}

without_imports() {
	fresh "$1" <<-EOF
		# ours
		version = 2

		[$V2]
		  enable_selinux = true # keep
		  [$V2.registry]
		    config_path = "/etc/containerd/certs.d"
	EOF
	good 'version 2 without imports' false
	nothing_else
	grep -q '# keep' "$dir/etc/containerd/config.toml"
}

runc_with_cgroup() { # [line of the version], its CRI section
	cat <<-EOF
		$1
		[$2.containerd.runtimes.runc]
		  runtime_type = "io.containerd.runc.v2"
		  [$2.containerd.runtimes.runc.options]
		    SystemdCgroup = true
	EOF
}

runc_only_file() {
	fresh "$1" < <(runc_with_cgroup 'version = 2' "$V2")
}

runc_only() {
	runc_only_file "$1"
	good 'version 2, SystemdCgroup on runc only' true
	nothing_else
}

as_default() {
	fresh "$1" <<-EOF
		version = 2
		[$V2.containerd]
		  default_runtime_name = "runc"
		  [$V2.containerd.runtimes.runc]
		    runtime_type = "io.containerd.runc.v2"
		    [$V2.containerd.runtimes.runc.options]
		      SystemdCgroup = true
	EOF
	good 'the same, --default-runtime' true --default
	expect_in "$(section "$after" .containerd)" 'default_runtime_name=nvidia'
}

disabled() { # suite, list, version line, row's name
	fresh "$1" <<-EOF
		$3
		disabled_plugins = [$2, "io.containerd.snapshotter.v1.zfs"]
	EOF
	good "$4" false
	expect_in "$(grep '^disabled_plugins' "$after" | tr "'" '"')" '["io.containerd.snapshotter.v1.zfs"]'
}

version_1() { # settings of the CRI plugin in the oldest schema
	fresh "$1" < <(runc_with_cgroup '' plugins.cri)
}

version_1_refused() {
	version_1 "$1"
	set_up
	expect_status 4
	expect_in "$err" "'/etc/containerd/config.toml' is of version 1"
	expect_in "$err" hint:
	is_untouched
	row 'no version, with settings of the CRI plugin' 'refused by name, nothing touched'
}

version_3() {
	fresh "$1" < <(runc_with_cgroup 'version = 3' "$V3")
}

version_3_refused() {
	version_3 "$1"
	set_up
	expect_status 4
	expect_in "$err" "'/etc/containerd/config.toml' is of version 3"
	expect_in "$err" hint:
	is_untouched
	row 'version 3' 'refused by name, nothing touched'
}

no_toml() {
	fresh "$1" <<<$'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"\n[x'
	set_up
	expect_status 4
	expect_in "$err" "/etc/containerd/config.toml"
	is_untouched
	row 'no TOML' 'refused with the line, nothing touched'
}

# A relative pattern counts from / before 1.6.30 and 1.7.16, and from the file's directory since.
relative_pattern() { # suite, SystemdCgroup
	fresh "$1" <<<$'version = 2\nimports = ["conf.d/*.toml"]'
	put "$dir/etc/containerd/conf.d/10-site.toml" 0644 < <(runc_with_cgroup 'version = 2' "$V2")
	good 'version 2 with a relative pattern, runc in a drop-in' "$2"
	nothing_else
}

# What it does not load disables nothing, and what such a file imports need not be there.
unloaded_pattern() { # suite
	fresh "$1" <<<$'version = 2\nimports = ["conf.d/*.toml"]'
	put "$dir/etc/containerd/conf.d/x.toml" 0644 <<<$'disabled_plugins = ["cri"]\nimports = ["/none.toml"]'
	good 'version 2 with a relative pattern for a file that disables CRI' false
	nothing_else
	grep -q '^disabled_plugins = \[\]' "$before"
	[ "$(cat "$dir/etc/containerd/conf.d/x.toml")" = $'disabled_plugins = ["cri"]\nimports = ["/none.toml"]' ]
}

# A relative import counts from the path that containerd is given, not from where a link there leads.
behind_link() { # suite
	fresh "$1" </dev/null
	put "$dir/etc/containerd/site/config.toml" 0644 <<-EOF
		version = 2
		imports = ["own.toml"]
		disabled_plugins = ["io.containerd.grpc.v1.cri"]
	EOF
	put "$dir/etc/containerd/site/own.toml" 0644 <<<$'version = 2\noom_score = -1'
	put "$dir/etc/containerd/own.toml" 0644 <<<$'version = 2\noom_score = -2'
	ln -s site/config.toml "$dir/etc/containerd/config.toml"
	chown -h "$SHIFTED:$SHIFTED" "$dir/etc/containerd/config.toml"
	good 'a link, its target with a relative import and disabled_plugins' false
	grep -q '^oom_score = -2' "$before"
	grep -q '^oom_score = -2' "$after"
	[ -L "$dir/etc/containerd/config.toml" ]
	[ -z "$(find "$dir/etc/containerd" -name '.gpuimg*')" ]
}

byte_order_mark() { # suite
	fresh "$1" <<<$'\xef\xbb\xbfversion = 2\r'
	good 'version 2 behind a byte order mark, CRLF' false
	nothing_else
	[ "$(head -c 3 "$dir/etc/containerd/config.toml" | od -An -tx1)" = ' ef bb bf' ]
}

byte_order_mark_refused() { # suite
	fresh "$1" <<<$'\xef\xbb\xbfversion = 2\r'
	set_up
	expect_status 4
	expect_in "$err" 'does not load'
	is_untouched
	row 'version 2 behind a byte order mark, CRLF' 'refused with what it says, nothing touched'
}

# refused_file SENTENCE: at once, by its name, and nothing is touched.
refused_file() { # sentence
	set_up
	expect_status 4
	expect_in "$err" "/etc/containerd/"
	expect_in "$err" "$1"
	awk -v s="$seconds" 'BEGIN { exit s > 15 }'
	is_untouched
}

# A main file that is none, or that no reader takes.
odd_files() { # suite
	local main
	fresh "$1" < <(printf 'version = 2\n\0\n')
	main=$dir/etc/containerd/config.toml
	refused_file NUL
	fresh "$1" < <(printf 'version = 2\n' | iconv -t UTF-16)
	refused_file "'/etc/containerd/config.toml'"
	fresh "$1" < <(yes '# comment' | head -c 1100000)
	refused_file 'larger than'
	fresh "$1" </dev/null
	mkdir "$main"
	chown "$SHIFTED:$SHIFTED" "$main"
	refused_file 'no regular file'
	fresh "$1" </dev/null
	mkfifo "$main"
	chown "$SHIFTED:$SHIFTED" "$main"
	refused_file 'no regular file'
	fresh "$1" </dev/null
	ln -s config.toml "$main"
	chown -h "$SHIFTED:$SHIFTED" "$main"
	refused_file 'Too many levels of symbolic links'
}

# Imports in a circle, out of the root, of a pipe and of a directory.
odd_imports() { # suite
	fresh "$1" <<-EOF
		version = 2
		imports = ["config.toml", "conf.d/../conf.d/a.toml", "/../../../../../../../etc/containerd/b*.toml"]
	EOF
	put "$dir/etc/containerd/conf.d/a.toml" 0644 <<<$'version = 2\nimports = ["../config.toml", "a.toml"]'
	put "$dir/etc/containerd/b.toml" 0644 <<<$'version = 2\noom_score = -3'
	good 'version 2 with imports in a circle' false
	grep -q '^oom_score = -3' "$after"
	fresh "$1" <<<$'version = 2\nimports = ["/etc/containerd/*.d"]'
	mkdir "$dir/etc/containerd/x.d"
	chown "$SHIFTED:$SHIFTED" "$dir/etc/containerd/x.d"
	refused_file "'/etc/containerd/x.d': it is no regular file"
	rmdir "$dir/etc/containerd/x.d"
	mkfifo "$dir/etc/containerd/y.d"
	chown "$SHIFTED:$SHIFTED" "$dir/etc/containerd/y.d"
	refused_file "'/etc/containerd/y.d': it is no regular file"
	fresh "$1" <<<$'version = 2\nimports = ["missing.toml"]'
	refused_file 'it is imported, but missing'
}

# --- nvidia-ctk ---

# Before 1.18 it wrote the main file; 'broken': it exits with 0 and wrote nothing that is read.
stand_in_old_ctk() { # version, [broken]
	put "$dir/usr/bin/nvidia-ctk" 0755 <<-EOF
		#!/bin/sh
		# stand-in for nvidia-ctk $1
		main=/etc/containerd/config.toml
		[ "\$1" != --version ] || { echo "NVIDIA Container Toolkit CLI version $1"; exit; }
		[ "\$1 \$2 \$3 \$4" = "runtime configure --runtime=containerd --config=\$main" ] || exit 3
		[ -z "${2-}" ] || { mkdir -p /etc/containerd/conf.d; main=/etc/containerd/conf.d/99-nvidia.toml; }
		{
			echo '[$V2.containerd.runtimes.nvidia]'
			echo 'runtime_type = "io.containerd.runc.v2"'
			echo '[$V2.containerd.runtimes.nvidia.options]'
			echo 'BinaryName = "/usr/bin/nvidia-container-runtime"'
			echo 'SystemdCgroup = true'
		} >>"\$main"
	EOF
}

# stand_in_ctk VERSION: writes what the real one of 1.18.1 and later does, a drop-in with a copy of the main file's
# CRI section and an import of it; 'broken' in its name: a drop-in alone, which nothing imports, and exit code 0.
stand_in_ctk() { # version, [broken]
	put "$dir/usr/bin/nvidia-ctk" 0755 <<-EOF
		#!/bin/sh
		# stand-in for nvidia-ctk $1
		main=/etc/containerd/config.toml dropin=/etc/containerd/conf.d/99-nvidia.toml
		[ "\$1" != --version ] || { echo "NVIDIA Container Toolkit CLI version $1"; exit; }
		[ "\$1 \$2 \$3 \$4" = "runtime configure --runtime=containerd --config=\$main" ] || exit 3
		mkdir -p /etc/containerd/conf.d
		{
			grep '^version' "\$main"
			sed -n '/grpc.v1.cri/,\$p' "\$main"
			echo '[$V2.containerd.runtimes.nvidia]'
			echo 'runtime_type = "io.containerd.runc.v2"'
			echo '[$V2.containerd.runtimes.nvidia.options]'
			echo 'BinaryName = "/usr/bin/nvidia-container-runtime"'
			grep -h 'SystemdCgroup' "\$main"
		} >"\$dropin"
		[ -n "${2-}" ] || sed -i '1i imports = ["/etc/containerd/conf.d/*.toml"]' "\$main"
	EOF
}

ctk_case() { # suite, version, by, outcome, [broken]
	runc_only_file "$1"
	case $2 in
	1.17.*) stand_in_old_ctk "$2" "${5-}" ;;
	*) stand_in_ctk "$2" "${5-}" ;;
	esac
	set_up
	expect_status 0
	expect_in "$out" "by	$3"
	has_runtime true
	nothing_else
	row "version 2, stand-in of nvidia-ctk $2${5:+, whose work nothing reads}" "$4"
}

# Someone edits the main file on the node: adds a setting to its CRI section.
edit_on_node() {
	sed -i "s|^version = 2|&\n[$V2]\n  sandbox_image = \"example.org/pause:1\"|" "$dir/etc/containerd/config.toml"
	dump >"$after"
}

# 1.x reads the drop-in of 1.18.1 and later in place of the main file's section: what is edited there is lost.
ctk_cases_1x() { # suite
	ctk_case "$1" 1.17.8 'nvidia-ctk 1.17.8' 'loaded; its work passed the proof'
	ctk_case "$1" 1.17.8 gpuimg 'its work taken back, written by us' broken
	[ ! -e "$dir/etc/containerd/conf.d/99-nvidia.toml" ]
	expect_in "$err" 'is taken back'
	ctk_case "$1" 1.20.0 gpuimg 'not used'
	expect_in "$err" 'reads in its place'
	edit_on_node
	grep -q 'sandbox_image = "example.org/pause:1"' "$after"
	has_runtime true
	ctk_case "$1" 1.18.0 gpuimg 'not used'
	# what it would have done
	runc_only_file "$1"
	stand_in_ctk 1.20.0
	chroot "$dir" nvidia-ctk runtime configure --runtime=containerd --config=/etc/containerd/config.toml
	edit_on_node
	has_runtime true
	expect_not_in "$(cat "$after")" example.org
}

ctk_cases() {
	ctk_case "$1" 1.20.0 'nvidia-ctk 1.20.0' 'loaded; its work passed the proof'
	[ -e "$dir/etc/containerd/conf.d/99-nvidia.toml" ]
	ctk_case "$1" 1.20.0 gpuimg 'its work taken back, written by us' broken
	[ ! -e "$dir/etc/containerd/conf.d/99-nvidia.toml" ]
	expect_in "$err" 'is taken back'
	ctk_case "$1" 1.18.0 gpuimg 'not used'
	expect_in "$err" '1.18.0 drops imports'
}

@test "containerd 1.6: no file, the package's own, with and without imports" {
	no_file bookworm
	packaged bookworm
	with_imports bookworm
	without_imports bookworm
}

@test "containerd 1.6: SystemdCgroup on runc alone is kept, and nvidia is the default only if asked for" {
	runc_only bookworm
	as_default bookworm
}

@test "containerd 1.6: a disabled CRI plugin is enabled again, by whatever name" {
	disabled bookworm '"cri"' '' 'no version, disabled_plugins = ["cri"]'
	disabled bookworm '"io.containerd.grpc.v1.cri"' 'version = 2' 'version 2, disabled_plugins by the long name'
	disabled bookworm '"cri"' 'version = 2' 'version 2, disabled_plugins = ["cri"] (loads nowhere)'
}

@test "containerd 1.6: a version 3 file, whose content it ignores, and no TOML are refused" {
	version_3_refused bookworm
	no_toml bookworm
}

@test "containerd 1.6: a file without a version is of version 1, and is kept so" {
	version_1 bookworm
	good 'no version, with settings of the CRI plugin' true
	nothing_else
}

@test "containerd 1.6: nvidia-ctk is used if later edits on the node still count, and its work is proven" {
	ctk_cases_1x bookworm
}

@test "containerd 1.6: relative imports count from where it looks for them, a byte order mark is kept" {
	relative_pattern bookworm false
	unloaded_pattern bookworm
	behind_link bookworm
	byte_order_mark bookworm
}

@test "containerd 1.6: what is no file of text is refused at once, imports in a circle are read once" {
	odd_files bookworm
	odd_imports bookworm
}

@test "containerd 1.7: no file, the package's own, with and without imports" {
	no_file trixie
	packaged trixie
	with_imports trixie
	without_imports trixie
}

@test "containerd 1.7: SystemdCgroup on runc alone is kept, and nvidia is the default only if asked for" {
	runc_only trixie
	as_default trixie
}

@test "containerd 1.7: a disabled CRI plugin is enabled again, by whatever name" {
	disabled trixie '"cri"' '' 'no version, disabled_plugins = ["cri"]'
	disabled trixie '"io.containerd.grpc.v1.cri"' 'version = 2' 'version 2, disabled_plugins by the long name'
	disabled trixie '"cri"' 'version = 2' 'version 2, disabled_plugins = ["cri"] (loads nowhere)'
}

@test "containerd 1.7: a version 3 file, which it does not load, and no TOML are refused" {
	version_3_refused trixie
	no_toml trixie
}

@test "containerd 1.7: a file without a version is of version 1, and is kept so" {
	version_1 trixie
	good 'no version, with settings of the CRI plugin' true
	nothing_else
}

@test "containerd 1.7: nvidia-ctk is used if later edits on the node still count, and its work is proven" {
	ctk_cases_1x trixie
}

@test "containerd 1.7: relative imports count from where it looks for them, a byte order mark is kept" {
	relative_pattern trixie true
	behind_link trixie
	byte_order_mark trixie
}

@test "containerd 1.7: what is no file of text is refused at once, imports in a circle are read once" {
	odd_files trixie
	odd_imports trixie
}

@test "containerd 2.1: no file, the package's own, with and without imports" {
	no_file forky
	packaged forky
	with_imports forky
	without_imports forky
}

@test "containerd 2.1: SystemdCgroup on runc alone is kept, and nvidia is the default only if asked for" {
	runc_only forky
	as_default forky
}

@test "containerd 2.1: a disabled CRI plugin is enabled again, by whatever name" {
	disabled forky '"cri"' '' 'no version, disabled_plugins = ["cri"]'
	disabled forky '"io.containerd.grpc.v1.cri"' 'version = 2' 'version 2, disabled_plugins by the long name'
	disabled forky '"cri"' 'version = 2' 'version 2, disabled_plugins = ["cri"] (loads nowhere)'
}

@test "containerd 2.1: a version 3 file gets a version 3 drop-in, and no TOML is refused" {
	version_3 forky
	good 'version 3, SystemdCgroup on runc' true
	nothing_else
	no_toml forky
}

@test "containerd 2.1: settings of version 1, which it ignores, are refused" {
	version_1_refused forky
}

@test "containerd 2.1: nvidia-ctk is used if it is good, and its work is proven" {
	ctk_cases forky
}

@test "containerd 2.1: relative imports count from where it looks for them, a byte order mark is refused" {
	relative_pattern forky true
	behind_link forky
	byte_order_mark_refused forky
}

@test "containerd 2.1: what is no file of text is refused at once, imports in a circle are read once" {
	odd_files forky
	odd_imports forky
}

@test "CRI-O or Docker without a containerd is refused by name; beside one it is told" {
	local aside=$OUT/containerd-forky.aside
	fresh forky </dev/null
	mv "$dir/usr/bin/containerd" "$aside"
	put "$dir/usr/bin/crio" 0755 <<<$'#!/bin/sh\nexit 1'
	set_up
	rm "$dir/usr/bin/crio"
	crio_status=$status crio_err=$err
	put "$dir/etc/docker/daemon.json" 0644 <<<'{}'
	set_up
	docker_status=$status docker_err=$err
	mv "$aside" "$dir/usr/bin/containerd"
	set_up
	rm -r "$dir/etc/docker"
	expect_status 0
	expect_in "$out" "Docker ('/etc/docker/daemon.json') is not set up, containerd alone is"
	[ "$crio_status" -eq 4 ]
	expect_in "$crio_err" "the image has CRI-O ('/usr/bin/crio') and no containerd"
	expect_in "$crio_err" 'nvidia-ctk runtime configure --runtime=crio'
	[ "$docker_status" -eq 4 ]
	expect_in "$docker_err" "the image has Docker ('/etc/docker/daemon.json') and no containerd"
}
