/** Light, dark, or the same as the system. Paper is always light. */

import { useSyncExternalStore } from "react";

export type Theme = "auto" | "light" | "dark";
const KEY = "dragoman-theme";
const listeners = new Set<() => void>();
const system = window.matchMedia("(prefers-color-scheme: dark)");
const paper = window.matchMedia("print");
for (const media of [system, paper]) media.addEventListener("change", () => listeners.forEach((tell) => tell()));

export function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "auto";
  } catch {
    return "auto"; // a one-file page opened from a disk may have no storage
  }
}

export function applyTheme(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // the choice is lost when the page is closed
  }
  listeners.forEach((tell) => tell());
}

function isDark(): boolean {
  if (paper.matches) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

/** Whether the page is dark. A canvas has to be drawn again when this changes. */
export function useDark(): boolean {
  return useSyncExternalStore((tell) => {
    listeners.add(tell);
    return () => listeners.delete(tell);
  }, isDark);
}
