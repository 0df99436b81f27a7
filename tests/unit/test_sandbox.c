/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs real programs in the sandbox: a tree of the host's own shell and a few tools. Needs
 * root and bubblewrap; where they are missing, all is skipped with the reason.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "builder/proc.h"
#include "builder/sandbox.h"
#include "builder/tree.h"
#include "tap.h"

#define OUTPUT_MAX 65536
#define UUID       "6e1b1d5c-7f0b-4d8e-9d3c-0a1b2c3d4e5f"

static const char make_tree[] =
	"set -e; t=$1; b=$2; cd /\n"
	"mkdir -p $t/bin $t/usr/sbin $t/usr/bin $t/etc $t/root $t/proc $t/sys $t/dev $t/run $t/tmp\n"
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
	"for p in sh bash id cat touch ls sleep chown stat env rm ln grep readlink setcap getcap; do\n"
	"  f=$(command -v $p) || continue\n"
	"  cp -L $f $t/bin/$p\n"
	"  for l in $(ldd $f | grep -o '/[^ ]*'); do\n"
	"    mkdir -p $t${l%/*}; [ -e $t$l ] || cp -L $l $t$l\n"
	"  done\n"
	"done\n"
	"echo real >$t/usr/sbin/grub-probe; chmod 755 $t/usr/sbin/grub-probe\n"
	"chown -hR $b:$b $t\n";

struct fixture {
	char *dir;  /* 0755, holds the others */
	char *tree; /* the guest's root */
	char *data; /* data_dir with stand-ins */
	struct sandbox *sandbox;
	struct rootfs *rootfs;
	struct sandbox_devices devices;
};

static void skip_rest(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	exit(0);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "we");

	if (!f || fputs(text, f) < 0 || fclose(f) != 0 || chmod(path, mode) < 0) {
		printf("Bail out! cannot write %s\n", path);
		exit(1);
	}
}

static void setup(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *base = str_format("%u", TREE_UID_BASE);
	CLEANUP_FREE char *scripts = NULL;
	CLEANUP_FREE char *probe = NULL;
	struct sandbox_options options;

	f->dir = str_copy("/tmp/gpuimg-sandbox-XXXXXX");
	if (!mkdtemp(f->dir) || chmod(f->dir, 0755) < 0)
		skip_rest("cannot make a temporary directory");
	f->tree = str_format("%s/tree", f->dir);
	f->data = str_format("%s/data", f->dir);
	scripts = str_format("%s/sandbox", f->data);
	probe = str_format("%s/grub-probe.sh", scripts);
	if (mkdir(f->tree, 0755) < 0 || mkdir(f->data, 0700) < 0 || mkdir(scripts, 0700) < 0)
		skip_rest("cannot make directories");
	write_file(probe, "#!/bin/sh\necho \"stand-in $GPUIMG_ROOT_UUID $GPUIMG_ROOT_FS\"\n", 0600);
	f->devices = (struct sandbox_devices){.root_uuid = UUID, .root_fs = "ext2"};
	options = (struct sandbox_options){
		.dir = f->tree, .data_dir = f->data, .devices = &f->devices};
	if (proc_run((const char *const[]){"sh", "-c", make_tree, "sh", f->tree, base, NULL}, NULL,
	             NULL, 0, &err) < 0 ||
	    sandbox_new(&f->sandbox, &options, &err) < 0 ||
	    tree_rootfs(&f->rootfs, f->tree, f->sandbox, &err) < 0) {
		printf("Bail out! %s\n", err.message);
		exit(1);
	}
}

static void teardown(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	rootfs_close(f->rootfs);
	sandbox_free(f->sandbox);
	check(tree_remove(f->dir, &err) == 0 && access(f->dir, F_OK) < 0,
	      "the whole directory can be removed again");
	free(f->dir);
	free(f->tree);
	free(f->data);
}

