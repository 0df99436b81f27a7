/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signature behind a kernel module: the PKCS#7 message, then 12 bytes that give its length,
 * then a fixed line (include/linux/module_signature.h). It is read for a name, not verified: which
 * keys a node's kernel trusts is not written in the image.
 */
#include <endian.h>
#include <openssl/cms.h>
#include <openssl/err.h>
#include <string.h>

#include "module-info.h"

#define SIGNATURE_MAX_BYTES (64UL * 1024)
#define SIGNER_MAX_LENGTH   256
#define ID_PKCS7            2 /* PKEY_ID_PKCS7, the only kind that kernels since 4.3 take */

static const char marker[] = "~Module signature appended~\n";

struct trailer {
	uint8_t algo, hash, id_type, signer_length, key_id_length, padding[3];
	uint32_t size; /* big endian */
};

static void free_cms(CMS_ContentInfo **cms)
{
	CMS_ContentInfo_free(*cms);
}

/* The common name; NULL: none. */
static char *common_name(X509_NAME *name)
{
	int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
	unsigned char *text = NULL;
	char *shown;

	if (at < 0 ||
	    ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at))) < 0)
		return NULL;
	shown = str_printable((const char *)text, SIGNER_MAX_LENGTH);
	OPENSSL_free(text);
	return shown;
}

/* By issuer and serial number, as sign-file(1) of the kernel does. */
static char *signer_of(const unsigned char *message, size_t size)
{
	const unsigned char *at = message;
	CLEANUP(free_cms) CMS_ContentInfo *cms = d2i_CMS_ContentInfo(NULL, &at, (long)size);
	STACK_OF(CMS_SignerInfo) *signers = cms ? CMS_get0_SignerInfos(cms) : NULL;
	X509_NAME *issuer = NULL;

	if (!signers || sk_CMS_SignerInfo_num(signers) < 1 ||
	    CMS_SignerInfo_get0_signer_id(sk_CMS_SignerInfo_value(signers, 0), NULL, &issuer,
	                                  NULL) != 1 ||
	    !issuer)
		return NULL;
	return common_name(issuer);
}

bool module_signature_read(const void *data, size_t size, char **ret_signer)
{
	const unsigned char *bytes = data;
	const size_t line = sizeof(marker) - 1;
	struct trailer trailer;
	size_t length;

	*ret_signer = NULL;
	if (size < line || memcmp(bytes + size - line, marker, line) != 0)
		return false;
	size -= line;
	if (size < sizeof(trailer))
		return true;
	size -= sizeof(trailer);
	memcpy(&trailer, bytes + size, sizeof(trailer));
	length = be32toh(trailer.size);
	if (trailer.id_type != ID_PKCS7 || length > size || length > SIGNATURE_MAX_BYTES)
		return true;
	*ret_signer = signer_of(bytes + size - length, length);
	ERR_clear_error(); /* of a damaged message: nobody else shall find them */
	return true;
}
