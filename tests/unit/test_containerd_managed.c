/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3s, RKE2 and k0s in roots that are tables in memory: programs that bring a containerd. Theirs
 * are texts with what is looked for in the real ones.
 */
#include "containerd-try.h"

#define USAGE "(agent/runtime) Set the default runtime in containerd"

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

/* What is on the unit's command line counts more than any file. */
static void test_k3s_unit(void)
{
	static const char unit[] = "/etc/systemd/system/k3s.service";
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried chosen = {0};
	CLEANUP_TRIED struct tried moved = {0};
	CLEANUP_TRIED struct tried docker = {0};
	CLEANUP_TRIED struct tried not_docker = {0};

	put_k3s(&w, USAGE);
	fw_text(&w, unit,
	        "[Service]\nExecStart=/usr/local/bin/k3s server --default-runtime=crun\n");
	chosen = try(&w, true);
	check(is_refused(&chosen, "'k3s.service' makes 'crun' the default runtime"),
	      "another default on k3s's command line is refused");
	fw_text(&w, unit,
	        "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--data-dir' '/srv/k3s'\n");
	fw_text(&w, "/srv/k3s/agent/etc/containerd/config.toml.tmpl", "version = 2\n");
	moved = try(&w, false);
	check(is_refused(&moved, "/srv/k3s/agent/etc/containerd/config.toml.tmpl"),
	      "a template is looked for in the data directory of the command line");
	fw_text(&w, unit, "[Service]\nExecStart=/usr/local/bin/k3s agent --docker\n");
	docker = try(&w, false);
	check(is_refused(&docker, "'docker: true'"), "a k3s that uses Docker is refused");
	fw_text(&w, unit, "[Service]\nExecStart=/usr/local/bin/k3s agent --docker=false\n");
	not_docker = try(&w, false);
	check(not_docker.code == 0, "one that says that it does not is fine");
}

static void test_k3s_dropins(void)
{
	static const char dropin[] =
		"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/50-site.toml";
	static const char v3[] = "plugins.'io.containerd.cri.v1.runtime'.containerd";
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried chosen = {0};
	CLEANUP_TRIED struct tried unasked = {0};
	CLEANUP_TRIED struct tried other = {0};
	CLEANUP_TRIED struct tried same = {0};
	CLEANUP_TRIED struct tried broken = {0};
	CLEANUP_TRIED struct tried loop = {0};
	CLEANUP_FREE char *text =
		str_format("version = 3\n[%s]\ndefault_runtime_name = 'kata'\n", v3);
	CLEANUP_FREE char *moved =
		str_format("[%s.runtimes.nvidia.options]\nBinaryName = '/opt/x/nvidia'\n", v3);
	CLEANUP_FREE char *ours = str_format(
		"[%s.runtimes.nvidia.options]\nBinaryName = '/usr/bin/nvidia-container-runtime'\n",
		v3);

	put_k3s(&w, USAGE);
	fw_text(&w, dropin, text);
	chosen = try(&w, true);
	check(is_refused(&chosen, dropin), "a drop-in with another default runtime is refused");
	unasked = try(&w, false);
	check(unasked.code == 0, "unless ours shall not be the default");
	fw_text(&w, dropin, moved);
	other = try(&w, false);
	check(is_refused(&other, "'/opt/x/nvidia'"),
	      "so is one that gives the runtime another program");
	fw_text(&w, dropin, ours);
	same = try(&w, false);
	check(same.code == 0, "the same program is fine");
	fw_text(&w, dropin, "[x\n");
	broken = try(&w, false);
	check(is_refused(&broken, "line 1"), "one that is no TOML is refused with the line");
	fw_remove(&w.base, dropin, NULL);
	fw_text(&w, "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
	        "version = 2\n{{range $k, $v := .ExtraRuntimes}}\n{{end}}\n");
	loop = try(&w, false);
	check(loop.code == 0, "a template with k3s's own loop over what was found is fine");
}

static void check_release(const char *version, bool starts, const char *note, const char *sentence)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried t = {0};
	CLEANUP_FREE char *notes = NULL;

	put_k3s(&w, version);
	t = try(&w, false);
	notes = strv_join(&t.result.notes, "\n");
	check(starts ? t.code == 0 && (strstr(notes, "SystemdCgroup") != NULL) == (note != NULL) &&
	                       (!note || strstr(notes, note))
	             : is_refused(&t, "does not start"),
	      "%s", sentence);
}