/* Output of a command, or "failed: MESSAGE". */
static char *output_of(struct fixture *f, const struct guest_command *command)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct guest_command c = *command;
	char *out = NULL;

	c.ret_stdout = &out;
	c.max_bytes = OUTPUT_MAX;
	if (rootfs_run(f->rootfs, &c, &err) < 0)
		return str_format("failed: %s", err.message);
	return out;
}

static char *shell(struct fixture *f, const char *script, bool network)
{
	const char *const argv[] = {"bash", "-c", script, NULL};

	return output_of(f, &(struct guest_command){.argv = argv, .network = network});
}

static void check_shell(struct fixture *f, const char *script, const char *want, const char *holds)
{
	CLEANUP_FREE char *out = shell(f, script, false);

	check_str(out, want, "%s", holds);
}

static void test_identity(struct fixture *f)
{
	CLEANUP_FREE char *made = str_format("%s/etc/made", f->tree);
	CLEANUP_FREE char *owned = str_format("%s/etc/owned", f->tree);
	struct stat st;

	check_shell(f, "id -u; id -g", "0\n0\n", "a program inside is root");
	check_shell(f, "touch /etc/made && stat -c %u:%g /etc/made", "0:0\n",
	            "a file made inside is root's there");
	check(lstat(made, &st) == 0 && st.st_uid == TREE_UID_BASE && st.st_gid == TREE_UID_BASE,
	      "outside it is owned by the shifted id");
	check_shell(f, "touch /etc/owned; chown 1000:1001 /etc/owned; stat -c %u:%g /etc/owned",
	            "1000:1001\n", "chown to another guest id works");
	check(lstat(owned, &st) == 0 && st.st_uid == TREE_UID_BASE + 1000 &&
	              st.st_gid == TREE_UID_BASE + 1001,
	      "outside that id is shifted too");
	check_shell(f, "umask; stat -c %a /tmp /dev/shm /run/lock", "0022\n1777\n1777\n1777\n",
	            "umask and temporary directories are as usual");
}

static void test_host_is_hidden(struct fixture *f)
{
	CLEANUP_FREE char *secret = str_format("%s/secret", f->dir);
	CLEANUP_FREE char *script = str_format("cat %s 2>/dev/null || echo hidden", secret);

	write_file(secret, "host\n", 0644);
	check_shell(f, script, "hidden\n", "a file of the host cannot be seen");
	setenv("GPUIMG_TEST_SECRET", "leak-of-the-environment", 1);
	check_shell(f, "cat /proc/[0-9]*/environ | grep -ac LC_ALL=C.UTF-8", "1\n",
	            "the environments of all processes inside can be read");
	check_shell(f, "cat /proc/[0-9]*/environ | grep -ac leak-of-the-env; true", "0\n",
	            "and hold nothing of the host's, not even bubblewrap's own");
	check_shell(f,
	            "for i in kernel/hostname kernel/core_pattern vm/drop_caches; do "
	            "echo 1 2>/dev/null >/proc/sys/$i && echo $i; done; "
	            "echo h 2>/dev/null >/proc/sysrq-trigger && echo sysrq; echo end",
	            "end\n", "kernel settings and sysrq cannot be written");
	check_shell(f, "n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; [ $n -lt 6 ] && echo few",
	            "few\n", "processes of the host cannot be seen");
	check_shell(f, "set -- /sys/*; echo $*; touch /sys/x 2>/dev/null || echo ro",
	            "/sys/*\nro\n", "/sys is empty and stays so");
	check_shell(f,
	            "while read -r k v; do [ $k = CapEff: ] && echo $(( 0x$v >> 21 & 1 )); done "
	            "</proc/self/status; true",
	            "0\n", "a program has no CAP_SYS_ADMIN");
}

