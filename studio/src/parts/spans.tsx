import type { Span } from "../records";

/** An output with its differences from the reference: what only one of them has is marked. */
export function Marked({ spans, text }: { spans: Span[]; text: string }) {
  if (!spans.length) return <span dir="auto" className="text">{text}</span>;
  return (
    <span dir="auto" className="text">
      {spans.map((span, index) =>
        span.same ? (
          <span key={index}>{span.output}</span>
        ) : (
          <span key={index}>
            {span.reference && <del title="in the reference, not in the output">{span.reference}</del>}
            {span.output && <ins title="in the output, not in the reference">{span.output}</ins>}
          </span>
        ),
      )}
    </span>
  );
}

export function SpanLegend() {
  return <span className="legend"><del>only in the reference</del> <ins>only in the output</ins></span>;
}
