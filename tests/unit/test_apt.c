/* SPDX-License-Identifier: Apache-2.0 */
/* The apt session's readers, on texts; what needs a real apt is in tests/image/apt.bats. */
#include <stdlib.h>

#include "builder/apt-internal.h"
#include "builder/proc.h"
#include "builder/tree.h"
#include "fake-rootfs.h"
#include "tap.h"

#define FPR       "0123456789ABCDEF0123456789ABCDEF01234567"
#define OTHER_FPR "FEDCBA9876543210FEDCBA9876543210FEDCBA98"

static void test_lines(void)
{
	static const char text[] =
		"# comment\n"
		"deb cdrom:[Debian 12 _Bookworm_ - Official]/ bookworm main\n"
		"deb-src http://deb.example.org/debian bookworm main\n"
		"\n"
		"  deb  http://deb.example.org/debian   bookworm main contrib # more\n"
		"deb [ arch=amd64 signed-by=/usr/share/keyrings/docker.asc ] "
		"https://download.docker.com/linux/debian bookworm stable\n"
		"deb [trusted=yes] file:/srv/repo ./\n";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_APT_SOURCES struct apt_sources s = {0};
	CLEANUP_FREE char *lines = NULL;

	check(apt_sources_parse(&s, text, "/etc/apt/sources.list", &err) == 0 && s.count == 3,
	      "lines are read; comments, deb-src and discs are left out");
	apt_sources_judge(&s, "debian");
	check(s.items[0].own && !s.items[1].own && !s.items[2].own,
	      "the distribution's archive is told from another that has its suite's name");
	check_str(s.items[1].signed_by, "/usr/share/keyrings/docker.asc", "a line's key is found");
	lines = apt_sources_lines(&s);
	check_str(lines,
	          "deb http://deb.example.org/debian bookworm main contrib\n"
	          "deb [arch=amd64 signed-by=/usr/share/keyrings/docker.asc] "
	          "https://download.docker.com/linux/debian bookworm stable\n"
	          "deb [trusted=yes] file:/srv/repo ./ \n",
	          "options are kept as they stand");
}

static const char deb822[] =
	"# See sources.list(5)\n"
	"Types: deb deb-src\n"
	"# a comment in between\n"
	"URIs: http://archive.example.org/ubuntu/\n"
	"suites: noble noble-updates\n"
	" noble-security\n"
	"Components: main restricted\n"
	"Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
	"\n"
	"Enabled: no\n"
	"Types: deb\n"
	"URIs: http://example.com/\n"
	"Suites: x\n"
	"Components: main\n"
	"   \n"
	"Types: deb-src\nURIs: http://example.com/\nSuites: x\nComponents: main\n"
	"\n"
	"Types: deb\n"
	"URIs: https://example.com/flat\n"
	"Suites: ./\n"
	"Architectures: amd64\n"
	"Signed-By:\n"
	" -----BEGIN PGP PUBLIC KEY BLOCK-----\n"
	" .\n"
	" mDMEZ\n"
	" -----END PGP PUBLIC KEY BLOCK-----";

static void test_stanzas(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_APT_SOURCES struct apt_sources s = {0};
	CLEANUP_FREE char *text = NULL;

	check(apt_sources_parse(&s, deb822, "/x/ubuntu.sources", &err) == 0 && s.count == 2,
	      "stanzas are read; disabled ones and sources are left out");
	apt_sources_judge(&s, "ubuntu");
	check(s.items[0].own && !s.items[1].own, "the distribution's stanza is known");
	text = apt_sources_stanzas(&s);
	check_str(text,
	          "Types: deb\n"
	          "URIs: http://archive.example.org/ubuntu/\n"
	          "Suites: noble noble-updates noble-security\n"
	          "Components: main restricted\n"
	          "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
	          "\n"
	          "Types: deb\n"
	          "URIs: https://example.com/flat\n"
	          "Suites: ./\n"
	          "Architectures: amd64\n"
	          "Signed-By:\n"
	          " -----BEGIN PGP PUBLIC KEY BLOCK-----\n"
	          " .\n"
	          " mDMEZ\n"
	          " -----END PGP PUBLIC KEY BLOCK-----\n"
	          "\n",
	          "a key that stands in a stanza stays as it is");
}