static void test_arguments(struct fixture *f)
{
	static const char odd[] = "/etc/a b'c\"d\n$(touch evil);*\\";
	const char *const argv[] = {"touch", "--", odd, NULL};
	const char *const env[] = {"TOLD=x y=z", NULL};
	const char *const show[] = {"bash", "-c", "echo $TOLD,$HOME,$LC_ALL,$TERM", NULL};
	CLEANUP_FREE char *out = output_of(f, &(struct guest_command){.argv = argv});
	CLEANUP_FREE char *path = str_format("%s%s", f->tree, odd);
	CLEANUP_FREE char *evil = str_format("%s/evil", f->tree);
	CLEANUP_FREE char *shown = output_of(f, &(struct guest_command){.argv = show, .env = env});

	check_str(out, "", "a command with an odd argument succeeds");
	check(access(path, F_OK) == 0 && access(evil, F_OK) < 0,
	      "spaces, quotes, newlines and $() in an argument are passed literally");
	check_str(shown, "x y=z,/root,C.UTF-8,dumb\n", "the environment is ours and the command's");
}

static void test_failure(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error full = ERROR_INIT;
	const char *const argv[] = {"bash", "-c", "echo first; echo 'no space for it' >&2; exit 7",
	                            NULL};
	const char *const flood[] = {"bash", "-c", "while :; do echo flood; done", NULL};
	CLEANUP_FREE char *out = NULL;

	check(sandbox_run(f->sandbox, &(struct guest_command){.argv = argv}, &err) == -1,
	      "a command that exits with 7 fails");
	check(err.message && strstr(err.message, "code 7") &&
	              strstr(err.message, "no space for it") && strstr(err.message, "'bash'"),
	      "the message has its name, its exit code and its last lines");
	check(sandbox_run(
		      f->sandbox,
		      &(struct guest_command){.argv = flood, .ret_stdout = &out, .max_bytes = 1000},
		      &full) == -1 &&
	              strstr(full.message, "1000 bytes") && !out,
	      "output that does not fit ends the command");
}

/* Whether any process of the host has this text in its command line. */
static bool is_running(const char *text)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir))) {
		CLEANUP_FREE char *path = str_format("/proc/%s/cmdline", entry->d_name);
		CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
		char line[8192];
		ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line));

		found = n > 0 && memmem(line, (size_t)n, text, strlen(text));
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool wait_running(const char *text, bool want, int timeout_ms)
{
	for (; timeout_ms > 0; timeout_ms -= 20) {
		if (is_running(text) == want)
			return true;
		poll(NULL, 0, 20);
	}
	return false;
}

