"""What the outputs of a session have to obey: a lexicon, a format, phrases of the source; and answers that are known.

A constraint is a hard rule of the search (``search.constraints``). Whatever the search returns is checked once more, as
text, so an output that breaks a constraint is never given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import EOS
from dragoman.errors import UserError
from dragoman.inference.constraint_files import read_format, read_glossary, read_known, read_lexicon
from dragoman.inference.requests import PreparedInput
from dragoman.search.trace import Result

if TYPE_CHECKING:  # the rules need torch, which answers without constraints do without
    import numpy as np
    import regex

    from dragoman.inference.glossary import Glossary
    from dragoman.search.constraints.formats import Format
    from dragoman.search.constraints.lexicon import Lexicon
    from dragoman.search.constraints.phrases import Phrase, PhraseWriter
    from dragoman.search.rules import Rule
    from dragoman.search.run import MakeRules

FORMATS = ("match", "grammar", "json_schema")
OPTIONS = ("lexicon", "lexicon_words", *FORMATS, "glossary", "keep", "known")
SHOWN = 3  # phrases that a message names


@dataclass(frozen=True, eq=False)
class Constraints:
    """The constraints of a session. They never change, and many threads may use them at once."""

    target: Tokenizer
    lexicon: Lexicon | None = None
    formats: tuple[Format, ...] = ()
    glossary: Glossary | None = None
    kept: tuple[regex.Pattern[str], ...] = ()
    writer: PhraseWriter | None = None  # for the phrases of glossary and keep
    texts: tuple[str, ...] = ()  # the sources that phrases are looked for in
    known: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a person should know

    @property
    def has_rules(self) -> bool:
        """Tell whether anything constrains the search, beside answers that are known."""
        return self.lexicon is not None or bool(self.formats) or self.writer is not None

    def known_answer(self, prepared: PreparedInput) -> str | None:
        """Return the answer that is known for an input."""
        return self.known.get(tuple(prepared.texts.values())) if self.known else None

    def phrases(self, prepared: PreparedInput) -> list[Phrase]:
        """Return what the outputs of an input have to contain. Raise a ``UserError`` if they cannot."""
        if self.writer is None:
            return []
        from dragoman.inference.glossary import required_phrases

        found = []
        for required in required_phrases([prepared.texts[name] for name in self.texts], self.glossary, self.kept):
            phrase = self.writer.phrase(required)
            if not phrase.targets:
                wanted = " or ".join(map(repr, required.variants[:SHOWN]))
                raise UserError(
                    f"glossary, keep: the output would have to contain {wanted}, which the tokens of this run cannot "
                    "spell; leave it out for this input"
                )
            found.append(phrase)
        return found

    def make_rules(self, inputs: Sequence[PreparedInput]) -> MakeRules | None:
        """Return what makes the rules of a search for a batch of inputs."""
        if not self.has_rules:
            return None
        from dragoman.search.constraints.formats import FormatRule
        from dragoman.search.constraints.lexicon import LexiconRule
        from dragoman.search.constraints.required import RequirePhrases

        phrases = {source: own for source, prepared in enumerate(inputs) if (own := self.phrases(prepared))}

        def make(limits: np.ndarray) -> list[Rule]:
            rules: list[Rule] = [FormatRule(each, EOS) for each in self.formats]
            if self.lexicon is not None:
                rules.append(LexiconRule(self.lexicon, EOS, limits))
            if self.writer is not None and phrases:
                rules.append(RequirePhrases(self.writer, phrases, limits, EOS))
            return rules

        return make

    def obeyed(self, prepared: PreparedInput, result: Result) -> Result:
        """Return a result with the hypotheses whose text obeys every constraint."""
        phrases = self.phrases(prepared)
        obeying = tuple(
            each for each in result.hypotheses if self._is_allowed(self.target.decode(each.tokens), phrases)
        )
        return result if len(obeying) == len(result.hypotheses) else replace(result, hypotheses=obeying)

    def _is_allowed(self, text: str, phrases: Sequence[Phrase]) -> bool:
        return (
            (self.lexicon is None or self.lexicon.accepts(text))
            and all(each.accepts(text) for each in self.formats)
            and all(each.is_in(text) for each in phrases)
        )

    def unmet(self, prepared: PreparedInput, limit: int, *, was_cut: bool, can_rise: bool) -> str:
        """Say that no output of an input obeys.

        ``was_cut``: one was begun, and reached the length limit. ``can_rise``: a larger max_length allows more.
        """
        wishes = []
        if self.lexicon is not None:
            wishes.append("is made of entries of the lexicon" if self.lexicon.word_by_word else "is in the lexicon")
        wishes += [f"matches {each.kind}" if each.kind != "match" else "matches the pattern" for each in self.formats]
        phrases = [each.name for each in self.phrases(prepared)]
        if phrases:
            more = f" and {len(phrases) - SHOWN} more" if len(phrases) > SHOWN else ""
            wishes.append(f"contains {', '.join(map(repr, phrases[:SHOWN]))}{more}")
        found = f"no output of at most {limit:,} tokens was found that {' and '.join(wishes)}"
        if was_cut and can_rise:
            return f"{found}: what was begun needs more of them; raise max_length (--max-length), or constrain less"
        if was_cut:
            return f"{found}: what was begun needs more of them than this run writes for this input; constrain less"
        return f"{found}; constrain less, or try a wider beam{' or a larger max_length' if can_rise else ''}"


def read_constraints(
    target: Tokenizer, sources: Mapping[str, bool], is_language_model: bool, given: Mapping[str, Any]
) -> Constraints | None:
    """Return the constraints that some options ask for; None if there are none.

    ``sources`` are those of the run, each with whether it is a file.
    """
    options = {name: value for name, value in given.items() if value is not None and value is not False}
    if not options:
        return None
    if "lexicon_words" in options and "lexicon" not in options:
        raise UserError(
            "lexicon_words (--lexicon-words) says how a lexicon is used; give a lexicon as well (--lexicon FILE)"
        )
    texts = tuple(name for name, is_file in sources.items() if not is_file)
    constraints = Constraints(target, texts=texts)
    if "known" in options:
        names = ("prompt",) if is_language_model else tuple(sources)
        constraints = replace(constraints, known=read_known(options["known"], names))
    if any(name in options for name in FORMATS):
        from dragoman.search.constraints.formats import Format

        spelling = target.spelling()
        asked = [(name, read_format(name, options[name])) for name in FORMATS if name in options]
        constraints = replace(constraints, formats=tuple(Format(name, text, spelling) for name, text in asked))
    if "lexicon" in options:
        constraints = _with_lexicon(constraints, options["lexicon"], bool(options.get("lexicon_words")))
    if "glossary" in options or "keep" in options:
        if is_language_model or not texts:
            what = "a language model has no source" if is_language_model else "the sources of this run are no texts"
            raise UserError(f"glossary, keep: {what}, so that nothing in it can ask for a phrase; leave it out")
        constraints = _with_phrases(constraints, options.get("glossary"), options.get("keep"))
    return constraints


def _with_lexicon(constraints: Constraints, given: Any, word_by_word: bool) -> Constraints:
    from dragoman.search.constraints.lexicon import make_lexicon

    target, spelling = constraints.target, constraints.target.spelling()
    count, unknown, example = 0, 0, ""
    spells_all = spelling.spells_all

    def spelled() -> Iterator[str]:
        """Yield the entries that can be spelled, and count the others. None is kept: there may be millions."""
        nonlocal count, unknown, example
        for entry in read_lexicon(given):
            if word_by_word and " " in entry:
                raise UserError(
                    f"lexicon_words: the entry {entry!r} has a space, but every entry is one word of an output; write "
                    "one word on each line, or leave lexicon_words out"
                )
            count += 1
            canonical = target.canonical(entry)
            if spells_all or not target.unknown(canonical):
                yield canonical
            else:
                unknown, example = unknown + 1, example or entry

    lexicon = make_lexicon(spelled(), spelling, target.encode, word_by_word)
    if unknown == count:
        raise UserError(
            f"lexicon: none of the {count:,} entries can be spelled with the {target.kind} of this run, for example "
            f"{example!r}; give a lexicon of its target language"
        )
    note = (
        f"lexicon: {unknown:,} of {count:,} entries have {target.kind} that this run has never seen and cannot write, "
        f"for example {example!r}"
    )
    return replace(constraints, lexicon=lexicon, notes=(*constraints.notes, *([note] if unknown else [])))


def _with_phrases(constraints: Constraints, glossary: Any, keep: Any) -> Constraints:
    from dragoman.inference.glossary import Glossary, compile_kept
    from dragoman.search.constraints.phrases import PhraseWriter

    terms = Glossary(read_glossary(glossary)) if glossary is not None else None
    patterns = [keep] if isinstance(keep, str) else list(keep or ())
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise UserError("keep: give a regular expression, or a list of them")
    writer = PhraseWriter(constraints.target.spelling())
    return replace(constraints, glossary=terms, kept=tuple(compile_kept(patterns)), writer=writer)
