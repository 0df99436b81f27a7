#!/usr/bin/env python3
# What: a MOCK of the vm-images API of whitesky.cloud's VCO, and of the server that refreshes its
#       tokens. It is not VCO: it is built from the published API description and older clients,
#       and where these say nothing it does what seems likely, or both by a switch.
# Why:  no VCO can be installed for a test.
# How:  vco-mock.py DIR                 serves; see mock_http.py for DIR/port, log and faults
#       vco-mock.py DIR token SECONDS   prints a token that ends then
#       DIR/settings.json, read for every request:
#         part_size    of an upload (5 MiB)
#         etag         "header", "body" or "text": where a part's ETag is told (header)
#         tell_id      whether making an image tells its id (true)
#         ready_s      from making to CREATED (0.3)
#         refresh      "jwt": the bare token; "json": within an object (jwt)
#         spoil        true: an image's MD5 comes out wrong
#         show         {key: value} over what the records of images say; null: the key is missing
#       DIR/images.json: what there is, by location and id, with the content's SHA-256.
import base64
import hashlib
import hmac
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from mock_http import Reply, reply_json, serve  # noqa: E402

CUSTOMER = "acme"
FIRST_IDS = {"be-g8-3": 4711, "nl-g8-1": 90}
BOOT_TYPES = ("bios", "uefi", "uefi-secure-boot")
OS_NAMES = ["Debian 11", "Debian 12", "Ubuntu 24.04", "Linux - other"]
KEY = b"only a mock's key"
LISTED = ("image_id", "status", "name", "boot_disk_size", "size", "memory", "os_type", "tags")


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(text):
    return b64(hmac.new(KEY, text.encode(), hashlib.sha256).digest())


def make_token(seconds):
    claims = {"exp": int(time.time()) + seconds, "username": "publisher", "serial": time.time_ns()}
    text = b64(b'{"alg":"HS256","typ":"JWT"}') + "." + b64(json.dumps(claims).encode())
    return text + "." + sign(text)


