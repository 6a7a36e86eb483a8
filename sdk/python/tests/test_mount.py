"""A volume without a mount beside a mount of it: SLUICE_MOUNT names one."""

import os

import pytest

MOUNT = os.environ.get("SLUICE_MOUNT")
pytestmark = pytest.mark.skipif(MOUNT is None, reason="SLUICE_MOUNT names no mount")


def test_each_sees_what_the_other_closed(client, folder):
    content = os.urandom(3 << 20)
    with client.open(f"{folder}/from-client", "wb") as file:
        file.write(content)
    with open(f"{MOUNT}{folder}/from-client", "rb") as file:
        assert file.read() == content
    for round in range(5):
        with open(f"{MOUNT}{folder}/from-mount", "wb") as file:
            file.write(content[: 1 << (round * 4)])
        with client.open(f"{folder}/from-mount", "rb") as file:
            assert file.read() == content[: 1 << (round * 4)]
    found, mounted = client.stat(f"{folder}/from-mount"), os.stat(f"{MOUNT}{folder}/from-mount")
    for name in ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_blocks"):
        assert getattr(found, name) == getattr(mounted, name), name
    assert sorted(os.listdir(f"{MOUNT}{folder}")) == client.listdir(folder)
