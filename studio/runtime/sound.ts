/** Sound as the model reads it: resampled, as log-mel frames. The same as src/dragoman/modalities/_signal.py. */

import { DragomanError } from "./library";
import { normalise, type Statistics } from "./frames";
import type { Features } from "./model";

export interface SoundReading {
  rate: number; // samples a second
  mels: number;
  window: number; // samples of a frame
  hop: number; // samples from one frame to the next
  low: number; // Hz
  high: number;
  overall: Statistics | null; // null: each recording is normalised by itself
}

export interface Wave {
  samples: Float32Array; // the mean of the channels
  rate: number;
}

const ZEROS = 16; // zero crossings on each side of the resampling filter
const ROLL_OFF = 0.95;
const MOST_FILTERS = 1000;
const QUIETEST = 1e-7;

export function soundFeatures(wave: Wave, reading: SoundReading): Features {
  const frames = logMel(resample(wave.samples, wave.rate, reading.rate), reading);
  return { data: normalise(frames, reading.mels, reading.overall), length: frames.length / reading.mels };
}

/** The samples of a WAV file. */
export function readWave(file: Uint8Array): Wave {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const word = (at: number) => String.fromCharCode(...file.subarray(at, at + 4));
  if (file.length < 12 || word(0) !== "RIFF" || word(8) !== "WAVE") throw new DragomanError("this is not a WAV recording");
  let form: { code: number; channels: number; rate: number; bits: number } | null = null;
  for (let at = 12; at + 8 <= file.length; ) {
    const size = view.getUint32(at + 4, true);
    const begin = at + 8;
    if (word(at) === "fmt " && begin + 16 <= file.length) {
      const code = view.getUint16(begin, true);
      const extended = code === 0xfffe && begin + 26 <= file.length; // then the code is the beginning of a longer one
      form = { code: extended ? view.getUint16(begin + 24, true) : code, channels: view.getUint16(begin + 2, true), rate: view.getUint32(begin + 4, true), bits: view.getUint16(begin + 14, true) };
    }
    if (word(at) === "data" && form) {
      const end = size === 0 || size === 0xffffffff ? file.length : begin + size;
      if (end > file.length) throw new DragomanError("the WAV recording is cut off");
      return decode(view, begin, end, form);
    }
    at = begin + size + (size % 2);
  }
  throw new DragomanError("the WAV recording has no samples");
}

function decode(view: DataView, begin: number, end: number, form: { code: number; channels: number; rate: number; bits: number }): Wave {
  const { code, channels, rate, bits } = form;
  const readers: Record<string, (at: number) => number> = {
    "1 8": (at) => (view.getUint8(at) - 128) / 128,
    "1 16": (at) => view.getInt16(at, true) / 32768,
    "1 24": (at) => (view.getUint16(at, true) | (view.getInt8(at + 2) << 16)) / 8388608,
    "1 32": (at) => view.getInt32(at, true) / 2147483648,
    "3 32": (at) => view.getFloat32(at, true),
    "3 64": (at) => view.getFloat64(at, true),
  };
  const read = readers[`${code} ${bits}`];
  const count = Math.floor((end - begin) / (channels * (bits >> 3)));
  if (!read || !channels || rate < 1000 || rate > 768_000) throw new DragomanError("a WAV recording of this kind cannot be read; save it with 16 bits");
  if (!count) throw new DragomanError("a recording of 0 seconds");
  const samples = new Float32Array(count);
  for (let index = 0, at = begin; index < count; index++) {
    let sum = 0;
    for (let channel = 0; channel < channels; channel++, at += bits >> 3) sum += read(at);
    samples[index] = sum / channels;
  }
  if (!samples.every(Number.isFinite)) throw new DragomanError("the recording has samples that are no numbers");
  return { samples, rate };
}

/** Band-limited interpolation (Smith and Gossett 1984): a windowed sinc around each new sample. */
export function resample(wave: Float32Array, old: number, rate: number): Float32Array {
  if (old === rate || !wave.length) return wave;
  const [up, down] = ratio(rate, old);
  const band = Math.min(up, down) * ROLL_OFF;
  const reach = Math.ceil((ZEROS * down) / band);
  const taps = 2 * reach + down;
  const filters = Array.from({ length: up }, (_, phase) => {
    const filter = new Float64Array(taps);
    let sum = 0;
    for (let tap = 0; tap < taps; tap++) {
      const time = ((tap - reach) / down - phase / up) * band; // in zero crossings
      const angle = Math.PI * time;
      const sinc = time === 0 ? 1 : Math.sin(angle) / angle;
      filter[tap] = sinc * Math.cos((Math.PI / 2) * Math.max(-1, Math.min(1, time / ZEROS))) ** 2;
      sum += filter[tap];
    }
    return filter.map((value) => Math.fround(value / sum)); // a constant stays that constant
  });
  const made = new Float32Array(Math.ceil((wave.length * rate) / old));
  // Where the ratio was simplified, some last samples are never computed: they stay 0, as in Python.
  const repeats = Math.max(1, Math.floor(taps / down));
  const most = Math.min(made.length, Math.ceil((wave.length + 1) / (repeats * down)) * repeats * up);
  for (let index = 0; index < most; index++) {
    const filter = filters[index % up];
    const begin = Math.floor(index / up) * down - reach;
    let sum = 0;
    for (let tap = Math.max(0, -begin); tap < taps && begin + tap < wave.length; tap++) sum += wave[begin + tap] * filter[tap];
    made[index] = sum;
  }
  return made;
}