def token_of(request):
    """Its claims, or None where nobody of ours signed it."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    text, _, signature = token.rpartition(".")
    if scheme != "Bearer" or not text or not hmac.compare_digest(sign(text), signature):
        return None
    payload = text.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Vco:
    def __init__(self, directory):
        self.directory = directory
        self.lock = threading.RLock()
        self.images = {location: {} for location in FIRST_IDS}
        self.next_id = dict(FIRST_IDS)
        self.uploads = {}
        self.keep()

    def settings(self, key, otherwise):
        try:
            with open(os.path.join(self.directory, "settings.json")) as file:
                return json.load(file).get(key, otherwise)
        except FileNotFoundError:
            return otherwise

    def keep(self):
        path = os.path.join(self.directory, "images.json")
        with open(path + ".new", "w") as out:
            json.dump(self.images, out, indent=1)
        os.rename(path + ".new", path)

    def forget(self):
        """As a store does with uploads that were left alone for too long."""
        with self.lock:
            self.uploads.clear()

    def handle(self, request):
        with self.lock:
            try:
                return self.route(request)
            except Refused as why:
                return reply_json(why.status, {"message": str(why)})

    def route(self, request):
        if request.path == "/v1/oauth/jwt/refresh":
            return self.refresh(request)
        claims = token_of(request)
        if not claims or claims["exp"] <= time.time():
            raise Refused(401, "invalid or expired token")
        if (request.method, request.path) == ("GET", "/api/1/customers/vm-images/os-names"):
            return reply_json(200, {"result": [
                {"os_type": "Windows", "os_names": ["Windows Server 12"]},
                {"os_type": "Linux", "os_names": OS_NAMES}]})
        match = re.fullmatch(r"/api/1/customers/([^/]+)/locations/([^/]+)/vm-images(/.*)?", request.path)
        if not match:
            raise Refused(404, "no such path")
        if match[1] != CUSTOMER:
            raise Refused(403, "AccessDeniedWithoutScope")
        if match[2] not in self.images:
            raise Refused(404, "no such location")
        return self.vm_images(request, match[2], match[3] or "")

    def refresh(self, request):
        if request.method != "GET" or not token_of(request):
            raise Refused(401, "not a token of ours")
        token = make_token(3600)
        with open(os.path.join(self.directory, "refreshed"), "a") as out:
            print(token, file=out)
        if self.settings("refresh", "jwt") == "json":
            return reply_json(200, {"access_token": token})
        return Reply(200, token + "\n", {"Content-Type": "application/jwt"})

    def vm_images(self, request, location, rest):
        method = request.method
        part = re.fullmatch(r"/([^/]+)/upload-part/(\d+)", rest)
        finish = re.fullmatch(r"/([^/]+)/finish-image-upload", rest)
        one = re.fullmatch(r"/(\d+)", rest)
        if (method, rest) == ("GET", ""):
            return reply_json(200, {"result": [
                self.shown(image, LISTED) for image in self.images[location].values()]})
        if method == "GET" and one:
            return self.get(location, int(one[1]))
        if (method, rest) == ("POST", ""):
            return self.by_url(request, location)
        if (method, rest) == ("POST", "/upload-vm-image"):
            return self.begin(request, location)
        if method == "PUT" and part:
            return self.put_part(request, self.upload(request.query, location, part[1]), int(part[2]))
        if method == "POST" and finish:
            return self.finish(request, location, finish[1])
        raise Refused(405, "not in this API")

    def shown(self, image, keys):
        over = self.settings("show", {})
        return {key: over.get(key, image[key]) for key in keys if over.get(key, "") is not None}

    def get(self, location, number):
        image = self.images[location].get(number)
        if not image:
            raise Refused(404, "no such image")
        return reply_json(200, self.shown(image, LISTED + ("boot_type", "os_name")))

    def begin(self, request, location):
        if not request.query.get("file_name"):
            raise Refused(400, "file_name is missing")
        upload_id = f"{location}~{len(self.uploads)}.{time.time_ns()}"
        name = f"uploads/{time.time_ns()}/" + request.query["file_name"]
        size = self.settings("part_size", 5 << 20)
        self.uploads[upload_id] = {"name": name, "size": size, "location": location, "parts": {}}
        return reply_json(200, {"upload_id": upload_id, "object_name": name, "part_size": size})

    def upload(self, query, location, upload_id):
        upload = self.uploads.get(upload_id)
        if not upload or upload["location"] != location or upload["name"] != query.get("object_name"):
            raise Refused(404, "NoSuchUpload")
        return upload

    def put_part(self, request, upload, number):
        if not 1 <= number <= 10000 or not 0 < len(request.body) <= upload["size"]:
            raise Refused(400, "not a part")
        if request.headers.get("Content-Type") != "application/octet-stream":
            raise Refused(415, "parts are application/octet-stream")
        etag = hashlib.md5(request.body).hexdigest()
        upload["parts"][number] = (etag, request.body)
        where = self.settings("etag", "header")
        if where == "header":
            return Reply(200, "", {"ETag": f'"{etag}"'})
        framework = {"ETag": 'W/"of the reply itself"', "Content-Type": "application/json"}
        return Reply(200, json.dumps(etag if where == "text" else {"etag": etag}), framework)

    def check(self, query):
        for key in ("name", "memory", "boot_disk_size", "boot_type", "os_name", "os_type"):
            if not query.get(key):
                raise Refused(400, f"{key} is missing")
        for key in ("memory", "boot_disk_size"):
            if not query[key].isdigit():
                raise Refused(400, f"{key} is no number")
        if query["boot_type"] not in BOOT_TYPES or query["os_type"] != "Linux":
            raise Refused(400, "boot_type or os_type is none")
        if query["os_name"] not in OS_NAMES:
            raise Refused(400, "os_name is none of os-names")

    def make(self, location, query):
        number = self.next_id[location]
        self.next_id[location] += 1
        self.images[location][number] = {
            "image_id": number, "status": "CREATING", "name": query["name"], "size": 0,
            "boot_disk_size": int(query["boot_disk_size"]), "memory": int(query["memory"]),
            "boot_type": query["boot_type"], "os_name": query["os_name"],
            "os_type": query["os_type"], "tags": query.get("tags", ""),
            "md5_sum": query.get("md5_sum"), "sha256": None}
        self.keep()
        return number

    def settle(self, location, number, fetch):
        """The record goes again where the import fails."""
        time.sleep(self.settings("ready_s", 0.3))
        content = fetch()
        with self.lock:
            image = self.images[location][number]
            md5 = hashlib.md5(content or b"").hexdigest()
            if content is None or self.settings("spoil", False) or image["md5_sum"] not in (None, md5):
                del self.images[location][number]
            else:
                image.update(status="CREATED", size=len(content),
                             sha256=hashlib.sha256(content).hexdigest())
            self.keep()

    def made(self, location, query, fetch):
        number = self.make(location, query)
        threading.Thread(target=self.settle, args=(location, number, fetch), daemon=True).start()
        return reply_json(200, {"image_id": number} if self.settings("tell_id", True) else {"status": "ok"})

    def finish(self, request, location, upload_id):
        self.check(request.query)
        body = json.loads(request.body)
        upload = self.upload(body, location, upload_id)
        pieces = []
        for expected, part in enumerate(body["uploaded_parts"], 1):
            etag, piece = upload["parts"].get(part["part_number"], (None, None))
            if part["part_number"] != expected or not etag or part["etag"] != etag:
                raise Refused(400, "InvalidPart")
            pieces.append(piece)
        if any(len(piece) != upload["size"] for piece in pieces[:-1]):
            raise Refused(400, "EntityTooSmall")
        del self.uploads[upload_id]
        return self.made(location, request.query, lambda: b"".join(pieces))

    def by_url(self, request, location):
        self.check(request.query)
        url = request.query.get("url")
        if not url:
            raise Refused(400, "url is missing")
        return self.made(location, request.query, lambda: self.fetch(url))

    @staticmethod
    def fetch(url):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20) as head:
                if not head.headers.get("Content-Length"):
                    return None
            with urllib.request.urlopen(url, timeout=20) as reply:
                return reply.read()
        except (urllib.error.URLError, OSError):
            return None


if __name__ == "__main__":
    if sys.argv[2:3] == ["token"]:
        print(make_token(int(sys.argv[3])))
    else:
        serve(Vco(sys.argv[1]), sys.argv[1])
