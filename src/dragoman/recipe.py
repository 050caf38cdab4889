"""A whole system in one config: data, sources, target, decoder, training, search. Presets are TOML files.

With one source, ``[source]`` means its modality and ``[encoder]`` its encoder; several are written out as
``[sources.NAME.modality]`` and ``[sources.NAME.encoder]``, and then ``[source]`` and ``[encoder]``, as a preset has
them, are for every source of that kind. ``sources = {}`` is a language model: text alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, field_validator, model_validator
from torch.nn import ModuleDict, ParameterDict

from dragoman import parts
from dragoman.config import ConfigError, Section, explain, merge, nearest, parse_overrides, read_toml
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.options import DataConfig
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.search import SearchConfig
from dragoman.training.options import TrainingConfig

PRESETS = Path(__file__).parent / "presets"
SHORT = ("source", "encoder")  # of the single source
NAME = re.compile(r"\w[\w-]*")  # of a source: it becomes part of names of files and weights
TAKEN = frozenset((*dir(ModuleDict()), *dir(ParameterDict())))  # words that cannot name a part of a model

ModalityConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda v: parts.parse("modality", v, "text"))]
EncoderConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda v: parts.parse("encoder", v, "rnn"))]
JointConfig = Annotated[
    SerializeAsAny[Section] | None, BeforeValidator(lambda v: None if v is None else parts.parse("encoder", v, "rnn"))
]
DecoderConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda v: parts.parse("decoder", v, "rnn"))]


class SourceConfig(Section):
    modality: ModalityConfig = Field(default={"kind": "text"}, validate_default=True)
    encoder: EncoderConfig = Field(default={"kind": "rnn"}, validate_default=True)


class TargetConfig(Section):
    tokenizer: TokenizerConfig = TokenizerConfig()


class InitConfig(Section):
    """Runs whose weights this one starts from. A run is the path of its folder."""

    encoder: str | None = None  # run for the token vectors and encoder of every source
    decoder: str | None = None  # run for the decoder; a language model's will do
    sources: dict[str, str] = Field(default_factory=dict)  # runs for single sources, by name
    tokenizers: Literal["auto", "reuse", "fit"] = "auto"  # auto: theirs where they know all of the training text
    target_tokenizer: str | None = None  # run whose target tokeniser is used, without its weights


class Recipe(Section):
    preset: str = "auto"
    reference: str = ""  # the paper a preset follows
    data: DataConfig = DataConfig()
    sources: dict[str, SourceConfig] = Field(default={SOURCE: SourceConfig()})
    joint: JointConfig = None  # of several sources: an encoder that reads the states of all of them once more
    target: TargetConfig = TargetConfig()
    share_vocabulary: bool = False  # one tokeniser for source and target
    share_embeddings: bool = False  # and one table of token vectors
    max_tokens: int = Field(400, gt=0)  # longer training rows are left out, counted and named
    decoder: DecoderConfig = Field(default={"kind": "rnn"}, validate_default=True)
    init: InitConfig = InitConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()
    metric: Literal["auto", "exact", "cer", "wer", "bleu", "chrf", "perplexity"] = "auto"

    @property
    def is_language_model(self) -> bool:
        return not self.sources

    @property
    def reading(self) -> DataConfig:
        """How a file is read for this recipe: without a source where there is none; sources are columns by name."""
        if self.is_language_model:
            return self.data.model_copy(update={"source": []})
        named = [name for name in self.sources if name != SOURCE]
        if self.data.source is None and named:
            return self.data.model_copy(update={"source": {name: name for name in named}})
        return self.data

    @field_validator("sources")
    @classmethod
    def _usable_names(cls, sources: dict[str, SourceConfig]) -> dict[str, SourceConfig]:
        for name in sources:
            if not NAME.fullmatch(name) or name in (TARGET, *TAKEN):
                raise ValueError(
                    f"a source cannot be called {name!r}: a name is made of letters, digits, - and _, and is no word "
                    "that a model has another use for; call it something else, as in --set data.source.NAME=COLUMN"
                )
        return sources

    @model_validator(mode="after")
    def _combination(self) -> Recipe:
        if self.is_language_model:
            self._language_model()
        elif self.data.running:
            raise ValueError("data.running is for language models, which have no source: use --preset lm-rnn")
        if self.data.running and self.target.tokenizer.drop:
            raise ValueError(
                "target.tokenizer.drop cuts a line anew each time it is read, but running text (data.running) is cut "
                "once; set one of them to nothing"
            )
        if self.search.ctc and not self.training.ctc:
            raise ValueError("search.ctc asks what CTC has learnt, but training.ctc = 0: nothing; set both or none")
        if self.share_embeddings and not self.share_vocabulary:
            raise ValueError("share_embeddings needs share_vocabulary = true: one table of vectors for one vocabulary")
        for name, source in self.sources.items():
            kind = getattr(getattr(source.modality, "tokenizer", None), "kind", "auto")
            if self.share_vocabulary and kind not in ("auto", self.target.tokenizer.kind):
                raise ValueError(
                    "share_vocabulary cuts both sides as target.tokenizer says, but the tokenizer of "
                    f"{name!r} is to be {kind!r}; set target.tokenizer.kind alone"
                )
        return self

    def _language_model(self) -> None:
        if self.data.source:
            raise ValueError("a language model (sources = {}) reads no source, but data.source names one")
        if self.data.format == "parallel":
            raise ValueError("a language model (sources = {}) reads one file, but data.format is 'parallel'")
        if self.share_vocabulary:
            raise ValueError("share_vocabulary means nothing for a language model (sources = {}), which has one side")
        if self.metric not in ("auto", "perplexity"):
            raise ValueError(
                f"metric = {self.metric!r} compares outputs, but a language model is measured by perplexity"
            )

    def dump(self) -> dict[str, Any]:
        """Everything, resolved, as plain JSON."""
        plain = {name: self._plain(getattr(self, name)) for name in type(self).model_fields}
        plain["sources"] = {
            name: {"modality": parts.dump(source.modality), "encoder": parts.dump(source.encoder)}
            for name, source in self.sources.items()
        }
        plain["joint"] = None if self.joint is None else parts.dump(self.joint)
        plain["decoder"] = parts.dump(self.decoder)
        return plain

    @staticmethod
    def _plain(value: Any) -> Any:
        return value.model_dump(mode="json") if isinstance(value, Section) else value


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    if name not in preset_names():
        raise ConfigError(f"--preset {name}: no such preset; {nearest(name, ['auto', *preset_names()])}")
    return read_toml(PRESETS / f"{name}.toml") | {"preset": name}


def make_recipe(settings: Mapping[str, Any], where: str = "config") -> Recipe:
    """A mapping → a checked recipe; what is wrong is said with its path."""
    try:
        return Recipe(**spell_out(settings))
    except ValidationError as error:
        raise explain(error, Recipe, where, also=SHORT) from None


@dataclass(frozen=True)
class Settings:
    """What was asked for, before it is known which sources the data has."""

    preset: dict[str, Any]
    person: dict[str, Any]  # a config file, under --set

    @property
    def merged(self) -> dict[str, Any]:
        return _over(self.preset, self.person) | {"preset": self.preset["preset"]}

    def kinds(self) -> dict[str, str]:
        """The modalities of sources, as far as they are said."""
        named = self.merged.get("sources", {})
        return {name: kind for name in named if (kind := _kind(self.merged, name)) is not None}

    def beyond_preset(self, kinds: Mapping[str, str]) -> list[str]:
        """The sources of which the preset says nothing; with auto, all."""
        named = self.preset.get("sources", {})
        return [
            name
            for name, kind in kinds.items()
            if name not in named or name == SOURCE
            if SOURCE not in named or (_kind(self.preset, SOURCE) or "text") != kind
        ]

    def for_sources(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """All that was asked for, with a table for each source of the data, whose modality is of this kind.

        What is said of the single source holds for each source of its kind that is not spoken of by name.
        """
        named = self.merged.get("sources", {})
        unknown = [name for name in named if name not in kinds and name != SOURCE]
        if unknown:
            raise ConfigError(f"sources.{unknown[0]}: the data has no such source; {nearest(unknown[0], list(kinds))}")
        sources = {}
        for name, kind in kinds.items():
            table: dict[str, Any] = {}
            for layer in (self.preset, self.person):
                common = layer.get("sources", {}).get(SOURCE, {})
                own = name == SOURCE and layer is self.person
                if own or (_kind(layer, SOURCE) or "text") == kind:
                    table = merge(table, common)
                if name != SOURCE:
                    table = merge(table, layer.get("sources", {}).get(name, {}))
            sources[name] = merge(table, {"modality": {"kind": kind}})
        return self.merged | {"sources": sources}


def without_kindless(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as far as they can be checked before all is settled: a part whose kind nobody named may be of any.

    A key that no kind has is an error already.
    """
    named = settings.get("sources")
    if not isinstance(named, Mapping) or not all(isinstance(tables, Mapping) for tables in named.values()):
        return dict(settings)

    def is_open(part: str, table: Any) -> bool:
        return part in SourceConfig.model_fields and isinstance(table, Mapping) and "kind" not in table

    for name, tables in named.items():
        for part in (part for part, table in tables.items() if is_open(part, table)):
            known = parts.keys(part)
            for key in tables[part]:
                if key not in known:
                    raise ConfigError(f"config: unknown key 'sources.{name}.{part}.{key}'; {nearest(key, known)}")
    sources = {
        name: {part: table for part, table in tables.items() if not is_open(part, table)}
        for name, tables in named.items()
    }
    return dict(settings) | {"sources": sources}


