/* SPDX-License-Identifier: Apache-2.0 */
/* DKMS as versions 2.8.7, 3.0.10 and 3.2.2 behave, in a root whose programs are the test's. */
#include <fcntl.h>

#include "builder/driver-dkms.h"
#include "builder/proc.h"
#include "script-rootfs.h"
#include "tap.h"

#define SOURCE   "/var/lib/dkms/nvidia-current/535.309.01/source"
#define MAKE_LOG "/var/lib/dkms/nvidia-current/535.309.01/build/make.log"
#define KEY      "/var/lib/dkms/mok.key"
#define CONF_DIR "/etc/dkms/framework.conf.d"
#define OLD      "6.1.0-56-amd64"
#define NEW      "6.1.0-57-amd64"
#define RT       "6.1.0-57-rt-amd64"

/* How this DKMS behaves. */
struct world {
	const char *version;       /* what --version says */
	const char *fails;         /* kernel whose build fails */
	int status;                /* with this */
	const char *says;          /* and these words */
	const char *make_log;      /* and this log */
	bool lies, forgets_depmod; /* exit 0, and nothing is installed, or not listed */
	bool hangs;
	bool had_conf; /* our configuration was there while it built */
};

static void install(struct script_rootfs *s, const struct world *w, const char *kernel)
{
	static const char *const modules[] = {"nvidia-current", "nvidia-current-uvm"};
	CLEANUP_FREE char *dep = str_format("/lib/modules/%s/modules.dep", kernel);

	for (size_t i = 0; i < 2; i++) {
		CLEANUP_FREE char *path =
			str_format("/lib/modules/%s/updates/dkms/%s.ko", kernel, modules[i]);

		if (!w->lies)
			script_file_put(s, path, "module");
	}
	script_file_put(s, dep,
	                w->forgets_depmod ? "kernel/fs/ext4.ko:\n"
	                                  : "kernel/fs/ext4.ko:\n"
	                                    "updates/dkms/nvidia-current-uvm.ko: x.ko\n"
	                                    "updates/dkms/nvidia-current.ko: kernel/fs/ext4.ko\n");
}

static void build(struct script_rootfs *s, const char *kernel)
{
	static const char *const files[] = {"nvidia-current.ko", "nvidia-current-uvm.ko",
	                                    "Module.symvers"};

	for (size_t i = 0; i < 3; i++) {
		CLEANUP_FREE char *path =
			str_format("/var/lib/dkms/nvidia-current/535.309.01/%s/x86_64/module/%s",
		                   kernel, files[i]);

		script_file_put(s, path, "module");
	}
}

static int dkms(struct script_rootfs *s, const char *command, char **ret_output)
{
	struct world *w = s->opaque;
	CLEANUP_STRV struct strv words = strv_split(command, " ");
	const char *kernel = words.count > 7 ? words.items[7] : NULL;

	if (!str_starts(command, "/usr/sbin/dkms "))
		return 0;
	if (str_equal(words.items[1], "--version")) {
		*ret_output = str_copy(w->version);
		return 0;
	}
	if (w->hangs)
		return -1;
	w->had_conf = script_has(s, CONF_DIR "/zz-gpuimg.conf");
	if (str_equal(words.items[1], "build") && str_equal(kernel, w->fails)) {
		*ret_output = str_copy(w->says ? w->says : "");
		if (w->make_log)
			script_file_put(s, MAKE_LOG, w->make_log);
		return w->status;
	}
	if (str_equal(words.items[1], "build"))
		build(s, kernel);
	else
		install(s, w, kernel);
	return 0;
}

