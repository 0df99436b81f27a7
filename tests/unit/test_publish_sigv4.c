/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 signer against the examples of AWS's documentation ("Signature calculations for the
 * Authorization header", its own keys and date), and against signatures of requests that other
 * signers get wrong, made with Python's hmac from canonical requests written by hand.
 */
#include <stdlib.h>

#include "publish/sigv4.h"
#include "tap.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DAY          1369353600 /* 2013-05-24T00:00:00Z */

static struct sigv4 example(void)
{
	return (struct sigv4){
		.access_key = "AKIAIOSFODNN7EXAMPLE",
		.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		.region = "us-east-1",
		.service = "s3",
		.method = "GET",
		.host = "examplebucket.s3.amazonaws.com",
		.path = "/",
		.payload_sha256 = EMPTY_SHA256,
		.now = DAY,
	};
}

static void expect(const struct sigv4 *s, const char *names, const char *signature,
                   const char *what)
{
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *want =
		str_format("Authorization: AWS4-HMAC-SHA256 "
	                   "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
	                   "SignedHeaders=%s, Signature=%s",
	                   names, signature);

	sigv4_sign(s, &headers);
	check_str(headers.items[headers.count - 1], want, "%s", what);
}

static void test_documented(void)
{
	struct sigv4 s = example();
	CLEANUP_STRV struct strv range = {0}, put = {0}, lifecycle = {0}, list = {0};

	strv_add(&range, "Range: bytes=0-9");
	s.path = "/test.txt";
	s.headers = &range;
	expect(&s, "host;range;x-amz-content-sha256;x-amz-date",
	       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
	       "AWS's example 'GET object'");

	strv_add(&put, "Date: Fri, 24 May 2013 00:00:00 GMT");
	strv_add(&put, "x-amz-storage-class: REDUCED_REDUNDANCY");
	s = example();
	s.method = "PUT";
	s.path = "/test%24file.text";
	s.headers = &put;
	s.payload_sha256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
	expect(&s, "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
	       "AWS's example 'PUT object'");

	strv_add(&lifecycle, "lifecycle=");
	s = example();
	s.query = &lifecycle;
	expect(&s, "host;x-amz-content-sha256;x-amz-date",
	       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
	       "AWS's example 'GET bucket lifecycle', an empty value");

	strv_add(&list, "prefix=J");
	strv_add(&list, "max-keys=2");
	s = example();
	s.query = &list;
	expect(&s, "host;x-amz-content-sha256;x-amz-date",
	       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
	       "AWS's example 'List objects', whose query is sorted first");
}

static void test_traps(void)
{
	struct sigv4 s = example();
	CLEANUP_STRV struct strv headers = {0}, query = {0};
	CLEANUP_FREE char *sorted = NULL;

	strv_add(&headers, "X-Amz-Meta-A-B: 2");
	strv_add(&headers, "X-Amz-Meta-A:   1 ");
	s.method = "PUT";
	s.host = "h:1";
	s.path = "/b/k";
	s.headers = &headers;
	expect(&s, "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-meta-a-b",
	       "582d4cf1894caae569ca48b8b08e1646ed84ae7d8358c52ed0653f7ac07e0c21",
	       "a header whose name begins another's comes first, values are trimmed");

	strv_add(&query, "uploads=");
	strv_add(&query, "ab=%2F");
	strv_add(&query, "a-b=2");
	strv_add(&query, "a=");
	sorted = sigv4_query(&query);
	check_str(sorted, "a=&a-b=2&ab=%2F&uploads=", "queries are sorted by name, then value");
	s = example();
	s.host = "h:1";
	s.path = "/b";
	s.query = &query;
	s.session_token = "tok";
	expect(&s, "host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
	       "a2e55f1bd0203fb3a9ad4ecb62fd321794b6899cfc37c8fa48b0fa460a45e8b6",
	       "a session token is signed too");
}

static void test_values(void)
{
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *sorted = NULL;
	CLEANUP_FREE char *none = sigv4_query(NULL);

	strv_add(&query, "n=10");
	strv_add(&query, "n=");
	strv_add(&query, "n=1");
	sorted = sigv4_query(&query);
	check_str(sorted, "n=&n=1&n=10", "one name's values are sorted among themselves");
	check_str(none, "", "no query is an empty one");
}

static void test_result(void)
{
	struct sigv4 s = example();
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *all = NULL;

	sigv4_sign(&s, &headers);
	all = strv_join(&headers, "\n");
	check(strv_has(&headers, "x-amz-date: 20130524T000000Z"), "the date is sent");
	check(strv_has(&headers, "x-amz-content-sha256: " EMPTY_SHA256),
	      "and the payload's digest");
	check(!strstr(all, s.secret_key), "the secret key is in no header");
	check(!strcasestr(all, "host: "), "the host is left to the transport");
}

int main(void)
{
	test_documented();
	test_traps();
	test_values();
	test_result();
	return tap_done();
}
