/** Matrices as they are sent (base64 of integers) and as they are drawn (floats from 0 to 1). */

import type { Attention, Matrix } from "./records";

export interface Weights {
  rows: number;
  columns: number;
  data: Float32Array; // row by row
}

const decoded = new WeakMap<Matrix, Float32Array>();

function floats(matrix: Matrix): Float32Array {
  const known = decoded.get(matrix);
  if (known) return known;
  const text = atob(matrix.data);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  const wide = matrix.encoding === "uint16";
  const count = wide ? bytes.length >> 1 : bytes.length;
  const found = new Float32Array(count);
  if (wide) for (let index = 0; index < count; index++) found[index] = (bytes[2 * index] | (bytes[2 * index + 1] << 8)) / 65535;
  else for (let index = 0; index < count; index++) found[index] = bytes[index] / 255;
  decoded.set(matrix, found);
  return found;
}

/** One map of a matrix. */
export function weightsOf(matrix: Matrix, map = 0): Weights {
  const size = matrix.rows * matrix.columns;
  return { rows: matrix.rows, columns: matrix.columns, data: floats(matrix).subarray(map * size, (map + 1) * size) };
}

/** Which maps are shown: null is the mean over them. */
export interface Choice {
  layer: number | null;
  head: number | null;
}

const means = new WeakMap<Matrix, Map<string, Weights>>();

/** One head, or the mean over the heads of a layer, over a head of all layers, or over all. */
export function chosenWeights(attention: Attention, choice: Choice): Weights {
  const { maps, layers, heads } = attention;
  if (!maps || (choice.layer === null && choice.head === null)) return weightsOf(attention.average);
  if (choice.layer !== null && choice.head !== null) return weightsOf(maps, choice.layer * heads + choice.head);
  const key = `${choice.layer}:${choice.head}`;
  const kept = means.get(maps) ?? new Map<string, Weights>();
  means.set(maps, kept);
  const known = kept.get(key);
  if (known) return known;
  const which: number[] = [];
  for (let layer = 0; layer < layers; layer++)
    for (let head = 0; head < heads; head++)
      if ((choice.layer ?? layer) === layer && (choice.head ?? head) === head) which.push(layer * heads + head);
  const sum = new Float32Array(maps.rows * maps.columns);
  for (const map of which) {
    const { data } = weightsOf(maps, map);
    for (let index = 0; index < sum.length; index++) sum[index] += data[index];
  }
  for (let index = 0; index < sum.length; index++) sum[index] /= which.length;
  const mean = { rows: maps.rows, columns: maps.columns, data: sum };
  kept.set(key, mean);
  return mean;
}

export const rowOf = (weights: Weights, row: number): Float32Array =>
  weights.data.subarray(row * weights.columns, (row + 1) * weights.columns);

export function columnOf(weights: Weights, column: number): Float32Array {
  const found = new Float32Array(weights.rows);
  for (let row = 0; row < weights.rows; row++) found[row] = weights.data[row * weights.columns + column];
  return found;
}

export function largest(data: Float32Array): number {
  let most = 0;
  for (const value of data) if (value > most) most = value;
  return most;
}

export function columnsOf(weights: Weights, begin: number, end: number): Weights {
  const width = end - begin;
  const data = new Float32Array(weights.rows * width);
  for (let row = 0; row < weights.rows; row++)
    data.set(weights.data.subarray(row * weights.columns + begin, row * weights.columns + end), row * width);
  return { rows: weights.rows, columns: width, data };
}
