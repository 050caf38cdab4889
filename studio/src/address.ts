/** What the page shows is in its address, so that reloading, going back and changing the run lose nothing:
 * `#view/run?name=value&…`. */

import { useCallback, useSyncExternalStore } from "react";

export type Values = Readonly<Record<string, string>>;

export interface Address {
  view: string;
  run: string;
  values: Values; // the input and the settings of the views
}

const listeners = new Set<() => void>();
const kept = new Map<string, Values>(); // by run: what it was last shown with

function parse(hash: string): Address {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view = "", run = ""] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view, run, values: Object.fromEntries(new URLSearchParams(query)) };
}

function write({ view, run, values }: Address): string {
  const query = new URLSearchParams(values).toString();
  return `#${view}/${encodeURIComponent(run)}${query && `?${query}`}`;
}

let current = parse(window.location.hash);

function show(address: Address): void {
  current = address;
  kept.set(address.run, address.values);
  listeners.forEach((tell) => tell());
}

const OF_INPUT = /^(input(\..*)?|reference|beam|outputs|normalize|never|force|from)$/;

// An address without an input keeps the one that is there: who goes back from a row to the table still has the row.
window.addEventListener("hashchange", () => {
  const next = parse(window.location.hash);
  const isNew = next.run !== current.run || Object.keys(next.values).some((name) => name.startsWith("input"));
  const input = Object.fromEntries(Object.entries(current.values).filter(([name]) => OF_INPUT.test(name)));
  if (isNew) show(next);
  else replace({ ...next, values: { ...input, ...next.values } });
});

export function useAddress(): Address {
  return useSyncExternalStore(
    (tell) => {
      listeners.add(tell);
      return () => listeners.delete(tell);
    },
    () => current,
  );
}

/** Go to a view of a run, with what the run was last shown with. The browser's "back" comes back here. */
export function goTo(view: string, run: string): void {
  const values = run === current.run || !current.run ? current.values : (kept.get(run) ?? {});
  const address = { view, run, values };
  try {
    window.history.pushState(null, "", write(address));
    show(address);
  } catch {
    window.location.hash = write(address);
  }
}

/** Write into the address which view and which run are shown, where it does not say so. */
export function settle(view: string, run: string): void {
  if (current.view === view && current.run === run) return;
  replace({ view, run, values: current.run && current.run !== run ? {} : current.values });
}

function replace(address: Address): void {
  try {
    window.history.replaceState(null, "", write(address));
  } catch {
    // browsers allow only so many changes in a while; the page itself still knows
  }
  show(address);
}

/** Change some values in place; an empty one is removed. */
export function setValues(changes: Readonly<Record<string, string>>, run = current.run): void {
  const values = Object.fromEntries(Object.entries({ ...current.values, ...changes }).filter(([, value]) => value !== ""));
  replace({ view: current.view || "predict", run: current.run || run, values });
}

/** One value of the address, as state. */
export function useValue<Value extends string>(name: string, fallback: Value): [Value, (value: Value) => void] {
  const { values } = useAddress();
  const set = useCallback((value: Value) => setValues({ [name]: value === fallback ? "" : value }), [name, fallback]);
  return [(values[name] as Value | undefined) ?? fallback, set];
}

export function useFlag(name: string): [boolean, (on: boolean) => void] {
  const [value, set] = useValue<string>(name, "");
  return [value !== "", useCallback((on: boolean) => set(on ? "1" : ""), [set])];
}
