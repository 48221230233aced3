# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A Hub on the loopback interface: as much of its HTTP interface as `huggingface_hub` needs to push and to load models.

It keeps repositories in memory, knows who may write where, and can be told to fail. Git hashes are computed as git does,
because clients compare them; large files go through the LFS protocol to a storage with an address of its own, to which
downloads are redirected, and which must see no tokens.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import yaml


WRITE_TOKEN, READ_TOKEN = "hf_write", "hf_read"
USER = "me"
_LARGE = (".safetensors", ".bin", ".png")
_MODEL = r"(?P<repo>[\w.-]+/[\w.-]+)"
_REVISION = r"(?P<revision>[^/]+)"


@dataclass
class File:
    """A file of a repository: its content, and whether it is in the large file storage."""

    content: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """The hash that git has for it; for a large file, that of its pointer."""
        content = self.content
        if self.large:
            content = (
                f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(content)}\n".encode()
            )
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Branches and commits: what each of them holds."""

    private: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: dict[str, File], message: str) -> str:
        parent = self.branches.get(branch, "")
        content = [parent, message, *(f"{name} {file.oid}" for name, file in sorted(files.items()))]
        oid = hashlib.sha1("\n".join(content).encode()).hexdigest()
        self.commits[oid], self.branches[branch] = files, oid
        self.messages.append(message)
        return oid

    @property
    def files(self) -> dict[str, File]:
        """What the main branch holds."""
        return self.commits[self.branches["main"]]


class LoopbackHub:
    """
    The server. Use it as a context.

    `fail` is called with the name of every step (`"create"`, `"preupload"`, `"batch"`, `"upload"`, `"verify"`, `"commit"`, `"resolve"`,
    `"info"`) before it happens, and may return `"drop"`, to close the connection in the middle of the request, or an HTTP
    status. `steps` lists the steps that were asked for.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.storage: dict[str, bytes] = {}
        self.steps: list[str] = []
        self.fail: Callable[[str], str | int | None] = lambda step: None
        self.lock = threading.Lock()

    def __enter__(self) -> "LoopbackHub":
        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Handler) for _ in range(2)]
        for server in self.servers:
            server.daemon_threads, server.hub = True, self
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        # The storage has another host name, as that of the real Hub: huggingface_hub 1.x sends the token to each port of a host.
        self.address, self.storage_address = (
            f"http://{host}:{server.server_address[1]}"
            for host, server in zip(("127.0.0.1", "localhost"), self.servers, strict=True)
        )
        return self

    def __exit__(self, *_) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()


class _Answer(Exception):
    def __init__(self, status: int, content: object = None, **headers: str) -> None:
        self.status, self.content, self.headers = status, content, headers


class _Dropped(Exception):
    pass


_ROUTES: list[tuple[str, re.Pattern, Callable]] = []