static void put_kernel(struct script_rootfs *s, const char *kernel, bool headers)
{
	CLEANUP_FREE char *builtin = str_format("/lib/modules/%s/modules.builtin", kernel);
	CLEANUP_FREE char *link = str_format("/lib/modules/%s/build", kernel);
	CLEANUP_FREE char *target = str_format("/usr/src/linux-headers-%s", kernel);
	CLEANUP_FREE char *config = str_format("%s/include/config/auto.conf", target);

	script_file_put(s, builtin, "");
	script_put(s, link, S_IFLNK | 0777, target); /* as of a kernel package, dangling */
	if (headers)
		script_file_put(s, config, "");
}

static struct script_rootfs new_root(struct world *w)
{
	struct script_rootfs s = script_rootfs(dkms, w);

	if (!w->version)
		w->version = "dkms-3.0.10\n";
	script_file_put(&s, "/usr/sbin/dkms", "#!/bin/bash\n");
	script_put(&s, SOURCE, S_IFLNK | 0777, "/usr/src/nvidia-current-535.309.01");
	script_file_put(&s, "/usr/src/nvidia-current-535.309.01/dkms.conf",
	                "PACKAGE_NAME=\"nvidia-current\"\n"
	                "BUILD_EXCLUSIVE_KERNEL=\"^(3\\.[1-9][0-9]|[4-9]\\.)\"\n"
	                "BUILD_EXCLUSIVE_CONFIG=\"!CONFIG_PREEMPT_RT !CONFIG_PREEMPT_RT_FULL\"\n");
	put_kernel(&s, OLD, true);
	put_kernel(&s, NEW, true);
	return s;
}

static struct driver_plan plan_of(struct driver_kernel *kernels, size_t count)
{
	return (struct driver_plan){.kernels = kernels, .kernel_count = count};
}

static char old_name[] = OLD, new_name[] = NEW, rt_name[] = RT;

static void test_two_kernels(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct driver_kernel kernels[] = {{.version = old_name, .how = DRIVER_DKMS},
	                                  {.version = new_name, .how = DRIVER_DKMS}};
	struct driver_plan plan = plan_of(kernels, 2);
	struct world w = {0};
	struct script_rootfs s = new_root(&w);
	int result = driver_dkms_build(&s.base, &plan, NULL, &err);

	if (!check(result == 0, "modules of both kernels are built"))
		printf("# %s\n", err.message);
	check(script_ran(&s, "/usr/sbin/dkms build -m nvidia-current -v 535.309.01 -k " OLD) &&
	              script_ran(&s,
	                         "/usr/sbin/dkms build -m nvidia-current -v 535.309.01 -k " NEW),
	      "each kernel is built by its name");
	check(script_ran(&s, "/usr/sbin/dkms install -m nvidia-current -v 535.309.01 -k " NEW
	                     " --force"),
	      "and installed over what is there already");
	check(s.last_timeout_ms > 0 && s.last_timeout_ms <= 3600000, "within an hour");
	check(w.had_conf, "links and transactions are switched off while it builds");
	check(!script_has(&s, CONF_DIR "/zz-gpuimg.conf") && !rootfs_is_dir(&s.base, CONF_DIR),
	      "and nothing of that stays, nor a directory that was not there");
	rootfs_close(&s.base);
}

static void test_nothing_to_do(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct driver_kernel kernels[] = {{.version = old_name, .how = DRIVER_PREBUILT}};
	struct driver_plan plan = plan_of(kernels, 1);
	struct world w = {0};
	struct script_rootfs s = new_root(&w);

	check(driver_dkms_build(&s.base, &plan, NULL, &err) == 0 && s.commands.count == 0,
	      "nothing is run where every kernel has prebuilt modules");
	rootfs_close(&s.base);
}

/* One kernel: the message, the hint behind " # ", and the exit code. */
static char *failure_of(struct script_rootfs *s, char *kernel)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct driver_kernel kernels[] = {{.version = kernel, .how = DRIVER_DKMS}};
	struct driver_plan plan = plan_of(kernels, 1);

	if (driver_dkms_build(&s->base, &plan, NULL, &err) == 0)
		return str_copy("built");
	return str_format("%s # %s # %d", err.message, err.hint ? err.hint : "",
	                  (int)error_exit_code(&err));
}

