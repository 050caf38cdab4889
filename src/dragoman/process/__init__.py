"""What holds for the whole process: allocator, OpenMP, CPU features, devices, generators, signals.

``prepare`` is called once, before torch computes anything. May import the ground only.
"""

from __future__ import annotations


def prepare() -> None:
    """Set up the process for torch on a CPU. Calling it again is harmless.

    It is best called before torch is imported: OpenMP reads its settings only then.
    """
    from dragoman.process.allocator import keep_pages
    from dragoman.process.cpu import cap_onednn
    from dragoman.process.openmp import limit_openmp_spinning

    keep_pages()
    limit_openmp_spinning()
    cap_onednn()
