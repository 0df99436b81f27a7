/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edits of containerd's configuration, as texts, for containerd 1.6, 1.7, 2.0 to 2.2 and 2.3. That
 * the real ones read them is seen by the tests that run them.
 */
#include "builder/containerd-config.h"
#include "fake-rootfs.h"
#include "tap.h"

#define MAIN   CONTAINERD_MAIN_PATH
#define DROPIN "/etc/containerd/conf.d/" CONTAINERD_DROPIN_NAME
#define CRI2   "plugins.\"io.containerd.grpc.v1.cri\".containerd"
#define CRI3   "plugins.\"io.containerd.cri.v1.runtime\".containerd"
#define TYPE   "runtime_type = \"io.containerd.runc.v2\""
#define BINARY "/usr/bin/nvidia-container-runtime"

/* One plan: what was read, and what shall be written. */
struct run {
	struct containerd_files files;
	struct containerd_edits edits;
	struct error err;
	int rc;
};

static void free_run(struct run *r)
{
	containerd_files_free(&r->files);
	containerd_edits_free(&r->edits);
	error_free(&r->err);
}
#define CLEANUP_RUN CLEANUP(free_run)

static struct run plan_with(const struct fake_file *table, int major, int minor,
                            const struct containerd_runtime *runtime)
{
	struct fake_rootfs root = fake_rootfs(table);
	struct run r = {0};

	/* before 1.6.30; from 1.7.16 on */
	r.files.globs =
		major < 2 && minor < 7 ? CONTAINERD_GLOBS_FROM_ROOT : CONTAINERD_GLOBS_FROM_FILE;
	r.rc = containerd_files_read(&r.files, &root.base, MAIN, &r.err);
	if (r.rc == 0)
		r.rc = containerd_plan_edits(&r.edits, &r.files, major, minor, runtime, &r.err);
	return r;
}

static char systemd_cgroup[] = "SystemdCgroup = true", binary_name[] = "BinaryName = \"/x\"",
	    no_root[] = "Root = \"\"";
static char *runc_options[] = {binary_name, no_root, systemd_cgroup, NULL};
static const struct strv options = {runc_options, 3};
static const struct containerd_runtime nvidia = {"nvidia", BINARY, &options, false};
static const struct containerd_runtime nvidia_default = {"nvidia", BINARY, &options, true};

static struct run plan(const struct fake_file *table, int major, int minor)
{
	return plan_with(table, major, minor, &nvidia);
}

static const char *text_of(const struct run *r, const char *path)
{
	for (size_t i = 0; i < r->edits.count; i++)
		if (strcmp(r->edits.items[i].path, path) == 0)
			return r->edits.items[i].text;
	return NULL;
}

/* What a text says, flattened, for what stands where is the business of test_toml. */
static bool says(const char *text, const char *line)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TOML struct toml *toml = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (!text || toml_parse(&toml, text, "f", &err) < 0)
		return false;
	toml_flatten(&toml->root, &lines);
	return strv_has(&lines, line);
}

static bool has_note(const struct run *r, const char *words)
{
	for (size_t i = 0; i < r->edits.notes.count; i++)
		if (strstr(r->edits.notes.items[i], words))
			return true;
	return false;
}

static bool has_nvidia(const char *text, const char *cri)
{
	CLEANUP_FREE char *type = str_format("%s.runtimes.nvidia." TYPE, cri);
	CLEANUP_FREE char *binary =
		str_format("%s.runtimes.nvidia.options.BinaryName = \"" BINARY "\"", cri);
	CLEANUP_FREE char *cgroup =
		str_format("%s.runtimes.nvidia.options.SystemdCgroup = true", cri);

	return says(text, type) && says(text, binary) && says(text, cgroup) &&
	       !strstr(text, "default_runtime_name = \"nvidia\"");
}

static void show(const struct run *r)
{
	printf("# rc %d %s\n", r->rc, r->err.message ? r->err.message : "");
	for (size_t i = 0; i < r->edits.count; i++)
		printf("# %s\n%s\n", r->edits.items[i].path, r->edits.items[i].text);
}

/* --- no file ------------------------------------------------------------------------------ */

