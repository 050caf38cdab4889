"""The recipe: the settings of a whole system, from its data to its search, checked.

With one source, ``[source]`` is its modality and ``[encoder]`` its encoder. Several sources are
written as ``[sources.NAME.modality]`` and ``[sources.NAME.encoder]``; then ``[source]`` and
``[encoder]``, as a preset has them, hold for every source of that kind. ``sources = {}`` is a
language model: it has text alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dragoman import parts
from dragoman.config import ConfigError, Section, explain, merge
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.options import DataConfig
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.recipe.limits import USUAL_LIMIT
from dragoman.recipe.suggestions import suggest
from dragoman.recipe.training import TrainingConfig
from dragoman.search.options import SearchConfig

SHORT_FORM = ("source", "encoder")  # keys for the single source
SOURCE_NAME = re.compile(r"\w[\w-]*")  # becomes part of the names of files and weights

UNREAD = {"unread": True}  # as the context of a validation: parts of the network are left as they are, without torch


def _parse_network_part(family: str, value: Any, info: ValidationInfo) -> Any:
    return parts.leave_unread(value, "rnn") if info.context == UNREAD else parts.parse(family, value, "rnn")


ModalityConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda v: parts.parse("modality", v, "text"))]
EncoderConfig = Annotated[
    SerializeAsAny[Section], BeforeValidator(lambda v, info: _parse_network_part("encoder", v, info))
]
JointConfig = Annotated[
    SerializeAsAny[Section] | None,
    BeforeValidator(lambda v, info: None if v is None else _parse_network_part("encoder", v, info)),
]
DecoderConfig = Annotated[
    SerializeAsAny[Section], BeforeValidator(lambda v, info: _parse_network_part("decoder", v, info))
]


class SourceConfig(Section):
    """One source: what kind of input it is, and how it is encoded."""

    modality: ModalityConfig = Field(default={"kind": "text"}, validate_default=True)
    encoder: EncoderConfig = Field(default={"kind": "rnn"}, validate_default=True)


class TargetConfig(Section):
    """The target, which is always text."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    classes: Literal["auto", "yes", "no"] = "auto"
    """Whether every output is one of the training targets. auto: yes, if these are a few short labels."""


class InitConfig(Section):
    """Other runs whose weights a new run starts from. A run is named by the path of its folder."""

    encoder: str | None = None
    """Run whose token vectors and encoder every source starts from."""
    decoder: str | None = None
    """Run whose decoder this one starts from. It may be a language model."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Runs for single sources, by the source's name."""
    tokenizers: Literal["auto", "reuse", "fit"] = "auto"
    """auto: reuse the other run's tokenizers where they know all of the training text."""
    target_tokenizer: str | None = None
    """Run whose target tokenizer is used, without its weights."""


