/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd in roots that are tables in memory. Their containerd and nvidia-ctk are functions of
 * this file that behave as much like the real ones as each test needs; tests/image/containerd.bats
 * asks real ones.
 */
#include "builder/inspect-internal.h"
#include "containerd-try.h"

#define MAIN "/etc/containerd/config.toml"
#define CTK  "/usr/bin/nvidia-ctk"

/* --- Which one it is --- */

static void test_find_plain(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_FOUND struct found none = look(&w, "");
	CLEANUP_FOUND struct found package = {0};

	check(none.result == 0, "an image without any containerd has none");
	fw_program(&w, "/usr/bin/containerd", "x");
	fw_program(&w, "/usr/bin/nvidia-container-runtime", "x");
	fw_program(&w, CTK, "x");
	package = look(&w, "containerd=1:1.7.24~ds1-6+deb13u1 "
	                   "nvidia-container-toolkit-base=1.17.8-1");
	check(package.result == 1 && package.c.manager == CONTAINERD_PLAIN,
	      "a program in /usr/bin is a containerd of its own");
	check_str(package.c.version, "1:1.7.24~ds1-6+deb13u1", "its version is its package's");
	check(package.c.major == 1 && package.c.minor == 7, "of which an epoch is no part");
	check(package.c.globs == CONTAINERD_GLOBS_FROM_FILE,
	      "since 1.7.16 it looks for relative patterns beside the file");
	check_str(package.c.config_path, MAIN, "its configuration is the usual file");
	check_str(package.c.runtime_binary, "/usr/bin/nvidia-container-runtime",
	          "the runtime's program is found");
	check_str(package.c.ctk_version, "1.17.8-1", "so is nvidia-ctk, with its version");
}

static void test_find_program(void)
{
	CLEANUP_FAKE struct fake_writable local = fake_writable();
	CLEANUP_FAKE struct fake_writable opt = fake_writable();
	CLEANUP_FOUND struct found a = {0};
	CLEANUP_FOUND struct found b = {0};

	fw_program(&local, "/usr/local/bin/containerd",
	           "-X github.com/containerd/containerd/v2/version.Version=v2.1.4 -X");
	a = look(&local, "containerd=1.7.24");
	check_str(a.c.program, "/usr/local/bin/containerd", "one in /usr/local/bin is found");
	check_str(a.c.version, "v2.1.4", "its version is the linker's record, no package's");
	check(a.c.major == 2 && a.c.minor == 1, "which may begin with a v");
	fw_program(&opt, "/opt/cri/bin/containerd", "x");
	b = look(&opt, "");
	check_str(b.c.program, "/opt/cri/bin/containerd", "one in /opt is found");
	check(b.result == 1 && !b.c.version && b.c.major == 0, "a version may not be known");
}

static void test_unit(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_FOUND struct found plain = {0};
	CLEANUP_FOUND struct found dropin = {0};
	CLEANUP_FOUND struct found masked = {0};
	CLEANUP_FOUND struct found variable = {0};

	fw_program(&w, "/opt/x/bin/containerd", "x");
	fw_text(&w, "/usr/lib/systemd/system/containerd.service",
	        "[Unit]\nExecStart=/not/this --config /no\n[Service]\nExecStartPre=-/sbin/modprobe x\n"
	        "ExecStart=-/opt/x/bin/containerd \\\n  --config=/etc/cd/main.toml --log-level info\n");
	plain = look(&w, "");
	check_str(plain.c.config_path, "/etc/cd/main.toml",
	          "the unit's --config counts, on a line that goes on");
	check_str(plain.c.program, "/opt/x/bin/containerd", "so does its program");
	fw_text(&w, "/etc/systemd/system/containerd.service.d/10-a.conf",
	        "[Service]\nExecStart=\nExecStart=/opt/x/bin/containerd -c \"/etc/my cd.toml\"\n");
	fw_text(&w, "/usr/lib/systemd/system/containerd.service.d/10-a.conf",
	        "[Service]\nExecStart=\nExecStart=/opt/x/bin/containerd -c /hidden.toml\n");
	fw_text(&w, "/usr/lib/systemd/system/containerd.service.d/20-b.conf",
	        "[Service]\nCPUAccounting=yes\n");
	dropin = look(&w, "");
	check_str(dropin.c.config_path, "/etc/my cd.toml",
	          "a drop-in in /etc counts, and hides one of its name in /usr/lib");
	fw_text(&w, "/etc/systemd/system/containerd.service.d/30-c.conf",
	        "[Service]\nExecStart=\nExecStart=/opt/x/bin/containerd --config ${CONFIG}\n");
	variable = look(&w, "");
	check(variable.result < 0 && variable.err.code == EXIT_INPUT &&
	              strstr(variable.err.message, "${CONFIG}"),
	      "a configuration by a variable is refused by its name");
	fw_link(&w, "/etc/systemd/system/containerd.service", "/dev/null");
	masked = look(&w, "");
	check_str(masked.c.config_path, MAIN, "a masked unit says nothing");
}

