# SPDX-License-Identifier: Apache-2.0
"""Shared by the checks: the user's folder of caches, which clones in other folders share."""
import os
import time
from pathlib import Path


def folder(name):
    """coeus/NAME in the user's folder of caches, made if it is missing. None if there is no such folder, if it cannot be
    written, or with COEUS_NO_CACHE=1: what uses it must do without."""
    if os.environ.get("COEUS_NO_CACHE"):
        return None
    root = os.environ.get("XDG_CACHE_HOME")
    if not root:
        home = os.environ.get("HOME")
        if not home:
            return None
        root = Path(home) / ".cache"
    path = Path(root) / "coeus" / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None


def remove_unused(path, days):
    """Removes the files of a cache that nothing has touched for so many days."""
    oldest = time.time() - days * 86400
    for file in path.iterdir():
        try:
            if file.stat().st_mtime < oldest:
                file.unlink()
        except OSError:  # another clone has removed it
            pass


def touch(file):
    """Nothing needs what a cache lacks."""
    try:
        file.touch()
    except OSError:
        pass
