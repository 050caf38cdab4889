import { useEffect, useRef, useState } from "react";

import type { View } from "../app";
import type { Backend } from "../backend";
import type { Decoding } from "../decoding";
import { direction, duration, number, percent, sentence, sourceChoice, sourceText } from "../format";
import { Field, NumberField } from "../parts/controls";
import { SourceInput } from "../parts/source_input";
import { Empty, Loading, ProblemNote } from "../parts/states";
import { ClassBars } from "../parts/classes";
import { Steps } from "../parts/steps";
import { DoubtLegend, TokenStrip } from "../parts/tokens";
import type { Alternative, Example, Output, Prediction, Run, Search, Source, Token } from "../records";
import { ReferenceNote } from "../parts/reference";

const NORMALIZED: Record<Search["normalize"], string> = {
  none: "no length normalisation",
  average: "score: average per token",
  gnmt: "score: GNMT length penalty",
};
/** Why no dev rows are offered. A page that was exported has a model and no data, and nothing to say of it. */
const NO_ROWS: Partial<Record<Run["data"], string>> = {
  missing: " There are no dev rows to choose from, because the files of this run's data were not found from the folder in which the studio was started.",
  memory: " There are no dev rows to choose from, because this run was trained on a table in memory, of which no rows are kept.",
};
const RAW = "The raw log-probability of the whole output, which has the label smoothing of training in it";
const NARROW = window.matchMedia("(max-width: 900px)"); // as in style.css
const PROMPT: Source = { name: "source", kind: "text", is_file: false, encoder: "" };

export function PredictView({ decoding, go }: { backend: Backend; decoding: Decoding; go(view: View): void }) {
  const { run, prediction, inspected, busy, problem, wish } = decoding;
  const results = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a phone the answer is below the controls, and whoever looks into a row wants to see it.
    if (!inspected && wish.from && prediction && NARROW.matches) results.current?.scrollIntoView({ block: "start" });
  }, [inspected, wish.from, prediction]);
  if (!inspected && !run.ready)
    return <Empty title="This run has no weights yet">It can predict once training has saved it for the first time. Its curves are under <button className="link" onClick={() => go("training")}>Training</button>.</Empty>;
  return (
    <div className={inspected ? "" : "columns"}>
      {!inspected && <InputPanel decoding={decoding} />}
      <div className="results" ref={results}>
        {!inspected && wish.from && (
          <p className="note from">This is {wish.from}. <button className="link" onClick={() => go("errors")}>Back to Errors</button></p>
        )}
        {inspected && <h1 className="asked" dir="auto">{sourceText(inspected.prediction.input)}</h1>}
        {!inspected && prediction && <p className="paper-only" dir="auto">{sourceText(prediction.input)}</p>}
        {problem && <ProblemNote text={problem} />}
        {prediction ? (
          <Results decoding={decoding} prediction={prediction} go={go} />
        ) : busy ? (
          <Loading what="Decoding…" />
        ) : (
          !problem && (
            <Empty title="Nothing is decoded yet">
              Enter an input. You will see the best outputs, how sure the model was of each token, and what else it considered.
              {!run.is_language_model && NO_ROWS[run.data]}
            </Empty>
          )
        )}
      </div>
    </div>
  );
}