def _route(method: str, pattern: str):
    def register(function: Callable) -> Callable:
        _ROUTES.append((method, re.compile(pattern), function))
        return function

    return register


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> LoopbackHub:
        return self.server.hub

    def log_message(self, *_) -> None:
        pass

    def _serve(self) -> None:
        self.body = None
        url = urlsplit(self.path)
        path, self.query = unquote(url.path), parse_qs(url.query)
        try:
            for method, pattern, function in _ROUTES:
                match = pattern.fullmatch(path)
                if match and (method == self.command or (method == "GET" and self.command == "HEAD")):
                    with self.hub.lock:
                        function(self, **match.groupdict())
            raise _Answer(404, {"error": f"no such page: {self.command} {path}"})
        except _Dropped:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(2)
        except _Answer as answer:
            self._answer(answer)

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def _answer(self, answer: _Answer) -> None:
        self.read()  # what is not read would be taken for the next request
        content = answer.content if isinstance(answer.content, bytes) else json.dumps(answer.content).encode()
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(content)), "X-Request-Id": "loopback", **answer.headers}
        if answer.status >= 400 and isinstance(answer.content, dict):
            headers.setdefault("X-Error-Message", answer.content["error"])
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def read(self) -> bytes:
        if self.body is None:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                self.body = b""
                while size := int(self.rfile.readline(), 16):
                    self.body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return self.body

    def step(self, name: str) -> None:
        self.hub.steps.append(name)
        failure = self.hub.fail(name)
        if failure == "drop":
            self.rfile.read(min(64, int(self.headers.get("Content-Length", 0))))
            raise _Dropped
        if failure is not None:
            raise _Answer(failure, {"error": f"told to fail at {name}"})

    def require(self, owner: str | None = None) -> None:
        """Refuse who has no known token, and who may not write into the namespace `owner`."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (WRITE_TOKEN, READ_TOKEN):
            raise _Answer(401, {"error": "Invalid username or password."})
        if owner is not None and (token != WRITE_TOKEN or owner != USER):
            raise _Answer(403, {"error": f"You don't have the rights to write in the namespace {owner!r}"})

    def repository(self, name: str) -> Repository:
        if name not in self.hub.repositories or (
            self.hub.repositories[name].private and "Authorization" not in self.headers
        ):
            raise _Answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return self.hub.repositories[name]

    def files(self, repo: str, revision: str) -> tuple[str, dict[str, File]]:
        repository = self.repository(repo)
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            raise _Answer(404, {"error": f"Invalid rev id: {revision}"}, X_Error_Code="RevisionNotFound")
        return commit, repository.commits[commit]


@_route("GET", "/api/whoami-v2")
def _whoami(request: _Handler) -> None:
    request.require()
    raise _Answer(200, {"type": "user", "name": USER, "orgs": []})


@_route("POST", "/api/repos/create")
def _create(request: _Handler) -> None:
    request.step("create")
    asked = json.loads(request.read())
    request.require()
    owner = asked.get("organization") or USER
    request.require(owner)
    name = f"{owner}/{asked['name']}"
    answer = {"url": f"{request.hub.address}/{name}", "name": name}
    if name in request.hub.repositories:
        raise _Answer(409, {"error": "You already created this model repo", **answer})
    repository = Repository(private=asked.get("visibility") == "private" or asked.get("private") is True)
    repository.commit("main", {".gitattributes": File(b"*.safetensors filter=lfs\n", False)}, "initial commit")
    request.hub.repositories[name] = repository
    raise _Answer(200, answer)


@_route("POST", "/api/validate-yaml")
def _validate(request: _Handler) -> None:
    content = json.loads(request.read())["content"]
    match = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
    problems = [] if match else [{"message": "empty or missing yaml metadata in repo card"}]
    data = yaml.safe_load(match.group(1)) if match else {}
    errors = []
    for result in [result for index in data.get("model-index") or [] for result in index["results"]]:
        missing = {"task", "dataset", "metrics"} - result.keys()
        errors += [{"message": f'"model-index[0].results[0].{name}" is required'} for name in sorted(missing)]
    base = data.get("base_model")
    if base is not None and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", base):
        errors.append({"message": f'"base_model" with value "{base}" is not valid'})
    raise _Answer(400 if errors else 200, {"error": "Invalid metadata", "errors": errors, "warnings": problems})


@_route("POST", rf"/api/models/{_MODEL}/branch/{_REVISION}")
def _branch(request: _Handler, repo: str, revision: str) -> None:
    request.require(repo.split("/")[0])
    repository = request.repository(repo)
    if revision in repository.branches:
        raise _Answer(409, {"error": f"Reference already exists: {revision}"})
    repository.branches[revision] = repository.branches["main"]
    raise _Answer(200, {})


@_route("POST", rf"/api/models/{_MODEL}/preupload/{_REVISION}")
def _preupload(request: _Handler, repo: str, revision: str) -> None:
    request.step("preupload")
    request.require(repo.split("/")[0])
    _, files = request.files(repo, revision)
    answers = []
    for file in json.loads(request.read())["files"]:
        path = file["path"]
        mode = "lfs" if path.endswith(_LARGE) else "regular"
        oid = files[path].oid if path in files else None
        answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    raise _Answer(200, {"files": answers, "commitOid": request.repository(repo).branches[revision]})


@_route("POST", rf"/{_MODEL}\.git/info/lfs/objects/batch")
def _batch(request: _Handler, repo: str) -> None:
    request.step("batch")
    request.require(repo.split("/")[0])
    objects = []
    for asked in json.loads(request.read())["objects"]:
        answer = {"oid": asked["oid"], "size": asked["size"]}
        if asked["oid"] not in request.hub.storage:
            upload, verify = f"{request.hub.storage_address}/storage/{asked['oid']}", f"{request.hub.address}/verify"
            answer["actions"] = {"upload": {"href": upload}, "verify": {"href": verify}}
        objects.append(answer)
    raise _Answer(200, {"transfer": "basic", "objects": objects})


@_route("PUT", r"/storage/(?P<oid>\w+)")
def _store(request: _Handler, oid: str) -> None:
    request.step("upload")
    _refuse_tokens(request)
    content = request.read()
    if hashlib.sha256(content).hexdigest() != oid:
        raise _Answer(400, {"error": "the content has another hash"})
    request.hub.storage[oid] = content
    raise _Answer(200, b"")


@_route("POST", "/verify")
def _verify(request: _Handler) -> None:
    request.step("verify")
    request.require()
    asked = json.loads(request.read())
    if len(request.hub.storage.get(asked["oid"], b"")) != asked["size"]:
        raise _Answer(422, {"error": "the object is not there, or of another size"})
    raise _Answer(200, {})


@_route("GET", r"/storage/(?P<oid>\w+)")
def _fetch(request: _Handler, oid: str) -> None:
    _refuse_tokens(request)
    raise _Answer(200, request.hub.storage[oid], ETag=f'"{oid}"')


def _refuse_tokens(request: _Handler) -> None:
    if "Authorization" in request.headers:
        raise _Answer(400, {"error": "only one way of authentication, and the address is signed already"})


@_route("POST", rf"/api/models/{_MODEL}/commit/{_REVISION}")
def _commit(request: _Handler, repo: str, revision: str) -> None:
    request.step("commit")
    request.require(repo.split("/")[0])
    _, files = request.files(repo, revision)
    files, message = dict(files), ""
    for line in request.read().decode().splitlines():
        item = json.loads(line)
        value = item["value"]
        if item["key"] == "header":
            message = value["summary"]
        elif item["key"] == "file":
            files[value["path"]] = File(base64.b64decode(value["content"]), large=False)
        elif item["key"] == "lfsFile":
            if value["oid"] not in request.hub.storage:
                raise _Answer(400, {"error": f"{value['path']} was not uploaded"})
            files[value["path"]] = File(request.hub.storage[value["oid"]], large=True)
        elif item["key"] == "deletedFile":
            files.pop(value["path"], None)
    oid = request.repository(repo).commit(revision, files, message)
    address = f"{request.hub.address}/{repo}/commit/{oid}"
    raise _Answer(200, {"success": True, "commitOid": oid, "commitUrl": address, "hookOutput": ""})


@_route("GET", rf"/{_MODEL}/resolve/{_REVISION}/(?P<path>.+)")
def _resolve(request: _Handler, repo: str, revision: str, path: str) -> None:
    request.step("resolve")
    commit, files = request.files(repo, revision)
    if path not in files:
        raise _Answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
    file = files[path]
    if not file.large:
        raise _Answer(200, file.content, ETag=f'"{file.oid}"', X_Repo_Commit=commit)
    raise _Answer(
        302,
        b"",
        Location=f"{request.hub.storage_address}/storage/{file.sha256}",
        ETag=f'"{file.oid}"',
        X_Linked_ETag=f'"{file.sha256}"',
        X_Linked_Size=str(len(file.content)),
        X_Repo_Commit=commit,
    )


@_route("GET", rf"/api/models/{_MODEL}(/revision/{_REVISION})?")
def _info(request: _Handler, repo: str, revision: str | None) -> None:
    request.step("info")
    commit, files = request.files(repo, revision or "main")
    card = (
        re.match(r"---\n(.*?)\n---\n", files["README.md"].content.decode(), re.DOTALL)
        if "README.md" in files
        else None
    )
    data = yaml.safe_load(card.group(1)) if card else {}
    answer = {
        "_id": "0" * 24,
        "id": repo,
        "modelId": repo,
        "sha": commit,
        "private": request.repository(repo).private,
        "cardData": data,
        "tags": [*data.get("tags", []), *([f"license:{data['license']}"] if "license" in data else [])],
        "siblings": [{"rfilename": name} for name in sorted(files)],
    }
    raise _Answer(200, answer)


@_route("GET", rf"/api/models/{_MODEL}/tree/{_REVISION}(/(?P<path>.*))?")
def _tree(request: _Handler, repo: str, revision: str, path: str | None) -> None:
    _, files = request.files(repo, revision)
    prefix = f"{path}/" if path else ""
    found = {name: file for name, file in files.items() if name.startswith(prefix)}
    if path and not found:
        raise _Answer(404, {"error": f"{path} does not exist"}, X_Error_Code="EntryNotFound")
    entries = []
    for name, file in sorted(found.items()):
        entry = {"type": "file", "path": name, "size": len(file.content), "oid": file.oid}
        if file.large:
            entry["lfs"] = {"oid": file.sha256, "size": len(file.content), "pointerSize": 134}
        entries.append(entry)
    raise _Answer(200, entries)