static void check_globs(const char *version, enum containerd_globs want)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_FREE char *package = str_format("containerd=%s", version);
	CLEANUP_FOUND struct found f = {0};

	fw_program(&w, "/usr/bin/containerd", "x");
	f = look(&w, package);
	check(f.c.globs == want, "containerd %s looks for relative patterns %s", version,
	      want == CONTAINERD_GLOBS_FROM_ROOT ? "in /" : "beside the file");
}

static void test_globs(void)
{
	check_globs("1.5.13", CONTAINERD_GLOBS_FROM_ROOT);
	check_globs("1.6.20~ds1-1", CONTAINERD_GLOBS_FROM_ROOT);
	check_globs("1.6.30", CONTAINERD_GLOBS_FROM_FILE);
	check_globs("1.7.15", CONTAINERD_GLOBS_FROM_ROOT);
	check_globs("1.7.16", CONTAINERD_GLOBS_FROM_FILE);
	check_globs("2.0.0", CONTAINERD_GLOBS_FROM_FILE);
}

static void test_unit_of_another_program(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_FAKE struct fake_writable k3s = fake_writable();
	CLEANUP_FOUND struct found shell = {0};
	CLEANUP_FOUND struct found wrapped = {0};

	fw_program(&w, "/usr/bin/containerd", "x");
	fw_program(&w, "/bin/sh", "x");
	fw_text(&w, "/etc/systemd/system/containerd.service",
	        "[Service]\nExecStart=/bin/sh -c 'exec containerd --config /srv/x.toml'\n");
	shell = look(&w, "");
	check(shell.result < 0 && shell.err.code == EXIT_INPUT && shell.err.hint &&
	              strstr(shell.err.message, "'/bin/sh'"),
	      "a unit that starts a shell is refused: the shell is no containerd");
	fw_program(&k3s, "/bin/sh", "x");
	fw_text(&k3s, "/etc/systemd/system/k3s.service",
	        "[Service]\nExecStart=/bin/sh -c 'exec k3s server'\n");
	wrapped = look(&k3s, "");
	check(wrapped.c.manager == CONTAINERD_K3S && !wrapped.c.manager_program,
	      "nor is it k3s's program");
}

static void check_none(const char *program, const char *file, const char *part, const char *cure,
                       const char *sentence)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FOUND struct found f = {0};

	if (program)
		fw_program(&w, program, "x");
	if (file)
		fw_text(&w, file, "{}");
	f = look(&w, "");
	check(f.result == 0 && containerd_none(&w.base, &err) < 0 && err.code == EXIT_INPUT &&
	              strstr(err.message, part) && err.hint && strstr(err.hint, cure),
	      "%s", sentence);
}

static void test_none(void)
{
	check_none("/usr/bin/crio", NULL, "CRI-O ('/usr/bin/crio') and no containerd",
	           "--runtime=crio", "CRI-O without a containerd is refused by its name");
	check_none("/usr/bin/dockerd", NULL, "Docker ('/usr/bin/dockerd')", "--runtime=docker",
	           "so is Docker");
	check_none(NULL, "/etc/docker/daemon.json", "Docker ('/etc/docker/daemon.json')",
	           "--runtime=docker", "also by its configuration alone");
	check_none(NULL, NULL, "no containerd to give", "install containerd",
	           "an image with neither is told what to install");
}

