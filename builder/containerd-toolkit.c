/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "bake.h"
#include "containerd-toolkit.h"
#include "driver-resolve.h"

#define TOOLKIT_PACKAGE "nvidia-container-toolkit"
#define NVIDIA_REPO     "https://nvidia.github.io/libnvidia-container/stable/deb/"
#define NVIDIA_KEY_URL  "https://nvidia.github.io/libnvidia-container/gpgkey"
#define NVIDIA_KEY      "C95B321B61E88C1809C4F759DDCAE044F796ECB0"

/* NVIDIA's own repository for the image's architecture; NULL: it has none. */
static const char *nvidia_repo(const struct guest *guest)
{
	if (str_equal(guest->arch, "x86_64"))
		return NVIDIA_REPO "amd64";
	return str_equal(guest->arch, "aarch64") ? NVIDIA_REPO "arm64" : NULL;
}

static bool is_wanted(const struct build *b)
{
	return b->options->containerd_runtime && !b->containerd.runtime_binary;
}

/* Whether NVIDIA's own repository is asked, where the user names none for the toolkit. */
static bool asks_nvidia(const struct options *o)
{
	bool debs = o->driver_branch && o->driver_source == DRIVER_DEBS;

	return !debs && !o->apt_repos.count;
}

int containerd_add_sources(struct build *b, struct apt *apt, struct error *err)
{
	const struct options *o = b->options;
	struct apt_pinned repository = {.suite = "/",
	                                .url = o->toolkit_repo ? o->toolkit_repo
	                                                       : nvidia_repo(b->guest),
	                                .key_path = o->toolkit_key};

	if (!is_wanted(b) || !repository.url || (!o->toolkit_repo && !asks_nvidia(o)))
		return 0;
	/* a key file that the user gives is itself the pin */
	if (!o->toolkit_key) {
		repository.key_url = NVIDIA_KEY_URL;
		repository.fingerprint = NVIDIA_KEY;
	}
	if (apt_add_pinned(apt, &repository, err) < 0)
		return error_prefix(err, "the container toolkit's repository '%s'", repository.url);
	return 0;
}

static int no_package(const struct build *b, struct error *err)
{
	const char *repo = nvidia_repo(b->guest);

	error_set(err, "the image has no 'nvidia-container-runtime', and no source of packages has "
	               "'" TOOLKIT_PACKAGE "'");
	if (!bake_is_online(b) && b->options->driver_source == DRIVER_RUN)
		error_hint(err, "let the build reach the network (--network), or use a base that "
		                "has it");
	else if (!bake_is_online(b))
		error_hint(err, "put its packages to the others in --driver-path, or let the build "
		                "reach the network (--network)");
	else
		error_hint(err,
		           "name a repository that has it: --toolkit-repo=%s, "
		           "with its --toolkit-repo-key",
		           repo ? repo : "URL");
	return error_code(err, EXIT_INPUT);
}

/* Whether it goes without the driver's packages, or changes what was found for them. */
static int check_driver_packages(const struct build *b, const struct apt_transaction *t,
                                 struct error *err)
{
	CLEANUP_STRV struct strv all = {0};

	for (size_t i = 0; i < t->count; i++)
		if (!t->items[i].removed)
			strv_addf(&all, "%s=%s", t->items[i].name, t->items[i].version);
	for (size_t i = 0; i < b->driver.packages.count; i++) {
		if (strv_has(&all, b->driver.packages.items[i]))
			continue;
		error_set(err,
		          "'" TOOLKIT_PACKAGE "' does not go with driver %s: beside it apt would "
		          "not install '%s'",
		          b->driver.version, b->driver.packages.items[i]);
		error_hint(err, "name another repository for it (--toolkit-repo), or build without "
		                "--containerd-runtime");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

static int check_item(const struct build *b, const struct apt_item *item, struct error *err)
{
	if (b->driver.branch)
		return driver_check_item(item, b->driver.version, err);
	if (!item->removed)
		return 0;
	error_set(err, "'" TOOLKIT_PACKAGE "' would remove '%s' from the image", item->name);
	error_hint(err, "resolve the conflict in the base first");
	return error_code(err, EXIT_INPUT);
}

/* What comes beside the driver's packages. A part of the driver among it is held as they are. */
static int take_transaction(struct build *b, const struct apt_transaction *t, struct error *err)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct apt_item *item = &t->items[i];
		CLEANUP_FREE char *name = str_format("%s=%s", item->name, item->version);

		if (check_item(b, item, err) < 0)
			return -1;
		if (item->removed || strv_has(&b->driver.packages, name))
			continue;
		strv_add(&b->toolkit_packages, name);
		if (item->sha256)
			strv_addf(&b->toolkit_digests, "%s  %s", item->sha256, name);
		if (b->driver.branch && driver_is_package(item->name))
			strv_add(&b->driver.driver_packages, item->name);
	}
	return 0;
}

/* As it will be installed: in one call with the driver's packages. */
static int simulate(struct build *b, struct error *err)
{
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};
	CLEANUP_STRV struct strv all = {0};
	uint64_t bytes = 0;

	bake_install_names(b, &all);
	if (apt_simulate(b->apt, &all, &t, err) < 0)
		return error_prefix(err, "cannot install '" TOOLKIT_PACKAGE "'%s%s",
		                    b->driver.branch ? " beside driver " : "",
		                    b->driver.branch ? b->driver.version : "");
	if (check_driver_packages(b, &t, err) < 0 || take_transaction(b, &t, err) < 0)
		return -1;
	if (b->driver.source == DRIVER_RUN)
		bytes = b->driver.download_bytes + b->driver.installed_bytes;
	return bake_check_space(b, "the container toolkit and what goes with it",
	                        bytes + t.download_bytes + t.installed_bytes, err);
}

int containerd_plan_toolkit(struct build *b, struct error *err)
{
	struct apt_version *versions = NULL;
	size_t count = 0;

	if (!is_wanted(b))
		return 0;
	if (build_open_apt(b, err) < 0 ||
	    apt_versions(b->apt, TOOLKIT_PACKAGE, &versions, &count, err) < 0)
		return error_prefix(err, "cannot look for '" TOOLKIT_PACKAGE "'");
	apt_versions_free(versions, count);
	if (!count)
		return no_package(b, err);
	strv_add(&b->toolkit_install, TOOLKIT_PACKAGE);
	return simulate(b, err);
}
