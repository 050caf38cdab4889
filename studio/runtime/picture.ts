/** Pictures as the model reads them: scaled as Pillow scales (bilinear, with means of pixels where a picture gets smaller). */

import type { Features } from "./model";

export interface PictureReading {
  size: number; // longest side in pixels
  enlarge: boolean; // scale smaller pictures up too
  grey: boolean; // one channel in place of three
}

/** Pixels (height, breadth, 3), red, green and blue. */
export interface Pixels {
  data: Uint8Array | Uint8ClampedArray;
  height: number;
  breadth: number;
}

const PRECISION = 22; // bits after the point of Pillow's coefficients
const LUMA = [0.299, 0.587, 0.114]; // ITU-R BT.601

export function pictureFeatures(pixels: Pixels, reading: PictureReading): Features {
  const [height, breadth] = scaledSize(pixels.height, pixels.breadth, reading);
  const { data } = resize(pixels, height, breadth);
  const channels = reading.grey ? 1 : 3;
  const floats = new Float32Array(height * breadth * channels);
  if (!reading.grey) floats.set(data);
  else
    for (let index = 0; index < floats.length; index++) {
      const grey = LUMA.reduce((sum, share, channel) => Math.fround(sum + Math.fround(Math.fround(share) * data[3 * index + channel])), 0);
      floats[index] = roundEven(grey);
    }
  return { data: floats, length: height * breadth, height, breadth };
}

function scaledSize(height: number, breadth: number, { size, enlarge }: PictureReading): [number, number] {
  const longest = Math.max(height, breadth);
  if (longest === size || (longest < size && !enlarge)) return [height, breadth];
  const share = size / longest;
  return [Math.max(1, roundEven(height * share)), Math.max(1, roundEven(breadth * share))];
}

/** Halves go to the even number, as in Python. */
export function roundEven(value: number): number {
  const whole = Math.floor(value);
  return value - whole === 0.5 ? whole + (whole % 2) : Math.round(value);
}

/** First along the rows, then along the columns, each with whole numbers, as Pillow's Resample.c computes. (Some
 * versions of Pillow take the columns of tall pictures first, which changes some values by 1.) */
export function resize(pixels: Pixels, height: number, breadth: number): Pixels {
  let { data } = pixels;
  if (breadth !== pixels.breadth) {
    const weights = coefficients(pixels.breadth, breadth);
    const to = new Uint8Array(pixels.height * breadth * 3);
    for (let row = 0; row < pixels.height; row++)
      for (let x = 0; x < breadth; x++)
        for (let channel = 0; channel < 3; channel++)
          to[3 * (row * breadth + x) + channel] = weigh(data, 3 * (row * pixels.breadth + weights[x].first) + channel, 3, weights[x].shares);
    data = to;
  }
  if (height !== pixels.height) {
    const weights = coefficients(pixels.height, height);
    const to = new Uint8Array(height * breadth * 3);
    for (let y = 0; y < height; y++)
      for (let at = 0; at < 3 * breadth; at++) to[3 * y * breadth + at] = weigh(data, 3 * weights[y].first * breadth + at, 3 * breadth, weights[y].shares);
    data = to;
  }
  return { data, height, breadth };
}

function weigh(data: ArrayLike<number>, at: number, stride: number, shares: Int32Array): number {
  let sum = 1 << (PRECISION - 1);
  for (let index = 0; index < shares.length; index++) sum += data[at + index * stride] * shares[index];
  return Math.min(255, Math.max(0, sum >> PRECISION));
}

function coefficients(from: number, to: number): { first: number; shares: Int32Array }[] {
  const scale = from / to;
  const support = Math.max(scale, 1); // of the triangle that the bilinear filter is
  return Array.from({ length: to }, (_, index) => {
    const centre = (index + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(from, Math.trunc(centre + support + 0.5));
    const shares = Array.from({ length: last - first }, (_, x) => Math.max(0, 1 - Math.abs((x + first - centre + 0.5) * (1 / support))));
    const sum = shares.reduce((total, share) => total + share, 0);
    return { first, shares: Int32Array.from(shares, (share) => Math.trunc(0.5 + (share / sum) * (1 << PRECISION))) };
  });
}