static void test_find_managers(void)
{
	CLEANUP_FAKE struct fake_writable k3s = fake_writable();
	CLEANUP_FAKE struct fake_writable rke2 = fake_writable();
	CLEANUP_FAKE struct fake_writable k0s = fake_writable();
	CLEANUP_FOUND struct found a = {0};
	CLEANUP_FOUND struct found b = {0};
	CLEANUP_FOUND struct found c = {0};
	CLEANUP_FOUND struct found later = {0};

	fw_program(&k3s, "/usr/local/bin/k3s", "x");
	fw_program(&k3s, "/usr/bin/containerd", "x");
	a = look(&k3s, "containerd=1.6.20");
	check(a.result == 1 && a.c.manager == CONTAINERD_K3S && !a.c.program,
	      "k3s wins over a containerd beside it");
	check_str(a.c.manager_program, "/usr/local/bin/k3s", "its program is known");
	fw_program(&rke2, "/srv/rke2", "x");
	fw_text(&rke2, "/etc/systemd/system/rke2-agent.service",
	        "[Service]\nExecStart=/srv/rke2 agent\n");
	b = look(&rke2, "");
	check(b.result == 1 && b.c.manager == CONTAINERD_RKE2, "RKE2 is known by its unit");
	check_str(b.c.manager_program, "/srv/rke2", "which names its program");
	fw_text(&k0s, "/etc/k0s/k0s.yaml", "");
	c = look(&k0s, "");
	check(c.result == 1 && c.c.manager == CONTAINERD_K0S && !c.c.manager_program,
	      "k0s is known by its configuration alone, where nothing else is there");
	fw_program(&k0s, "/usr/bin/containerd", "x");
	later = look(&k0s, "");
	check(later.c.manager == CONTAINERD_PLAIN, "a containerd that is there counts more");
}

/* --- nvidia-ctk --- */

static bool is_good(int major, const char *version, const char *text, const char *import,
                    char **why)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_CONTAINERD_FILES struct containerd_files files = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct containerd c = {.major = major};
	char ctk[] = CTK;
	CLEANUP_FREE char *copy = version ? str_copy(version) : NULL;

	c.ctk = ctk;
	c.ctk_version = copy;
	if (text)
		fw_text(&w, MAIN, text);
	if (import)
		fw_text(&w, "/etc/containerd/conf.d/a.toml", import);
	if (containerd_files_read(&files, &w.base, MAIN, &err) < 0) {
		printf("# %s\n", err.message);
		return false;
	}
	return containerd_ctk_is_good(&c, &files, why);
}

static void check_ctk_for(int major, bool good, const char *version, const char *text,
                          const char *import, const char *part, const char *sentence)
{
	CLEANUP_FREE char *why = NULL;
	bool got = is_good(major, version, text, import, &why);

	if (!check(got == good && (good || (why && strstr(why, part))), "%s", sentence))
		printf("# %s\n", why ? why : "good");
}

static void check_ctk(bool good, const char *version, const char *text, const char *import,
                      const char *part, const char *sentence)
{
	check_ctk_for(2, good, version, text, import, part, sentence);
}

static void test_ctk(void)
{
	static const char full[] = "version = 2\n[" V2 ".runtimes.runc]\n"
				   "runtime_type = \"io.containerd.runc.v2\"\n"
				   "[" V2 ".runtimes.runc.options]\nSystemdCgroup = true\n";
	static const char importing[] = "version = 2\nimports = [\"conf.d/*.toml\"]\n";
	static const char section[] = "version = 2\n[" V2 ".runtimes.runc]\nruntime_type = \"x\"\n";

	check_ctk(false, "1.18.0-1", full, NULL, "1.18.0", "nvidia-ctk 1.18.0 is never used");
	check_ctk(true, "1.18.1-1", full, NULL, "", "1.18.1 is, where runc's section is whole");
	check_ctk(true, "1.17.8-1", full, NULL, "", "so is 1.17");
	check_ctk(false, "1.17.8-1", "# mine\nversion = 2\n", NULL, "comments",
	          "but not where it would drop comments");
	check_ctk(false, "1.19.1-1", "version = 2\n", NULL, "runtime_type",
	          "before 1.20 runc's section must be there");
	check_ctk(false, "1.19.1-1", section, NULL, "options", "with options");
	check_ctk(true, "1.20.0-1", "version = 2\n", NULL, "", "1.20.0 does without");
	check_ctk(true, "1.20.0-1", NULL, NULL, "", "also without any file");
	check_ctk(false, "1.19.1-1", NULL, NULL, "runtime_type", "1.19 does not");
	check_ctk(false, "1.20.0~rc.1-1", full, NULL, "candidate", "a release candidate is not");
	check_ctk(false, "1.20.0-1", "root = \"/x\"\n", NULL, "no version",
	          "none is for a file without a version");
	check_ctk(false, "1.20.0-1",
	          "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n", NULL,
	          "disabled", "none is where the CRI plugin is disabled");
	check_ctk(false, "1.20.0-1", importing, section, "conf.d/a.toml",
	          "none is where an import has settings of the CRI plugin");
	check_ctk(true, "1.20.0-1", importing, "version = 2\noom_score = 1\n", "",
	          "an import without any does not matter");
	check_ctk(false, NULL, full, NULL, "not known", "one of unknown version is not used");
	check_ctk_for(1, true, "1.17.8-1", full, NULL, "",
	              "for containerd 1.x one that writes the main file is good");
	check_ctk_for(1, false, "1.18.1-1", full, NULL, "in its place",
	              "one whose drop-in hides the main file's section is not");
	check_ctk_for(1, false, "1.20.0-1", "version = 2\n", NULL, "in its place",
	              "in no later version");
	check_ctk_for(1, false, "1.20.0-1", NULL, NULL, "in its place", "nor without a file");
}

