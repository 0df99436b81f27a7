/* SPDX-License-Identifier: Apache-2.0 */
#include "fake-apt.h"
#include "fake-rootfs.h"
#include "tap.h"

/* One resolution: what is asked, on what image, and what came out. */
struct run {
	const char *id, *version_id;
	const char *kernels[4];
	const struct fake_file *files;
	const struct fake_deb *debs;
	const char *removes;
	struct driver_wish wish;

	int result;
	unsigned questions;
	struct strv pins;
	struct driver_plan plan;
	struct error err;
};

static const struct fake_file no_files[] = {{"/etc/hostname", "node"}, {NULL, NULL}};

static void resolve(struct run *run)
{
	struct fake_rootfs root = fake_rootfs(run->files ? run->files : no_files);
	struct fake_apt fake = {.debs = run->debs, .removes = run->removes};
	struct guest_kernel kernels[5] = {0};
	struct guest guest = {.id = (char *)run->id,
	                      .version_id = (char *)run->version_id,
	                      .pretty_name = (char *)"the image",
	                      .arch = (char *)"x86_64",
	                      .kernels = kernels};

	while (guest.kernel_count < 4 && run->kernels[guest.kernel_count]) {
		kernels[guest.kernel_count].version = (char *)run->kernels[guest.kernel_count];
		guest.kernel_count++;
	}
	/* has no modules of its own, and must not be asked for any */
	kernels[guest.kernel_count++] =
		(struct guest_kernel){.version = (char *)"0-rescue-1234", .rescue = true};
	run->result = driver_resolve_by(&run->plan, &fake_apt_table, (struct apt *)(void *)&fake,
	                                &root.base, &guest, &run->wish, &run->err);
	run->questions = fake.questions;
	run->pins = fake.pins;
	fake.pins = (struct strv){0};
	fake_apt_free(&fake);
}

static void run_free(struct run *run)
{
	driver_plan_free(&run->plan);
	strv_free(&run->pins);
	error_free(&run->err);
}
#define CLEANUP_RUN CLEANUP(run_free)

static const char *message(const struct run *run)
{
	return run->err.message ? run->err.message : "";
}

static bool says(const struct run *run, const char *part)
{
	bool good = run->result < 0 && strstr(message(run), part) != NULL;

	if (!good)
		printf("# message: %s\n", message(run));
	return good;
}

static bool refused(const struct run *run)
{
	return run->result < 0 && error_exit_code(&run->err) == EXIT_INPUT;
}

static bool installs(const struct run *run, const char *item)
{
	bool good = strv_has(&run->plan.install, item);
	size_t i;

	for (i = 0; !good && i < run->plan.install.count; i++)
		printf("# installs %s\n", run->plan.install.items[i]);
	if (!good && run->result < 0)
		printf("# message: %s\n", message(run));
	return good;
}

/* ---- Ubuntu ---- */

#define A "6.8.0-31-generic"
#define B "6.8.0-45-generic"

#define SERVER(n, v, common)                                                                       \
	{"nvidia-utils-" n "-server", v, "libnvidia-compute-" n "-server"},                        \
		{"nvidia-headless-no-dkms-" n "-server", v, ""},                                   \
		{"nvidia-headless-no-dkms-" n "-server-open", v,                                   \
	         "libnvidia-compute-" n "-server (= " v "), nvidia-kernel-common-" n "-server"},   \
		{"nvidia-compute-utils-" n "-server", v, "libnvidia-compute-" n "-server"},        \
		{"libnvidia-compute-" n "-server", v, "libc6 (>= 2.34)"},                          \
		{"nvidia-kernel-common-" n "-server", v, ""},                                      \
		{"nvidia-dkms-" n "-server-open", v, "dkms, nvidia-kernel-common-" n "-server"},   \
	{                                                                                          \
		"linux-modules-nvidia-" n "-server-open-" A, "6.8.0-31.31+1",                      \
			"linux-image-" A " | linux-image-unsigned-" A ", nvidia-kernel-common-" n  \
			"-server (<= " common "-1), nvidia-kernel-common-" n "-server (>= " common \
			")"                                                                        \
	}

#define FORWARD(from, to, v)                                                                       \
	{"nvidia-utils-" from "-server", v, "nvidia-utils-" to "-server"},                         \
		{"nvidia-headless-no-dkms-" from "-server", v,                                     \
	         "nvidia-headless-no-dkms-" to "-server"},                                         \
		{"nvidia-headless-no-dkms-" from "-server-open", v,                                \
	         "nvidia-headless-no-dkms-" to "-server-open"},                                    \
		{"nvidia-compute-utils-" from "-server", v, "nvidia-compute-utils-" to "-server"}, \
	{                                                                                          \
		"nvidia-dkms-" from "-server-open", v, "nvidia-dkms-" to "-server-open"            \
	}

