/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "driver-names.h"

#define DISTRO      (1U << DRIVER_DISTRO)
#define NVIDIA_REPO (1U << DRIVER_NVIDIA_REPO)
#define DEBS        (1U << DRIVER_DEBS)

#define OPTIONAL DRIVER_MEMBER_OPTIONAL

/* The GSP firmware is a package of its own since this branch. */
#define FIRMWARE_SINCE 525

/* The firmware (nvidia-firmware-N-VERSION) comes with nvidia-kernel-common-N, on which
 * nvidia-headless-no-dkms-N depends. */
static const struct driver_member ubuntu_server[] = {
	{"nvidia-utils-{N}-server", DRIVER_MATCH_VERSION, 0},
	{"nvidia-headless-no-dkms-{N}-server{F}", DRIVER_MATCH_VERSION, 0},
	{"nvidia-compute-utils-{N}-server", DRIVER_MATCH_VERSION, 0}, /* nvidia-persistenced */
	{NULL, DRIVER_MATCH_ANY, 0},
};

static const struct driver_member ubuntu_plain[] = {
	{"nvidia-utils-{N}", DRIVER_MATCH_VERSION, 0},
	{"nvidia-headless-no-dkms-{N}{F}", DRIVER_MATCH_VERSION, 0},
	{"nvidia-compute-utils-{N}", DRIVER_MATCH_VERSION, 0},
	{NULL, DRIVER_MATCH_ANY, 0},
};

/* NVIDIA's names for Ubuntu since 590: the branch is no longer in them. */
static const struct driver_member nvidia_ubuntu[] = {
	{"libnvidia-compute", DRIVER_MATCH_VERSION, 0},
	{"nvidia-headless-no-dkms{F}", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-kernel-common", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-firmware", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-utils", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-compute-utils", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-cfg1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-gpucomp", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-persistenced", DRIVER_MATCH_BRANCH, OPTIONAL},
	{NULL, DRIVER_MATCH_ANY, 0},
};

/* Not 'nvidia-driver', which depends on an X server. nvidia-alternative, nvidia-kernel-support and
 * nvidia-modprobe come along. */