/* --- What was done is taken back --- */

static void test_snapshot(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_CONTAINERD_SNAPSHOT struct containerd_snapshot s = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv places = strv_split("/etc/containerd /srv/main.toml", " ");
	CLEANUP_STRV struct strv changes = {0};
	CLEANUP_FREE char *before = NULL;
	CLEANUP_FREE char *after = NULL;
	CLEANUP_FREE char *changed = NULL;

	fw_put(&w.base, MAIN, S_IFREG | 0640, "a\0b", 3);
	fw_link(&w, "/etc/containerd/link", "config.toml");
	fw_text(&w, "/etc/containerd/certs.d/x/hosts.toml", "x");
	fw_text(&w, "/etc/other", "x");
	before = fake_writable_text(&w);
	check(containerd_snapshot_take(&s, &w.base, &places, &err) == 0, "a snapshot is taken");
	fw_put(&w.base, MAIN, S_IFREG | 0600, "a\0c", 3);
	fw_text(&w, "/etc/containerd/link", "no link");
	fw_text(&w, "/etc/containerd/conf.d/new.toml", "x");
	fw_text(&w, "/srv/main.toml", "x");
	fw_remove(&w.base, "/etc/containerd/certs.d", &err);
	containerd_snapshot_changes(&s, &changes, &err);
	changed = strv_join(&changes, " ");
	check_str(changed,
	          "/etc/containerd/certs.d /etc/containerd/certs.d/x "
	          "/etc/containerd/certs.d/x/hosts.toml /etc/containerd/conf.d "
	          "/etc/containerd/conf.d/new.toml " MAIN " /etc/containerd/link /srv/main.toml",
	          "it tells what is new, changed and gone");
	check(containerd_snapshot_restore(&s, &err) == 0, "it is taken back");
	for (size_t i = 0; i < w.count; i++) /* directories were implied before */
		if (S_ISDIR(w.entries[i].mode)) {
			free(w.entries[i].path);
			free(w.entries[i].data);
			w.entries[i] = w.entries[--w.count];
			i--;
		}
	after = fake_writable_text(&w);
	check_str(after, before, "and all is as it was: content, links, permissions");
	check(w.entries[0].size == 3 && memcmp(fw_find(&w.base, MAIN)->data, "a\0b", 3) == 0,
	      "byte for byte");
}

/* --- Setting up, with a containerd of ours --- */

/* What the stand-ins do wrong. */
enum fault { NONE, LOSES_RUNTIME, REFUSES_FILE, CTK_FAILS, CTK_WRITES_NONSENSE };

struct plain {
	struct fake_writable w; /* first: run() gets it */
	enum fault fault;
	int ctk_runs;
	char *first_asked; /* the configuration that its containerd was asked about first */
};

static bool file_names_runtime(struct fake_writable *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (str_below(w->entries[i].path, "/etc/containerd") &&
		    S_ISREG(w->entries[i].mode) && strstr(w->entries[i].data, "runtimes.nvidia"))
			return true;
	return false;
}

static int dump(struct plain *p, char **ret, struct error *err)
{
	bool nvidia = file_names_runtime(&p->w);

	if (p->fault == REFUSES_FILE && nvidia)
		return error_set(err, "containerd: invalid plugin key URI");
	if (p->fault == LOSES_RUNTIME)
		nvidia = false;
	*ret = str_format("version = 2\n[" V2 "]\ndefault_runtime_name = \"runc\"\n"
	                  "[" V2 ".runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
	                  "[" V2
	                  ".runtimes.runc.options]\nBinaryName = \"\"\nSystemdCgroup = true\n"
	                  "%s",
	                  !nvidia ? ""
	                          : "[" V2 ".runtimes.nvidia]\n"
	                            "runtime_type = \"io.containerd.runc.v2\"\n"
	                            "[" V2 ".runtimes.nvidia.options]\n"
	                            "BinaryName = \"/usr/bin/nvidia-container-runtime\"\n"
	                            "SystemdCgroup = true\n");
	return 0;
}

static int ctk(struct plain *p, char **ret, struct error *err)
{
	p->ctk_runs++;
	*ret = str_copy("done");
	fw_text(&p->w, "/etc/containerd/conf.d/99-nvidia.toml",
	        p->fault == CTK_WRITES_NONSENSE ? "version = 2\n"
	                                        : "version = 2\n[" V2
	                                          ".runtimes.nvidia]\nruntime_type = \"x\"\n");
	return p->fault == CTK_FAILS ? error_set(err, "nvidia-ctk: exit code 1") : 0;
}

