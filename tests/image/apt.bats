#!/usr/bin/env bats
# The apt session in real roots of two releases: what it installs, and that nothing of it stays. Packages
# that cannot be had, or should misbehave, are stand-ins of a local signed repository (tests/lib/repo.bash).
# shellcheck disable=SC2016,SC2154
load ../lib/common
load ../lib/repo
load ../lib/roots

TRY=${APT_TRY:-$REPO/build/tests/tools/apt-try}
WORK=$OUT/apt
APT_DIR=/var/cache/gpuimg-apt

# altered NAME BASE-TAR: a root that was changed by the script on standard input, run in its directory.
altered() {
	local dir=$WORK/unpacked
	mkdir "$dir"
	tar -C "$dir" --numeric-owner -xf "$2"
	(cd "$dir" && bash -eu /dev/stdin)
	tar -C "$dir" --numeric-owner -cf "$WORK/$1.tar" .
	rm -rf --one-file-system "$dir"
}

# files PATH MODE: one file of the package that is being made, from standard input.
files() {
	mkdir -p "$WORK/pkg/$(dirname "$1")"
	cat >"$WORK/pkg/$1"
	chmod "$2" "$WORK/pkg/$1"
}

# package NAME VERSION [LINE...]: with the files so far.
package() {
	repo_deb "$WORK/repo" "$@" -- "$WORK/pkg"
	rm -rf "$WORK/pkg"
	mkdir "$WORK/pkg"
}

make_repository() {
	repo_new "$WORK/repo"
	mkdir -p "$WORK/pkg"
	files usr/share/lib-one/file 0644 <<<lib-one
	package lib-one 1.0-1
	files usr/share/tool/file 0644 <<<tool-1
	files etc/tool.conf 0644 <<<tool-1
	files DEBIAN/conffiles 0644 <<<'/etc/tool.conf'
	package tool 1:1.0-1 'Depends: lib-one (>= 1.0), libc6' 'Recommends: not-wanted'
	files usr/share/tool/file 0644 <<<tool-2
	package tool 1:2.0-1 'Depends: lib-one (>= 1.0), libc6'
	package not-wanted 1
	package drops 1 'Depends: not-wanted'
	package drops 2
	package wants-missing 1 'Depends: is-nowhere (>= 3)'
	files DEBIAN/postinst 0755 <<<$'#!/bin/sh\necho "compiling: cannot find the frobnicator"\nexit 3'
	package breaks 1
	files usr/sbin/daemon 0755 <<<$'#!/bin/sh\n[ "$1" = start ] && touch /daemon-started\nexit 0'
	files DEBIAN/postinst 0755 <<-'END'
		#!/bin/sh
		set -e
		touch /postinst-ran
		[ ! -e /var/cache/gpuimg-apt/bin/helper-program ] || helper-program --from-postinst
		invoke-rc.d daemon start
		deb-systemd-invoke start daemon.service || true
	END
	files lib/systemd/system/daemon.service 0644 <<<$'[Service]\nExecStart=/usr/sbin/daemon start'
	files etc/init.d/daemon 0755 <<-'END'
		#!/bin/sh
		### BEGIN INIT INFO
		# Provides: daemon
		# Required-Start:
		# Required-Stop:
		# Default-Start: 2 3 4 5
		# Default-Stop:
		### END INIT INFO
		exec /usr/sbin/daemon "$1"
	END
	package daemon 1
	files DEBIAN/postinst 0755 <<<$'#!/bin/sh\nprintf "#!/bin/sh\\nexit 0\\n" >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d'
	package brings-policy 1
	REPO_VALID_UNTIL='Mon, 01 Jan 2024 00:00:00 UTC' repo_publish "$WORK/repo" outdated
	repo_publish "$WORK/repo" stable
	repo_serve "$WORK/repo" >"$WORK/url"
	repo_new "$WORK/other"
}

