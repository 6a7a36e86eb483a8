"""Volumes of Sluice without a mount.

>>> client = sluice.Client("name", "redis://localhost/1")
>>> with client.open("/file", "wb") as file:
...     file.write(b"content")

Users are asserted, not authenticated.
"""

from ._client import Client
from ._file import File

__all__ = ["Client", "File"]
