import { sourceText } from "../format";
import type { SourceFile } from "../records";

/** The sources of a row: a text as text, a picture as a picture, a recording to play. */
export function SourceCell({ source, files }: { source: Record<string, string>; files: Record<string, SourceFile> }) {
  const shown = Object.entries(files).filter(([, file]) => file.url && (file.kind === "image" || file.kind === "speech"));
  return (
    <>
      {shown.map(([name, file]) =>
        file.kind === "image" ? (
          <img key={name} className="row-picture" src={file.url} alt={source[name]} loading="lazy" />
        ) : (
          <audio key={name} className="row-sound" controls preload="none" src={file.url} aria-label={source[name]} />
        ),
      )}
      <span dir="auto" className={shown.length ? "text named" : "text"}>{sourceText(source)}</span>
    </>
  );
}
