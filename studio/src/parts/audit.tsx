import { count, fileName, number } from "../format";
import type { Audit, FileAudit } from "../records";

/** What the audit found in the data before training. */
export function AuditPanel({ audit }: { audit: Audit }) {
  return (
    <div className="audit">
      <p>
        {count(audit.train)} rows to train on, {count(audit.dev)} dev rows, {count(audit.test)} test rows. {audit.held_out}
      </p>
      {audit.overlap.filter((one) => one.rows > 0).map((one) => (
        <p key={one.part} className="note">
          {count(one.rows)} of {count(one.total)} {one.part} rows have a source that is also in the training data, {count(one.pairs)} of them with the same target.
        </p>
      ))}
      {audit.files.map((file) => <AuditedFile key={file.part} file={file} />)}
    </div>
  );
}

function AuditedFile({ file }: { file: FileAudit }) {
  return (
    <section aria-label={`Audit of ${file.part}`}>
      <h3>{file.part} <span className="hint">{file.files.map(fileName).join(", ")} · {file.format}</span></h3>
      <p>{file.summary}; {count(file.distinct_sources)} distinct sources, {count(file.sources_with_several_targets)} with several targets.</p>
      {file.notes.map((note) => <p key={note} className="hint">{note}</p>)}
      {file.findings.length === 0 && <p className="hint">No problems were found.</p>}
      {file.findings.map((finding) => (
        <details key={finding.category}>
          <summary>{finding.title}: <b>{count(finding.count)}</b> {finding.fate}</summary>
          <ul>
            {finding.places.map((place, index) => (
              <li key={index}><span className="hint">{fileName(place.file)}:{place.line}</span> <bdi>{place.reason}</bdi></li>
            ))}
          </ul>
        </details>
      ))}
      {file.statistics.length > 0 && (
        <table className="plain-table">
          <thead>
            <tr>
              <th scope="col">Side</th>
              <th scope="col">Characters: fewest</th><th scope="col">median</th><th scope="col">95 %</th><th scope="col">most</th>
              <th scope="col">Words: median</th><th scope="col">most</th>
              <th scope="col">Distinct characters</th><th scope="col">Distinct words</th><th scope="col">Words seen once</th>
            </tr>
          </thead>
          <tbody>
            {file.statistics.map((side) => (
              <tr key={side.side}>
                <th scope="row">{side.side}</th>
                {[side.characters.minimum, side.characters.median, side.characters.p95, side.characters.maximum, side.words.median, side.words.maximum].map((value, index) => (
                  <td key={index} className="figure">{number(value, 0)}</td>
                ))}
                <td className="figure">{count(side.distinct_characters)}</td>
                <td className="figure">{count(side.distinct_words)}</td>
                <td className="figure">{count(side.words_once)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