static int run_stand_in(struct fake_writable *w, const struct guest_command *command,
                        struct error *err)
{
	struct plain *p = (struct plain *)w;

	if (strcmp(command->argv[0], CTK) == 0)
		return ctk(p, command->ret_stdout, err);
	if (strcmp(command->argv[0], "/usr/bin/containerd") != 0)
		return error_set(err, "there is no '%s'", command->argv[0]);
	if (!p->first_asked)
		p->first_asked = str_copy(command->argv[2]);
	return dump(p, command->ret_stdout, err);
}

static struct plain plain(bool with_ctk, enum fault fault)
{
	struct plain p = {.w = fake_writable(), .fault = fault};

	p.w.run = run_stand_in;
	fw_program(&p.w, "/usr/bin/containerd", "x");
	fw_program(&p.w, "/usr/bin/nvidia-container-runtime", "x");
	if (with_ctk)
		fw_program(&p.w, CTK, "x");
	fw_text(&p.w, MAIN,
	        "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[" V2
	        ".runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n[" V2
	        ".runtimes.runc.options]\nSystemdCgroup = true\n");
	return p;
}

static void plain_free(struct plain *p)
{
	free(p->first_asked);
	fake_writable_free(&p->w);
}
#define CLEANUP_PLAIN CLEANUP(plain_free)

static void test_set_up(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried first = try(&p.w, false);
	CLEANUP_TRIED struct tried second = {0};
	struct containerd_setup setup = {.root = &p.w.base, .containerd = &first.found.c};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	check(first.code == 0, "a containerd gets the runtime");
	check_str(first.result.by, "gpuimg", "by ourselves, where there is no nvidia-ctk");
	check(first.result.edited.count > 0 && first.result.files.count > 0 && first.result.dump,
	      "the result tells what was edited, what is loaded and what containerd says");
	check(containerd_look_again(&first.result, &setup, &err) == 0, "looked at again it holds");
	second = try(&p.w, false);
	check(second.code == 0 && second.result.edited.count == 0, "a second time changes nothing");
	check_str(second.result.by, "the image", "since it is there already");
	p.fault = LOSES_RUNTIME;
	check(containerd_look_again(&first.result, &setup, &err) < 0 && err.code == EXIT_PROOF &&
	              err.hint,
	      "what breaks it later is found");
}

static void test_only_looked_at(void)
{
	CLEANUP_PLAIN struct plain p = plain(true, NONE);
	CLEANUP_STRV struct strv packages = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP(containerd_free) struct containerd c = {0};

	check(containerd_find(&c, &p.w.base, &packages, false, NULL, &err) == 1 && c.ctk &&
	              !c.version && !c.ctk_version && p.ctk_runs == 0,
	      "of an image that is only looked at no program is run");
}

static void test_disabled_by_import(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried t = {0};

	fw_text(&p.w, MAIN,
	        "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"
	        "disabled_plugins = [\"io.containerd.snapshotter.v1.btrfs\"]\n");
	fw_text(&p.w, "/etc/containerd/conf.d/a.toml",
	        "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n");
	t = try(&p.w, false);
	check(is_refused(&t, "imports disables the CRI plugin"),
	      "a CRI plugin that an imported file disables is refused");
}

/* A file that this containerd does not load: 1.6.20 looks for relative patterns in /. */
static void put_unloaded(struct plain *p)
{
	fw_text(&p->w, MAIN, "version = 2\nimports = [\"conf.d/*.toml\"]\n");
	fw_text(&p->w, "/etc/containerd/conf.d/x.toml",
	        "version = 2\ndisabled_plugins = [\"cri\"]\n");
}

static void test_disabled_where_nothing_reads(void)
{
	CLEANUP_PLAIN struct plain old = plain(false, NONE);
	CLEANUP_PLAIN struct plain new = plain(false, NONE);
	CLEANUP_TRIED struct tried a = {0};
	CLEANUP_TRIED struct tried b = {0};

	put_unloaded(&old);
	a = try_with(&old.w, "containerd=1.6.20~ds1-1", false);
	check(a.code == 0 && strv_has(&a.result.edited, MAIN),
	      "a file that this containerd does not load disables nothing");
	put_unloaded(&new);
	b = try_with(&new.w, "containerd=1.6.30", false);
	check(is_refused(&b, "imports disables the CRI plugin"), "one that loads it is refused");
}