static void test_none(void)
{
	static const struct fake_file none[] = {{"/etc/x", ""}, {0}};
	CLEANUP_RUN struct run v16 = plan(none, 1, 6), v17 = plan(none, 1, 7);
	CLEANUP_RUN struct run v20 = plan(none, 2, 0), v23 = plan(none, 2, 3);
	const char *text = text_of(&v16, MAIN);

	check(v16.files.version == 0 && !v16.files.main_exists, "no file has no version");
	check(v16.rc == 0 && v16.edits.count == 1 && v16.edits.items[0].is_new &&
	              says(text, "version = 2") && has_nvidia(text, CRI2),
	      "1.6 without a file gets one of version 2 with the runtime inside");
	check(text && says(text, CRI2 ".runtimes.runc." TYPE) &&
	              says(text, CRI2 ".runtimes.runc.options.SystemdCgroup = true") &&
	              !strstr(text, "sandbox_mode"),
	      "and with runc, which containerd 1.x would drop from its defaults");
	check(says(text_of(&v17, MAIN), CRI2 ".runtimes.runc.sandbox_mode = \"podsandbox\""),
	      "1.7's runc keeps its sandbox mode");
	text = text_of(&v20, MAIN);
	check(v20.edits.count == 2 && says(text, "version = 3") &&
	              says(text, "imports = [\"/etc/containerd/conf.d/*.toml\"]") &&
	              !strstr(text, "runtimes"),
	      "2.0 without a file gets one of version 3 that imports drop-ins");
	text = text_of(&v20, DROPIN);
	check(says(text, "version = 3") && has_nvidia(text, CRI3) && !strstr(text, "runc]"),
	      "and the runtime in a drop-in of version 3");
	check(says(text_of(&v23, MAIN), "version = 4") &&
	              says(text_of(&v23, DROPIN), "version = 4") &&
	              has_nvidia(text_of(&v23, DROPIN), CRI3),
	      "2.3 gets version 4 in both");
}

/* --- version 2, as Debian ships it ---------------------------------------------------------- */

static const char debian[] = "version = 2\n\n"
			     "[plugins]\n"
			     "  [plugins.\"io.containerd.grpc.v1.cri\"]\n"
			     "    [plugins.\"io.containerd.grpc.v1.cri\".cni]\n"
			     "      bin_dir = \"/usr/lib/cni\"\n"
			     "      conf_dir = \"/etc/cni/net.d\"\n"
			     "  [plugins.\"io.containerd.internal.v1.opt\"]\n"
			     "    path = \"/var/lib/containerd/opt\"\n";

static void test_debian(void)
{
	static const struct fake_file table[] = {{MAIN, debian}, {0}};
	CLEANUP_RUN struct run v16 = plan(table, 1, 6), v21 = plan(table, 2, 1),
			       v23 = plan(table, 2, 3);
	const char *want =
		"version = 2\n\n"
		"[plugins]\n"
		"  [plugins.\"io.containerd.grpc.v1.cri\"]\n"
		"    [plugins.\"io.containerd.grpc.v1.cri\".cni]\n"
		"      bin_dir = \"/usr/lib/cni\"\n"
		"      conf_dir = \"/etc/cni/net.d\"\n\n"
		"    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
		"      runtime_type = \"io.containerd.runc.v2\"\n\n"
		"      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n"
		"        SystemdCgroup = true\n\n"
		"    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n"
		"      runtime_type = \"io.containerd.runc.v2\"\n\n"
		"      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n"
		"        BinaryName = \"/usr/bin/nvidia-container-runtime\"\n"
		"        SystemdCgroup = true\n\n"
		"  [plugins.\"io.containerd.internal.v1.opt\"]\n"
		"    path = \"/var/lib/containerd/opt\"\n";

	check(v16.edits.count == 1, "1.6 edits a file without imports in place");
	check_str(text_of(&v16, MAIN), want, "and only adds to it, in its style");
	check(v21.edits.count == 2 && has_nvidia(text_of(&v21, DROPIN), CRI2) &&
	              says(text_of(&v21, DROPIN), "version = 2"),
	      "2.1 gets a drop-in of version 2, since the file that imports it has that");
	check(says(text_of(&v21, MAIN), "imports = [\"/etc/containerd/conf.d/*.toml\"]") &&
	              says(text_of(&v21, MAIN), "version = 2") &&
	              strstr(text_of(&v21, MAIN), debian + strlen("version = 2\n")),
	      "which one line more imports");
	check(says(text_of(&v23, DROPIN), "version = 2"), "and so does 2.3");
}

