"""Files: what is written is the old version or the new one, and what is read is what was written.

``writing`` replaces files in one move, inside an opened folder (``folders``) and never through a
link; ``reading`` accepts only regular files of a size that fits their kind; ``checksums`` makes a file carry its own
SHA-256; ``tensors`` does all of this for safetensors; ``locks`` keeps a second process out. This is
ground: everyone may import it, and it may import only the ground.
"""

from __future__ import annotations

from dragoman.files.folders import FolderGone, is_link
from dragoman.files.locks import HeldFolder, exclusive_lock
from dragoman.files.reading import LARGE, SMALL, damaged_file, open_regular, read_json, read_regular
from dragoman.files.tensors import (
    TensorHeader,
    read_tensor_file,
    read_tensor_header,
    write_tensors,
)
from dragoman.files.writing import (
    DiskFull,
    append_bytes,
    append_line,
    create_file,
    delete_files,
    file_size,
    force_file,
    refuse_folder,
    rename_file,
    truncate_file,
    write_atomically,
    write_json,
    write_run_file,
)

__all__ = [
    "LARGE", "SMALL", "DiskFull", "FolderGone", "HeldFolder", "TensorHeader", "append_bytes", "append_line",
    "create_file", "damaged_file", "delete_files", "exclusive_lock", "file_size", "force_file", "is_link",
    "open_regular", "read_json", "read_regular", "read_tensor_file", "read_tensor_header", "refuse_folder",
    "rename_file", "truncate_file", "write_atomically", "write_json", "write_run_file", "write_tensors",
]  # fmt: skip