static const struct driver_member debian_plain[] = {
	{"nvidia-smi", DRIVER_MATCH_VERSION, 0},
	{"libcuda1", DRIVER_MATCH_VERSION, 0},
	{"libnvidia-ml1", DRIVER_MATCH_VERSION, 0},
	{"libnvidia-ptxjitcompiler1", DRIVER_MATCH_VERSION, 0},
	{"firmware-nvidia-gsp", DRIVER_MATCH_VERSION, FIRMWARE_SINCE},
	{"libnvidia-cfg1", DRIVER_MATCH_VERSION, OPTIONAL}, /* for nvidia-persistenced */
	{"libnvidia-nvvm4", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libcudadebugger1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-persistenced", DRIVER_MATCH_BRANCH, OPTIONAL},
	{NULL, DRIVER_MATCH_ANY, 0},
};

/* Names without a number (nvidia-tesla-smi) lead to the release's own branch, at a version that
 * does not say so: they are not for us. */
static const struct driver_member debian_tesla[] = {
	{"nvidia-tesla-{N}-smi", DRIVER_MATCH_VERSION, 0},
	{"libnvidia-tesla-{N}-cuda1", DRIVER_MATCH_VERSION, 0},
	{"libnvidia-tesla-{N}-ml1", DRIVER_MATCH_VERSION, 0},
	{"libnvidia-tesla-{N}-ptxjitcompiler1", DRIVER_MATCH_VERSION, 0},
	{"firmware-nvidia-tesla-{N}-gsp", DRIVER_MATCH_VERSION, FIRMWARE_SINCE},
	{"libnvidia-tesla-{N}-cfg1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-tesla-{N}-nvvm4", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-tesla-{N}-cudadebugger1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-persistenced", DRIVER_MATCH_BRANCH, OPTIONAL},
	{NULL, DRIVER_MATCH_ANY, 0},
};

/* NVIDIA's own for Debian since 560; nvidia-smi is in nvidia-driver-cuda. */
static const struct driver_member nvidia_debian[] = {
	{"nvidia-driver-cuda", DRIVER_MATCH_VERSION, 0},
	{"libcuda1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-ml1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-ptxjitcompiler1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"libnvidia-cfg1", DRIVER_MATCH_VERSION, OPTIONAL},
	{"firmware-nvidia-gsp", DRIVER_MATCH_VERSION, OPTIONAL},
	{"nvidia-persistenced", DRIVER_MATCH_BRANCH, OPTIONAL},
	{NULL, DRIVER_MATCH_ANY, 0},
};

static const struct driver_set sets[] = {
	{"Ubuntu's packages for servers", "ubuntu", DISTRO | DEBS, "nvidia-dkms-{N}-server{F}",
         "linux-modules-nvidia-{N}-server{F}-{K}", "nvidia-kernel-common-{N}-server",
         ubuntu_server},
	{"Ubuntu's packages", "ubuntu", DISTRO | DEBS, "nvidia-dkms-{N}{F}",
         "linux-modules-nvidia-{N}{F}-{K}", "nvidia-kernel-common-{N}", ubuntu_plain},
	/* the same names in NVIDIA's repository; Ubuntu's prebuilt modules belong to Ubuntu's own
         */
	{"NVIDIA's packages with the branch in their names", "ubuntu", NVIDIA_REPO,
         "nvidia-dkms-{N}{F}", NULL, NULL, ubuntu_plain},
	{"NVIDIA's packages", "ubuntu", NVIDIA_REPO | DEBS, "nvidia-dkms{F}", NULL, NULL,
         nvidia_ubuntu},
	{"Debian's packages", "debian", DISTRO | DEBS, "nvidia{F}-kernel-dkms", NULL, NULL,
         debian_plain},
	{"Debian's packages of a Tesla branch", "debian", DISTRO | DEBS,
         "nvidia-tesla-{N}{F}-kernel-dkms", NULL, NULL, debian_tesla},
	{"NVIDIA's packages", "debian", NVIDIA_REPO | DEBS, "nvidia-kernel{F}-dkms", NULL, NULL,
         nvidia_debian},
	/* before nvidia-driver-cuda was split off, NVIDIA named user space as Debian does */
	{"NVIDIA's older packages", "debian", NVIDIA_REPO | DEBS, "nvidia-kernel{F}-dkms", NULL,
         NULL, debian_plain},
};

const struct driver_set *driver_set_next(const struct driver_set *from, const char *distribution,
                                         enum driver_source source)
{
	const struct driver_set *s = from ? from : sets;

	for (; s < sets + sizeof(sets) / sizeof(sets[0]); s++)
		if (str_equal(s->distribution, distribution) && s->sources & 1U << source)
			return s;
	return NULL;
}

static const struct driver_extra extras[] = {
	{"fabricmanager",
         {"nvidia-fabricmanager-{N}", "nvidia-fabricmanager"},
         DRIVER_MATCH_VERSION},
	{"imex", {"nvidia-imex-{N}", "nvidia-imex"}, DRIVER_MATCH_VERSION},
	{"nscq", {"libnvidia-nscq-{N}", "libnvidia-nscq"}, DRIVER_MATCH_VERSION},
	{"nvlsm", {"nvlsm"}, DRIVER_MATCH_ANY},
	{"nvsdm", {"libnvsdm-{N}", "libnvsdm"}, DRIVER_MATCH_VERSION},
	{"persistenced",
         {"nvidia-compute-utils-{N}-server", "nvidia-compute-utils-{N}", "nvidia-persistenced"},
         DRIVER_MATCH_BRANCH},
};

#define EXTRA_COUNT (sizeof(extras) / sizeof(extras[0]))

const struct driver_extra *driver_extra_find(const char *word, const char *branch)
{
	const struct driver_extra *e;
	const char *const *p;

	for (e = extras; e < extras + EXTRA_COUNT; e++) {
		if (strcmp(e->word, word) == 0)
			return e;
		for (p = e->patterns; *p; p++) {
			CLEANUP_FREE char *name = driver_name(*p, branch, DRIVER_OPEN, NULL);

			if (strcmp(name, word) == 0)
				return e;
		}
	}
	return NULL;
}

char *driver_extra_words(void)
{
	CLEANUP_STRV struct strv words = {0};
	size_t i;

	for (i = 0; i < EXTRA_COUNT; i++)
		strv_add(&words, extras[i].word);
	return strv_join(&words, ", ");
}

/* The text with each 'mark' replaced; with 'value' NULL a copy. */
static char *replace(const char *text, const char *mark, const char *value)
{
	char *done = str_copy("");
	const char *at;

	while (value && (at = strstr(text, mark))) {
		char *more = str_format("%s%.*s%s", done, (int)(at - text), text, value);

		free(done);
		done = more;
		text = at + strlen(mark);
	}
	at = done;
	done = str_format("%s%s", at, text);
	free((char *)at);
	return done;
}

char *driver_name(const char *pattern, const char *branch, enum driver_flavour flavour,
                  const char *kernel)
{
	CLEANUP_FREE char *with_flavour =
		replace(pattern, "{F}", flavour == DRIVER_OPEN ? "-open" : "");
	CLEANUP_FREE char *with_branch = replace(with_flavour, "{N}", branch);

	return replace(with_branch, "{K}", kernel);
}

char *driver_name_branch(const char *pattern, enum driver_flavour flavour, const char *kernel,
                         const char *name)
{
	CLEANUP_FREE char *rest = driver_name(pattern, NULL, flavour, kernel);
	const char *mark = strstr(rest, "{N}");
	size_t before, digits;

	if (!mark)
		return NULL;
	before = (size_t)(mark - rest);
	if (strncmp(name, rest, before) != 0)
		return NULL;
	digits = strspn(name + before, "0123456789");
	if (digits == 0 || strcmp(name + before + digits, mark + 3) != 0)
		return NULL;
	return mem_copy(name + before, digits);
}

char *driver_name_regex(const char *pattern, enum driver_flavour flavour)
{
	/* names here have no characters that mean something in an expression */
	CLEANUP_FREE char *name = driver_name(pattern, "[0-9]+", flavour, NULL);

	return str_format("^%s$", name);
}