static bool reads(const struct run *r, const char *path)
{
	for (size_t i = 0; i < r->files.count; i++)
		if (strcmp(r->files.items[i].path, path) == 0)
			return true;
	return false;
}

static void test_imports(void)
{
	static const char main_text[] =
		"version = 2\nimports = ['sub/*.toml', \"/etc/containerd/conf.d/*.toml\", "
		"\"/none/*.toml\", \"own.toml\"]\n";
	static const char own[] = "[" CRI2 ".runtimes.runc]\n" TYPE "\n[" CRI2
				  ".runtimes.runc.options]\nSystemdCgroup = true\n";
	static const struct fake_file table[] = {
		{MAIN, main_text},
		{"/etc/containerd/own.toml", own},
		{"/etc/containerd/sub/a.toml", "imports = ['../own.toml', '../config.toml']\n"},
		{"/etc/containerd/conf.d/b.toml", ""},
		{0}};
	CLEANUP_RUN struct run v16 = plan(table, 1, 6), v20 = plan(table, 2, 0);
	CLEANUP_RUN struct run v17 = plan(table, 1, 7);

	check(v17.files.count == 4 && v17.files.imports.count == 4,
	      "imports are followed, each file once, and a pattern may match nothing");
	check(v16.files.count == 3 && !reads(&v16, "/etc/containerd/sub/a.toml"),
	      "a relative pattern does not count from the file before 1.6.30");
	check(reads(&v17, "/etc/containerd/sub/a.toml") &&
	              reads(&v20, "/etc/containerd/sub/a.toml"),
	      "it does from 1.7.16 on, as 2.x has it");
	check(v16.edits.count == 1 && has_nvidia(text_of(&v16, "/etc/containerd/own.toml"), CRI2) &&
	              str_starts(text_of(&v16, "/etc/containerd/own.toml"), own),
	      "1.6 has the runtime in the import whose CRI section replaces the main one's");
	check(v20.edits.count == 1 &&
	              has_nvidia(text_of(&v20, "/etc/containerd/sub/" CONTAINERD_DROPIN_NAME),
	                         CRI2),
	      "2.0 has it in a directory that is imported already, and nothing else changes");
}

/* conf.d/x.toml is no file of 1.6.20's, which looks in /, unless something else imports it. */
static void test_relative_patterns(void)
{
	static const struct fake_file table[] = {
		{MAIN, "version = 2\nimports = ['conf.d/*.toml']\n"},
		{"/etc/containerd/conf.d/x.toml",
	         "disabled_plugins = ['cri']\nimports = ['/none.toml']\n"},
		{"/conf.d/r.toml", "oom_score = 1\n"},
		{0}};
	static const struct fake_file both[] = {
		{MAIN, "version = 2\nimports = ['conf.d/*.toml', 'conf.d/x.toml']\n"},
		{"/etc/containerd/conf.d/x.toml", "imports = ['../y.toml']\n"},
		{"/etc/containerd/y.toml", "[" CRI2 ".runtimes.runc]\n" TYPE "\n"},
		{0}};
	struct fake_rootfs root = fake_rootfs(both), unread = fake_rootfs(table);
	CLEANUP_RUN struct run v16 = plan(table, 1, 6), v17 = plan(table, 1, 7);
	CLEANUP_RUN struct run again = plan(both, 1, 6), unknown = {0}, lost = {0};

	check(v16.rc == 0 && !containerd_cri_disabled(&v16.files) && v16.edits.count == 1,
	      "a file that 1.6.20 does not load neither disables the CRI plugin nor imports");
	check(v16.files.count == 2 && reads(&v16, "/conf.d/r.toml"), "it loads those below /");
	check(v17.rc < 0 && strstr(v17.err.message, "'/none.toml'"),
	      "by a containerd that loads it, what it imports must be there");
	check(again.files.count == 3 && has_nvidia(text_of(&again, "/etc/containerd/y.toml"), CRI2),
	      "imported by another way too, the file and what it imports count");
	unknown.rc = containerd_files_read(&unknown.files, &root.base, MAIN, &unknown.err);
	lost.rc = containerd_files_read(&lost.files, &unread.base, MAIN, &lost.err);
	check(unknown.rc == 0 && unknown.files.count == 3 && lost.rc < 0,
	      "of a containerd that is not known both readings are followed");
}

