"""Outputs that are entries of a lexicon, or made of its entries word by word.

Where a text can be divided into tokens in one way only, the lexicon is a tree of tokens. Otherwise it is a tree of the
bytes of its entries, and the tokens of each view are another. What a row may write next is where the two agree, walked
together from the node that the row has reached. So an entry may be divided into tokens in every way that the model
likes, and nothing is stored for a division.

Near the length limit, a row may write only what can still become an entry. Each node knows how far the nearest end of
an entry is; in a tree of bytes, how many tokens that takes is looked for where it matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dragoman.search.constraints.trie import Trie, expand
from dragoman.search.rules import Bans, Rule
from dragoman.types import Spelling

SPACE = 0x20
REMEMBERED = 4_000_000  # tokens of nodes that were looked at, in memory
REMEMBERED_ENDS = 100_000  # answers to whether an entry can still be ended
CLOSE = 4  # tokens that are left: it is looked whether the vocabulary can spell the bytes that are missing
WIDEST = 1_000  # nodes that are followed at once to find that out; beyond, it is taken for granted
NO_LIMIT = np.zeros(0, np.int64)
LOST = -1  # the node of a row that has left the lexicon
NARROW = 0xD800  # tokens below it fit into two bytes each


class Continuations(NamedTuple):
    """What some rows may write next, sorted by row and token, (M,) each."""

    rows: np.ndarray
    tokens: np.ndarray
    nodes: np.ndarray  # that they lead to


class Lexicon(ABC):
    """A set of texts. It never changes but for what it remembers, and many searches may use it at once."""

    word_by_word = False  # an output is entries with single spaces between them

    def __init__(self, trie: Trie, spelling: Spelling) -> None:
        self.trie, self.spelling = trie, spelling
        self._distances = trie.distances()  # (nodes,) labels to the nearest end of an entry
        self.farthest = int(self._distances.max())  # tokens from any node to the nearest end, at most

    @abstractmethod
    def accepts(self, text: str) -> bool:
        """Tell whether a text is in the lexicon, or made of it."""

    @abstractmethod
    def look(self, nodes: np.ndarray, views: np.ndarray) -> Continuations:
        """Return what rows at some nodes and in some views may write next. No node is ``LOST``."""

    @abstractmethod
    def can_end(self, nodes: np.ndarray, views: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Tell which nodes, in some views, are so near to the end of an entry: at most ``most`` tokens, (M,) each."""


def make_lexicon(
    entries: Iterable[str], spelling: Spelling, encode: Callable[[str], Sequence[int]], word_by_word: bool = False
) -> Lexicon:
    """Return the lexicon of some entries; ``word_by_word``: none of them has a space."""
    if spelling.is_unique and not word_by_word:
        return LexiconOfTokens(entries, spelling, encode)
    return LexiconOfBytes(entries, spelling, word_by_word)


class LexiconOfTokens(Lexicon):
    """A lexicon for tokenisers that have one way to divide a text."""

    def __init__(self, entries: Iterable[str], spelling: Spelling, encode: Callable[[str], Sequence[int]]) -> None:
        vocabulary = spelling.after.shape[1]
        width, form = (2, "utf-16-be") if vocabulary < NARROW else (4, "utf-32-be")
        sequences = ["".join(map(chr, encode(entry))).encode(form, "surrogatepass") for entry in entries]
        sequences.sort()
        super().__init__(Trie.build(sequences, vocabulary, width)[0], spelling)
        self._encode = encode

    def accepts(self, text: str) -> bool:
        return self.trie.contains(self._encode(text))

    def look(self, nodes: np.ndarray, views: np.ndarray) -> Continuations:
        which, children = self.trie.children(nodes)
        return Continuations(which, self.trie.labels(children, nodes[which]), children)

    def can_end(self, nodes: np.ndarray, views: np.ndarray, most: np.ndarray) -> np.ndarray:
        return np.asarray(self._distances[nodes] <= most)


