#!/usr/bin/env python3
# What: the least of a web server with PUT and MOVE (below /web/), of an object store that speaks S3
#       (bucket "images") and of an OCI registry (below /v2/), in memory. Not a reference for any of
#       these: that are the real servers of http.bats, s3.bats and oci.bats.
# Why:  real servers do not fail on demand; mock_http.py makes this one.
# How:  fault-server.py DIR; see mock_http.py for DIR/port, log and faults. DIR/stored/ has the
#       SHA-256 of what lies at a path, '/' written as '%2F'.
#       Web: alice with 's3cret-password', reading too. S3: any signature of access key 'test-key'.
#       Registry: tokens from /token for alice. 'forget' drops the uploads of S3 and registry.
import hashlib
import itertools
import json
import os
import re
import sys
import urllib.parse
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True
from mock_http import Reply, basic, reply_json, serve  # noqa: E402

ALICE = basic("alice", "s3cret-password")


def xml_error(status, code):
    return Reply(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>",
                 {"Content-Type": "application/xml"})


def xml(text):
    return Reply(200, '<?xml version="1.0" encoding="UTF-8"?>' + text, {"Content-Type": "application/xml"})


class Store:
    """What lies where, and its digests in a directory that tests can look into."""

    def __init__(self, directory):
        self.directory = os.path.join(directory, "stored")
        os.makedirs(self.directory, exist_ok=True)
        self.items = {}

    def file(self, path):
        return os.path.join(self.directory, urllib.parse.quote(path, safe=""))

    def put(self, path, data, etag=None):
        self.items[path] = (data, etag or hashlib.md5(data).hexdigest())
        with open(self.file(path), "w") as out:
            print(hashlib.sha256(data).hexdigest(), file=out)

    def drop(self, path):
        if self.items.pop(path, None):
            os.unlink(self.file(path))

    def get(self, path):
        if path not in self.items:
            return Reply(404, "not there")
        data, etag = self.items[path]
        return Reply(200, data, {"ETag": f'"{etag}"'}, len(data))


class Web:
    def __init__(self, store):
        self.store = store

    def handle(self, request):
        if request.headers.get("Authorization") != ALICE:
            return Reply(401, "who are you", {"WWW-Authenticate": 'Basic realm="web"'})
        method, path = request.method, request.path
        if method in ("GET", "HEAD"):
            return self.store.get(path)
        if method == "PUT":
            self.store.put(path, request.body)
            return Reply(201)
        if method == "MKCOL":
            return Reply(201)
        if method == "DELETE":
            self.store.drop(path)
            return Reply(204)
        if method == "MOVE":
            return self.move(path, request.headers["Destination"])
        return Reply(405)

    def move(self, path, to):
        if path not in self.store.items:
            return Reply(404, "nothing to move")
        self.store.put(urllib.parse.unquote(urllib.parse.urlparse(to).path), self.store.items[path][0])
        self.store.drop(path)
        return Reply(201)


