# What: small signed apt repositories with stand-in packages, served on the loopback interface.
# Why:  vendors' packages cannot be had on every machine; their names and dependencies can.
# How:  'load ../lib/repo'; repo_new, repo_deb, repo_publish, repo_serve; repo_stop in the teardown.
# shellcheck shell=bash
#
# A repository is DIR: DIR/pool/COMPONENT/*.deb, DIR/dists/SUITE, and a flat index at its top, so
# "URL stable main" and "URL ./" are both sources. Its secret key lies beside it, in DIR.key.

# repo_new DIR: an empty repository, with a signing key of its own.
repo_new() {
	local home
	mkdir -p "$1/pool" "$1.key"
	# the agent's socket must have a short name
	home=$(mktemp -d /tmp/gpuimg-key.XXXXXX)
	gpg --batch --quiet --no-options --homedir "$home" --passphrase '' \
		--quick-generate-key 'gpuimg stand-in <tests@example.invalid>' ed25519 sign never 2>"$1.key/log" ||
		{
			cat "$1.key/log" >&2
			return 1
		}
	gpg --batch --quiet --no-options --homedir "$home" --armor --export >"$1.key/key.asc"
	gpg --batch --quiet --no-options --homedir "$home" --export >"$1.key/key.gpg"
	gpg --batch --quiet --no-options --homedir "$home" --passphrase '' --pinentry-mode loopback \
		--export-secret-keys >"$1.key/secret.gpg"
	gpg --batch --quiet --no-options --homedir "$home" --with-colons --list-keys 2>/dev/null |
		awk -F: '$1 == "fpr" { print $10; exit }' >"$1.key/fingerprint"
	repo_gpg_end "$home"
	[ -s "$1.key/fingerprint" ]
}

repo_gpg_end() { # home
	gpgconf --homedir "$1" --kill all 2>/dev/null || true
	rm -rf "$1"
}

