"""What the studio's endpoints answer, apart from HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.evaluation.compare import compare_systems
from dragoman.inference.predictions import Raw
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.inspection import Inspection, inspect, read_input
from dragoman.studio.library import Library
from dragoman.studio.run_data import read_examples_to_try, read_files, read_run_data, read_test_examples
from dragoman.studio.uploads import Uploads
from dragoman.studio.views.attention import describe_attention
from dragoman.studio.views.comparison import describe_comparison
from dragoman.studio.views.errors import describe_errors
from dragoman.studio.views.media import describe_source
from dragoman.studio.views.prediction import describe_prediction
from dragoman.studio.views.projections import import_umap
from dragoman.studio.views.representation_map import RepresentationIndex, index_examples
from dragoman.studio.views.tree import describe_tree

EXAMPLES = 20  # dev rows that the page offers to try


class Studio:
    """The runs and uploads of a studio. Each public method answers one endpoint."""

    def __init__(self, library: Library, uploads: Uploads) -> None:
        self.library, self.uploads = library, uploads

    def predict(self, run: str, request: records.PredictRequest) -> records.Prediction:
        """Answer with the outputs for an input.

        A source that is a file keeps the id of its upload.
        """
        inspection = self._inspect(run, request)
        prediction = describe_prediction(inspection, request, run, self.uploads.url)
        texts = {"source": request.input} if isinstance(request.input, str) else request.input
        ids = {
            name: next(iter(texts.values())) if len(texts) == 1 else texts[name]
            for name in _file_sources(inspection.system)
        }
        return prediction.model_copy(update={"input": {**prediction.input, **ids}})

    def tree(self, run: str, request: records.PredictRequest) -> records.Tree:
        """Answer with the candidates of a search."""
        return describe_tree(self._inspect(run, request), request, run)

    def attention(self, run: str, request: records.AttentionRequest) -> records.Attention:
        """Answer with the attention maps of an output."""
        session = self.library.system(run).session()
        prepared = read_input(session, self._resolve_input(session.system, request.input))
        return describe_attention(session, prepared, request.tokens, request.which)

    def overview(self) -> records.Overview:
        """Answer with the runs, and what the studio can do."""
        layouts: list[records.Layout] = ["pca", "umap"] if find_spec("umap") else ["pca"]
        watched = [folder.resolve().name for folder in self.library.watched]
        return records.Overview(runs=self.library.runs(), watched=watched, layouts=layouts)

    def examples(self, run: str) -> list[records.Example]:
        """Answer with some dev rows to try a run with; none if their file is gone."""
        loaded = self.library.load(run)

        def read() -> list[records.Example]:
            examples = []
            for example in read_examples_to_try(loaded.system, self.library.entry(run).folder, EXAMPLES):
                source, files = describe_source(loaded.system, example.sources, self.uploads.link)
                examples.append(records.Example(source=source, files=files, target=example.target, line=example.line))
            return examples

        return loaded.results.get("examples", read)

    def errors(self, run: str, request: records.FileRequest) -> records.Errors:
        """Answer with the outputs for the rows of a file, beside their references.

        The rows of an unchanged file are not decoded again.
        """
        loaded = self.library.load(run)

        def measure() -> records.Errors:
            examples, label = self._read_rows(run, loaded.system, request.file)
            return describe_errors(loaded.system, examples, label, run, request.beam, request.limit, self.uploads.link)

        return loaded.results.get(("errors", request.model_dump_json(), _file_version(request.file)), measure)

    def compare(self, request: records.CompareRequest) -> records.Comparison:
        """Answer with a comparison of two runs on the rows of a file."""
        names = request.a, request.b
        systems = self.library.system(request.a), self.library.system(request.b)
        examples, label = self._read_rows(request.a, systems[0], request.file)
        comparison = compare_systems(*systems, examples, label, names, request.beam, request.limit)
        return describe_comparison(comparison, systems[0], names, self.uploads.link)

    def map(self, run: str, request: records.MapRequest) -> records.RepresentationMap:
        """Answer with the map of a file's sources."""
        if request.layout == "umap":
            import_umap()
        return self._index(run, request.file, request.n).describe_map(run, request.layout, self.uploads.link)

    def neighbours(self, run: str, request: records.NeighboursRequest) -> records.Neighbours:
        """Answer with the examples of a map that are most similar to an input."""
        index = self._index(run, request.file, request.n)
        source = self._resolve_input(index.system, request.input)
        return index.describe_neighbours(source, request.count, request.layout, self.uploads.link)

    def _inspect(self, run: str, request: records.PredictRequest) -> Inspection:
        """Return the search that the request asks for.

        The same request is not searched for again.
        """
        loaded = self.library.load(run)
        key = ("search", request.model_dump_json(exclude={"alternatives", "reference"}))

        def search() -> Inspection:
            return inspect(loaded.system, self._resolve_input(loaded.system, request.input), request)

        return loaded.results.get(key, search)

    def _index(self, run: str, file: str | None, n: int) -> RepresentationIndex:
        """Return the encoded examples of a file. An unchanged file is not encoded again."""
        loaded = self.library.load(run)

        def encode() -> RepresentationIndex:
            if file:
                examples, label = self._read_rows(run, loaded.system, file)
            else:
                examples, label = read_run_data(loaded.system, self.library.entry(run).folder).train, "train"
            return index_examples(loaded.system, examples, label, n)

        return loaded.results.get(("map", file, n, _file_version(file)), encode)

    def _resolve_input(self, system: System, source: str | dict[str, str]) -> Raw:
        """Replace the ids of uploads, and of files of the data, by paths.

        No other file of this machine can be given as an input.
        """
        files = _file_sources(system)
        if isinstance(source, str):
            return str(self.uploads.get(source).path) if files else source
        return {name: str(self.uploads.get(text).path) if name in files else text for name, text in source.items()}

    def _read_rows(self, run: str, system: System, file: str | None) -> tuple[Sequence[Example], str]:
        """Return the rows of a path, an upload or the run's test data, and their name."""
        if not file:
            return read_test_examples(system, self.library.entry(run).folder)
        if file.startswith("upload-"):
            upload = self.uploads.get(file)
            return read_files(system, [str(upload.path)]), upload.record.name
        return read_files(system, [file]), Path(file).name


def _file_sources(system: System) -> set[str]:
    return {name for name, modality in system.modalities.items() if modality.is_file}


def _file_version(file: str | None) -> tuple[int, int] | None:
    """Return when a file was modified and its size, so that a changed file gets a new map.

    Uploads never change.
    """
    try:
        status = Path(file or "").stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size
