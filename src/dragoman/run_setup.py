"""What of a run is known before training, as it stands in the run's folder: config and tokenisers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dragoman.contracts import Modality
from dragoman.data import tokenizers
from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError
from dragoman.files import write_json
from dragoman.modalities.text import Text
from dragoman.parts import kind_of, part
from dragoman.predictions import Lengths
from dragoman.recipe import Recipe, make_recipe

FORMAT = 1  # of the run folder


@dataclass(frozen=True)
class Setup:
    recipe: Recipe
    modalities: Mapping[str, Modality]
    target: Tokenizer
    lengths: Lengths

    def write(self, folder: Path) -> None:
        for name, modality in self.modalities.items():
            if not (self.recipe.share_vocabulary and isinstance(modality, Text)):
                modality.save(folder, name)
        self.target.save(folder, "target")
        plain = {"format": FORMAT, "recipe": self.recipe.dump(), "lengths": self.lengths.model_dump()}
        write_json(folder / "config.json", plain)

    @classmethod
    def read(cls, folder: Path) -> Setup:
        path = folder / "config.json"
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            written = plain["format"]
            if written != FORMAT:
                raise UserError(f"{path}: has format {written!r}, but this version reads {FORMAT}; train again")
            recipe, lengths = make_recipe(dict(plain["recipe"]), str(path)), Lengths(**plain["lengths"])
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{folder}: not the folder of a run (there is no config.json in it)") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError) as error:  # of JSON, of UTF-8, of pydantic
            raise UserError(f"{path}: damaged ({error!r}); train again, or restore the file") from None
        target = tokenizers.load(folder, "target")
        modalities: dict[str, Modality] = {}
        for name, source in recipe.sources.items():
            kind = part("modality", kind_of(source.modality))
            if recipe.share_vocabulary and kind is Text:
                modalities[name] = Text(source.modality, target)  # type: ignore[arg-type]
            else:
                modalities[name] = kind.load(source.modality, folder, name)
        return cls(recipe, modalities, target, lengths)
