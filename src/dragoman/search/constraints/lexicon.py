"""Outputs that are entries of a lexicon, or made of its entries word by word.

The lexicon is a tree of the bytes of its entries, and the tokens of each view are another. What a row may write next is
where the two agree, walked together from the node that the row has reached. So an entry may be divided into tokens in
every way that the model likes, and nothing is stored for a division.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dragoman.search.constraints.trie import ByteTrie, expand
from dragoman.search.rules import Bans, Rule
from dragoman.types import Spelling

SPACE = 0x20
REMEMBERED = 4_000_000  # tokens of nodes that were looked at, in memory
LOST = -1  # the node of a row that has left the lexicon


class TokenTrie:
    """The tokens of one view, by the bytes that they add."""

    def __init__(self, spelled: Sequence[bytes | None]) -> None:
        known = [(added, token) for token, added in enumerate(spelled) if added is not None]
        known.sort()
        distinct = sorted({added for added, _ in known})
        self.trie = ByteTrie(distinct)
        nodes = np.array([_node(self.trie, added) for added in distinct], np.int64)
        by_added = dict(zip(distinct, nodes.tolist(), strict=True))
        own = np.array([by_added[added] for added, _ in known], np.int64)
        order = np.argsort(own, kind="stable")
        self._tokens = np.array([token for _, token in known], np.int64)[order]
        self._begin = np.searchsorted(own[order], np.arange(len(self.trie) + 1))

    def ending(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens that end at some nodes: the place of the node, and the token."""
        which, places = expand(self._begin[nodes], self._begin[nodes + 1])
        return which, self._tokens[places]


class Lexicon:
    """A set of texts. It never changes but for what it remembers, and many searches may use it at once."""

    def __init__(self, entries: Iterable[str], spelling: Spelling, word_by_word: bool = False) -> None:
        """``word_by_word``: an output is entries with single spaces between them; no entry has a space."""
        self.trie = ByteTrie(sorted({entry.encode("utf-8", "surrogatepass") for entry in entries}))
        self.spelling, self.word_by_word = spelling, word_by_word
        self._tokens = [TokenTrie(spelled) for spelled in spelling.spelled]
        self._seen: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._remembered = 0

    def accepts(self, text: str) -> bool:
        """Tell whether a text is in the lexicon, or made of it."""
        parts = text.split(" ") if self.word_by_word else [text]
        return all(part.encode("utf-8", "surrogatepass") in self.trie for part in parts)

    def next_tokens(self, nodes: np.ndarray, view: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return for each node what may be written next: the tokens, ascending, and the nodes that they lead to."""
        seen = self._seen
        wanted = nodes.tolist()
        missing = [node for node in dict.fromkeys(wanted) if (view, node) not in seen]
        fresh = dict(zip(missing, self._walk(np.array(missing, np.int64), view), strict=True)) if missing else {}
        answers = [fresh[node] if node in fresh else seen[view, node] for node in wanted]
        size = sum(len(tokens) for tokens, _ in fresh.values())
        if self._remembered + size > REMEMBERED:
            self._seen, self._remembered = {}, 0
        self._seen.update({(view, node): found for node, found in fresh.items()})
        self._remembered += size
        return answers

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
            parent, child = lexicon.children(places[ours])
            which, partner = tokens.step(inside[ours][parent], lexicon.labels(child))
            parent, other = ours[parent[which]], child[which]
            parent2, child2 = tokens.children(inside[theirs])
            which, partner2 = lexicon.step(places[theirs][parent2], tokens.labels(child2))
            parent2, other2 = theirs[parent2[which]], child2[which]
            if self.word_by_word:  # after an entry, a space leads back to the root
                done = np.flatnonzero(lexicon.is_end[places])
                which, spaces = tokens.step(inside[done], np.full(len(done), SPACE))
                parent2 = np.concatenate([parent2, done[which]])
                partner2 = np.concatenate([partner2, np.zeros(len(which), np.int64)])
                other2 = np.concatenate([other2, spaces])
            from_rows = rows[np.concatenate([parent, parent2])]
            places, inside = np.concatenate([other, partner2]), np.concatenate([partner, other2])
            rows = from_rows
        row, token, place = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((token, row))
        row, token, place = row[order], token[order], place[order]
        bounds = np.searchsorted(row, np.arange(len(nodes) + 1))
        return [
            (token[begin:end], place[begin:end])
            for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]


class LexiconRule(Rule):
    """Allow what leads to an entry of the lexicon, and the end only after one."""

    hard = True

    def __init__(self, lexicon: Lexicon, eos: int) -> None:
        self._lexicon, self._eos = lexicon, eos

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        self._nodes = np.zeros(len(prefixes), np.int64)
        self._views = np.full(len(prefixes), self._lexicon.spelling.start, np.int8)
        self._look()
        for column in prefixes.T:
            self.advance(np.arange(len(prefixes)), column)

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        wanted = parents * self._vocabulary + tokens
        nodes = np.full(len(wanted), LOST, np.int64)
        if len(self._keys):
            found = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            nodes = np.where(self._keys[found] == wanted, self._next[found], LOST)
        self._nodes = nodes
        self._views = self._lexicon.spelling.after[self._views[parents], tokens]
        self._look()

    def _look(self) -> None:
        """Find what each row may write next."""
        count = len(self._nodes)
        answers: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))] * count
        for view in range(len(self._lexicon.spelling.spelled)):
            rows = np.flatnonzero((self._views == view) & (self._nodes != LOST))
            if len(rows):
                for row, answer in zip(rows.tolist(), self._lexicon.next_tokens(self._nodes[rows], view), strict=True):
                    answers[row] = answer
        lengths = np.array([len(tokens) for tokens, _ in answers])
        self._rows = np.repeat(np.arange(count), lengths)
        self._tokens = np.concatenate([tokens for tokens, _ in answers])
        self._next = np.concatenate([nodes for _, nodes in answers])
        self._keys = self._rows * self._vocabulary + self._tokens

    @property
    def _vocabulary(self) -> int:
        return self._lexicon.spelling.after.shape[1]

    def bans(self) -> Bans:
        ends = np.flatnonzero((self._nodes != LOST) & self._lexicon.trie.is_end[self._nodes])
        return Bans(
            restricted=np.arange(len(self._nodes)),
            allowed_rows=np.concatenate([self._rows, ends]),
            allowed_tokens=np.concatenate([self._tokens, np.full(len(ends), self._eos)]),
        )


def _node(trie: ByteTrie, text: bytes) -> int:
    node = 0
    for byte in text:
        node = int(trie.step(np.array([node]), np.array([byte]))[1][0])
    return node
