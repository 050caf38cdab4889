/** Colour scales whose lightness only rises or only falls, so that they read without colour vision and in grey. */

type Stop = [number, number, number];

// From the paper's own colour to the strongest contrast with it, through hues that stay apart for the colour-blind.
const LIGHT: Stop[] = [
  [255, 255, 255], [233, 240, 205], [181, 218, 178], [112, 187, 170], [54, 148, 162], [35, 107, 147], [38, 67, 122], [36, 29, 82],
];
const DARK: Stop[] = [
  [22, 25, 31], [37, 38, 84], [42, 69, 122], [38, 106, 139], [50, 145, 141], [104, 181, 121], [176, 212, 98], [252, 236, 120],
];

const STEPS = 1024;
const tables = new Map<boolean, Uint32Array>();

/** 1024 colours as the canvas keeps them (ABGR), from weight 0 to weight 1. */
export function table(dark: boolean): Uint32Array {
  const known = tables.get(dark);
  if (known) return known;
  const made = new Uint32Array(STEPS);
  for (let index = 0; index < STEPS; index++) {
    const [red, green, blue] = mixed(dark, index / (STEPS - 1));
    made[index] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  tables.set(dark, made);
  return made;
}

function mixed(dark: boolean, weight: number): Stop {
  const stops = dark ? DARK : LIGHT;
  const place = Math.min(1, Math.max(0, weight)) * (stops.length - 1);
  const below = Math.min(stops.length - 2, Math.floor(place));
  const share = place - below;
  const mix = (channel: number) => Math.round(stops[below][channel] * (1 - share) + stops[below + 1][channel] * share);
  return [mix(0), mix(1), mix(2)];
}

export function colour(dark: boolean, weight: number): string {
  return `rgb(${mixed(dark, weight).join(" ")})`;
}

/** The ink that reads on `colour(dark, weight)`. */
export function inkOn(dark: boolean, weight: number): string {
  const [red, green, blue] = mixed(dark, weight).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#14161a" : "#ffffff";
}

export function gradient(dark: boolean): string {
  return `linear-gradient(to right, ${(dark ? DARK : LIGHT).map((stop) => `rgb(${stop.join(" ")})`).join(", ")})`;
}

/** How runs are told apart: by colour and by stroke. Where the colours begin again, the strokes are shifted by one, so
 * that 36 runs have 36 different lines. */
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "4 2 1 2", "12 4"];
const COLOURS = 6;
export const runColour = (index: number): string => `var(--run-${index % COLOURS})`;
export const runDashes = (index: number): string => DASHES[(index + Math.floor(index / COLOURS)) % DASHES.length];
