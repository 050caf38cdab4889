import { useMemo, useState } from "react";

import { useFlag, useValue } from "../address";
import { useAnswer } from "../asking";
import type { Backend } from "../backend";
import { LineChart, Swatch, type Line } from "../draw/line_chart";
import { count, duration, number } from "../format";
import { Check, Segments } from "../parts/controls";
import { AuditPanel } from "../parts/audit";
import { SettingsPanel } from "../parts/settings";
import { EvaluationPanel } from "../parts/evaluation";
import { useRoom } from "../parts/room";
import { Empty, Loading, ProblemNote } from "../parts/states";
import type { Run, Training } from "../records";
import { curves, useHistories, type Across } from "./curves";

/** Why a report has no errors and no alignments. */
const NO_ERRORS: Partial<Record<Run["data"], string>> = {
  memory: "This report has no tab of errors: the run was trained on a table in memory, of which no rows are kept. The studio measures it on a file.",
  missing: "This report has no tab of errors, because the files of the run's data were not found. Write it again in the folder in which the run was trained.",
};

type Below = "audit" | "settings" | "evaluation";

export function TrainingView({ backend, runs, run }: { backend: Backend; runs: Run[]; run: Run }) {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [across, setAcross] = useValue<Across>("across", "updates");
  const [smooth, setSmooth] = useFlag("smooth");
  const [log, setLog] = useFlag("log");
  const [below, setBelow] = useValue<Below>("about", "audit");
  const [lit, setLit] = useState<number | null>(null); // the run whose name is pointed at
  const [body, room] = useRoom<HTMLDivElement>();
  const page = backend.page;
  const curved = !page || page.training !== null;
  const asked = useMemo(() => (curved ? runs : []), [curved, runs]);
  const { histories, problem } = useHistories(backend, asked);
  const colours = useMemo(() => new Map(runs.map((one, index) => [one.id, index])), [runs]);
  const shown = useMemo(() => runs.filter((one) => !hidden.has(one.id)), [runs, hidden]);
  const drawn = useMemo(() => curves(shown, histories, colours, across, smooth ? 0.85 : 0), [shown, histories, colours, across, smooth]);
  const choices = ([["audit", "Audit of the data"], ["settings", "Settings"], ["evaluation", "Evaluation"]] as [Below, string][]).filter(
    ([what]) => (what === "evaluation" ? run.evaluation : !page || (what === "audit" ? page.audit : page.settings)),
  );
  const chosen = choices.find(([what]) => what === below)?.[0] ?? choices[0]?.[0];
  const columns = room > 900 ? 3 : room > 560 ? 2 : 1;
  const width = Math.max(240, Math.floor((room - 16 * (columns - 1)) / columns) - 2);
  const charts = { width, lit, xName: across === "updates" ? "update" : across === "minutes" ? "minute" : "epoch" };
  return (
    <div ref={body}>
      {page?.kind === "report" && !page.errors && NO_ERRORS[run.data] && <p className="note">{NO_ERRORS[run.data]}</p>}
      {curved && (
        <>
          <div className="toolbar">
            <Segments label="Horizontal axis" value={across} onChange={setAcross} options={[{ value: "updates", text: "updates" }, { value: "minutes", text: "minutes" }, { value: "epochs", text: "epochs" }]} />
            <Check label="smooth" checked={smooth} onChange={setSmooth} />
            <Check label="loss on a log scale" checked={log} onChange={setLog} />
          </div>
          {problem && <ProblemNote text={problem} />}
          <ul className="run-states">
            {runs.map((one) => (
              <li key={one.id} onPointerEnter={() => setLit(runs.length > 1 ? (colours.get(one.id) ?? null) : null)} onPointerLeave={() => setLit(null)}>
                {runs.length > 1 && (
                  <input type="checkbox" aria-label={`Show ${one.name}`} checked={!hidden.has(one.id)}
                    onChange={() => setHidden((before) => new Set(before.has(one.id) ? [...before].filter((id) => id !== one.id) : [...before, one.id]))} />
                )}
                <Swatch run={colours.get(one.id) ?? 0} /> <bdi>{one.name}</bdi> <RunState history={histories.get(one.id)} />
              </li>
            ))}
          </ul>
          {!histories.size && !problem ? (
            <Loading what="Reading the curves…" />
          ) : [...histories.values()].every((history) => !history.stepped.length && !history.validated.length) ? (
            <Empty title="No curves yet">They begin with the first updates of training.</Empty>
          ) : (
            room > 0 && (
              <div className="charts">
                <LineChart title="Loss" unit="per token; dots: dev" lines={drawn.loss} log={log} {...charts} />
                {drawn.scores.map((score) => (
                  <LineChart key={score.metric} title={drawn.scores.length > 1 ? `Dev score: ${score.metric}` : "Dev score"}
                    unit={[drawn.scores.length > 1 ? "" : score.metric, score.lowerIsBetter ? "lower is better" : ""].filter(Boolean).join(", ")} lines={score.lines} fromZero={isPercentage(score.lines)} {...charts} />
                ))}
                <LineChart title="Learning rate" lines={drawn.rate} fromZero {...charts} />
                <LineChart title="Throughput" unit="target tokens per second" lines={drawn.speed} fromZero {...charts} />
                <LineChart title="Gradient norm" unit="before clipping" lines={drawn.norm} fromZero {...charts} />
              </div>
            )
          )}
        </>
      )}
      {chosen && (
        <section className="below" aria-label={`About ${run.name}`}>
          <Segments label={`About ${run.name}`} value={chosen} onChange={setBelow} options={choices.map(([value, text]) => ({ value, text }))} />
          {chosen === "audit" && <Audited backend={backend} run={run} />}
          {chosen === "settings" && <Configured backend={backend} run={run} others={runs.filter((one) => one.id !== run.id)} />}
          {chosen === "evaluation" && run.evaluation && <EvaluationPanel evaluation={run.evaluation} />}
        </section>
      )}
    </div>
  );
}

