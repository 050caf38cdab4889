import { useEffect, useId, useRef, useState } from "react";

import type { Backend } from "../backend";
import { fileName } from "../format";
import { ProblemNote } from "./states";

const OWN = "\u0000own";
const OTHER = "\u0000other";

/** A file of pairs: the rows that the run has itself (null), one it knows, a path on this machine, or one handed over here. */
export function FileChoice(props: { backend: Backend; label: string; own: string | null; known: string[]; button: string; busy: boolean; onFile(file: string | null): void }) {
  const { backend, label, own, known, button, busy, onFile } = props;
  const first = own ? OWN : (known[0] ?? OTHER);
  const [chosen, setChosen] = useState(first);
  const [path, setPath] = useState("");
  const [uploads, setUploads] = useState<{ id: string; name: string }[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const id = useId();
  useEffect(() => setChosen(first), [first]);
  const file = chosen === OWN ? null : chosen === OTHER ? path.trim() : chosen;
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
          {own && <option value={OWN}>{own}</option>}
          {known.map((one) => <option key={one} value={one}>{fileName(one)}</option>)}
          {uploads.map((one) => <option key={one.id} value={one.id}>{one.name} (handed over)</option>)}
          <option value={OTHER}>a path…</option>
        </select>
        {chosen === OTHER && <input aria-label="Path of the file" placeholder="path/to/test.tsv" value={path} onChange={(event) => setPath(event.target.value)} />}
        <button className="quiet" onClick={() => chooser.current?.click()}>Hand over a file…</button>
        <input ref={chooser} type="file" hidden aria-label="A file of pairs" accept=".tsv,.csv,.jsonl,.txt,.gz" onChange={(event) => void take(event.target.files?.[0])} />
        <button className="main" disabled={busy || file === ""} onClick={() => onFile(file)}>{busy ? "Working…" : button}</button>
      </div>
      {problem && <ProblemNote text={problem} />}
    </>
  );
}