# repo_deb DIR NAME VERSION [CONTROL-LINE...] [-- TREE]: one package, with the files of TREE
# (TREE/DEBIAN: maintainer scripts). Architecture: amd64, unless a line says otherwise.
# REPO_COMPONENT: where it goes, "main" if unset.
repo_deb() {
	local dir=$1 name=$2 version=$3 work lines=() line tree=
	shift 3
	while [ $# -gt 0 ]; do
		if [ "$1" = -- ]; then
			tree=$2
			break
		fi
		lines+=("$1")
		shift
	done
	work=$(mktemp -d "${TMPDIR:-/tmp}/repo-deb.XXXXXX")
	[ -z "$tree" ] || cp -a "$tree/." "$work/"
	mkdir -p "$work/DEBIAN" "$dir/pool/${REPO_COMPONENT:-main}"
	chmod 0755 "$work" "$work/DEBIAN"
	{
		echo "Package: $name"
		echo "Version: $version"
		for line in 'Architecture: amd64' 'Maintainer: gpuimg tests <tests@example.invalid>' \
			"Installed-Size: $(du -sk --apparent-size "$work" | cut -f1)" \
			"Description: stand-in for $name, of the tests of gpuimg"; do
			printf '%s\n' "${lines[@]}" | grep -q "^${line%%:*}:" || echo "$line"
		done
		[ ${#lines[@]} -eq 0 ] || printf '%s\n' "${lines[@]}"
	} >"$work/DEBIAN/control"
	dpkg-deb --root-owner-group -Zgzip --build "$work" \
		"$dir/pool/${REPO_COMPONENT:-main}/${name}_${version#*:}_$(awk '/^Architecture:/ { print $2 }' "$work/DEBIAN/control").deb" >/dev/null
	rm -rf "$work"
}

# repo_packages DIR POOL: the stanzas of Packages for the .deb files below POOL, with names relative to DIR.
repo_packages() {
	local deb
	for deb in "$1/$2"/*.deb; do
		[ -e "$deb" ] || continue
		dpkg-deb -f "$deb"
		printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "${deb#"$1/"}" "$(stat -c %s "$deb")" \
			"$(sha256sum <"$deb" | cut -d' ' -f1)"
	done
}

# repo_release DIR SUITE COMPONENTS: Release, InRelease and Release.gpg of what is in DIR.
repo_release() {
	local file
	(
		cd "$1" || exit 1
		rm -f Release InRelease Release.gpg
		{
			printf 'Origin: gpuimg-tests\nLabel: gpuimg-tests\nSuite: %s\nCodename: %s\n' "$2" "$2"
			printf 'Date: %s\nArchitectures: amd64\n' "$(LC_ALL=C date -u '+%a, %d %b %Y %H:%M:%S UTC')"
			[ -z "${REPO_VALID_UNTIL:-}" ] || echo "Valid-Until: $REPO_VALID_UNTIL"
			[ -z "$3" ] || echo "Components: $3"
			echo SHA256:
			find . -name 'Packages*' -type f -printf '%P\n' | LC_ALL=C sort | while read -r file; do
				printf ' %s %s %s\n' "$(sha256sum <"$file" | cut -d' ' -f1)" "$(stat -c %s "$file")" "$file"
			done
		} >Release
	) || return
	repo_sign "$REPO_KEY" "$1"
}

repo_sign() { # key directory, directory of a Release
	local home code=0
	home=$(mktemp -d /tmp/gpuimg-key.XXXXXX)
	gpg --batch --quiet --no-options --homedir "$home" --import "$1/secret.gpg" 2>/dev/null &&
		gpg --batch --yes --quiet --no-options --homedir "$home" --digest-algo SHA512 --clearsign \
			-o "$2/InRelease" "$2/Release" &&
		gpg --batch --yes --quiet --no-options --homedir "$home" --digest-algo SHA512 --armor --detach-sign \
			-o "$2/Release.gpg" "$2/Release" || code=$?
	repo_gpg_end "$home"
	return "$code"
}

# repo_publish DIR [SUITE...]: the indexes anew, for each suite ("stable" if none is named) and flat.
# Every suite has all packages of DIR/pool, by component.
# REPO_VALID_UNTIL: a date for Release.
repo_publish() {
	local dir=$1 suite component components=() index
	shift
	[ $# -gt 0 ] || set -- stable
	for component in "$dir"/pool/*/; do
		[ -d "$component" ] && components+=("$(basename "$component")")
	done
	[ ${#components[@]} -gt 0 ] || components=(main)
	rm -f "$dir"/Packages*
	: >"$dir/Packages"
	for component in "${components[@]}"; do
		repo_packages "$dir" "pool/$component" >"$dir.key/Packages.$component"
		cat "$dir.key/Packages.$component" >>"$dir/Packages"
		for suite; do
			index=$dir/dists/$suite/$component/binary-amd64
			mkdir -p "$index"
			cp "$dir.key/Packages.$component" "$index/Packages"
			gzip -nkf "$index/Packages"
		done
	done
	for suite; do
		REPO_KEY=$dir.key repo_release "$dir/dists/$suite" "$suite" "${components[*]}" || return
	done
	# flat: only its own index, not those below dists
	mkdir -p "$dir.key/flat"
	cp "$dir/Packages" "$dir.key/flat/Packages"
	REPO_KEY=$dir.key repo_release "$dir.key/flat" flat '' || return
	cp "$dir.key/flat"/{Release,InRelease,Release.gpg} "$dir/"
	cp "$dir.key/key.asc" "$dir.key/key.gpg" "$dir/"
}

# repo_fingerprint DIR: prints it.
repo_fingerprint() {
	cat "$1.key/fingerprint"
}

# repo_serve DIR [PART]: starts a server on a free port of 127.0.0.1 and prints its URL; the requests are
# in DIR.requests. PART: the first file whose path has that in it is sent by half, and the server is gone,
# as a mirror that breaks down. Needs a repo_stop DIR in the teardown.
repo_serve() {
	local port='' tries
	PYTHONUNBUFFERED=1 python3 "$REPO/tests/lib/repo-server.py" "$@" \
		>"$1.server" 2>"$1.requests" </dev/null 3>&- &
	echo $! >"$1.pid"
	for tries in $(seq 100); do
		port=$(cat "$1.server")
		[ -z "$port" ] || break
		sleep 0.1
	done
	if [ -z "$port" ]; then
		echo "the server of $1 does not start (after $tries looks): $(cat "$1.requests")" >&2
		return 1
	fi
	echo "http://127.0.0.1:$port"
}

# repo_stop DIR: ends its server, if one runs.
repo_stop() {
	local pid
	[ -s "$1.pid" ] || return 0
	pid=$(cat "$1.pid")
	rm -f "$1.pid"
	kill "$pid" 2>/dev/null || true
}
