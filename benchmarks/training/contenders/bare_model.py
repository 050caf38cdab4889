"""The recurrent model of the bare loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD = 0
Pair = tuple[Tensor, Tensor]


class BareModel(nn.Module):
    def __init__(self, vocabulary: int, embedding: int, encoder: int, decoder: int, dropout: float, timing: str):
        super().__init__()
        memory = 2 * encoder
        assert memory == decoder, "the encoder's last states are the decoder's first"
        self.timing = timing
        self.source_embedding = nn.Embedding(vocabulary, embedding, padding_idx=PAD)
        self.target_embedding = nn.Embedding(vocabulary, embedding, padding_idx=PAD)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.LSTM(embedding, encoder, bidirectional=True, batch_first=True)
        if timing == "after":
            self.decoder = nn.LSTM(embedding, decoder, batch_first=True)
            self.score = nn.Linear(decoder, memory, bias=False)
        else:
            self.cell = nn.LSTMCell(embedding + memory, decoder)
            self.query = nn.Linear(decoder, decoder, bias=False)
            self.key = nn.Linear(memory, decoder, bias=False)
            self.score = nn.Linear(decoder, 1, bias=False)
        self.join = nn.Linear(decoder + memory, embedding)
        self.output = nn.Linear(embedding, vocabulary)
        self.output.weight = self.target_embedding.weight

    def forward(self, source: Tensor, inputs: Tensor) -> Tensor:
        """(B, S), (B, T) → what enters the output layer, (B, T, embedding)."""
        real = source != PAD
        embedded = self.dropout(self.source_embedding(source))
        packed = pack_padded_sequence(embedded, real.sum(1), batch_first=True, enforce_sorted=False)
        outputs, (hidden, cell) = self.encoder(packed)
        memory, _ = pad_packed_sequence(outputs, batch_first=True)  # (B, S, M)
        first = (torch.cat([hidden[0], hidden[1]], -1), torch.cat([cell[0], cell[1]], -1))
        tokens = self.dropout(self.target_embedding(inputs))
        run = self.after if self.timing == "after" else self.before
        states, contexts = run(tokens, memory, ~real, first)
        features: Tensor = self.dropout(torch.tanh(self.join(torch.cat([states, contexts], -1))))
        return features

    def after(self, tokens: Tensor, memory: Tensor, padding: Tensor, first: Pair) -> Pair:
        states, _ = self.decoder(tokens, (first[0][None], first[1][None]))
        scores = self.score(states) @ memory.transpose(1, 2)  # (B, T, S)
        weights = scores.masked_fill(padding[:, None], float("-inf")).softmax(-1)
        return states, weights @ memory

    def before(self, tokens: Tensor, memory: Tensor, padding: Tensor, first: Pair) -> Pair:
        keys = self.key(memory)
        hidden, cell = first
        states, contexts = [], []
        for token in tokens.unbind(1):
            scores = self.score(torch.tanh(keys + self.query(hidden)[:, None])).squeeze(-1)  # (B, S)
            weights = scores.masked_fill(padding, float("-inf")).softmax(-1)
            context = torch.bmm(weights[:, None], memory).squeeze(1)
            hidden, cell = self.cell(torch.cat([token, context], -1), (hidden, cell))
            states.append(hidden)
            contexts.append(context)
        return torch.stack(states, 1), torch.stack(contexts, 1)