/** Whether a score may be a percentage, whose axis begins at 0. */
const isPercentage = (lines: Line[]): boolean => lines.every((line) => line.points.every(([, value]) => value >= 0 && value <= 100));

function RunState({ history }: { history: Training | undefined }) {
  if (!history) return <span className="hint">reading…</span>;
  const last = history.stepped[history.stepped.length - 1];
  const planned = history.started[history.started.length - 1]?.last_update;
  const best = history.validated.filter((event) => event.best).pop();
  const parts = [
    history.stopped ? `${history.stopped.finished ? "finished" : "stopped"}: ${history.stopped.reason}` : last ? "training or interrupted" : "no updates yet",
    last ? `update ${count(last.update)}${planned && !history.stopped ? ` of at most ${count(planned)}` : ""}, ${duration(last.seconds)}` : "",
    best ? `best ${best.metric} ${number(Math.abs(best.score ?? NaN), 2)} at update ${count(best.update)}` : "",
  ];
  return <span className="hint">{parts.filter(Boolean).join(" · ")}</span>;
}

function Audited({ backend, run }: { backend: Backend; run: Run }) {
  const audit = useAnswer(`audit ${run.id}`, () => backend.audit(run.id));
  if (audit.problem) return <ProblemNote text={audit.problem} />;
  return audit.answer ? <AuditPanel audit={audit.answer} /> : <Loading what="Reading the audit…" />;
}

function Configured({ backend, run, others }: { backend: Backend; run: Run; others: Run[] }) {
  const [against, setAgainst] = useState("");
  const settings = useAnswer(`settings ${run.id}`, () => backend.settings(run.id));
  const other = useAnswer(against ? `settings ${against}` : null, () => backend.settings(against));
  if (settings.problem) return <ProblemNote text={settings.problem} />;
  if (!settings.answer) return <Loading what="Reading the settings…" />;
  return (
    <>
      {others.length > 0 && (
        <label className="inline">
          Compare with
          <select value={against} onChange={(event) => setAgainst(event.target.value)}>
            <option value="">no other run</option>
            {others.map((one) => <option key={one.id} value={one.id}>{one.name}</option>)}
          </select>
        </label>
      )}
      <SettingsPanel settings={settings.answer} other={against ? other.answer : null} names={[run.name, others.find((one) => one.id === against)?.name ?? ""]} />
    </>
  );
}