def _kind(layer: Mapping[str, Any], name: str) -> str | None:
    """The kind of modality that is named for a source."""
    modality = layer.get("sources", {}).get(name, {}).get("modality", {})
    return modality if isinstance(modality, str) else modality.get("kind")


def _over(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    if layer.get("sources") == {}:  # no source at all: what was said of one below is void
        merged.pop("sources", None)
    return merge(merged, layer)


def ask(
    preset: str | None = None, config: Path | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> Settings:
    """What a person asked for: a preset, under a config file, under ``--set``. Either may name the preset too."""
    file = {} if config is None else spell_out(read_toml(config))
    given = spell_out(overrides if isinstance(overrides, Mapping) else parse_overrides(overrides))
    name = str(preset or given.get("preset") or file.get("preset") or "auto")
    below = {} if name == "auto" else spell_out(read_preset(name))
    return Settings(below | {"preset": name}, _over(file, given))


def gather(
    preset: str | None = None, config: Path | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> dict[str, Any]:
    """As ``ask``, as one mapping."""
    return ask(preset, config, overrides).merged


def spell_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The short form for one source, written out."""
    result = {key: value for key, value in settings.items() if key not in SHORT}
    single: dict[str, Any] = {}
    if "source" in settings:
        single["modality"] = settings["source"]
    if "encoder" in settings:
        single["encoder"] = settings["encoder"]
    if single:
        named = result.get("sources", {})
        if not isinstance(named, Mapping) or not isinstance(named.get(SOURCE, {}), Mapping):
            raise ConfigError("sources: expected a table a source, as in [sources.source.encoder]")
        result["sources"] = {**named, SOURCE: merge(named.get(SOURCE, {}), single)}
    return result