static void test_more_imports(void)
{
	static const struct fake_file missing[] = {{MAIN, "version = 2\nimports = ['a.toml']\n"},
	                                           {0}};
	static const struct fake_file other[] = {
		{MAIN, "version = 3\nimports = [\n  '/opt/x.toml', # ours\n]\n"},
		{"/opt/x.toml", "version = 3\n"},
		{"/etc/containerd/conf.d/old.toml", "version = 3\n"},
		{0}};
	static const struct fake_file high[] = {{MAIN, "version = 2\nimports = ['d/*.toml']\n"},
	                                        {"/etc/containerd/d/x.toml", "version = 3\n"},
	                                        {0}};
	CLEANUP_RUN struct run lost = plan(missing, 2, 0), kept = plan(other, 2, 2);
	CLEANUP_RUN struct run rising = plan(high, 2, 3);

	check(lost.rc < 0 && error_exit_code(&lost.err) == EXIT_INPUT &&
	              strstr(lost.err.message, "'/etc/containerd/a.toml'") && lost.err.hint,
	      "an import that is missing is refused by name, with the cure");
	check_str(text_of(&kept, MAIN),
	          "version = 3\nimports = [\n  '/opt/x.toml', # ours\n  \"" DROPIN "\",\n]\n",
	          "what is imported stays; a directory with sleeping files is not woken up");
	check(has_note(&kept, "/etc/containerd/conf.d/old.toml"), "and that is told");
	check(text_of(&rising, "/etc/containerd/d/" CONTAINERD_DROPIN_NAME) &&
	              rising.edits.count == 1 && has_note(&rising, "higher than the 2"),
	      "a relative directory is used by 2.x, and a version that is too high is told");
}

static void test_byte_order_mark(void)
{
	static const struct fake_file bare[] = {{MAIN, "\xef\xbb\xbfversion = 2\r\n"}, {0}};
	static const struct fake_file listed[] = {
		{MAIN, "\xef\xbb\xbf# mine\n\nversion = 2\nimports = []\n"}, {0}};
	static const struct fake_file inside[] = {{MAIN, "version = 2\n\xef\xbb\xbfroot = '/x'\n"},
	                                          {0}};
	CLEANUP_RUN struct run v16 = plan(bare, 1, 6), v21 = plan(bare, 2, 1);
	CLEANUP_RUN struct run kept = plan(listed, 2, 1), wrong = plan(inside, 1, 6);

	check(v16.files.version == 2 &&
	              str_starts(text_of(&v16, MAIN), "\xef\xbb\xbfversion = 2\r\n") &&
	              has_nvidia(text_of(&v16, MAIN), CRI2),
	      "a byte order mark in front, as 1.x takes it, is read past and kept");
	check(str_starts(text_of(&v21, MAIN), "\xef\xbb\xbf") &&
	              says(text_of(&v21, MAIN), "imports = [\"/etc/containerd/conf.d/*.toml\"]"),
	      "also where a first line is added");
	check(str_starts(text_of(&kept, MAIN), "\xef\xbb\xbf# mine\n\nversion = 2\nimports = [\""),
	      "and where one behind a comment is changed");
	check(wrong.rc < 0 && strstr(wrong.err.message, "line 2"), "anywhere else it is refused");
}

/* --- disabled ------------------------------------------------------------------------------- */

static void test_disabled(void)
{
	static const struct fake_file docker[] = {
		{MAIN, "#   Copyright\n\ndisabled_plugins = [\"cri\"]\n\n#root = \"/var/lib\"\n"},
		{0}};
	static const struct fake_file full[] = {
		{MAIN, "version = 2\r\ndisabled_plugins = [\"io.containerd.internal.v1.opt\", "
	               "\"io.containerd.grpc.v1.cri\"]\r\n"},
		{0}};
	CLEANUP_RUN struct run v17 = plan(docker, 1, 7), v21 = plan(docker, 2, 1);
	CLEANUP_RUN struct run v2 = plan(full, 1, 6);
	const char *text = text_of(&v17, MAIN);

	check(v17.files.version == 1 && containerd_cri_disabled(&v17.files),
	      "Docker's file has version 1, and the CRI plugin is disabled in it");
	check(str_starts(text, "#   Copyright\n\ndisabled_plugins = []\n\n#root = \"/var/lib\"\n"),
	      "the plugin is enabled again, and the rest stays");
	check(has_nvidia(text, "plugins.cri.containerd") && !strstr(text, "version"),
	      "and 1.7 gets the runtime in the schema of version 1");
	check(has_note(&v17,
	               "the CRI plugin was disabled in '/etc/containerd/config.toml' (\"cri\""),
	      "and is told of it");
	check(v21.edits.count == 2 && says(text_of(&v21, MAIN), "disabled_plugins = []") &&
	              says(text_of(&v21, DROPIN), "version = 1") &&
	              has_nvidia(text_of(&v21, DROPIN), "plugins.cri.containerd"),
	      "2.1 gets a drop-in of version 1");
	text = text_of(&v2, MAIN);
	check(str_starts(text, "version = 2\r\ndisabled_plugins = "
	                       "[\"io.containerd.internal.v1.opt\"]\r\n") &&
	              has_nvidia(text, CRI2),
	      "other disabled plugins stay disabled");
	for (text = strchr(text, '\n'); text && text[-1] == '\r'; text = strchr(text + 1, '\n'))
		;
	check(!text, "and every line keeps its CRLF");
}