/* A builder that runs a long command. */
static pid_t start_child(struct fixture *f, const char *seconds)
{
	const char *const argv[] = {"sleep", seconds, NULL};
	struct error ignored = ERROR_INIT;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	sandbox_run(f->sandbox, &(struct guest_command){.argv = argv}, &ignored);
	_exit(0);
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_processes_end(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const sleeper[] = {"sleep", "31416.5", NULL};
	time_t begin = time(NULL);
	CLEANUP_FREE char *out = shell(
		f, "(exec </dev/null >/dev/null 2>&1; exec sleep 31415.5) & sleep 0.2; echo on",
		false);
	pid_t pid;

	check_str(out, "on\n", "a command that leaves a process behind ends at once");
	check(!is_running("31415.5"), "what it left behind is gone when the run returns");
	check(sandbox_run(f->sandbox, &(struct guest_command){.argv = sleeper, .timeout_ms = 1000},
	                  &err) == -1 &&
	              time(NULL) - begin < 20 && strstr(err.message, "did not end in time"),
	      "a command that takes too long is stopped, and the message tells");
	check(!is_running("31416.5"), "it is gone when the run returns");

	pid = start_child(f, "31417.5");
	check(wait_running("31417.5", true, 10000), "a long command runs");
	end_child(pid);
	check(wait_running("31417.5", false, 5000), "it ends when its builder is killed");
	for (int delay_ms = 1; delay_ms < 200; delay_ms += delay_ms / 2 + 1) {
		pid = start_child(f, "31418.5");
		poll(NULL, 0, delay_ms);
		end_child(pid);
	}
	poll(NULL, 0, 500);
	check(!is_running("31418.5"), "it ends too when that comes while it is being set up");
}

static void test_limits(struct fixture *f)
{
	CLEANUP_FREE char *limits = shell(f, "ulimit -u; ulimit -f", false);
	CLEANUP_FREE char *sizes =
		shell(f,
	              "while read -r _ at _ o _; do case $at in /tmp|/run|/dev/shm) "
	              "case $o in *size=*) echo $at ;; esac ;; esac; done </proc/mounts",
	              false);
	CLEANUP_FREE char *keyring =
		shell(f,
	              "if [ ! -e /proc/keys ]; then echo seen; exit; fi; while read -r l; do "
	              "case $l in *' _ses'*) echo seen; break ;; esac; done </proc/keys",
	              false);

	check_str(limits, "4096\n67108864\n", "processes and the size of files are limited");
	check_str(sizes, "/dev/shm\n/run\n/tmp\n", "file systems in memory are limited");
	check_str(keyring, "seen\n", "a program has a session keyring of its own");
}

static void test_network(struct fixture *f)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CLEANUP_FREE char *script = NULL;
	CLEANUP_FREE char *without = NULL;
	CLEANUP_FREE char *with = NULL;

	if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 4) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
		check(true, "the network is cut off # SKIP no loopback here");
		return;
	}
	script = str_format("(exec 3<>/dev/tcp/127.0.0.1/%u) 2>/dev/null && echo on || echo off",
	                    ntohs(address.sin_port));
	without = shell(f, script, false);
	with = shell(f, script, true);
	check_str(without, "off\n", "without network not even the host's loopback is reached");
	check_str(with, "on\n", "with network it is");
}

static void test_capabilities(struct fixture *f)
{
	struct rootfs_xattr *xattrs = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	size_t count = 0;

	if (!rootfs_exists(f->rootfs, "/bin/setcap") || !rootfs_exists(f->rootfs, "/bin/getcap")) {
		check(true, "file capabilities # SKIP setcap or getcap is not installed");
		return;
	}
	out = shell(f,
	            "touch /bin/capable; setcap cap_net_raw+ep /bin/capable; getcap /bin/capable",
	            false);
	check(strstr(out, "cap_net_raw=ep"), "file capabilities set inside are seen inside");
	check(f->rootfs->ops->xattrs(f->rootfs, "/bin/capable", &xattrs, &count, &err) == 0 &&
	              count == 1 && xattrs[0].size == 20 && ((char *)xattrs[0].value)[3] == 2,
	      "for the image they have their plain form, version 2");
	rootfs_xattrs_free(xattrs, count);
}

/* "link TEXT", "file TEXT", "missing": what /etc/resolv.conf is. */
static char *resolv_state(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;
	struct rootfs_stat st;

	if (rootfs_lstat(f->rootfs, "/etc/resolv.conf", &st, &err) != 1)
		return str_copy("missing");
	if (S_ISLNK(st.mode)) {
		if (rootfs_readlink(f->rootfs, "/etc/resolv.conf", &text, &err) < 0)
			return str_copy(err.message);
		return str_format("link %s", text);
	}
	if (rootfs_read(f->rootfs, "/etc/resolv.conf", 4096, (void **)&text, NULL, &err) < 0)
		return str_copy(err.message);
	return str_format("file %s", text);
}