static char *rewritten(const char *text, const char *path, const char *distribution,
                       const char *mirrors)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_APT_SOURCES struct apt_sources s = {0};
	CLEANUP_APT_MIRRORS struct apt_mirrors m = {0};
	CLEANUP_STRV struct strv options = strv_split(mirrors, " ");

	if (apt_sources_parse(&s, text, path, &err) < 0 ||
	    apt_mirrors_parse(&m, &options, &err) < 0)
		return str_copy(err.message);
	apt_sources_judge(&s, distribution);
	apt_sources_rewrite(&s, &m);
	return str_ends(path, ".sources") ? apt_sources_stanzas(&s) : apt_sources_lines(&s);
}

static void test_mirrors(void)
{
	static const char debian[] =
		"deb http://deb.example.org/debian bookworm main\n"
		"deb http://security.example.org/debian-security bookworm-security main\n"
		"deb [signed-by=/k.gpg] https://apt.example.com/debian bookworm main\n";
	CLEANUP_FREE char *all = rewritten(debian, "s.list", "debian", "http://m/debian/");
	CLEANUP_FREE char *both =
		rewritten(debian, "s.list", "debian", "http://m/a security=http://m/b");
	CLEANUP_FREE char *security = rewritten(debian, "s.list", "debian", "security=https://m/b");
	CLEANUP_FREE char *ubuntu = rewritten(deb822, "s.sources", "ubuntu", "http://m/ubuntu");
	CLEANUP_FREE char *split = rewritten(deb822, "s.sources", "ubuntu", "security=http://s/u");
	CLEANUP_FREE char *bad = rewritten(debian, "s.list", "debian", "http://m/\"x");
	CLEANUP_FREE char *cloud =
		rewritten("Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\n"
	                  "Suites: bookworm\nComponents: main\n",
	                  "c.sources", "debian", "http://m/debian");
	CLEANUP_FREE char *odd = rewritten("deb http://cache/pool bookworm main\n", "s.list",
	                                   "debian", "http://m/d");

	check_str(all,
	          "deb http://m/debian bookworm main\n"
	          "deb http://m/debian-security bookworm-security main\n"
	          "deb [signed-by=/k.gpg] https://apt.example.com/debian bookworm main\n",
	          "a mirror takes the place of Debian's archives, and of no others");
	check_str(both,
	          "deb http://m/a bookworm main\n"
	          "deb http://m/b bookworm-security main\n"
	          "deb [signed-by=/k.gpg] https://apt.example.com/debian bookworm main\n",
	          "the security archive has a mirror of its own");
	check(strstr(security, "deb http://deb.example.org/debian bookworm main\n") &&
	              strstr(security, "deb https://m/b bookworm-security main\n"),
	      "a mirror for security alone leaves the rest");
	check(strstr(ubuntu, "URIs: http://m/ubuntu\nSuites: noble noble-updates\n") &&
	              strstr(ubuntu, "URIs: http://m/ubuntu\nSuites: noble-security\n"),
	      "Ubuntu's security suite comes from the same mirror");
	check(strstr(split,
	             "URIs: http://archive.example.org/ubuntu/\nSuites: noble noble-updates\n") &&
	              strstr(split, "URIs: http://s/u\nSuites: noble-security\n"),
	      "a stanza with both kinds of suites is split");
	check(strstr(bad, "is not the URL of a mirror") != NULL, "a quote in a URL is refused");
	check(strstr(cloud, "URIs: http://m/debian\n") != NULL,
	      "a cloud image's list of mirrors is replaced");
	check_str(odd, "deb http://m/d bookworm main\n",
	          "where no other source is the distribution's, one at an odd place is");
}

