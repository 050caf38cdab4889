import { useEffect, useRef, useState } from "react";

/** Return sound as a 16-bit WAV file, which every program can read. */
function wav(samples: Float32Array, rate: number): Blob {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const word = (at: number, text: string) => [...text].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  word(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  word(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // plain samples
  view.setUint16(22, 1, true); // one channel
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  word(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, index) => view.setInt16(44 + 2 * index, 32767 * Math.max(-1, Math.min(1, value)), true));
  return new Blob([view.buffer], { type: "audio/wav" });
}

/** A button that records from the microphone. */
export function Recorder({ onSound }: { onSound(file: File): void }) {
  const [recording, setRecording] = useState(false);
  const [problem, setProblem] = useState("");
  const recorder = useRef<MediaRecorder | null>(null);
  useEffect(() => () => {
    if (!recorder.current) return;
    recorder.current.onstop = null; // the view was left, so the recording is dropped
    recorder.current.stream.getTracks().forEach((track) => track.stop());
  }, []);
  if (!navigator.mediaDevices) return null; // not a safe origin: the browser has no microphone for us

  const start = async () => {
    setProblem("");
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const parts: Blob[] = [];
      const made = new MediaRecorder(stream);
      made.ondataavailable = (event) => parts.push(event.data);
      made.onstop = async () => {
        stream.getTracks().forEach((track) => track.stop());
        setRecording(false);
        const context = new AudioContext();
        try {
          const sound = await context.decodeAudioData(await new Blob(parts).arrayBuffer());
          onSound(new File([wav(sound.getChannelData(0), sound.sampleRate)], "recording.wav", { type: "audio/wav" }));
        } catch {
          setProblem("Nothing was recorded.");
        } finally {
          void context.close();
        }
      };
      made.start();
      recorder.current = made;
      setRecording(true);
    } catch {
      setProblem("The microphone cannot be used. Allow it in the browser.");
    }
  };

  return (
    <>
      <button className="quiet" aria-pressed={recording} onClick={() => (recording ? recorder.current?.stop() : void start())}>
        {recording ? "■ Stop" : "● Record"}
      </button>
      {problem && <span className="hint" role="alert">{problem}</span>}
    </>
  );
}