/* want: the state before, and after each of several runs. */
static void check_resolv(struct fixture *f, const char *host, const char *want)
{
	CLEANUP_FREE char *seen = shell(f, "cat /etc/resolv.conf", true);
	CLEANUP_FREE char *after = resolv_state(f);
	CLEANUP_FREE char *failed = shell(f, "exit 1", true);
	CLEANUP_FREE char *after_failure = resolv_state(f);
	CLEANUP_FREE char *rude = shell(
		f, "rm -f /etc/resolv.conf; ln -s /rude /etc/resolv.conf; echo x >/etc/resolv.conf",
		true);
	CLEANUP_FREE char *after_rude = resolv_state(f);
	CLEANUP_FREE char *nowhere = str_format("%s/nowhere", f->tree);

	check_str(seen, host, "resolv.conf as '%.20s': programs see the host's", want);
	check_str(after, want, "it is the same afterwards");
	check(str_starts(failed, "failed: "), "a command fails");
	check_str(after_failure, want, "it is the same after a failure");
	check(rude, "a rude command has run");
	check_str(after_rude, want, "it is the same after a program tried to replace it");
	check(access(nowhere, F_OK) < 0, "no directory was made for a link's sake");
}

static void test_resolv_conf(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *host = NULL;
	static const char *const targets[] = {"../run/systemd/resolve/stub-resolv.conf",
	                                      "/nowhere/resolv.conf",
	                                      "/etc/resolv.real",
	                                      "resolv.conf",
	                                      "/proc/net/pnp",
	                                      "../../../../../../../../tmp/gpuimg-no-such/x"};

	if (proc_run((const char *const[]){"cat", "/etc/resolv.conf", NULL}, NULL, &host,
	             OUTPUT_MAX, &err) < 0) {
		check(true, "resolv.conf # SKIP this host has none");
		return;
	}
	check_resolv(f, host, "missing");
	if (rootfs_write(f->rootfs, "/etc/resolv.real", "real\n", 5, 0644, &err) < 0)
		check(false, "%s", err.message);
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
		CLEANUP_FREE char *want = str_format("link %s", targets[i]);

		check(rootfs_symlink(f->rootfs, targets[i], "/etc/resolv.conf", &err) == 0,
		      "/etc/resolv.conf is made a link to '%s'", targets[i]);
		check_resolv(f, host, want);
	}
	check(rootfs_write(f->rootfs, "/etc/resolv.conf", "own", 3, 0644, &err) == 0,
	      "/etc/resolv.conf is made a file");
	check_resolv(f, host, "file own");
	check_shell(f, "cat /etc/resolv.real", "real\n", "a link's target is not written through");
	check_shell(f, "cat /etc/resolv.conf", "own", "without network it is the guest's own");
}

static void test_grub(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	void *text = NULL;

	check_shell(f, "grub-probe", "stand-in " UUID " ext2\n",
	            "grub-probe is ours, and is told the root's UUID");
	check(rootfs_read(f->rootfs, "/usr/sbin/grub-probe", 100, &text, NULL, &err) == 0 &&
	              str_equal(text, "real\n"),
	      "the guest's own is as it was");
	free(text);
	check_shell(f, "test -e /dev/disk/by-uuid/" UUID " && echo there", "there\n",
	            "the root's UUID has a name in /dev/disk");
	check_shell(f, "ls /usr/bin", "",
	            "no stand-in is left where the guest has no such program");
}

static void test_hostile_tree(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *outside = str_format("%s/outside", f->dir);
	CLEANUP_FREE char *link = str_format("../../../../../../../..%s", outside);
	CLEANUP_FREE char *run = NULL;
	struct stat st;

	write_file(outside, "host\n", 0644);
	check(rootfs_remove(f->rootfs, "/usr/sbin/grub-probe", &err) == 0 &&
	              rootfs_symlink(f->rootfs, link, "/usr/sbin/grub-probe", &err) == 0,
	      "grub-probe is made a link that leads outside");
	check_shell(f, "echo on", "on\n", "the sandbox still runs");
	check(stat(outside, &st) == 0 && st.st_size == 5, "the file outside is as it was");
	check(rootfs_remove(f->rootfs, "/run", &err) == 0 &&
	              rootfs_symlink(f->rootfs, "/etc", "/run", &err) == 0,
	      "/run is made a link");
	run = shell(f, "echo on", false);
	check(strstr(run, "'/run'") && str_starts(run, "failed: "),
	      "a mount point that is a link is refused by name");
	check(rootfs_remove(f->rootfs, "/run", &err) == 0 &&
	              rootfs_mkdir(f->rootfs, "/run", 0755, &err) == 0,
	      "/run is a directory again");
}