function InputPanel({ decoding }: { decoding: Decoding }) {
  const { run, wish, change, decode, busy, prediction } = decoding;
  const [word, setWord] = useState("");
  const again = (changes: Parameters<typeof change>[0]) => (prediction ? decode(changes) : change(changes));
  const ban = () => {
    const banned = word.trim();
    setWord("");
    if (!banned || wish.forbidden.includes(banned)) return;
    const forcedText = forcedTokens(prediction).map((token) => token.text).join("").replaceAll("▁", " ");
    const clash = wish.forced !== null && forcedText.includes(banned); // it cannot be both banned and forced
    again({ forbidden: [...wish.forbidden, banned], forced: clash ? null : wish.forced });
  };
  return (
    <section className="panel" aria-label="Input and search">
      {(run.sources.length ? run.sources : [PROMPT]).map((source) => (
        <SourceInput key={source.name} source={source} decoding={decoding} />
      ))}
      <Examples decoding={decoding} />
      <Field label="Reference" hint="optional: the right output">
        {(id) => (
          <input id={id} dir="auto" spellCheck={false} value={wish.reference}
            onChange={(event) => change({ reference: event.target.value })}
            onKeyDown={(event) => event.key === "Enter" && decode()} />
        )}
      </Field>
      <button className="main" disabled={busy} onClick={() => decode()}>{busy ? "Decoding…" : "Predict"}</button>
      <fieldset className="search">
        <legend>Search</legend>
        <div className="row">
          <NumberField label="Beam width" value={wish.beam} least={1} most={100}
            onChange={(beam) => again({ beam, nBest: Math.min(wish.nBest, beam) })} />
          <NumberField label="Outputs" value={wish.nBest} least={1} most={100}
            onChange={(nBest) => again({ nBest, beam: Math.max(wish.beam, nBest) })} />
        </div>
        {!run.is_classifier && (
          <Field label="Length normalisation">
            {(id) => (
              <select id={id} value={wish.normalize} onChange={(event) => again({ normalize: event.target.value as typeof wish.normalize })}>
                <option value="none">none: sum of log-probabilities</option>
                <option value="average">average per token</option>
                <option value="gnmt">GNMT penalty</option>
              </select>
            )}
          </Field>
        )}
        <div className="field">
          <label htmlFor="ban">Never write <span className="hint">this text</span></label>
          <div className="row">
            <input id="ban" dir="auto" value={word} spellCheck={false} onChange={(event) => setWord(event.target.value)}
              onKeyDown={(event) => event.key === "Enter" && ban()} />
            <button className="quiet" onClick={ban}>Ban</button>
          </div>
          <div className="chips">
            {wish.forbidden.map((one) => (
              <button key={one} className="chip" title="Allow it again" aria-label={`Allow ${one} again`}
                onClick={() => again({ forbidden: wish.forbidden.filter((kept) => kept !== one) })}>
                <s><bdi>{one}</bdi></s> ×
              </button>
            ))}
          </div>
        </div>
        {wish.forced && (
          <div className="field" data-testid="forced">
            <span className="label">Forced beginning</span>
            <div className="chips">
              <button className="chip" title="Remove the forced beginning" aria-label="Remove the forced beginning" onClick={() => again({ forced: null })}>
                <bdi className="piece">{forcedTokens(prediction).map((token) => token.text).join("")}</bdi> ×
              </button>
            </div>
          </div>
        )}
      </fieldset>
    </section>
  );
}

const forcedTokens = (prediction: Prediction | null): Token[] => prediction?.outputs[0]?.tokens.filter((token) => token.forced) ?? [];

/** Dev rows of the run to try. */
function Examples({ decoding }: { decoding: Decoding }) {
  const { examples, wish, run, tryExample } = decoding;
  if (!examples.length) return null;
  const isShown = (one: Example) => run.sources.every(({ name }) => (one.files[name]?.id ?? one.source[name]) === wish.input[name]);
  const shown = examples.findIndex(isShown);
  return (
    <Field label="Example" hint="from the dev rows">
      {(id) => (
        <select id={id} value={shown} onChange={(event) => tryExample(examples[Number(event.target.value)])}>
          {shown < 0 && <option value={-1}>choose one…</option>}
          {examples.map((one, index) => (
            <option key={index} value={index}>{sourceChoice(one.source)}</option>
          ))}
        </select>
      )}
    </Field>
  );
}

