/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image's own apt, for the time of the build: sources, lists, keys, downloads and settings of
 * ours stand in one directory (APT_DIR) that only our calls see (APT_CONFIG, apt.conf(5)), so that
 * nothing of the build's mirrors, proxies and extra repositories stays. What apt-get itself leaves
 * (dpkg's record, extended_states, files of packages) is what the node would have had.
 * Package services are not started (policy-rc.d, invoke-rc.d(8)), and programs that a later stage
 * runs for good anyway are stood in for by ones that do nothing (apt_stub). Debian and Ubuntu only.
 */
#ifndef GPUIMG_APT_H
#define GPUIMG_APT_H

#include <jansson.h>

#include "cleanup.h"
#include "error.h"
#include "guest.h"
#include "log.h"
#include "rootfs.h"
#include "str.h"

#define APT_DIR "/var/cache/gpuimg-apt" /* in the image, while the session is open */

struct apt;

struct apt_options {
	struct rootfs *root; /* writable; borrowed */
	const struct guest *guest;
	/* "URL": in place of all archives of the distribution in the image's own sources; for
	 * "…/debian", security suites are looked for at "…/debian-security".
	 * "security=URL": in place of those whose suite ends in "-security". May be NULL. */
	const struct strv *mirrors;
	/* One-line sources (sources.list(5)) whose signed-by= names a file of this host:
	 * "deb [signed-by=/path/key.asc] https://host/path suite component". */
	const struct strv *repositories; /* may be NULL */
	const char *proxy;    /* URL for http and https; NULL: http_proxy and https_proxy of the
	                       * environment, no_proxy honoured */
	bool network;         /* false: nothing but apt_add_debs() is a source */
	const char *work_dir; /* ours, on the host */
	struct log *log;
};

/*
 * Opens: the image's sources are read (one-line and deb822, Enabled: no left out), rewritten and
 * put into APT_DIR with the keys that they name. EXIT_INPUT: the image has no apt, or sources that
 * we cannot read; EXIT_USAGE: what is wrong with an option. Hooks, proxies and directories of the
 * image's apt.conf(5) do not hold in the build, all else does. Where this host's own apt takes
 * lists that are out of date (Acquire::Check-Valid-Until, Check-Date), so does the build.
 */
int apt_open(struct apt **ret, const struct apt_options *options, struct error *err);
/* Of a distribution's own archives, more components: "contrib", "non-free" (Debian), "restricted",
 * "multiverse" (Ubuntu). For the build only. Before apt_update(). */
int apt_add_components(struct apt *apt, const struct strv *components, struct error *err);
/*
 * A repository whose key is pinned: key_path (a file of this host, armored or not) or, if NULL,
 * key_url (https, or http to a loopback address; an armored one, fetched) must hold a key of this
 * fingerprint (40 hex digits) as its primary key, and no other; EXIT_INPUT else. fingerprint NULL,
 * with key_path only: the user's file speaks for itself. suite ending in "/" is a flat repository.
 * Before apt_update().
 */
struct apt_pinned {
	const char *url, *suite, *components; /* components NULL for a flat one */
	const char *key_path, *key_url, *fingerprint;
};
int apt_add_pinned(struct apt *apt, const struct apt_pinned *repository, struct error *err);
/* A directory of .deb files of this host becomes a source (deb-file.h makes its index). "SHA256
 * NAME" of each goes to ret_digests (may be NULL). Before apt_update(). */
int apt_add_debs(struct apt *apt, const char *host_dir, struct strv *ret_digests,
                 struct error *err);
/* An apt preference for the build: packages whose names match the glob, at versions that match. */
int apt_pin(struct apt *apt, const char *package_glob, const char *version_glob, struct error *err);
/* Downloads the lists. What a server or apt says is in the error; EXIT_HOST for network trouble. */
int apt_update(struct apt *apt, struct error *err);

/* One version of one package that a source has. */
struct apt_version {
	char *version;
	struct strv depends; /* Depends and Pre-Depends, as they stand, split at ',' and trimmed */
	char *description;   /* first line */
};
/* Versions that apt could install, the one that it would choose first, then newest first; none: an
 * empty list. Names are checked, so that no option hides in one. */
int apt_versions(struct apt *apt, const char *package, struct apt_version **ret, size_t *ret_count,
                 struct error *err);
void apt_versions_free(struct apt_version *versions, size_t count);
/* Names of packages that match an extended regular expression of ours, sorted. */
int apt_names(struct apt *apt, const char *pattern, struct strv *ret, struct error *err);

/* What 'install' comes to. */
struct apt_item {
	char *name, *version;
	char *old_version; /* NULL: it is new */
	char *sha256;      /* of the .deb, if apt tells one; else NULL */
	uint64_t download_bytes;
	bool removed; /* it goes: 'version' is NULL */
};
struct apt_transaction {
	struct apt_item *items; /* sorted by name */
	size_t count;
	uint64_t download_bytes, installed_bytes; /* installed: Installed-Size of all that
	                                           * is unpacked, upgrades too */
};
/* Names, "name=version"; without recommended packages. Changes nothing. An error holds apt's own
 * reasons (unmet dependencies), and is EXIT_INPUT. */
int apt_simulate(struct apt *apt, const struct strv *install, struct apt_transaction *ret,
                 struct error *err);
void apt_transaction_free(struct apt_transaction *t);
#define CLEANUP_APT_TRANSACTION CLEANUP(apt_transaction_free)

/* A program that maintainer scripts find in PATH before the real one: 'script' is a whole shell
 * script of ours. */
int apt_stub(struct apt *apt, const char *program, const char *script, struct error *err);
/* Downloads (checked by apt), then installs; one of two outcomes: all is configured (dpkg --audit
 * is silent), or an error with the last lines of what failed. */
int apt_install(struct apt *apt, const struct strv *install, struct error *err);
/* Removes packages with their configuration files; what depends on them and what only they needed
 * goes too, what nobody needed before stays. */
int apt_purge(struct apt *apt, const struct strv *packages, struct error *err);

/* Takes all of it out of the image again: policy-rc.d as it was before, byte for byte. To be
 * called; apt_free() alone leaves them. */
int apt_close(struct apt *apt, struct error *err);
void apt_free(struct apt *apt);
DEFINE_CLEANUP(apt, struct apt *, apt_free)
#define CLEANUP_APT CLEANUP(cleanup_apt)

#endif