/* --- files that have runtimes ----------------------------------------------------------------- */

static const char runtimes[] =
	"version = 2\n" /* an excerpt of 'containerd config default' of 1.7 */
	"[plugins]\n\n"
	"  [plugins.\"io.containerd.grpc.v1.cri\"]\n"
	"    sandbox_image = \"registry.k8s.io/pause:3.8\"\n\n"
	"    [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
	"      default_runtime_name = \"runc\" # kept\n\n"
	"      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes]\n\n"
	"        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
	"          runtime_type = \"io.containerd.runc.v2\"\n\n"
	"          [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n"
	"            SystemdCgroup = true\n"
	"            # ShimCgroup = \"\"\n\n"
	"    [plugins.\"io.containerd.grpc.v1.cri\".registry]\n"
	"      config_path = \"\"\n";
static const char added[] =
	"            # ShimCgroup = \"\"\n\n"
	"        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n"
	"          runtime_type = \"io.containerd.runc.v2\"\n\n"
	"          [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n"
	"            BinaryName = \"/usr/bin/nvidia-container-runtime\"\n"
	"            SystemdCgroup = true\n\n"
	"    [plugins.\"io.containerd.grpc.v1.cri\".registry]\n";

static void test_runtimes(void)
{
	static const struct fake_file table[] = {{MAIN, runtimes}, {0}};
	CLEANUP_RUN struct run v17 = plan(table, 1, 7);
	CLEANUP_RUN struct run chosen = plan_with(table, 1, 7, &nvidia_default);
	CLEANUP_RUN struct run chosen2 = plan_with(table, 2, 1, &nvidia_default);
	const char *text = text_of(&v17, MAIN);

	if (!check(text && strstr(text, added) &&
	                   strlen(text) - strlen(runtimes) ==
	                           strlen(added) - strlen("            # ShimCgroup = \"\"\n\n") -
	                                   strlen("    [plugins.\"io.containerd.grpc.v1.cri\".registry]\n"),
	           "the runtime stands beside runc, and nothing else changes"))
		show(&v17);
	check(text && strstr(text, "default_runtime_name = \"runc\" # kept"),
	      "the default runtime is left alone");
	check(text_of(&chosen, MAIN) &&
	              strstr(text_of(&chosen, MAIN), "default_runtime_name = \"nvidia\" # kept"),
	      "unless it was asked for");
	check(text_of(&chosen2, MAIN) &&
	              strstr(text_of(&chosen2, MAIN), "default_runtime_name = \"nvidia\" # kept") &&
	              has_nvidia(text_of(&chosen2, DROPIN), CRI2),
	      "and in 2.x it is changed in the file that names it");
}

static void test_default(void)
{
	static const struct fake_file none[] = {{"/etc/x", ""}, {0}};
	static const struct fake_file table[] = {{MAIN, "version = 3\n"}, {0}};
	CLEANUP_RUN struct run v16 = plan_with(none, 1, 6, &nvidia_default);
	CLEANUP_RUN struct run v20 = plan_with(table, 2, 0, &nvidia_default);

	check(says(text_of(&v16, MAIN), CRI2 ".default_runtime_name = \"nvidia\""),
	      "a new file names the default runtime if that was asked for");
	check(says(text_of(&v20, DROPIN), CRI3 ".default_runtime_name = \"nvidia\"") &&
	              !strstr(text_of(&v20, MAIN), "default"),
	      "and so does a drop-in");
}

