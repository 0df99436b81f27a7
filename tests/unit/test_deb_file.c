/* SPDX-License-Identifier: Apache-2.0 */
/* Packages made by the host's dpkg-deb in every compression, whole and damaged. */
#include <stdlib.h>
#include <sys/stat.h>

#include "builder/deb-file.h"
#include "builder/proc.h"
#include "builder/tree.h"
#include "tap.h"

static char dir[] = "/tmp/gpuimg-deb.XXXXXX";

static void shell(const char *script, const char *arg)
{
	const char *const argv[] = {"sh", "-ec", script, "sh", dir, arg, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (proc_run(argv, NULL, NULL, 0, &err) < 0)
		printf("Bail out! %s\n", err.message);
}

static const char make_deb[] =
	"cd \"$1\"; rm -rf tree; mkdir -p tree/DEBIAN tree/usr/share/doc/stand-in\n"
	"printf 'Package: stand-in\\nVersion: 1:2.0-3\\nArchitecture: all\\n"
	"Maintainer: T <t@example.invalid>\\nDepends: one (>= 1),\\n two\\nDescription: a stand-in\\n long\\n .\\n text\\n'"
	" >tree/DEBIAN/control\n"
	"head -c 40000 /dev/urandom >tree/usr/share/doc/stand-in/data\n"
	"dpkg-deb --root-owner-group -Z$2 --build tree stand-in_2.0-3_all.$2.deb >/dev/null\n"
	"touch -d '2001-01-01' stand-in_2.0-3_all.$2.deb\n";

/* The same by ar alone: 'script' makes ./control, or what else is wrong. */
static const char make_odd[] =
	"cd \"$1\"; rm -rf odd; mkdir odd; cd odd; echo 2.0 >debian-binary; mkdir t\n"
	"printf 'Package: odd\\nVersion: 1\\nArchitecture: all\\n' >t/control\n"
	"members='debian-binary control.tar data.tar'; tar cf data.tar -T /dev/null\n"
	"eval \"$2\"\n"
	"[ -e control.tar ] || tar cf control.tar -C t .\n"
	"rm -f ../odd.deb; ar rcS ../odd.deb $members\n";

static char *path_of(const char *name)
{
	return str_format("%s/%s", dir, name);
}

static bool refused(const char *name, const char *why)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = path_of(name);
	struct deb_file deb = {0};
	bool good = deb_file_read(&deb, path, &err) < 0;

	if (!good)
		deb_file_free(&deb);
	else if (!strstr(err.message, why) || !strstr(err.message, path))
		printf("# %s\n", err.message);
	return good && error_exit_code(&err) == EXIT_INPUT && strstr(err.message, why) &&
	       strstr(err.message, path);
}

static void test_compressions(void)
{
	static const char *const kinds[] = {"none", "gzip", "xz", "zstd"};

	for (size_t i = 0; i < 4; i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_FREE char *name = str_format("stand-in_2.0-3_all.%s.deb", kinds[i]);
		CLEANUP_FREE char *path = path_of(name);
		struct deb_file deb = {0};
		struct stat st;

		shell(make_deb, kinds[i]);
		check(deb_file_read(&deb, path, &err) == 0, "a package in '%s' is read", kinds[i]);
		check(stat(path, &st) == 0 && deb.size_bytes == (uint64_t)st.st_size,
		      "its size is the file's");
		check_str(deb.package, "stand-in", "its name is found");
		check_str(deb.version, "1:2.0-3", "its version is found");
		check_str(deb.architecture, "all", "its architecture is found");
		check_str(deb.name, name, "its file's name is kept");
		check(deb.control && strstr(deb.control, "Depends: one (>= 1),\n two\n") &&
		              str_ends(deb.control, " text\n"),
		      "the whole stanza is kept");
		check(deb.sha256 && strlen(deb.sha256) == 64, "it has a digest");
		deb_file_free(&deb);
	}
}

