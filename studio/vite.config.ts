import { readFileSync } from "node:fs";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The licences of the packages that the script contains, which they ask for in every copy: the script's first comment,
// so that one-file pages have it too. Packages of the lock that are not for development are in the script; preact is in
// exported pages alone (build_runtime.mjs).
function licences(): string {
  const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
  const namesByText = new Map<string, string[]>();
  for (const [folder, { dev, version }] of Object.entries<{ dev?: boolean; version: string }>(packages)) {
    if (folder === "" || dev || folder === "node_modules/preact") continue;
    const text = readFileSync(`${folder}/LICENSE`, "utf8").trim();
    const name = `${folder.replace("node_modules/", "")} ${version}`;
    namesByText.set(text, [...(namesByText.get(text) ?? []), name]);
  }
  const parts = [...namesByText].map(([text, names]) => `Contains ${names.join(", ")}:\n\n${text}`);
  return `/*!\n${parts.join("\n\n")}\n*/`;
}

// One page, one script, one style sheet, with addresses relative to the page: the server serves them as they are, and a
// one-file page contains them. pack.py puts them into the package.
export default defineConfig({
  base: "./",
  plugins: [react()],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    modulePreload: false,
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // they know light-dark()
    cssCodeSplit: false,
    assetsInlineLimit: 100_000,
    rollupOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "studio.js",
        assetFileNames: "studio[extname]",
        postBanner: licences, // after minifying, which removes comments
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8400" } },
});