static bool refuses(struct fixture *f, const struct sandbox_devices *devices)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct sandbox *sandbox = NULL;

	return sandbox_new(&sandbox,
	                   &(struct sandbox_options){
				   .dir = f->tree, .data_dir = f->data, .devices = devices},
	                   &err) == -1 &&
	       error_exit_code(&err) == EXIT_INPUT && !sandbox;
}

static void test_bad_devices(struct fixture *f)
{
	check(refuses(f, &(struct sandbox_devices){.root_uuid = "../../etc/x"}),
	      "a UUID that is a path is refused");
	check(refuses(f, &(struct sandbox_devices){.root_uuid = UUID, .esp_uuid = "../x"}),
	      "so is the ESP's");
	check(refuses(f, &(struct sandbox_devices){.root_uuid = UUID,
	                                           .root_device = "/dev/mapper/../../etc/x"}),
	      "so is the name of a logical volume that leads elsewhere");
	check(refuses(f,
	              &(struct sandbox_devices){.root_uuid = UUID, .root_device = "/dev/vg0/root"}),
	      "so is one that is not in /dev/mapper");
	check(refuses(f, &(struct sandbox_devices){.root_uuid = UUID, .root_subvol = "@a\nb"}),
	      "so is a subvolume with a newline in its name");
}

/* The same tree with other devices and, if they are there, the real stand-ins. */
static void test_volumes(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct sandbox_devices devices = {.root_uuid = UUID,
	                                        .root_fs = "btrfs",
	                                        .root_subvol = "@rootfs",
	                                        .root_device = "/dev/mapper/vg--0-root",
	                                        .esp_uuid = "AB12-CD34",
	                                        .esp_partuuid = "11223344-01",
	                                        .esp_path = "/boot/efi",
	                                        .partmap = "gpt"};
	const struct sandbox_options options = {
		.dir = f->tree, .data_dir = "builder", .devices = &devices};
	CLEANUP_SANDBOX struct sandbox *sandbox = NULL;
	CLEANUP_ROOTFS struct rootfs *rootfs = NULL;
	struct fixture other = *f;

	if (sandbox_new(&sandbox, &options, &err) < 0 ||
	    tree_rootfs(&rootfs, f->tree, sandbox, &err) < 0) {
		check(false, "%s", err.message);
		return;
	}
	other.rootfs = rootfs;
	check_shell(&other,
	            "echo $GPUIMG_ROOT_DEVICE $GPUIMG_ROOT_SUBVOL $GPUIMG_ESP_UUID "
	            "$GPUIMG_ESP_PARTUUID",
	            "/dev/mapper/vg--0-root @rootfs AB12-CD34 11223344-01\n",
	            "logical volume, subvolume and ESP are told");
	check_shell(&other,
	            "echo $SYSTEMD_ESP_PATH $SYSTEMD_RELAX_ESP_CHECKS "
	            "$SYSTEMD_RELAX_XBOOTLDR_CHECKS $BOOT_MNT",
	            "/boot/efi 1 1 /boot/efi\n", "kernel-install is told where the ESP is");
	check_shell(&other,
	            "test -e /dev/mapper/vg--0-root && test -e /dev/disk/by-uuid/AB12-CD34 && "
	            "test -e /dev/disk/by-partuuid/11223344-01 && echo there",
	            "there\n", "they have names in /dev that lead somewhere");
	if (access("builder/sandbox/grub-probe.sh", R_OK) < 0) {
		check(true, "grub-probe # SKIP not run in the source tree");
		return;
	}
	check_shell(&other,
	            "d=$(grub-probe --target=device /) && echo $d && "
	            "for t in abstraction fs fs_uuid partmap drive; do "
	            "grub-probe --device $d --target=$t; done",
	            "/dev/mapper/vg--0-root\nlvm\nbtrfs\n" UUID "\ngpt\n(lvm/vg--0-root)\n",
	            "grub-probe answers for a logical volume as GRUB's own does");
	check_shell(f, "cat /proc/cmdline; echo end", "end\n",
	            "the host's kernel command line is not seen");
}

