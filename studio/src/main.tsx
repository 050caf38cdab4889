import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./app";
import { backend } from "./backend";
import { applyTheme, storedTheme } from "./theme";
import "./style.css";

applyTheme(storedTheme());
createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App backend={backend()} />
  </StrictMode>,
);