/* A main file of its own directory, by a link, and nothing there yet that it imports. */
static void put_elsewhere(struct plain *p, const char *text)
{
	fw_remove(&p->w.base, "/etc/containerd", NULL);
	fw_link(&p->w, MAIN, "/etc/containerd/site/main.toml");
	fw_text(&p->w, "/etc/containerd/site/main.toml", text);
}

static void test_disabled_behind_a_link(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried t = {0};

	put_elsewhere(&p, "version = 2\nimports = ['own.toml']\n"
	                  "disabled_plugins = ['io.containerd.grpc.v1.cri']\n");
	fw_text(&p.w, "/etc/containerd/own.toml", "version = 2\n");
	fw_text(&p.w, "/etc/containerd/.gpuimg-before", "the user's");
	t = try(&p.w, false);
	check(t.code == 0, "a disabled CRI plugin behind a link is enabled");
	check_str(p.first_asked, "/etc/containerd/.gpuimg-before1",
	          "containerd was asked beside the link, where relative imports count from");
	check(fw_find(&p.w.base, "/etc/containerd/.gpuimg-before") &&
	              str_equal(fw_find(&p.w.base, "/etc/containerd/.gpuimg-before")->data,
	                        "the user's"),
	      "by a name that nothing had");
	check(!fw_find(&p.w.base, "/etc/containerd/.gpuimg-before1"), "which is gone again");
}

static void test_directories_taken_back(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, LOSES_RUNTIME);
	CLEANUP_FREE char *before = NULL;
	CLEANUP_FREE char *after = NULL;
	CLEANUP_TRIED struct tried t = {0};

	fw_text(&p.w, MAIN, "version = 2\nimports = ['/opt/site/conf.d/*.toml']\n");
	before = fake_writable_text(&p.w);
	t = try_with(&p.w, "containerd=2.1.4", false);
	after = fake_writable_text(&p.w);
	check(t.code < 0 && t.err.code == EXIT_PROOF, "a drop-in in a new directory may fail");
	check_str(after, before, "then the new directories are gone too");
}

/* /usr/lib, and what else a distribution has there. */
static void test_import_from_large_directory(void)
{
	const size_t size = 65UL * 1024 * 1024;
	CLEANUP_FREE char *large = mem_alloc(size);
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried t = {0};

	fw_put(&p.w.base, "/usr/lib/large", S_IFREG | 0644, large, size);
	fw_text(&p.w, "/usr/lib/site.toml", "version = 2\noom_score = 1\n");
	fw_text(&p.w, MAIN, "version = 2\nimports = ['/usr/lib/site.toml']\n");
	t = try(&p.w, false);
	check(t.code == 0, "what lies beside an imported file is no matter");
}

static int broken_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                        struct error *err)
{
	if (str_ends(path, "/broken.toml"))
		return error_errno(err, EIO, "cannot look up '%s'", path);
	return fw_lstat(r, path, ret, err);
}

static void test_unreadable_imports(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	struct rootfs_ops ops = *w.base.ops;
	CLEANUP_CONTAINERD_FILES struct containerd_files files = {0};
	CLEANUP_ERROR struct error broken = ERROR_INIT;
	CLEANUP_ERROR struct error fifo = ERROR_INIT;
	CLEANUP_ERROR struct error none = ERROR_INIT;

	ops.lstat = broken_lstat;
	fw_text(&w, MAIN, "version = 2\nimports = ['conf.d/*.toml', '*/x.toml']\n");
	fw_text(&w, "/etc/containerd/conf.d/broken.toml", "");
	w.base.ops = &ops;
	check(containerd_files_read(&files, &w.base, MAIN, &broken) < 0 &&
	              strstr(broken.message, "broken.toml"),
	      "an import that cannot be looked up is an error, and not left out");
	fw_remove(&w.base, "/etc/containerd/conf.d/broken.toml", NULL);
	fw_put(&w.base, "/etc/containerd/conf.d/pipe.toml", S_IFIFO | 0644, "", 0);
	check(containerd_files_read(&files, &w.base, MAIN, &fifo) < 0 &&
	              error_exit_code(&fifo) == EXIT_INPUT &&
	              strstr(fifo.message,
	                     "'/etc/containerd/conf.d/pipe.toml': it is no regular file"),
	      "a FIFO is refused by its name");
	fw_remove(&w.base, "/etc/containerd/conf.d", NULL);
	fw_link(&w, "/etc/containerd/loop", "loop");
	check(containerd_files_read(&files, &w.base, MAIN, &none) == 0 && files.count == 1,
	      "a link that leads nowhere has nothing below it");
	fw_link(&w, MAIN, "config.toml");
	check(containerd_files_read(&files, &w.base, MAIN, &none) < 0 &&
	              error_exit_code(&none) == EXIT_INPUT && strstr(none.message, MAIN),
	      "a main file that is a link to itself is refused by its name");
}

