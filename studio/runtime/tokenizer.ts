/** Text to token ids and back (native/tokenizer.h). */

import { DragomanError, type Library } from "./library";

export const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];

export class Tokenizer {
  private readonly table: number;
  private readonly opened: number;
  private readonly pieces = new Map<number, string>();

  constructor(private readonly library: Library, table: Uint8Array) {
    this.table = library.put(table); // it stays in memory as long as the tokeniser is open
    this.opened = library.open((message, room) => library.calls.tokenizer_open(this.table, table.length, message, room));
  }

  close(): void {
    this.library.calls.tokenizer_close(this.opened);
    this.library.calls.free(this.table);
  }

  /** The number of ids, the four special tokens included. */
  get size(): number {
    return this.library.calls.tokenizer_count(this.opened);
  }

  /** The ids of a text, without the start and end symbols. A lone surrogate counts as U+FFFD. */
  encode(text: string): Int32Array {
    const given = new TextEncoder().encode(text);
    const [ids, count] = this.call(4 * given.length + 64, (ids, bytes, needed, lend) =>
      this.library.calls.tokenizer_encode(this.opened, lend.put(given), given.length, ids, bytes >> 2, needed), 4);
    return new Int32Array(ids.buffer, 0, count);
  }

  decode(ids: ArrayLike<number>): string {
    const given = Int32Array.from(ids);
    const [text, count] = this.call(16 * given.length + 64, (text, bytes, needed, lend) =>
      this.library.calls.tokenizer_decode(this.opened, lend.put(given), given.length, text, bytes, needed), 1);
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(text.subarray(0, count));
  }

  /** A printable string for one id. */
  piece(id: number): string {
    const known = this.pieces.get(id);
    if (known !== undefined) return known;
    const [text, count] = this.call(256, (text, bytes, needed) => this.library.calls.tokenizer_piece(this.opened, id, text, bytes, needed), 1);
    const piece = new TextDecoder("utf-8", { ignoreBOM: true }).decode(text.subarray(0, count));
    this.pieces.set(id, piece);
    return piece;
  }

  /** Call a function that tells how much room it needs, again with more room where it was too little. */
  private call(bytes: number, ask: (to: number, bytes: number, needed: number, lend: { put(data: Uint8Array | Int32Array): number }) => number, width: number): [Uint8Array, number] {
    for (;;) {
      const [data, count] = this.library.borrow((lend) => {
        const [to, needed] = [lend.room(bytes), lend.room(4)];
        const reason = ask(to, bytes, needed, lend);
        if (reason) throw new DragomanError(reason === 2 ? "a token id is outside the vocabulary" : "the text is too long");
        const count = this.library.number(needed);
        return [count * width <= bytes ? this.library.bytes(to, count * width) : null, count] as const;
      });
      if (data) return [data, count];
      bytes = count * width;
    }
  }
}
