/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of backends. */
#include "publish/publish.h"

const struct publish_backend *const publish_backends[] = {
	&publish_dir, &publish_http, &publish_s3, &publish_vco, &publish_oci, &publish_glance, NULL,
};

const struct publish_backend *publish_backend_find(const char *type)
{
	for (size_t i = 0; publish_backends[i]; i++)
		if (str_equal(publish_backends[i]->type, type))
			return publish_backends[i];
	return NULL;
}