# Sources that lead nowhere: what --mirror names takes their place.
make_local_root() { # name, tar
	cp "$WORK/repo.key/key.gpg" "$WORK/standin.gpg"
	KEY=$WORK/standin.gpg altered "$@" <<-'END'
		rm -f etc/apt/sources.list etc/apt/sources.list.d/*
		cp "$KEY" usr/share/keyrings/debian-archive-standin.gpg
		printf 'Types: deb deb-src\nURIs: http://127.0.0.1:1/debian\nSuites: stable\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-standin.gpg\n' >etc/apt/sources.list.d/debian.sources
		rm -f etc/resolv.conf usr/sbin/policy-rc.d
		# a copy is made for every session: without what none of them looks at
		rm -rf usr/share/doc usr/share/locale usr/share/man usr/share/zoneinfo usr/share/i18n \
			usr/lib/x86_64-linux-gnu/gconv
	END
}

setup_file() {
	need_root
	for tool in mmdebstrap bwrap dpkg-deb gpg python3; do
		command -v "$tool" >/dev/null || skip "needs $tool"
	done
	rm -rf --one-file-system "$WORK"
	mkdir -p "$WORK"
	make_repository
	# a node's own settings: a proxy that is not there, a hook, pins, a policy, a link for resolv.conf
	altered odd "$(root_minbase bookworm)" <<-'END'
		ln -sf ../run/systemd/resolve/stub-resolv.conf etc/resolv.conf
		printf '#!/bin/sh\n# mine\nexit 104\n' >usr/sbin/policy-rc.d
		chmod 0700 usr/sbin/policy-rc.d
		printf 'Acquire::http::Proxy "http://127.0.0.1:1/";\nAPT::Update::Post-Invoke { "touch /hooked"; };\nDPkg::Post-Invoke { "touch /hooked"; };\nDir::Cache::pkgcache "";\n' >etc/apt/apt.conf.d/99site
		printf 'APT::Get::AllowUnauthenticated "true";\nAcquire::AllowInsecureRepositories "true";\n' >etc/apt/apt.conf
		printf 'Package: jq\nPin: release *\nPin-Priority: -1\n' >etc/apt/preferences.d/no-jq
	END
	altered plain "$(root_minbase trixie)" <<-'END'
		rm -f etc/resolv.conf usr/sbin/policy-rc.d
		echo 'nameserver 192.0.2.1' >etc/resolv.conf
		ln -s /bin/true usr/sbin/policy-rc.d
	END
	make_local_root local-bookworm "$(root_minbase bookworm)"
	make_local_root local-trixie "$(root_minbase trixie)"
}

teardown_file() {
	repo_stop "$WORK/repo"
	rm -rf --one-file-system "$WORK"/tree.* "$WORK"/*.tar
}

setup() {
	URL=$(cat "$WORK/url")
	FPR=$(repo_fingerprint "$WORK/repo")
	DIR=$WORK/tree.$BATS_TEST_NUMBER
	T=$DIR/tree
}

teardown() {
	rm -rf --one-file-system "$DIR"
}

# try ROOT ARGUMENT...: a session in a new copy of that root.
try() {
	rm -rf --one-file-system "$DIR"
	mkdir -p "$DIR"
	chmod 0755 "$DIR"
	run_split "$TRY" "$WORK/$1.tar" "$DIR" "${@:2}"
}

# Nothing of a session may be left, whatever it did.
expect_clean() {
	expect_not_in "$out" "changed $APT_DIR" || return
	expect_not_in "$out" "/var/lib/apt/lists" || return
	expect_not_in "$out" "/var/cache/apt" || return
	expect_not_in "$out" "changed /etc/apt" || return
	expect_not_in "$out" "/etc/resolv.conf" || return
	[ ! -e "$T$APT_DIR" ] || return
	[ -z "$(find "$T" -xdev -name '*gpuimg*' -print -quit)" ]
}

@test "with a bookworm image's own sources, lists come and go, and no path is different afterwards" {
	try odd --update --versions=hello --simulate=hello
	expect_status 0
	expect_in "$out" "versions hello 1"
	[[ $out =~ item\ hello\ [0-9].*\ from\ \(new\)\ [0-9]+\ [0-9a-f]{64} ]]
	expect_not_in "$out" "changed "
	expect_not_in "$out" "removed "
	[ "$(readlink "$T/etc/resolv.conf")" = ../run/systemd/resolve/stub-resolv.conf ]
}

@test "the image's own pins hold, and neither its proxy nor its hooks" {
	try odd --update --versions=jq --simulate=jq
	expect_status 4
	expect_in "$out" "versions jq 0"
	expect_in "$err" "jq"
	[ ! -e "$T/hooked" ]
}

@test "a trixie image with a resolv.conf of its own installs from the network, and keeps it" {
	try plain --update --install=hello
	expect_status 0
	[ -x "$T/usr/bin/hello" ]
	[ "$(cat "$T/etc/resolv.conf")" = 'nameserver 192.0.2.1' ]
	[ "$(readlink "$T/usr/sbin/policy-rc.d")" = /bin/true ]
	expect_clean
}

@test "an image's own policy-rc.d is back byte for byte, with its mode" {
	try odd --offline --debs="$WORK/repo/pool/main" --update --install=daemon
	expect_status 0
	[ -e "$T/postinst-ran" ]
	[ "$(cat "$T/usr/sbin/policy-rc.d")" = "$(printf '#!/bin/sh\n# mine\nexit 104\n')" ]
	[ "$(stat -c %a "$T/usr/sbin/policy-rc.d")" = 700 ]
	[ ! -e "$T/hooked" ]
	expect_clean
}

for_both() { # a body of a test, for both releases
	for suite in bookworm trixie; do
		"$1" "local-$suite" || {
			echo "in $suite"
			return 1
		}
	done
}

mirror_case() {
	try "$1" --mirror="$URL" --update --cat=$APT_DIR/sources.list.d/gpuimg.sources --versions=tool
	expect_status 0 || return
	expect_in "$out" "URIs: $URL" || return
	expect_in "$out" "Types: deb"$'\n' || return
	expect_in "$out" "versions tool 2" || return
	[ "$(grep -m 1 '^version tool' <<<"$out")" = "version tool 1:2.0-1 (lib-one (>= 1.0); libc6) stand-in for tool, of the tests of gpuimg" ] || return
	expect_not_in "$out" "changed "
}

@test "a mirror takes the place of the image's, in an image without resolv.conf" {
	for_both mirror_case
	[ ! -e "$T/etc/resolv.conf" ]
}

install_case() {
	try "$1" --mirror="$URL" --update --simulate=tool=1:1.0-1 --install=tool=1:1.0-1 --hold=tool
	expect_status 0 || return
	expect_in "$out" "item lib-one 1.0-1 from (new)" || return
	expect_in "$out" "item tool 1:1.0-1 from (new) $(stat -c %s "$WORK/repo/pool/main/tool_1.0-1_amd64.deb") $(sha256sum <"$WORK/repo/pool/main/tool_1.0-1_amd64.deb" | cut -d' ' -f1)" || return
	expect_in "$out" "transaction 2 " || return
	[ "$(cat "$T/usr/share/tool/file")" = tool-1 ] || return
	grep -A1 '^Package: tool$' "$T/var/lib/dpkg/status" | grep -q 'hold ok installed' || return
	[ ! -e "$T/usr/sbin/policy-rc.d" ] || return
	expect_clean
}

@test "a version is simulated with size and digest, installed, held, and nothing else stays" {
	for_both install_case
}

@test "an upgrade tells the old version, and a pin chooses the candidate" {
	try local-bookworm --mirror="$URL" --pin='tool,1:1.*' --update --versions=tool --install=tool \
		--simulate=tool=1:2.0-1
	expect_status 0
	[[ $(grep -m 1 '^version tool' <<<"$out") = "version tool 1:1.0-1 "* ]]
	expect_in "$out" "item tool 1:2.0-1 from 1:1.0-1"
	[ "$(cat "$T/usr/share/tool/file")" = tool-1 ]
}

purge_case() {
	try "$1" --mirror="$URL" --update --install=tool --purge=tool
	expect_status 0 || return
	[ ! -e "$T/usr/share/tool" ] || return
	[ ! -e "$T/etc/tool.conf" ] || return
	[ ! -e "$T/usr/share/lib-one" ] || return
	expect_clean
}

@test "a purge takes configuration files and what only that package needed" {
	for_both purge_case
}

@test "a purge leaves what nobody needed before" {
	try local-bookworm --mirror="$URL" --update --install=drops=1,tool --install=drops=2 --purge=tool
	expect_status 0
	grep -A3 '^Package: not-wanted$' "$T/var/lib/apt/extended_states" | grep -q 'Auto-Installed: 1'
	grep -q '^Package: not-wanted$' "$T/var/lib/dpkg/status"
	[ "$(grep -c '^Package: lib-one$' "$T/var/lib/dpkg/status")" -eq 0 ]
}

service_case() {
	try "$1" --mirror="$URL" --stub=helper-program --update --install=daemon
	expect_status 0 || return
	[ -e "$T/postinst-ran" ] || return
	[ ! -e "$T/daemon-started" ] || return
	grep -q 'policy-rc.d denied execution of start' "$DIR/log" || return
	[ "$(cat "$T/stub-ran")" = "$APT_DIR/bin/helper-program --from-postinst" ] || return
	expect_clean
}

@test "a package's service is not started, and a stub is found before the real program" {
	for_both service_case
}

@test "a policy-rc.d that a package brings stays" {
	try local-bookworm --mirror="$URL" --update --install=brings-policy
	expect_status 0
	grep -q 'exit 0' "$T/usr/sbin/policy-rc.d"
}

broken_case() {
	try "$1" --mirror="$URL" --update --install=breaks,tool
	expect_status 1 || return
	expect_in "$err" "compiling: cannot find the frobnicator" || return
	expect_in "$err" "error processing package breaks" || return
	expect_clean
}

@test "a script that fails is told with its last words and its package, and nothing of ours stays" {
	for_both broken_case
}

unmet_case() {
	try "$1" --mirror="$URL" --update --simulate=wants-missing
	expect_status 4 || return
	expect_in "$err" "is-nowhere (>= 3)" || return
	expect_not_in "$out" "changed "
}

@test "unmet dependencies and unknown packages are told in apt's words" {
	for_both unmet_case
	# a name with dots is no regular expression, which 'wants-missing' would match
	try local-bookworm --mirror="$URL" --update --simulate=wants.missing
	expect_status 4
	expect_in "$err" "Unable to locate package wants.missing"
}

pinned_case() {
	try "$1" --mirror="$URL" --pinned="$URL,./,,$FPR,$URL/key.asc" --update --versions=tool --install=tool
	expect_status 0 || return
	expect_in "$out" "versions tool 2" || return
	expect_clean || return
	try "$1" --mirror="$URL" --pinned="$URL,./,,0123456789abcdef0123456789abcdef01234567,$URL/key.asc" --update
	expect_status 4 || return
	expect_in "$err" "$FPR" || return
	expect_in "$err" "0123456789abcdef0123456789abcdef01234567" || return
	expect_not_in "$out" "changed "
}

@test "a pinned repository is taken with the right key, and refused with another fingerprint" {
	for_both pinned_case
}

@test "a pinned key of this host that did not sign the repository is refused by apt, and named" {
	for suite in bookworm trixie; do
		try "local-$suite" --mirror="$URL" \
			--pinned="$URL,./,,$(repo_fingerprint "$WORK/other"),$WORK/other.key/key.asc" --update
		expect_status 4
		expect_in "$err" "$URL"
		expect_in "$err" "is not signed"
	done
}

@test "an image that takes unsigned repositories does not take a pinned one with another signature" {
	try odd --pinned="$URL,./,,$(repo_fingerprint "$WORK/other"),$WORK/other.key/key.asc" --update
	expect_status 4
	expect_in "$err" "$URL"
	expect_in "$err" "is not signed"
	expect_not_in "$out" "changed "
}

@test "an extra repository with a key of this host" {
	try local-trixie --mirror="$URL" --repository="deb [signed-by=$WORK/repo.key/key.gpg arch=amd64] $URL ./" \
		--update --install=tool
	expect_status 0
	expect_clean
	try local-trixie --repository="deb [signed-by=$WORK/repo.key/none.gpg] $URL ./" --update
	expect_status 2
	expect_in "$err" "$WORK/repo.key/none.gpg"
	expect_not_in "$out" "changed "
}

@test "a suite that the server does not have is told" {
	try local-bookworm --mirror="$URL" --pinned="$URL,none,main,$FPR,$WORK/repo.key/key.asc" --update
	expect_status 4
	expect_in "$err" "404"
	expect_in "$err" "$URL"
}

@test "a suite that is out of date is refused, unless this host's own apt allows such" {
	local conf=$WORK/host.conf
	printf 'Dir::Etc::parts "/nonexistent";\nDir::Etc::main "/nonexistent";\n' >"$conf"
	APT_CONFIG=$conf try local-bookworm --mirror="$URL" \
		--pinned="$URL,outdated,main,$FPR,$WORK/repo.key/key.asc" --update
	expect_status 4
	expect_in "$err" "is expired"
	echo 'Acquire::Check-Valid-Until "false";' >>"$conf"
	APT_CONFIG=$conf try local-bookworm --mirror="$URL" \
		--pinned="$URL,outdated,main,$FPR,$WORK/repo.key/key.asc" --update
	expect_status 0
}

@test "a server that cannot be reached is the host's trouble" {
	try local-bookworm --mirror=http://127.0.0.1:1/debian --update
	expect_status 3
	expect_in "$err" "127.0.0.1"
	expect_not_in "$out" "changed "
}

@test "what a proxy serves is used" {
	# the stand-in server answers a proxy's request lines with 404: that it was asked is enough
	try local-bookworm --proxy="$URL" --mirror=http://mirror.invalid/debian --update
	expect_status 4
	grep -q 'GET http://mirror.invalid/debian/dists/stable/InRelease' "$WORK/repo.requests"
}

offline_case() {
	before=$(wc -l <"$WORK/repo.requests")
	try "$1" --offline --debs="$WORK/debs" --update --simulate=tool --install=tool
	expect_status 0 || return
	expect_in "$out" "deb $(sha256sum <"$WORK/debs/tool_1%3a2.0-1_amd64.deb" | cut -d' ' -f1)  tool_1%3a2.0-1_amd64.deb" || return
	[ "$(cat "$T/usr/share/tool/file")" = tool-2 ] || return
	[ "$(wc -l <"$WORK/repo.requests")" -eq "$before" ] || return
	expect_clean
}

@test "a directory of packages is a source without any network" {
	mkdir -p "$WORK/debs"
	cp "$WORK/repo/pool/main/tool_2.0-1_amd64.deb" "$WORK/debs/tool_1%3a2.0-1_amd64.deb"
	cp "$WORK/repo/pool/main/lib-one_1.0-1_amd64.deb" "$WORK/debs/"
	for_both offline_case
	rm "$WORK/debs/lib-one_1.0-1_amd64.deb"
	try local-bookworm --offline --debs="$WORK/debs" --update --simulate=tool
	expect_status 4
	expect_in "$err" "lib-one"
}