static void test_directory(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *index = NULL;
	CLEANUP_FREE char *want = NULL;
	struct deb_file *debs = NULL;
	size_t count = 0;

	check(deb_dir_read(&debs, &count, dir, &err) == 0 && count == 4,
	      "all packages of a directory are read");
	check(count == 4 && strcmp(debs[0].name, debs[1].name) < 0, "they are sorted by name");
	index = deb_dir_index(debs, count);
	want = str_format(" text\nFilename: ./%s\nSize: %llu\nSHA256: %s\n\nPackage: ",
	                  count ? debs[0].name : "",
	                  count ? (unsigned long long)debs[0].size_bytes : 0,
	                  count ? debs[0].sha256 : "");
	check(strstr(index, want) != NULL, "the index has what apt needs for each");
	deb_dir_free(debs, count);

	shell("mkdir \"$1/empty\"; echo x >\"$1/empty/readme\"", "");
	free(steal_ptr(&want));
	want = path_of("empty");
	check(deb_dir_read(&debs, &count, want, &err) < 0 && strstr(err.message, want) &&
	              error_exit_code(&err) == EXIT_INPUT,
	      "a directory without packages is refused by name");
}

static void test_damage(void)
{
	shell("cd \"$1\"; head -c 3000 stand-in_2.0-3_all.xz.deb >short.deb", "");
	check(refused("short.deb", "truncated") || refused("short.deb", "Truncated"),
	      "a truncated package is refused");
	shell("cd \"$1\"; head -c 200 stand-in_2.0-3_all.xz.deb >head.deb", "");
	check(refused("head.deb", ""), "one that ends in its control files is refused");
	shell("cd \"$1\"; cp stand-in_2.0-3_all.xz.deb bad.deb; "
	      "printf XXXXXXXX | dd of=bad.deb bs=1 seek=140 conv=notrunc status=none",
	      "");
	check(refused("bad.deb", ""), "one with damaged control files is refused");
	shell("cd \"$1\"; : >none.deb; echo hello >text.deb; gzip -c text.deb >gz.deb", "");
	check(refused("none.deb", ""), "an empty file is refused");
	check(refused("text.deb", ""), "a text is refused");
	check(refused("gz.deb", ""), "a gzip file is refused");
	shell("mkfifo \"$1/fifo.deb\"", "");
	check(refused("fifo.deb", "no regular file"), "a FIFO is refused, and not waited for");
	check(refused("missing.deb", "No such file"), "a missing file is told");
}

static void test_odd(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = path_of("odd.deb");
	struct deb_file deb = {0};

	shell(make_odd, ":");
	check(deb_file_read(&deb, path, &err) == 0, "a package made by hand is read");
	deb_file_free(&deb);
	shell(make_odd, "members='control.tar debian-binary data.tar'");
	check(refused("odd.deb", "debian-binary"), "members in another order are refused");
	shell(make_odd, "members='debian-binary control.tar'");
	check(refused("odd.deb", "ends too early"), "one without data is refused");
	shell(make_odd, "echo 3.0 >debian-binary");
	check(refused("odd.deb", "format 2"), "another format is refused");
	shell(make_odd,
	      "printf '\\nPackage: second\\nVersion: 1\\nArchitecture: all\\n' >>t/control");
	check(refused("odd.deb", "more than one paragraph"),
	      "a second paragraph, which would be a second entry of the index, is refused");
	shell(make_odd, "echo 'Filename: ../../etc/passwd' >>t/control");
	check(refused("odd.deb", "only an index"), "a field of the index is refused");
	shell(make_odd, "printf 'Package: odd\\nVersion: 1 2\\nArchitecture: all\\n' >t/control");
	check(refused("odd.deb", "no valid"), "a version with a blank is refused");
	shell(make_odd, "printf 'Package: odd\\n' >t/control");
	check(refused("odd.deb", "no valid"), "one without a version is refused");
	shell(make_odd, "printf 'a\\0b' >t/control");
	check(refused("odd.deb", "no text"), "a control file with NUL is refused");
	shell(make_odd, "rm t/control; ln -s /etc/passwd t/control");
	check(refused("odd.deb", "no control file"), "a link in its place is refused");
	shell(make_odd, "head -c 3000000 /dev/zero | tr '\\0' x >t/control");
	check(refused("odd.deb", "too large"), "a control file of megabytes is refused");
	shell(make_odd, "dd if=/dev/zero of=t/a bs=1M count=100 status=none; "
	                "tar cf - -C t a control | gzip -1 >control.tar");
	check(refused("odd.deb", "no control file"), "a bomb before it is given up");
}

int main(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (!proc_have("dpkg-deb") || !proc_have("ar") || !proc_have("zstd")) {
		puts("1..0 # SKIP needs dpkg-deb, ar and zstd");
		return 0;
	}
	if (!mkdtemp(dir)) {
		puts("Bail out! no temporary directory");
		return 1;
	}
	test_compressions();
	test_directory();
	test_damage();
	test_odd();
	tree_remove(dir, &err);
	return tap_done();
}