static void test_k3s_releases(void)
{
	check_release("v1.28.3+k3s1", false, NULL,
	              "a release that does not start with the runtime is refused");
	check_release("v1.28.3+k3s2", true, NULL, "its second build is fine");
	check_release("v1.28.2+k3s1", true, "1.28.2", "an older one has no SystemdCgroup: told");
	check_release("v1.24.17+k3s1", true, "1.24.17", "so has one of an older branch");
	check_release("v1.33.4+k3s1", true, NULL, "a newer one has");
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
	CLEANUP_TRIED struct tried neither = {0};
	CLEANUP_TRIED struct tried version = {0};
	CLEANUP_TRIED struct tried later = {0};
	CLEANUP_TRIED struct tried second_line = {0};
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
	fw_program(&w, "/usr/local/bin/k0s", DEP_TWO DEP_ONE);
	both = try(&w, false);
	check(both.code == 0 &&
	              strstr(fw_find(&w.base, dropin)->data, "io.containerd.cri.v1.runtime"),
	      "of one that has both modules the release tells: 1.36 has containerd 2");
	fw_program(&w, "/usr/local/bin/k0s", "v1.36.0+k0s.0");
	neither = try(&w, false);
	check(is_refused(&neither, "cannot tell which containerd"), "one with neither is refused");
	fw_program(&w, "/usr/local/bin/k0s", DEP_TWO);
	fw_text(&w, CONTAINERD_K0S_DIR "/old.toml", "version = 2\n");
	version = try(&w, false);
	check(is_refused(&version, "old.toml' is of version 2, and this k0s reads version 3"),
	      "a drop-in of another version is refused");
	fw_text(&w, CONTAINERD_K0S_DIR "/old.toml",
	        "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'x'\n");
	later = try(&w, true);
	check(is_refused(&later, "old.toml' makes 'x' the default runtime"),
	      "so is one that takes the default away again");
	fw_remove(&w.base, CONTAINERD_K0S_DIR "/old.toml", NULL);
	fw_text(&w, "/etc/k0s/containerd.toml", "# mine\n# k0s_managed=true\nversion = 3\n");
	second_line = try(&w, false);
	check(is_refused(&second_line, "is not k0s's own any more"),
	      "the mark of k0s counts in the first line only");
	fw_text(&w, "/etc/k0s/containerd.toml", "\n# k0s_managed=true\nversion = 2\n");
	fw_program(&w, "/usr/local/bin/k0s", "v1.26.9+k0s.0 " DEP_ONE);
	old = try(&w, false);
	check(is_refused(&old, "1.27.1"), "one that merges no drop-ins is refused");
	fw_text(&w, "/etc/k0s/containerd.toml", "version = 2\n");
	taken = try(&w, false);
	check(is_refused(&taken, "/etc/k0s/containerd.toml"),
	      "a configuration that the user has taken over is refused by name");
}

/* --- Programs of some hundred MiB --- */

struct counted {
	struct fake_writable w; /* first: read() gets it */
	const char *path;
	int reads;
};

static int counted_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                        size_t *ret_size, struct error *err)
{
	struct counted *c = (struct counted *)r;

	c->reads += strcmp(path, c->path) == 0;
	return fw_read(r, path, max_bytes, ret, ret_size, err);
}

static void check_reads(const char *path, const char *program, const char *sentence)
{
	struct counted c = {.w = fake_writable(), .path = path};
	struct rootfs_ops ops = *c.w.base.ops;
	struct found f = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	ops.read = counted_read;
	c.w.base.ops = &ops;
	fw_program(&c.w, path, program);
	fw_program(&c.w, "/usr/bin/nvidia-container-runtime", "x");
	f = look(&c.w, "");
	check(f.result == 1 && containerd_check(&f.c, &c.w.base, true, &err) == 0 && c.reads == 1,
	      "%s", sentence);
	printf("# %d times\n", c.reads);
	found_free(&f);
	fake_writable_free(&c.w);
}

static void check_too_large(const char *path, const char *program, const char *sentence)
{
	CLEANUP_FAKE struct fake_writable w = fake_writable();
	CLEANUP_TRIED struct tried t = {0};

	fw_program(&w, path, program);
	fw_program(&w, "/usr/bin/nvidia-container-runtime", "x");
	fw_find(&w.base, path)->size = 512UL * 1024 * 1024 + 1;
	t = try(&w, true);
	check(is_refused(&t, "larger than") && strstr(t.err.message, path), "%s", sentence);
}

static void test_large_programs(void)
{
	check_reads("/usr/local/bin/k0s", DEP_ONE, "k0s's program is read once in a check");
	check_reads("/usr/local/bin/k3s", USAGE, "so is k3s's");
	check_too_large("/usr/local/bin/k0s", DEP_ONE,
	                "a k0s that is too large to be looked through is refused for that");
	check_too_large("/usr/local/bin/k3s", USAGE, "so is a k3s");
}

int main(void)
{
	test_k3s();
	test_k3s_refused();
	test_k3s_unit();
	test_k3s_dropins();
	test_k3s_releases();
	test_rke2();
	test_k0s();
	test_large_programs();
	return tap_done();
}