#define DRIVER_580(v, depends)                                                                     \
	{"nvidia-utils-580", v, depends}, {"nvidia-headless-no-dkms-580-open", v, ""},             \
		{"nvidia-compute-utils-580", v, ""},                                               \
	{                                                                                          \
		"nvidia-dkms-580-open", v, ""                                                      \
	}

static const struct fake_deb noble[] = {
	SERVER("580", "580.126.09-0ubuntu0.24.04.1", "580.126.09"),
	FORWARD("570", "580", "580.126.09-0ubuntu0.24.04.1"),
	/* keeps the version of its own branch, as noble's does */
	FORWARD("535", "570", "535.309.01-0ubuntu0.24.04.2"),
	{"linux-headers-" B, "6.8.0-45.45", ""},
	{"linux-headers-" A, "6.8.0-31.31", ""},
	{"dkms", "3.0.11", ""},
	{"libc6", "2.39", ""},
	{"nvidia-fabricmanager", "580.126.09-1", ""},
	{"nvidia-imex", "580.95.05-1", ""},
	{"nvlsm", "2025.10.12-1", ""},
	{"datacenter-gpu-manager", "1:3.3.9", ""},
	{"nvidia-container-toolkit", "1.18.1-1", ""},
	{NULL, NULL, NULL},
};

static struct run ubuntu(const char *branch)
{
	return (struct run){.id = "ubuntu",
	                    .version_id = "24.04",
	                    .kernels = {A, B},
	                    .debs = noble,
	                    .wish = {.source = DRIVER_DISTRO, .branch = branch}};
}

static void test_ubuntu(void)
{
	CLEANUP_RUN struct run run = ubuntu("580");

	resolve(&run);
	check(run.result == 0, "a branch of Ubuntu's archive is resolved");
	check_str(run.plan.version, "580.126.09", "the plan has the driver's version");
	check_str(run.plan.branch, "580", "the plan has the branch");
	check(!run.plan.forwarded, "nothing was handed on to another branch");
	check(installs(&run, "nvidia-utils-580-server=580.126.09-0ubuntu0.24.04.1"),
	      "user space is asked for at its exact version");
	check(installs(&run, "nvidia-headless-no-dkms-580-server-open=580.126.09-0ubuntu0.24.04.1"),
	      "the headless set of the open flavour is taken");
	check(installs(&run, "nvidia-compute-utils-580-server=580.126.09-0ubuntu0.24.04.1"),
	      "compute utils are taken");
	check(run.plan.kernel_count == 2, "each kernel is in the plan, a rescue copy is not");
	check(run.plan.kernels[0].how == DRIVER_PREBUILT,
	      "a kernel with prebuilt modules gets them");
	check_str(run.plan.kernels[0].package,
	          "linux-modules-nvidia-580-server-open-" A "=6.8.0-31.31+1",
	          "the prebuilt package is named with the kernel's version");
	check(run.plan.kernels[1].how == DRIVER_DKMS, "the other one is compiled for");
	check_str(run.plan.kernels[1].package, "linux-headers-" B "=6.8.0-45.45",
	          "its headers come along");
	check(installs(&run, "nvidia-dkms-580-server-open=580.126.09-0ubuntu0.24.04.1"),
	      "the modules' source is taken, since one kernel needs it");
	check(strv_has(&run.plan.driver_packages, "libnvidia-compute-580-server"),
	      "a driver package that only came as a dependency will be held");
	check(!strv_has(&run.plan.driver_packages, "dkms") &&
	              strv_has(&run.plan.packages, "dkms=3.0.11"),
	      "what is no driver is in the transaction, and not held");
	check(run.plan.download_bytes == 100 * run.plan.packages.count &&
	              run.plan.installed_bytes == 1000 * run.plan.packages.count,
	      "space is that of the whole transaction");
	check(strv_has(&run.pins, "*nvidia* 580.126.09-*"),
	      "apt is pinned to the version, for dependencies that leave it open");
}

static void test_only_prebuilt(void)
{
	CLEANUP_RUN struct run run = ubuntu("580");

	run.kernels[1] = NULL;
	run.wish.require_signed = true;
	resolve(&run);
	check(run.result == 0 && run.plan.kernels[0].how == DRIVER_PREBUILT,
	      "--require-signed is satisfied with prebuilt modules");
	check(run.result == 0 && !strv_has(&run.plan.packages, "dkms=3.0.11"),
	      "nothing to compile with is installed where nothing is compiled");
}

static void test_require_signed(void)
{
	CLEANUP_RUN struct run run = ubuntu("580");

	run.wish.require_signed = true;
	resolve(&run);
	check(refused(&run) && says(&run, "'" B "'") &&
	              says(&run, "linux-modules-nvidia-580-server-open-" B),
	      "--require-signed names the kernel that would be compiled for, and the package");
	check(run.result < 0 && !strstr(message(&run), "'" A "'"),
	      "the kernel that has signed modules is not accused");
}