static void test_versions(void)
{
	static const struct fake_file three[] = {
		{MAIN,
	         "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n"
	         "runtime_type = 'io.containerd.runc.v2'\n"},
		{0}};
	static const struct fake_file four[] = {{MAIN, "version = 4\n"}, {0}};
	CLEANUP_RUN struct run v22 = plan(three, 2, 2), v23 = plan(three, 2, 3);
	CLEANUP_RUN struct run new = plan(four, 2, 3), old = plan(four, 2, 2),
			       older = plan(three, 1, 7);

	check(says(text_of(&v22, DROPIN), "version = 3") &&
	              has_nvidia(text_of(&v22, DROPIN), CRI3) &&
	              says(text_of(&v23, DROPIN), "version = 3"),
	      "a version 3 file gets a drop-in of version 3, in 2.3 too");
	check(says(text_of(&new, DROPIN), "version = 4") && has_nvidia(text_of(&new, DROPIN), CRI3),
	      "a version 4 file gets one of version 4");
	check(old.rc < 0 && error_exit_code(&old.err) == EXIT_INPUT &&
	              strstr(old.err.message, "version = 4, which containerd 2.2 does not read"),
	      "a version that this containerd does not read is refused");
	check(older.rc < 0, "version 3 is refused for 1.7");
}

/* --- the runtime is there -----------------------------------------------------------------------
 */

static void test_existing(void)
{
	static const char good[] =
		"version = 2\n[" CRI2 ".runtimes.nvidia]\n" TYPE "\n[" CRI2
		".runtimes.nvidia.options]\nBinaryName = '" BINARY "'\nSystemdCgroup = true\n";
	static const char wrong[] = "version = 2\n[" CRI2 ".runtimes.nvidia]\n  # mine\n[" CRI2
				    ".runtimes.nvidia.options]\n  BinaryName = '/old' # moved\n";
	static const struct fake_file right_table[] = {{MAIN, good}, {0}};
	static const struct fake_file wrong_table[] = {{MAIN, wrong}, {0}};
	static const struct fake_file two[] = {{MAIN, "version = 2\nimports = ['/d/*.toml']\n"},
	                                       {"/d/a.toml", good},
	                                       {"/d/b.toml", wrong},
	                                       {0}};
	CLEANUP_RUN struct run right = plan(right_table, 1, 7), right2 = plan(right_table, 2, 1);
	CLEANUP_RUN struct run mended = plan(wrong_table, 1, 7), mended2 = plan(two, 2, 1);

	check(right.rc == 0 && right.edits.count == 0 && right.edits.notes.count == 0 &&
	              right2.rc == 0 && right2.edits.count == 0,
	      "a runtime that is right already needs no edits");
	check_str(text_of(&mended, MAIN),
	          "version = 2\n[" CRI2 ".runtimes.nvidia]\n" TYPE "\n  # mine\n[" CRI2
	          ".runtimes.nvidia.options]\n  BinaryName = \"" BINARY
	          "\" # moved\n  SystemdCgroup = true\n",
	          "a wrong binary and missing keys are mended in place");
	check(has_note(&mended, "was not as it must be"), "and that is told");
	check(mended2.edits.count == 1 && text_of(&mended2, "/d/b.toml") &&
	              !strstr(text_of(&mended2, "/d/b.toml"), "runtime_type"),
	      "2.x: in the last file that has it, and only what is not so by an earlier one");
}

static void test_writing(void)
{
	static const struct fake_file dotted[] = {
		{MAIN, "version = 2\nplugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc."
	               "runtime_type = 'io.containerd.runc.v2'\n\n[grpc]\ngid = 0\n"},
		{0}};
	static const struct fake_file body[] = {
		{MAIN, "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\n"
	               "  runtimes.nvidia.runtime_type = 'x'\n"},
		{0}};
	CLEANUP_RUN struct run by_dots = plan(dotted, 1, 7), by_body = plan(body, 1, 7);

	check_str(text_of(&by_dots, MAIN),
	          "version = 2\nplugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc."
	          "runtime_type = 'io.containerd.runc.v2'\n\n"
	          "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia]\n" TYPE "\n\n"
	          "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia.options]\n"
	          "BinaryName = \"" BINARY "\"\nSystemdCgroup = true\n\n[grpc]\ngid = 0\n",
	          "a file with dotted keys gets a table, quoted as it quotes");
	check(has_nvidia(text_of(&by_body, MAIN), CRI2) &&
	              strstr(text_of(&by_body, MAIN), "  runtimes.nvidia." TYPE "\n"),
	      "a runtime in dotted keys is mended in place");
}

