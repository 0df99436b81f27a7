/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "changes-digest.h"
#include "digest.h"

/* A sink that writes down what it is given, times left out: those of our own files are new in each
 * build, and generators clamp them to SOURCE_DATE_EPOCH. */
struct listing {
	struct tree_sink sink;
	struct strv lines;
};

static int list_node(struct tree_sink *sink, const struct tree_node *n, struct error *err)
{
	struct listing *l = (struct listing *)sink;
	CLEANUP_FREE char *content = NULL;

	if (n->fd >= 0 && digest_fd(n->fd, n->path, &content, err) < 0)
		return -1;
	strv_addf(&l->lines, "%s\n%o %u %u\n%s\n%s\n%s", n->path, n->mode, n->uid, n->gid,
	          content ? content : "-", n->link_target ? n->link_target : "-",
	          n->same_as ? n->same_as : "-");
	for (size_t i = 0; i < n->xattr_count; i++) {
		CLEANUP_FREE char *value = digest_memory(n->xattrs[i].value, n->xattrs[i].size);

		strv_addf(&l->lines, "%s=%s", n->xattrs[i].name, value);
	}
	return 0;
}

int changes_digest(char **ret, const struct tree *tree, const struct strv *changed,
                   const struct strv *removed, struct error *err)
{
	struct listing l = {.sink = {.put = list_node}};
	int result = tree_send(tree, changed, &l.sink, err);

	if (result == 0) {
		CLEANUP_FREE char *put = strv_join(&l.lines, "\n");
		CLEANUP_FREE char *gone = strv_join(removed, "\n");
		CLEANUP_FREE char *both = str_format("%s\n\n%s", put, gone);

		*ret = digest_memory(both, strlen(both));
	}
	strv_free(&l.lines);
	return result;
}