static void test_bad_sources(void)
{
	static const char *const texts[][3] = {
		{"deb http://x\n", "a.list", "a URI and a suite"},
		{"deb http://x bookworm\n", "a.list", "without components"},
		{"\n\ndeb [a=b http://x y z\n", "a.list", "line 3: a '['"},
		{"rpm http://x bookworm main\n", "a.list", "unknown type"},
		{"URIs: http://x\nSuites: a\nComponents: b\n", "a.sources", "without Types"},
		{"Types: deb\nSuites: a\nComponents: b\n", "a.sources", "without URIs"},
		{"Types: deb\nURIs: http://x\nSuites: a\n", "a.sources", "without Components"},
		{" continued\n", "a.sources", "no field"},
		{"no colon\n", "a.sources", "no field"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_APT_SOURCES struct apt_sources s = {0};
		bool good = apt_sources_parse(&s, texts[i][0], texts[i][1], &err) < 0 &&
		            strstr(err.message, texts[i][2]) && strstr(err.message, texts[i][1]) &&
		            error_exit_code(&err) == EXIT_INPUT;

		check(good, "a source %s is refused", texts[i][2]);
		if (!good)
			printf("# %s\n", err.message ? err.message : "accepted");
	}
}

static void test_image_files(void)
{
	static const struct fake_file files[] = {
		{"/etc/apt/sources.list", "# nothing\n"},
		{"/etc/apt/sources.list.d/b.sources",
	         "Types: deb\nURIs: http://b/debian\nSuites: s\nComponents: main\n"},
		{"/etc/apt/sources.list.d/a.list", "deb http://a/debian s main\n"},
		{"/etc/apt/sources.list.d/a.list.save", "not for apt\n"},
		{"/etc/apt/sources.list.d/.hidden.list", "not for apt\n"},
		{"/etc/apt/sources.list.d/a b.list", "not for apt\n"},
		{NULL, NULL}};
	struct fake_rootfs root = fake_rootfs(files);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_APT_SOURCES struct apt_sources s = {0};

	check(apt_sources_read(&s, &root.base, &err) == 0 && s.count == 2,
	      "the files are read that apt reads, and no others");
	check_str(s.count ? s.items[0].uris.items[0] : "", "http://a/debian", "in apt's order");
}

static void test_replace(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_APT_SOURCES struct apt_sources s = {0};
	CLEANUP_APT_SOURCES struct apt_sources by = {0};
	CLEANUP_FREE char *text = NULL;

	apt_sources_parse(&s,
	                  "deb [signed-by=/old.gpg] https://v/repo/ /\n"
	                  "deb https://v/repo other main\ndeb https://w/repo /\n",
	                  "a.list", &err);
	apt_sources_parse(&by, "deb [signed-by=/new.gpg] https://v/repo /", "b.list", &err);
	apt_sources_replace(&s, by.items);
	text = apt_sources_lines(&s);
	check_str(
		text, "deb https://v/repo other main\ndeb https://w/repo / \n",
		"the image's own word for a repository gives way, as apt refuses two keys for one");
}

static void test_components(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct apt apt = {.network = true};
	CLEANUP_STRV struct strv add = strv_split("contrib non-free", " ");
	CLEANUP_STRV struct strv bad = strv_split("con,trib", " ");
	CLEANUP_FREE char *text = NULL;

	apt_sources_parse(
		&apt.sources,
		"deb http://d/debian s main contrib\ndeb [signed-by=/k] http://x/debian s main\n",
		"a.list", &err);
	apt_sources_judge(&apt.sources, "debian");
	check(apt_add_components(&apt, &add, &err) == 0, "components are added");
	text = apt_sources_lines(&apt.sources);
	check_str(text,
	          "deb http://d/debian s main contrib non-free\n"
	          "deb [signed-by=/k] http://x/debian s main\n",
	          "each once, to the distribution's archives alone");
	check(apt_add_components(&apt, &bad, &err) < 0 && error_exit_code(&err) == EXIT_USAGE,
	      "a word that is no component is refused");
	apt_sources_free(&apt.sources);
}

static void test_names(void)
{
	static const char *const good[] = {"g++", "nvidia-driver", "linux-headers-6.1.0-50-amd64",
	                                   "x11=1:2.0~rc1+b1-3"};
	static const char *const bad[] = {"-o=x",     "--purge", "name-", "Name",  "a b",
	                                  "na*me",    "^name$",  "a/b",   "name=", "name=$x",
	                                  "name=-1x", "",        "a",     "~nfoo"};

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_STRV struct strv v = {0};

		strv_add(&v, good[i]);
		check(apt_check_names(&v, true, &err) == 0, "'%s' is a name", good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_STRV struct strv v = {0};

		strv_add(&v, bad[i]);
		check(apt_check_names(&v, true, &err) < 0 && error_exit_code(&err) == EXIT_USAGE,
		      "'%s' is none", bad[i]);
	}
}

static void test_versions(void)
{
	static const char policy[] = "nvidia-driver:\n"
				     "  Installed: 1.0\n"
				     "  Candidate: 2.0-1\n"
				     "  Version table:\n"
				     "     3.0-1 -1\n"
				     "         -1 http://x s/main amd64 Packages\n"
				     "     2.0-1 500 (phased 10%)\n"
				     "        500 http://x s/main amd64 Packages\n"
				     " *** 1.0 100\n"
				     "        100 /var/lib/dpkg/status\n";
	static const char show[] =
		"Package: nvidia-driver\nVersion: 3.0-1\nDepends: a (= 3.0-1), b | c,\n d\n"
		"Pre-Depends: dpkg (>= 1)\nDescription: three\n and more\n\n"
		"Package: nvidia-driver\nVersion: 2.0-1\nDescription-en: two\n\n"
		"Package: nvidia-driver\nStatus: install ok installed\nVersion: 1.0\n\n";
	CLEANUP_STRV struct strv table = {0};
	CLEANUP_STRV struct strv none = {0};
	CLEANUP_FREE char *candidate = NULL;
	CLEANUP_FREE char *no_candidate = NULL;
	CLEANUP_FREE char *depends = NULL;
	struct apt_version *v = NULL;
	size_t count = 0;

	apt_parse_policy(policy, &candidate, &table);
	check_str(candidate, "2.0-1", "the candidate is found");
	check(table.count == 3, "and all versions, phased ones too");
	apt_parse_versions(show, candidate, &table, &v, &count);
	check(count == 2, "what only dpkg's record has is no version to install");
	check_str(count ? v[0].version : "", "2.0-1", "the candidate comes first");
	check_str(count ? v[0].description : "", "two", "with its description");
	depends = count > 1 ? strv_join(&v[1].depends, "; ") : NULL;
	check_str(depends, "a (= 3.0-1); b | c; d; dpkg (>= 1)",
	          "dependencies are split at commas");
	apt_versions_free(v, count);
	apt_parse_policy("x:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n",
	                 &no_candidate, &none);
	check(!no_candidate && none.count == 0, "a package without versions has none");
}

static void test_transaction(void)
{
	static const char text[] = "Reading package lists...\n"
				   "Remv old-pkg [1.0-1]\n"
				   "Inst zlib1g [1:1.0-1] (1:1.2-1 Debian:12/stable [amd64])\n"
				   "Inst libc6:i386 (2.0 Debian:12/stable [i386]) []\n"
				   "Inst a-pkg (1.0 Debian:12/stable, Debian-Security:12/s [all])\n"
				   "Conf a-pkg (1.0 Debian:12/stable [all])\n"
				   "Purg gone [2.0]\n";
	static const char uris[] =
		"'http://x/zlib1g.deb' zlib1g_1%3a1.2-1_amd64.deb 100 SHA256:"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
		"'http://x/a.deb' a-pkg_1.0_all.deb 50 MD5Sum:00\n";
	static const char show[] =
		"Package: a-pkg\nVersion: 1.0\nInstalled-Size: 10\nSize: 51\nSHA256: "
		"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n\n"
		"Package: a-pkg\nVersion: 1.0\nInstalled-Size: 99\n\n"
		"Package: libc6\nVersion: 2.0\nInstalled-Size: 1\nSize: 7\n";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};
	CLEANUP_APT_TRANSACTION struct apt_transaction bad = {0};

	check(apt_parse_simulation(text, &t, &err) == 0 && t.count == 5, "a simulation is read");
	check_str(t.items[0].name, "a-pkg", "items are sorted");
	check(t.items[1].removed && !t.items[1].version, "a purge is a removal");
	check_str(t.items[4].old_version, "1:1.0-1", "an upgrade has its old version");
	check(!t.items[0].old_version, "a new package has none");
	apt_parse_uris(uris, &t);
	apt_parse_show(show, &t);
	check(t.items[4].download_bytes == 100 && t.items[4].sha256 && t.items[4].sha256[0] == 'a',
	      "size and digest come from what apt would download, epochs decoded");
	check(t.items[0].download_bytes == 50 && t.items[0].sha256 && t.items[0].sha256[0] == 'b',
	      "or the digest from the package's stanza");
	check(t.items[2].download_bytes == 7, "a foreign architecture is matched by its name");
	check(t.download_bytes == 157 && t.installed_bytes == 11 * 1024,
	      "sums are made of one stanza a package");
	check(apt_parse_simulation("Inst broken\n", &bad, &err) < 0 &&
	              strstr(err.message, "Inst broken"),
	      "a line that we cannot read is an error");
}