static void refuses(const char *text, const char *words, const char *what)
{
	const struct fake_file table[] = {{MAIN, text}, {0}};
	CLEANUP_RUN struct run r = plan(table, 1, 7);

	if (!check(r.rc < 0 && error_exit_code(&r.err) == EXIT_INPUT &&
	                   strstr(r.err.message, words) && strstr(r.err.message, "'" MAIN "'"),
	           "refused with file and line: %s", what))
		show(&r);
}

static void test_refused(void)
{
	refuses("version = 2\n[plugins]\n\"io.containerd.grpc.v1.cri\" = {containerd = {}}\n",
	        "line 3", "a CRI section in braces");
	refuses("version = 2\n[" CRI2 "]\nruntimes = {runc = {}}\n", "line 3",
	        "runtimes in braces");
	refuses("version = 2\n[" CRI2 ".runtimes]\nnvidia = {}\n", "line 3",
	        "the runtime in braces");
	refuses("version = 2\n[[plugins.\"io.containerd.grpc.v1.cri\".containerd]]\n", "line 2",
	        "an array of tables");
	refuses("version = 'two'\n", "line 1", "a version that is no number");
	refuses("version = 2\nversion = 2\n", "line 2", "what is no TOML");
	refuses("imports = 'x'\n", "its imports are no list of strings",
	        "imports that are no list");
	refuses("imports = [1]\n", "its imports are no list of strings",
	        "imports that are no strings");
	refuses("version = 2\ndisabled_plugins = ['io.containerd.grpc.v1.cri' # x\n, 'a']\n",
	        "line 2", "a comment before a comma");
}

/* --- dumps ------------------------------------------------------------------------------------ */

#define DUMP_HEAD                                                                                  \
	"version = 3\nroot = '/var/lib/containerd'\ndisabled_plugins = []\nimports = []\n[" CRI3   \
	"]\n"
#define DUMP_RUNC                                                                                  \
	"[" CRI3 ".runtimes.runc]\n" TYPE "\nsnapshotter = ''\n[" CRI3                             \
	".runtimes.runc.options]\nBinaryName = ''\nSystemdCgroup = true\n"
#define DUMP_NVIDIA                                                                                \
	"[" CRI3 ".runtimes.nvidia]\n" TYPE "\n[" CRI3                                             \
	".runtimes.nvidia.options]\nBinaryName = '" BINARY "'\nSystemdCgroup = true\n"
#define DUMP_CRUN                                                                                  \
	"default_runtime_name = 'crun'\n[" CRI3 ".runtimes.crun]\n" TYPE "\n[" CRI3                \
	".runtimes.crun.options]\nBinaryName = '/usr/bin/crun'\nSystemdCgroup = true\n"
#define DUMP_RUNC_DEFAULT   "default_runtime_name = 'runc'\n"
#define DUMP_NVIDIA_DEFAULT "default_runtime_name = 'nvidia'\n"

/* All that a judgement said, or "". */
static char *judge(const char *before_text, const char *after_text,
                   const struct containerd_runtime *runtime)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONTAINERD_DUMP struct containerd_dump before = {0}, after = {0};
	CLEANUP_STRV struct strv told = {0};

	if (containerd_dump_parse(&before, before_text, &err) < 0 ||
	    containerd_dump_parse(&after, after_text, &err) < 0)
		return str_copy(err.message);
	containerd_dump_judge(&before, &after, runtime, &told);
	return strv_join(&told, "; ");
}

static void judges(const char *before, const char *after, const struct containerd_runtime *runtime,
                   const char *want, const char *what)
{
	CLEANUP_FREE char *got = judge(before, after, runtime);

	check_str(got, want, "%s", what);
}

static const char before[] = DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC;

