/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel modules, tiny: a relocatable object with nothing but .modinfo, and behind it, if it is to
 * be signed, a PKCS#7 message as the kernel's sign-file writes it, by a key that is made for it.
 */
#ifndef GPUIMG_TESTS_MODULE_MAKER_H
#define GPUIMG_TESTS_MODULE_MAKER_H

#include <elf.h>
#include <endian.h>
#include <openssl/cms.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#define MODULE_ROOM 16384

struct made_module {
	unsigned char data[MODULE_ROOM];
	size_t size;
};

static inline void module_put(struct made_module *m, const void *data, size_t size)
{
	if (size > MODULE_ROOM - m->size)
		abort();
	memcpy(m->data + m->size, data, size);
	m->size += size;
}

/* fields: ended by '|' each: "name=nvidia|version=550.1|". */
static inline void module_make(struct made_module *m, unsigned machine, const char *fields)
{
	static const char names[] = "\0.modinfo\0.shstrtab";
	size_t size = strlen(fields), at = sizeof(Elf64_Ehdr);
	Elf64_Shdr s[3] = {{0}};
	Elf64_Ehdr head = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, 1},
		.e_type = ET_REL,
		.e_machine = (Elf64_Half)machine,
		.e_version = 1,
		.e_ehsize = sizeof(head),
		.e_shentsize = sizeof(s[0]),
		.e_shnum = 3,
		.e_shstrndx = 2,
	};

	s[1] = (Elf64_Shdr){.sh_name = 1,
	                    .sh_type = SHT_PROGBITS,
	                    .sh_flags = SHF_ALLOC,
	                    .sh_offset = at,
	                    .sh_size = size,
	                    .sh_addralign = 1};
	s[2] = (Elf64_Shdr){.sh_name = 10,
	                    .sh_type = SHT_STRTAB,
	                    .sh_offset = at + size,
	                    .sh_size = sizeof(names),
	                    .sh_addralign = 1};
	head.e_shoff = (at + size + sizeof(names) + 7) & ~(size_t)7;
	memset(m, 0, sizeof(*m));
	module_put(m, &head, sizeof(head));
	module_put(m, fields, size);
	for (size_t i = at; i < m->size; i++)
		if (m->data[i] == '|')
			m->data[i] = 0;
	module_put(m, names, sizeof(names));
	m->size = head.e_shoff;
	module_put(m, s, sizeof(s));
}

/* A certificate of its own for the key; only its issuer's name is read. */
static inline X509 *module_certificate(EVP_PKEY *key, const char *signer)
{
	X509 *cert = X509_new();
	X509_NAME *name = X509_get_subject_name(cert);
	X509_EXTENSION *key_id;
	X509V3_CTX context;

	ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), 0);
	X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
	X509_set_pubkey(cert, key);
	if (*signer)
		X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)signer,
		                           -1, -1, 0);
	else
		X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"none",
		                           -1, -1, 0);
	X509_set_issuer_name(cert, name);
	X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
	key_id = X509V3_EXT_conf_nid(NULL, &context, NID_subject_key_identifier, "hash");
	X509_add_ext(cert, key_id, -1);
	X509_EXTENSION_free(key_id);
	if (!X509_sign(cert, key, EVP_sha256()))
		abort();
	return cert;
}

/* What stands behind the message. */
static inline void module_trailer(struct made_module *m, size_t length)
{
	static const char marker[] = "~Module signature appended~\n";
	const unsigned char kind[8] = {0, 0, 2};
	uint32_t size = htobe32((uint32_t)length);

	module_put(m, kind, sizeof(kind));
	module_put(m, &size, sizeof(size));
	module_put(m, marker, sizeof(marker) - 1);
}

/* signer "": a certificate without a common name. more: CMS_USE_KEYID and the like. */
static inline void module_sign_with(struct made_module *m, const char *signer, unsigned more)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = module_certificate(key, signer);
	BIO *content = BIO_new_mem_buf(m->data, (int)m->size);
	CMS_ContentInfo *cms = CMS_sign(cert, key, NULL, content,
	                                CMS_NOCERTS | CMS_BINARY | CMS_DETACHED | CMS_NOSMIMECAP |
	                                        CMS_NOATTR | more);
	unsigned char *message = NULL;
	int length = cms ? i2d_CMS_ContentInfo(cms, &message) : -1;

	if (length <= 0)
		abort();
	module_put(m, message, (size_t)length);
	module_trailer(m, (size_t)length);
	OPENSSL_free(message);
	CMS_ContentInfo_free(cms);
	BIO_free(content);
	X509_free(cert);
	EVP_PKEY_free(key);
}

static inline void module_sign(struct made_module *m, const char *signer)
{
	module_sign_with(m, signer, 0);
}

#endif