static bool reasons_have(const char *output, const char *words)
{
	CLEANUP_FREE char *reasons = apt_reasons(output);
	bool good = strstr(reasons, words) != NULL;

	if (!good)
		printf("# %s\n", reasons);
	return good;
}

static bool fails_as(const char *output, enum exit_code code, const char *hint)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct apt_run run = {.exit = 100};

	run.output = str_copy(output);
	apt_run_failed(&run, "do it", &err);
	apt_run_free(&run);
	return error_exit_code(&err) == code &&
	       (hint ? err.hint && strstr(err.hint, hint) : !err.hint) &&
	       str_starts(err.message, "cannot do it: exit code 100");
}

static void test_reasons(void)
{
	static const char unmet[] =
		"Reading...\n"
		"The following packages have unmet dependencies:\n"
		" foo : Depends: bar (>= 2) but 1 is to be installed\n"
		"       Depends: baz but it is not installable\n"
		"E: Unable to correct problems, you have held broken packages.\n";
	static const char script[] = "Setting up x (1) ...\n"
				     "gcc: fatal error: no such thing\n"
				     "dpkg: error processing package x (--configure):\n"
				     " installed x package post-installation script subprocess "
				     "returned error exit status 1\n"
				     "Errors were encountered while processing:\n x\n"
				     "E: Sub-process /usr/bin/dpkg returned an error code (1)\n";
	static const char sig[] = "Err:1 http://x s InRelease\n"
				  "  The following signatures couldn't be verified because the "
				  "public key is not available: NO_PUBKEY 0123\n"
				  "E: The repository 'http://x s InRelease' is not signed.\n";

	check(reasons_have(unmet, "Depends: baz but it is not installable"),
	      "unmet dependencies are told in apt's words");
	check(reasons_have(script, "gcc: fatal error"), "what a script said is told");
	check(reasons_have(script, "error processing package x"), "with its package's name");
	check(reasons_have(sig, "NO_PUBKEY"), "what stands below an Err: line is told");
	check(reasons_have(
		      "E: Unable to satisfy dependencies. Reached two conflicting assignments:\n"
		      "   1. foo:amd64=1 is selected for install\n   2. foo Depends bar\n",
		      "2. foo Depends bar"),
	      "the newer solver's reasons are told");
	check(reasons_have("one\ntwo\n", "two"), "without any such line, the last ones are");
	check(fails_as(unmet, EXIT_INPUT, NULL), "unmet dependencies are the input's fault");
	check(fails_as(script, EXIT_BUILD, NULL), "a script that fails is a failed build");
	check(fails_as(sig, EXIT_INPUT, "signed it"),
	      "a wrong key is the input's fault, with a hint");
	check(fails_as("Err:1 http://x\n  Temporary failure resolving 'x'\nE: is not signed\n",
	               EXIT_HOST, "network"),
	      "a name that does not resolve is the host's fault");
	check(fails_as("Err:1 http://x\n  Error reading from server. Remote end closed "
	               "connection [IP: 127.0.0.1 80]\n",
	               EXIT_HOST, "network"),
	      "a server that goes away in the middle is the host's trouble too");
	check(fails_as("E: Failed to fetch http://x  Connection reset by peer\n", EXIT_HOST,
	               "network"),
	      "and one that resets the connection");
	check(fails_as("E: Failed to fetch http://x  Hash Sum mismatch\n", EXIT_BUILD, "later"),
	      "a file of another content is a failed build, with what to do");
	check(fails_as("E: Failed to fetch http://x  404  Not Found [IP: 1]\n", EXIT_INPUT,
	               "security=URL"),
	      "a missing file on a server is told with a cure");
}

