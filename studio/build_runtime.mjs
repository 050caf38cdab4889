// Build the runtime for Node and browsers, and the script of exported pages. pack_runtime.py puts them into the package.
import { copyFileSync, readFileSync } from "node:fs";
import { build } from "vite";

const folder = "dist-runtime";
const { version } = JSON.parse(readFileSync("node_modules/preact/package.json", "utf8"));
const licence = `/*!\nContains preact ${version}:\n\n${readFileSync("node_modules/preact/LICENSE", "utf8").trim()}\n*/`;

// One file each, without names that depend on its content.
const outputs = [
  { entry: "runtime/dragoman.ts", name: "dragoman.js", format: "es" },
  { entry: "local/engine.ts", name: "engine.js", format: "iife" },
  { entry: "local/main.tsx", name: "page.js", format: "iife", banner: licence },
];

for (const [index, { entry, name, format, banner }] of outputs.entries())
  await build({
    configFile: false,
    logLevel: "warn",
    // Preact in place of React: the page is a tenth of the size, and the views need nothing that it lacks.
    resolve: {
      alias: [
        { find: "react-dom/client", replacement: "preact/compat/client" },
        { find: "react/jsx-runtime", replacement: "preact/jsx-runtime" },
        { find: /^react(-dom)?$/, replacement: "preact/compat" },
      ],
    },
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: {
      outDir: folder,
      emptyOutDir: index === 0,
      target: "es2022",
      cssTarget: ["chrome123", "firefox120", "safari17.5"], // they know light-dark()
      copyPublicDir: false,
      lib: { entry, name: "dragomanPart", formats: [format], fileName: () => name, cssFileName: "page" },
      minify: format === "iife",
      rollupOptions: { output: { postBanner: banner } },
    },
  });

copyFileSync("runtime/ask.mjs", `${folder}/ask.mjs`);
