/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of backends. */
#include "publish/publish.h"

const struct publish_backend *const publish_backends[] = {
	&publish_dir, &publish_http, &publish_s3, &publish_vco, &publish_oci, &publish_glance, NULL,
};