static void test_key_judge(void)
{
	static const char one[] = "pub:-:255:22:0123:1:::-:::scSC::::::23::0:\n"
				  "fpr:::::::::" FPR ":\nuid:-::::1::X::a:\n"
				  "sub:-:255:18:1:1::::::e::::::23:\nfpr:::::::::" OTHER_FPR ":\n";
	CLEANUP_FREE char *two = str_format("%s%s", one, one);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error second = ERROR_INIT;
	CLEANUP_ERROR struct error third = ERROR_INIT;
	CLEANUP_ERROR struct error fourth = ERROR_INIT;

	check(apt_key_judge(one, "0123456789abcdef0123456789abcdef01234567", "k", &err) == 0,
	      "a key of the right fingerprint is taken");
	check(apt_key_judge(one, OTHER_FPR, "k", &err) < 0 && strstr(err.message, FPR) &&
	              strstr(err.message, OTHER_FPR) && error_exit_code(&err) == EXIT_INPUT,
	      "the fingerprint of a subkey is not enough, and both are told");
	check(apt_key_judge(two, FPR, "k", &second) < 0 && strstr(second.message, "more than one"),
	      "a second key beside it is refused");
	check(apt_key_judge("", FPR, "k", &third) < 0 && strstr(third.message, "no public key"),
	      "a file without a key is refused");
	check(apt_key_judge("pub:e:255:22:0:1:::-:::\nfpr:::::::::" FPR ":\n", FPR, "k", &fourth) <
	                      0 &&
	              strstr(fourth.message, "expired"),
	      "an expired key is refused");
}

