import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

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
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8400" } },
});
