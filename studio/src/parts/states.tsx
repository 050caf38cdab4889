import type { ReactNode } from "react";

export function Loading({ what }: { what: string }) {
  return (
    <div className="state" role="status">
      <span className="spinner" aria-hidden="true" />
      {what}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state empty">
      <p className="state-title">{title}</p>
      {children}
    </div>
  );
}

export function ProblemNote({ text }: { text: string }) {
  return (
    <div className="problem" role="alert">
      <strong>That did not work.</strong> <span dir="auto">{text}</span>
    </div>
  );
}
