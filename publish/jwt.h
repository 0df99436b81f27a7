/* SPDX-License-Identifier: Apache-2.0 */
/* When a JSON Web Token (RFC 7519) ends. Nothing of it is trusted or checked: the server does that.
 */
#ifndef GPUIMG_PUBLISH_JWT_H
#define GPUIMG_PUBLISH_JWT_H

#include <time.h>

/* Its "exp"; 0: it does not say, or is no such token. */
time_t jwt_expires(const char *token);

#endif
