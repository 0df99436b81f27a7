/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what was stored is what was sent: it is got again, and digested as it comes. */
#include <openssl/evp.h>

#include "builder/digest.h"
#include "publish/publish.h"

DEFINE_CLEANUP(digest_context, EVP_MD_CTX *, EVP_MD_CTX_free)
#define CLEANUP_DIGEST_CONTEXT CLEANUP(cleanup_digest_context)

struct reading {
	EVP_MD_CTX *context;
	uint64_t left_bytes;
};

/* No more than was sent: a server may go on for ever. */
static int digest_piece(void *opaque, const void *data, size_t size, struct error *err)
{
	struct reading *r = opaque;

	if (size > r->left_bytes) {
		error_set(err, "what was stored is not what was sent: it is longer");
		return error_code(err, EXIT_PROOF);
	}
	r->left_bytes -= size;
	return EVP_DigestUpdate(r->context, data, size) == 1 ? 0
	                                                     : error_set(err, "libcrypto fails");
}

int publish_digest_back(struct publish_job *job, const struct http_request *like,
                        int (*send)(struct publish_job *, const struct http_request *,
                                    struct http_reply *, bool *, struct error *),
                        uint64_t bytes, char **ret_hex, struct error *err)
{
	CLEANUP_DIGEST_CONTEXT EVP_MD_CTX *context = EVP_MD_CTX_new();
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	struct reading reading = {.context = context, .left_bytes = bytes};
	unsigned char value[EVP_MAX_MD_SIZE];
	unsigned length = 0;
	struct http_request request = *like;

	request.on_data = digest_piece;
	request.opaque = &reading;
	/* A try that breaks off would leave its bytes in the digest: the next run reads anew. */
	request.idempotent = false;
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
		return error_set(err, "libcrypto cannot make a digest");
	if (send(job, &request, &reply, NULL, err) < 0)
		return -1;
	if (reply.status != 200)
		return job->backend->refused ? job->backend->refused(job, &request, &reply, err)
		                             : http_error(job->http, &request, &reply, err);
	if (EVP_DigestFinal_ex(context, value, &length) != 1)
		return error_set(err, "libcrypto cannot make a digest");
	*ret_hex = digest_hex(value, length);
	return 0;
}

static int send_plainly(struct publish_job *job, const struct http_request *request,
                        struct http_reply *ret, bool *ret_unknown, struct error *err)
{
	return http_send(job->http, request, ret, ret_unknown, err);
}

/* The mismatch is what counts, whether or not it can be written down. */
static int forget_damaged(struct publish_job *job, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;

	if (publish_set_damaged(job, &ignored) < 0)
		error_prefix(err, "(%s, ignoring)", ignored.message);
	return -1;
}

int publish_read_back(struct publish_job *job, const struct http_request *like, struct error *err)
{
	CLEANUP_FREE char *hex = NULL;

	if (publish_digest_back(job, like, send_plainly, job->image->size_bytes, &hex, err) < 0)
		return error_exit_code(err) == EXIT_PROOF ? forget_damaged(job, err) : -1;
	if (!str_equal(hex, job->image->sha256)) {
		error_set(err, "what was stored is not what was sent: read back, its SHA-256 is %s",
		          hex);
		error_hint(err, "run again to send it anew, and tell who runs this server");
		error_code(err, EXIT_PROOF);
		return forget_damaged(job, err);
	}
	job->verified = str_copy("read back");
	return 0;
}