class Recipe(Section):
    """The settings of a whole system."""

    preset: str = "auto"
    reference: str = ""
    """The paper that a preset follows."""
    data: DataConfig = DataConfig()
    sources: dict[str, SourceConfig] = Field(default_factory=lambda: {SOURCE: SourceConfig()})
    joint: JointConfig = None
    """With several sources, an encoder that reads the states of all of them together."""
    target: TargetConfig = TargetConfig()
    share_vocabulary: bool = False
    """Use one tokenizer for source and target."""
    share_embeddings: bool = False
    """Use one table of token vectors for source and target."""
    copying: bool = False
    """Let the decoder copy tokens of the source, also those that it has never seen (Merity et al. 2017)."""
    copy_slots: int = Field(16, ge=0, le=1000)
    """With copying, how many positions of a source with symbols unknown to the target can be copied."""
    max_tokens: int | None = Field(None, gt=0)
    """Most tokens on a side of a training row. Longer rows are left out, counted and named. None: 400, or as
    many as the longest row has, if memory suffices."""
    decoder: DecoderConfig = Field(default={"kind": "rnn"}, validate_default=True)
    init: InitConfig = InitConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()
    metric: Literal["auto", "exact", "cer", "wer", "bleu", "chrf", "perplexity"] = "auto"
    """The metric that decides which validation is the best."""

    @property
    def token_limit(self) -> int:
        """Return ``max_tokens``; the usual limit before it is fitted to the data."""
        return USUAL_LIMIT if self.max_tokens is None else self.max_tokens

    @property
    def is_language_model(self) -> bool:
        """Return whether there is no source."""
        return not self.sources

    @property
    def reading(self) -> DataConfig:
        """Return how files are read for this recipe.

        A language model reads no source. Sources with names of their own are columns of these
        names.
        """
        return _name_columns(self.data, list(self.sources))

    @field_validator("sources")
    @classmethod
    def _check_source_names(cls, sources: dict[str, SourceConfig], info: ValidationInfo) -> dict[str, SourceConfig]:
        for name in sources if info.context != UNREAD else ():
            if not SOURCE_NAME.fullmatch(name) or name in (TARGET, *_reserved_names()):
                raise ValueError(
                    f"a source cannot be called {name!r}: a name is made of letters, digits, - and _, and is no word "
                    "that a model has another use for; call it something else, as in --set data.source.NAME=COLUMN"
                )
        return sources

    @model_validator(mode="after")
    def _check_combination(self) -> Recipe:
        _check_reading(self.data, self.is_language_model)
        if self.is_language_model:
            self._check_language_model()
        if self.data.running and self.target.tokenizer.drop:
            raise ValueError(
                "target.tokenizer.drop tokenizes a line differently each time it is read, but running text "
                "(data.running) is tokenized once; leave one of them out"
            )
        if self.search.ctc and not self.training.ctc:
            raise ValueError(
                "search.ctc uses what CTC has learnt, but training.ctc = 0: it learns nothing; set both or none"
            )
        if self.copying:
            self._check_copying()
        if self.share_embeddings and not self.share_vocabulary:
            raise ValueError("share_embeddings needs share_vocabulary = true: one table of vectors for one vocabulary")
        for name, source in self.sources.items():
            kind = _tokenizer_kind(source.modality)
            if self.share_vocabulary and kind not in ("auto", self.target.tokenizer.kind):
                raise ValueError(
                    "share_vocabulary tokenizes both sides as target.tokenizer says, but the tokenizer of "
                    f"{name!r} is {kind!r}; set target.tokenizer.kind alone"
                )
        return self

    def _check_copying(self) -> None:
        if len(self.sources) != 1:
            raise ValueError("copying = true copies tokens of one source; there must be exactly one")
        (source,) = self.sources.values()
        if not parts.part("modality", parts.kind_of(source.modality)).has_tokenizer:
            raise ValueError("copying = true copies tokens of the source, which must be a text; set copying = false")
        if self.training.ctc:
            raise ValueError("copying = true and training.ctc cannot be combined: CTC has no slots for copies")

    def _check_language_model(self) -> None:
        if self.share_vocabulary:
            raise ValueError("share_vocabulary means nothing for a language model (sources = {}), which has one side")
        if self.metric not in ("auto", "perplexity"):
            raise ValueError(
                f"metric = {self.metric!r} compares outputs, but a language model is measured by perplexity"
            )

    def dump(self) -> dict[str, Any]:
        """Return all settings as plain JSON values, each part with its kind."""
        plain = {name: value.model_dump(mode="json") if isinstance(value, Section) else value for name, value in self}
        plain["sources"] = {
            name: {"modality": parts.dump(source.modality), "encoder": parts.dump(source.encoder)}
            for name, source in self.sources.items()
        }
        plain["joint"] = None if self.joint is None else parts.dump(self.joint)
        plain["decoder"] = parts.dump(self.decoder)
        return plain


def _tokenizer_kind(modality: Any) -> str:
    """Return the kind of tokenizer that a source is to have; "auto" also where it is no text."""
    has_tokenizer = parts.part("modality", parts.kind_of(modality)).has_tokenizer
    return str(modality.tokenizer.kind) if has_tokenizer else "auto"


