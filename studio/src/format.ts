/** Numbers and names as they are written on the page. */

export function percent(share: number): string {
  const value = 100 * share;
  if (value >= 99.95 || value === 0) return `${Math.round(value)} %`;
  if (value < 0.1) return "< 0.1 %";
  return `${value.toFixed(1)} %`;
}

export const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits) return value.toExponential(1);
  return value.toFixed(digits).replace("-", "−");
}

export const count = (value: number): string => value.toLocaleString("en-GB");

const power = (value: number): number => Math.floor(Math.log10(value) + 1e-9);

/** A number on an axis: no more digits than tell neighbours apart. */
export function tick(value: number, step: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10_000) return `${+(value / 1000).toFixed(step < 1000 ? 1 : 0)}k`;
  if (step < 0.001) return value.toExponential(Math.max(0, power(size) - power(step))).replace(/\.?0+e/, "e").replace(/-/g, "−");
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  return value.toFixed(digits).replace("-", "−");
}

export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function size(bytes: number): string {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1000))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export const fileName = (path: string): string => path.split(/[\\/]/).pop() || path;

/** A text for a list to choose from, which would cut it off without a sign. */
export function shortened(text: string, most = 38): string {
  const signs = [...text];
  return signs.length > most ? `${signs.slice(0, most - 1).join("").trimEnd()}…` : text;
}

/** A text among others that its direction does not change. Where elements are possible, <bdi> does the same. */
export const isolated = (text: string): string => `\u2068${text}\u2069`;

/** Several sources in one line. */
export function sourceText(source: Record<string, string>): string {
  const parts = Object.values(source);
  return parts.length === 1 ? parts[0] : Object.entries(source).map(([name, text]) => `${name}: ${text}`).join("  ·  ");
}

/** A source for a list to choose from: of several, the beginning of each. */
export function sourceChoice(source: Record<string, string>): string {
  const parts = Object.values(source);
  if (parts.length === 1) return shortened(parts[0]);
  return parts.map((text) => isolated(shortened(text, Math.max(12, Math.floor(60 / parts.length))))).join(" | ");
}

/** 1, 2 or 5 times a power of ten, so that about `wanted` of them fit between. */
export function ticks(low: number, high: number, wanted: number): { values: number[]; step: number } {
  const span = high - low || 1;
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
  const values: number[] = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * span; index++) values.push(index * step);
  return { values, step };
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** The direction of a text as the browser finds it: that of its first letter. */
export function direction(text: string): "ltr" | "rtl" {
  const letter = /\p{L}/u.exec(text);
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}
