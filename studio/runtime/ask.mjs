// Ask a model from the command line: node ask.mjs model.dragoman < inputs.txt
//
// Each line of the standard input is a text, and its output is printed. With --json each line is an object
// { input, options } as Dragoman.predict takes them, and what is found is printed as an object. A source that is no
// text is { floats, length, height, breadth } there, where floats are its numbers (float32) in base64.
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

import { Dragoman } from "./dragoman.js";

const [path, ...options] = process.argv.slice(2);
if (!path) {
  console.error("usage: node ask.mjs model.dragoman [--json] < inputs.txt");
  process.exit(2);
}
const wasm = await readFile(new URL("dragoman.wasm", import.meta.url));
const model = await Dragoman.load(await readFile(path), { wasm });

function features({ floats, ...size }) {
  const bytes = Buffer.from(floats, "base64");
  return { data: new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)), ...size };
}

function answer({ input, options }) {
  try {
    const read = typeof input === "string" ? input : Object.fromEntries(
      Object.entries(input).map(([name, value]) => [name, typeof value === "string" ? value : features(value)]),
    );
    const { outputs } = model.predict(read, options);
    return { outputs: outputs.map(({ text, confidence, ids, tokens, logProbs, score, finished }) => ({ text, confidence, ids, tokens, logProbs, score, finished })) };
  } catch (error) {
    if (error.name !== "DragomanError") throw error;
    return { error: error.message };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  if (options.includes("--json")) console.log(JSON.stringify(answer(JSON.parse(line))));
  else console.log(model.predict(line).text);
}
