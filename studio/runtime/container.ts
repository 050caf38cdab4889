/** The sections of a file model.dragoman that the library itself does not read: tokenisers, search settings, texts.
 * src/dragoman/program/file.py describes the file; the library checks the rest of it. */

import { DragomanError } from "./library";

const MAGIC = "DRAGOMAN";
const FORMATS = [1, 2];
const KINDS = [
  "program", "sources", "slots", "encode", "step", "weights", "data", "strings", "digest", "tokenizer", "settings", "forbidden", "only", "about",
] as const;
type Kind = (typeof KINDS)[number];

export class Container {
  private readonly places = new Map<string, [number, number]>();

  constructor(readonly file: Uint8Array) {
    const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
    if (file.length < 24 || new TextDecoder().decode(file.subarray(0, 8)) !== MAGIC) throw new DragomanError("this is no model file of Dragoman");
    const format = view.getInt32(8, true);
    if (!FORMATS.includes(format)) throw new DragomanError(`the model file has format ${format}, and this program reads ${FORMATS.join(" and ")}`);
    const count = view.getInt32(12, true);
    if (view.getBigInt64(16, true) !== BigInt(file.length) || count < 0 || 24 + 24 * count > file.length) throw damaged("it is cut off");
    for (let index = 0; index < count; index++) {
      const at = 24 + 24 * index;
      const [offset, size] = [Number(view.getBigInt64(at + 8, true)), Number(view.getBigInt64(at + 16, true))];
      if (offset < 0 || size < 0 || offset + size > file.length) throw damaged("a section lies outside it");
      this.places.set(`${view.getInt32(at, true)} ${view.getInt32(at + 4, true)}`, [offset, size]);
    }
  }

  /** The bytes of a section; null: there is none. */
  section(kind: Kind, number = 0): Uint8Array | null {
    const place = this.places.get(`${KINDS.indexOf(kind) + 1} ${number}`);
    return place ? this.file.subarray(place[0], place[0] + place[1]) : null;
  }

  needed(kind: Kind, number = 0): Uint8Array {
    const found = this.section(kind, number);
    if (!found) throw damaged(`it has no section ${kind}`);
    return found;
  }

  /** Sequences of token ids: their number, then the length and the ids of each. */
  sequences(kind: Kind): number[][] {
    const numbers = this.section(kind);
    if (!numbers || numbers.length < 4) return [];
    const all = new Int32Array(numbers.slice().buffer, 0, numbers.length >> 2);
    const found: number[][] = [];
    for (let index = 0, at = 1; index < all[0]; index++, at += 1 + all[at]) {
      if (!(all[at] >= 0 && at + 1 + all[at] <= all.length)) throw damaged(`its section ${kind} is cut off`);
      found.push([...all.subarray(at + 1, at + 1 + all[at])]);
    }
    return found;
  }

  about(): unknown {
    try {
      return JSON.parse(new TextDecoder().decode(this.needed("about")));
    } catch {
      throw damaged("what it says of itself cannot be read");
    }
  }
}

function damaged(what: string): DragomanError {
  return new DragomanError(`the model file is damaged: ${what}; export the run again`);
}