static void shell(const char *script, const char *dir)
{
	const char *const argv[] = {"sh", "-ec", script, "sh", dir, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (proc_run(argv, NULL, NULL, 0, &err) < 0)
		printf("Bail out! %s\n", err.message);
}

static bool key_good(const char *dir, const char *name, const char *fpr, const char *why)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *key = NULL;
	size_t size = 0;
	int result = apt_key_check(path, fpr, dir, NULL, &key, &size, &err);

	if (!why)
		return result == 0 && size > 0 && ((unsigned char *)key)[0] & 0x80;
	return result < 0 && strstr(err.message, why);
}

static void test_key_files(void)
{
	char dir[] = "/tmp/gpuimg-key.XXXXXX";
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FREE char *fpr = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	FILE *f;
	char line[64] = "";

	if (!proc_have("gpg") || !mkdtemp(dir)) {
		printf("# SKIP keys of gpg's own: this host has no gpg\n");
		return;
	}
	shell("cd \"$1\"; umask 077; mkdir h; g='gpg --batch --quiet --no-options --homedir h'\n"
	      "for n in a b; do $g --passphrase '' --quick-generate-key $n@example.invalid ed25519 "
	      "sign never 2>/dev/null; $g --export --armor $n@ >$n.asc; $g --export $n@ >$n.gpg; done\n"
	      "$g --with-colons --list-keys a@ 2>/dev/null | awk -F: '$1 == \"fpr\" { print $10 }' >fpr\n"
	      "cat a.asc b.asc >two.asc; cat a.gpg b.gpg >two.gpg; echo hello >text.asc\n"
	      "head -c 30 a.gpg >short.gpg; gpgconf --homedir h --kill all",
	      dir);
	path = str_format("%s/fpr", dir);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = '\0';
	if (f)
		fclose(f);
	fpr = str_copy(line);
	check(strlen(fpr) == 40, "gpg has made a key");
	check(key_good(dir, "a.asc", fpr, NULL),
	      "an armored key is taken, and given to apt dearmored");
	check(key_good(dir, "a.gpg", fpr, NULL), "a binary one too");
	check(key_good(dir, "a.gpg", NULL, NULL),
	      "without a fingerprint the file speaks for itself");
	check(key_good(dir, "two.gpg", NULL, "more than one"), "if it holds one key");
	check(key_good(dir, "b.asc", fpr, "its fingerprint is"), "another key is refused");
	check(key_good(dir, "two.gpg", fpr, "more than one"), "two keys in a file are refused");
	check(key_good(dir, "two.asc", fpr, "") || key_good(dir, "two.asc", fpr, NULL),
	      "of two armored blocks only what was looked at is given to apt, if any");
	check(key_good(dir, "text.asc", fpr, "cannot read the key"), "a text is refused");
	check(key_good(dir, "short.gpg", fpr, ""), "a damaged key is refused");
	check(key_good(dir, "none.gpg", fpr, "No such file"), "a missing file is told");
	check(key_good(dir, "a.asc", "0123", "no fingerprint"), "a short fingerprint is refused");
	tree_remove(dir, &err);
}

