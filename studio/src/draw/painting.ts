/** Weights as pixels. */

import { table } from "../colour";
import type { Weights } from "../weights";

/** One pixel a weight; `most` has the strongest colour. `turned`: columns downwards from the last, rows to the right. */
export function paint(weights: Weights, most: number, dark: boolean, turned = false): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, turned ? weights.rows : weights.columns);
  canvas.height = Math.max(1, turned ? weights.columns : weights.rows);
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = table(dark);
  const scale = most > 0 ? 1023 / most : 0;
  const { rows, columns, data } = weights;
  if (turned)
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        pixels[(columns - 1 - column) * rows + row] = colours[Math.min(1023, (data[row * columns + column] * scale) | 0)];
  else for (let index = 0; index < data.length; index++) pixels[index] = colours[Math.min(1023, (data[index] * scale) | 0)];
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A canvas with as many pixels as the screen has for it. */
export function sharpen(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