function Results({ decoding, prediction, go }: { decoding: Decoding; prediction: Prediction; go(view: View): void }) {
  const { chosen, choose, decode, inspected, previous, took, busy, wish } = decoding;
  const [step, setStep] = useState<number | null>(null);
  useEffect(() => setStep(null), [prediction, chosen]);
  const top = useRef<HTMLDivElement>(null);
  const isAsked = useRef(false); // from within the results, so that the reader is led back to their beginning
  useEffect(() => {
    if (!isAsked.current) return;
    isAsked.current = false;
    const tokens = top.current?.querySelectorAll<HTMLElement>(".token.forced");
    const last = tokens?.[tokens.length - 1] ?? top.current?.querySelector<HTMLElement>(".token");
    top.current?.scrollIntoView({ block: "nearest" });
    top.current?.querySelector(".outputs")?.scrollIntoView({ block: "nearest" });
    last?.focus({ preventScroll: true });
  }, [prediction]);
  const decodeFromHere = (changes: Parameters<typeof decode>[0]) => {
    isAsked.current = true;
    decode(changes);
  };
  const output = prediction.outputs[chosen];
  const force = (at: number, alternative: Alternative) => {
    const before = output.tokens.slice(0, at);
    decodeFromHere({ forced: [...before.map((token) => token.id), alternative.id] });
  };
  const unknown = Object.values(prediction.unknown).flat();
  const isRankedByScore = prediction.outputs.some((one) => number(one.score) !== number(one.log_prob));
  return (
    <div ref={top} aria-busy={busy} className={busy ? "waiting" : ""} data-testid="results" data-input={sourceText(prediction.input)}>
      {unknown.length > 0 && (
        <p className="note">Not in the vocabulary: {unknown.map((token, index) => <bdi key={index} className="piece tag">{token}</bdi>)}</p>
      )}
      <div className="heading">
        <h2>Outputs</h2>
        <DoubtLegend />
        <span className="hint">
          beam {prediction.search.beam}{!decoding.run.is_classifier && `, ${NORMALIZED[prediction.search.normalize]}`}
          {" · "}decoded in {duration(prediction.seconds)}
          {!inspected && took > 0 && <span data-testid="took" data-took={took} data-seconds={prediction.seconds}>, shown after {duration(took / 1000)}</span>}
        </span>
      </div>
      <ol className="outputs">
        {prediction.outputs.map((one, index) => (
          <li key={index} className={index === chosen ? "on" : ""}>
            <button className="pick" aria-pressed={index === chosen} aria-label={`Look at output ${index + 1}`} onClick={() => choose(index)}>
              {index + 1}
            </button>
            <div className="output">
              {index === chosen ? (
                <TokenStrip tokens={one.tokens} chosen={step} onChoose={setStep} />
              ) : (
                <div className="plain" dir="auto" data-testid="output-text">{one.text || "(empty)"}</div>
              )}
              <div className="small" dir={direction(one.text)}>
                <Moved output={one} index={index} previous={previous} />
                {!one.finished && <span className="tag warn">cut off at the length limit</span>}
                {index === chosen && <bdi className="whole" data-testid="best-text">{one.text}</bdi>}
              </div>
            </div>
            <div className="scores">
              {one.confidence !== null && <span title={`The probability that the output ${prediction.right}`}>confidence <b data-testid="confidence">{percent(one.confidence)}</b></span>}
              {isRankedByScore && <span>score <b>{number(one.score)}</b></span>}
              <span title={RAW}>log p <b>{number(one.log_prob)}</b></span>
            </div>
          </li>
        ))}
      </ol>
      {prediction.confidence_note && <p className="hint" data-testid="confidence-note">{sentence(prediction.confidence_note)}</p>}
      {prediction.classes.length > 0 && <ClassBars classes={prediction.classes} />}
      {prediction.reference && <ReferenceNote reference={prediction.reference} />}
      <p className="row links">
        {prediction.cross.layers > 0 && <button className="quiet" onClick={() => go("attention")}>Where the model looked</button>}
        {(!inspected || inspected.tree) && <button className="quiet" onClick={() => go("tree")}>How the search went</button>}
        {wish.forced && !inspected && <button className="quiet" onClick={() => decodeFromHere({ forced: null })}>Remove the forced beginning</button>}
      </p>
      <h2>Step by step</h2>
      <Steps output={output} chosen={step} force={inspected ? null : force} />
    </div>
  );
}

/** Whether an output is new since the last change, or had another rank. */
function Moved({ output, index, previous }: { output: Output; index: number; previous: Prediction | null }) {
  if (!previous) return null;
  const before = previous.outputs.findIndex((one) => one.text === output.text);
  if (before === index) return null;
  return <span className="tag">{before < 0 ? "new" : `was ${before + 1}`}</span>;
}