/** rate / old in lowest terms, or close to it with neither above the limit. */
function ratio(rate: number, old: number): [number, number] {
  if (rate > old) {
    const [down, up] = ratio(old, rate);
    return [up, down];
  }
  const [numerator, denominator] = limitDenominator(rate, old, MOST_FILTERS);
  return [Math.max(1, numerator), denominator];
}

/** The nearest fraction with a denominator up to `most`, by continued fractions: Python's limit_denominator. */
function limitDenominator(numerator: number, denominator: number, most: number): [number, number] {
  const common = (a: number, b: number): number => (b ? common(b, a % b) : a);
  const shared = common(numerator, denominator);
  const [wholeN, wholeD] = [numerator / shared, denominator / shared];
  if (wholeD <= most) return [wholeN, wholeD];
  let [p0, q0, p1, q1, n, d] = [0, 1, 1, 0, wholeN, wholeD];
  for (;;) {
    const a = Math.floor(n / d);
    if (q0 + a * q1 > most) break;
    [p0, q0, p1, q1] = [p1, q1, p0 + a * p1, q0 + a * q1];
    [n, d] = [d, n - a * d];
  }
  const k = Math.floor((most - q0) / q1);
  return 2 * d * (q0 + k * q1) <= wholeD ? [p1, q1] : [p0 + k * p1, q0 + k * q1];
}

const mel = (hertz: number): number => 2595 * Math.log10(1 + hertz / 700);

/** Triangles that are equally wide on the mel scale, (size / 2 + 1, count). */
function melFilters(size: number, { mels, rate, low, high }: SoundReading): Float32Array {
  const step = (mel(high) - mel(low)) / (mels + 1);
  const filters = new Float32Array((size / 2 + 1) * mels);
  for (let bin = 0; bin <= size / 2; bin++)
    for (let index = 0; index < mels; index++)
      filters[bin * mels + index] = Math.max(0, 1 - Math.abs(mel((bin * rate) / size) - (mel(low) + (index + 1) * step)) / step);
  return filters;
}

/** The natural logarithm of the energies, (frames, mels). Frame i is centred on the middle of hop i. */
export function logMel(wave: Float32Array, reading: SoundReading): Float32Array {
  const { mels, window, hop } = reading;
  const frames = Math.max(1, Math.ceil(wave.length / hop));
  let size = 1;
  while (size < window) size *= 2;
  let filters = melFilters(size, reading);
  const isCovered = () => Array.from({ length: mels }, (_, index) => index).every((index) => {
    for (let at = index; at < filters.length; at += mels) if (filters[at]) return true;
    return false;
  });
  while (!isCovered()) filters = melFilters((size *= 2), reading);
  const hann = Float32Array.from({ length: window }, (_, index) => 0.5 - 0.5 * Math.cos((2 * Math.PI * index) / window));
  const left = Math.floor((size - hop) / 2) - Math.floor((size - window) / 2);
  const energies = new Float32Array(frames * mels);
  const [real, imaginary] = [new Float64Array(size), new Float64Array(size)];
  const sums = new Float64Array(mels);
  for (let frame = 0; frame < frames; frame++) {
    real.fill(0);
    imaginary.fill(0);
    for (let index = 0; index < window; index++) {
      const at = frame * hop + index - left;
      if (at >= 0 && at < wave.length) real[index] = Math.fround(wave[at] * hann[index]);
    }
    transform(real, imaginary);
    sums.fill(0);
    for (let bin = 0; bin <= size / 2; bin++) {
      const power = real[bin] * real[bin] + imaginary[bin] * imaginary[bin];
      for (let index = 0; index < mels; index++) sums[index] += power * filters[bin * mels + index];
    }
    for (let index = 0; index < mels; index++) energies[frame * mels + index] = Math.log(Math.max(sums[index], QUIETEST));
  }
  return energies;
}

/** The discrete Fourier transform in place, of a power of two (Cooley and Tukey 1965). */
function transform(real: Float64Array, imaginary: Float64Array): void {
  const size = real.length;
  for (let index = 1, other = 0; index < size; index++) {
    let bit = size >> 1;
    for (; other & bit; bit >>= 1) other ^= bit;
    other ^= bit;
    if (index < other) {
      [real[index], real[other]] = [real[other], real[index]];
      [imaginary[index], imaginary[other]] = [imaginary[other], imaginary[index]];
    }
  }
  for (let length = 2; length <= size; length *= 2) {
    const half = length / 2;
    for (let k = 0; k < half; k++) {
      const angle = (-2 * Math.PI * k) / length;
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      for (let at = k; at < size; at += length) {
        const [a, b] = [real[at + half] * cosine - imaginary[at + half] * sine, real[at + half] * sine + imaginary[at + half] * cosine];
        real[at + half] = real[at] - a;
        imaginary[at + half] = imaginary[at] - b;
        real[at] += a;
        imaginary[at] += b;
      }
    }
  }
}
