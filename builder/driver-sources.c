/* SPDX-License-Identifier: Apache-2.0 */
/* Where a driver's packages come from, beside what the image names itself; for the build only. */
#include <string.h>

#include "driver-resolve-internal.h"

#define NVIDIA_REPOS "https://developer.download.nvidia.com/compute/cuda/repos"
/* "cudatools <cudatools@nvidia.com>": signs all of NVIDIA's CUDA repositories since April 2022. */
#define NVIDIA_KEY_FILE        "3bf863cc.pub"
#define NVIDIA_KEY_FINGERPRINT "EB693B3035CD5710E231E123A4B469963BF863CC"

struct repo_name {
	const char *id, *version_id; /* of os-release */
	const char *name;            /* NVIDIA's */
};

static const struct repo_name repo_names[] = {
	{"debian", "12", "debian12"},      {"debian", "13", "debian13"},
	{"ubuntu", "22.04", "ubuntu2204"}, {"ubuntu", "24.04", "ubuntu2404"},
	{"ubuntu", "26.04", "ubuntu2604"},
};

#define REPO_COUNT (sizeof(repo_names) / sizeof(repo_names[0]))

static int add_components(const struct driver_apt *ask, struct apt *apt, const struct guest *guest,
                          struct error *err)
{
	/* firmware moved to its own component with Debian 12; dkms and the open modules are in
	 * contrib. Ubuntu's new branches come to multiverse first. */
	CLEANUP_STRV struct strv components =
		strv_split(str_equal(guest->id, "ubuntu") ? "restricted multiverse"
	                                                  : "contrib non-free non-free-firmware",
	                   " ");

	return ask->add_components(apt, &components, err);
}

/* NVIDIA's own address for this distribution. Owned by the caller. */
static int nvidia_url(char **ret, const struct guest *guest, struct error *err)
{
	const char *arch = str_equal(guest->arch, "aarch64") ? "sbsa" : "x86_64";
	CLEANUP_STRV struct strv known = {0};
	CLEANUP_FREE char *list = NULL;
	size_t i;

	for (i = 0; i < REPO_COUNT; i++) {
		if (str_equal(guest->id, repo_names[i].id) &&
		    str_equal(guest->version_id, repo_names[i].version_id)) {
			*ret = str_format("%s/%s/%s/", NVIDIA_REPOS, repo_names[i].name, arch);
			return 0;
		}
		strv_addf(&known, "%s %s", repo_names[i].id, repo_names[i].version_id);
	}
	list = strv_join(&known, ", ");
	error_set(err, "no repository of NVIDIA's is known for '%s'; known are those for %s",
	          guest->pretty_name ? guest->pretty_name : "this image", list);
	error_hint(err, "name the repository with --driver-repo URL and --driver-repo-key FILE");
	return error_code(err, EXIT_INPUT);
}

static int add_nvidia(const struct driver_apt *ask, struct apt *apt, const struct guest *guest,
                      const struct driver_wish *wish, struct error *err)
{
	CLEANUP_FREE char *url = NULL, *key_url = NULL;
	struct apt_pinned repository = {.suite = "/", .key_path = wish->repo_key};

	if (wish->repo_url)
		url = str_ends(wish->repo_url, "/") ? str_copy(wish->repo_url)
		                                    : str_format("%s/", wish->repo_url);
	else if (nvidia_url(&url, guest, err) < 0)
		return -1;
	repository.url = url;
	/* a file of the user's vouches for itself; what comes over the network does not */
	if (!wish->repo_key) {
		key_url = str_format("%s%s", url, NVIDIA_KEY_FILE);
		repository.key_url = key_url;
		repository.fingerprint = NVIDIA_KEY_FINGERPRINT;
	}
	if (ask->add_pinned(apt, &repository, err) < 0)
		return error_prefix(err, "NVIDIA's repository '%s'", url);
	return 0;
}

int driver_add_sources_by(const struct driver_apt *ask, struct apt *apt, const struct guest *guest,
                          const struct driver_wish *wish, struct error *err)
{
	if (wish->source == DRIVER_RUN || wish->source == DRIVER_DEBS)
		return 0;
	if (!driver_set_next(NULL, guest->id, wish->source)) {
		error_set(err,
		          "driver source '%s': no package names are known for '%s', only for "
		          "Debian and Ubuntu",
		          driver_source_name(wish->source),
		          guest->pretty_name ? guest->pretty_name : "this image");
		return error_code(err, EXIT_INPUT);
	}
	if (wish->source == DRIVER_DISTRO)
		return add_components(ask, apt, guest, err);
	return add_nvidia(ask, apt, guest, wish, err);
}
