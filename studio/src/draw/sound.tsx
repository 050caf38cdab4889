import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import { ticks } from "../format";
import type { Axis } from "../records";
import { useDark } from "../theme";
import { columnOf, largest, rowOf, weightsOf, type Weights } from "../weights";
import { paint, sharpen } from "./painting";

const HIGH = 140;

/** The spectrogram with the attention of a token over it. Playback marks the token that attends to what is heard. */
export function SoundAttention(props: { axis: Axis; weights: Weights; tokens: string[]; row: number | null; room: number; onRow(row: number | null): void }) {
  const { axis, weights, tokens, row, room, onRow } = props;
  const media = axis.media!;
  const dark = useDark();
  const canvas = useRef<HTMLCanvasElement>(null);
  const audio = useRef<HTMLAudioElement>(null);
  const [time, setTime] = useState(0);
  const [playing, setPlaying] = useState(false);
  const length = media.seconds ?? (axis.seconds ?? 0.01) * weights.columns;
  const width = Math.max(300, room - 16);

  useLayoutEffect(() => {
    const context = sharpen(canvas.current!, width, HIGH);
    if (!media.spectrogram) return;
    context.drawImage(paint(weightsOf(media.spectrogram), 1, dark, true), 0, 0, width, HIGH);
  }, [media, dark, width]);
  useEffect(() => {
    if (!playing) return;
    let frame = 0;
    const follow = () => {
      setTime(audio.current?.currentTime ?? 0);
      frame = requestAnimationFrame(follow);
    };
    frame = requestAnimationFrame(follow);
    return () => cancelAnimationFrame(frame);
  }, [playing]);

  const heard = useMemo(() => {
    if (!axis.seconds || (!playing && time === 0)) return null;
    const column = columnOf(weights, Math.min(weights.columns - 1, Math.floor(time / axis.seconds)));
    return column.indexOf(largest(column));
  }, [axis, weights, time, playing]);
  const shown = row ?? heard;
  const line = useMemo(() => {
    if (shown === null) return "";
    const data = rowOf(weights, shown);
    const most = largest(data) || 1;
    const step = axis.seconds ? (axis.seconds / length) * width : width / weights.columns;
    const stairs = [...data].flatMap((value, index) => {
      const y = (HIGH - (value / most) * (HIGH - 8)).toFixed(1);
      return [`${Math.min(width, index * step).toFixed(1)},${y}`, `${Math.min(width, (index + 1) * step).toFixed(1)},${y}`];
    });
    return `0,${HIGH} ${stairs.join(" ")} ${width},${HIGH}`;
  }, [shown, weights, axis, length, width]);
  const scale = ticks(0, length, Math.min(8, Math.floor(width / 64)));
  return (
    <div className="sound">
      <div className="spectrogram" style={{ width, height: HIGH + 18 }}>
        <canvas ref={canvas} style={{ width, height: HIGH }} role="img" aria-label="Spectrogram: time from left to right, frequency from low to high"
          onClick={(event) => {
            if (!audio.current) return;
            audio.current.currentTime = (event.nativeEvent.offsetX / width) * length;
            setTime(audio.current.currentTime);
          }} />
        <svg width={width} height={HIGH + 18} aria-hidden="true">
          {line && <polygon className="looked" points={line} />}
          <line className="playhead" x1={(time / length) * width} x2={(time / length) * width} y1={0} y2={HIGH} />
          {scale.values.map((value) => (
            <text key={value} x={(value / length) * width} y={HIGH + 14} textAnchor={value === 0 ? "start" : value > 0.97 * length ? "end" : "middle"}>{`${+value.toFixed(2)} s`}</text>
          ))}
        </svg>
      </div>
      {media.url && (
        <audio ref={audio} controls src={media.url} aria-label={`Sound of ${axis.name}`} onPlay={() => setPlaying(true)} onPause={() => setPlaying(false)}
          onEnded={() => { setPlaying(false); setTime(0); }} onSeeked={() => setTime(audio.current?.currentTime ?? 0)} />
      )}
      <div className="tokens" role="group" aria-label="Tokens" dir="auto">
        {tokens.map((token, index) => (
          <button key={index} className={`token${heard === index ? " heard" : ""}`} aria-pressed={index === row}
            onPointerEnter={() => onRow(index)} onPointerLeave={() => onRow(null)} onFocus={() => onRow(index)} onBlur={() => onRow(null)}
            onClick={() => {
              if (!audio.current || !axis.seconds) return;
              const data = rowOf(weights, index);
              audio.current.currentTime = data.indexOf(largest(data)) * axis.seconds;
              void audio.current.play();
            }}>
            <bdi>{token}</bdi>
          </button>
        ))}
      </div>
      <p className="hint">Hover over a token to see where the model listened. Click it, or the spectrogram, to hear that place.</p>
    </div>
  );
}
