"""Which of a model's attention maps its alignments are read from: a small file of the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman.files import damaged_file, delete_files, read_json, read_tensor_header, write_json
from dragoman.files.checksums import KEY
from dragoman.runs.setup import check_run_name
from dragoman.runs.weights import WEIGHTS

ALIGNMENT = "alignment.json"
MOST_MAPS = 4096  # layers times heads
ADVICE = "delete it, or write it again: dragoman align RUN FILE"


@dataclass(frozen=True, slots=True)
class AlignmentChoice:
    """How to read an alignment from attention weights (T, A, S).

    The default is what a run without such a file uses: the mean of all maps, each token's own row.
    """

    maps: tuple[int, ...] = ()  # the maps that are averaged; none: all
    shift: int = 0  # 1: a token is aligned by the row of the token after it, at which the decoder has read it
    offset: int = 0  # what is added to a source position
    method: str = "default"  # what chose: "ibm1", "path", or nothing did
    agreement: float | None = None  # ibm1: share of the confident links that it gives; path: mean weight on the path
    default_agreement: float | None = None  # the same for the default
    links: int = 0  # ibm1: how many confident links; path: tokens
    rows: int = 0  # dev rows that these are from

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**asdict(self), "maps": list(self.maps)}

    def to_text(self) -> str:
        """Return the choice in a sentence."""
        which = f"map {', '.join(map(str, self.maps))}" if self.maps else "the mean of all maps"
        rows = ", the row after each token" if self.shift else ""
        places = f", positions {self.offset:+d}" if self.offset else ""
        if self.agreement is None:
            return (
                "nothing was chosen, because there are too few pairs, a single map, or times come from CTC; alignments "
                f"are read from {which}{rows}{places}"
            )
        unit = "confident links of IBM Model 1" if self.method == "ibm1" else "weight on a monotone path"
        return (
            f"alignments are read from {which}{rows}{places}: {self.agreement:.1%} of the {unit} "
            f"({self.links:,} in {self.rows:,} rows); {self.default_agreement or 0:.1%} by the mean of all maps"
        )

    def write(self, folder: Path, run: str) -> None:
        """Write the choice for the weights that are in the folder of a run."""
        weights = weights_digest(folder)
        write_json(folder / ALIGNMENT, {"run": run, "weights": weights, **self.to_json()})

    @classmethod
    def read(cls, folder: Path, run: str) -> AlignmentChoice | None:
        """Read the choice of a run. None: it has none, or one for other weights than it has now."""
        path = folder / ALIGNMENT
        if not path.exists():
            return None
        record = read_json(path, advice=ADVICE)
        check_run_name(path, record.pop("run", None), run)
        if record.pop("weights", None) != weights_digest(folder):
            return None
        try:
            return _checked(record)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_file(path, error, ADVICE) from None


def delete_alignment(folder: Path) -> None:
    """Delete a choice that was made for other weights."""
    delete_files(folder, [ALIGNMENT])


def weights_digest(folder: Path) -> str | None:
    """Return the SHA-256 that the weights of a run carry; None where an earlier version wrote them."""
    return read_tensor_header(folder / WEIGHTS).metadata.get(KEY)


def _checked(record: dict[str, Any]) -> AlignmentChoice:
    maps, shift, offset = record["maps"], record["shift"], record["offset"]
    if not isinstance(maps, list) or len(maps) > MOST_MAPS or not all(_is_count(each) for each in maps):
        raise ValueError(f"'maps' is {str(maps)[:60]}")
    if not _is_count(shift) or shift > 1 or not isinstance(offset, int) or abs(offset) > 1:
        raise ValueError(f"'shift' is {shift!r} and 'offset' {offset!r}")
    shares: dict[str, Any] = {name: record.get(name) for name in ("agreement", "default_agreement")}
    if not all(share is None or (isinstance(share, (int, float)) and 0 <= share <= 1) for share in shares.values()):
        raise ValueError(f"a share is not between 0 and 1: {shares}")
    counts = {name: record.get(name, 0) for name in ("links", "rows")}
    if not all(map(_is_count, counts.values())):
        raise ValueError(f"a number is negative: {counts}")
    return AlignmentChoice(tuple(maps), shift, offset, str(record.get("method", ""))[:60], **shares, **counts)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