static void test_urls(void)
{
	check(apt_url_is_sane(
		      "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/") &&
	              apt_url_is_sane("http://user:pass@127.0.0.1:3142/deb.example.org?a=b"),
	      "URLs are taken");
	check(!apt_url_is_sane("http://x/\nDir \"/\"") && !apt_url_is_sane("http://x/\";") &&
	              !apt_url_is_sane("http://x/ y") && !apt_url_is_sane("ftp://x/") &&
	              !apt_url_is_sane("http://") && !apt_url_is_sane("file:/etc/passwd") &&
	              !apt_url_is_sane("http://x/#y") && !apt_url_is_sane("http://x/\\"),
	      "none with a quote, a blank, a new line or another scheme");
}

static int open_fake(const struct fake_file *files, struct apt_options *o, struct error *err)
{
	struct fake_rootfs root = fake_rootfs(files);
	const struct guest guest = {.id = (char[]){"debian"}};
	CLEANUP_APT struct apt *apt = NULL;

	o->root = &root.base;
	o->guest = &guest;
	o->work_dir = "/tmp";
	return apt_open(&apt, o, err);
}

static void test_refusals(void)
{
	static const struct fake_file none[] = {{"/etc/os-release", "ID=x\n"}, {NULL, NULL}};
	static const struct fake_file bad[] = {{"/usr/bin/apt-get", ""},
	                                       {"/usr/bin/dpkg", ""},
	                                       {"/etc/apt/sources.list", "deb nonsense\n"},
	                                       {NULL, NULL}};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error second = ERROR_INIT;
	CLEANUP_ERROR struct error third = ERROR_INIT;
	CLEANUP_ERROR struct error fourth = ERROR_INIT;
	CLEANUP_STRV struct strv more = strv_split("deb", " ");

	check(open_fake(none, &(struct apt_options){.network = true}, &err) < 0 &&
	              strstr(err.message, "no apt") && error_exit_code(&err) == EXIT_INPUT,
	      "an image without apt is refused");
	check(open_fake(bad, &(struct apt_options){.network = true}, &second) < 0 &&
	              strstr(second.message, "/etc/apt/sources.list") &&
	              error_exit_code(&second) == EXIT_INPUT,
	      "an image whose sources cannot be read is refused, with the file's name");
	check(open_fake(bad, &(struct apt_options){.network = true, .proxy = "http://x\";"},
	                &third) < 0 &&
	              strstr(third.message, "proxy") && error_exit_code(&third) == EXIT_USAGE,
	      "a proxy that would end a string of apt.conf is refused");
	check(open_fake(bad, &(struct apt_options){.repositories = &more}, &fourth) < 0 &&
	              strstr(fourth.message, "needs the network") &&
	              error_exit_code(&fourth) == EXIT_USAGE,
	      "a repository without network is refused");
}