static void test_notes_of_others(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried docker = {0};
	CLEANUP_TRIED struct tried done = {0};
	CLEANUP_FREE char *told = NULL;
	CLEANUP_FREE char *not_told = NULL;

	fw_program(&p.w, "/usr/bin/dockerd", "x");
	docker = try(&p.w, false);
	told = strv_join(&docker.result.notes, "\n");
	check(docker.code == 0 && strstr(told, "Docker ('/usr/bin/dockerd') is not set up"),
	      "Docker beside containerd is told that it is not set up");
	fw_text(&p.w, "/etc/docker/daemon.json",
	        "{\"runtimes\": {\"nvidia\": {\"path\": \"nvidia-container-runtime\"}}}\n");
	done = try(&p.w, false);
	not_told = strv_join(&done.result.notes, "\n");
	check(done.code == 0 && !strstr(not_told, "Docker"), "unless it has the runtime");
}

static void check_taken_back(enum fault fault, const char *sentence)
{
	CLEANUP_PLAIN struct plain p = plain(false, fault);
	CLEANUP_FREE char *before = fake_writable_text(&p.w);
	CLEANUP_TRIED struct tried t = try(&p.w, false);
	CLEANUP_FREE char *after = fake_writable_text(&p.w);

	check(t.code < 0 && t.err.code == EXIT_PROOF, "%s", sentence);
	check_str(after, before, "and every file is as it was");
}

static void test_taken_back(void)
{
	CLEANUP_PLAIN struct plain full = plain(false, NONE);
	CLEANUP_FREE char *before = fake_writable_text(&full.w);
	CLEANUP_FREE char *after = NULL;
	CLEANUP_TRIED struct tried t = {0};
	CLEANUP_PLAIN struct plain missing = plain(false, NONE);
	CLEANUP_TRIED struct tried none = {0};

	check_taken_back(LOSES_RUNTIME, "a runtime that containerd does not show is an error");
	check_taken_back(REFUSES_FILE, "so is a file that it does not load");
	full.w.fail_write_after = 0;
	t = try(&full.w, false);
	full.w.fail_write_after = -1;
	after = fake_writable_text(&full.w);
	check(t.code < 0, "so is a disk that is full");
	check_str(after, before, "and nothing is half done");
	fw_remove(&missing.w.base, "/usr/bin/nvidia-container-runtime", NULL);
	none = try(&missing.w, false);
	check(is_refused(&none, "nvidia-container-runtime"), "without the program there is nothing "
	                                                     "to set up");
}

static void test_by_ctk(void)
{
	CLEANUP_PLAIN struct plain good = plain(true, NONE);
	CLEANUP_PLAIN struct plain bad = plain(true, CTK_WRITES_NONSENSE);
	CLEANUP_PLAIN struct plain failing = plain(true, CTK_FAILS);
	static const char old[] = "containerd=1.7.24 nvidia-container-toolkit=1.17.8-1";
	CLEANUP_TRIED struct tried a = try_with(&good.w, old, false);
	CLEANUP_TRIED struct tried b = try_with(&bad.w, old, false);
	CLEANUP_TRIED struct tried c = try_with(&failing.w, old, false);

	check_str(a.result.by, "nvidia-ctk 1.17.8-1", "a good nvidia-ctk does it");
	check(a.result.edited.count == 1 &&
	              strv_has(&a.result.edited, "/etc/containerd/conf.d/99-nvidia.toml"),
	      "what it wrote is recorded");
	check(bad.ctk_runs == 1 && b.code == 0, "one whose work does not hold was tried");
	check_str(b.result.by, "gpuimg", "and we did it instead");
	check(!fw_find(&bad.w.base, "/etc/containerd/conf.d/99-nvidia.toml"),
	      "its file is gone again");
	check_str(c.result.by, "gpuimg", "the same where it fails");
	check(!fw_find(&failing.w.base, "/etc/containerd/conf.d/99-nvidia.toml"),
	      "with what it left half done");
}

/* --- The exported image --- */

static size_t bad_points(struct fake_writable *w, const struct containerd_result *r, const char *id)
{
	struct findings f = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	size_t count = 0;

	if (proof_containerd(&f, &w->base, r, &err) < 0)
		printf("# %s\n", err.message);
	for (size_t i = 0; i < f.count; i++)
		count += f.items[i].verdict == FINDING_BAD && strcmp(f.items[i].id, id) == 0;
	if (strcmp(id, "any") == 0)
		count = f.bad;
	findings_free(&f);
	return count;
}

