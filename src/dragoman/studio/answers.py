"""What the studio's endpoints answer, apart from HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.predictions import Raw
from dragoman.studio import records, tables, views
from dragoman.studio.library import Entry, Library
from dragoman.studio.looking import Found, look
from dragoman.studio.neighbourhood import Neighbourhood, neighbourhood
from dragoman.studio.planes import umap_reducer
from dragoman.studio.rows import measured_rows, own_rows, read_file
from dragoman.studio.uploads import Uploads
from dragoman.system import System


class Studio:
    """Each method is an endpoint. A run answers one question at a time."""

    def __init__(self, library: Library, uploads: Uploads) -> None:
        self.library, self.uploads = library, uploads

    def predict(self, run: str, request: records.PredictRequest) -> records.Prediction:
        entry = self.library.entry(run)
        with entry.lock:
            found = self._found(run, request)
            made = views.prediction(found, request, run, self.uploads.address)
        given = {"source": request.input} if isinstance(request.input, str) else request.input
        files = {name for name, one in found.loaded.system.modalities.items() if one.is_file}
        named = {name: next(iter(given.values())) if len(given) == 1 else given[name] for name in files}
        return made.model_copy(update={"input": {**made.input, **named}})

    def tree(self, run: str, request: records.PredictRequest) -> records.Tree:
        entry = self.library.entry(run)
        with entry.lock:
            return views.tree(self._found(run, request), request, run)

    def attention(self, run: str, request: records.AttentionRequest) -> records.Attention:
        entry = self.library.entry(run)
        with entry.lock:
            system = self.library.system(run)
            return views.attention(system, self._input(system, request.input), request.tokens, request.which)

    def errors(self, run: str, request: records.FileRequest) -> records.Errors:
        entry = self.library.entry(run)
        with entry.lock:
            system = self.library.system(run)
            examples, label = self._rows(system, entry, request.file)
            return tables.errors(system, examples, label, run, request.beam, request.limit)

    def compare(self, request: records.CompareRequest) -> records.Comparison:
        first, second = self.library.entry(request.a), self.library.entry(request.b)
        held = sorted({request.a: first, request.b: second}.items())  # always in one order: no two wait for each other
        for _, entry in held:
            entry.lock.acquire()
        try:
            systems = self.library.system(request.a), self.library.system(request.b)
            examples, label = self._rows(systems[0], first, request.file)
            names = request.a, request.b
            return tables.compare(*systems, examples, label, names, names, request.beam, request.limit)
        finally:
            for _, entry in held:
                entry.lock.release()

    def map(self, run: str, request: records.MapRequest) -> records.RepresentationMap:
        if request.layout == "umap":
            umap_reducer()
        with self.library.entry(run).lock:
            return self._neighbourhood(run, request.file, request.n).record(run, request.layout)

    def neighbours(self, run: str, request: records.NeighboursRequest) -> records.Neighbours:
        with self.library.entry(run).lock:
            around = self._neighbourhood(run, request.file, request.n)
            return around.neighbours(self._input(around.system, request.input), request.count, request.layout)

    def _neighbourhood(self, run: str, file: str | None, n: int) -> Neighbourhood:
        """Kept between questions. The caller holds the run's lock."""
        system = self.library.system(run)
        key = ("map", file, n, _written(file))
        kept = self.library.recall(run, key)
        if kept is None:
            entry = self.library.entry(run)
            rows = (own_rows(system, entry.folder).train, "train") if not file else self._rows(system, entry, file)
            kept = neighbourhood(system, *rows, n)
            self.library.remember(run, key, kept)
        found: Neighbourhood = kept
        return found

    def _found(self, run: str, request: records.PredictRequest) -> Found:
        """The search that was asked for; the same question again is not searched again."""
        system = self.library.system(run)
        key = ("search", request.model_dump_json(exclude={"alternatives", "reference"}))
        found: Found | None = self.library.recall(run, key)
        if found is None:
            found = look(system, self._input(system, request.input), request)
            self.library.remember(run, key, found)
        return found

    def _input(self, system: System, given: str | dict[str, str]) -> Raw:
        """Ids of uploads become paths; a source that is a file is nothing else, so that no other file can be read."""
        files = {name for name, one in system.modalities.items() if one.is_file}
        if isinstance(given, str):
            return str(self.uploads.get(given).path) if files else given
        return {name: str(self.uploads.get(one).path) if name in files else one for name, one in given.items()}

    def _rows(self, system: System, entry: Entry, file: str | None) -> tuple[Sequence[Example], str]:
        if not file:
            return measured_rows(system, entry.folder)
        if file.startswith("upload-"):
            kept = self.uploads.get(file)
            return read_file(system, [str(kept.path)]), kept.record.name
        return read_file(system, [file]), Path(file).name


def _written(file: str | None) -> tuple[int, int] | None:
    """When, and how much; a file that was changed has another map. Uploads are not changed."""
    try:
        found = Path(file or "").stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size
