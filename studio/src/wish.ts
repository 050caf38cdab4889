/** What a person wants to have decoded, and how: as a value, and as a part of the address. */

import type { Values } from "./address";
import type { Run } from "./records";

export interface Wish {
  input: Record<string, string>; // by source: a text, or the id of a file
  reference: string;
  beam: number;
  nBest: number;
  normalize: "none" | "average" | "gnmt";
  forbidden: string[];
  forced: number[] | null; // tokens that an output has to begin with
  from: string; // the row of Errors that is looked into, such as "line 12", or ""
}

const ONLY = "source"; // the name under which a prompt is kept
const NORMALIZE = ["none", "average", "gnmt"] as const;

const sourcesOf = (run: Run): string[] => (run.sources.length ? run.sources.map((source) => source.name) : [ONLY]);
const keyOf = (run: Run, source: string): string => (sourcesOf(run).length === 1 ? "input" : `input.${source}`);

export function inputOf(run: Run, input: Record<string, string>): string | Record<string, string> {
  return run.sources.length ? input : (input[ONLY] ?? "");
}

export const hasInput = (wish: Wish): boolean => Object.values(wish.input).some(Boolean);

function fresh(run: Run): Wish {
  return {
    input: Object.fromEntries(sourcesOf(run).map((name) => [name, ""])),
    reference: "",
    beam: run.search.beam,
    nBest: Math.max(run.search.n_best, Math.min(5, run.search.beam)),
    normalize: run.search.normalize,
    forbidden: [],
    forced: null,
    from: "",
  };
}

const within = (text: string | undefined, fallback: number): number => {
  const value = Number(text);
  return text && Number.isInteger(value) ? Math.min(100, Math.max(1, value)) : fallback;
};

function texts(value: string | undefined): string[] {
  try {
    const found: unknown = JSON.parse(value || "[]");
    return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string") : [];
  } catch {
    return [];
  }
}

export function wishFrom(run: Run, values: Values): Wish {
  const own = fresh(run);
  const forced = (values.force ?? "").split(",").filter(Boolean).map(Number);
  return {
    input: Object.fromEntries(sourcesOf(run).map((name) => [name, values[keyOf(run, name)] ?? ""])),
    reference: values.reference ?? "",
    beam: within(values.beam, own.beam),
    nBest: within(values.outputs, own.nBest),
    normalize: NORMALIZE.find((one) => one === values.normalize) ?? own.normalize,
    forbidden: texts(values.never),
    forced: forced.length && forced.every(Number.isInteger) ? forced : null,
    from: values.from ?? "",
  };
}

/** The same as a part of the address; what is as the run has it is left out. */
export function valuesOf(run: Run, wish: Wish): Values {
  const own = fresh(run);
  return {
    ...Object.fromEntries(sourcesOf(run).map((name) => [keyOf(run, name), wish.input[name] ?? ""])),
    reference: wish.reference,
    beam: wish.beam === own.beam ? "" : String(wish.beam),
    outputs: wish.nBest === own.nBest ? "" : String(wish.nBest),
    normalize: wish.normalize === own.normalize ? "" : wish.normalize,
    never: wish.forbidden.length ? JSON.stringify(wish.forbidden) : "",
    force: wish.forced?.join(",") ?? "",
    from: wish.from,
  };
}
