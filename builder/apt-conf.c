/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apt's settings in the build. apt reads APT_CONFIG first, the image's apt.conf.d then, and the
 * main file last: so the first only says that the main file is ours, and there stands all that has
 * to hold. It takes in the image's own /etc/apt/apt.conf before.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "apt-internal.h"
#include "proc.h"

#define FIRST_CONF     APT_DIR "/first.conf"
#define MAIN_CONF      APT_DIR "/main.conf"
#define CA_FILE        APT_DIR "/ca.crt"
#define IMAGE_CONF     "/etc/apt/apt.conf"
#define IMAGE_PINS     "/etc/apt/preferences"
#define IMAGE_PINS_DIR "/etc/apt/preferences.d"
#define CA_BUNDLE      "/etc/ssl/certs/ca-certificates.crt" /* of image and host */
#define CA_MAX_BYTES   ((size_t)8 << 20)
#define HOST_APT_MS    30000
#define PINS_MAX_BYTES ((size_t)1 << 20)

/*
 * Hooks are left out: they write stamps and caches, or ask people. IndexTargets: descriptions for
 * software centres that a build has no use for.
 */
static const char main_conf[] =
	"Dir::State::lists \"" APT_DIR "/lists\";\n"
	"Dir::Cache \"" APT_DIR "/cache\";\n"
	"Dir::Cache::archives \"" APT_DIR "/cache/archives\";\n"
	"Dir::Cache::pkgcache \"" APT_DIR "/cache/pkgcache.bin\";\n"
	"Dir::Cache::srcpkgcache \"" APT_DIR "/cache/srcpkgcache.bin\";\n"
	"Dir::Etc::sourcelist \"" APT_DIR "/sources.list\";\n"
	"Dir::Etc::sourceparts \"" APT_DIR "/sources.list.d\";\n"
	"Dir::Etc::preferences \"" APT_DIR "/preferences\";\n"
	"Dir::Etc::preferencesparts \"" APT_DIR "/preferences.d\";\n"
	"Dir::Log::Planner \"" APT_DIR "/planner.log\";\n"
	"Dir::Log::Solver \"" APT_DIR "/solver.log\";\n"
	"#clear Acquire::http::Proxy;\n"
	"#clear Acquire::https::Proxy;\n"
	"#clear Acquire::http::Proxy-Auto-Detect;\n"
	"#clear Acquire::https::Proxy-Auto-Detect;\n"
	"#clear Acquire::http::ProxyAutoDetect;\n"
	"#clear Acquire::https::ProxyAutoDetect;\n"
	"#clear APT::Update::Pre-Invoke;\n"
	"#clear APT::Update::Post-Invoke;\n"
	"#clear APT::Update::Post-Invoke-Success;\n"
	"#clear APT::Install::Pre-Invoke;\n"
	"#clear APT::Install::Post-Invoke;\n"
	"#clear APT::Install::Post-Invoke-Success;\n"
	"#clear DPkg::Pre-Invoke;\n"
	"#clear DPkg::Post-Invoke;\n"
	"#clear DPkg::Pre-Install-Pkgs;\n"
	"#clear DPkg::Options;\n"
	"#clear AptCli::Hooks;\n"
	"#clear Binary;\n"
	"#clear APT::Default-Release;\n"
	"APT::Update::Error-Mode \"any\";\n"
	"APT::Install-Recommends \"false\";\n"
	"APT::Install-Suggests \"false\";\n"
	"APT::Get::Assume-Yes \"true\";\n"
	"APT::Get::AllowUnauthenticated \"false\";\n"
	"APT::Get::AutomaticRemove \"false\";\n"
	"APT::Get::Always-Include-Phased-Updates \"true\";\n"
	"APT::Cmd::Pattern-Only \"true\";\n"
	"APT::Keep-Downloaded-Packages \"false\";\n"
	"APT::Color \"false\";\n"
	"Acquire::AllowInsecureRepositories \"false\";\n"
	"Acquire::AllowWeakRepositories \"false\";\n"
	"Acquire::AllowDowngradeToInsecureRepositories \"false\";\n"
	"Acquire::Languages \"none\";\n"
	"Acquire::PDiffs \"false\";\n"
	"Acquire::Retries \"3\";\n"
	"Acquire::http::Timeout \"30\";\n"
	"Acquire::https::Timeout \"30\";\n"
	"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n"
	"Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled \"false\";\n"
	"Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled \"false\";\n"
	"Acquire::IndexTargets::deb::CNF::DefaultEnabled \"false\";\n"
	"Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled \"false\";\n"
	"DPkg::Options { \"--force-confdef\"; \"--force-confold\"; \"--force-unsafe-io\"; };\n"
	"DPkg::Path \"" APT_DIR
	"/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\";\n"
	"DPkg::Use-Pty \"false\";\n";

