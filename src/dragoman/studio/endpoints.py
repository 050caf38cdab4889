"""What the studio's endpoints answer, apart from HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.compare import compare_systems
from dragoman.evaluation.run_data import OnRow, read_dev_examples, read_files, read_run_data, read_test_examples
from dragoman.inference.predictions import Raw
from dragoman.inference.system import System
from dragoman.serving.limits import Limits
from dragoman.serving.queue import UNLIMITED, Job, JobEnded
from dragoman.studio import records
from dragoman.studio.checks import check_attention, check_maps, check_tree, resolve_table
from dragoman.studio.inspection import Inspection, inspect, read_input
from dragoman.studio.library import Library
from dragoman.studio.uploads import Uploads
from dragoman.studio.views.attention import count_maps, describe_attention
from dragoman.studio.views.comparison import describe_comparison
from dragoman.studio.views.errors import describe_errors
from dragoman.studio.views.media import describe_source
from dragoman.studio.views.prediction import describe_prediction
from dragoman.studio.views.projections import import_umap
from dragoman.studio.views.representation_map import RepresentationIndex, index_examples
from dragoman.studio.views.tree import describe_tree

EXAMPLES = 20  # dev rows that the page offers to try


class Studio:
    """The runs and uploads of a studio. Each public method answers one endpoint.

    Those that compute take the ``job`` of a queue, which lets them end early and take turns.
    """

    def __init__(self, library: Library, uploads: Uploads, limits: Limits | None = None) -> None:
        self.library, self.uploads, self.limits = library, uploads, limits or Limits()
        self._folder = Path.cwd()

    def predict(self, run: str, request: records.PredictRequest, job: Job = UNLIMITED) -> records.Prediction:
        """Answer with the outputs for an input.

        A source that is a file keeps the id of its upload.
        """
        inspection = self._inspect(run, request, job)
        check_attention(inspection, request, self.limits)
        prediction = describe_prediction(inspection, request, run, self.uploads.url, job)
        texts = {"source": request.input} if isinstance(request.input, str) else request.input
        ids = {
            name: next(iter(texts.values())) if len(texts) == 1 else texts[name]
            for name in _file_sources(inspection.system)
        }
        return prediction.model_copy(update={"input": {**prediction.input, **ids}})

    def tree(self, run: str, request: records.PredictRequest, job: Job = UNLIMITED) -> records.Tree:
        """Answer with the candidates of a search."""
        inspection = self._inspect(run, request, job)
        check_tree(inspection, self.limits)
        return describe_tree(inspection, request, run)

    def attention(self, run: str, request: records.AttentionRequest, job: Job = UNLIMITED) -> records.Attention:
        """Answer with the attention maps of an output."""
        session = self.library.system(run, job).session()
        prepared = read_input(session, self._resolve_input(session.system, request.input), self.limits)
        positions = sum(len(axis.labels) for axis in session.axes(prepared).values())
        maps = count_maps(session.system, request.which)
        check_maps(maps, request.which, len(request.tokens), positions, self.limits)
        return describe_attention(session, prepared, request.tokens, request.which)

    def overview(self) -> records.Overview:
        """Answer with the runs, and what the studio can do."""
        layouts: list[records.Layout] = ["pca", "umap"] if find_spec("umap") else ["pca"]
        watched = [folder.resolve().name for folder in self.library.watched]
        return records.Overview(runs=self.library.runs(), watched=watched, layouts=layouts)

    def examples(self, run: str, job: Job = UNLIMITED) -> list[records.Example]:
        """Answer with some dev rows to try a run with; none if their file is gone."""
        loaded = self.library.load(run, job)

        def read() -> list[records.Example]:
            examples = []
            for example in _read_examples_to_try(loaded.system, self.library.entry(run).folder, job):
                source, files = describe_source(loaded.system, example.sources, self.uploads.link)
                examples.append(records.Example(source=source, files=files, target=example.target, line=example.line))
            return examples

        return loaded.results.get("examples", read, job)

    def errors(self, run: str, request: records.FileRequest, job: Job = UNLIMITED) -> records.Errors:
        """Answer with the outputs for the rows of a file, beside their references.

        The rows of an unchanged file are not decoded again.
        """
        loaded = self.library.load(run, job)

        def measure() -> records.Errors:
            examples, label = self._read_rows(run, loaded.system, request.file, job)
            return describe_errors(
                loaded.system, examples, label, run, request.beam, request.limit, self.uploads.link, job
            )

        return loaded.results.get(("errors", request.model_dump_json(), _file_version(request.file)), measure, job)

    def compare(self, request: records.CompareRequest, job: Job = UNLIMITED) -> records.Comparison:
        """Answer with a comparison of two runs on the rows of a file."""
        names = request.a, request.b
        systems = self.library.system(request.a, job), self.library.system(request.b, job)
        examples, label = self._read_rows(request.a, systems[0], request.file, job)
        comparison = compare_systems(*systems, examples, label, names, request.beam, request.limit, job.checkpoint)
        return describe_comparison(comparison, systems[0], names, self.uploads.link)

    def map(self, run: str, request: records.MapRequest, job: Job = UNLIMITED) -> records.RepresentationMap:
        """Answer with the map of a file's sources."""
        if request.layout == "umap":
            import_umap()
        return self._index(run, request.file, request.n, job).describe_map(run, request.layout, self.uploads.link)

    def neighbours(self, run: str, request: records.NeighboursRequest, job: Job = UNLIMITED) -> records.Neighbours:
        """Answer with the examples of a map that are most similar to an input."""
        index = self._index(run, request.file, request.n, job)
        source = self._resolve_input(index.system, request.input)
        return index.describe_neighbours(source, request.count, request.layout, self.uploads.link, self.limits)

    def _inspect(self, run: str, request: records.PredictRequest, job: Job) -> Inspection:
        """Return the search that the request asks for.

        The same request is not searched for again.
        """
        loaded = self.library.load(run, job)
        key = ("search", request.model_dump_json(exclude={"alternatives", "reference"}))

        def search() -> Inspection:
            source = self._resolve_input(loaded.system, request.input)
            return inspect(loaded.system, source, request, job, self.limits)

        return loaded.results.get(key, search, job)

    def _index(self, run: str, file: str | None, n: int, job: Job) -> RepresentationIndex:
        """Return the encoded examples of a file. An unchanged file is not encoded again."""
        loaded = self.library.load(run, job)

        def encode() -> RepresentationIndex:
            if file:
                examples, label = self._read_rows(run, loaded.system, file, job)
            else:
                folder = self.library.entry(run).folder
                examples, label = read_run_data(loaded.system, folder, _ending_with(job)).train, "train"
            return index_examples(loaded.system, examples, label, n, job)

        return loaded.results.get(("map", file, n, _file_version(file)), encode, job)

    def _resolve_input(self, system: System, source: str | dict[str, str]) -> Raw:
        """Replace the ids of uploads, and of files of the data, by paths.

        No other file of this machine can be given as an input.
        """
        files = _file_sources(system)
        if isinstance(source, str):
            return str(self.uploads.get(source).path) if files else source
        return {name: str(self.uploads.get(text).path) if name in files else text for name, text in source.items()}

    def _read_rows(self, run: str, system: System, file: str | None, job: Job) -> tuple[Sequence[Example], str]:
        """Return the rows of a path, an upload or the run's test data, and their name."""
        if not file:
            return read_test_examples(system, self.library.entry(run).folder, _ending_with(job))
        if file.startswith("upload-"):
            upload = self.uploads.get(file)
            return read_files(system, [str(upload.path)], _ending_with(job)), upload.record.name
        path = resolve_table(file, chain([self._folder], self.library.folders()), self.limits)
        return read_files(system, [path], _ending_with(job)), Path(file).name


def _read_examples_to_try(system: System, folder: Path, job: Job) -> list[Example]:
    """Return some dev examples with different sources; none if their file is gone."""
    if system.is_language_model:
        return []
    try:
        return read_dev_examples(system, folder, EXAMPLES, _ending_with(job))
    except JobEnded:
        raise
    except UserError:
        return []


def _ending_with(job: Job) -> OnRow:
    """Return what is to be called after each row, so that reading ends when the job does."""
    return lambda _: job.checkpoint()


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
