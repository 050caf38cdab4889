import { useEffect, useId, useRef, useState } from "react";

import type { Backend } from "../backend";
import { fileName } from "../format";
import { ProblemNote } from "./states";

const OTHER = "\u0000other";

/** A file of pairs: one the run knows, a path on this machine, or one that is handed over here. */
export function FileChoice(props: { backend: Backend; label: string; known: string[]; button: string; busy: boolean; onFile(file: string): void }) {
  const { backend, label, known, button, busy, onFile } = props;
  const [chosen, setChosen] = useState(known[0] ?? OTHER);
  const [path, setPath] = useState("");
  const [uploads, setUploads] = useState<{ id: string; name: string }[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const id = useId();
  useEffect(() => setChosen(known[0] ?? OTHER), [known.join("\n")]);
  const file = chosen === OTHER ? path.trim() : chosen;
  const take = async (given: File | undefined) => {
    if (!given) return;
    try {
      const kept = await backend.upload(given);
      setProblem(null);
      setUploads((before) => [...before, { id: kept.id, name: kept.name }]);
      setChosen(kept.id);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <div className="file-choice">
        <label htmlFor={id}>{label}</label>
        <select id={id} value={chosen} onChange={(event) => setChosen(event.target.value)}>
          {known.map((one) => <option key={one} value={one}>{fileName(one)}</option>)}
          {uploads.map((one) => <option key={one.id} value={one.id}>{one.name} (handed over)</option>)}
          <option value={OTHER}>a path…</option>
        </select>
        {chosen === OTHER && <input aria-label="Path of the file" placeholder="path/to/test.tsv" value={path} onChange={(event) => setPath(event.target.value)} />}
        <button className="quiet" onClick={() => chooser.current?.click()}>Hand over a file…</button>
        <input ref={chooser} type="file" hidden aria-label="A file of pairs" accept=".tsv,.csv,.jsonl,.txt,.gz" onChange={(event) => void take(event.target.files?.[0])} />
        <button className="main" disabled={busy || !file} onClick={() => onFile(file)}>{busy ? "Working…" : button}</button>
      </div>
      {problem && <ProblemNote text={problem} />}
    </>
  );
}