static void test_forward(void)
{
	CLEANUP_RUN struct run refusal = ubuntu("570"), run = ubuntu("570"), chain = ubuntu("535");

	resolve(&refusal);
	check(refused(&refusal) &&
	              says(&refusal,
	                   "nvidia-utils-570-server is a transitional package to branch 580"),
	      "a branch that is handed on is refused, naming the package and the real branch");
	check(refusal.err.hint && strstr(refusal.err.hint, "--allow-branch-forward"),
	      "the hint names the option");
	run.wish.allow_forward = true;
	resolve(&run);
	check(run.result == 0 && run.plan.forwarded,
	      "--allow-branch-forward follows it, and tells");
	check_str(run.plan.branch_asked, "570", "the branch that was asked for is kept");
	check_str(run.plan.branch, "580", "the real branch is in the plan");
	check(installs(&run, "nvidia-utils-580-server=580.126.09-0ubuntu0.24.04.1") &&
	              !strv_has(&run.plan.driver_packages, "nvidia-utils-570-server"),
	      "real packages are installed and held, never the transitional names");
	chain.wish.allow_forward = true;
	resolve(&chain);
	check(chain.result == 0 && chain.plan.forwarded,
	      "a chain of transitional packages is followed");
	check_str(chain.plan.branch, "580", "to its end");
}

static void test_forward_own_version(void)
{
	CLEANUP_RUN struct run run = ubuntu("535");

	resolve(&run);
	check(refused(&run) && says(&run, "transitional package to branch 570"),
	      "a transitional package with a version of its own branch is known by its dependency");
}