static void test_headers(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct driver_kernel kernels[] = {{.version = old_name, .how = DRIVER_DKMS},
	                                  {.version = new_name, .how = DRIVER_DKMS},
	                                  {.version = rt_name, .how = DRIVER_DKMS}};
	struct driver_plan plan = plan_of(kernels, 3);
	struct world w = {0};
	struct script_rootfs s = new_root(&w);

	script_drop(&s, "/usr/src/linux-headers-" NEW);
	put_kernel(&s, RT, false);
	check(driver_dkms_build(&s.base, &plan, NULL, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && strstr(err.message, NEW) &&
	              strstr(err.message, RT) && !strstr(err.message, OLD),
	      "every kernel without headers is named, and no other");
	check(err.hint && strstr(err.hint, "linux-headers-" NEW " linux-headers-" RT),
	      "the cure names their packages");
	check(s.commands.count == 0, "before anything is compiled");
	rootfs_close(&s.base);
}

static void test_excluded(const char *version, int status)
{
	struct world w = {.version = version,
	                  .fails = RT,
	                  .status = status,
	                  .says = "Error! The /var/lib/dkms/…/dkms.conf for module nvidia-current "
	                          "includes a BUILD_EXCLUSIVE directive which does not match"};
	struct script_rootfs s = new_root(&w);
	CLEANUP_FREE char *message = NULL;

	put_kernel(&s, RT, true);
	message = failure_of(&s, rt_name);
	check(strstr(message, "kernel '" RT "'") &&
	              strstr(message, "BUILD_EXCLUSIVE_CONFIG=\"!CONFIG_PREEMPT_RT") &&
	              strstr(message, "# 4"),
	      "%s: an excluded kernel is refused with the directive: %s", version, message);
	rootfs_close(&s.base);
}

static void test_excluded_early(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct driver_kernel kernels[] = {{.version = old_name, .how = DRIVER_DKMS},
	                                  {.version = rt_name, .how = DRIVER_DKMS}};
	struct driver_plan plan = plan_of(kernels, 2);
	struct world w = {0};
	struct script_rootfs s = new_root(&w);

	put_kernel(&s, RT, true);
	script_file_put(&s, "/usr/src/linux-headers-" OLD "/.config",
	                "# CONFIG_PREEMPT_RT is not set\nCONFIG_PREEMPT_RT_MORE=y\n");
	script_file_put(&s, "/usr/src/linux-headers-" RT "/.config",
	                "CONFIG_SMP=y\nCONFIG_PREEMPT_RT=y\n");
	check(driver_dkms_build(&s.base, &plan, NULL, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT &&
	              strstr(err.message, "kernel '" RT "'") &&
	              strstr(err.message, "BUILD_EXCLUSIVE_CONFIG: !CONFIG_PREEMPT_RT"),
	      "a kernel that its configuration excludes is refused with the option");
	check(s.commands.count == 0, "before the others are compiled");
	rootfs_close(&s.base);
}

static void test_compile_error(void)
{
	CLEANUP_STRV struct strv lines = {0};
	CLEANUP_FREE char *log = NULL;
	CLEANUP_FREE char *message = NULL;
	struct world w = {.fails = NEW, .status = 10, .says = "Error! Bad return status"};
	struct script_rootfs s;

	for (int i = 1; i <= 40; i++)
		strv_addf(&lines, "line %d\n", i);
	strv_add(&lines, "nv.c:1: error: \033[31mimplicit declaration\n"
	                 "make: *** [Makefile:1: modules] Error 2\n");
	log = strv_join(&lines, "");
	w.make_log = log;
	s = new_root(&w);
	message = failure_of(&s, new_name);
	check(strstr(message,
	             "kernel '" NEW "': module 'nvidia-current' 535.309.01 was not compiled"),
	      "what was not compiled is named, and for which kernel");
	check(strstr(message, "\n  | line 28\n") && !strstr(message, "line 27\n") &&
	              strstr(message, "\n  | make: *** [Makefile:1: modules] Error 2"),
	      "with the last 15 lines of make.log");
	check(!strchr(message, '\033') && strstr(message, "?[31mimplicit"),
	      "of which only what prints");
	check(!script_has(&s, CONF_DIR "/zz-gpuimg.conf"),
	      "after a failure too, nothing of our configuration stays");
	rootfs_close(&s.base);
}

static void test_no_space(void)
{
	struct world w = {.fails = NEW,
	                  .status = 10,
	                  .make_log = "ld: final link failed: No space left on device\n"};
	struct script_rootfs s = new_root(&w);
	CLEANUP_FREE char *message = failure_of(&s, new_name);

	check(strstr(message, "no space left to compile") && strstr(message, "1.0 MiB free") &&
	              strstr(message, "# 3"),
	      "a full file system is told as such: %s", message);
	rootfs_close(&s.base);
}

static void test_lies(void)
{
	struct world absent = {.lies = true}, unlisted = {.forgets_depmod = true};
	struct script_rootfs a = new_root(&absent), u = new_root(&unlisted);
	CLEANUP_FREE char *first = failure_of(&a, new_name);
	CLEANUP_FREE char *second = failure_of(&u, new_name);

	check(strstr(first, "DKMS reports success") && strstr(first, NEW),
	      "exit 0 without a module is a failure");
	check(strstr(second, "modules.dep"), "so is a module that the kernel would not find");
	rootfs_close(&a.base);
	rootfs_close(&u.base);
}

static void test_no_registration(void)
{
	struct world w = {.hangs = true}, none = {0};
	struct script_rootfs s = new_root(&w), without = new_root(&none);
	CLEANUP_FREE char *late = failure_of(&s, new_name);
	CLEANUP_FREE char *message = NULL;

	check(strstr(late, "kernel '" NEW "'") && strstr(late, "did not end in time"),
	      "one that hangs ends with the kernel's name");
	script_drop(&without, SOURCE);
	message = failure_of(&without, new_name);
	check(strstr(message, "no module of NVIDIA's is registered"), "nothing registered is told");
	script_drop(&without, "/usr/sbin/dkms");
	free(STEAL(message));
	message = failure_of(&without, new_name);
	check(strstr(message, "the image has no '/usr/sbin/dkms'"), "so is an image without DKMS");
	rootfs_close(&s.base);
	rootfs_close(&without.base);
}

static void test_initrd(void)
{
	struct world old = {.version = "dkms: 2.8.7\n"}, recent = {.version = "dkms-3.2.2\n"};
	struct script_rootfs o = new_root(&old), r = new_root(&recent);
	CLEANUP_FREE char *first = failure_of(&o, new_name);
	CLEANUP_FREE char *second = failure_of(&r, new_name);

	check_str(first, "built", "DKMS 2 builds");
	check_str(second, "built", "DKMS 3 builds");
	check(script_ran(&o, "/usr/sbin/dkms install -m nvidia-current -v 535.309.01 -k " NEW
	                     " --no-initrd"),
	      "DKMS 2 is told to leave the initramfs alone");
	check(!script_ran(&r, "/usr/sbin/dkms install -m nvidia-current -v 535.309.01 -k " NEW
	                      " --no-initrd"),
	      "DKMS 3, which does so by itself, is not");
	rootfs_close(&o.base);
	rootfs_close(&r.base);
}

static void test_list(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv list = {0};
	CLEANUP_FREE char *joined = NULL;
	struct world w = {0};
	struct script_rootfs s = new_root(&w);

	script_put(&s, "/var/lib/dkms/nvidia-current/kernel-" NEW "-x86_64", S_IFLNK | 0777, "x");
	script_put(&s, "/var/lib/dkms/zfs/2.1.11/source", S_IFLNK | 0777, "/usr/src/zfs");
	script_file_put(&s, "/var/lib/dkms/nvidia-current/original_module/x", "");
	script_file_put(&s, "/var/lib/dkms/nvidia-current/470.1/build/x", "");
	check(driver_dkms_list(&list, &s.base, &err) == 0, "the record is read");
	joined = strv_join(&list, " ");
	check_str(joined, "nvidia-current/535.309.01", "NVIDIA's modules with sources are listed");
	check(driver_dkms_unregister(&s.base, NULL, &err) == 0 &&
	              !rootfs_exists(&s.base, "/var/lib/dkms/nvidia-current") &&
	              script_has(&s, "/var/lib/dkms/zfs/2.1.11/source"),
	      "unregistering takes NVIDIA's away, and no other");
	rootfs_close(&s.base);
}

static void test_key(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct world w = {0};
	struct script_rootfs s = new_root(&w);

	check(!driver_dkms_has_key(&s.base), "a fresh image has no key of DKMS's");
	script_file_put(&s, KEY, "PRIVATE KEY");
	script_file_put(&s, "/var/lib/dkms/mok.pub", "certificate");
	check(driver_dkms_has_key(&s.base) &&
	              driver_dkms_drop_key(&s.base, true, NULL, &err) == 0 && script_has(&s, KEY),
	      "a key that the base had stays");
	check(driver_dkms_drop_key(&s.base, false, NULL, &err) == 0 && !script_has(&s, KEY) &&
	              !script_has(&s, "/var/lib/dkms/mok.pub"),
	      "one that the build made goes, with its certificate");
	script_file_put(&s, "/etc/dkms/framework.conf",
	                "# mok_signing_key=/etc/none\nmok_signing_key=\"/etc/keys/dkms.key\"\n"
	                "mok_certificate=/etc\n");
	script_file_put(&s, "/etc/keys/dkms.key", "PRIVATE KEY");
	check(driver_dkms_drop_key(&s.base, false, NULL, &err) == 0 &&
	              !script_has(&s, "/etc/keys/dkms.key") &&
	              script_has(&s, "/etc/dkms/framework.conf"),
	      "so does one at a place that the image's configuration names, and no directory");
	rootfs_close(&s.base);
}

/* --- the stand-in, run by a real shell --- */

static char *replace_all(const char *text, const char *from, const char *to)
{
	CLEANUP_STRV struct strv parts = {0};
	const char *at;

	for (; (at = strstr(text, from)); text = at + strlen(from))
		strv_take(&parts, mem_copy(text, (size_t)(at - text)));
	strv_add(&parts, text);
	return strv_join(&parts, to);
}

static void write_file(const char *dir, const char *name, const char *text)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	if (fd < 0 || write(fd, text, strlen(text)) < 0) {
		printf("Bail out! cannot write %s\n", path);
		exit(1);
	}
}

static void make_dirs(const char *dir, const char *below)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = str_format("%s/%s", dir, below);

	if (proc_run((const char *const[]){"mkdir", "-p", path, NULL}, &(struct proc_options){0},
	             NULL, 0, &err) < 0)
		printf("# %s\n", err.message);
}