class S3:
    def __init__(self, store):
        self.store = store
        self.uploads = {}
        self.numbers = itertools.count(1)

    def handle(self, request):
        if "Credential=test-key/" not in request.headers.get("Authorization", ""):
            return xml_error(403, "InvalidAccessKeyId")
        if request.headers.get("x-amz-content-sha256") != hashlib.sha256(request.body).hexdigest():
            return xml_error(400, "XAmzContentSHA256Mismatch")
        method, query = request.method, request.query
        if "uploads" in query:
            return self.begin(request) if method == "POST" else self.list_uploads()
        if "uploadId" in query:
            if query["uploadId"] not in self.uploads:
                return xml_error(404, "NoSuchUpload")
            return self.upload(request, self.uploads[query["uploadId"]])
        if method in ("GET", "HEAD"):
            return self.store.get(request.path)
        if method == "PUT":
            self.store.put(request.path, request.body)
            return Reply(200, "", {"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})
        return xml_error(405, "MethodNotAllowed")

    def begin(self, request):
        name = f"upload-{next(self.numbers)}"
        self.uploads[name] = {}
        return xml(f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>")

    def list_uploads(self):
        return xml("<ListMultipartUploadsResult></ListMultipartUploadsResult>")

    def upload(self, request, parts):
        if request.method == "PUT":
            etag = hashlib.md5(request.body).hexdigest()
            parts[int(request.query["partNumber"])] = (request.body, etag)
            return Reply(200, "", {"ETag": f'"{etag}"'})
        if request.method == "GET":
            return xml("<ListPartsResult>" + "".join(
                f"<Part><PartNumber>{n}</PartNumber><ETag>&quot;{etag}&quot;</ETag><Size>{len(data)}</Size></Part>"
                for n, (data, etag) in sorted(parts.items())) + "<IsTruncated>false</IsTruncated></ListPartsResult>")
        if request.method == "DELETE":
            del self.uploads[request.query["uploadId"]]
            return Reply(204)
        return self.complete(request, parts)

    def complete(self, request, parts):
        wanted = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>\"?(\w*)\"?</ETag>", request.body.decode())
        if not wanted or any(parts.get(int(n), (b"", ""))[1] != etag for n, etag in wanted):
            return xml_error(400, "InvalidPart")
        pieces = [parts[int(n)][0] for n, _ in wanted]
        digests = b"".join(hashlib.md5(piece).digest() for piece in pieces)
        self.store.put(request.path, b"".join(pieces), f"{hashlib.md5(digests).hexdigest()}-{len(pieces)}")
        del self.uploads[request.query["uploadId"]]
        return xml(f"<CompleteMultipartUploadResult><Key>{escape(request.path)}</Key></CompleteMultipartUploadResult>")


class Registry:
    def __init__(self, store):
        self.store = store
        self.uploads = {}
        self.tokens = set()
        self.numbers = itertools.count(1)

    def token(self, request):
        if request.headers.get("Authorization") != ALICE:
            return reply_json(401, {"errors": [{"code": "UNAUTHORIZED"}]})
        self.tokens.add(f"s3cret-token-{len(self.tokens)}")
        return reply_json(200, {"token": f"s3cret-token-{len(self.tokens) - 1}", "expires_in": 300})

    def handle(self, request):
        if request.path == "/token":
            return self.token(request)
        if request.headers.get("Authorization", "")[len("Bearer "):] not in self.tokens:
            host = request.headers["Host"]
            return Reply(401, '{"errors": [{"code": "UNAUTHORIZED"}]}', {
                "WWW-Authenticate": f'Bearer realm="http://{host}/token",service="fault server"'})
        match = re.fullmatch(r"/v2/(.+?)/(blobs/uploads|blobs|manifests)/(.*)", request.path)
        if not match:
            return Reply(200, "{}")
        name, what, reference = match.groups()
        if what == "blobs/uploads":
            return self.upload(request, name, reference)
        if request.method in ("GET", "HEAD"):
            reply = self.store.get(request.path)
            reply.headers.update(self.kind(request.path))
            return reply
        return self.manifest(request, name)

    def kind(self, path):
        data = self.store.items.get(path, (b"", ""))[0]
        digest = {"Docker-Content-Digest": "sha256:" + hashlib.sha256(data).hexdigest()}
        if "/manifests/" in path and data:
            digest["Content-Type"] = json.loads(data)["mediaType"]
        return digest

    def manifest(self, request, name):
        if request.method != "PUT":
            return Reply(405)
        digest = "sha256:" + hashlib.sha256(request.body).hexdigest()
        self.store.put(request.path, request.body)
        self.store.put(f"/v2/{name}/manifests/{digest}", request.body)
        return Reply(201, "", {"Docker-Content-Digest": digest, "Location": request.path})

    def upload(self, request, name, number):
        if request.method == "POST":
            number = str(next(self.numbers))
            self.uploads[number] = b""
            return Reply(202, "", {"Location": f"/v2/{name}/blobs/uploads/{number}"})
        if number not in self.uploads:
            return reply_json(404, {"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]})
        if request.method == "PATCH":
            self.uploads[number] += request.body
        if request.method in ("PATCH", "GET"):
            return Reply(202 if request.method == "PATCH" else 204, "", {
                "Location": f"/v2/{name}/blobs/uploads/{number}",
                "Range": f"0-{max(0, len(self.uploads[number]) - 1)}"})
        data = self.uploads.pop(number) + request.body
        if request.method == "DELETE":
            return Reply(204)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        if request.query.get("digest") != digest:
            return reply_json(400, {"errors": [{"code": "DIGEST_INVALID"}]})
        self.store.put(f"/v2/{name}/blobs/{digest}", data)
        return Reply(201, "", {"Docker-Content-Digest": digest})


class Faulty:
    def __init__(self, directory):
        store = Store(directory)
        self.web, self.s3, self.registry = Web(store), S3(store), Registry(store)

    def forget(self):
        self.s3.uploads.clear()
        self.registry.uploads.clear()

    def handle(self, request):
        if request.path.startswith("/web/"):
            return self.web.handle(request)
        if request.path.startswith("/v2/") or request.path == "/token":
            return self.registry.handle(request)
        return self.s3.handle(request)


if __name__ == "__main__":
    serve(Faulty(sys.argv[1]), sys.argv[1])
