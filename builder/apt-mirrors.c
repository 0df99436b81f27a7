/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sources are the distribution's own, and what a build makes of them: mirrors take their
 * place, they get more components, and repositories of the build stand beside them.
 */
#include <string.h>

#include "apt-internal.h"

static bool is_component(const char *name, bool ubuntu)
{
	static const char *const debian[] = {"main", "contrib", "non-free", "non-free-firmware",
	                                     NULL};
	static const char *const of_ubuntu[] = {"main", "restricted", "universe", "multiverse",
	                                        NULL};
	const char *const *known = ubuntu ? of_ubuntu : debian;

	while (*known && !str_equal(*known, name))
		known++;
	return *known != NULL;
}

static bool has_only_own_components(const struct apt_source *s, bool ubuntu)
{
	for (size_t i = 0; i < s->components.count; i++)
		if (!is_component(s->components.items[i], ubuntu))
			return false;
	return s->components.count > 0;
}

/* Where archives of the distribution and their mirrors are by custom. */
static bool has_own_path(const char *uri, const char *distribution)
{
	CLEANUP_FREE char *plain = str_copy(uri);
	CLEANUP_FREE char *end = str_format("/%s", distribution);
	CLEANUP_FREE char *security = str_format("/%s-security", distribution);
	CLEANUP_FREE char *ports = str_format("/%s-ports", distribution);
	size_t length = strlen(plain);

	while (length > 0 && plain[length - 1] == '/')
		plain[--length] = '\0';
	/* mirror+file: names a list of mirrors, as cloud images have */
	return str_starts(uri, "mirror") || str_ends(plain, end) || str_ends(plain, security) ||
	       str_ends(plain, ports);
}

static bool is_ppa(const struct apt_source *s)
{
	return strstr(s->uris.items[0], "//ppa.") != NULL;
}

static bool is_own(const struct apt_source *s, const char *distribution)
{
	CLEANUP_FREE char *keyring = str_format("/%s-archive-", distribution);

	if (is_ppa(s) || !has_only_own_components(s, str_equal(distribution, "ubuntu")))
		return false;
	/* others publish "main" of our suite at a path of the same name, under their own key */
	if (s->signed_by)
		return strstr(s->signed_by, keyring) != NULL;
	for (size_t i = 0; i < s->uris.count; i++)
		if (!has_own_path(s->uris.items[i], distribution))
			return false;
	return true;
}

void apt_sources_judge(struct apt_sources *sources, const char *distribution)
{
	bool any = false;

	for (size_t i = 0; i < sources->count; i++) {
		sources->items[i].own = is_own(&sources->items[i], distribution);
		any = any || sources->items[i].own;
	}
	/* a mirror at a place of its own: the distribution itself must come from somewhere */
	for (size_t i = 0; i < sources->count && !any; i++) {
		struct apt_source *s = &sources->items[i];

		s->own = !s->signed_by && !is_ppa(s) &&
		         has_only_own_components(s, str_equal(distribution, "ubuntu"));
	}
}

int apt_mirrors_parse(struct apt_mirrors *ret, const struct strv *options, struct error *err)
{
	for (size_t i = 0; options && i < options->count; i++) {
		bool security = str_starts(options->items[i], "security=");
		const char *url = options->items[i] + (security ? 9 : 0);
		char **field = security ? &ret->security : &ret->all;

		if (!apt_url_is_sane(url)) {
			CLEANUP_FREE char *shown = str_printable(url, 200);

			error_set(err, "'%s' is not the URL of a mirror", shown);
			error_hint(
				err,
				"as http://host/debian, or security=http://host/debian-security");
			return error_code(err, EXIT_USAGE);
		}
		free(*field);
		*field = str_copy(url);
		while (str_ends(*field, "/"))
			(*field)[strlen(*field) - 1] = '\0';
	}
	return 0;
}

void apt_mirrors_free(struct apt_mirrors *mirrors)
{
	free(mirrors->all);
	free(mirrors->security);
	*mirrors = (struct apt_mirrors){0};
}

static bool is_security(const char *suite)
{
	return str_ends(suite, "-security") || str_ends(suite, "/updates");
}

/* Debian's security archive is a place of its own, beside the other by custom. */
static char *security_mirror(const struct apt_mirrors *m)
{
	if (m->security)
		return str_copy(m->security);
	if (m->all && str_ends(m->all, "/debian"))
		return str_format("%s-security", m->all);
	return m->all ? str_copy(m->all) : NULL;
}