/* What the real dkms is called with, and the exit code. */
static char *stub_calls(const char *dir, const char *arguments)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_STRV struct strv words = strv_split(arguments, " ");
	CLEANUP_FREE char *out = NULL;
	int status = -1;

	strv_add(&argv, "sh");
	strv_addf(&argv, "%s/stub", dir);
	strv_add_all(&argv, &words);
	if (proc_run_status((const char *const *)argv.items, &(struct proc_options){0}, &out, 65536,
	                    &status, &err) < 0)
		return str_format("failed: %s", err.message);
	return str_format("%s%d", out, status);
}

static void check_stub(const char *dir, const char *arguments, const char *want, const char *holds)
{
	CLEANUP_FREE char *got = stub_calls(dir, arguments);

	check_str(got, want, "stand-in: %s", holds);
}

static void test_stub(void)
{
	char dir[] = "/tmp/gpuimg-dkms-XXXXXX";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *real = NULL;
	CLEANUP_FREE char *tree = NULL;
	CLEANUP_FREE char *half = NULL;
	CLEANUP_FREE char *stub = NULL;

	if (!mkdtemp(dir))
		return;
	real = str_format("%s/real", dir);
	tree = str_format("%s/tree", dir);
	half = replace_all(driver_dkms_stub, "/usr/sbin/dkms", real);
	stub = replace_all(half, "/var/lib/dkms", tree);
	write_file(dir, "stub", stub);
	check_stub(dir, "add -m nvidia-current -v 1.2", "0",
	           "while DKMS itself is not unpacked, nothing happens");
	write_file(dir, "real",
	           "#!/bin/sh\necho \"real $*\"\ncase $* in *broken*) exit 10 ;; esac\n");
	check_stub(dir, "add -m nvidia-current -v 1.2", "real add -m nvidia-current -v 1.2\n0",
	           "modules are registered");
	check_stub(dir, "status -m nvidia-current -v 1.2 -k 6.1",
	           "real status -m nvidia-current -v 1.2 -k 6.1\n0", "the status is the real one");
	check_stub(dir, "remove -m nvidia-current -v 1.2 --all",
	           "real remove -m nvidia-current -v 1.2 --all\n0", "they can be removed");
	check_stub(dir, "build -m nvidia-current -v 1.2 -k 6.1", "0", "but not built");
	check_stub(dir, "build nvidia/580.1 -k 6.1", "0", "by no way of naming them");
	check_stub(dir, "install -m nvidia-open -v 1.2 -k 6.1", "0", "nor installed");
	check_stub(dir, "build -m zfs -v 2 -k 6.1", "real build -m zfs -v 2 -k 6.1\n0",
	           "other modules are built as ever");
	check_stub(dir, "build -m broken -v 2 -k 6.1", "real build -m broken -v 2 -k 6.1\n10",
	           "with their exit code");
	make_dirs(dir, "tree/nvidia-current/535.1/source");
	write_file(dir, "tree/nvidia-current/535.1/source/dkms.conf", "AUTOINSTALL=yes\n");
	check_stub(dir, "autoinstall --kernelver 6.1", "0",
	           "hooks of kernels build nothing of NVIDIA's");
	make_dirs(dir, "tree/zfs/2.1/source");
	write_file(dir, "tree/zfs/2.1/source/dkms.conf", "AUTOINSTALL=\"yes\"\n");
	make_dirs(dir, "tree/manual/1/source");
	write_file(dir, "tree/manual/1/source/dkms.conf", "AUTOINSTALL=\"\"\n");
	check_stub(dir, "autoinstall --kernelver 6.1", "real install -m zfs -v 2.1 -k 6.1\n0",
	           "but what else wants to be built for a new kernel");
	check_stub(dir, "kernel_postinst -k 6.1", "real install -m zfs -v 2.1 -k 6.1\n0",
	           "DKMS 3.1 and later call it otherwise");
	if (proc_run((const char *const[]){"rm", "-rf", dir, NULL}, &(struct proc_options){0}, NULL,
	             0, &err) < 0)
		printf("# %s\n", err.message);
}

int main(void)
{
	test_two_kernels();
	test_nothing_to_do();
	test_headers();
	test_excluded("dkms: 2.8.7", 9);
	test_excluded("dkms-3.0.10", 77);
	test_excluded("dkms-3.2.2", 77);
	test_excluded_early();
	test_compile_error();
	test_no_space();
	test_lies();
	test_no_registration();
	test_initrd();
	test_list();
	test_key();
	test_stub();
	return tap_done();
}
