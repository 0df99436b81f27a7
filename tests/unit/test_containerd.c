/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd in roots that are tables in memory. Their containerd and nvidia-ctk are functions of
 * this file that behave as much like the real ones as each test needs; tests/image/containerd.bats
 * asks real ones.
 */
#include "builder/containerd-internal.h"
#include "fake-writable.h"
#include "tap.h"

#define MAIN  "/etc/containerd/config.toml"
#define CTK   "/usr/bin/nvidia-ctk"
#define V2    "plugins.\"io.containerd.grpc.v1.cri\".containerd"
#define USAGE "(agent/runtime) Set the default runtime in containerd"

/* --- Which one it is --- */

struct found {
	struct containerd c;
	struct error err;
	int result;
};

static void found_free(struct found *f)
{
	containerd_free(&f->c);
	error_free(&f->err);
}
#define CLEANUP_FOUND CLEANUP(found_free)

static struct found look(struct fake_writable *w, const char *packages)
{
	struct found f = {.err = ERROR_INIT};
	CLEANUP_STRV struct strv list = strv_split(packages, " ");

	f.result = containerd_find(&f.c, &w->base, &list, true, NULL, &f.err);
	return f;
}

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

static bool is_good(const char *version, const char *text, const char *import, char **why)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_CONTAINERD_FILES struct containerd_files files = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct containerd c = {0};
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

static void check_ctk(bool good, const char *version, const char *text, const char *import,
                      const char *part, const char *sentence)
{
	CLEANUP_FREE char *why = NULL;
	bool got = is_good(version, text, import, &why);

	if (!check(got == good && (good || (why && strstr(why, part))), "%s", sentence))
		printf("# %s\n", why ? why : "good");
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
}

/* --- k0s, k3s, RKE2 --- */

struct tried {
	struct found found;
	struct containerd_result result;
	struct error err;
	int code;
};

static void tried_free(struct tried *t)
{
	found_free(&t->found);
	containerd_result_free(&t->result);
	error_free(&t->err);
}
#define CLEANUP_TRIED CLEANUP(tried_free)

static struct tried try(struct fake_writable *w, bool make_default)
{
	struct tried t = {.err = ERROR_INIT, .code = -1};
	struct containerd_setup setup = {.root = &w->base, .make_default = make_default};

	t.found = look(w, "containerd=1.7.24 nvidia-container-toolkit=1.20.0-1");
	setup.containerd = &t.found.c;
	if (t.found.result == 1)
		t.code = containerd_set_up(&t.result, &setup, &t.err);
	if (t.code < 0)
		printf("# %s\n", t.err.message ? t.err.message : "not found");
	return t;
}

static bool is_refused(const struct tried *t, const char *part)
{
	return t->code < 0 && t->err.code == EXIT_INPUT && t->err.hint &&
	       strstr(t->err.message, part);
}

static void put_k3s(struct fake_writable *w, const char *program)
{
	fw_program(w, "/usr/local/bin/k3s", program);
	fw_program(w, "/usr/bin/nvidia-container-runtime", "x");
}

static void test_k3s(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_FAKE struct fake_writable old = fake_writable();
	CLEANUP_TRIED struct tried by_itself = {0};
	CLEANUP_TRIED struct tried with_default = {0};
	CLEANUP_TRIED struct tried without = {0};
	const struct fake_entry *e;

	put_k3s(&w, "--help: " USAGE);
	by_itself = try(&w, false);
	check(by_itself.code == 0 && by_itself.result.edited.count == 0,
	      "k3s finds the runtime by itself, and nothing is written");
	check_str(by_itself.result.by, "k3s", "that it does is recorded");
	check(!by_itself.result.dump, "there is no dump of it");
	with_default = try(&w, true);
	e = fw_find(&w.base, "/etc/rancher/k3s/config.yaml.d/99-gpuimg.yaml");
	check(with_default.code == 0 && e && strstr(e->data, "\ndefault-runtime: nvidia\n"),
	      "--default-runtime is a file of k3s's own configuration");
	put_k3s(&old, "no such option");
	without = try(&old, true);
	check(is_refused(&without, "no option"), "a k3s without the option is refused by name");
	check(old.count == 2, "and nothing is left");
}

static void test_k3s_refused(void)
{
	static const char tmpl[] = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl";
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried template = {0};
	CLEANUP_TRIED struct tried based = {0};
	CLEANUP_TRIED struct tried later = {0};
	CLEANUP_TRIED struct tried earlier = {0};
	CLEANUP_TRIED struct tried place = {0};
	CLEANUP_TRIED struct tried socket = {0};
	CLEANUP_TRIED struct tried cut = {0};

	put_k3s(&w, USAGE);
	fw_text(&w, tmpl, "version = 3\n");
	template = try(&w, false);
	check(is_refused(&template, tmpl), "a template of the user's own is refused by name");
	fw_text(&w, tmpl, "{{ template \"base\" . }}\n");
	based = try(&w, false);
	check(based.code == 0, "one that begins with k3s's own is fine");
	fw_text(&w, "/etc/rancher/k3s/config.yaml", "\"default-runtime\": crun # mine\n");
	earlier = try(&w, true);
	check(earlier.code == 0, "another default in a file that is read before is no matter");
	fw_text(&w, "/etc/rancher/k3s/config.yaml.d/zz.yaml", "default-runtime: 'crun'\n");
	later = try(&w, true);
	check(is_refused(&later, "zz.yaml"), "in one that is read later it is refused");
	fw_remove(&w.base, "/usr/bin", NULL);
	fw_program(&w, "/opt/bin/nvidia-container-runtime", "x");
	place = try(&w, false);
	check(is_refused(&place, "/opt/bin/nvidia-container-runtime"),
	      "a runtime where k3s does not look is refused");
	fw_text(&w, "/etc/rancher/k3s/config.yaml",
	        "container-runtime-endpoint: unix:///run/containerd/containerd.sock\n");
	socket = try(&w, false);
	check(is_refused(&socket, "another container runtime"),
	      "a k3s that uses another runtime is refused");
	fw_text(&w, "/etc/rancher/k3s/config.yaml", "\"container-runtime-endpoint");
	cut = try(&w, false);
	check(is_refused(&cut, "/opt/bin/nvidia-container-runtime"),
	      "a key whose quote is never closed is none");
}