static void test_forward_circle(void)
{
	static const struct fake_deb circle[] = {
		FORWARD("550", "560", "550.1.1-1"),
		FORWARD("560", "550", "560.1.1-1"),
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("550");

	run.debs = circle;
	run.wish.allow_forward = true;
	resolve(&run);
	check(refused(&run) && says(&run, "hand it on"), "transitional packages in a circle end");
}

static void test_no_branch(void)
{
	CLEANUP_RUN struct run run = ubuntu("999"), flavour = ubuntu("580");

	resolve(&run);
	check(refused(&run) && says(&run, "no branch 999") && says(&run, "there is: 580 open"),
	      "a branch that is not there: the error lists what there is");
	check(run.result < 0 && !strstr(message(&run), "570") && !strstr(message(&run), "535"),
	      "branches that are only transitional are not offered");
	flavour.wish.flavour = DRIVER_PROPRIETARY;
	resolve(&flavour);
	check(refused(&flavour) && says(&flavour, "nvidia-dkms-580-server"),
	      "a flavour whose modules are not there names their package");
}

static void test_no_headers(void)
{
	static const struct fake_deb no_headers[] = {
		SERVER("580", "580.126.09-1", "580.126.09"),
		{NULL, NULL, NULL},
	};
	static const struct fake_file on_image[] = {
		{"/lib/modules/" B "/build/Makefile", "all:"},
		{"/lib/modules/" B "/build/include/linux/module.h", ""},
		{NULL, NULL}};
	static const struct fake_file half[] = {
		{"/lib/modules/" B "/build/include/linux/module.h", ""}, {NULL, NULL}};
	CLEANUP_RUN struct run run = ubuntu("580"), there = ubuntu("580"), part = ubuntu("580");

	run.debs = there.debs = part.debs = no_headers;
	run.kernels[2] = "6.8.0-50-generic";
	resolve(&run);
	check(refused(&run) && says(&run, "linux-headers-" B) &&
	              says(&run, "linux-headers-6.8.0-50-generic"),
	      "all kernels without headers are named in one error, with the package");
	check(says(&run, "2 of 3 kernels"), "and counted");
	check(run.err.hint && strstr(run.err.hint, "--apt-repo"), "the hint says what to do");
	there.files = on_image;
	resolve(&there);
	check(there.result == 0 && there.plan.kernels[1].how == DRIVER_DKMS &&
	              !there.plan.kernels[1].package,
	      "headers that are on the image already are enough");
	part.files = half;
	resolve(&part);
	check(refused(&part), "what is left of headers without their Makefile is not");
}

static void test_headers_version(void)
{
	static const struct fake_deb two[] = {
		SERVER("580", "580.126.09-1", "580.126.09"),
		{"linux-headers-" B, "6.8.0-45.45+2", ""},
		{"linux-headers-" B, "6.8.0-45.45", ""},
		{NULL, NULL, NULL},
	};
	static const struct fake_file status[] = {{"/var/lib/dpkg/status",
	                                           "Package: linux-image-" B
	                                           "\nStatus: install ok installed\n"
	                                           "Version: 6.8.0-45.45\nArchitecture: amd64\n\n"},
	                                          {NULL, NULL}};
	CLEANUP_RUN struct run run = ubuntu("580"), unknown = ubuntu("580");

	run.debs = unknown.debs = two;
	run.files = status;
	resolve(&run);
	check(run.result == 0, "a kernel with two versions of headers is served");
	check_str(run.result == 0 ? run.plan.kernels[1].package : NULL,
	          "linux-headers-" B "=6.8.0-45.45",
	          "headers are of the version of the image's kernel package");
	resolve(&unknown);
	check_str(unknown.result == 0 ? unknown.plan.kernels[1].package : NULL,
	          "linux-headers-" B "=6.8.0-45.45+2",
	          "without such a package apt's candidate is taken");
}

static void test_prebuilt_of_other_version(void)
{
	static const struct fake_deb skew[] = {
		SERVER("580", "580.142-1", "580.126.09"),
		{"linux-headers-" A, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("580"), signed_only = ubuntu("580");

	run.debs = signed_only.debs = skew;
	run.kernels[1] = signed_only.kernels[1] = NULL;
	resolve(&run);
	check(run.result == 0 && run.plan.kernels[0].how == DRIVER_DKMS,
	      "prebuilt modules of an older driver than user space are not taken");
	signed_only.wish.require_signed = true;
	resolve(&signed_only);
	check(refused(&signed_only), "nor are they for --require-signed");
}

static void test_signed_older_version(void)
{
	static const struct fake_deb two[] = {
		SERVER("580", "580.142-1", "580.126.09"),
		{"nvidia-utils-580-server", "580.126.09-1", ""},
		{"nvidia-headless-no-dkms-580-server-open", "580.126.09-1", ""},
		{"nvidia-compute-utils-580-server", "580.126.09-1", ""},
		{"nvidia-kernel-common-580-server", "580.126.09-1", ""},
		{"linux-headers-" A, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("580"), newest = ubuntu("580");

	run.debs = newest.debs = two;
	run.kernels[1] = newest.kernels[1] = NULL;
	run.wish.require_signed = true;
	resolve(&run);
	check_str(run.plan.version, "580.126.09",
	          "--require-signed takes the newest version that has signed modules");
	check(strv_has(&run.plan.packages, "nvidia-kernel-common-580-server=580.126.09-1"),
	      "with dependencies of that version");
	resolve(&newest);
	check_str(newest.plan.version, "580.142", "else the newest version is taken, and compiled");
}

static void test_plain_names(void)
{
	static const struct fake_deb plain[] = {
		{"nvidia-utils-610", "610.43.02-0ubuntu0.24.04.1", ""},
		{"nvidia-headless-no-dkms-610-open", "610.43.02-0ubuntu0.24.04.1", ""},
		{"nvidia-compute-utils-610", "610.43.02-0ubuntu0.24.04.1", ""},
		{"nvidia-dkms-610-open", "610.43.02-0ubuntu0.24.04.1", ""},
		{"linux-headers-" A, "1", ""},
		{"linux-headers-" B, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("610");

	run.debs = plain;
	resolve(&run);
	check(run.result == 0 && installs(&run, "nvidia-utils-610=610.43.02-0ubuntu0.24.04.1"),
	      "a branch that has no packages for servers is taken by its plain names");
}

static void test_plain_before_forward(void)
{
	static const struct fake_deb debs[] = {
		FORWARD("535", "580", "535.309.01-0ubuntu2"),
		SERVER("580", "580.126.09-1", "580.126.09"),
		{"nvidia-utils-535", "535.288.01-1", ""},
		{"nvidia-headless-no-dkms-535-open", "535.288.01-1", ""},
		{"nvidia-compute-utils-535", "535.288.01-1", ""},
		{"nvidia-dkms-535-open", "535.288.01-1", ""},
		{"linux-headers-" A, "1", ""},
		{"linux-headers-" B, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("535");

	run.debs = debs;
	run.wish.allow_forward = true;
	resolve(&run);
	check_str(run.plan.version, "535.288.01",
	          "the branch itself, under other names, comes before a transitional package");
}

static void test_order_of_versions(void)
{
	static const struct fake_deb debs[] = {
		DRIVER_580("580.95.05-1", ""),
		DRIVER_580("580.126.09-1", ""),
		DRIVER_580("580.142-1", "nvidia-utils-590"),
		{"linux-headers-" A, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("580");

	run.debs = debs;
	run.kernels[1] = NULL;
	resolve(&run);
	check_str(run.plan.version, "580.126.09",
	          "the newest real version is taken, whatever apt would choose, and no newer "
	          "transitional one");
}

/* ---- extras ---- */

static void with_extra(struct run *run, const char *word)
{
	CLEANUP_STRV struct strv extra = strv_split(word, " ");

	run->wish.extra = &extra;
	resolve(run);
	run->wish.extra = NULL;
}

static void test_extras(void)
{
	CLEANUP_RUN struct run fabric = ubuntu("580"), imex = ubuntu("580"), nvlsm = ubuntu("580"),
			       persistenced = ubuntu("580"), other = ubuntu("580"),
			       unknown = ubuntu("580"), named = ubuntu("580");

	with_extra(&fabric, "fabricmanager");
	check(installs(&fabric, "nvidia-fabricmanager=580.126.09-1"),
	      "the fabric manager of a new branch has no branch in its name");
	check(strv_has(&fabric.plan.driver_packages, "nvidia-fabricmanager"), "and is held too");
	with_extra(&named, "nvidia-fabricmanager");
	check(installs(&named, "nvidia-fabricmanager=580.126.09-1"), "its name does as well");
	with_extra(&imex, "imex");
	check(refused(&imex) && says(&imex, "'imex'") && says(&imex, "580.126.09") &&
	              says(&imex, "nvidia-imex: 580.95.05-1"),
	      "an extra of another version than the driver is refused, with the versions there are");
	with_extra(&nvlsm, "nvlsm");
	check(installs(&nvlsm, "nvlsm=2025.10.12-1"),
	      "what has versions of its own is taken as it is");
	with_extra(&persistenced, "persistenced");
	check(persistenced.result == 0,
	      "the persistence daemon is in Ubuntu's compute utils, which are there already");
	with_extra(&other, "datacenter-gpu-manager nvidia-container-toolkit");
	check(installs(&other, "datacenter-gpu-manager=1:3.3.9") &&
	              installs(&other, "nvidia-container-toolkit=1.18.1-1"),
	      "other packages may be named, and have versions of their own");
	with_extra(&unknown, "nvidia-frobnicator");
	check(refused(&unknown) && says(&unknown, "no source has a package"),
	      "a name that there is not is refused");
}

static void test_extra_branch_name(void)
{
	static const struct fake_deb debs[] = {
		SERVER("570", "570.133.20-1", "570.133.20"),
		{"nvidia-fabricmanager-570", "570.133.20-1", ""},
		{"nvidia-fabricmanager", "580.126.09-1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = ubuntu("570");

	run.debs = debs;
	run.kernels[1] = NULL;
	with_extra(&run, "fabricmanager");
	check(installs(&run, "nvidia-fabricmanager-570=570.133.20-1"),
	      "the fabric manager of an older branch has it in its name");
}

/* ---- Debian ---- */

#define D "6.1.0-30-amd64"

#define DEBIAN(v)                                                                                  \
	{"nvidia-smi", v, "nvidia-alternative (= " v ")"}, {"libcuda1", v, ""},                    \
		{"libnvidia-ml1", v, ""}, {"libnvidia-ptxjitcompiler1", v, ""},                    \
		{"firmware-nvidia-gsp", v, ""},                                                    \
	{                                                                                          \
		"libnvidia-cfg1", v, ""                                                            \
	}

static const struct fake_deb bookworm[] = {
	DEBIAN("535.309.01-0+deb12u1"),
	DEBIAN("535.261.03-1"),
	{"nvidia-kernel-dkms", "535.309.01-0+deb12u1", "dkms (>= 3.0.3-4~), nvidia-modprobe"},
	{"nvidia-kernel-dkms", "535.261.03-1", "dkms (>= 3.0.3-4~)"},
	{"nvidia-open-kernel-dkms", "535.261.03-1", "dkms (>= 3.0.3-4~)"},
	{"nvidia-persistenced", "535.171.04-1~deb12u1", ""},
	{"nvidia-modprobe", "610.57.04-1", ""},
	{"nvidia-tesla-470-kernel-dkms", "470.256.02-1~deb12u1", ""},
	{"nvidia-tesla-470-smi", "470.256.02-1~deb12u1", ""},
	{"libnvidia-tesla-470-cuda1", "470.256.02-1~deb12u1", ""},
	{"libnvidia-tesla-470-ml1", "470.256.02-1~deb12u1", ""},
	{"libnvidia-tesla-470-ptxjitcompiler1", "470.256.02-1~deb12u1", ""},
	{"dkms", "3.0.10-8", ""},
	{"linux-headers-" D, "6.1.124-1", ""},
	{NULL, NULL, NULL},
};

static struct run debian(const char *branch, enum driver_flavour flavour)
{
	return (struct run){
		.id = "debian",
		.version_id = "12",
		.kernels = {D},
		.debs = bookworm,
		.wish = {.source = DRIVER_DISTRO, .branch = branch, .flavour = flavour}};
}

static void test_debian(void)
{
	CLEANUP_RUN struct run run = debian("535", DRIVER_PROPRIETARY),
			       open = debian("535", DRIVER_OPEN);

	resolve(&run);
	check_str(run.plan.version, "535.309.01", "Debian: the newest version of the branch");
	check(installs(&run, "nvidia-kernel-dkms=535.309.01-0+deb12u1") &&
	              installs(&run, "firmware-nvidia-gsp=535.309.01-0+deb12u1"),
	      "modules and firmware are of that version");
	check(installs(&run, "nvidia-persistenced=535.171.04-1~deb12u1"),
	      "the persistence daemon has to be of the branch only");
	check(strv_has(&run.plan.packages, "nvidia-modprobe=610.57.04-1"),
	      "nvidia-modprobe goes with any driver");
	check(run.plan.kernels && run.plan.kernels[0].how == DRIVER_DKMS, "modules are compiled");
	resolve(&open);
	check(installs(&open, "libcuda1=535.261.03-1") &&
	              installs(&open, "nvidia-open-kernel-dkms=535.261.03-1"),
	      "user space is taken at the version that the open modules have");
	check(strv_has(&open.pins, "*nvidia* 535.261.03-*"), "and pinned to it");
}

static void test_debian_tesla(void)
{
	CLEANUP_RUN struct run run = debian("470", DRIVER_PROPRIETARY),
			       open = debian("470", DRIVER_OPEN);

	resolve(&run);
	check(installs(&run, "nvidia-tesla-470-kernel-dkms=470.256.02-1~deb12u1"),
	      "another branch of Debian's has it in its names; an old one has no firmware package");
	check(run.result == 0 &&
	              !strv_has(&run.plan.install, "nvidia-persistenced=535.171.04-1~deb12u1"),
	      "a daemon of another branch is left out");
	resolve(&open);
	check(refused(&open) && says(&open, "nvidia-tesla-470-open-kernel-dkms: not there"),
	      "an old branch has no open modules");
	check(open.err.hint && strstr(open.err.hint, "470 proprietary, 535 open, 535 proprietary"),
	      "the hint lists branches by flavour");
}

static void test_debian_versions_apart(void)
{
	static const struct fake_deb apart[] = {
		DEBIAN("550.163.01-5"),
		{"nvidia-open-kernel-dkms", "550.144.03-1", ""},
		{"nvidia-kernel-dkms", "550.163.01-5", ""},
		{"linux-headers-" D, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = debian("550", DRIVER_OPEN);

	run.debs = apart;
	resolve(&run);
	check(refused(&run) && says(&run, "nvidia-open-kernel-dkms: 550.144.03-1") &&
	              says(&run, "libcuda1: 550.163.01-5"),
	      "modules and user space without a common version are refused, with what there is");
}

static void test_debian_signed(void)
{
	CLEANUP_RUN struct run run = debian("535", DRIVER_PROPRIETARY);

	run.wish.require_signed = true;
	resolve(&run);
	check(refused(&run) && says(&run, "'" D "'"), "Debian signs no driver modules");
}

static void test_mixed_transaction(void)
{
	static const struct fake_deb mixed[] = {
		{"nvidia-alternative", "535.261.03-1", ""},
		DEBIAN("535.309.01-0+deb12u1"),
		{"nvidia-kernel-dkms", "535.309.01-0+deb12u1", ""},
		{"linux-headers-" D, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run run = debian("535", DRIVER_PROPRIETARY),
			       removes = debian("535", DRIVER_PROPRIETARY),
			       replaces = debian("535", DRIVER_PROPRIETARY);

	run.debs = mixed;
	resolve(&run);
	check(refused(&run) && says(&run, "'nvidia-alternative' 535.261.03-1"),
	      "a transaction that mixes versions is refused by the package's name");
	removes.removes = "openssh-server";
	resolve(&removes);
	check(refused(&removes) && says(&removes, "remove 'openssh-server'"),
	      "a transaction that removes a package of the image is refused");
	replaces.removes = "nvidia-tesla-470-smi";
	resolve(&replaces);
	check(replaces.result == 0, "an older driver may go");
}

/* ---- NVIDIA's repository, directories ---- */

static const struct fake_deb nvidia13[] = {
	{"nvidia-driver-cuda", "615.71.09-1", ""},
	{"nvidia-driver-cuda", "580.95.05-1", "nvidia-kernel-common"},
	{"nvidia-kernel-open-dkms", "615.71.09-1", ""},
	{"nvidia-kernel-open-dkms", "580.95.05-1", ""},
	{"nvidia-persistenced", "615.71.09-1", ""},
	{"nvidia-persistenced", "580.105.08-1", ""},
	{"nvidia-persistenced", "580.95.05-1", ""},
	{"linux-headers-" D, "1", ""},
	{NULL, NULL, NULL},
};

static void test_nvidia_debian(void)
{
	CLEANUP_RUN struct run run = debian("580", DRIVER_OPEN), old = debian("535", DRIVER_OPEN);

	run.debs = old.debs = nvidia13;
	run.wish.source = old.wish.source = DRIVER_NVIDIA_REPO;
	resolve(&run);
	check(installs(&run, "nvidia-driver-cuda=580.95.05-1") &&
	              installs(&run, "nvidia-kernel-open-dkms=580.95.05-1"),
	      "NVIDIA's repository: the branch is chosen by version among packages of one name");
	check(installs(&run, "nvidia-persistenced=580.95.05-1"),
	      "a tool of the driver's own version comes before a newer one of its branch");
	resolve(&old);
	check(refused(&old) && says(&old, "there is: 580 open, 615 open"),
	      "NVIDIA's repository: what there is, is read from versions");
}

static void test_nvidia_ubuntu(void)
{
	static const struct fake_deb debs[] = {
		{"libnvidia-compute", "595.71.05-1ubuntu1", ""},
		{"nvidia-headless-no-dkms-open", "595.71.05-1ubuntu1", ""},
		{"nvidia-dkms-open", "595.71.05-1ubuntu1", ""},
		{"nvidia-utils-580", "580.95.05-0ubuntu1", ""},
		{"nvidia-headless-no-dkms-580-open", "580.95.05-0ubuntu1", ""},
		{"nvidia-compute-utils-580", "580.95.05-0ubuntu1", ""},
		{"nvidia-dkms-580-open", "580.95.05-0ubuntu1", ""},
		{"linux-modules-nvidia-580-open-" A, "1",
	         "nvidia-kernel-common-580 (>= 580.95.05)"},
		{"linux-headers-" A, "1", ""},
		{"linux-headers-" B, "1", ""},
		{NULL, NULL, NULL},
	};
	CLEANUP_RUN struct run new = ubuntu("595"), old = ubuntu("580");

	new.debs = old.debs = debs;
	new.wish.source = old.wish.source = DRIVER_NVIDIA_REPO;
	resolve(&new);
	check(installs(&new, "nvidia-dkms-open=595.71.05-1ubuntu1") &&
	              installs(&new, "nvidia-headless-no-dkms-open=595.71.05-1ubuntu1"),
	      "NVIDIA's names for Ubuntu have no branch since 590");
	resolve(&old);
	check(installs(&old, "nvidia-dkms-580-open=580.95.05-0ubuntu1"), "and had one before");
	check(old.result == 0 && old.plan.kernels[0].how == DRIVER_DKMS,
	      "modules that Ubuntu built are not mixed with NVIDIA's packages");
}

static void test_debs(void)
{
	CLEANUP_RUN struct run own = ubuntu("580"), nvidia = debian("580", DRIVER_OPEN),
			       tesla = debian("470", DRIVER_PROPRIETARY);

	own.wish.source = nvidia.wish.source = tesla.wish.source = DRIVER_DEBS;
	nvidia.debs = nvidia13;
	resolve(&own);
	check(own.result == 0, "a directory with Ubuntu's packages is understood");
	resolve(&nvidia);
	check(nvidia.result == 0, "a directory with NVIDIA's packages is understood");
	resolve(&tesla);
	check(tesla.result == 0, "a directory with Debian's packages is understood");
}

/* ---- sources ---- */

static int sources(struct fake_apt *fake, const char *id, const char *version_id,
                   const struct driver_wish *wish, struct error *err)
{
	struct guest guest = {.id = (char *)id,
	                      .version_id = (char *)version_id,
	                      .pretty_name = (char *)"the image",
	                      .arch = (char *)"x86_64"};

	return driver_add_sources_by(&fake_apt_table, (struct apt *)(void *)fake, &guest, wish,
	                             err);
}

static void test_sources(void)
{
	CLEANUP(fake_apt_free)
	struct fake_apt debian = {0}, ubuntu24 = {0}, nvidia = {0}, own = {0}, none = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct driver_wish wish = {.source = DRIVER_DISTRO};

	check(sources(&debian, "debian", "12", &wish, &err) == 0 &&
	              strv_has(&debian.components, "non-free") &&
	              strv_has(&debian.components, "contrib") &&
	              strv_has(&debian.components, "non-free-firmware"),
	      "Debian: contrib, non-free and firmware are added");
	check(sources(&ubuntu24, "ubuntu", "24.04", &wish, &err) == 0 &&
	              strv_has(&ubuntu24.components, "restricted"),
	      "Ubuntu: restricted is added");
	wish.source = DRIVER_NVIDIA_REPO;
	check(sources(&nvidia, "ubuntu", "24.04", &wish, &err) == 0,
	      "NVIDIA's repository is added");
	check_str(nvidia.pinned.count ? nvidia.pinned.items[0] : NULL,
	          "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/ / - "
	          "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"
	          "3bf863cc.pub EB693B3035CD5710E231E123A4B469963BF863CC",
	          "with its key pinned by fingerprint");
	wish.repo_url = "http://mirror.example/cuda";
	wish.repo_key = "/keys/mine.asc";
	check(sources(&own, "debian", NULL, &wish, &err) == 0,
	      "a mirror of one's own may be named");
	check_str(own.pinned.count ? own.pinned.items[0] : NULL,
	          "http://mirror.example/cuda/ / /keys/mine.asc - -", "with a key of one's own");
	wish = (struct driver_wish){.source = DRIVER_DEBS};
	check(sources(&none, "debian", "12", &wish, &err) == 0 && none.components.count == 0 &&
	              none.pinned.count == 0,
	      "a directory of packages needs no other source");
}

static void test_no_sources(void)
{
	CLEANUP(fake_apt_free) struct fake_apt fake = {0};
	CLEANUP_ERROR struct error forky = ERROR_INIT, alpine = ERROR_INIT;
	struct driver_wish wish = {.source = DRIVER_NVIDIA_REPO};

	check(sources(&fake, "debian", NULL, &wish, &forky) < 0 &&
	              error_exit_code(&forky) == EXIT_INPUT && strstr(forky.message, "debian 13") &&
	              strstr(forky.hint, "--driver-repo"),
	      "a release that NVIDIA has no repository for is refused, with those that it has");
	wish.source = DRIVER_DISTRO;
	check(sources(&fake, "linuxmint", "22", &wish, &alpine) < 0 &&
	              error_exit_code(&alpine) == EXIT_INPUT,
	      "a distribution whose names we do not know is refused");
}

/* ---- the pieces ---- */

static void test_names(void)
{
	CLEANUP_FREE char *name =
		driver_name("linux-modules-nvidia-{N}-server{F}-{K}", "580", DRIVER_OPEN, A);
	CLEANUP_FREE char *debian =
		driver_name("nvidia{F}-kernel-dkms", NULL, DRIVER_PROPRIETARY, NULL);
	CLEANUP_FREE char *branch = driver_name_branch("nvidia-dkms-{N}-server{F}", DRIVER_OPEN,
	                                               NULL, "nvidia-dkms-570-server-open");
	CLEANUP_FREE char *plain = driver_name_branch("nvidia-dkms-{N}{F}", DRIVER_PROPRIETARY,
	                                              NULL, "nvidia-dkms-570-server");

	check_str(name, "linux-modules-nvidia-580-server-open-" A, "a pattern is filled in");
	check_str(debian, "nvidia-kernel-dkms", "the proprietary flavour has no mark in names");
	check_str(branch, "570", "the branch is read from a name");
	check(!plain, "a name with something more is not of this pattern");
}

static void test_versions(void)
{
	check(driver_version_compare("535.261.03", "535.309.01") < 0 &&
	              driver_version_compare("580.95.05", "580.126.09") < 0 &&
	              driver_version_compare("580.142", "580.126.09") > 0 &&
	              driver_version_compare("535.54.03", "535.54.03") == 0 &&
	              driver_version_compare("580.82", "580.82.07") < 0,
	      "versions are compared by numbers");
	check(driver_version_compare("9.99999999999999999999999", "9.100000000000000000000000") < 0,
	      "numbers may be longer than any type of ours");
	check(driver_version_like("535.261.03") && driver_version_like("580.142") &&
	              !driver_version_like("20240109") && !driver_version_like("1.18.1") &&
	              !driver_version_like("2025.10.12") && !driver_version_like("535") &&
	              !driver_version_like("535.1.2.3") && !driver_version_like("535..1"),
	      "a driver's version is told from others");
}

static void test_wish(void)
{
	CLEANUP_RUN struct run word = ubuntu("latest"), distribution = ubuntu("580");

	resolve(&word);
	check(word.result < 0 && error_exit_code(&word.err) == EXIT_USAGE, "a branch is a number");
	distribution.id = "rocky";
	resolve(&distribution);
	check(refused(&distribution), "a distribution without a table of names is refused");
}

static void test_questions(void)
{
	CLEANUP_RUN struct run run = ubuntu("580");

	resolve(&run);
	check(run.questions <= 12, "apt is asked once for each package (%u questions)",
	      run.questions);
}

int main(void)
{
	test_ubuntu();
	test_only_prebuilt();
	test_require_signed();
	test_forward();
	test_forward_own_version();
	test_forward_circle();
	test_no_branch();
	test_no_headers();
	test_headers_version();
	test_prebuilt_of_other_version();
	test_signed_older_version();
	test_plain_names();
	test_plain_before_forward();
	test_order_of_versions();
	test_extras();
	test_extra_branch_name();
	test_debian();
	test_debian_tesla();
	test_debian_versions_apart();
	test_debian_signed();
	test_mixed_transaction();
	test_nvidia_debian();
	test_nvidia_ubuntu();
	test_debs();
	test_sources();
	test_no_sources();
	test_names();
	test_versions();
	test_wish();
	test_questions();
	return tap_done();
}