int apt_write_text(struct apt *apt, const char *path, const char *text, struct error *err)
{
	return rootfs_write(apt->root, path, text, strlen(text), 0644, err);
}

static const char *environment(const char *name, const char *other)
{
	const char *value = getenv(name);

	if ((!value || !*value) && other)
		value = getenv(other);
	return value && *value ? value : NULL;
}

int apt_find_proxies(struct apt_proxies *ret, const char *option, struct error *err)
{
	const char *const urls[] = {option, environment("http_proxy", NULL),
	                            environment("https_proxy", "HTTPS_PROXY")};

	*ret = (struct apt_proxies){option ? option : urls[1], option ? option : urls[2],
	                            environment("no_proxy", "NO_PROXY")};
	for (size_t i = option ? 0 : 1; i < (option ? 1 : 3); i++) {
		CLEANUP_FREE char *shown = NULL;

		if (!urls[i] || apt_url_is_sane(urls[i]))
			continue;
		shown = str_printable(urls[i], 200);
		error_set(err, "'%s' is not the URL of a proxy", shown);
		error_hint(err, "as http://host:3128");
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

/* Bytes of a file of ours, bounded; "" if there is none. */
static char *read_host_bundle(void)
{
	CLEANUP_CLOSE int fd = open(CA_BUNDLE, O_RDONLY | O_CLOEXEC);
	CLEANUP_FREE char *data = mem_alloc(CA_MAX_BYTES + 1);
	size_t size = 0;
	ssize_t n = fd < 0 ? 0 : 1;

	while (n > 0 && size < CA_MAX_BYTES) {
		n = read(fd, data + size, CA_MAX_BYTES - size);
		size += n > 0 ? (size_t)n : 0;
	}
	return size < CA_MAX_BYTES ? mem_copy(data, size) : str_copy("");
}

/*
 * A small image may have no certificates at all, and a proxy that looks into TLS is known to this
 * host alone. What is fetched is checked by signatures anyway.
 */
static int put_certificates(struct apt *apt, bool *ret_any, struct error *err)
{
	CLEANUP_FREE char *host = read_host_bundle();
	CLEANUP_FREE void *image = NULL;
	CLEANUP_FREE char *both = NULL;

	if (rootfs_exists(apt->root, CA_BUNDLE) &&
	    rootfs_read(apt->root, CA_BUNDLE, CA_MAX_BYTES, &image, NULL, err) < 0)
		return -1;
	both = str_format("%s\n%s", image ? (char *)image : "", host);
	*ret_any = both[1] != '\0';
	return *ret_any ? apt_write_text(apt, CA_FILE, both, err) : 0;
}

/*
 * A host whose clock or mirror is deliberately not of today says so to its own apt; what it
 * downloads for an image is to be judged alike. "Acquire::Check-Date" and the like, or "".
 */
static char *host_date_checks(struct apt *apt)
{
	const char *const argv[] = {"apt-config", "shell",
	                            "V",          "Acquire::Check-Valid-Until/b",
	                            "D",          "Acquire::Check-Date/b",
	                            NULL};
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;
	bool valid_until, date;

	if (!proc_have("apt-config") ||
	    proc_run(argv, &(struct proc_options){.log = apt->log, .timeout_ms = HOST_APT_MS},
	             &text, 4096, &ignored) < 0)
		return str_copy("");
	valid_until = strstr(text, "V='false'") != NULL;
	date = strstr(text, "D='false'") != NULL;
	if (valid_until || date)
		log_detail(apt->log, "package lists may be out of date, as this host's apt allows");
	return str_format("%s%s", valid_until ? "Acquire::Check-Valid-Until \"false\";\n" : "",
	                  date ? "Acquire::Check-Date \"false\";\n" : "");
}

static void add_setting(char **text, const char *name, const char *value)
{
	CLEANUP_FREE char *line = value ? str_format("%s \"%s\";\n", name, value) : NULL;

	if (line)
		apt_append(text, line);
}

int apt_put_conf(struct apt *apt, const struct apt_proxies *p, struct error *err)
{
	CLEANUP_FREE char *dates = host_date_checks(apt);
	CLEANUP_FREE char *text = NULL;
	bool has_ca = false;

	if (put_certificates(apt, &has_ca, err) < 0)
		return -1;
	if (rootfs_exists(apt->root, IMAGE_CONF))
		apt_append(&text, "#include \"" IMAGE_CONF "\";\n");
	apt_append(&text, main_conf);
	apt_append(&text, dates);
	add_setting(&text, "Acquire::http::Proxy", p->http);
	add_setting(&text, "Acquire::https::Proxy", p->https);
	add_setting(&text, "Acquire::https::CAInfo", has_ca ? CA_FILE : NULL);
	if (apt_write_text(apt, MAIN_CONF, text, err) < 0)
		return -1;
	return apt_write_text(apt, FIRST_CONF, "Dir::Etc::main \"" MAIN_CONF "\";\n", err);
}

/* A conf file of the image may move the directories themselves: then nothing here would hold. */
int apt_check_conf(struct apt *apt, struct error *err)
{
	CLEANUP_STRV struct strv argv = strv_split(
		"apt-config shell A Dir::State::lists/d B Dir::Etc::sourcelist/f C Dir::Etc::main/f",
		" ");
	CLEANUP_FREE char *text = NULL;

	if (apt_capture(apt, &argv, &text, err) < 0)
		return error_prefix(err, "cannot ask the image's apt for its settings");
	if (strstr(text, "'" APT_DIR "/lists/'") && strstr(text, "'" APT_DIR "/sources.list'") &&
	    strstr(text, "'" MAIN_CONF "'"))
		return 0;
	error_set(err, "the image's '%s' or '%s.d' moves apt's own directories", IMAGE_CONF,
	          IMAGE_CONF);
	return error_code(err, EXIT_INPUT);
}

static int copy_pin_file(struct apt *apt, const char *path, const char *name, struct error *err)
{
	CLEANUP_FREE char *to = str_format(APT_DIR "/preferences.d/%s", name);
	CLEANUP_FREE void *text = NULL;
	size_t size = 0;
	struct rootfs_stat st = {0};
	int found = rootfs_stat(apt->root, path, &st, err);

	if (found <= 0 || !S_ISREG(st.mode))
		return found < 0 ? -1 : 0;
	if (rootfs_read(apt->root, path, PINS_MAX_BYTES, &text, &size, err) < 0)
		return -1;
	return rootfs_write(apt->root, to, text, size, 0644, err);
}

/* The image's own pins hold in the build as on the node; ours are read before them. */
int apt_copy_pins(struct apt *apt, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_mkdir(apt->root, APT_DIR "/preferences.d", 0755, err) < 0 ||
	    copy_pin_file(apt, IMAGE_PINS, "00image", err) < 0 ||
	    rootfs_list(apt->root, IMAGE_PINS_DIR, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", IMAGE_PINS_DIR, names.items[i]);

		if (copy_pin_file(apt, path, names.items[i], err) < 0)
			return -1;
	}
	return 0;
}

void apt_set_env(struct apt *apt, const struct apt_proxies *p)
{
	static const char *const fixed[] = {"LC_ALL=C",
	                                    "DEBIAN_FRONTEND=noninteractive",
	                                    "DEBCONF_NONINTERACTIVE_SEEN=true",
	                                    "APT_LISTCHANGES_FRONTEND=none",
	                                    "NEEDRESTART_SUSPEND=1",
	                                    "UCF_FORCE_CONFFOLD=1"};

	strv_addf(&apt->env, "APT_CONFIG=%s", FIRST_CONF);
	for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		strv_add(&apt->env, fixed[i]);
	if (p->none)
		strv_addf(&apt->env, "no_proxy=%s", p->none);
}