static void test_rke2(void)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried t = {0};

	fw_program(&w, "/usr/local/bin/rke2", USAGE);
	fw_program(&w, CONTAINERD_TOOLKIT_DIR "/nvidia-container-runtime", "x");
	t = try(&w, true);
	check(t.code == 0 &&
	              fw_find(&w.base, "/etc/rancher/rke2/config.yaml.d/99-gpuimg.yaml") != NULL,
	      "RKE2 gets its default runtime in its own directory");
	check_str(t.result.by, "RKE2", "and is named");
}

#define DEP_ONE "v1.31.3+k0s.0\ndep\tgithub.com/containerd/containerd\tv1.7.23\th1:x\n"
#define DEP_TWO "v1.36.0+k0s.0\ndep\tgithub.com/containerd/containerd/v2\tv2.2.1\th1:x\n"

static void test_k0s(void)
{
	static const char dropin[] = CONTAINERD_K0S_DIR "/" CONTAINERD_DROPIN_NAME;
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried one = {0};
	CLEANUP_TRIED struct tried two = {0};
	CLEANUP_TRIED struct tried both = {0};
	CLEANUP_TRIED struct tried taken = {0};
	CLEANUP_TRIED struct tried old = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TOML struct toml *toml = NULL;
	const struct toml_node *node;

	fw_program(&w, "/usr/bin/nvidia-container-runtime", "x");
	fw_text(&w, "/etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n");
	fw_text(&w, CONTAINERD_K0S_DIR "/cgroup.toml",
	        "[" V2 ".runtimes.runc.options]\nSystemdCgroup = true\nBinaryName = \"/x\"\n");
	fw_program(&w, "/usr/local/bin/k0s", DEP_ONE);
	one = try(&w, true);
	check(one.code == 0, "k0s gets a drop-in");
	if (fw_find(&w.base, dropin))
		toml_parse(&toml, fw_find(&w.base, dropin)->data, "drop-in", &err);
	check(toml && strstr(toml->text, "version = 2\n"), "in the schema of its containerd 1.7");
	node = toml ? toml_find(&toml->root, "plugins", "io.containerd.grpc.v1.cri", "containerd",
	                        "runtimes", "nvidia", "options", NULL)
	            : NULL;
	check(node && node->count == 2 && toml_find(node, "SystemdCgroup", NULL),
	      "with the options that another drop-in gives runc");
	check(node && str_equal(toml_find(node, "BinaryName", NULL)->text,
	                        "/usr/bin/nvidia-container-runtime"),
	      "but not its program");
	check(toml && toml_find(&toml->root, "plugins", "io.containerd.grpc.v1.cri", "containerd",
	                        "default_runtime_name", NULL) != NULL,
	      "as the default runtime, since that was asked for");
	fw_program(&w, "/usr/local/bin/k0s", DEP_TWO);
	two = try(&w, false);
	check(two.code == 0 &&
	              strstr(fw_find(&w.base, dropin)->data, "io.containerd.cri.v1.runtime"),
	      "a k0s with containerd 2 gets the schema of that");
	check(!strstr(fw_find(&w.base, dropin)->data, "default_runtime_name"),
	      "no default runtime unless it was asked for");
	fw_program(&w, "/usr/local/bin/k0s", DEP_ONE DEP_TWO);
	both = try(&w, false);
	check(is_refused(&both, "cannot tell which containerd"), "one that has both is refused");
	fw_program(&w, "/usr/local/bin/k0s", "v1.26.9+k0s.0 " DEP_ONE);
	old = try(&w, false);
	check(is_refused(&old, "1.27.1"), "one that merges no drop-ins is refused");
	fw_text(&w, "/etc/k0s/containerd.toml", "version = 2\n");
	taken = try(&w, false);
	check(is_refused(&taken, "/etc/k0s/containerd.toml"),
	      "a configuration that the user has taken over is refused by name");
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
	if (strcmp(command->argv[0], "/usr/bin/containerd") == 0)
		return dump(p, command->ret_stdout, err);
	return error_set(err, "there is no '%s'", command->argv[0]);
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
	CLEANUP_TRIED struct tried a = try(&good.w, false);
	CLEANUP_TRIED struct tried b = try(&bad.w, false);
	CLEANUP_TRIED struct tried c = try(&failing.w, false);

	check_str(a.result.by, "nvidia-ctk 1.20.0-1", "a good nvidia-ctk does it");
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

int main(void)
{
	test_find_plain();
	test_find_program();
	test_unit();
	test_find_managers();
	test_ctk();
	test_k3s();
	test_k3s_refused();
	test_rke2();
	test_k0s();
	test_snapshot();
	test_set_up();
	test_only_looked_at();
	test_disabled_by_import();
	test_taken_back();
	test_by_ctk();
	test_proof();
	return tap_done();
}
