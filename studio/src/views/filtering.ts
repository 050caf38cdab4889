/** Which rows of a test set are listed, and in what order. */

import type { Values } from "../address";
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
  gold: string; // of a cell of the confusion matrix: the class of the reference, and the output
  label: string;
}

export const NO_FILTER: Filter = { text: "", wrong: false, unknown: false, rare: false, shortest: "", longest: "", lowest: "", highest: "", gold: "", label: "" };

const FLAGS = ["wrong", "unknown", "rare"] as const;
const FIELDS = ["shortest", "longest", "lowest", "highest", "gold", "label"] as const;

/** The filter as the address has it. */
export function filterFrom(values: Values): Filter {
  const found = { ...NO_FILTER, text: values.find ?? "" };
  for (const name of FLAGS) found[name] = !!values[name];
  for (const name of FIELDS) found[name] = values[name] ?? "";
  return found;
}

export function filterValues(filter: Filter): Values {
  const flags = FLAGS.map((name) => [name, filter[name] ? "1" : ""]);
  return Object.fromEntries([["find", filter.text], ...flags, ...FIELDS.map((name) => [name, filter[name]])]);
}

const above = (value: number, least: string): boolean => least === "" || value >= Number(least);
const below = (value: number, most: string): boolean => most === "" || value <= Number(most);

/** Whether a row is counted in a cell of the confusion matrix with these labels. An output that is none of them is in the
 * last column. */
function isInCell(row: ErrorRow, { gold, label }: Filter, labels: readonly string[]): boolean {
  if (!gold) return true;
  const own = row.references.includes(row.output) ? row.output : row.references[0];
  return own === gold && (labels.includes(row.output) ? row.output : labels[labels.length - 1]) === label;
}

export function filtered(rows: ErrorRow[], filter: Filter, labels: readonly string[] = []): ErrorRow[] {
  const text = filter.text.toLowerCase();
  return rows.filter((row) => {
    const headline = Object.values(row.values)[0] ?? 0;
    return (
      isInCell(row, filter, labels) &&
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

export function sortingFrom(values: Values, usual: Sorting): Sorting {
  return values.sort ? { by: values.sort.replace(/^-/, ""), down: values.sort.startsWith("-") } : usual;
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