static void test_dump(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONTAINERD_DUMP struct containerd_dump dump = {0}, empty = {0}, crun = {0};
	CLEANUP_STRV struct strv names = {0}, of_runc = {0}, model = {0};
	CLEANUP_FREE char *chosen = NULL;

	check(containerd_dump_parse(&dump, DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA,
	                            &err) == 0 &&
	              dump.version == 3 && dump.cri,
	      "a dump is read");
	names = containerd_dump_runtimes(&dump);
	check(names.count == 2 && str_equal(names.items[0], "nvidia"), "with its runtimes");
	of_runc = containerd_dump_options(&dump, "runc");
	check(of_runc.count == 1 && str_equal(of_runc.items[0], "SystemdCgroup = true"),
	      "and the options of each, without the binary");
	chosen = containerd_dump_default(&dump);
	check_str(chosen, "runc", "and the default one");
	check(containerd_dump_parse(&empty, "version = 2\n", &err) == 0 && !empty.cri,
	      "a dump may have no CRI section");
	check(containerd_dump_parse(&crun, DUMP_HEAD DUMP_CRUN, &err) == 0, "or no runc");
	model = containerd_dump_model(&crun);
	check(model.count == 1 && str_equal(model.items[0], "SystemdCgroup = true"),
	      "then the default runtime's options are the ones to take over");
}

static void test_judge(void)
{
	judges(before, DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA, &nvidia, "",
	       "what is as it shall be is good");
	judges(before,
	       "version = 3\nroot = '/var/lib/containerd'\nimports = ['/x']\n[" CRI3
	       "]\n" DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA,
	       &nvidia, "", "other imports and empty keys are no difference");
	judges(before, before, &nvidia, "containerd has no runtime 'nvidia'",
	       "a runtime that is missing");
	judges(before,
	       DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC "[" CRI3 ".runtimes.nvidia.options]\n"
	                                             "BinaryName = '/x'\n",
	       &nvidia,
	       "the runtime 'nvidia' has no runtimes.nvidia.runtime_type; the runtime 'nvidia' has "
	       "runtimes.nvidia.options.BinaryName = \"/x\" and not \"" BINARY
	       "\"; the runtime 'nvidia' has no runtimes.nvidia.options.SystemdCgroup",
	       "all that the runtime lacks is told");
	judges(before, DUMP_HEAD DUMP_NVIDIA_DEFAULT DUMP_RUNC DUMP_NVIDIA, &nvidia,
	       "the default runtime was 'runc' and is 'nvidia'", "a default that nobody asked for");
	judges(before, DUMP_HEAD DUMP_NVIDIA_DEFAULT DUMP_RUNC DUMP_NVIDIA, &nvidia_default, "",
	       "a default that was asked for is good");
	judges(before, DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA, &nvidia_default,
	       "the default runtime is 'runc' and not 'nvidia'", "a default that was not set");
	judges(before, DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_NVIDIA, &nvidia,
	       "'" CRI3
	       ".runtimes.runc.options.SystemdCgroup = true' is not in effect any more; '" CRI3
	       ".runtimes.runc." TYPE "' is not in effect any more",
	       "a runc that was dropped is told");
	judges(before, DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA "[debug]\nlevel = 'x'\n",
	       &nvidia, "'debug.level = \"x\"' is in effect, and was not before",
	       "what is new besides is told");
	judges(before, "version = 3\n", &nvidia,
	       "containerd shows no configuration of the CRI plugin", "no CRI section at all");
}

static void test_judge_disabled(void)
{
	static const char off[] = "version = 3\nroot = '/var/lib/containerd'\n"
				  "disabled_plugins = ['io.containerd.grpc.v1.cri', 'a.b']\n";
	static const char on[] = "version = 3\nroot = '/var/lib/containerd'\ndisabled_plugins = "
				 "['a.b']\n[" CRI3 "]\n" DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA;

	judges(off, on, &nvidia, "",
	       "a CRI plugin that was disabled shows itself, and that is good");
	judges(off, DUMP_HEAD DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA, &nvidia,
	       "the disabled plugins were [\"a.b\"] and are []",
	       "another that was enabled is told");
	judges(before,
	       "version = 3\nroot = '/var/lib/containerd'\ndisabled_plugins = ['cri']\n[" CRI3
	       "]\n" DUMP_RUNC_DEFAULT DUMP_RUNC DUMP_NVIDIA,
	       &nvidia, "the CRI plugin is disabled", "a CRI plugin that is disabled is told");
}

int main(void)
{
	test_none();
	test_debian();
	test_imports();
	test_relative_patterns();
	test_more_imports();
	test_byte_order_mark();
	test_disabled();
	test_runtimes();
	test_default();
	test_versions();
	test_existing();
	test_writing();
	test_refused();
	test_dump();
	test_judge();
	test_judge_disabled();
	return tap_done();
}