static bool repository_refused(const char *line, const char *why)
{
	struct apt apt = {.network = true, .work_dir = (char[]){"/tmp"}};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	bool good = apt_add_repository(&apt, line, &err) < 0 && strstr(err.message, why) &&
	            error_exit_code(&err) == EXIT_USAGE;

	if (!good)
		printf("# %s\n", err.message ? err.message : "accepted");
	apt_sources_free(&apt.sources);
	return good;
}

static void test_repositories(void)
{
	struct apt apt = {.network = true, .work_dir = (char[]){"/tmp"}};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error second = ERROR_INIT;

	check(repository_refused("deb https://x/y s main", "without its key"),
	      "an extra repository without a key is refused");
	check(repository_refused("deb [trusted=yes signed-by=/k] https://x/y s main", "signature"),
	      "one that shall not be checked is refused");
	check(repository_refused("deb [signed-by=/none/k.asc] https://x/y s main", "/none/k.asc"),
	      "one whose key is missing is refused by that name");
	check(repository_refused("deb [signed-by=/k] ftp://x/y s main", "not the URL"),
	      "one by another scheme is refused");
	check(repository_refused("deb [signed-by=/k] http://x s main\ndeb http://y s main",
	                         "sources.list(5)"),
	      "two lines in one are refused");
	check(repository_refused("nonsense", "sources.list(5)"), "nonsense is refused");
	check(apt_add_pinned(&apt,
	                     &(struct apt_pinned){.url = "https://x/",
	                                          .suite = "/",
	                                          .fingerprint = FPR,
	                                          .key_url = "http://example.com/key"},
	                     &err) < 0 &&
	              strstr(err.message, "https only") && error_exit_code(&err) == EXIT_USAGE,
	      "a pinned key is not fetched over http from elsewhere");
	check(apt_add_pinned(&apt,
	                     &(struct apt_pinned){.url = "https://x/",
	                                          .suite = "stable",
	                                          .fingerprint = FPR,
	                                          .key_path = "/k"},
	                     &second) < 0 &&
	              strstr(second.message, "components"),
	      "a suite without components is refused");
}

int main(void)
{
	test_lines();
	test_stanzas();
	test_mirrors();
	test_bad_sources();
	test_image_files();
	test_replace();
	test_components();
	test_names();
	test_versions();
	test_transaction();
	test_reasons();
	test_key_judge();
	test_key_files();
	test_urls();
	test_refusals();
	test_repositories();
	return tap_done();
}
