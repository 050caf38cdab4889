import { useState } from "react";

import type { Settings } from "../records";
import { Check } from "./controls";

/** The resolved config, setting by setting, beside that of another run if one is given. */
export function SettingsPanel({ settings, other, names }: { settings: Settings; other: Settings | null; names: [string, string] }) {
  const [wanted, setWanted] = useState("");
  const [different, setDifferent] = useState(true);
  const theirs = new Map(other?.settings.map((setting) => [setting.path, setting.value]));
  const ours = new Map(settings.settings.map((setting) => [setting.path, setting.value]));
  const paths = [...ours.keys(), ...[...theirs.keys()].filter((path) => !ours.has(path))].filter(
    (path) => path.includes(wanted.trim()) && (!other || !different || ours.get(path) !== theirs.get(path)),
  );
  return (
    <>
      <div className="toolbar">
        <label className="inline">Find <input value={wanted} onChange={(event) => setWanted(event.target.value)} placeholder="decoder.width" /></label>
        {other && <Check label="only differences" checked={different} onChange={setDifferent} />}
      </div>
      <div className="scroll" tabIndex={0} role="region" aria-label="Settings">
        <table className="plain-table">
          <thead>
            <tr><th scope="col">Setting</th><th scope="col">{names[0]}</th>{other && <th scope="col">{names[1]}</th>}</tr>
          </thead>
          <tbody>
            {paths.map((path) => (
              <tr key={path}>
                <th scope="row"><code>{path}</code></th>
                <td><code>{ours.get(path) ?? "–"}</code></td>
                {other && <td><code>{theirs.get(path) ?? "–"}</code></td>}
              </tr>
            ))}
          </tbody>
        </table>
        {!paths.length && <p className="hint">No setting matches.</p>}
      </div>
    </>
  );
}