def _check_reading(data: DataConfig, is_language_model: bool) -> None:
    """Refuse settings of the data that a model with, or without, sources cannot read."""
    if is_language_model and data.source:
        raise ValueError("a language model (sources = {}) reads no source, but data.source names one")
    if is_language_model and data.format == "parallel":
        raise ValueError("a language model (sources = {}) reads one file, but data.format is 'parallel'")
    if data.running and not is_language_model:
        raise ValueError("data.running is for language models, which have no source: use --preset lm-rnn")


def _name_columns(data: DataConfig, sources: Sequence[str]) -> DataConfig:
    """Return the settings of the data with a column for each source that has a name of its own."""
    if not sources:
        return data.model_copy(update={"source": []})
    named = [name for name in sources if name != SOURCE]
    if data.source is None and named:
        return data.model_copy(update={"source": {name: name for name in named}})
    return data


@cache
def _reserved_names() -> frozenset[str]:
    """Return the names that a source cannot have: attributes of a model's containers."""
    from torch.nn import ModuleDict, ParameterDict

    return frozenset((*dir(ModuleDict()), *dir(ParameterDict())))


def make_recipe(settings: Mapping[str, Any], where: str = "config", *, reads_network: bool = True) -> Recipe:
    """Check settings and return the recipe.

    Errors name the path of the wrong setting, after ``where``. Without ``reads_network``, encoders and decoder are
    left as they are (``parts.UnreadPart``), and torch is not imported: for those who run an export of the model.
    """
    try:
        return Recipe.model_validate(spell_out(settings), context=None if reads_network else UNREAD)
    except ValidationError as error:
        raise explain(error, Recipe, where, SHORT_FORM, suggest_setting) from None


def suggest_setting(path: str, siblings: Sequence[str]) -> str:
    """Return what a person may have meant by an unknown key of a recipe."""
    return suggest(path, siblings, known_settings())


@cache
def known_settings() -> tuple[str, ...]:
    """Return the path of every setting, as it is written for a single source."""
    families = {"source": "modality", "encoder": "encoder", "decoder": "decoder", "decoder.attention": "attention"}
    keys = [key for name in Recipe.model_fields if name != "sources" for key in _keys_of(Recipe, name)]
    keys += [f"{table}.{key}" for table, family in families.items() for key in ("kind", *parts.keys(family))]
    keys += [f"source.tokenizer.{key}" for key in TokenizerConfig.model_fields]
    return tuple(dict.fromkeys(keys))


def _keys_of(section: type[BaseModel], name: str, above: str = "") -> list[str]:
    """Return the paths of a setting: its own, or those of the settings in its table."""
    annotation = section.model_fields[name].annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [path for inner in annotation.model_fields for path in _keys_of(annotation, inner, f"{above}{name}.")]
    return [f"{above}{name}"]


def make_reading(settings: Mapping[str, Any], where: str = "config") -> DataConfig:
    """Return ``make_recipe(settings).reading`` without a look at the model, whose parts need torch."""
    sources = settings.get("sources", {SOURCE: {}})
    try:
        data = DataConfig(**settings.get("data", {}))
        _check_reading(data, is_language_model=not sources)
    except ValidationError as error:
        raise explain(error, DataConfig, f"{where}: data") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    return _name_columns(data, list(sources))


def spell_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the short form for a single source written out."""
    result = {key: value for key, value in settings.items() if key not in SHORT_FORM}
    single: dict[str, Any] = {}
    if "source" in settings:
        single["modality"] = settings["source"]
    if "encoder" in settings:
        single["encoder"] = settings["encoder"]
    if single:
        named = result.get("sources", {})
        if not isinstance(named, Mapping) or not isinstance(named.get(SOURCE, {}), Mapping):
            raise ConfigError("sources: expected one table per source, as in [sources.source.encoder]")
        result["sources"] = {**named, SOURCE: merge(named.get(SOURCE, {}), single)}
    return result
