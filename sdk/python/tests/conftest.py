"""A volume for the tests: SLUICE_META names its metadata. It is empty, and has ACLs and no trash."""

import os
import uuid

import pytest

import sluice


@pytest.fixture(scope="session")
def meta() -> str:
    return os.environ["SLUICE_META"]


@pytest.fixture(scope="session")
def options() -> dict:
    return {"uid": 0, "gid": 0, "groups": [], "superuser": True, "umask": 0o022, "cache_size": "64M"}


@pytest.fixture(scope="session")
def client(meta, options):
    with sluice.Client("test", meta, **options) as client:
        yield client


@pytest.fixture
def folder(client):
    path = f"/{uuid.uuid4().hex}"
    client.mkdir(path)
    yield path
    client.rmr(path)
