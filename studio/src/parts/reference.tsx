import { number } from "../format";
import type { Reference } from "../records";

const WORDS = { found: "found", excluded: "excluded", "search error": "search error", "model error": "model error" };

/** Whether the reference was found, excluded by the request, lost by the search, or is less probable than the output. */
export function ReferenceNote({ reference }: { reference: Reference }) {
  return (
    <section className="reference-note" aria-label="Reference">
      <div>
        <span className={`verdict ${reference.verdict === "found" ? "good" : "bad"}`}>{WORDS[reference.verdict]}</span>{" "}
        <bdi className="whole">{reference.text}</bdi>
      </div>
      <p>{reference.sentence}</p>
      <p className="hint">
        {number(reference.score) !== number(reference.log_prob) && `score ${number(reference.score)}, `}log p {number(reference.log_prob)}
        {reference.lost_at !== null && `; fell out of the beam at step ${reference.lost_at + 1}`}
        {reference.margin !== null && `, ${number(reference.margin)} below the last candidate that was kept`}
      </p>
    </section>
  );
}
