/** Sequences of vectors as the model reads them. The same as src/dragoman/modalities/features.py and _frames.py. */

import { DragomanError } from "./library";
import type { Features } from "./model";

export interface Statistics {
  mean: number[];
  deviation: number[];
}

export interface FramesReading {
  features: number; // of a frame in the file
  deltas: number;
  stack: number;
  stride: number;
  normalise: boolean;
  overall: Statistics | null; // null: each sequence is normalised by itself
}

export interface Frames {
  data: Float32Array; // (rows, columns)
  rows: number;
  columns: number;
}

const SMALLEST = 1e-3; // standard deviation
const REACH = 2; // frames on each side that a slope is computed over

/** Remove mean and deviation of every feature: given ones, or those of the frames themselves. */
export function normalise(frames: Float32Array, width: number, given: Statistics | null): Float32Array {
  const { mean, deviation } = given ?? statistics(frames, width);
  return frames.map((value, index) => Math.fround(value - Math.fround(mean[index % width])) / Math.fround(deviation[index % width]));
}

function statistics(frames: Float32Array, width: number): Statistics {
  const count = frames.length / width;
  const [mean, square] = [new Array<number>(width).fill(0), new Array<number>(width).fill(0)];
  frames.forEach((value, index) => (mean[index % width] += value / count));
  frames.forEach((value, index) => (square[index % width] += (value - mean[index % width]) ** 2 / count));
  return { mean, deviation: square.map((value) => Math.max(Math.sqrt(value), SMALLEST)) };
}

export function frameFeatures(frames: Frames, reading: FramesReading): Features {
  if (frames.columns !== reading.features) throw new DragomanError(`the file has ${frames.columns} features in a row, and the model reads ${reading.features}`);
  const orders = [reading.normalise ? normalise(frames.data, frames.columns, reading.overall) : frames.data];
  for (let order = 0; order < reading.deltas; order++) orders.push(slopes(orders[order], frames.columns));
  const { stack, stride } = reading;
  const length = Math.ceil(frames.rows / stride);
  const data = new Float32Array(length * stack * orders.length * frames.columns);
  let at = 0;
  for (let position = 0; position < length; position++)
    for (let inside = 0; inside < stack; inside++) {
      const row = Math.min(position * stride + inside, frames.rows - 1);
      for (const order of orders) {
        data.set(order.subarray(row * frames.columns, (row + 1) * frames.columns), at);
        at += frames.columns;
      }
    }
  return { data, length };
}

/** Slopes of the regression line around each frame (Young et al. 2006, eq. 5.16). */
function slopes(frames: Float32Array, width: number): Float32Array {
  const last = frames.length / width - 1;
  let squares = 0;
  for (let n = 1; n <= REACH; n++) squares += 2 * n * n;
  return frames.map((_, index) => {
    const [row, column] = [Math.floor(index / width), index % width];
    let total = 0;
    for (let n = 1; n <= REACH; n++) total += n * (frames[Math.min(row + n, last) * width + column] - frames[Math.max(row - n, 0) * width + column]);
    return total / squares;
  });
}

/** Read a .npy file of numbers: one array (T,) or (T, D). */
export function readArray(file: Uint8Array): Frames {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (file.length < 10 || file[0] !== 0x93 || new TextDecoder().decode(file.subarray(1, 6)) !== "NUMPY") throw new DragomanError("this is not a .npy file");
  const long = file[6] > 1;
  const begin = long ? 12 + view.getUint32(8, true) : 10 + view.getUint16(8, true);
  const head = new TextDecoder().decode(file.subarray(long ? 12 : 10, begin));
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(head)?.[1] ?? "").split(",").map((side) => side.trim()).filter(Boolean).map(Number);
  const kind = /'descr':\s*'([^']*)'/.exec(head)?.[1] ?? "";
  const readers: Record<string, [number, (at: number) => number]> = {
    "<f4": [4, (at) => view.getFloat32(at, true)],
    "<f8": [8, (at) => view.getFloat64(at, true)],
    "<i2": [2, (at) => view.getInt16(at, true)],
    "<i4": [4, (at) => view.getInt32(at, true)],
    "|u1": [1, (at) => view.getUint8(at)],
    "|i1": [1, (at) => view.getInt8(at)],
  };
  const [rows, columns] = [shape[0], shape[1] ?? 1];
  const count = rows * columns;
  const found = readers[kind];
  if (!found || /'fortran_order':\s*True/.test(head) || !(shape.length === 1 || shape.length === 2) || !(count > 0))
    throw new DragomanError("a .npy file of this kind cannot be read; save an array (T, D) of float32");
  const [width, read] = found;
  if (begin + count * width > file.length) throw new DragomanError("the .npy file is cut off");
  const data = Float32Array.from({ length: count }, (_, index) => read(begin + index * width));
  if (!data.every(Number.isFinite)) throw new DragomanError("the .npy file has values that are not finite");
  return { data, rows, columns };
}
