/** The WebAssembly of native/: its functions, and memory that is lent to them. */

type Address = number;

/** The functions of native/dragoman.h and native/tokenizer.h that are called from here. */
interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  malloc(size: number): Address;
  free(address: Address): void;
  dragoman_open(file: Address, size: number, kernels: Address, message: Address, room: number): Address;
  dragoman_close(model: Address): void;
  dragoman_describe(model: Address, fact: number, index: number): number;
  dragoman_source_name(model: Address, index: number): Address;
  dragoman_new(model: Address): Address;
  dragoman_free(context: Address): void;
  dragoman_message(context: Address): Address;
  dragoman_encode(context: Address, count: number, inputs: Address): number;
  dragoman_lengths(context: Address, value: number, index: number, lengths: Address): number;
  dragoman_copy(context: Address, value: number, index: number, to: Address, pitch: number): number;
  dragoman_step(context: Address, rows: Address): number;
  dragoman_settings_new(): Address;
  dragoman_settings_free(settings: Address): void;
  dragoman_set(settings: Address, setting: number, value: number): number;
  dragoman_set_list(settings: Address, list: number, count: number, numbers: Address, ends: Address): number;
  dragoman_search(context: Address, count: number, inputs: Address, settings: Address, result: Address): number;
  dragoman_result_free(result: Address): void;
  dragoman_result_part(result: Address, part: number, length: Address): Address;
  tokenizer_open(table: Address, size: number, message: Address, room: number): Address;
  tokenizer_close(tokenizer: Address): void;
  tokenizer_count(tokenizer: Address): number;
  tokenizer_encode(tokenizer: Address, text: Address, length: number, ids: Address, room: number, needed: Address): number;
  tokenizer_decode(tokenizer: Address, ids: Address, count: number, text: Address, room: number, needed: Address): number;
  tokenizer_piece(tokenizer: Address, id: number, text: Address, room: number, needed: Address): number;
}

/** Something in the input, the file or the call is wrong; the message says what. */
export class DragomanError extends Error {
  override name = "DragomanError";
}

const TOO_LARGE = "there is not enough memory for this model or input";
const MESSAGE = 256; // bytes of a message of the library

export type Numbers = Int8Array | Uint8Array | Int32Array | Float32Array | Float64Array;

/** An instance of the WebAssembly with its memory. All addresses are those of this instance. */
export class Library {
  private constructor(readonly calls: Exports) {}

  static async load(wasm: BufferSource | WebAssembly.Module): Promise<Library> {
    const module = wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile(wasm);
    const instance = await WebAssembly.instantiate(module, {});
    const calls = instance.exports as unknown as Exports;
    calls._initialize();
    return new Library(calls);
  }

  /** Copy numbers into the library's memory. 0 bytes have an address too. */
  put(data: Numbers): Address {
    const address = this.room(data.byteLength);
    new Uint8Array(this.calls.memory.buffer, address, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return address;
  }

  room(bytes: number): Address {
    const address = this.calls.malloc(Math.max(8, bytes));
    if (!address) throw new DragomanError(TOO_LARGE);
    return address;
  }

  /** Run a function that may borrow memory with `lend`; all of it is given back afterwards. */
  borrow<Answer>(use: (lend: Lender) => Answer): Answer {
    const lent: Address[] = [];
    const keep = (address: Address): Address => (lent.push(address), address);
    try {
      return use({ put: (data) => keep(this.put(data)), room: (bytes) => keep(this.room(bytes)) });
    } finally {
      lent.forEach((address) => this.calls.free(address));
    }
  }

  bytes(address: Address, count: number): Uint8Array {
    return new Uint8Array(this.calls.memory.buffer, address, count).slice();
  }
  ints(address: Address, count: number): Int32Array {
    return new Int32Array(this.calls.memory.buffer, address, count).slice();
  }
  floats(address: Address, count: number): Float32Array {
    return new Float32Array(this.calls.memory.buffer, address, count).slice();
  }
  doubles(address: Address, count: number): Float64Array {
    return new Float64Array(this.calls.memory.buffer, address, count).slice();
  }
  number(address: Address): number {
    return new Uint32Array(this.calls.memory.buffer, address, 1)[0];
  }

  /** A text that ends with a zero. */
  text(address: Address): string {
    const memory = new Uint8Array(this.calls.memory.buffer);
    return new TextDecoder().decode(memory.slice(address, memory.indexOf(0, address)));
  }

  /** Open a table or a file: call `open` with room for a message, and throw the message where it returns nothing. */
  open(open: (message: Address, room: number) => Address): Address {
    return this.borrow(({ room }) => {
      const message = room(MESSAGE);
      const opened = open(message, MESSAGE);
      if (!opened) throw new DragomanError(this.text(message));
      return opened;
    });
  }
}

export interface Lender {
  put(data: Numbers): Address;
  room(bytes: number): Address;
}