/* Runs the check in a child that 'change' has made unfit; 1 if 'want' is in the message. */
static bool refused(int (*change)(const char *dir), const char *dir, const char *want)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		struct error err = ERROR_INIT;

		if (change(dir) < 0)
			_exit(2);
		if (sandbox_check_host(dir, &err) == 0 || error_exit_code(&err) != EXIT_HOST ||
		    !err.hint)
			_exit(3);
		if (!strstr(err.message, want))
			fprintf(stderr, "# %s\n", err.message);
		_exit(strstr(err.message, want) ? 0 : 4);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int become_nobody(const char *dir)
{
	(void)dir;
	return setresuid(65534, 65534, 65534);
}

static int lose_path(const char *dir)
{
	(void)dir;
	return setenv("PATH", "/nonexistent", 1);
}

static int enter_chroot(const char *dir)
{
	CLEANUP_FREE char *bwrap = str_format("%s/tree/bin/bwrap", dir);

	write_file(bwrap, "", 0755);
	if (chroot(dir) < 0 || chdir("/") < 0)
		return -1;
	return setenv("PATH", "/tree/bin", 1);
}

static bool write_proc(const char *path, const char *text)
{
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* As in a container whose user namespace has few ids. */
static int lack_ids(const char *dir)
{
	(void)dir;
	if (unshare(CLONE_NEWUSER) < 0 || !write_proc("/proc/self/uid_map", "0 0 1\n") ||
	    !write_proc("/proc/self/setgroups", "deny") ||
	    !write_proc("/proc/self/gid_map", "0 0 1\n"))
		return -1;
	return 0;
}

/* Only in a user namespace of our own can the number be changed without harm to others. */
static int forbid_namespaces(const char *dir)
{
	if (lack_ids(dir) < 0 || !write_proc("/proc/sys/user/max_user_namespaces", "0"))
		return -1;
	return 0;
}

static void test_check_host(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *later = str_format("%s/not/yet/there", f->dir);

	check(sandbox_check_host(later, &err) == 0,
	      "this host is fit, for a directory to come too");
	check(refused(become_nobody, f->dir, "needs root"), "without root it is not");
	check(refused(lose_path, f->dir, "'bwrap'"), "without bubblewrap it is not");
	check(refused(enter_chroot, f->dir, "chroot"), "in a chroot it is not");
	check(refused(forbid_namespaces, f->dir, "max_user_namespaces"),
	      "without user namespaces it is not");
	check(refused(lack_ids, f->dir, "cannot map the ids"),
	      "in a container that lacks the ids it is not");
	chmod(f->dir, 0700);
	check(sandbox_check_host(f->dir, &err) == 0,
	      "a directory above that others cannot pass does not matter");
	check_shell(f, "id -u", "0\n", "and a program runs in a tree below it");
	chmod(f->dir, 0755);
}

int main(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fixture f = {0};

	if (geteuid() != 0)
		skip_rest("needs root");
	if (sandbox_check_host(NULL, &err) < 0)
		skip_rest(err.message);
	setup(&f);
	test_identity(&f);
	test_host_is_hidden(&f);
	test_arguments(&f);
	test_failure(&f);
	test_processes_end(&f);
	test_limits(&f);
	test_network(&f);
	test_capabilities(&f);
	test_resolv_conf(&f);
	test_grub(&f);
	test_volumes(&f);
	test_hostile_tree(&f);
	test_bad_devices(&f);
	test_check_host(&f);
	teardown(&f);
	return tap_done();
}
