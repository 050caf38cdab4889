import { useRef, useState, type DragEvent } from "react";

import type { Decoding } from "../decoding";
import { size } from "../format";
import type { Source, Upload } from "../records";
import { Recorder } from "./recorder";

const ACCEPTS: Record<string, string> = { image: "image/*", speech: "audio/*,.wav,.flac,.ogg", features: ".npy" };
const WHAT: Record<string, string> = { image: "a picture", speech: "a recording", features: "a feature file (.npy)" };

/** A text to type; or a file to drop or choose, or a recording to make. */
export function SourceInput({ source, decoding }: { source: Source; decoding: Decoding }) {
  const { wish, change, decode } = decoding;
  if (source.is_file) return <FileInput source={source} decoding={decoding} />;
  const id = `source-${source.name}`;
  return (
    <div className="field">
      <label htmlFor={id}>{source.name === "source" ? "Input" : source.name}</label>
      <textarea
        id={id}
        dir="auto"
        rows={3}
        spellCheck={false}
        value={wish.input[source.name] ?? ""}
        onChange={(event) => change({ input: { ...wish.input, [source.name]: event.target.value }, forced: null, from: "" })}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey || !event.shiftKey)) {
            event.preventDefault();
            decode();
          }
        }}
      />
    </div>
  );
}

function FileInput({ source, decoding }: { source: Source; decoding: Decoding }) {
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState(false);
  const chooser = useRef<HTMLInputElement>(null);
  const known = decoding.uploads[source.name];
  const kept = known && known.id === decoding.wish.input[source.name] ? known : undefined;
  const take = async (file: File | undefined) => {
    if (!file) return;
    setBusy(true);
    await decoding.upload(source.name, file);
    setBusy(false);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void take(event.dataTransfer.files[0]);
  };
  const what = WHAT[source.kind] ?? "a file";
  return (
    <div className="field">
      <span className="label">{source.name === "source" ? "Input" : source.name}</span>
      <div
        className={`drop${over ? " over" : ""}`}
        data-testid={`drop-${source.name}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        {kept ? <Preview upload={kept} /> : <p>Drop {what} here</p>}
        <div className="row">
          <button className="quiet" disabled={busy} onClick={() => chooser.current?.click()}>
            {busy ? "Reading…" : kept ? "Choose another…" : "Choose a file…"}
          </button>
          {source.kind === "speech" && <Recorder onSound={(file) => void take(file)} />}
        </div>
        <input
          ref={chooser}
          type="file"
          hidden
          aria-label={`File for ${source.name}`}
          accept={ACCEPTS[source.kind]}
          onChange={(event) => void take(event.target.files?.[0])}
        />
      </div>
    </div>
  );
}

function Preview({ upload }: { upload: Upload }) {
  return (
    <div className="preview">
      {upload.kind === "image" && <img src={upload.url} alt={upload.name} />}
      {upload.kind === "speech" && <audio controls src={upload.url} aria-label={upload.name} />}
      <span className="hint"><bdi>{upload.name}</bdi>, {size(upload.size)}</span>
    </div>
  );
}