static void test_proof(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried t = try(&p.w, false);

	check(t.code == 0 && bad_points(&p.w, &t.result, "any") == 0,
	      "an exported image with the same files has nothing bad");
	fw_text(&p.w, "/etc/containerd/conf.d/zz.toml", "version = 2\noom_score = 1\n");
	check(bad_points(&p.w, &t.result, "containerd.runtime") == 1,
	      "a file that came later is bad");
	fw_remove(&p.w.base, "/etc/containerd/conf.d/zz.toml", NULL);
	fw_text(&p.w, MAIN, "version = 2\n");
	check(bad_points(&p.w, &t.result, "containerd.runtime") > 0, "so is one that was changed");
	fw_text(&p.w, "/etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n");
	fw_text(&p.w, "/etc/cdi/other.yaml", "kind: vendor.com/net\n");
	check(bad_points(&p.w, &t.result, "containerd.cdi") == 1,
	      "a CDI specification of NVIDIA's is bad, another one is not");
	fw_remove(&p.w.base, "/usr/bin/nvidia-container-runtime", NULL);
	check(bad_points(&p.w, &t.result, "containerd.binary") == 1,
	      "a runtime without its program is bad");
}

/* --- What 'inspect' says --- */

struct seen {
	struct inspect in;
	char *text; /* "ID: MESSAGE" of each that is bad or a note */
};

static void seen_free(struct seen *s)
{
	findings_free(&s->in.findings);
	strv_free(&s->in.packages);
	json_decref(s->in.facts);
	free(s->text);
}
#define CLEANUP_SEEN CLEANUP(seen_free)

static struct seen see(struct fake_writable *w, const char *packages)
{
	const struct inspect_want want = {.containerd_runtime = "nvidia"};
	struct seen s = {.in = {.root = &w->base,
	                        .packages = strv_split(packages, " "),
	                        .facts = json_object()}};
	CLEANUP_STRV struct strv lines = {0};

	inspect_containerd(&s.in, &want);
	for (size_t i = 0; i < s.in.findings.count; i++)
		if (s.in.findings.items[i].verdict != FINDING_OK)
			strv_addf(&lines, "%s: %s", s.in.findings.items[i].id,
			          s.in.findings.items[i].what);
	s.text = strv_join(&lines, "\n");
	return s;
}

static void test_inspect(void)
{
	CLEANUP_PLAIN struct plain p = plain(false, NONE);
	CLEANUP_TRIED struct tried t = {0};
	CLEANUP_SEEN struct seen old = {0};
	CLEANUP_SEEN struct seen new = {0};
	CLEANUP_SEEN struct seen shell = {0};
	const char *files;

	put_unloaded(&p);
	t = try_with(&p.w, "containerd=1.6.20~ds1-1", false);
	old = see(&p.w, "containerd=1.6.20~ds1-1");
	check(t.code == 0 && old.in.findings.bad == 0 && !strstr(old.text, "CRI plugin"),
	      "what 1.6.20 does not load is nothing that 'inspect' holds against it");
	files = json_string_value(json_array_get(
		json_object_get(json_object_get(old.in.facts, "containerd"), "files"), 1));
	check(!files, "nor one of the files that it tells");
	new = see(&p.w, "containerd=1.6.30");
	check(new.in.findings.bad == 1 && strstr(new.text, "the CRI plugin is disabled"),
	      "for one that loads it, it is bad");
	fw_text(&p.w, "/etc/systemd/system/containerd.service",
	        "[Service]\nExecStart=/bin/sh -c 'exec containerd'\n");
	shell = see(&p.w, "containerd=1.6.20~ds1-1");
	check(shell.in.findings.bad == 1 && strstr(shell.text, "its unit starts '/bin/sh'") &&
	              !strstr(shell.text, "no containerd"),
	      "where it cannot be told which one there is, it does not say that there is none");
}

int main(void)
{
	test_find_plain();
	test_find_program();
	test_globs();
	test_unit();
	test_unit_of_another_program();
	test_none();
	test_find_managers();
	test_ctk();
	test_snapshot();
	test_set_up();
	test_only_looked_at();
	test_disabled_by_import();
	test_disabled_where_nothing_reads();
	test_disabled_behind_a_link();
	test_unreadable_imports();
	test_import_from_large_directory();
	test_notes_of_others();
	test_directories_taken_back();
	test_taken_back();
	test_by_ctk();
	test_proof();
	test_inspect();
	return tap_done();
}
