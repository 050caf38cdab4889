import { useEffect, useLayoutEffect, useRef, useState } from "react";

import type { Axis } from "../records";
import { largest, rowOf, type Weights } from "../weights";
import { sharpen } from "./painting";

/** Draw the picture, dark where the model did not look. Regions may reach beyond its right and lower edges. */
function light(canvas: HTMLCanvasElement, image: HTMLImageElement, axis: Axis, row: Float32Array, width: number, height: number): void {
  const context = sharpen(canvas, width, height);
  context.imageSmoothingEnabled = image.naturalWidth >= width;
  context.drawImage(image, 0, 0, width, height);
  const [high, wide] = axis.grid!;
  const mask = document.createElement("canvas");
  mask.width = wide;
  mask.height = high;
  const dimming = mask.getContext("2d")!;
  const pixels = dimming.createImageData(wide, high);
  const most = largest(row) || 1;
  for (let index = 0; index < wide * high; index++) pixels.data.set([10, 12, 20, Math.round(205 * (1 - row[index] / most))], 4 * index);
  dimming.putImageData(pixels, 0, 0);
  const [down, across] = axis.media?.reach ?? [1, 1];
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(mask, 0, 0, width * across, height * down);
}

function Lit(props: { image: HTMLImageElement; axis: Axis; row: Float32Array; width: number; height: number; label: string }) {
  const { image, axis, row, width, height, label } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => light(canvas.current!, image, axis, row, width, height), [image, axis, row, width, height]);
  return <canvas ref={canvas} role="img" aria-label={label} style={{ width, height }} />;
}

/** Attention over a picture, word by word. */
export function PictureAttention(props: { axis: Axis; weights: Weights; tokens: string[]; row: number | null; onRow(row: number | null): void }) {
  const { axis, weights, tokens, row, onRow } = props;
  const [image, setImage] = useState<HTMLImageElement | null>(null);
  const [failed, setFailed] = useState(false);
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    const made = new Image();
    setFailed(false);
    made.onload = () => setImage(made);
    made.onerror = () => setFailed(true);
    made.src = axis.media!.url;
  }, [axis]);
  const latest = useRef(row);
  latest.current = row;
  useEffect(() => {
    if (!playing) return;
    const timer = window.setInterval(() => {
      const next = (latest.current ?? -1) + 1;
      if (next >= tokens.length) setPlaying(false);
      onRow(next < tokens.length ? next : null);
    }, 700);
    return () => window.clearInterval(timer);
  }, [playing, tokens.length, onRow]);
  if (failed) return <p className="note">This browser cannot show the picture.</p>;
  if (!image) return null;
  const ratio = image.naturalHeight / image.naturalWidth;
  const sized = (side: number): [number, number] => (ratio > 1 ? [side / ratio, side] : [side, side * ratio]);
  const [wide, high] = sized(400);
  const [small, low] = sized(112);
  return (
    <div className="picture">
      <figure>
        {row === null ? (
          <img src={image.src} alt={axis.name} width={wide} height={high} className={image.naturalWidth < wide ? "pixels" : ""} />
        ) : (
          <Lit image={image} axis={axis} row={rowOf(weights, row)} width={wide} height={high} label={`Where the model looked for ${tokens[row]}`} />
        )}
        <figcaption>
          <button className="quiet" onClick={() => setPlaying(!playing)}>{playing ? "Stop" : "Play word by word"}</button>{" "}
          {row === null ? "the picture" : <><bdi className="piece">{tokens[row]}</bdi>: at most {largest(rowOf(weights, row)).toFixed(3)} on a region</>}
          <span className="legend" aria-hidden="true">not looked at <span className="scale light-scale" /> most</span>
        </figcaption>
      </figure>
      <div className="film" role="group" aria-label="Tokens">
        {tokens.map((token, index) => (
          <button key={index} className={index === row ? "on" : ""} aria-pressed={index === row}
            onPointerEnter={() => onRow(index)} onFocus={() => onRow(index)} onClick={() => onRow(index)}>
            <Lit image={image} axis={axis} row={rowOf(weights, index)} width={small} height={low} label="" />
            <bdi className="piece">{token}</bdi>
          </button>
        ))}
      </div>
    </div>
  );
}