/* The part of a source with these suites, at this mirror (NULL: where it was). */
static void add_part(struct apt_sources *to, const struct apt_source *s, bool security,
                     const char *mirror)
{
	struct apt_source part = {.deb822 = s->deb822, .own = s->own};

	for (size_t i = 0; i < s->suites.count; i++)
		if (is_security(s->suites.items[i]) == security)
			strv_add(&part.suites, s->suites.items[i]);
	if (part.suites.count == 0)
		return;
	if (mirror)
		strv_add(&part.uris, mirror);
	else
		strv_add_all(&part.uris, &s->uris);
	strv_add_all(&part.components, &s->components);
	part.signed_by = s->signed_by ? str_copy(s->signed_by) : NULL;
	part.rest = s->rest ? str_copy(s->rest) : NULL;
	apt_sources_add(to, &part);
}

void apt_sources_rewrite(struct apt_sources *sources, const struct apt_mirrors *mirrors)
{
	CLEANUP_FREE char *security = security_mirror(mirrors);
	struct apt_sources rewritten = {0};

	for (size_t i = 0; i < sources->count; i++) {
		struct apt_source *s = &sources->items[i];

		if (!s->own) {
			apt_sources_add(&rewritten, s);
			continue;
		}
		add_part(&rewritten, s, false, mirrors->all);
		add_part(&rewritten, s, true, security);
	}
	apt_sources_free(sources);
	*sources = rewritten;
}

static bool same_uri(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);

	while (na > 0 && a[na - 1] == '/')
		na--;
	while (nb > 0 && b[nb - 1] == '/')
		nb--;
	return na == nb && strncmp(a, b, na) == 0;
}

/* apt refuses one place with two keys, so the image's own word for it gives way. */
void apt_sources_replace(struct apt_sources *sources, const struct apt_source *by)
{
	size_t kept = 0;

	for (size_t i = 0; i < sources->count; i++) {
		struct apt_source *s = &sources->items[i];
		bool same = false;

		for (size_t u = 0; u < s->uris.count; u++)
			same = same || same_uri(s->uris.items[u], by->uris.items[0]);
		for (size_t n = s->suites.count; same && n-- > 0;)
			if (same_uri(s->suites.items[n], by->suites.items[0]))
				strv_remove(&s->suites, n);
		if (s->suites.count == 0)
			apt_source_free(s);
		else
			sources->items[kept++] = *s;
	}
	sources->count = kept;
}

char *apt_sources_lines(const struct apt_sources *sources)
{
	char *text = str_copy("");

	for (size_t i = 0; i < sources->count; i++) {
		const struct apt_source *s = &sources->items[i];
		CLEANUP_FREE char *components = strv_join(&s->components, " ");
		const char *options = s->rest ? s->rest : "";

		for (size_t u = 0; !s->deb822 && u < s->uris.count; u++) {
			for (size_t n = 0; n < s->suites.count; n++) {
				CLEANUP_FREE char *line =
					str_format("deb %s%s%s%s %s %s\n", *options ? "[" : "",
				                   options, *options ? "] " : "", s->uris.items[u],
				                   s->suites.items[n], components);

				apt_append(&text, line);
			}
		}
	}
	return text;
}

char *apt_sources_stanzas(const struct apt_sources *sources)
{
	char *text = str_copy("");

	for (size_t i = 0; i < sources->count; i++) {
		const struct apt_source *s = &sources->items[i];
		CLEANUP_FREE char *uris = strv_join(&s->uris, " ");
		CLEANUP_FREE char *suites = strv_join(&s->suites, " ");
		CLEANUP_FREE char *components = strv_join(&s->components, " ");
		CLEANUP_FREE char *stanza = NULL;

		if (!s->deb822)
			continue;
		stanza = str_format("Types: deb\nURIs: %s\nSuites: %s\n%s%s%s%s\n", uris, suites,
		                    *components ? "Components: " : "", components,
		                    *components ? "\n" : "", s->rest ? s->rest : "");
		apt_append(&text, stanza);
	}
	return text;
}

int apt_add_components(struct apt *apt, const struct strv *components, struct error *err)
{
	bool any = false;

	for (size_t i = 0; i < components->count; i++) {
		const char *name = components->items[i];

		if (is_component(name, false) || is_component(name, true))
			continue;
		error_set(err, "'%s' is no component of Debian or Ubuntu", name);
		return error_code(err, EXIT_USAGE);
	}
	for (size_t i = 0; i < apt->sources.count; i++) {
		struct apt_source *s = &apt->sources.items[i];

		any = any || s->own;
		for (size_t n = 0; s->own && n < components->count; n++)
			if (!strv_has(&s->components, components->items[n]))
				strv_add(&s->components, components->items[n]);
	}
	if (!any && apt->network)
		log_warn(apt->log,
		         "the image's package sources name no archive of its distribution, "
		         "so no components are added to it, ignoring");
	return 0;
}
