/** Bytes in the text of the page: compressed, then written in base64. */

export async function unpack(text: string): Promise<Uint8Array> {
  const packed = atob(text.trim());
  const bytes = new Uint8Array(packed.length);
  for (let index = 0; index < packed.length; index++) bytes[index] = packed.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
