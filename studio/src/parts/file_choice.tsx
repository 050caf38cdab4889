import { useEffect, useId, useRef, useState } from "react";

import type { Backend } from "../backend";
import { fileName } from "../format";
import type { Run } from "../records";
import { ProblemNote } from "./states";

export const OWN = "own"; // the rows that the run itself has
const OTHER = "\u0000other";

/** What the rows are called that a run is measured on, or null if their files are gone. */
export function ownRows(run: Run, named = false): string | null {
  if (!run.held_out) return null;
  const rows = named ? `${run.held_out} rows of ${run.name}` : `the run's own ${run.held_out} rows`;
  return run.held_out === "test" ? rows : `${rows} (it has no test rows)`;
}

/** A file of pairs: the rows that the run has itself, a file that it knows, a path on this machine, or an upload.
 * `chosen` is what was asked for last, or "". */
export function FileChoice(props: { backend: Backend; label: string; own: string | null; known: string[]; chosen: string; button: string; busy: boolean; onFile(file: string): void }) {
  const { backend, label, own, known, button, busy, onFile } = props;
  const [uploads, setUploads] = useState<{ id: string; name: string }[]>([]);
  const isPath = props.chosen !== "" && props.chosen !== OWN && !known.includes(props.chosen) && !props.chosen.startsWith("upload-");
  const first = isPath ? OTHER : props.chosen || (own ? OWN : (known[0] ?? OTHER));
  const [chosen, setChosen] = useState(first);
  const [path, setPath] = useState(isPath ? props.chosen : "");
  const [problem, setProblem] = useState<string | null>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const id = useId();
  useEffect(() => {
    setChosen(first);
    if (isPath) setPath(props.chosen); // whoever mistyped it finds it there
  }, [first, props.chosen]);
  const listed = [...(own ? [OWN] : []), ...known, ...uploads.map((one) => one.id), OTHER];
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
          {own && <option value={OWN}>{own}</option>}
          {known.map((one) => <option key={one} value={one}>{fileName(one)}</option>)}
          {uploads.map((one) => <option key={one.id} value={one.id}>{one.name} (uploaded)</option>)}
          {!listed.includes(chosen) && <option value={chosen}>an uploaded file</option>}
          <option value={OTHER}>a path…</option>
        </select>
        {chosen === OTHER && <input aria-label="Path of the file" placeholder="path/to/test.tsv" value={path} onChange={(event) => setPath(event.target.value)}
          onKeyDown={(event) => event.key === "Enter" && file !== "" && !busy && onFile(file)} />}
        <button className="quiet" onClick={() => chooser.current?.click()}>Upload a file…</button>
        <input ref={chooser} type="file" hidden aria-label="A file of pairs" accept=".tsv,.csv,.jsonl,.ndjson,.json,.parquet,.arrow,.feather,.xlsx,.txt,.gz" onChange={(event) => void take(event.target.files?.[0])} />
        <button className="main" disabled={busy || file === ""} onClick={() => onFile(file)}>{busy ? "Working…" : button}</button>
      </div>
      {problem && <ProblemNote text={problem} />}
    </>
  );
}
