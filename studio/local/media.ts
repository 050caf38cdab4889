/** Files that a person gives: pictures and recordings are decoded by the browser, WAV and arrays by ourselves. */

import { readWave, type Wave } from "../runtime/dragoman";
import type { Medium } from "./asking";

const MOST_PIXELS = 64_000_000; // of one picture
const MOST_BYTES = 1 << 28; // of a recording or an array

export async function readMedium(file: File, kinds: readonly string[]): Promise<Medium> {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is too large to be read here.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const url = URL.createObjectURL(file);
  const isArray = bytes[0] === 0x93 && bytes[1] === 0x4e;
  if (isArray && kinds.includes("features")) return { kind: "features", bytes, url };
  const isSound = ["RIFF", "fLaC", "OggS"].includes(latin(bytes, 0, 4)) && latin(bytes, 8, 12) !== "WEBP";
  if (isSound && kinds.includes("speech")) return { kind: "speech", wave: await readSound(file.name, bytes), url };
  if (kinds.includes("image")) return { kind: "image", pixels: await readPicture(file), url };
  URL.revokeObjectURL(url);
  throw new Error(`${file.name} is not a file that this model reads.`);
}

const latin = (bytes: Uint8Array, begin: number, end: number): string => String.fromCharCode(...bytes.subarray(begin, end));

/** Red, green and blue; transparent parts are on white, and the picture is turned as EXIF says. */
async function readPicture(file: File) {
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw new Error(`${file.name} is not a picture that this browser can read. Give a PNG, JPEG or WebP file.`);
  }
  const { width: breadth, height } = bitmap;
  if (breadth * height > MOST_PIXELS) throw new Error(`${file.name} has more than ${MOST_PIXELS / 1e6} million pixels. Make it smaller.`);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [breadth, height];
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  context.fillStyle = "#fff";
  context.fillRect(0, 0, breadth, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const rgba = context.getImageData(0, 0, breadth, height).data;
  const data = new Uint8Array(3 * breadth * height);
  for (let index = 0; index < breadth * height; index++) data.set(rgba.subarray(4 * index, 4 * index + 3), 3 * index);
  return { data, height, breadth };
}

/** Samples at the rate of the file. The browser decodes FLAC and Ogg, and must be told their rate, or it resamples. */
async function readSound(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<Wave> {
  const mark = latin(bytes, 0, 4);
  if (mark === "RIFF") return readWave(bytes);
  const view = new DataView(bytes.buffer);
  const vorbis = latin(bytes, 0, 64).indexOf("\x01vorbis");
  const rate = mark === "fLaC" ? (view.getUint32(18) >>> 12) : vorbis >= 0 ? view.getUint32(vorbis + 12, true) : 48_000;
  try {
    const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(bytes.slice().buffer);
    const samples = new Float32Array(sound.length);
    for (let channel = 0; channel < sound.numberOfChannels; channel++)
      sound.getChannelData(channel).forEach((value, index) => (samples[index] += value / sound.numberOfChannels));
    return { samples, rate: sound.sampleRate };
  } catch {
    throw new Error(`${name} is not a recording that this browser can read. Give a WAV file.`);
  }
}
