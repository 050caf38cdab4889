/** Bytes in the text of the page: compressed, then four bytes as five characters (src/dragoman/export/page.py). */

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/** The bytes that a text of such digits stands for: numbers of five digits, the first one the highest. */
export function decode(text: string): Uint8Array<ArrayBuffer> {
  const values = new Uint8Array(128);
  for (let digit = 0; digit < DIGITS.length; digit++) values[DIGITS.charCodeAt(digit)] = digit;
  const view = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let from = 0, to = 0; from < text.length; from += 5, to += 4) {
    let number = 0;
    // What is missing of the last five counts as the highest digit, so that the bytes that are there come out right.
    for (let at = from; at < from + 5; at++) number = number * 85 + (at < text.length ? values[text.charCodeAt(at)]! : 84);
    view.setUint32(to, number);
  }
  return new Uint8Array(view.buffer, 0, Math.floor((4 * text.length) / 5));
}

export async function unpack(text: string): Promise<Uint8Array> {
  const stream = new Blob([decode(text.trim())]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