class LexiconOfBytes(Lexicon):
    """A lexicon for tokenisers that can divide a text in several ways."""

    def __init__(self, entries: Iterable[str], spelling: Spelling, word_by_word: bool) -> None:
        sequences = [entry.encode("utf-8", "surrogatepass") for entry in entries]
        sequences.sort()
        super().__init__(Trie.build(sequences)[0], spelling)
        self.word_by_word = word_by_word
        self._tokens = [TokenTrie(spelled) for spelled in spelling.spelled]
        self._seen: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._remembered = 0
        self._ends: dict[tuple[int, int, int], bool] = {}
        added = [own for spelled in spelling.spelled for own in spelled if own is not None]
        self._longest = max(map(len, added), default=0)  # bytes of a token
        self._slowest = 2 if b"" in added else 1  # tokens for a byte: there may be one that adds nothing before it
        self.farthest = max(CLOSE, self.farthest * self._slowest)

    def accepts(self, text: str) -> bool:
        parts = text.split(" ") if self.word_by_word else [text]
        return all(self.trie.contains(part.encode("utf-8", "surrogatepass")) for part in parts)

    def look(self, nodes: np.ndarray, views: np.ndarray) -> Continuations:
        """Look at each node once; what was found is remembered, as most rows pass through the same first nodes."""
        pairs = list(zip(views.tolist(), nodes.tolist(), strict=True))
        seen = self._seen
        fresh: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        for view in set(views.tolist()):
            missing = [pair for pair in dict.fromkeys(pairs) if pair[0] == view and pair not in seen]
            if missing:
                found = self._walk(np.array([node for _, node in missing], np.int64), view)
                fresh |= dict(zip(missing, found, strict=True))
        answers = [fresh[pair] if pair in fresh else seen[pair] for pair in pairs]
        size = sum(len(tokens) for tokens, _ in fresh.values())
        if self._remembered + size > REMEMBERED:
            self._seen, self._remembered = {}, 0
        self._seen.update(fresh)
        self._remembered += size
        rows = np.repeat(np.arange(len(pairs)), [len(tokens) for tokens, _ in answers])
        nothing = np.zeros(0, np.int64)
        tokens = np.concatenate([nothing, *(tokens for tokens, _ in answers)])
        return Continuations(rows, tokens, np.concatenate([nothing, *(places for _, places in answers)]))

    def can_end(self, nodes: np.ndarray, views: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Tell it for certain where few tokens are left; before, the bytes tell enough."""
        far = self._distances[nodes].astype(np.int64)
        found = np.asarray((far * self._slowest <= most) & ((most >= CLOSE) | (far == 0)))
        doubtful = np.flatnonzero(~found & (far <= most * self._longest))
        asked = np.stack([nodes[doubtful], views[doubtful], most[doubtful]], 1)
        for place, (node, view, left) in zip(doubtful.tolist(), asked.tolist(), strict=True):
            known = self._ends.get((node, view, left))
            if known is None:
                known = self._look_for_end(node, view, left)
                if len(self._ends) >= REMEMBERED_ENDS:
                    self._ends = {}
                self._ends[node, view, left] = known
            found[place] = known
        return found

    def _look_for_end(self, node: int, view: int, most: int) -> bool:
        """Tell whether some tokens, at most so many, lead from a node to the end of an entry."""
        nodes, views = np.array([node]), np.array([view])
        for left in range(most - 1, -1, -1):  # tokens that may come after the next one
            found = self.look(nodes, views)
            nodes, views = found.nodes, self.spelling.after[views[found.rows], found.tokens].astype(np.int64)
            far = self._distances[nodes].astype(np.int64)
            if not far.all():
                return True
            near = far <= left * self._longest
            places = np.unique(np.stack([nodes[near], views[near]]), axis=1)
            nodes, views = places
            if not 0 < len(nodes) <= WIDEST:
                return len(nodes) > 0
        return False

    def _walk(self, nodes: np.ndarray, view: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Walk the trees of entries and tokens together from some nodes of the lexicon."""
        lexicon, tokens = self.trie, self._tokens[view].trie
        rows, places, inside = np.arange(len(nodes)), nodes, np.zeros(len(nodes), np.int64)
        found = []
        while len(rows):
            which, ending = self._tokens[view].ending(inside)
            found.append((rows[which], ending, places[which]))
            # children of both by the same byte: those of the node with fewer are looked for among the others
            few = lexicon.first[places + 1] - lexicon.first[places] <= tokens.first[inside + 1] - tokens.first[inside]
            ours, theirs = np.flatnonzero(few), np.flatnonzero(~few)
            parent, place = lexicon.children(places[ours])
            which, partner = tokens.step(inside[ours][parent], lexicon.labels(place, places[ours][parent]))
            parents, new_places, new_inside = [ours[parent[which]]], [place[which]], [partner]
            parent, partner = tokens.children(inside[theirs])
            which, place = lexicon.step(places[theirs][parent], tokens.labels(partner, inside[theirs][parent]))
            parents, new_places = [*parents, theirs[parent[which]]], [*new_places, place]
            new_inside = [*new_inside, partner[which]]
            if self.word_by_word:  # after an entry, a space leads back to the root
                done = np.flatnonzero(lexicon.is_end[places])
                which, partner = tokens.step(inside[done], np.full(len(done), SPACE))
                parents, new_places = [*parents, done[which]], [*new_places, np.zeros(len(which), np.int64)]
                new_inside = [*new_inside, partner]
            rows = rows[np.concatenate(parents)]
            places, inside = np.concatenate(new_places), np.concatenate(new_inside)
        row, token, place = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((token, row))
        row, token, place = row[order], token[order], place[order]
        bounds = np.searchsorted(row, np.arange(len(nodes) + 1)).tolist()
        return [(token[begin:end], place[begin:end]) for begin, end in pairwise(bounds)]


class TokenTrie:
    """The tokens of one view, by the bytes that they add."""

    def __init__(self, spelled: Sequence[bytes | None]) -> None:
        known = sorted((added, token) for token, added in enumerate(spelled) if added is not None)
        self.trie, nodes = Trie.build([added for added, _ in known])
        order = np.argsort(nodes, kind="stable")
        self._tokens = np.array([token for _, token in known], np.int64)[order]
        self._begin = np.searchsorted(nodes[order], np.arange(len(self.trie) + 1))

    def ending(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens that end at some nodes: the place of the node, and the token."""
        which, places = expand(self._begin[nodes], self._begin[nodes + 1])
        return which, self._tokens[places]


class LexiconRule(Rule):
    """Allow what leads to an entry of the lexicon that the length limit leaves room for, and the end only after one."""

    hard = True

    def __init__(self, lexicon: Lexicon, eos: int, limits: np.ndarray | None = None) -> None:
        """``limits`` (B,) are the most tokens of the outputs of each source, the end symbol included; None: any."""
        self._lexicon, self._eos, self._limits = lexicon, eos, limits
        self._vocabulary = lexicon.spelling.after.shape[1]

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        self._sources, self._produced = np.array(sources, np.int64), 0
        self._set(np.zeros(len(prefixes), np.int64), np.full(len(prefixes), self._lexicon.spelling.start, np.int8))
        for column in prefixes.T:
            self.advance(np.arange(len(prefixes)), column)

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        self._sources, self._produced = self._sources[parents], self._produced + 1
        wanted = parents * self._vocabulary + tokens
        nodes = np.full(len(wanted), LOST, np.int64)
        if len(self._keys):
            found = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            nodes = np.where(self._keys[found] == wanted, self._next[found], LOST)
        self._set(nodes, self._lexicon.spelling.after[self._views[parents], tokens])

    def _set(self, nodes: np.ndarray, views: np.ndarray) -> None:
        """Put the rows at some nodes, and find what each may write next."""
        self._nodes, self._views = nodes, views
        inside = np.flatnonzero(nodes != LOST)
        found = self._lexicon.look(nodes[inside], views[inside])
        self._rows, self._tokens, self._next = inside[found.rows], found.tokens, found.nodes
        self._keys = self._rows * self._vocabulary + self._tokens

    def bans(self) -> Bans:
        ends = np.flatnonzero((self._nodes != LOST) & self._lexicon.trie.is_end[self._nodes])
        rows, tokens = self._rows, self._tokens
        left = NO_LIMIT if self._limits is None else self._limits[self._sources] - self._produced - 2
        if left.min(initial=self._lexicon.farthest) < self._lexicon.farthest:
            # ``left``: tokens that may come between the next one and the end symbol
            views = self._lexicon.spelling.after[self._views[rows], tokens].astype(np.int64)
            may_end = self._lexicon.can_end(self._next, views, left[rows])
            rows, tokens = rows[may_end], tokens[may_end]
        return Bans(
            restricted=np.arange(len(self._nodes)),
            allowed_rows=np.concatenate([rows, ends]),
            allowed_tokens=np.concatenate([tokens, np.full(len(ends), self._eos)]),
        )
