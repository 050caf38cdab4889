/** Which rows of a test set are listed, and in what order. */

import { sourceText } from "../format";
import type { ErrorRow } from "../records";

export interface Filter {
  text: string;
  wrong: boolean;
  unknown: boolean;
  rare: boolean;
  shortest: string;
  longest: string;
  lowest: string; // of the headline metric
  highest: string;
}

export const NO_FILTER: Filter = { text: "", wrong: false, unknown: false, rare: false, shortest: "", longest: "", lowest: "", highest: "" };

const above = (value: number, least: string): boolean => least === "" || value >= Number(least);
const below = (value: number, most: string): boolean => most === "" || value <= Number(most);

export function filtered(rows: ErrorRow[], filter: Filter): ErrorRow[] {
  const text = filter.text.toLowerCase();
  return rows.filter((row) => {
    const headline = Object.values(row.values)[0] ?? 0;
    return (
      (!filter.wrong || !row.correct) &&
      (!filter.unknown || row.unknown.length > 0) &&
      (!filter.rare || row.rare.length > 0) &&
      above(row.source_length, filter.shortest) && below(row.source_length, filter.longest) &&
      above(headline, filter.lowest) && below(headline, filter.highest) &&
      (!text || [sourceText(row.source), row.output, ...row.references].some((one) => one.toLowerCase().includes(text)))
    );
  });
}

export interface Sorting {
  by: string; // "line", "source", "output", "length", "surprise", or a metric
  down: boolean;
}

export function sorted(rows: ErrorRow[], { by, down }: Sorting): ErrorRow[] {
  const value = (row: ErrorRow): number | string =>
    by === "line" ? row.line
    : by === "source" ? sourceText(row.source)
    : by === "output" ? row.output
    : by === "length" ? row.source_length
    : by === "surprise" ? row.log_prob
    : (row.values[by] ?? 0);
  const order = (a: number | string, b: number | string): number =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return [...rows].sort((a, b) => (down ? -1 : 1) * order(value(a), value(b)) || a.index - b.index);
}
