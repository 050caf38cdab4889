import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// One page, one script, one sheet, addresses relative to the page: the server hands them out as they are, and a
// one-file page has them written into it.
export default defineConfig({
  base: "./",
  plugins: [react()],
  build: {
    outDir: "../src/dragoman/studio/static",
    emptyOutDir: true,
    modulePreload: false,
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // light-dark() as it stands
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
